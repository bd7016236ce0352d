# SPDX-License-Identifier: Apache-2.0
"""A real GPU on a machine that cannot use it as it is: hidden, without cuBLASLt, with too little
memory, or with memory that others hold. Skips without a GPU. tests/engine/test_cuda_host.py has
the same over a made-up machine."""
import contextlib, glob, json, os, re, shutil, signal, subprocess, sys

import pytest

import support
from test_card import COUNT
from test_cuda_host import MACHINES, events, run_one
from test_device_faults import create, lines, results, state  # noqa: F401 (a fixture)

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"
CARD = ["--device", "cuda", "--device-plugin", support.cuda_plugin()]
HIDDEN = "no CUDA device: the driver finds no GPU of CUDA_VISIBLE_DEVICES=-1: see nvidia-smi -L, change or unset the variable, or run with --device cpu"
FULL = "{limit} MiB of the GPU's memory are the limit, driver and libraries take \\d+ of them, and \\d+ are free for the rest"

pytestmark = pytest.mark.skipif(not support.has_card(), reason=support.NO_CARD)

# Another process on the GPU: tells the free memory in MiB, takes as much as a line of its input
# says once that is free, and holds it until the input ends.
OTHER = """
import ctypes, sys, time
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(free.value >> 20, flush=True)
wanted = int(sys.stdin.readline()) << 20
while cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(wanted)) != 0:
    time.sleep(0.001)
print("held", flush=True)
sys.stdin.read()
"""


class Other:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", OTHER],
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE,
                                        text=True)
        self.free_mib = int(self.process.stdout.readline())

    def ask(self, mib):
        self.process.stdin.write(f"{mib}\n")
        self.process.stdin.flush()

    def await_it(self):
        assert self.process.stdout.readline() == "held\n"

    def end(self):
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def other():
    process = Other()
    try:
        yield process
    finally:
        process.end()


def test_auto_says_that_no_card_is_shown_and_runs_on_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    done = run_one(tmp_path, "--device-plugin", support.cuda_plugin())
    assert done.returncode == 0, done.stderr
    [said] = events(done, "device")
    assert f'device=cpu reason="{HIDDEN}"' in said and done.stderr.count(HIDDEN) == 1


def test_cuda_ends_with_3_where_no_card_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    done = run_one(tmp_path, *CARD)
    assert done.returncode == 3 and HIDDEN in done.stderr, done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def folders_of_cublaslt():
    """The folders in which the loader and the plugin find it."""
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    files = [
        *re.findall(r"libcublasLt\.so\S* .*=> (\S+)", known),
        *glob.glob("/usr/local/cuda/lib64/libcublasLt.so*"),
        *glob.glob("/opt/cuda/lib64/libcublasLt.so*")]
    return sorted({os.path.dirname(os.path.realpath(file)) for file in files})


@pytest.mark.parametrize("device, status", [("auto", 0), ("cuda", 3)])
def test_without_cublaslt_it_says_what_to_install(tmp_path, device, status):
    """A plugin in a folder of its own, in a mount namespace in which the folders of the library are
    empty."""
    hidden = folders_of_cublaslt()
    if os.geteuid() != 0 or any(folder.startswith(("/lib", "/usr/lib")) for folder in hidden):
        pytest.skip("only root hides the library, and not with what else is in its folder")
    hide = "".join(f"mount -t tmpfs none '{folder}' && " for folder in hidden) + 'exec "$@"'
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines(1)))
    arguments = [
        "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", f"m={TINY}",
        "--device", device, "--device-plugin",
        shutil.copy(support.cuda_plugin(), tmp_path)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hide, "sh", support.BINARY, *map(str, arguments)],
        capture_output=True,
        text=True)
    assert done.returncode == status and MACHINES["no-library"] in done.stderr, done.stderr
    assert (tmp_path / "out.jsonl").exists() == (status == 0)


def test_each_setting_that_a_refusal_names_fits_the_card(tmp_path):
    done = run_one(tmp_path, *CARD, "--gpu-memory-limit-mib", 100)
    few = re.search(r"100 MiB of the GPU's memory are too few: driver and libraries take (\d+)",
                    done.stderr)
    assert done.returncode == 3 and few, done.stderr
    refused = []
    for more in range(10, 200, 10):
        limit = ["--gpu-memory-limit-mib", int(few[1]) + more]
        done = run_one(tmp_path, *CARD, *limit)
        if done.returncode == 0:
            break
        assert done.returncode == 3 and f"may take {limit[1]}: driver " in done.stderr, done.stderr
        refused += [(limit, option) for option in re.findall(r"(--max-[a-z-]+) (\d+)", done.stderr)]
    assert refused
    for limit, option in refused:
        done = run_one(tmp_path, *CARD, *limit, *option)
        assert done.returncode == 0, done.stderr


def test_memory_that_another_process_keeps_ends_it_with_both_numbers(tmp_path):
    with other() as process:
        process.ask(process.free_mib - 2000)
        process.await_it()
        done = run_one(tmp_path, *CARD, "--gpu-memory-limit-mib", 8000)
    said = FULL.format(
        limit=8000) + ": end what else nvidia-smi shows on it, or lower --gpu-memory-limit-mib"
    assert done.returncode == 3 and re.search(said, done.stderr), done.stderr
    assert len(events(done, "device_waits")) == 4 and not events(done, "device")


def test_memory_that_another_process_gives_back_is_waited_for(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines(4)))
    arguments = [
        "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", f"m={TINY}",
        *CARD, "--gpu-memory-limit-mib", 8000, "--log-level", "info"]
    with other() as process:
        process.ask(process.free_mib - 300)  # less than a context takes
        process.await_it()
        run = subprocess.Popen([support.BINARY, *map(str, arguments)],
                               stderr=subprocess.PIPE,
                               text=True)
        before = []
        for line in run.stderr:
            before.append(line)
            if "event=device_waits " in line:
                break
    rest = run.stderr.read()
    assert run.wait() == 0, "".join(before) + rest
    assert "need" in before[-1] and "are free" in before[-1], before
    assert "device=cuda:0" in rest and len((tmp_path / "out.jsonl").read_text().splitlines()) == 4


def test_lines_wait_while_another_process_holds_the_memory_of_their_card(state):
    """The other process wants more than half of the GPU, as the engine has, and gets it when the
    engine is killed."""
    requests = [
        dict(line, custom_id=f"line-{i:04d}", body=dict(line["body"], max_tokens=100))
        for i, line in enumerate(lines(COUNT))]
    with other() as process:
        half = process.free_mib * 6 // 10
        arguments = [
            "--model", f"m={TINY}", *map(str, CARD), "--gpu-memory-limit-mib",
            str(half), "--max-num-seqs", "16", "--result-cache-bytes", "0"]
        with support.serving(state, *arguments) as server:
            batch_id = create(server, requests)
            process.ask(half)
            support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
            os.kill(server.engine_pid(), signal.SIGKILL)
            process.await_it()
            said = FULL.format(limit=half)
            support.until(
                lambda: re.search(f"event=engine_down will_restart=yes.*{said}", server.log_text()))
            status, health = server.call("GET", "/health")
            assert status == 503 and re.search(f"waiting for its GPU: .*{said}",
                                               health.decode()), health
            batch = server.batch(batch_id)
            assert batch["status"] == "in_progress" and batch["request_counts"]["failed"] == 0
            process.end()
            good, bad = results(server, server.wait(batch_id), requests)
            assert len(good) == COUNT and not bad


def test_logits_that_are_no_numbers_are_counted_and_answered(tmp_path, state):
    """The weights of the final norm are the largest numbers of bf16, so that sums of the head
    overflow."""
    model = tmp_path / "model"
    shutil.copytree(support.SHARED / "tiny/llama3",
                    model,
                    ignore=shutil.ignore_patterns("*.gguf", "*.safetensors"))
    weights = bytearray((support.SHARED / "tiny/llama3/model.safetensors").read_bytes())
    head = int.from_bytes(weights[:8], "little")
    norm = json.loads(weights[8:8 + head])["model.norm.weight"]
    assert norm["dtype"] == "BF16"
    first, end = (8 + head + at for at in norm["data_offsets"])
    weights[first:end] = b"\x7f\x7f" * ((end - first) // 2)
    (model / "model.safetensors").write_bytes(weights)
    requests = lines(12)
    with support.serving(state, "--model", f"m={model}", *map(str, CARD), "--result-cache-bytes",
                         "0") as server:
        good, bad = results(server, server.wait(create(server, requests)), requests)
        assert len(good) == 12 and not bad
        support.until(lambda: re.search(rb'^quern_engine_nonfinite_rows_total\{engine="0"\} [1-9]',
                                        server.call("GET", "/metrics")[1], re.M))


def test_a_request_longer_than_the_cache_is_refused_with_numbers(state):
    with support.serving(state, "--model", f"m={TINY}", *map(str, CARD), "--kv-cache-memory-bytes",
                         "1MiB") as server:
        status, data = server.call("POST", "/v1/completions",
                                   {"model": "m", "prompt": [5] * 3000, "max_tokens": 8})
        assert status == 400 and re.search(
            rb"context length is \d+ tokens. However, you requested 3008 tokens", data), data

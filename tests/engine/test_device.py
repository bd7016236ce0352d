# SPDX-License-Identifier: Apache-2.0
"""The device that an engine uses, from outside: what `auto` says in one line before it runs on the
CPU, what `cuda` ends with, which values of vLLM's options are refused, and models on the plain
device: their answers, and its faults."""
import json, re, shutil, subprocess

import pytest

import gguf_of, support

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"
SITUATIONS = {
    "symbol": "is no plugin: it lacks quern_gpu_table; install the plugin that was built with this quern, or run with --device cpu",
    "abi": "is of another build: its interface is", "bytes": "is of another build: its table has",
    "version": "is of another build: quern 0.0.1",
    "driver": "libcuda.so.1 cannot be loaded; install NVIDIA's driver",
    "empty": "this machine has no stub GPU that the driver shows; see nvidia-smi, or run with --device cpu",
    "refused": "GPU 0, Stub 0, cannot be used: it has compute capability 6.1, and quern needs 8.0",
    "library": "libcublasLt.so cannot be loaded; install cuBLAS", }


def run(tmp_path, *arguments, program=support.BINARY):
    line = {
        "custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {
            "model": "tiny", "prompt": "Hello", "max_tokens": 2}}
    (tmp_path / "in.jsonl").write_text(json.dumps(line) + "\n")
    words = [
        "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--overwrite", "--model",
        f"tiny={TINY}", *arguments]
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True)


@pytest.mark.parametrize("kind", SITUATIONS)
def test_auto_says_why_in_one_line_and_runs_on_the_cpu(tmp_path, kind):
    done = run(tmp_path, "--device-plugin", support.plugin(kind))
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "event=device" in line]
    assert len(said) == 1 and "device=cpu" in said[0] and SITUATIONS[kind] in said[0]
    assert json.loads((tmp_path / "out.jsonl").read_text())["response"]["status_code"] == 200


@pytest.mark.parametrize("kind", SITUATIONS)
def test_cuda_ends_with_3_and_the_sentence(tmp_path, kind):
    done = run(tmp_path, "--device", "cuda", "--device-plugin", support.plugin(kind))
    assert done.returncode == 3 and SITUATIONS[kind] in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_plugin_that_is_not_there_is_named_with_what_to_do(tmp_path):
    said = rf"cannot load the plugin: {tmp_path}/none\.so: .*; install the plugin that was built with this quern, or run with --device cpu"
    done = run(tmp_path, "--device", "cuda:0", "--device-plugin", tmp_path / "none.so")
    assert done.returncode == 3 and re.search(said, done.stderr), done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    done = run(tmp_path, "--device-plugin", tmp_path / "none.so")
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "event=device" in line]
    assert re.search(f'device=cpu reason="{said}"', line)
    assert json.loads((tmp_path / "out.jsonl").read_text())["response"]["status_code"] == 200


def test_without_a_plugin_next_to_it_quern_says_how_to_get_one(tmp_path):
    """A program in a folder of its own, where no plugin is, whether one was built or not."""
    said = "this quern has no libquern-cuda.so next to it; `make cuda` builds it where nvcc is, or run with --device cpu"
    alone = shutil.copy(support.BINARY, tmp_path)
    done = run(tmp_path, "--device", "cuda", program=alone)
    assert done.returncode == 3 and said in done.stderr, done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    done = run(tmp_path, "--log-level", "info",
               program=alone)  # no warning on a machine that has no GPU either
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "event=device " in line]
    assert f'device=cpu reason="{said}"' in line
    assert json.loads((tmp_path / "out.jsonl").read_text())["response"]["status_code"] == 200


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_memory_that_others_hold_ends_it_too(tmp_path, device):
    done = run(tmp_path, "--device", device, "--device-plugin", support.plugin("full"),
               "--gpu-memory-limit-mib", "5000")
    assert done.returncode == 3 and "5000 MiB are wanted, and 100 MiB are free" in done.stderr
    waits = [
        line for line in done.stderr.splitlines()
        if "event=device_waits card=0 limit_mib=5000" in line]
    assert len(waits) == 4 and all("5000 MiB are wanted, and 100 MiB are free" in line
                                   for line in waits)


@pytest.mark.parametrize("arguments, said", [
    (["--device", "rocm"], "--device 'rocm' is not supported (auto, cpu, cuda,"),
    (["--quantization", "nf4"
      ], "--quantization 'nf4' is not supported (auto, none, fp8, int8 and file are"),
    (["--kv-cache-dtype", "fp8_e5m2"], "--kv-cache-dtype 'fp8_e5m2' is not supported"),
    (["--dtype", "float16"], "--dtype 'float16' is not supported (auto and bfloat16 are"),
    (["--tensor-parallel-size", "9"], "--tensor-parallel-size: 9 is outside 1 to 8"),
    (["--device", "cpu", "--tensor-parallel-size", "2"
      ], "--tensor-parallel-size 2: the CPU computes alone"),
    (["--block-size", "32"], "--block-size 32 is not supported (16 is)"),
    (["--gpu-memory-utilization", "1.1"], "--gpu-memory-utilization: 1.1 is outside"),
    (["--device", "cuda", "--reference"
      ], "--reference and --kernels choose the CPU; --device cuda does not"),
    (["--reference", "--quantization", "fp8"
      ], "--quantization: the CPU has no other value than auto"),
    (["--device", "cpu", "--quantization", "fp8"
      ], "--quantization: the CPU has no other value than auto"), ])
def test_a_value_that_quern_has_not_is_refused_by_name(tmp_path, arguments, said):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_the_cpu_refuses_what_only_a_card_does(tmp_path):
    done = run(tmp_path, "--kv-cache-dtype", "fp8", "--device-plugin", support.plugin("empty"))
    assert done.returncode == 3 and "--kv-cache-dtype: the CPU has no other value than auto" in done.stderr


MODELS = ["llama3/model-q8_0.gguf", "gemma3", "mistral", "qwen2", "qwen3"]
PROMPTS = ["Hello", "The river runs", "1, 2, 3,", "Hello again, and then " * 40]


def lines(count=12, max_tokens=24):
    return [{
        "custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": PROMPTS[i % len(PROMPTS)] + f" {i}", "max_tokens": max_tokens,
            "temperature": 0, "ignore_eos": True}} for i in range(count)]


def texts(tmp_path, name, *arguments):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines()))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / name, "--overwrite",
                         *arguments)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    return {
        result["custom_id"]: result["response"]["body"]["choices"][0]["text"]
        for result in results}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_on_the_plain_device_answers_as_the_cpu_reference(tmp_path, model):
    model = f"m={support.SHARED / 'tiny' / model}"
    on_cpu = texts(tmp_path, "cpu.jsonl", "--model", model, "--reference", "--no-packed-cache")
    on_device = texts(tmp_path, "device.jsonl", "--model", model, "--device", "cuda",
                      "--device-plugin", support.plain_device())
    assert on_device == on_cpu and len(set(on_cpu.values())) > 4


def test_what_a_card_found_out_is_kept_for_the_next_start(tmp_path):
    def notes(name):
        texts(tmp_path, name, "--model", f"m={TINY}", "--device", "cuda", "--device-plugin",
              support.plain_device(), "--packed-cache-dir", folder)
        [file] = folder.glob("*/plain-GPU-*.notes")
        return file

    folder = tmp_path / "packed"
    whole = notes("one.jsonl").read_bytes()
    assert whole
    notes("two.jsonl").write_bytes(b"damaged")
    assert notes("three.jsonl").read_bytes() == whole


def serve(tmp_path, plugin, *arguments):
    return support.serving(tmp_path / "state", "--model", f"m={TINY}", "--device", "auto",
                           "--device-plugin", str(plugin), *arguments)


def test_the_log_names_the_card(tmp_path):
    with serve(tmp_path, support.plain_device(), "--gpu-memory-limit-mib", "500") as server:
        support.until(lambda: "event=model " in server.log_text())
        log = server.log_text()
    assert 'event=device device=plain:0 name="plain card 0" limit_mib=500' in log
    assert re.search(r"event=model llama .*; GPU plain card 0, threads", log), log


def restarts(server):
    _, data = server.call("GET", "/metrics")
    return int(
        re.search(r'^quern_engine_restarts_total\{engine="0"\} (\d+)$', data.decode(), re.M)[1])


@pytest.mark.parametrize("fault, said", [
    ("wait:7:error", "call 7 of wait fails, as the test asks"),
    ("submit:5:lost", "plain device: the GPU is lost"),
])
def test_a_device_that_fails_ends_its_engine_and_the_lines_run_again(tmp_path, fault, said):
    plugin = support.plain_device(tmp_path, "once", f"QUERN_PLAIN_FAULT={fault}")
    with serve(tmp_path, plugin, "--result-cache-bytes", "0") as server:
        batch = server.wait(server.create(support.jsonl(lines()), endpoint="/v1/completions")["id"])
        assert batch["request_counts"] == {"total": 12, "completed": 12, "failed": 0}
        assert restarts(server) == 1 and said in server.log_text()
        assert len({result["custom_id"] for result in server.results(batch)[0]}) == 12
    support.fsck(tmp_path / "state")


@pytest.mark.parametrize("step_ns, options, said", [
    ("0+0", (), "rows=2048 most=2048"),
    ("20000+1000", (), "rows=512 most=2048"),
    ("50000+1000", (), "rows=1024 most=2048"),
    ("50000+1000", ("--max-num-batched-tokens", "600"), None),
])
def test_a_step_has_as_many_rows_as_trials_say(tmp_path, step_ns, options, said):
    plugin = support.plain_device(tmp_path, f"QUERN_PLAIN_STEP_NS={step_ns}")
    with serve(tmp_path, plugin, "--result-cache-bytes", "0", *options) as server:
        batch = server.wait(server.create(support.jsonl(lines()), endpoint="/v1/completions")["id"])
        assert batch["request_counts"] == {"total": 12, "completed": 12, "failed": 0}
        told = re.findall(r"event=device_rows (rows=\d+ most=\d+)", server.log_text())
        assert told == ([said] if said else [])


def test_rows_whose_logits_are_no_numbers_are_counted_and_answered(tmp_path):
    def counted():
        _, data = server.call("GET", "/metrics")
        return int(
            re.search(r'^quern_engine_nonfinite_rows_total\{engine="0"\} (\d+)$', data.decode(),
                      re.M)[1])
    plugin = support.plain_device(tmp_path, "QUERN_PLAIN_FAULT=submit:5:nan")
    with serve(tmp_path, plugin, "--result-cache-bytes", "0") as server:
        assert counted() == 0
        batch = server.wait(server.create(support.jsonl(lines()), endpoint="/v1/completions")["id"])
        assert batch["request_counts"] == {"total": 12, "completed": 12, "failed": 0}
        support.until(lambda: counted() > 0)
        assert restarts(server) == 0


def test_after_a_card_is_lost_no_line_runs_on_the_cpu(tmp_path):
    plugin = support.plain_device(tmp_path, "once", "QUERN_PLAIN_FAULT=submit:5:lost")
    variables = plugin.with_name(plugin.name + ".env")
    with serve(tmp_path, plugin, "--result-cache-bytes", "0") as server:
        variables.write_text("QUERN_PLAIN_CARDS=none\n")
        batch = server.create(support.jsonl(lines()), endpoint="/v1/completions")
        support.until(lambda: "no driver of plain cards" in server.log_text())
        assert server.batch(batch["id"])["status"] == "in_progress"
        variables.unlink()
        assert server.wait(batch["id"])["request_counts"] == {
            "total": 12, "completed": 12, "failed": 0}
        log = server.log_text()
        assert "device=cpu" not in log and log.count("event=device device=plain:0") == 2


# WORKER_ENGINE_RELOADS_MAX is 5.
@pytest.mark.parametrize("gone, said", [
    ("QUERN_PLAIN_CARDS=none", "no driver of plain cards; unset QUERN_PLAIN_CARDS"),
    ("QUERN_PLAIN_MEMORY_MIB=100", "plain card 0 has 100 MiB free, not 500"),
])
def test_lines_wait_for_a_card_that_is_lost_or_that_others_fill(tmp_path, gone, said):
    plugin = support.plain_device(tmp_path, "once", "QUERN_PLAIN_FAULT=submit:5:lost")
    variables = plugin.with_name(plugin.name + ".env")
    with serve(tmp_path, plugin, "--gpu-memory-limit-mib", "500", "--result-cache-bytes",
               "0") as server:
        variables.write_text(gone + "\n")
        batch = server.create(support.jsonl(lines()), endpoint="/v1/completions")
        support.until(lambda: len(
            re.findall("event=engine_down will_restart=yes.*" + said, server.log_text())) > 5,
                      seconds=600)
        support.until(lambda: said in (server.batch(batch["id"])["waiting_for"] or ""), seconds=300)
        assert server.batch(batch["id"])["status"] == "in_progress"
        assert server.batch(batch["id"])["request_counts"]["failed"] == 0
        status, health = server.call("GET", "/health")
        assert status == 503 and f"waiting for its GPU: {said}" in health.decode()
        variables.unlink()
        batch = server.wait(batch["id"])
        assert batch["request_counts"] == {"total": 12, "completed": 12, "failed": 0}
        assert sorted(result["custom_id"] for result in server.results(batch)[0]) == sorted(
            line["custom_id"] for line in lines())
        assert "device=cpu" not in server.log_text() and "will_restart=no" not in server.log_text()
    support.fsck(tmp_path / "state")


def test_models_on_one_card_take_turns(tmp_path):
    models = [word for name in ("one", "two") for word in ("--model", f"{name}={TINY}")]
    plugin = ["--device-plugin", str(support.plain_device())]
    with support.serving(tmp_path / "state", *models, *plugin) as server:
        for name in ("one", "two", "one"):
            server.json("POST", "/v1/completions",
                        {"model": name, "prompt": "Hello", "max_tokens": 2})
        assert "event=models_take_turns models=2 loaded_max=1" in server.log_text()


def test_a_model_too_large_for_the_card_is_refused_before_its_weights_are_read(tmp_path):
    plugin = support.plain_device(tmp_path, "QUERN_PLAIN_MEMORY_MIB=40",
                                  "QUERN_PLAIN_FAULT=fill:1:error")
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines()))
    arguments = [
        "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", f"m={TINY}",
        "--device-plugin", plugin]
    done = support.quern(*arguments, "--max-num-seqs", "1024")  # the default is what fits
    assert done.returncode == 3, done.stderr
    assert re.search(
        r"the model needs \d+ MiB of the GPU's memory and may take 36: driver \d+, weights \d+, buffers \d+, logits \d+, "
        r"steps \d+, workspace \d+, least KV cache \d+; ", done.stderr), done.stderr
    fitting = re.search(r"--max-num-seqs (\d+)", done.stderr)
    assert fitting, done.stderr
    done = support.quern(*arguments, "--max-num-seqs", str(int(fitting[1]) * 9 // 10))
    assert "call 1 of fill fails" in done.stderr, done.stderr


@pytest.mark.parametrize("device, status", [("auto", 0), ("cuda", 3)])
def test_a_decoder_that_is_told_to_embed_stays_on_the_cpu(tmp_path, device, status):
    """It generates as well; its files name no pooling."""
    model = support.SHARED / "tiny/qwen3"
    line = {
        "custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {
            "model": "m", "input": "Hello"}}
    (tmp_path / "in.jsonl").write_text(json.dumps(line) + "\n")
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", f"m={model}", "--pooling", "last", "--device", device,
                         "--device-plugin", support.plain_device())
    assert done.returncode == status and "are computed on the CPU only" in done.stderr


@pytest.mark.parametrize("device, status", [("auto", 0), ("cuda", 3)])
def test_what_a_card_does_not_know_stays_on_the_cpu(tmp_path, device, status):
    model = tmp_path / "model.gguf"
    gguf_of.convert(support.ROOT / "tests/engine/families/olmo2", model)
    line = {
        "custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": [1, 2], "max_tokens": 2}}
    (tmp_path / "in.jsonl").write_text(json.dumps(line) + "\n")
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", f"m={model}", "--device", device, "--device-plugin",
                         support.plain_device())
    assert done.returncode == status, done.stderr
    assert ("a layer without a norm before it is computed on the CPU only so far: run with "
            "--device cpu") in done.stderr

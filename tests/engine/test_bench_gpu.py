# SPDX-License-Identifier: Apache-2.0
"""The scripts of bench/gpu without a GPU: over the plain device and a made-up NVML they run to
their end; figures of kernels are read from lines of the programs that print them."""
import importlib.machinery, importlib.util, json, os, pathlib, re, subprocess, sys

import pytest

import support

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench/gpu"
NVML = pathlib.Path(support.BINARY).resolve().parent.parent / "tests/nvml"
SMALL = ["--n", "3"]


def module(name):
    """A script or a module of bench/gpu."""
    path = next(path for path in (BENCH / name, BENCH / f"{name}.py") if path.exists())
    sys.path.insert(0, str(BENCH))
    try:
        loader = importlib.machinery.SourceFileLoader(f"bench_gpu_{name}", str(path))
        loaded = importlib.util.module_from_spec(
            importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(loaded)
        return loaded
    finally:
        sys.path.remove(str(BENCH))


def bench(tmp_path, script, *arguments, **nvml):
    (tmp_path / "nvml").write_text("".join(f"{name} {value}\n" for name, value in nvml.items()))
    environment = {
        **os.environ, "QUERN_BINARY": str(support.BINARY), "QUERN_GPU_PLUGIN": str(
            support.plain_device()), "OUT": str(tmp_path / "out"), "LD_LIBRARY_PATH": str(NVML),
        "QUERN_FAKE_NVML": str(tmp_path / "nvml"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([BENCH / script, *map(str, arguments)],
                          capture_output=True,
                          text=True,
                          env=environment)


def lines_of(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_versus_runs_the_requests_and_tells_rates(tmp_path):
    done = bench(tmp_path, "versus", "tiny", "--kinds", "fix10/2", "--temperatures", "0,0.7",
                 "--peer", "none", *SMALL, "--", "--max-num-seqs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    runs, ratios = [[line
                     for line in lines_of(done)
                     if (line["engine"] == "ratio") == is_ratio]
                    for is_ratio in (False, True)]
    assert [run["temperature"] for run in runs] == [0, 0.7] and all(run["is_whole"] for run in runs)
    assert runs[0]["prompt_tokens"] == 3 * 10 and runs[0]["completion_tokens"] == 3 * 2 and runs[0][
        "req_s"] > 0
    assert "share_of_greedy" not in ratios[0] and ratios[1]["share_of_greedy"] > 0


def test_memory_holds_where_the_card_shows_no_more_in_use(tmp_path):
    done = bench(tmp_path, "memory", "tiny", "--kind", "fix10/2", "--limit-mib", "600", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    line, = lines_of(done)
    assert line["holds"] and line["is_within"] and line["card_bytes"] == 0 and line["failed"] == 0


def test_memory_does_not_hold_when_a_run_fails(tmp_path):
    done = bench(tmp_path, "memory", "tiny", "--kind", "fix10/2", "--limit-mib", "1", *SMALL)
    assert done.returncode == 1
    line, = lines_of(done)
    assert not line["holds"] and "MiB" in line["error"]


def test_parity_finds_none_between_the_plain_device_and_the_reference(tmp_path):
    done = bench(tmp_path, "parity", support.SHARED / "tiny/llama3", "--n", "8", "--tokens",
                 "8", "--formats", "bf16", "--cpu", tmp_path / "kept", "--plugin",
                 support.plain_device())
    assert done.returncode == 0, done.stdout + done.stderr
    line, = lines_of(done)
    assert line["holds"] and line["positions"] == 8 * 8 and line["mean_kl"] < 1e-4
    assert line["answers"].keys() == {"usual", "no sharing", "small steps"} and all(
        way["wrong"] == 0 for way in line["answers"].values())


def test_parity_does_not_hold_against_another_model_s_answers(tmp_path):
    """The kept answers of the reference are those of other weights."""
    arguments = [
        "--n", "4", "--tokens", "8", "--formats", "bf16", "--cpu", tmp_path / "kept", "--plugin",
        support.plain_device()]
    bench(tmp_path, "parity", support.SHARED / "tiny/llama3", *arguments)
    kept, = (tmp_path / "kept").iterdir()
    kept.rename(kept.with_name(kept.name.replace("llama3", "mistral")))
    done = bench(tmp_path, "parity", support.SHARED / "tiny/mistral", *arguments)
    line, = lines_of(done)
    assert done.returncode == 1 and not line["holds"] and line["wrong_first"] > 0 and line[
        "mean_kl"] > 0.02


def test_parity_of_int8_holds_through_the_plugin_s_host_code(tmp_path):
    """Activations and weights are mixed alike: if only one of them were, answers would be noise."""
    plugin = pathlib.Path(
        support.BINARY).resolve().parent.parent / "tests/gpu/cuda/libquern-cuda-host.so"
    done = bench(tmp_path, "parity", support.SHARED / "tiny/llama3", "--n", "6", "--tokens", "8",
                 "--formats", "int8", "--plugin", plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    line, = lines_of(done)
    assert line["holds"] and line["positions"] == 6 * 8 and 1e-4 < line["mean_kl"] < 0.02


def test_beside_tells_how_long_chats_wait(tmp_path):
    """Whether it holds is a matter of time, and not judged here."""
    done = bench(tmp_path, "beside", "tiny", "--kind", "fix10/4", "--n", "40", "--chats", "3",
                 "--prompt", "5", "--plugin", support.plain_device())
    line, = lines_of(done)
    assert "error" not in line and line["chats"] == 3 and line["batch_failed"] == 0 and line[
        "batch_completed"] > 0, line
    assert 0 < line["idle_p50_ms"] <= line["idle_max_ms"] and 0 < line["beside_p95_ms"] <= line[
        "beside_max_ms"]


@pytest.mark.parametrize("script, arguments", [("versus", ["qwen3-4b"]), ("kernels", []),
                                               ("memory", []), ("beside", []), ("parity", ["none"]),
                                               ("run-all", [])])
def test_without_a_card_a_script_says_so_and_skips(tmp_path, script, arguments):
    environment = {
        **os.environ, "QUERN_BINARY": str(support.BINARY), "LD_LIBRARY_PATH": str(NVML),
        "QUERN_FAKE_NVML": str(tmp_path / "nvml"), "QUERN_GPU_PLUGIN": str(support.plain_device())}
    if script != "run-all" and script != "kernels":
        del environment["QUERN_GPU_PLUGIN"]
    (tmp_path / "nvml").write_text("cards 0\n")
    done = subprocess.run([BENCH / script, *arguments],
                          capture_output=True,
                          text=True,
                          env=environment)
    assert done.returncode == 77 and done.stdout.startswith("skip: "), done.stdout + done.stderr


def test_run_all_goes_on_after_a_part_that_fails(tmp_path):
    """check-plugin is not made for the plain device: it fails."""
    done = bench(tmp_path, "run-all", "try:memory", "check:device", "--seconds", "100000",
                 "--patience", "100")
    assert done.returncode == 0, done.stderr
    summary = (tmp_path / "out/summary.txt").read_text()
    assert "try:memory: done" in summary and "memory tiny: holds True" in summary and "check:device: status" in summary
    assert summary in done.stdout and "fake card 0" in summary and "=== try:memory" in (
        tmp_path / "out/log.txt").read_text()
    results = [
        json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert [(line["part"], line["case"]) for line in results] == [("try:memory", "tiny")]


def test_run_all_names_the_parts_that_it_has_no_time_for(tmp_path):
    done = bench(tmp_path, "run-all", "kernels", "versus:qwen3-4b:bf16", "--seconds", "0")
    assert done.returncode == 0 and "not reached: bench/gpu/run-all versus:qwen3-4b:bf16:300 kernels versus:qwen3-4b:bf16:473" in done.stdout


class Shrinking:
    """A GPU whose memory in use is what the list says, call by call, then its last value."""

    def __init__(self, *used):
        self.used = list(used)

    def memory(self):
        return 1 << 34, self.used.pop(0) if len(self.used) > 1 else self.used[0]

    def now(self):
        return {"at": 0, "used": 0, "utilisation": 0, "mw": 0, "mj": 0, "celsius": 0}


def test_a_watch_keeps_the_most_that_was_in_use():
    machine = module("machine")
    with machine.Watch(Shrinking(100, 300, 900, 200), pause=0.0001) as watch:
        support.until(lambda: watch.count >= 5)
    assert watch.taken() == 800


CLEAN = "ok 1 - a\nok 2 - b\n1..2\n========= {}\n"
RACE = "========= Error: Race reported between Write access\n"
READ = """========= Uninitialized __global__ memory read of size 4 bytes
=========     at copy_words(char *, unsigned int)+0x{}0 in pages.cu:14
=========     by thread (64,0,0) in block (2,0,0)
"""
COPY = """========= Host API memory access error at host access to 0x7f618a483000 of size 160 bytes
=========     Uninitialized access to 0x7f618a483080 on access by cudaMemcpy source
"""
LOST = "========= Internal Sanitizer Error: The Sanitizer encountered an error while launching heads and didn't track the launch. Errors might go undetected.\n"


@pytest.mark.parametrize("tool, said, status, expected", [
    ("memcheck", CLEAN.format("ERROR SUMMARY: 0 errors"), 0, {
        "checks": 2, "reports": 0, "places": {}, "is_clean": True, "is_whole": True}),
    ("racecheck", CLEAN.format("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"), 0,
     {"reports": 0, "is_clean": True}),
    ("racecheck",
     RACE + CLEAN.format("RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)"), 9, {
         "reports": 3, "is_clean": False, "status": 9}),
    ("initcheck", READ.format(9) + "ok 1 - a\n" + READ.format("a"), None, {
        "reports": 2, "places": {
            "Uninitialized __global__ memory read of size 4 bytes at copy_words(char *, unsigned int) in pages.cu:14": 2
        }, "is_clean": False, "is_whole": False}),
    ("initcheck", COPY + "ok 1 - a\n", None, {
        "reports": 1, "places": {
            "Host API memory access error at host access to of size 160 bytes": 1},
        "is_clean": False}),
    ("synccheck", "ok 1 - a\n", None, {"checks": 1, "is_clean": True, "is_whole": False}),
    ("synccheck", LOST + CLEAN.format("ERROR SUMMARY: 0 errors"), 0, {
        "reports": 0, "untracked": 1, "is_clean": False}),
    ("memcheck", "not ok 1 - a\n========= ERROR SUMMARY: 0 errors\n", 1, {
        "failed": 1, "is_clean": False}),
    ("memcheck", "compute-sanitizer: no such tool\n", 1, {"checks": 0, "is_clean": False}), ])
def test_sanitize_tells_the_reports_of_a_tool(tmp_path, tool, said, status, expected):
    """A made-up compute-sanitizer; one without a status runs until its time is over."""
    fake = tmp_path / "compute-sanitizer"
    (tmp_path / "said").write_text(said)
    end = "exec sleep 60" if status is None else f"exit {status}"
    fake.write_text(
        f"#!/bin/sh\n[ \"$1 $2 $3\" = '--tool {tool} --error-exitcode' ] || exit 3\ncat {tmp_path}/said\n{end}\n"
    )
    fake.chmod(0o755)
    environment = {
        **os.environ, "QUERN_BINARY": str(support.BINARY),
        "QUERN_GPU_PLUGIN": str(support.plain_device()), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    what = "heads" if tool == "racecheck" else "plugin"
    done = subprocess.run([
        BENCH / "sanitize", what, "--tools", tool, "--seconds", "60" if status is not None else "5"
    ],
                          capture_output=True,
                          text=True,
                          env=environment)
    line, = lines_of(done)
    assert {name: line[name]
            for name in expected} == expected and line["what"] == what, done.stdout + done.stderr
    assert done.returncode == (0 if expected["is_clean"] else 1)


def test_sanitize_runs_the_last_part_of_the_plugin_s_checks_and_there_are_no_more(tmp_path):
    """A made-up compute-sanitizer, which runs what it is given."""
    fake, host = tmp_path / "compute-sanitizer", BENCH.parents[1] / os.environ.get(
        "BUILD", "build") / "tests/gpu/cuda/libquern-cuda-host.so"
    fake.write_text(
        '#!/bin/sh\nwhile [ "${1##*/}" != check-plugin ]; do shift; done\necho "$@" >>"$0.ran"\nexec "$@"\n'
    )
    fake.chmod(0o755)
    environment = {
        **os.environ, "QUERN_BINARY": str(support.BINARY), "QUERN_GPU_PLUGIN": str(host),
        "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    last = module("sanitize").PARTS
    done = subprocess.run([BENCH / "sanitize", f"plugin/{last}", "--tools", "initcheck"],
                          capture_output=True,
                          text=True,
                          env=environment)
    line, = lines_of(done)
    assert line["what"] == f"plugin/{last}" and line["checks"] > 0 and line[
        "is_clean"], done.stdout + done.stderr
    check_device, = [
        words.split()[0]
        for words in (tmp_path / "compute-sanitizer.ran").read_text().splitlines()
        if words.endswith(f" --part {last}")]
    assert subprocess.run(
        [check_device, host, "--part", str(last + 1)], capture_output=True).returncode == 2
    done = subprocess.run([BENCH / "sanitize", f"plugin/{last + 1}"],
                          capture_output=True,
                          text=True,
                          env=environment)
    assert done.returncode == 2 and f"plugin/{last + 1}" in done.stderr
    listed = subprocess.run([BENCH / "run-all", "--list"],
                            capture_output=True,
                            text=True,
                            env=environment).stdout
    assert sorted(map(int, re.findall(r" plugin/(\d+)", listed))) == list(range(1, last + 1))


BENCH_LINES = "# ceiling: linear read 4653 GB/s\n" + "".join(
    f"{kernel:<73} {figures}\n" for kernel, figures in (
        ("attention decode bf16 head 128, 8 KV heads x 4, 512 of 300-1500",
         "419.00 us    4513.4 GB/s     97.0 %"),
        ("attention decode e4m3 head 64, 8 KV heads x 4, 512 of 300-1500",
         "124.00 us    3300.0 GB/s     77.0 %"),
        ("attention prefix bf16 head 128, 8 KV heads x 4, 512 x 1024",
         "90.00 us     274.0 TFLOP/s  38.0 %"),
        ("norm       1024 x 2560 bf16 -> bf16",
         "11.50 us    2735.0 GB/s     64.0 % (81 % of a copy as large)"),
        ("norm       2048 x 2560 bf16 -> bf16",
         "25.20 us    2496.0 GB/s     58.4 % (61 % of a copy as large)"),
        ("norm       512 x 2560 bf16 -> bf16",
         "7.60 us    2100.0 GB/s     49.0 % (81 % of a copy as large)"),
        ("products   bf16 qwen3-4b qkv 1024: 3 of 8, first 1.05, 99.7 % of the best",
         "44.10 us     719.0 TFLOP/s 105.6 %")))
STEP_LINE = "Qwen3-4B e4m3      19.560 ms per step of 1313 rows, the GPU busy 19.540 ms, the host 0.410 us per row; items: 1 prefix, 2 tiles, 3 decode\n"


def test_shares_of_kernels_are_judged_by_what_is_asked_for():
    kernels = module("kernels")
    shapes = list(kernels.shapes_of(BENCH_LINES))
    assert [(shape["kernel"], shape["share"], shape["goal"], kernels.is_met(shape))
            for shape in shapes] == [("attention decode", 97.0, 85, True),
                                     ("attention decode", 77.0, 78, False),
                                     ("attention prefix", 38.0, 35, True), ("norm", 81.0, 75, True),
                                     ("norm", 61.0, 75, False), ("norm", 81.0, None, None),
                                     ("products", 99.7, 95, True)]
    assert [shape.get("share_of_peak") for shape in shapes] == [
        None, None, None, 64.0, 58.4, 49.0, None]
    step, = kernels.steps_of(STEP_LINE)
    assert step["idle"] == 0.1 and step["host_us_per_row"] == 0.41 and kernels.is_met(step)


def test_a_line_of_a_kernel_in_another_form_is_told():
    kernels = module("kernels")
    line = "norm       512 x 2560 bf16 -> bf16    7.60 us    2100.0 GB/s     49.0 % and more"
    assert kernels.unread_of(BENCH_LINES) is None and kernels.unread_of(BENCH_LINES + line) == line


def test_a_ratio_is_of_the_peers_best_with_the_same_weights():
    record = module("record")
    assert record.recorded("qwen3-4b", "bf16", "300") == (42.9, 44.8, False)
    assert record.recorded("llama-3.1-8b", "int8", "300") == (41.0, 41.0, False)
    assert record.recorded("tiny", "bf16", "300") == (None, None, False)
    assert record.goal("gemma-3-4b", "int8", "300") == 2.0 and record.goal(
        "gemma-3-4b", "fp8-kv", "473") is None


def test_the_requests_are_the_same_for_the_same_seed():
    work = module("work")
    jobs = work.work("300", 20)
    assert jobs == work.work("300", 20) != work.work("300", 20, seed=8)
    assert len({tuple(prompt[:300])
                for prompt, _ in jobs}) == 1 and len({tuple(prompt)
                                                      for prompt, _ in jobs}) == 20
    assert len({tuple(prompt[:300]) for prompt, _ in work.work("5x300s", 200)}) == 5
    assert [(len(prompt), answer) for prompt, answer in work.work("fix20/5", 2)] == [(20, 5),
                                                                                     (20, 5)]


def test_embeddings_makes_a_model_and_tells_the_rate_of_texts(tmp_path):
    done = bench(tmp_path, "embeddings", "tiny", "--peer", "none", "--per-line", "2", "--n", "6",
                 "--plugin", support.plain_device())
    assert done.returncode == 0, done.stdout + done.stderr
    run, = lines_of(done)
    assert run["is_whole"] and run["failed"] == 0 and run["texts_s"] > 0
    assert run["prompt_tokens"] > 6 * 10

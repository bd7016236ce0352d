# SPDX-License-Identifier: Apache-2.0
"""One server, an engine per GPU (--data-parallel-size), on the plain device with two GPUs: lines
with a common beginning stay together, and the death of one GPU loses nothing."""
import os, re, signal

import pytest

import support

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"


def lines(groups, each):
    """Groups with a long common beginning, their lines mixed."""
    return [{
        "custom_id": f"{group}-{i}", "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": f"{group} " + "the river runs on and on " * 45 + f"line {i}",
            "max_tokens": 2, "temperature": 0, "ignore_eos": True}} for i in range(each)
        for group in range(groups)]


def arguments(plugin, *more):
    return [
        "--model", f"m={TINY}", "--device", "cuda", "--device-plugin", str(plugin),
        "--gpu-memory-limit-mib", "300", "--result-cache-bytes", "0", *more]


def two_cards(tmp_path, *lines):
    return support.plain_device(tmp_path, "QUERN_PLAIN_CARDS=2", *lines)


@pytest.fixture
def state(tmp_path):
    yield tmp_path / "state"
    support.fsck(tmp_path / "state")


def run(server, requests):
    batch = server.wait(
        server.create(support.jsonl(requests), endpoint="/v1/completions")["id"])
    good, bad = server.results(batch)
    assert not bad
    assert sorted(line["custom_id"] for line in good) == sorted(
        request["custom_id"] for request in requests)
    # An engine reports its counters from time to time, so they come after the last answer.
    tokens = sum(line["response"]["body"]["usage"]["prompt_tokens"] for line in good)
    support.until(lambda: sum(per_engine(server, "quern_engine_prompt_tokens_total")) >= tokens)
    return {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in good}


def per_engine(server, name):
    """The values of a metric of all engines."""
    _, data = server.call("GET", "/metrics")
    return [
        float(value)
        for value in re.findall(rf'^{name}\{{engine="\d+"\}} (\S+)$', data.decode(), re.M)]


def computed(server):
    """Prompt tokens that each engine computed."""
    given = per_engine(server, "quern_engine_prompt_tokens_total")
    cached = per_engine(server, "quern_engine_cached_tokens_total")
    return [most - found for most, found in zip(given, cached)]


def recalled_lines(server):
    _, data = server.call("GET", "/metrics")
    return int(re.search(rb"^quern_lines_recalled_total (\d+)$", data, re.M)[1])


def test_two_engines_share_a_batch_and_no_beginning_is_computed_twice(tmp_path, state):
    """On a busy machine one engine may be so slow that lines go back from it to the other one,
    which computes their beginning once more."""
    requests = lines(6, 10)
    with support.serving(tmp_path / "one", *arguments(support.plain_device())) as server:
        alone = run(server, requests)
        least = sum(computed(server))
        of_a_line = sum(per_engine(server, "quern_engine_prompt_tokens_total")) / len(requests)
    with support.serving(state, *arguments(two_cards(tmp_path), "--data-parallel-size",
                                           "2")) as server:
        assert run(server, requests) == alone
        both, recalled = computed(server), recalled_lines(server)
        print(f"{least} tokens by one engine, {both} by two, {recalled} lines went back")
        assert min(both) > 0 and sum(both) <= 1.02 * least + recalled * of_a_line
        assert {model["id"] for model in server.json("GET", "/v1/models")["data"]} == {
            "m", "model-q8_0"}


def test_the_other_gpu_ends_the_batch_of_one_that_dies_again_and_again(tmp_path, state):
    requests = lines(4, 12)
    with support.serving(state, *arguments(two_cards(tmp_path), "-dp", "2")) as server:
        batch = server.create(support.jsonl(requests), endpoint="/v1/completions")
        engines = support.children(server.process.pid)
        assert len(engines) == 2
        support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] > 0)
        os.kill(engines[0], signal.SIGKILL)
        batch = server.wait(batch["id"])
        assert batch["request_counts"] == {"total": 48, "completed": 48, "failed": 0}
        good, _ = server.results(batch)
        assert len({line["custom_id"] for line in good}) == 48


def test_device_cuda_takes_every_gpu(tmp_path, state):
    with support.serving(state,
                         *arguments(two_cards(tmp_path)),
                         environment={"CUDA_VISIBLE_DEVICES": "0,1"}) as server:
        assert len(support.children(server.process.pid)) == 2
        run(server, lines(2, 2))


def test_a_named_gpu_is_one(tmp_path):
    done = support.quern("serve", *arguments(support.plain_device(), "-dp", "2"), "--device",
                         "cuda:0", "--state-dir", tmp_path / "state")
    assert done.returncode == 2
    assert "--data-parallel-size 2: --device cuda:0 is one GPU" in done.stderr


def test_engines_on_the_cpu_share_its_cores(tmp_path, state):
    with support.serving(state, "--model", f"m={TINY}", "--device", "cpu", "-dp", "2") as server:
        run(server, lines(2, 4))
        assert len(support.children(server.process.pid)) == 2

# SPDX-License-Identifier: Apache-2.0
"""A real GPU that is taken away while a batch runs: each line has one result.
tests/engine/test_device_faults.py has more situations, on a device in plain C. Skips without a
GPU; QUERN_GPU_PLUGIN names its plugin."""
import os, re, signal

import pytest

import support
from test_device_faults import create, deaths, lines, results, state  # noqa: F401 (a fixture)

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"
POISON, HANG, LOSE = 77, 78, 79  # as in tests/gpu/poison_plugin.c
OUTSIDE = r"step \d+: operation \d+ \(heads of layer 0\): an illegal memory access was encountered \(cudaErrorIllegalAddress\)"
COUNT = 3000

pytestmark = pytest.mark.skipif(not support.has_card(), reason=support.NO_CARD)


def arguments(plugin):
    return [
        "--model", f"m={TINY}", "--device", "cuda", "--device-plugin",
        str(plugin), "--max-num-seqs", "16", "--result-cache-bytes", "0"]


@pytest.mark.parametrize("killed", ["engine", "server"])
def test_a_process_killed_at_half_has_each_line_once(state, killed):
    requests = [
        dict(line, custom_id=f"line-{i:04d}", body=dict(line["body"], max_tokens=100))
        for i, line in enumerate(lines(COUNT))]
    with support.serving(state, *arguments(support.cuda_plugin())) as server:
        batch_id = create(server, requests)
        for _ in range(3):
            before = server.batch(batch_id)["request_counts"]["completed"]
            support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > before)
            assert server.batch(batch_id)["status"] == "in_progress"
            if killed == "engine":
                os.kill(server.engine_pid(), signal.SIGKILL)
                support.until(lambda: server.engine_pid())
            else:
                server.kill()
                server.start()
        good, bad = results(server, server.wait(batch_id), requests)
        assert len(good) == COUNT and not bad
        assert {line["response"]["body"]["usage"]["completion_tokens"]
                for line in good.values()} == {100}


def test_a_line_that_makes_the_card_read_outside_gets_an_error_record(tmp_path, state):
    requests = lines(12)
    for i, request in enumerate(requests):
        request["body"].update(prompt=[1, 100 + i, POISON if i == 7 else 101, 102], max_tokens=1)
    plugin = support.poison_plugin(tmp_path, support.cuda_plugin())
    one = {"CUDA_VISIBLE_DEVICES": "0"}  # each of several has an engine that is not careful yet
    with support.serving(state, *arguments(plugin), environment=one) as server:
        good, bad = results(server, server.wait(create(server, requests)), requests)
        assert list(bad) == [
            "line-07"] and bad["line-07"]["response"]["body"]["error"]["code"] == "worker_lost"
        told = deaths(server)
        assert len(told) >= 3 and re.match(r"step \d+: .*illegal memory access", told[0]), told
        # The first process may name a later operation, whose launch told the error; those behind it
        # are careful.
        assert all(re.match(OUTSIDE, sentence) for sentence in told[1:]), told
        assert re.search(OUTSIDE, bad["line-07"]["response"]["body"]["error"]["message"])


def test_a_line_whose_kernel_never_ends_gets_an_error_record(tmp_path, state):
    """No wait ends and the driver tells no error: the process is killed while the kernel runs, as
    often as the line is tried."""
    requests = lines(12)
    for i, request in enumerate(requests):
        request["body"].update(prompt=[1, 100 + i, HANG if i == 7 else 101, 102], max_tokens=1)
    plugin = support.poison_plugin(tmp_path, support.cuda_plugin())
    with support.serving(state, *arguments(plugin), "--hang-seconds", "4") as server:
        good, bad = results(server, server.wait(create(server, requests)), requests)
        assert list(bad) == [
            "line-07"] and bad["line-07"]["response"]["body"]["error"]["code"] == "worker_lost"
        told = deaths(server)
        assert len(told) >= 3 and all(
            re.match(r"the engine made no progress for \d+ ms", sentence)
            for sentence in told), told


@pytest.mark.skipif(support.cards() < 2, reason="needs two GPUs")
def test_a_card_of_two_that_is_lost_beside_a_step_is_told_at_once(tmp_path, state):
    """The other GPU's kernels wait for it in vain. If the host did not find it, the engine would be
    killed for making no progress."""
    requests = lines(12)
    for i, request in enumerate(requests):
        request["body"].update(prompt=[1, 100 + i, LOSE if i == 7 else 101, 102], max_tokens=1)
    plugin = support.poison_plugin(tmp_path, support.cuda_plugin())
    with support.serving(state, *arguments(plugin), "--hang-seconds", "4", "--tensor-parallel-size",
                         "2") as server:
        good, bad = results(server, server.wait(create(server, requests)), requests)
        assert len(good) == 11 and list(bad) == [
            "line-07"] and bad["line-07"]["response"]["body"]["error"]["code"] == "worker_lost"
        told = deaths(server)
        # GPUs that reach each other's memory both have the error: either of them is named.
        others = [
            sentence for sentence in told
            if not re.match(r"step \d+.* GPU [01]: .*illegal memory access", sentence)]
        assert len(told) >= 3 and not others, others

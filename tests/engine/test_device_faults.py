# SPDX-License-Identifier: Apache-2.0
"""A GPU that fails while a batch runs, on the plain device (tests/gpu): each line has one result,
and no line runs on the CPU instead."""
import os, re, signal

import pytest

import support
import upstream

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"
PROMPTS = ["Hello", "The river runs", "1, 2, 3,", "Hello again, and then " * 40]


def lines(count):
    return [{
        "custom_id": f"line-{i:02d}", "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": f"{PROMPTS[i % len(PROMPTS)]} {i}", "max_tokens": 24,
            "temperature": 0, "ignore_eos": True}} for i in range(count)]


def arguments(plugin):
    return [
        "--model", f"m={TINY}", "--device", "cuda", "--device-plugin",
        str(plugin), "--max-num-seqs", "4", "--result-cache-bytes", "0"]


@pytest.fixture
def state(tmp_path):
    yield tmp_path / "state"
    support.fsck(tmp_path / "state")


def create(server, requests):
    return server.create(support.jsonl(requests), endpoint="/v1/completions")["id"]


def restarts(server):
    _, data = server.call("GET", "/metrics")
    return int(
        re.search(r'^quern_engine_restarts_total\{engine="0"\} (\d+)$', data.decode(), re.M)[1])


def deaths(server):
    """The sentences with which engines ended, in their order."""
    return re.findall(r'event=engine_down will_restart=yes reason="([^"]*)"', server.log_text())


def results(server, batch, requests):
    """The results by custom_id, each there exactly once; an engine's log names no other device than
    the GPU."""
    good, bad = server.results(batch)
    assert sorted(line["custom_id"] for line in good + bad) == [
        request["custom_id"] for request in requests]
    assert batch["request_counts"] == {
        "total": len(requests), "completed": len(good), "failed": len(bad)}
    assert "device=cpu" not in server.log_text()
    return {line["custom_id"]: line for line in good}, {line["custom_id"]: line for line in bad}


def texts(good):
    return {
        custom_id: line["response"]["body"]["choices"][0]["text"]
        for custom_id, line in good.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The texts of the 60 lines on a GPU without a fault."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with support.serving(folder / "state", *arguments(support.plain_device())) as server:
        requests = lines(60)
        return texts(results(server, server.wait(create(server, requests)), requests)[0])


def at_half(server, batch_id):
    """Waits until the batch stands still in the middle: its GPU hangs in a call."""
    support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
    assert server.batch(batch_id)["status"] == "in_progress"


# Four lines of 24 tokens at a time: by step 100 the first have ended, and not more than 16 can
# have.
HANGS_AT_HALF = ("once", "QUERN_PLAIN_FAULT=wait:100:hang")


def test_an_engine_killed_at_half_has_each_line_once(tmp_path, state, undisturbed):
    requests = lines(60)
    with support.serving(state, *arguments(support.plain_device(tmp_path,
                                                                *HANGS_AT_HALF))) as server:
        batch_id = create(server, requests)
        at_half(server, batch_id)
        os.kill(server.engine_pid(), signal.SIGKILL)
        good, _ = results(server, server.wait(batch_id), requests)
        assert texts(good) == undisturbed and restarts(server) == 1
        assert "event=device_careful" not in server.log_text()


def test_a_server_killed_at_half_has_each_line_once(tmp_path, state, undisturbed):
    requests = lines(60)
    with support.serving(state, *arguments(support.plain_device(tmp_path,
                                                                *HANGS_AT_HALF))) as server:
        batch_id = create(server, requests)
        at_half(server, batch_id)
        engine = server.engine_pid()
        server.kill()
        support.until(
            lambda: not os.path.exists(f"/proc/{engine}"))  # it hangs, and dies with its server
        server.start()
        good, _ = results(server, server.wait(batch_id), requests)
        assert texts(good) == undisturbed


def test_a_hung_kernel_is_found_by_its_steps_and_killed(tmp_path, state, undisturbed):
    requests, clock = lines(60), support.Clock(tmp_path)
    plugin = support.plain_device(tmp_path, *HANGS_AT_HALF)
    with support.serving(state,
                         *arguments(plugin),
                         "--hang-seconds",
                         "60",
                         environment=clock.environment) as server:
        batch_id = create(server, requests)
        at_half(server, batch_id)
        # In small steps: a server that sees seconds pass at once thinks that it was stopped itself.
        clock.until(lambda: "the engine made no progress for" in server.log_text(), 0.5)
        good, _ = results(server, server.wait(batch_id), requests)
        assert texts(good) == undisturbed and restarts(server) == 1


def test_a_line_that_breaks_the_card_each_time_gets_an_error_record(tmp_path, state):
    poison = 77
    requests = lines(12)
    for i, request in enumerate(requests):  # one token out, which no step reads
        request["body"].update(prompt=[1, 100 + i, poison if i == 7 else 101, 102], max_tokens=1)
    with support.serving(state,
                         *arguments(support.plain_device(
                             tmp_path, f"QUERN_PLAIN_POISON={poison}"))) as server:
        good, bad = results(server, server.wait(create(server, requests)), requests)
        assert list(bad) == [
            "line-07"] and bad["line-07"]["response"]["body"]["error"]["code"] == "worker_lost"
        told = deaths(server)
        assert len(told) >= 3 and re.fullmatch(
            r"plain device: step \d+: illegal access at token 77", told[0]), told
        careful = r"plain device: step \d+: operation 0 \(embed\): illegal access at token 77"
        assert all(re.fullmatch(careful, sentence) for sentence in told[1:]), told
        assert re.search(careful, bad["line-07"]["response"]["body"]["error"]["message"])


def test_another_worker_of_the_model_finishes_the_batch_of_a_lost_card(tmp_path, state):
    """The upstream refuses until the GPU is lost, so that the GPU has lines then. The GPU stays
    lost."""
    requests, clock, fake = lines(40), support.Clock(tmp_path), upstream.Upstream()
    fake.behaviour.clock = clock.now
    plugin = support.plain_device(tmp_path, "once", "QUERN_PLAIN_FAULT=submit:5:lost")
    fake.control("503")
    other = f"other={fake.url},models=m"
    with support.serving(state,
                         *arguments(plugin),
                         "--upstream",
                         other,
                         environment=clock.environment) as server:
        support.until(lambda: "event=engine_ready" in server.log_text())
        plugin.with_name(plugin.name + ".env").write_text("QUERN_PLAIN_CARDS=none\n")
        batch_id = create(server, requests)
        support.until(lambda: "no driver of plain cards" in server.log_text())
        assert "plain device: the GPU is lost" in server.log_text()
        assert server.batch(batch_id)["request_counts"]["failed"] == 0
        fake.control(None)
        clock.until(lambda: server.batch(batch_id)["status"] in support.TERMINAL, 0.5, fake.is_busy)
        good, _ = results(server, server.batch(batch_id), requests)
        assert len(good) == 40 and server.call("GET", "/health")[0] == 200
    fake.stop()


def test_a_request_longer_than_the_cards_cache_is_refused_with_numbers(tmp_path, state):
    with support.serving(state, *arguments(support.plain_device()), "--kv-cache-memory-bytes",
                         "1MiB") as server:
        status, data = server.call("POST", "/v1/completions",
                                   {"model": "m", "prompt": [5] * 600, "max_tokens": 8})
        assert status == 400 and b"context length is 256 tokens. However, you requested 608 tokens" in data, data
        requests = lines(2)
        requests[1]["body"]["prompt"] = [5] * 600
        good, bad = results(server, server.wait(create(server, requests)), requests)
        assert list(good) == ["line-00"] and "256 tokens" in str(bad["line-01"])

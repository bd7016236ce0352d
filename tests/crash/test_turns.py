# SPDX-License-Identifier: Apache-2.0
"""Models that take turns on one device: how often each is loaded, who waits, and what a kill in the
middle of a change leaves behind."""
import json, os, re, signal, threading

import pytest

import support
from life import poll

TINY = support.SHARED / "tiny/llama3"
TURNS = ("--max-loaded-models", "1", "--model-stay-seconds", "0", "--model",
         f"first={TINY}/model-q8_0.gguf", "--model", f"second={TINY}/model-bf16.gguf")

pytestmark = pytest.mark.skipif(not (TINY / "model-q8_0.gguf").exists(),
                                reason="the tiny models are not here")


def lines(models, count, tokens=4):
    """`count` requests, the models in turn."""
    return support.jsonl([{
        "custom_id": f"r-{i:04d}", "method": "POST", "url": "/v1/completions", "body": {
            "model": models[i % len(models)], "prompt": f"Number {i}.", "max_tokens": tokens,
            "temperature": 0}} for i in range(count)])


def create(server, content):
    return server.create(content, endpoint="/v1/completions")


def loads(server):
    return [
        int(found) for found in re.findall(r"event=model_loads worker=(\d+)", server.log_text())]


def state_of(server, model):
    return server.json("GET", f"/v1/models/{model}")["status"]["value"]


def check(server, batch, count):
    output, errors = server.results(batch)
    assert errors == []
    assert [line["custom_id"] for line in output] == [f"r-{i:04d}" for i in range(count)]
    return output


def test_batches_that_ask_for_both_models_in_turn_need_two_loads(tmp_path):
    with support.serving(tmp_path / "state", *TURNS) as server:
        assert state_of(server, "first") == "loaded" and state_of(server, "second") == "unloaded"
        os.kill(server.engine_pid(), signal.SIGSTOP)  # no line runs until all three are validated
        batches = [
            create(server, lines(models, 60))
            for models in (("first", "second"), ("second", "first"), ("first", "second"))]
        for batch in batches:
            server.wait(batch["id"], until=("in_progress",))
        os.kill(server.engine_pid(), signal.SIGCONT)
        for batch in batches:
            done = server.wait(batch["id"])
            assert done["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
            output = check(server, done, 60)
            assert {line["response"]["body"]["model"] for line in output} == {"first", "second"}
        assert len(loads(server)) == 2, loads(server)
        assert server.json("GET", "/health")["models"]["loaded"] == 1
    support.fsck(tmp_path / "state")


def test_a_single_request_does_not_wait_for_the_batch_of_another_model(tmp_path):
    with support.serving(tmp_path / "state", *TURNS) as server:
        batch = create(server, lines(("first",), 3000, tokens=60))
        poll(lambda: server.batch(batch["id"])["request_counts"]["completed"] > 0)
        answer = server.json("POST", "/v1/completions",
                             {"model": "second", "prompt": "Hello", "max_tokens": 3})
        assert answer["model"] == "second"
        assert server.batch(batch["id"])["status"] == "in_progress"
        poll(lambda: len(loads(server)) >= 3)  # first, second, first
        server.json("POST", f"/v1/batches/{batch['id']}/cancel")
        done = server.wait(batch["id"])
        output, errors = server.results(done)
        assert all(line["response"]["status_code"] == 200 for line in output)
        ids = [line["custom_id"] for line in output + errors]
        assert len(ids) == len(set(ids))
    support.fsck(tmp_path / "state")


def test_lines_that_made_room_run_later_with_the_same_answers(tmp_path):
    count = 400
    with support.serving(tmp_path / "calm", *TURNS) as server:
        calm = check(server, server.wait(
            create(server, lines(("first", ), count, tokens=30))["id"]), count)
    with support.serving(tmp_path / "state", *TURNS) as server:
        batch, over = create(server, lines(("first",), count, tokens=30)), threading.Event()

        def interrupt():
            while not over.is_set():
                server.json("POST", "/v1/completions",
                            {"model": "second", "prompt": "Hello", "max_tokens": 2})
                over.wait(0.5)

        client = threading.Thread(target=interrupt)
        client.start()
        try:
            done = server.wait(batch["id"])
        finally:
            over.set()
            client.join()
        assert done["request_counts"] == {"total": count, "completed": count, "failed": 0}
        assert [support.masked(line) for line in check(server, done, count)] == [
            support.masked(line) for line in calm]
    support.fsck(tmp_path / "state")


@pytest.mark.parametrize("round_number", range(4))
def test_kill_9_while_models_change(tmp_path, round_number):
    """Before, in and after a change: every line has one result after the restart."""
    state, count = tmp_path / "state", 200
    with support.serving(state, *TURNS) as server:
        batch = create(server, lines(("first", "second"), count, tokens=8))
        seen = len(loads(server))
        event = ("model_leaves", "engine_closed", "model_loads", "engine_ready")[round_number]
        poll(lambda: len(re.findall(f"event={event}", server.log_text())) >
             (seen if event in ("model_loads", "engine_ready") else 0) or server.batch(batch["id"])[
                 "status"] in support.TERMINAL)
        server.kill()
    with support.serving(state, *TURNS) as server:
        done = server.wait(batch["id"])
        assert done["request_counts"] == {"total": count, "completed": count, "failed": 0}
        check(server, done, count)
    support.fsck(state)


def test_a_model_that_cannot_be_loaded_says_so_and_harms_no_other(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(100))
    with support.serving(tmp_path / "state", "--max-loaded-models", "1", "--model",
                         f"first={TINY}/model-q8_0.gguf", "--model", f"bad={bad}") as server:
        status, body = server.call("POST", "/v1/completions", {"model": "bad", "prompt": "Hello"})
        assert status == 503 and "cannot be loaded" in json.loads(body)["error"]["message"]
        assert server.json("GET", "/v1/models/bad")["status"]["value"] == "failed"
        assert server.json(
            "POST", "/v1/completions",
            {"model": "first", "prompt": "Hello", "max_tokens": 2})["model"] == "first"
        assert server.json("GET", "/health")["models"] == {
            "unloaded": 0, "loading": 0, "loaded": 1, "failed": 1}

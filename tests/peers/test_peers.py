# SPDX-License-Identifier: Apache-2.0
"""Batches through real servers of others. Skipped, with what is missing, where they are not
installed."""
import json, time

import pytest

import support


@pytest.fixture(params=["llama", "vllm"])
def peer(request):
    return request.getfixturevalue(request.param)


def lines(count, **body):
    return support.jsonl(
        support.request(
            f"c{i}", f"Say the number {i}.", model="smol", max_tokens=8, temperature=0, **body)
        for i in range(count))


def check_body(body, model="smol"):
    assert body["object"] == "chat.completion" and body["model"] == model and len(
        body["choices"]) == 1
    assert body["choices"][0]["finish_reason"] in ("stop", "length") and isinstance(
        body["choices"][0]["message"]["content"], str)
    usage = body["usage"]
    assert usage["prompt_tokens"] > 0 and 0 <= usage["prompt_tokens_details"][
        "cached_tokens"] <= usage["prompt_tokens"]


def test_a_batch_completes_with_every_line_and_its_usage(tmp_path, peer):
    with support.serving(tmp_path / "state", "--upstream", f"peer={peer.url}") as server:
        assert [m["id"] for m in server.json("GET", "/v1/models")["data"]] == ["smol"]
        batch = server.wait(server.create(lines(40))["id"], 900)
        good, bad = server.results(batch)
        assert not bad and sorted(line["custom_id"]
                                  for line in good) == sorted(f"c{i}" for i in range(40))
        for line in good:
            check_body(line["response"]["body"])
        assert batch["usage"]["input_tokens"] == sum(
            line["response"]["body"]["usage"]["prompt_tokens"] for line in good)
        assert batch["usage"]["output_tokens"] == sum(
            line["response"]["body"]["usage"]["completion_tokens"] for line in good)
    support.fsck(tmp_path / "state")


def test_a_line_it_refuses_is_an_error_in_the_one_shape(tmp_path, peer):
    too_long = support.request("long", "word " * 20000, model="smol", max_tokens=4)
    bad_value = support.request("bad", "x", model="smol", temperature="hot")
    with support.serving(tmp_path / "state", "--upstream", f"peer={peer.url}") as server:
        batch = server.wait(
            server.create(support.jsonl([too_long, bad_value]) + lines(2))["id"], 600)
        good, bad = server.results(batch)
        errors = {line["custom_id"]: line["response"] for line in bad}
        assert "long" in errors and errors["long"]["status_code"] == 400
        for answer in errors.values():
            assert set(answer["body"]["error"]) == {"message", "type", "param", "code"}
            assert answer["body"]["error"]["code"] is None or isinstance(
                answer["body"]["error"]["code"], str)
        assert {"c0", "c1"} <= {line["custom_id"] for line in good}


def test_a_stream_and_a_renamed_model(tmp_path, peer):
    ask = {
        "model": "ours", "messages": [{"role": "user", "content": "Count to five."}],
        "max_tokens": 12, "temperature": 0}
    with support.serving(tmp_path / "state", "--upstream",
                         f"peer={peer.url},models=ours=smol") as server:
        check_body(server.json("POST", "/v1/chat/completions", ask), "ours")
        status, data = server.call(
            "POST", "/v1/chat/completions",
            {**ask, "stream": True, "stream_options": {"include_usage": True}})
        events = [part[6:] for part in data.decode().split("\n\n") if part.startswith("data: ")]
        assert status == 200 and events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        assert all(chunk["model"] == "ours" for chunk in chunks)
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] > 0
        assert any(choice.get("finish_reason") for chunk in chunks for choice in chunk["choices"])


def test_the_server_is_killed_and_comes_back(tmp_path, llama):
    with support.serving(tmp_path / "state", "--upstream",
                         f"peer={llama.url},concurrency=8") as server:
        batch = server.create(lines(80))
        deadline = time.monotonic() + 600
        while server.batch(batch["id"])["request_counts"]["completed"] < 10:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        llama.kill()
        time.sleep(2)
        assert server.batch(batch["id"])["status"] == "in_progress"
        llama.start()
        batch = server.wait(batch["id"], 900)
        assert batch["request_counts"] == {"total": 80, "completed": 80, "failed": 0}
    support.fsck(tmp_path / "state")

# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Messages API on a real model: the answer of a chat in blocks, streams that say what
bodies say, counts of tokens that agree, refusals in Anthropic's form, keys in its header."""
import json

import pytest

import support

QUESTION = [{"role": "user", "content": "Name a river of Europe."}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    state = tmp_path_factory.mktemp("messages") / "state"
    with support.serving(state, "--model", "smollm2") as server:
        yield server


def body(**more):
    return {"model": "smollm2", "max_tokens": 12, "messages": QUESTION, "temperature": 0, **more}


def events(server, request):
    status, data = server.call("POST", "/v1/messages", {**request, "stream": True})
    assert status == 200, data
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        kind, text = block.split("\n")
        found.append(json.loads(text.removeprefix("data: ")))
        assert kind == f"event: {found[-1]['type']}"
    return found


def refused(server, request, status=400, path="/v1/messages"):
    got, data = server.call("POST", path, request)
    error = json.loads(data)
    assert got == status and set(error) == {"type", "error"} and error["type"] == "error", data
    return error["error"]["type"], error["error"]["message"]


def test_a_body_is_the_answer_of_a_chat(server):
    plain = server.json("POST", "/v1/chat/completions", body(system=None))
    answer = server.json("POST", "/v1/messages", body())
    text, usage = plain["choices"][0]["message"]["content"], plain["usage"]
    assert answer["content"] == [{"type": "text", "text": text}]
    assert answer["id"].startswith("msg_") and answer["type"] == "message"
    counts = answer["usage"]
    assert counts["input_tokens"] + counts["cache_read_input_tokens"] == usage["prompt_tokens"]
    assert counts["output_tokens"] == usage["completion_tokens"]
    reasons = {"stop": "end_turn", "length": "max_tokens"}
    assert answer["stop_reason"] == reasons[plain["choices"][0]["finish_reason"]]


def test_a_stream_says_what_the_body_says(server):
    answer, found = server.json("POST", "/v1/messages", body()), events(server, body())
    text = "".join(event["delta"]["text"] for event in found
                   if event["type"] == "content_block_delta")
    assert [{"type": "text", "text": text}] == answer["content"]
    assert [event["type"] for event in found if event["type"] != "content_block_delta"] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta",
        "message_stop"]
    first, last = found[0]["message"], found[-2]
    assert last["delta"]["stop_reason"] == answer["stop_reason"]
    prompt = sum(answer["usage"][name] for name in ("input_tokens", "cache_read_input_tokens"))
    for usage in (first["usage"], last["usage"]):
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == prompt
    assert last["usage"]["output_tokens"] == answer["usage"]["output_tokens"]


def test_a_count_is_that_of_the_run(server):
    request = body(system=[{"type": "text", "text": "Be brief."}])
    usage = server.json("POST", "/v1/messages", request)["usage"]
    count = server.json("POST", "/v1/messages/count_tokens", request)
    assert count == {
        "input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_the_mark_of_a_coding_agent_does_not_spoil_the_prefix(server):
    def turn(number):
        mark = {"type": "text", "text": f"x-anthropic-billing-header: cch={number}"}
        long = {"type": "text", "text": "You are careful and answer in one word. " * 20}
        return server.json("POST", "/v1/messages", body(system=[mark, long]))["usage"]

    turn(1)
    usage = turn(2)
    assert usage["cache_read_input_tokens"] >= 0.95 * (
        usage["cache_read_input_tokens"] + usage["input_tokens"]), usage


def test_the_second_turn_of_a_coding_session_is_cached(server):
    """Only the billing line and what is new at the end differ."""
    def turn(number, *more):
        mark = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number}"}
        rules = {"type": "text", "text": "You are careful and answer in one word. " * 60,
                 "cache_control": {"type": "ephemeral"}}
        begun = [{"role": "user", "content": [{"type": "text", "text": "Is water wet? " * 60}]}]
        return server.json("POST", "/v1/messages?beta=true",
                           body(system=[mark, rules], messages=[*begun, *more]))

    first = turn("a1b2c")
    usage = turn("f9e8d", {"role": "assistant", "content": first["content"]},
                 {"role": "user", "content": "Sure?"})["usage"]
    assert usage["cache_read_input_tokens"] >= 0.95 * (
        usage["cache_read_input_tokens"] + usage["input_tokens"]), usage


def test_stop_sequences_are_named(server):
    text = server.json("POST", "/v1/messages", body())["content"][0]["text"]
    word = text.split()[2]
    words = ["zzz", word, "yyy", "xxx", "www", "vvv"]
    answer = server.json("POST", "/v1/messages", body(stop_sequences=words))
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", word)
    assert answer["content"][0]["text"] == text[:text.index(word)]
    assert events(server, body(stop_sequences=words))[-2]["delta"] == {
        "stop_reason": "stop_sequence", "stop_sequence": word}


def test_an_answer_is_continued(server):
    text = server.json("POST", "/v1/messages", body())["content"][0]["text"]
    begun = QUESTION + [{"role": "assistant", "content": text[:10]}]
    answer = server.json("POST", "/v1/messages", body(messages=begun))
    assert answer["content"][0]["text"].startswith(text[10:16])


def test_a_format_is_held_and_thinking_is_a_wish(server):
    schema = {"type": "object", "properties": {"name": {"enum": ["Rhine", "Elbe"]}},
              "required": ["name"], "additionalProperties": False}
    request = body(max_tokens=32000, thinking={"type": "enabled", "budget_tokens": 2000},
                   output_config={"effort": "high",
                                  "format": {"type": "json_schema", "schema": schema}})
    answer = server.json("POST", "/v1/messages", request)
    assert json.loads(answer["content"][0]["text"])["name"] in ("Rhine", "Elbe")


def test_what_is_wrong_is_refused_in_the_form_of_the_api(server):
    assert refused(server, {"messages": QUESTION}) == (
        "invalid_request_error", "model: Field required")
    assert refused(server, body(model="nobody"), 404)[0] == "not_found_error"
    assert refused(server, body(tools=[{"type": "bash_20250124", "name": "bash"}]))[1].startswith(
        "tools.0.type: ")
    assert refused(server, {}, 404, "/v1/messages/nothing")[0] == "not_found_error"
    long = body(messages=[{"role": "user", "content": "word " * 9000}])
    assert "8192" in refused(server, long)[1]


def test_models_have_the_members_of_both_apis_and_a_star_means_many_names(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo", "--alias",
                         "claude-*=smollm2") as server:
        listed = server.json("GET", "/v1/models?limit=20")
        names = [entry["id"] for entry in listed["data"]]
        assert "smollm2" in names and "claude-*" not in names
        assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (
            False, names[0], names[-1])
        one = server.json("GET", "/v1/models/claude-sonnet-4-5")
        assert (one["id"], one["type"], one["display_name"]) == (
            "claude-sonnet-4-5", "model", "claude-sonnet-4-5")
        assert one["created_at"].endswith("Z") and one["object"] == "model"
        answer = server.json("POST", "/v1/messages", {
            "model": "claude-haiku-4", "max_tokens": 5, "messages": QUESTION})
        assert answer["model"] == "claude-haiku-4"
        for headers, form in ((None, "error"), ({"anthropic-version": "2023-06-01"}, "type")):
            status, data = server.call("GET", "/v1/models/nobody", headers=headers)
            assert status == 404 and next(iter(json.loads(data))) == form


def test_keys_in_the_header_of_the_api(tmp_path):
    state = tmp_path / "state"
    key = support.make_key(state)
    with support.serving(state, "--model", "smollm2=echo") as server:
        request = {"model": "smollm2", "max_tokens": 5, "messages": QUESTION}
        for headers, status in ((None, 401), ({"x-api-key": "wrong"}, 401),
                                ({"x-api-key": key, "anthropic-version": "2023-06-01"}, 200),
                                ({"Authorization": f"Bearer {key}"}, 200),
                                ({"Authorization": f"Bearer {key}", "x-api-key": "wrong"}, 200)):
            got, data = server.call("POST", "/v1/messages", request, headers=headers)
            assert got == status, (headers, data)
            if status == 401:
                assert json.loads(data)["error"]["type"] == "authentication_error"

# SPDX-License-Identifier: Apache-2.0
"""Lines that ask an upstream for a shape: passed on as they are, checked when the answer is there,
refused where the operator says so."""
import json, re, urllib.parse

import openai
import pytest

import support
import upstream

SCHEMA = {
    "type": "object", "required": ["a", "b"], "additionalProperties": False, "properties": {
        "a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}}
GOOD, OTHER = {"a": 1, "b": "x"}, {"a": 1, "b": "z"}


def of_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "shape", "schema": schema}}


def line(name, says, then=None, finish="stop", **fields):
    words = f"say={urllib.parse.quote(says)} finish={finish}" + (f" then={urllib.parse.quote(then)}"
                                                                 if then else "")
    return support.request(name,
                           f"{name} {words}",
                           model="fake",
                           **(fields or {"response_format": of_schema(SCHEMA)}))


@pytest.fixture
def fake():
    server = upstream.Upstream()
    yield server
    server.stop()


def serving(tmp_path, fake, *keys):
    return support.serving(tmp_path / "state", "--upstream", ",".join([f"fake={fake.url}", *keys]))


def run(server, lines, **extra):
    batch = server.wait(server.create(support.jsonl(lines), **extra)["id"])
    good, bad = server.results(batch)
    return batch, {record["custom_id"]: record
                   for record in good}, {record["custom_id"]: record
                                         for record in bad}


def ends(batch):
    return {end: count for end, count in batch["quern"]["quality"]["shapes"].items() if count}


def test_answers_are_checked_against_the_shape_and_not_against_one_spelling(tmp_path, fake):
    lines = [
        line("plain", json.dumps(GOOD)),
        line("turned", '\n{ "b" : "x",\n "a": 1 }\n'),
        line("wrong", json.dumps(OTHER)),
        line("fenced", f"```json\n{json.dumps(GOOD)}\n```"),
        line("cut", '{"a": ', finish="length"),
        line("unknown",
             "[1, 1]",
             response_format=of_schema({"type": "array", "contains": {"const": 2}})),
        line("choice", "yes", structured_outputs={"choice": ["yes", "no"]}),
        line("other", "maybe", guided_regex="yes|no"),
        line("text", "no JSON", response_format={"type": "text"}),
        line("none", "no JSON", temperature=0)]
    with serving(tmp_path, fake) as server:
        batch, good, bad = run(server, lines)
        assert set(bad) == {"wrong", "fenced", "other"} and len(good) == 7
        for name, param in ("wrong", "response_format"), ("fenced",
                                                          "response_format"), ("other",
                                                                               "guided_regex"):
            response = bad[name]["response"]
            error, answer = response["body"]["error"], response["body"]["answer"]
            assert (response["status_code"], error["code"], error["param"],
                    bad[name]["error"]) == (502, "schema_mismatch", param, None)
            assert "fake" in error["message"] and answer["choices"][0][
                "finish_reason"] == "stop" and answer["usage"]["completion_tokens"] == 3
        assert bad["wrong"]["response"]["body"]["answer"]["choices"][0]["message"][
            "content"] == json.dumps(OTHER)
        assert ends(batch) == {
            "asked": 8, "valid": 3, "truncated": 1, "unchecked": 1, "mismatched": 3}
        sent = {body["messages"][-1]["content"].split()[0]: body for body in fake.behaviour.bodies}
        assert all(sent[one["custom_id"]] == one["body"]
                   for one in lines), "passed on as the client wrote it"
        assert all(fake.behaviour.seen[one["body"]["messages"][-1]["content"]] == 1
                   for one in lines), "tried once unless asked"
        metrics = dict(
            re.findall(r'^quern_shaped_lines_total\{end="(\w+)"\} (\d+)$',
                       server.call("GET", "/metrics")[1].decode(), re.M))
        assert metrics == {
            "valid": "3", "truncated": "1", "unchecked": "1", "refused": "0", "mismatched": "3",
            "failed": "0"}
        again = server.json("POST", f"/v1/batches/{batch['id']}/retry",
                            {"codes": ["schema_mismatch"]})
        assert server.wait(again["id"])["request_counts"]["total"] == 3
        assert server.stop() == 0
    support.fsck(tmp_path / "state")


def test_a_single_answer_is_checked_as_a_line_is(tmp_path, fake):
    with serving(tmp_path, fake) as server:
        def ask(one, **more):
            return server.call("POST", "/v1/chat/completions", one["body"] | more)
        status, data = ask(line("good", '{"b":"x", "a":1}'))
        assert status == 200 and json.loads(
            json.loads(data)["choices"][0]["message"]["content"]) == GOOD
        # An answer that is longer than an error object may be for the log is told of all the same.
        wrong = line("wrong", json.dumps(OTHER | {"c": "long " * 5000}))
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=2)
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(**wrong["body"])
        assert (caught.value.status_code, caught.value.code,
                caught.value.param) == (502, "schema_mismatch", "response_format")
        assert caught.value.response.headers["x-should-retry"] == "false"
        answer = caught.value.response.json()["answer"]
        assert json.loads(answer["choices"][0]["message"]
                          ["content"])["b"] == "z" and answer["usage"]["completion_tokens"] == 3
        assert fake.behaviour.seen[wrong["body"]["messages"][-1]
                                   ["content"]] == 1, "neither quern nor its client asks again"
        assert ask(line("cut", '{"a": ', finish="length"))[0] == 200
        # Most of a stream is with its client before its end is known.
        chunks = list(
            client.chat.completions.create(**line("stream", json.dumps(OTHER))["body"],
                                           stream=True))
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert "code=schema_mismatch" in server.log_text()
        assert server.json("GET", "/health")


def test_a_mismatch_is_tried_again_where_the_batch_asks_for_it(tmp_path, fake):
    lines = [
        line("second", json.dumps(OTHER), then=json.dumps(GOOD)),
        line("never", json.dumps(OTHER))]
    with serving(tmp_path, fake) as server:
        batch, good, bad = run(server, lines, retry={"attempts": 3, "statuses": [502]})
        assert set(good) == {
            "second"} and bad["never"]["response"]["body"]["error"]["code"] == "schema_mismatch"
        assert [fake.behaviour.seen[one["body"]["messages"][-1]["content"]] for one in lines] == [
            2, 3]
        assert ends(batch) == {"asked": 2, "valid": 1, "mismatched": 1}


def test_lines_with_a_shape_are_refused_for_an_upstream_that_holds_none(tmp_path, fake):
    lines = [line("plain", "x", temperature=0), line("shaped", json.dumps(GOOD))]
    with serving(tmp_path, fake, "shapes=refuse") as server:
        batch = server.wait(server.create(support.jsonl(lines))["id"])
        assert batch["status"] == "failed"
        error, = batch["errors"]["data"]
        assert (error["line"],
                error["code"]) == (2,
                                   "unsupported_parameter") and "shapes=refuse" in error["message"]
        assert run(server, lines[:1])[0]["request_counts"]["completed"] == 1
    path = tmp_path / "in.jsonl"
    path.write_bytes(support.jsonl(lines))
    for keys, status in ("models=fake,shapes=refuse", 1), ("models=fake,shapes=pass", 0):
        done = support.quern("preflight", path, "--upstream", f"fake={fake.url},{keys}", "--json")
        assert done.returncode == status, done.stderr
        assert [fault["line"] for fault in json.loads(done.stdout)["faults"]] == [2] * status


def test_calls_that_were_asked_for_otherwise_are_errors(tmp_path, fake):
    strict = {"type": "function", "function": {"name": "f", "strict": True, "parameters": SCHEMA}}
    named = {"type": "function", "function": {"name": "g"}}
    call, twice = HARMONY.format("commentary to=functions.f", json.dumps(GOOD)), HARMONY.format(
        "commentary to=functions.f", json.dumps(OTHER))
    lines = [
        line("text", "words", tools=[TOOL]),
        line("forced", "words", tools=[TOOL], tool_choice="required"),
        line("cut", "wo", tools=[TOOL], tool_choice="required", finish="length"),
        line("named", "words", tools=[TOOL, named], tool_choice=named),
        line("other", call, tools=[TOOL, named], tool_choice=named),
        line("allowed",
             call,
             tools=[TOOL, named],
             tool_choice={
                 "type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}),
        line("function", "words", functions=[named["function"]], function_call={"name": "g"}),
        line("good", call, tools=[strict]),
        line("strict", twice, tools=[strict]),
        line("loose", twice, tools=[TOOL])]
    with serving(tmp_path, fake) as server:
        _, good, bad = run(server, lines)
        assert set(good) == {"text", "cut", "good", "loose"}
        for name, param in ("forced", "tool_choice"), ("named", "tool_choice"), (
                "other", "tool_choice"), ("allowed", "tool_choice"), ("strict",
                                                                      "tools"), ("function",
                                                                                 "function_call"):
            response = bad[name]["response"]
            assert (response["status_code"], response["body"]["error"]["code"],
                    response["body"]["error"]["param"]) == (502, "schema_mismatch", param), name


HARMONY = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>{}<|message|>{}"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_messages_that_a_server_left_in_the_text_are_sorted(tmp_path, fake):
    final, call = HARMONY.format("final", json.dumps(GOOD)), HARMONY.format(
        "commentary to=functions.f <|constrain|>json", '{"a": 1}')
    lines = [
        line("final", final),
        line("wrong", HARMONY.format("final", json.dumps(OTHER))),
        line("call", call, tools=[TOOL]),
        line("named",
             call,
             tools=[TOOL],
             tool_choice={"type": "function", "function": {"name": "f"}}),
        line("none", call, tools=[TOOL], tool_choice="none"),
        line("text", "x " + final, temperature=0),
        line("cut", HARMONY.format("final", "")[:33], finish="length", temperature=0)]
    with serving(tmp_path, fake) as server:
        batch, good, bad = run(server, lines)
        assert set(bad) == {"wrong"} and ends(batch) == {"asked": 2, "valid": 1, "mismatched": 1}
        choice = {name: record["response"]["body"]["choices"][0] for name, record in good.items()}
        message = {name: one["message"] for name, one in choice.items()}
        assert (message["final"]["content"], message["final"]["reasoning_content"],
                choice["final"]["finish_reason"]) == (json.dumps(GOOD), "Hm.", "stop")
        for name, reason in ("call", "tool_calls"), ("named", "stop"):
            [one] = message[name]["tool_calls"]
            assert one["function"] == {"name": "f", "arguments": '{"a": 1}'
                                       } and one["type"] == "function" and one["id"]
            assert message[name]["content"] is None and choice[name]["finish_reason"] == reason
        assert message["none"]["content"] == '{"a": 1}' and "tool_calls" not in message["none"]
        assert message["text"]["content"] == "x " + final  # a text that quotes a mark is none
        assert message["cut"]["content"] is None and message["cut"]["reasoning_content"] == "Hm."

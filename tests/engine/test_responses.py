# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Responses API on a real model, raw and through OpenAI's library: the answer of a chat in
items, streams whose events tell what the body tells, calls and their second turn, schemas, counts
of tokens that agree, refusals of what needs a kept response."""
import json

import openai
import pydantic
import pytest

import support

QUESTION = "Name a river of Europe."
TEMPLATE = ("{# <tool_call> #}{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}"
            "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
            "{% for call in message.tool_calls or [] %}{{ call.function.arguments }}{% endfor %}"
            "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
            "{% endif %}")
SCHEMA = {
    "type": "object", "properties": {"city": {"enum": ["Oslo", "Bergen"]}}, "required": ["city"],
    "additionalProperties": False}
TOOLS = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    state = tmp_path_factory.mktemp("responses") / "state"
    with support.serving(state, "--model", "smollm2", "--chat-template", TEMPLATE) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)


def body(**more):
    return {"model": "smollm2", "input": QUESTION, "max_output_tokens": 12, "temperature": 0, **more}


def events(server, request):
    """The events of a stream, whose types and numbers are as they must be."""
    status, data = server.call("POST", "/v1/responses", {**request, "stream": True})
    assert status == 200, data
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        kind, text = block.split("\n")
        found.append(json.loads(text.removeprefix("data: ")))
        assert kind == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def without_times(response):
    """What two answers to one question have in common: ids, times and cached tokens differ."""
    text = json.dumps({**response, "created_at": 0, "completed_at": 0})
    text = text.replace(response["id"].removeprefix("resp_"), "ID")
    for item in response["output"]:
        text = text.replace(item.get("call_id", "CALL"), "CALL")
    shown = json.loads(text)
    shown["usage"]["input_tokens_details"] = None
    return shown


def joined(found):
    """The items that the events of a stream build."""
    items = {}
    for event in found:
        kind, at = event["type"], event.get("output_index")
        if kind == "response.output_item.added":
            assert at == len(items) and event["item"]["status"] == "in_progress"
            items[at] = event["item"]
        elif kind == "response.content_part.added":
            items[at]["content"].append(event["part"])
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            part = items[at]["content"][0]
            part["text"] += event["delta"]
            part.get("logprobs", []).extend(event.get("logprobs", []))
        elif kind == "response.function_call_arguments.delta":
            items[at]["arguments"] += event["delta"]
        elif kind == "response.output_item.done":
            items[at]["status"] = event["item"]["status"]
            assert items[at] == event["item"]
    return [items[at] for at in sorted(items)]


def check_stream(server, request):
    """A stream's items, its last event and the body are the same. Returns the body."""
    answer, found = server.json("POST", "/v1/responses", request), events(server, request)
    last = found[-1]
    assert last["type"] == f"response.{last['response']['status']}"
    assert joined(found) == last["response"]["output"]
    assert without_times(last["response"]) == without_times(answer)
    return answer


def test_a_body_is_the_answer_of_a_chat(server):
    plain = server.json(
        "POST", "/v1/chat/completions", {
            "model": "smollm2", "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": 12, "temperature": 0})
    answer = check_stream(server, body(metadata={"a": "b"}))
    assert answer["output"][0]["content"][0]["text"] == plain["choices"][0]["message"]["content"]
    usage = answer["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (
        plain["usage"]["prompt_tokens"], plain["usage"]["completion_tokens"])
    is_cut = plain["choices"][0]["finish_reason"] == "length"
    assert answer["status"] == ("incomplete" if is_cut else "completed")
    assert (answer["metadata"], answer["store"], answer["temperature"]) == ({"a": "b"}, False, 0)


def test_a_cut_answer_is_incomplete(server):
    answer = check_stream(server, body(max_output_tokens=2))
    assert answer["status"] == answer["output"][0]["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["completed_at"] is None


def test_calls_come_as_items_and_their_outputs_go_back(server, client):
    request = body(tools=TOOLS, tool_choice={"type": "function", "name": "get_weather"},
                   max_output_tokens=60)
    call = check_stream(server, request)["output"][0]
    assert call["type"] == "function_call" and call["id"].startswith("fc_")
    assert json.loads(call["arguments"])["city"] in ("Oslo", "Bergen")
    with client.responses.stream(**request) as stream:
        final = stream.get_final_response()
    assert final.output[0].arguments == call["arguments"]
    turn = [{"role": "user", "content": QUESTION}, final.output[0].model_dump(),
            {"type": "function_call_output", "call_id": final.output[0].call_id, "output": "sun"}]
    assert client.responses.create(**body(input=turn)).output[0].type == "message"


def test_a_schema_is_held(client):
    class City(pydantic.BaseModel):
        population: int
        capital: bool

    parsed = client.responses.parse(text_format=City, **body(max_output_tokens=60))
    assert isinstance(parsed.output_parsed, City)


def test_logprobs_are_shown_in_text_and_deltas(server):
    request = body(include=["message.output_text.logprobs"], top_logprobs=2)
    answer = check_stream(server, request)
    entries = answer["output"][0]["content"][0]["logprobs"]
    assert len(entries) >= answer["usage"]["output_tokens"] - 1 > 0
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    shown = [entry for event in events(server, request)
             if event["type"] == "response.output_text.delta" for entry in event["logprobs"]]
    assert [entry["token"] for entry in shown] == [entry["token"] for entry in entries]


def test_a_count_is_that_of_the_run(server, client):
    asked = {"instructions": "Be brief.", "tools": TOOLS}
    count = client.responses.input_tokens.count(model="smollm2", input=QUESTION, **asked)
    assert count.input_tokens == server.json("POST", "/v1/responses",
                                             body(**asked))["usage"]["input_tokens"]


def test_a_wish_that_a_model_cannot_follow_changes_nothing(server):
    plain = server.json("POST", "/v1/responses", body())
    wishes = body(reasoning={"effort": "high", "summary": "auto"}, store=True, truncation="auto",
                  include=["reasoning.encrypted_content"])
    answer = server.json("POST", "/v1/responses", wishes)
    assert answer["output"][0]["content"] == plain["output"][0]["content"]


def test_what_is_wrong_is_refused_by_name(client):
    for more, param in (({"previous_response_id": "resp_1"}, "previous_response_id"),
                        ({"conversation": "conv_1"}, "conversation"),
                        ({"background": True}, "background"),
                        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
                        ({"temperature": 3}, "temperature"), ({"max_output_tokens": 0},
                                                              "max_output_tokens")):
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(**body(**more))
        assert raised.value.param == param
    with pytest.raises(openai.NotFoundError) as raised:
        client.responses.create(**body(model="nobody"))
    assert raised.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="8192"):
        client.responses.create(**body(input="word " * 9000))
    for kept in (client.responses.retrieve, client.responses.delete, client.responses.cancel,
                 client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as raised:
            kept("resp_1")
        assert raised.value.code == "response_not_found"

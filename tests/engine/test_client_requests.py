# SPDX-License-Identifier: Apache-2.0
"""What clients of Ollama, Messages and Responses really send: each request is answered as it asks,
or refused in a sentence that names the member as its own API calls it."""
import base64, json, struct, urllib.error, urllib.request

import pytest

import support

TINY = support.SHARED / "tiny/qwen3"
TEMPLATE = support.SHARED / "templates/Qwen-Qwen3-0.6B.jinja"
pytestmark = pytest.mark.skipif(not (TINY.exists() and TEMPLATE.exists()),
                                reason="the tiny models and templates of ../shared are not here")
ASKED = [{"role": "user", "content": "hi"}]
LONG = "word " * 3000
BROKEN = {"type": "object", "properties": {"b": {"$ref": "#/$defs/Gone"}}}
CALLED = [*ASKED, {"role": "assistant", "content": [
    {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}]
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"on": {"type": "boolean"}},
                                      "required": ["on"], "additionalProperties": False}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(
            tmp_path_factory.mktemp("requests") / "state", "--model", f"m={TINY}", "--model",
            "e=echo", "--chat-template", str(TEMPLATE), "--threads", "1") as server:
        yield server


def result_of(content, **more):
    return {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": content, **more}]}


def messages(**more):
    return {"model": "m", "max_tokens": 4, "messages": ASKED, **more}


def ollama(**more):
    options = {"temperature": 0, "num_predict": 4, **more.pop("options", {})}
    return {"model": "m", "stream": False, "options": options, "messages": ASKED, **more}


def generate(**more):
    return {"model": "m", "stream": False, "prompt": "hi", "options": {"num_predict": 2}, **more}


def responses(**more):
    return {"model": "m", "max_output_tokens": 4, "input": "hi", **more}


MESSAGES, COUNT, RESPONSES = "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"
CHAT, GENERATE = "/api/chat", "/api/generate"

# name: (path, body, the sentence or its beginning)
REFUSED = {
    "long-messages": (MESSAGES, messages(messages=[{"role": "user", "content": LONG}]),
                      "prompt is too long: 60"),
    "long-stream": (MESSAGES, messages(stream=True, messages=[{"role": "user", "content": LONG}]),
                    "prompt is too long: 60"),
    "long-chat": (CHAT, ollama(messages=[{"role": "user", "content": LONG}]),
                  "the input length exceeds the context length: 60"),
    "long-generate": (GENERATE, generate(prompt=LONG),
                      "the input length exceeds the context length: 60"),
    "long-raw": (GENERATE, generate(prompt=LONG, raw=True),
                 "the input length exceeds the context length: 60"),
    "format-chat": (CHAT, ollama(format=BROKEN),
                    "Invalid 'format': $.properties.b.$ref: '#/$defs/Gone' names nothing."),
    "format-messages": (MESSAGES, messages(output_config={
        "format": {"type": "json_schema", "schema": BROKEN}}),
        "Invalid 'output_config.format': $.properties.b.$ref: '#/$defs/Gone' names nothing."),
    "format-responses": (RESPONSES, responses(text={
        "format": {"type": "json_schema", "name": "n", "schema": BROKEN}}),
        "Invalid 'text.format': $.properties.b.$ref: '#/$defs/Gone' names nothing."),
    "format-word": (CHAT, ollama(format="xml"), 'invalid format: expected "json" or a JSON schema'),
    "stops-messages": (MESSAGES, messages(stop_sequences=["a"] * 20),
                       "Invalid 'stop_sequences': array too long."),
    "stops-chat": (CHAT, ollama(options={"stop": ["a"] * 20}),
                   "Invalid 'options.stop': array too long."),
    "repeat": (CHAT, ollama(options={"repeat_penalty": 0}), "Invalid 'options.repeat_penalty':"),
    "hot": (CHAT, ollama(options={"temperature": -1}), "Invalid 'options.temperature':"),
    "warm": (CHAT, ollama(options={"temperature": "hot"}),
             'option "temperature" must be of type float32'),
    "tool-name": (MESSAGES, messages(tools=[{**TOOL, "name": "a b"}]), "Invalid 'tools[0].name':"),
    "tool-schema": (MESSAGES, messages(tools=[{"name": "f", "input_schema": BROKEN}],
                                       tool_choice={"type": "any"}),
                    "Invalid 'tool_choice': tools[0].input_schema: $.properties.b.$ref:"),
    "tool-gone": (MESSAGES, messages(tools=[TOOL], tool_choice={"type": "tool", "name": "g"}),
                  "Invalid 'tool_choice.name':"),
    "tool-responses": (RESPONSES, responses(
        tools=[{"type": "function", "name": "f", "strict": True, "parameters": BROKEN}],
        tool_choice="required"), "Invalid 'tool_choice': tools[0].parameters:"),
    "image-messages": (MESSAGES, messages(messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]),
        "messages.0.content.0.type: this server does not take blocks of the type \"image\""),
    "image-in-result": (MESSAGES, messages(messages=[*CALLED, result_of([{"type": "image"}])]),
                        "messages.2.content.0.content: expected a text or text blocks"),
    "image-chat": (CHAT, ollama(messages=[{**ASKED[0], "images": ["aGk="]}]),
                   "messages[0].images: this model does not take images"),
    "image-generate": (GENERATE, generate(images=["aGk="]), "images: this model does not take"),
    "image-responses": (RESPONSES, responses(input=[{"role": "user", "content": [
        {"type": "input_image", "image_url": "x"}]}]),
        "Unsupported value: 'input[0].content.type'"),
    "result-without-call": (MESSAGES, messages(messages=[result_of("x")]),
                            "messages.0.content.0.tool_use_id: there is no tool_use block"),
    "context": (GENERATE, generate(context=[1, 2, 3]), "context is not supported"),
    "suffix": (GENERATE, generate(suffix="x"), '"m" does not support insert'),
    "raw-system": (GENERATE, generate(raw=True, system="x"), "raw mode does not support template"),
    "think-word": (GENERATE, generate(think="very"), 'invalid think value: "very"'),
    "keep-later": (GENERATE, generate(keep_alive="later"), 'time: invalid duration "later"'),
    "no-messages": (MESSAGES, messages(messages=[]), "messages: at least one message is required"),
    "state": (RESPONSES, responses(previous_response_id="r"),
              "Unsupported parameter: 'previous_response_id'"),
    "embed-long": ("/api/embed", {"model": "m", "input": LONG, "truncate": False}, ""),
}


def sentence_of(data):
    error = json.loads(data)["error"]
    return error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_member_as_its_own_api_calls_it(server, name):
    path, body, begin = REFUSED[name]
    status, data = server.call("POST", path, body)
    assert status == 400 and sentence_of(data).startswith(begin), data
    for word in ("response_format", "max_tokens'", "repetition_penalty", "truncate_prompt_tokens"):
        assert word not in sentence_of(data)


def test_a_refusal_of_responses_has_its_own_param(server):
    _, data = server.call("POST", *REFUSED["format-responses"][:2])
    assert json.loads(data)["error"]["param"] == "text.format"
    status, data = server.call("POST", RESPONSES, responses(input=LONG))
    error = json.loads(data)["error"]
    assert (status, error["param"], error["code"]) == (400, "input", "context_length_exceeded")


def test_both_numbers_of_a_prompt_that_is_too_long_are_told_and_are_those_of_the_count(server):
    body = messages(messages=[{"role": "user", "content": LONG}])
    count = server.json("POST", COUNT, body)["input_tokens"]
    _, data = server.call("POST", MESSAGES, body)
    assert sentence_of(data) == f"prompt is too long: {count} tokens > 1024 maximum"
    _, data = server.call("POST", CHAT, ollama(messages=body["messages"]))
    assert sentence_of(data).endswith(f": {count} tokens, and at most 1024 fit")


def test_a_line_of_a_batch_is_refused_in_the_words_of_its_api(server):
    lines = [{"custom_id": name, "method": "POST", "url": MESSAGES, "body": REFUSED[name][1]}
             for name in ("long-messages", "stops-messages", "tool-gone")]
    batch = server.wait(server.create(support.jsonl(lines), endpoint=MESSAGES)["id"])
    _, data = server.call("GET", f"/v1/files/{batch['error_file_id']}/content")
    for text in data.splitlines():
        record = json.loads(text)
        told = record["response"]["body"]["error"]["message"]
        assert told.startswith(REFUSED[record["custom_id"]][2]), told


# name: (path, body, what holds of the answer)
TAKEN = {
    "system-blocks": (MESSAGES, messages(system=[
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": " Be kind."}]), lambda a: a["stop_reason"] == "max_tokens"),
    "is-error": (MESSAGES, messages(messages=[*CALLED, result_of("boom", is_error=True)],
                                    tools=[TOOL]), lambda a: a["role"] == "assistant"),
    "result-without-content": (MESSAGES, messages(messages=[*CALLED, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1"}]}]), lambda a: a["content"]),
    "empty-text": (MESSAGES, messages(messages=[{"role": "user", "content": ""}]),
                   lambda a: a["type"] == "message"),
    "empty-blocks": (MESSAGES, messages(messages=[{"role": "user", "content": []}]),
                     lambda a: a["type"] == "message"),
    "metadata": (MESSAGES, messages(metadata={"user_id": "u"}, betas=["x"], context_management={},
                                    service_tier="auto"), lambda a: a["model"] == "m"),
    "forced-call": (MESSAGES, messages(
        max_tokens=99, thinking={"type": "disabled"}, tools=[TOOL],
        tool_choice={"type": "any", "disable_parallel_tool_use": True}),
                    lambda a: a["stop_reason"] == "tool_use" and a["content"][-1]["id"].startswith(
                        "toolu_") and set(a["content"][-1]["input"]) == {"on"}),
    "null-members": (CHAT, ollama(think=False, tools=[], format=None, keep_alive=None),
                     lambda a: a["done_reason"] == "length"),
    "null-options": (CHAT, ollama(options={"top_k": None, "mirostat": None, "stop": None}),
                     lambda a: a["done"]),
    "unknown-options": (CHAT, ollama(options={"foo": 1, "num_gpu": 99, "use_mmap": True,
                                              "num_thread": 4, "low_vram": False}),
                        lambda a: a["eval_count"] == 4),
    "small-num-ctx": (CHAT, ollama(options={"num_ctx": 5}), lambda a: a["prompt_eval_count"] > 5),
    "metadata-chat": (CHAT, ollama(metadata={"chat_id": "x"}, keep_alive=1800),
                      lambda a: a["done"]),
    "go-duration": (CHAT, ollama(keep_alive="1h30m"), lambda a: a["done"]),
    "tool-without-id": (CHAT, ollama(messages=[
        *ASKED, {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": {"on": True}}}]},
        {"role": "tool", "content": "ok"}]), lambda a: a["done"]),
    "upper-roles": (CHAT, ollama(messages=[{"role": "USER", "content": "hi"}]),
                    lambda a: a["done"]),
    "old-context": (GENERATE, generate(context=[]), lambda a: "context" not in a),
    "load": (GENERATE, {"model": "m"}, lambda a: a["done_reason"] == "load" and not a["response"]),
    "load-chat": (CHAT, {"model": "m", "messages": []}, lambda a: a["done_reason"] == "load"),
    "empty-format": (GENERATE, generate(format="", system=""), lambda a: a["done"]),
    "one-stop": (GENERATE, generate(options={"stop": "x", "seed": -1, "num_predict": 2}),
                 lambda a: a["eval_count"] == 2),
    "easy-items": (RESPONSES, responses(input=[{"role": "developer", "content": "x"}, *ASKED]),
                   lambda a: a["status"] == "incomplete"),
    "codex": (RESPONSES, responses(store=False, include=["reasoning.encrypted_content"],
                                   prompt_cache_key="k", parallel_tool_calls=False, tools=[],
                                   tool_choice="auto", reasoning={"effort": "low"}),
              lambda a: a["store"] is False and a["incomplete_details"] == {
                  "reason": "max_output_tokens"}),
    "verbosity": (RESPONSES, responses(text={"format": {"type": "text"}, "verbosity": "low"}),
                  lambda a: a["output"] is not None),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_clients_send_is_answered(server, name):
    path, body, holds = TAKEN[name]
    assert holds(server.json("POST", path, body))


@pytest.mark.parametrize("order", ("CAE", "ACE", "ECA"))
def test_a_schema_is_held_whatever_the_order_of_its_definitions(server, order):
    definitions = {"C": {"payload": {"$ref": "#/$defs/A"}}, "A": {"payload": {"$ref": "#/$defs/E"}}}
    held = {
        name: {"type": "object", "properties": members, "required": ["payload"],
               "additionalProperties": False}
        for name, members in definitions.items()} | {"E": {"type": "boolean"}}
    schema = {"$defs": {name: held[name] for name in order}, "type": "object", "properties": {
        "c": {"$ref": "#/$defs/C"}}, "required": ["c"], "additionalProperties": False}
    answer = server.json("POST", CHAT, ollama(format=schema, options={"num_predict": 99}))
    assert type(json.loads(answer["message"]["content"])["c"]["payload"]["payload"]) is bool


def test_a_matched_stop_text_is_told(server):
    whole = server.json("POST", MESSAGES, {**messages(), "model": "e", "messages": [
        {"role": "user", "content": "one END two"}], "max_tokens": 99})
    assert whole["content"][0]["text"] == "one END two" and whole["stop_sequence"] is None
    body = messages(stop_sequences=["\n"], thinking={"type": "disabled"})
    answer = server.json("POST", MESSAGES, {**body, "temperature": 0, "max_tokens": 20})
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "\n")


def test_an_answer_goes_on_behind_the_turn_that_the_client_has_begun(server):
    begun = [*ASKED, {"role": "assistant", "content": "The answer is"}]
    tokens = [server.json("POST", COUNT, messages(messages=m))["input_tokens"]
              for m in (ASKED, begun)]
    answer = server.json("POST", MESSAGES, messages(messages=begun, temperature=0))
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == tokens[1] > tokens[0]
    assert not answer["content"][0]["text"].startswith("The answer is")


def method(server, name, path):
    request = urllib.request.Request(server.site + path, method=name)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read()


def test_probes_of_clients_are_answered(server):
    for path in ("/", "/api/tags", "/api/version"):
        assert method(server, "HEAD", path)[::2] == (200, b"")
    for path in (CHAT, MESSAGES, RESPONSES):
        status, headers, _ = method(server, "OPTIONS", path)
        assert status == 204 and "POST" in headers["Allow"]
    status, headers, data = method(server, "PUT", CHAT)
    assert status == 405 and headers["Allow"] and isinstance(json.loads(data)["error"], str)
    assert method(server, "GET", "/")[2] == b"Ollama is running"


def test_vectors_in_base64_are_those_in_numbers(server):
    texts = ["hello", "w\u00f6rld \U0001f600"]
    numbers = server.json("POST", "/v1/embeddings", {"model": "e", "input": texts})["data"]
    coded = server.json("POST", "/v1/embeddings", {
        "model": "e", "input": texts, "encoding_format": "base64"})["data"]
    for number, code in zip(numbers, coded, strict=True):
        data = base64.b64decode(code["embedding"])
        found = struct.unpack(f"<{len(data) // 4}f", data)
        assert len(data) == 4 * len(number["embedding"])
        assert found == pytest.approx(number["embedding"], abs=1e-6)


def test_characters_of_several_tokens_come_whole_in_a_stream(server):
    body = {"model": "m", "max_tokens": 99, "temperature": 0, "messages": ASKED,
            "structured_outputs": {"regex": "[\U0001f600-\U0001f64f]{3}[\u4e00-\u9fa5]{3}"}}
    whole = server.json("POST", "/v1/chat/completions", body)["choices"][0]["message"]["content"]
    _, data = server.call("POST", "/v1/chat/completions", {**body, "stream": True})
    chunks = [json.loads(line[6:]) for line in data.decode().splitlines()
              if line.startswith("data: {")]
    texts = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
    assert "".join(texts) == whole and len(whole) == 6
    assert not any("\ufffd" in text for text in texts)

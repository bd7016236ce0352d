# SPDX-License-Identifier: Apache-2.0
"""Answers of gpt-oss: messages with channels, calls as messages, thoughts with budgets, and shapes
in the final message.

The model is a tiny Llama with random weights that has the control tokens and the template of
gpt-oss, so the form is found as it is for gpt-oss itself. What such a model writes freely is seldom
a message; the readers have their own tests (tests/unit/text/chat)."""
import json, shutil

import httpx, openai
import pytest

import support

SHAPE = {
    "type": "json_schema", "json_schema": {
        "name": "s", "schema": {
            "type": "object", "properties": {
                "ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["ok", "n"], "additionalProperties": False}}}
CITY = {
    "type": "object", "properties": {
        "city": {"enum": ["Oslo", "Tromsø"]}, "days": {
            "type": "integer", "minimum": 1, "maximum": 14}}, "required": ["city", "days"]}
TOOLS = [{
    "type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city.", "parameters": CITY}}, {
            "type": "function", "function": {
                "name": "get_time", "parameters": {
                    "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}},
                    "required": ["zone"]}}}]
ARGUMENTS = {
    "get_weather": [{"city": city, "days": days}
                    for city in ("Oslo", "Tromsø")
                    for days in range(1, 15)], "get_time": [{"zone": "UTC"}, {"zone": "CET"}]}
MARKS = [
    "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tiny, template = support.SHARED / "tiny/llama3", support.SHARED / "templates/openai-gpt-oss-120b.jinja"
    if not (tiny.exists() and template.exists()):
        pytest.skip("the tiny models and templates of ../shared are not there")
    folder = tmp_path_factory.mktemp("harmony") / "tiny"
    folder.mkdir()
    shutil.copyfile(tiny / "model.safetensors", folder / "model.safetensors")
    shutil.copyfile(template, folder / "chat_template.jinja")
    tokens = json.loads((tiny / "tokenizer.json").read_text())
    first = max(token["id"]
                for token in tokens["added_tokens"]) + 1  # the model has rows behind its last token
    tokens["added_tokens"] += [{
        "id": first + i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True} for i, mark in enumerate(MARKS)]
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    # <|call|> ends an answer by its name.
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": first + MARKS.index("<|return|>")}))
    config = json.loads((tiny / "config.json").read_text()) | {
        "max_position_embeddings": 4096, "bos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    with support.serving(tmp_path_factory.mktemp("harmony") / "state", "--model",
                         f"tiny={folder}") as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        client.server = server
        tokens = json.loads((folder / "tokenizer.json").read_text())
        client.ids, client.vocab = {
            token["content"]: token["id"]
            for token in tokens["added_tokens"]}, tokens["model"]["vocab"]
        yield client


def options_of(**options):
    body = {"return_token_ids": True} | options.pop("extra_body", {})
    return {
        "model": "tiny", "messages": [{"role": "user", "content": "Is it so?"}], "temperature": 1,
        "max_tokens": 200, "seed": 1, "extra_body": body} | options


def ask(client, **options):
    answer = client.chat.completions.create(**options_of(**options))
    for choice in answer.choices:
        text = (choice.message.content or "") + (getattr(choice.message, "reasoning_content", None)
                                                 or "")
        assert not any(mark in text for mark in MARKS), text
    return answer.choices[0], answer.usage.completion_tokens_details.reasoning_tokens


def check_marks(client, ids):
    """Every mark is its control token: none is spelled with letters."""
    text = httpx.post(f"{client.server.url[:-3]}/detokenize", json={"model": "tiny",
                                                                    "tokens": ids}).json()["prompt"]
    for mark in MARKS:
        assert text.count(mark) == ids.count(client.ids[mark]), (mark, text)


def thought_of(client, ids):
    """The tokens between the first analysis header and its end."""
    message, end = client.ids["<|message|>"], client.ids["<|end|>"]
    return ids[ids.index(message) + 1:ids.index(end)] if end in ids else []


def valid(text):
    value = json.loads(text)
    return list(value) == ["ok", "n"] and isinstance(value["ok"], bool) and value["n"] in range(10)


def good(call):
    return json.loads(call.function.arguments) in ARGUMENTS[call.function.name]


@pytest.mark.parametrize("budget", [0, 1, 17, 60])
def test_a_shape_is_in_the_final_message_and_the_thought_keeps_its_budget(client, budget):
    thoughts = 0
    for seed in range(8):
        choice, tokens = ask(client,
                             seed=seed,
                             response_format=SHAPE,
                             extra_body={"thinking_token_budget": budget})
        assert choice.finish_reason == "stop" and valid(choice.message.content), choice
        check_marks(client, choice.token_ids)
        has_thought = client.ids["<|end|>"] in choice.token_ids
        assert tokens == len(thought_of(client, choice.token_ids)) <= budget
        assert (choice.message.reasoning_content is not None) == has_thought
        thoughts += has_thought
    assert 0 < thoughts
    assert choice.token_ids.count(client.ids["<|channel|>"]) <= 2


def test_a_shape_leaves_room_for_the_answer_without_a_budget(client):
    for seed in range(8):
        choice, tokens = ask(client, seed=seed, max_tokens=160, response_format=SHAPE)
        assert choice.finish_reason == "stop" and valid(choice.message.content) and tokens <= 80


def test_a_budget_alone_closes_the_thought_and_no_other_begins(client):
    most = 0
    for seed in range(12):
        choice, tokens = ask(client,
                             seed=seed,
                             max_tokens=60,
                             extra_body={"thinking_token_budget": 5})
        most = max(most, tokens)
        check_marks(client, choice.token_ids)
        assert tokens <= 5 and choice.token_ids.count(client.ids["<|channel|>"]) <= 2
        if client.ids["<|end|>"] in choice.token_ids:
            assert choice.message.reasoning_content is not None and choice.message.content
    assert most == 5


def test_stop_strings_are_looked_for_in_texts_and_not_in_headers(client):
    """The channel's name is no word of the answer; a stop string in the JSON cuts it."""
    choice, _ = ask(client,
                    response_format=SHAPE,
                    stop=["final", "analysis", "assistant"],
                    extra_body={"thinking_token_budget": 4})
    assert choice.finish_reason == "stop" and valid(choice.message.content)
    choice, _ = ask(client,
                    response_format=SHAPE,
                    stop=['"n"'],
                    extra_body={"thinking_token_budget": 4})
    assert choice.finish_reason == "stop" and choice.message.content.startswith(
        '{"ok":') and '"n"' not in choice.message.content


@pytest.mark.parametrize("tool_choice",
                         ["required", {"type": "function", "function": {"name": "get_time"}}],
                         ids=["required", "named"])
def test_forced_calls_are_messages_behind_the_thought(client, tool_choice):
    names = set()
    for seed in range(8):
        choice, tokens = ask(client,
                             seed=seed,
                             tools=TOOLS,
                             tool_choice=tool_choice,
                             parallel_tool_calls=False,
                             extra_body={"thinking_token_budget": 9})
        [call] = choice.message.tool_calls
        names.add(call.function.name)
        assert good(call) and call.id.startswith(
            "call_") and tokens <= 9 and not choice.message.content
        assert choice.finish_reason == ("tool_calls" if tool_choice == "required" else "stop")
    assert names == ({"get_time"} if tool_choice != "required" else {"get_weather", "get_time"})


def test_several_calls_are_several_messages(client):
    most = 0
    for seed in range(6):
        choice, _ = ask(client,
                        seed=seed,
                        tools=TOOLS,
                        tool_choice="required",
                        max_tokens=300,
                        extra_body={"thinking_token_budget": 0})
        calls = choice.message.tool_calls
        most = max(most, len(calls))
        assert all(good(call) for call in calls) and len({call.id for call in calls}) == len(calls)
        check_marks(client, choice.token_ids)
    assert most > 1


def test_with_a_shape_and_tools_the_answer_is_a_call_or_has_the_shape(client):
    for letter, is_call in (("c", True), ("f", False)):
        # The model's random weights prefer one of the two; a letter of the channel's name decides.
        bias = {
            str(number): 100
            for text, number in client.vocab.items()
            if text.startswith(letter)}
        choice, tokens = ask(client,
                             tools=TOOLS,
                             parallel_tool_calls=False,
                             response_format=SHAPE,
                             logit_bias=bias,
                             max_tokens=400,
                             extra_body={"thinking_token_budget": 6})
        assert choice.finish_reason == ("tool_calls" if is_call else "stop") and tokens <= 6
        if is_call:
            assert good(choice.message.tool_calls[0]) and choice.message.content is None
        else:
            assert valid(choice.message.content) and not choice.message.tool_calls


def joined(stream):
    calls, content, thought, reason = {}, "", "", None
    for chunk in stream:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            thought += (choice.delta.model_extra or {}).get("reasoning_content") or ""
            reason = choice.finish_reason or reason
            for delta in choice.delta.tool_calls or []:
                name, arguments = calls.get(delta.index, ("", ""))
                calls[delta.index] = (name + (delta.function.name or ""),
                                      arguments + (delta.function.arguments or ""))
    return thought, content, [calls[index] for index in sorted(calls)], reason


@pytest.mark.parametrize(
    "asked",
    [{}, {"response_format": SHAPE}, {"tools": TOOLS, "tool_choice": "required"}, {"tools": TOOLS}],
    ids=["free", "shape", "calls", "auto"])
@pytest.mark.parametrize("budget", [-1, 12])
def test_a_stream_has_what_the_whole_answer_has(client, asked, budget):
    for seed in range(3):
        options = options_of(seed=seed,
                             max_tokens=120,
                             extra_body={"thinking_token_budget": budget},
                             **asked)
        [whole] = client.chat.completions.create(**options).choices
        thought, content, calls, reason = joined(
            client.chat.completions.create(stream=True, **options))
        told = [(call.function.name, call.function.arguments)
                for call in whole.message.tool_calls or []]
        assert thought == (getattr(whole.message, "reasoning_content", None)
                           or "") and reason == whole.finish_reason
        assert calls[:len(told)] == told
        if len(calls) == len(told):
            assert content == (whole.message.content or "")


def test_efforts_that_the_model_does_not_know_are_refused(client):
    for effort in ("low", "medium", "high"):
        ask(client, reasoning_effort=effort, max_tokens=5)
    for effort in ("none", "minimal", "xhigh"):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, reasoning_effort=effort, max_tokens=5)
        assert caught.value.param == "reasoning_effort" and "low, medium and high" in caught.value.message


def test_a_conversation_with_several_calls_is_shown_to_the_model(client):
    """The template shows one call per message; the second one and both results are in the prompt
    all the same."""
    messages = [{"role": "user", "content": "Weather?"}, {
        "role": "assistant", "content": None, "reasoning_content": "Two cities.",
        "tool_calls": [{
            "id": f"call_{i}", "type": "function", "function": {
                "name": "get_weather", "arguments": json.dumps({"city": city})}}
                       for i, city in enumerate(("Oslo", "Tromsø"))]}, {
                           "role": "tool", "tool_call_id": "call_1", "content": "snow"}, {
                               "role": "tool", "tool_call_id": "call_0", "content": "rain"}]
    ids = httpx.post(f"{client.server.url[:-3]}/tokenize",
                     json={"model": "tiny", "messages": messages, "tools": TOOLS}).json()["tokens"]
    text = httpx.post(f"{client.server.url[:-3]}/detokenize", json={"model": "tiny",
                                                                    "tokens": ids}).json()["prompt"]
    parts = [
        "<|channel|>analysis<|message|>Two cities.",
        'to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}', '"rain"',
        'commentary json<|message|>{"city": "Troms', '"snow"<|end|><|start|>assistant']
    places = [text.find(part) for part in parts]
    assert -1 not in places and places == sorted(places), text


def test_decisions_are_read_behind_the_final_header(client, folder):
    body = {
        "model": "tiny", "input": "A candidate.", "questions": [{
            "type": "predicate", "name": "fit", "instructions": "Is it?"}]}
    answer = client.post("/decisions", body=body, cast_to=object)
    assert 0 <= answer["answers"][0]["probability"] <= 1
    shown = json.loads(
        support.quern("render", "--model", folder, "--decision", input=json.dumps(body)).stdout)
    assert shown["prompt"].endswith("only.<|end|><|start|>assistant<|channel|>final<|message|>"
                                    ) and shown["labels"] == ["A", "B"]
    assert answer["usage"]["input_tokens"] == shown["tokens"]


def test_the_format_can_be_named(tmp_path):
    """Of a model whose template does not tell, and whose vocabulary spells the marks with
    letters."""
    model = support.SHARED / "tiny/qwen3"
    if not model.exists():
        pytest.skip("the shared tiny families are not here")
    with support.serving(tmp_path / "state", "--model", f"tiny={model}", "--tool-call-parser",
                         "openai") as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        for seed in range(4):
            choice, tokens = ask(client,
                                 seed=seed,
                                 response_format=SHAPE,
                                 max_tokens=400,
                                 extra_body={"thinking_token_budget": 8})
            text = server.json("POST", "/detokenize",
                               {"model": "tiny", "tokens": choice.token_ids})["prompt"]
            assert valid(choice.message.content) and tokens <= 8 and "<|channel|>final" in text

# SPDX-License-Identifier: Apache-2.0
"""Thoughts of models: their text apart from the answer, their tokens counted, their budget kept,
and a shape that begins behind them.

The default model spells the marks of a thought with several tokens; tiny Qwen3, with random
weights, has them as control tokens."""
import json, random

import openai
import pytest

import support

OPEN = "{% for message in messages %}{{ message.content }}\n{% endfor %}<think>\n{# </think> #}"
MAY = "{% for message in messages %}{{ message.content }}\n{% endfor %}{# <think></think> #}"
CLOSED = MAY + "<think>\n\n</think>\n\n"
SHAPE = {
    "type": "json_schema", "json_schema": {
        "name": "s", "schema": {
            "type": "object", "properties": {
                "ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["ok", "n"], "additionalProperties": False}}}
TOOLS = [{
    "type": "function", "function": {
        "name": "get_time", "parameters": {
            "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": [
                "zone"]}}}]


@pytest.fixture(scope="module", params=["smollm2", "tiny"])
def client(request, tmp_path_factory):
    """A client whose `think` and `close` are the ids of the marks, if these are tokens."""
    model = request.param
    if model == "tiny":
        folder = support.SHARED / "tiny/qwen3"
        if not folder.exists():
            pytest.skip("the shared tiny families are not here")
        model = f"tiny={folder}"
    with support.serving(
            tmp_path_factory.mktemp("thoughts") / "state", "--model", model,
            "--trust-request-chat-template") as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        client.model, client.server = request.param, server
        client.think = client.close_id = None
        if request.param == "tiny":
            ids = {
                token["content"]: token["id"]
                for token in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]}
            client.think, client.close_id = ids["<think>"], ids["</think>"]
        yield client


def options_of(client, template=OPEN, **options):
    body = {"chat_template": template, "return_token_ids": True} | options.pop("extra_body", {})
    return {
        "model": client.model, "messages": [{"role": "user", "content": "Is it so?"}],
        "temperature": 1, "max_tokens": 60, "seed": 1, "extra_body": body, **options}


def ask(client, template=OPEN, **options):
    answer = client.chat.completions.create(**options_of(client, template, **options))
    return answer.choices[0], answer.usage.completion_tokens_details.reasoning_tokens


def valid(text):
    value = json.loads(text)
    return list(value) == ["ok", "n"] and isinstance(value["ok"], bool) and value["n"] in range(10)


@pytest.mark.parametrize("budget", [0, 1, 2, 17, 30])
def test_a_thought_has_no_token_over_its_budget_and_the_answer_its_shape(client, budget):
    for seed in range(6):
        choice, tokens = ask(client,
                             seed=seed,
                             max_tokens=200,
                             response_format=SHAPE,
                             extra_body={"thinking_token_budget": budget})
        assert tokens <= budget and choice.finish_reason == "stop" and valid(
            choice.message.content), choice
        assert "</think>" not in choice.message.content + choice.message.reasoning_content
        if client.close_id is not None:
            assert choice.token_ids.index(client.close_id) == tokens


def test_a_shape_leaves_room_for_the_answer_without_a_budget_too(client):
    # Random text seldom closes a thought: nearly half of max_tokens is left for the answer.
    for seed in range(4):
        choice, tokens = ask(client, seed=seed, max_tokens=120, response_format=SHAPE)
        assert choice.finish_reason == "stop" and valid(choice.message.content) and tokens <= 60


def test_without_a_shape_the_budget_alone_closes_the_thought(client):
    for budget in (0, 5):
        choice, tokens = ask(client, extra_body={"thinking_token_budget": budget})
        assert tokens <= budget and choice.message.content and "</think>" not in choice.message.content
    choice, tokens = ask(client,
                         extra_body={"thinking_token_budget": -1},
                         max_tokens=30,
                         logit_bias={str(client.close_id): -100} if client.close_id else {})
    if choice.message.content is None:
        assert choice.message.reasoning_content and tokens == 30 and choice.finish_reason == "length"


def test_a_call_that_is_forced_comes_after_the_thought(client):
    template = OPEN.replace("{# ", "{% if tools %}{# <tool_call> #}{{ tools }}{% endif %}{# ")
    choice, tokens = ask(client,
                         template,
                         tools=TOOLS,
                         tool_choice="required",
                         parallel_tool_calls=False,
                         max_tokens=200,
                         extra_body={"thinking_token_budget": 9})
    [call] = choice.message.tool_calls
    assert json.loads(call.function.arguments)["zone"] in (
        "UTC", "CET") and tokens <= 9 and choice.finish_reason == "tool_calls"
    assert choice.message.reasoning_content is not None and choice.message.content is None


def test_a_model_may_open_its_thought_itself(client):
    if client.think is None:
        pytest.skip("the mark is no token of this model")
    options = {
        "response_format": SHAPE, "max_tokens": 200, "extra_body": {"thinking_token_budget": 7}}
    choice, tokens = ask(client, MAY, logit_bias={str(client.think): 100}, **options)
    assert choice.token_ids[0] == client.think and choice.token_ids.index(
        client.close_id) == tokens + 1 <= 8 and valid(choice.message.content)
    choice, tokens = ask(client, MAY, logit_bias={str(client.think): -100}, **options)
    assert tokens == 0 and choice.message.reasoning_content is None and valid(
        choice.message.content)


def test_a_closed_thought_leaves_the_answer_as_it_is(client):
    choice, tokens = ask(client,
                         CLOSED,
                         response_format=SHAPE,
                         extra_body={"thinking_token_budget": 3})
    assert tokens == 0 and valid(
        choice.message.content) and "reasoning_content" not in choice.message.model_extra


@pytest.mark.parametrize("shape", [{}, {"response_format": SHAPE}], ids=["free", "shape"])
def test_a_stream_has_the_thought_and_the_answer(client, shape):
    options = options_of(client, max_tokens=120, extra_body={"thinking_token_budget": 12}, **shape)
    whole = client.chat.completions.create(**options)
    thought, content = "", ""
    for chunk in client.chat.completions.create(stream=True,
                                                stream_options={"include_usage": True},
                                                **options):
        if chunk.choices:
            thought += (chunk.choices[0].delta.model_extra or {}).get("reasoning_content") or ""
            content += chunk.choices[0].delta.content or ""
        else:
            assert chunk.usage == whole.usage
    message = whole.choices[0].message
    assert thought == message.reasoning_content and content == (message.content or "")


def test_the_fields_of_a_thought(client):
    base = {"thinking_token_budget": 6}
    plain, tokens = ask(client, extra_body=base)
    for field, names in (("reasoning", {"reasoning"}), ("both", {
            "reasoning", "reasoning_content"}), ("reasoning_content", {"reasoning_content"})):
        choice, _ = ask(client, extra_body=base | {"reasoning_field": field})
        shown = {
            name: value
            for name, value in choice.message.model_extra.items()
            if name.startswith("reasoning")}
        assert shown == dict.fromkeys(names, plain.message.reasoning_content)
    hidden, same = ask(client, extra_body=base | {"include_reasoning": False})
    assert not any(name.startswith("reasoning") for name in hidden.message.model_extra
                   ) and hidden.message.content == plain.message.content and same == tokens
    for body, param in (({"thinking_token_budget": -2}, "thinking_token_budget"), ({
            "thinking_token_budget": "a"}, "thinking_token_budget"), ({
                "reasoning_field": "x"}, "reasoning_field"), ({
                    "include_reasoning": 1}, "include_reasoning"), ({
                        "thinking_token_budget": 4,
                        "chat_template": "{{ messages[0].content }}"}, "thinking_token_budget")):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, extra_body=body)
        assert caught.value.param == param


def test_effort_switches_the_thought_of_a_template(client):
    template = "{{ messages[0].content }}<think>\n{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}"
    for effort, has_thought in (("none", False), ("low", True)):
        choice, _ = ask(client, template, reasoning_effort=effort)
        assert ("reasoning_content" in choice.message.model_extra) == has_thought


def test_lines_of_a_batch_keep_their_budgets(client):
    rng = random.Random(3)
    lines, budgets = [], {}
    for number in range(40):
        budgets[str(number)] = rng.randint(0, 40)
        body = {
            key: value
            for key, value in options_of(client, response_format=SHAPE, seed=number,
                                         max_tokens=160).items()
            if key != "extra_body"}
        lines.append({
            "custom_id": str(number), "method": "POST", "url": "/v1/chat/completions",
            "body": body | {"chat_template": OPEN, "thinking_token_budget": budgets[str(number)]}})
    batch = client.server.wait(client.server.create(support.jsonl(lines))["id"])
    output, errors = client.server.results(batch)
    assert not errors and len(output) == 40
    total = 0
    for line in output:
        body = line["response"]["body"]
        tokens = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
        total += tokens
        assert tokens <= budgets[line["custom_id"]] and valid(
            body["choices"][0]["message"]["content"])
    assert batch["usage"]["output_tokens_details"]["reasoning_tokens"] == total


def test_answers_that_are_cut_in_their_thought_are_counted(client):
    body = {
        key: value
        for key, value in options_of(client, max_tokens=2).items()
        if key not in ("extra_body", "seed")}
    bias = {"logit_bias": {str(client.close_id): -100}} if client.close_id else {}
    lines = [{
        "custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body
        | {"seed": number, "chat_template": CLOSED if number % 4 == 0 else OPEN, **bias}}
             for number in range(20)]
    batch = client.server.wait(
        client.server.create(support.jsonl(lines), quality_limits={"min_lines": 20})["id"])
    assert batch["request_counts"]["completed"] == 20
    assert (batch["quern"]["quality"]["in_thought"],
            batch["quern"]["quality"]["alarm"]) == (0.75, "in_thought")

# SPDX-License-Identifier: Apache-2.0
"""Calls of tools through the openai client: forced, named, restricted and strict, in the forms of
the model families.

The default model has no template for tools, so requests bring one that names the form. A forced
call is held to the schema of its tool whatever the model would write. An answer that ends otherwise
was cut by its length."""
import json, shutil

import openai
import pydantic
import pytest

import support

FORMS = {
    "hermes": "<tool_call>", "xml": "<tool_call><function=f><parameter=a>",
    "mistral": "[TOOL_CALLS]", "named": "[TOOL_CALLS]f[ARGS]", "llama": "<|python_tag|>",
    "python": "[func_name1(params_name1=1)]", "phi": "functools[", "gemma": "<|tool_call>",
    "function": "<start_function_call>", "plain": ""}
WEATHER = {
    "type": "object", "properties": {
        "city": {"enum": ["Oslo", "Tromsø", "Bergen"]}, "days": {
            "type": "integer", "minimum": 1, "maximum": 14}, "dry": {"type": "boolean"}},
    "required": ["city", "days"]}
TOOLS = [{
    "type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER}}, {
            "type": "function", "function": {
                "name": "get_time", "parameters": {
                    "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}},
                    "required": ["zone"]}}}, {"type": "function", "function": {"name": "stop_all"}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def template(form):
    return ("{# " + FORMS[form] +
            " #}{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}"
            "{% for message in messages %}{{ message.content }}{% endfor %}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(
            tmp_path_factory.mktemp("tools") / "state", "--model", "smollm2",
            "--trust-request-chat-template") as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)


def options_of(form="hermes", **options):
    body = {"chat_template": template(form)} | options.pop("extra_body", {})
    return {
        "model": "smollm2", "messages": [{
            "role": "user", "content": "What is the weather in Oslo?"}], "temperature": 1,
        "max_tokens": 120, "tools": TOOLS, "extra_body": body, **options}


def ask(client, form="hermes", **options):
    return client.chat.completions.create(**options_of(form, **options)).choices


def good(call):
    """Whether the call is one of TOOLS with arguments of its schema."""
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        names = list(arguments)
        return (names in (["city", "days"], ["city", "days", "dry"])
                and arguments["city"] in WEATHER["properties"]["city"]["enum"]
                and type(arguments["days"]) is int and 1 <= arguments["days"] <= 14
                and isinstance(arguments.get("dry", True), bool))
    return (call.function.name == "get_time" and arguments in ({"zone": "UTC"}, {
        "zone": "CET"})) or (call.function.name == "stop_all" and arguments == {})


@pytest.mark.parametrize("form", FORMS)
def test_required_calls_are_calls_of_the_tools_in_every_form(client, form):
    for choice in ask(client, form, tool_choice="required", parallel_tool_calls=False, n=4, seed=5):
        assert choice.finish_reason == "tool_calls" and not choice.message.content, choice
        [call] = choice.message.tool_calls
        assert good(call) and call.type == "function", call
        assert len(call.id) == 9 if form in ("mistral", "named") else call.id.startswith("call_")


@pytest.mark.parametrize("form", FORMS)
def test_a_named_tool_is_called_once_and_ends_with_stop(client, form):
    for choice in ask(client, form, tool_choice=NAMED, n=3, seed=6):
        assert choice.finish_reason == "stop" and not choice.message.content
        [call] = choice.message.tool_calls
        assert call.function.name == "get_weather" and good(call)


def test_required_calls_may_be_several(client):
    # This model seldom ends by itself; the calls before the cut are whole.
    [choice] = ask(client, tool_choice="required", seed=1, max_tokens=200)
    calls = choice.message.tool_calls
    assert len(calls) > 1 and all(good(call)
                                  for call in calls) and len({call.id
                                                              for call in calls}) == len(calls)
    assert choice.finish_reason == ("length" if choice.message.content else "tool_calls")


def joined(stream):
    """The calls, the content and the last finish_reason of a stream, put together as clients do."""
    calls, content, reasons = {}, "", []
    for chunk in stream:
        [choice] = chunk.choices
        content += choice.delta.content or ""
        reasons.append(choice.finish_reason)
        for delta in choice.delta.tool_calls or []:
            if delta.index not in calls:
                assert delta.id and delta.type == "function"
                assert delta.function.name and not delta.function.arguments
                calls[delta.index] = [delta.function.name, ""]
            else:
                assert not delta.id and not delta.function.name
            calls[delta.index][1] += delta.function.arguments
    assert set(reasons[:-1]) <= {None}
    return [tuple(calls[index]) for index in sorted(calls)], content, reasons[-1]


@pytest.mark.parametrize("form", ["hermes", "named", "llama", "gemma"])
@pytest.mark.parametrize("choice", ["required", "auto", NAMED], ids=["required", "auto", "named"])
def test_a_stream_has_the_calls_of_the_whole_answer(client, form, choice):
    # A model that may write text writes it to the bound.
    options = {"tool_choice": choice, "seed": 3, "max_tokens": 40 if choice == "auto" else 120}
    [whole] = ask(client, form, **options)
    calls, content, reason = joined(
        client.chat.completions.create(**options_of(form, **options, stream=True)))
    told = [
        (call.function.name, call.function.arguments) for call in whole.message.tool_calls or []]
    assert calls[:len(told)] == told and reason == whole.finish_reason
    if len(calls) == len(told):
        assert content == (whole.message.content or "")
    else:  # The last call was cut: the stream has its arguments as far as they came, and no text.
        assert reason == "length" and (
            whole.message.content
            or "").startswith(content) and calls[-1][1] in whole.message.content


LETTER = {
    "type": "function", "function": {
        "name": "write", "strict": True, "parameters": {
            "type": "object", "properties": {
                "text": {"type": "string", "minLength": 60, "maxLength": 90}, "tags": {
                    "type": "array", "items": {"enum": ["é", "}"]}, "minItems": 3, "maxItems": 4}},
            "required": ["text", "tags"], "additionalProperties": False}}}


@pytest.mark.parametrize("form", FORMS)
def test_arguments_come_while_they_are_generated(client, form):
    options = options_of(form,
                         tools=[LETTER],
                         tool_choice="required",
                         parallel_tool_calls=False,
                         seed=4,
                         max_tokens=300)
    whole = client.chat.completions.create(
        **options).choices[0].message.tool_calls[0].function.arguments
    pieces = []
    for chunk in client.chat.completions.create(**options,
                                                stream=True,
                                                stream_options={"include_usage": True}):
        for delta in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
            pieces.append(delta.function.arguments)
    assert pieces[0] == "" and "".join(pieces) == whole and json.loads(whole)["tags"]
    assert len(pieces) > 10, "a letter of 60 characters has more tokens than that"
    # The client's own helper puts them together, too.
    with client.chat.completions.stream(**options) as stream:
        events = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0].message.tool_calls[0].function
    assert len(events) > 10 and final.arguments == whole and final.parsed_arguments == json.loads(
        whole)


class Trip(pydantic.BaseModel):
    """Plan a trip."""
    city: str = pydantic.Field(max_length=12)
    days: int = pydantic.Field(ge=1, le=9)
    by_train: bool | None


def test_the_helpers_of_the_openai_client_parse_calls(client):
    options = options_of(tools=[openai.pydantic_function_tool(Trip)],
                         tool_choice={"type": "function", "function": {"name": "Trip"}},
                         seed=2)
    [call] = client.chat.completions.parse(**options).choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments,
                      Trip) and 1 <= call.function.parsed_arguments.days <= 9
    with client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion().choices[0].message.tool_calls
    assert final[0].function.parsed_arguments == call.function.parsed_arguments


# What the model goes on with after a few of the same.
CALL = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>\n'


def strict(tool):
    return {"type": "function", "function": tool["function"] | {"strict": True}}


def test_calls_of_strict_tools_are_held_once_they_begin(client):
    # Without `strict` the call that the model repeats is none of the tools'; with it only a call of
    # them can follow the mark.
    said = [{"role": "user", "content": CALL % ("get_stars", '{"city": "Rome"}') * 8}]
    [free] = ask(client, messages=said, temperature=0, parallel_tool_calls=False, stop=["\n"])
    assert free.message.tool_calls[0].function.name == "get_stars"
    [held] = ask(client,
                 messages=said,
                 temperature=0,
                 parallel_tool_calls=False,
                 tools=[strict(tool) for tool in TOOLS])
    assert held.message.tool_calls and all(good(call) for call in held.message.tool_calls)
    # One strict tool is enough for the form; the arguments of another are held where they can be.
    odd = {
        "type": "function", "function": {
            "name": "get_stars", "parameters": {"type": "object",
                                                "properties": {"a": {"not": {}}}}}}
    [other] = ask(client,
                  messages=said,
                  temperature=0,
                  parallel_tool_calls=False,
                  tools=[strict(TOOLS[0]), odd])
    assert json.loads(other.message.tool_calls[0].function.arguments) == {"city": "Rome"}


@pytest.mark.parametrize("form", ["hermes", "llama", "python", "named"])
def test_free_text_stays_possible_beside_strict_tools(client, form):
    for choice in ask(client,
                      form,
                      tools=[strict(tool) for tool in TOOLS],
                      n=3,
                      seed=1,
                      max_tokens=30):
        assert choice.message.content or choice.message.tool_calls
        assert all(good(call) for call in choice.message.tool_calls or [])


def test_only_allowed_tools_are_called(client):
    said = [{"role": "user", "content": CALL % ("get_weather", '{"city": "Oslo", "days": 2}') * 8}]
    allowed = {
        "type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]}}
    [choice] = ask(client,
                   messages=said,
                   temperature=0,
                   parallel_tool_calls=False,
                   tool_choice=allowed)
    assert [call.function.name for call in choice.message.tool_calls] == ["get_time"] and good(
        choice.message.tool_calls[0])
    allowed["allowed_tools"]["mode"] = "required"
    for choice in ask(client, tool_choice=allowed, parallel_tool_calls=False, n=3, seed=8):
        assert [call.function.name for call in choice.message.tool_calls] == [
            "get_time"] and choice.finish_reason == "tool_calls"


def test_a_shape_beside_tools_is_the_form_of_an_answer_without_calls(client):
    shape = {
        "type": "json_schema", "json_schema": {
            "name": "s", "schema": {
                "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                "additionalProperties": False}}}
    for form in ("hermes", "llama"):
        for choice in ask(client, form, response_format=shape, n=4, seed=4):
            if choice.message.tool_calls:
                assert all(good(call) for call in choice.message.tool_calls)
            elif choice.finish_reason == "stop":
                assert json.loads(choice.message.content) in ({"ok": True}, {"ok": False})
    # Calls that are forced leave no answer that could have the shape.
    [choice] = ask(client, response_format=shape, tool_choice=NAMED, seed=4)
    assert good(choice.message.tool_calls[0])


def test_tools_that_are_only_shown_leave_the_answer_to_its_shape(client):
    [choice] = ask(client,
                   tool_choice="none",
                   extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert choice.message.content in ("yes", "no") and not choice.message.tool_calls


def test_lines_of_a_batch_have_calls(server):
    body = {
        key: value
        for key, value in options_of(tool_choice="required", parallel_tool_calls=False,
                                     seed=9).items()
        if key != "extra_body"}
    lines = [{
        "custom_id": form, "method": "POST", "url": "/v1/chat/completions",
        "body": body | {"chat_template": template(form)}} for form in FORMS]
    output, errors = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
    assert sorted(line["custom_id"] for line in output) == sorted(FORMS)
    for line in output:
        [choice] = line["response"]["body"]["choices"]
        [call] = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls" and good(
            openai.types.chat.ChatCompletionMessageFunctionToolCall(**call))
    assert errors == []


@pytest.mark.parametrize("field, options", [("tool_choice", {"tool_choice": "required"}),
                                            ("tools", {"strict": True})],
                         ids=["forced", "strict"])
def test_a_batch_with_arguments_that_cannot_be_held_is_refused_with_the_line(
        server, field, options):
    tools = [{
        "type": "function", "function": {
            "name": "f", "parameters": {"properties": {"n": {"not": {}}}}, **{
                k: v
                for k, v in options.items() if k == "strict"}}}]
    body = {
        "model": "smollm2", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4,
        "chat_template": template("hermes")}
    held = body | {"tools": tools} | {k: v for k, v in options.items() if k == "tool_choice"}
    lines = [{"custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions", "body": one}
             for i, one in enumerate([body, held])]
    batch = server.wait(server.create(support.jsonl(lines))["id"])
    assert batch["status"] == "failed"
    [error] = batch["errors"]["data"]
    assert (error["code"], error["line"], error["param"]) == ("invalid_value", 2, f"body.{field}")
    assert "tools[0].function.parameters: $.properties.n" in error["message"]


@pytest.mark.parametrize("form, options, param, words", [
    ("hermes", {"tool_choice": "maybe"}, "tool_choice", "'maybe'"),
    ("hermes", {"tool_choice": {"type": "function", "function": {"name": "other"}}
                }, "tool_choice", "none of 'tools' has this name"),
    ("hermes", {"tool_choice": {"type": "custom", "custom": {"name": "get_time"}}
                }, "tool_choice.type", "'custom'"),
    ("hermes", {"tools": [], "tool_choice": "required"}, "tools", "empty array"),
    ("hermes", {
        "tool_choice": "required", "tools": [{
            "type": "function", "function": {
                "name": "f", "parameters": {"properties": {"a": {"not": {}}}}}}]}, "tool_choice",
     "tools[0].function.parameters: $.properties.a: the keyword 'not' is not supported"),
    ("hermes", {
        "tools": [
            TOOLS[0], {
                "type": "function", "function": {
                    "name": "f", "strict": True, "parameters": {"properties": {"a": {"not": {}}}}}}]
    }, "tools", "tools[1].function.parameters: $.properties.a"),
    ("plain", {"tools": [strict(TOOLS[0])]}, "tools", "force one"), ],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_held_is_refused_by_name(client, form, options, param, words):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, form, **options)
    assert caught.value.param == param and words in str(caught.value)


@pytest.mark.parametrize("template", [
    "{{ messages[0].content }}{% if tools %}<tool_call>{% endif %}",
    "Hi{% if tools and messages[0].role == 'system' %}{{ tools }}<tool_call>{% endif %}",
    "deepseek-ai-DeepSeek-V3.1.jinja"], ids=["none", "another chat", "DeepSeek V3.1"])
def test_tools_that_no_prompt_shows_are_refused(client, template):
    if template.endswith(".jinja"):
        source = support.SHARED / "templates" / template
        if not source.exists():
            pytest.skip("the shared templates are not here")
        template = source.read_text()
    for options in ({}, {"tool_choice": "required"}):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, extra_body={"chat_template": template}, **options)
        assert caught.value.param == "tools" and "chat template" in str(caught.value)
    assert ask(client, extra_body={"chat_template": template}, tool_choice="none", max_tokens=2)


def test_marks_that_are_control_tokens_are_written_as_such(tmp_path):
    """Tiny Qwen3 with Mistral's marks as control tokens, which no text can spell: random weights,
    yet every call is whole."""
    source = support.SHARED / "tiny/qwen3"
    if not source.exists():
        pytest.skip("the shared tiny families are not here")
    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(
            text.replace("</think>", "[ARGS]").replace("<think>", "[TOOL_CALLS]"))
    with support.serving(tmp_path / "state", "--model", f"tiny={folder}",
                         "--trust-request-chat-template") as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        mark = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        [mark] = [token["id"] for token in mark if token["content"] == "[TOOL_CALLS]"]
        for form in ("mistral", "named"):
            answer = client.chat.completions.create(**options_of(
                form,
                model="tiny",
                tool_choice="required",
                parallel_tool_calls=False,
                n=3,
                seed=1,
                max_tokens=200,
                extra_body={"chat_template": template(form), "return_token_ids": True}))
            for choice in answer.choices:
                assert choice.finish_reason == "tool_calls" and good(
                    choice.message.tool_calls[0]) and choice.token_ids[0] == mark


def test_the_owner_may_name_the_form_of_calls(tmp_path):
    """With a template that shows tools and no form of calls; a named form is read and held as if
    the template had told it."""
    plain = tmp_path / "plain.jinja"
    plain.write_text(template("plain"))
    with support.serving(tmp_path / "state", "--model", "smollm2", "--chat-template", plain,
                         "--tool-call-parser", "phi4_mini_json") as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        options = options_of(tools=[strict(tool) for tool in TOOLS],
                             tool_choice="required",
                             parallel_tool_calls=False,
                             seed=1)
        options["extra_body"] = {"return_token_ids": True}
        answer = client.chat.completions.create(**options)
        assert good(answer.choices[0].message.tool_calls[0])
        raw = server.json("POST", "/detokenize",
                          {"model": "smollm2", "tokens": answer.choices[0].token_ids})["prompt"]
        assert raw.startswith("functools[")

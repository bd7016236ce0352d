# SPDX-License-Identifier: Apache-2.0
"""Every member of the newest types of OpenAI's and Anthropic's libraries is mapped, ignored for a
reason, or refused by name: tables that the installed types are held against, and requests that hold
the tables against the server."""
import importlib, inspect, typing

import pytest

import support

HELD = {"type": "function", "name": "f", "parameters": {}}
# Members of POST /v1/responses: a value that is taken, and why one that changes nothing may.
MAPPED = {
    "background": False, "include": [], "input": "x", "instructions": "x", "max_output_tokens": 9,
    "metadata": {}, "model": None, "parallel_tool_calls": True, "reasoning": {"effort": "low"},
    "service_tier": "auto", "stream": False, "temperature": 1, "text": {}, "tool_choice": "auto",
    "tools": [], "top_logprobs": 0, "top_p": 1, "user": "x"}
IGNORED = {
    "access_programs": "of OpenAI's own models", "background_options": "only of `background`",
    "context_management": "nothing is compacted", "image": "no images",
    "max_tool_calls": "only of hosted tools", "moderation": "no moderation",
    "prompt_cache_key": "every prefix is kept", "prompt_cache_options": "every prefix is kept",
    "prompt_cache_retention": "every prefix is kept", "safety_identifier": "for a hosted service",
    "store": "nothing is kept, and the answer says so", "stream_options": "nothing is obfuscated",
    "truncation": "nothing is cut, and the answer says so"}
REFUSED = {"conversation": "conv_1", "previous_response_id": "resp_1", "prompt": {"id": "p"}}

# Types of the parts of a request, each as the discriminator `type`.
ITEMS_TAKEN = {"message", "function_call", "function_call_output", "reasoning"}
TOOLS_TAKEN = {"function"}
PARTS_TAKEN = {"input_text", "output_text", "text", "refusal"}

# Members of POST /v1/messages.
MESSAGES = {
    "mapped": {
        "max_tokens", "messages", "model", "output_config", "stop_sequences", "stream", "system",
        "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p"},
    "refused": {"container"}, "ignored": {
        "cache_control", "diagnostics", "inference_geo", "metadata", "service_tier", "speed",
        "user_profile_id", "workspace_id"}}
BLOCKS_TAKEN = {
    "text", "search_result", "thinking", "redacted_thinking", "tool_use", "tool_result"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(tmp_path_factory.mktemp("types") / "state", "--model", "m=echo") as server:
        yield server


def members(*types):
    found = set()
    for each in types:
        found |= set(typing.get_type_hints(each))
    return found


def kinds(union):
    """The values that `type` may have in the alternatives of a union."""
    found = set()
    for each in typing.get_args(union):
        origin = typing.get_origin(each)
        if origin is not None and not inspect.isclass(each):
            found |= kinds(each)
        elif inspect.isclass(each):
            hint = typing.get_type_hints(each).get("type")
            found |= set(literals(hint))
    return found


def literals(hint):
    for each in typing.get_args(hint):
        if isinstance(each, str):
            yield each
        elif each is not type(None):
            yield from literals(each)


def ask(server, **more):
    return server.call("POST", "/v1/responses", {"model": "m", "input": "x", **more})


def test_each_member_of_a_response_is_known():
    types = pytest.importorskip("openai.types.responses.response_create_params")
    known = {*MAPPED, *IGNORED, *REFUSED}
    found = members(types.ResponseCreateParamsBase, types.ResponseCreateParamsStreaming)
    assert found - known == set(), "neither mapped nor ignored nor refused"


def test_each_member_does_what_its_table_says(server):
    for name, value in MAPPED.items():
        if value is not None:
            assert ask(server, **{name: value})[0] == 200, name
    for name in IGNORED:
        if name not in ("store", "truncation"):
            assert ask(server, **{name: {"any": ["thing"]}})[0] == 200, name
    for name, value in REFUSED.items():
        status, data = ask(server, **{name: value})
        assert status == 400 and f'"{name}"'.encode() in data, data


def test_each_type_of_a_response_is_taken_or_refused_by_name(server):
    pytest.importorskip("openai.types.responses")
    module = importlib.import_module
    tools = kinds(module("openai.types.responses.tool_param").ToolParam)
    items = kinds(module("openai.types.responses.response_input_item_param").ResponseInputItemParam)
    assert TOOLS_TAKEN <= tools and len(tools) > 5 and ITEMS_TAKEN <= items and len(items) > 10
    for kind in tools - TOOLS_TAKEN:
        status, data = ask(server, tools=[{"type": kind, "name": "f"}])
        assert status == 400 and kind.encode() in data and b"tools[0].type" in data, (kind, data)
    for kind in items - ITEMS_TAKEN:
        status, data = ask(server, input=[{"type": kind, "id": "x"}])
        assert status == 400 and kind.encode() in data and b"input[0].type" in data, (kind, data)
    parts = module("openai.types.responses.response_input_content_param").ResponseInputContentParam
    for kind in kinds(parts) - PARTS_TAKEN:
        status, data = ask(server, input=[{"role": "user", "content": [{"type": kind}]}])
        assert status == 400 and kind.encode() in data, (kind, data)


def test_each_member_of_a_message_is_known(server):
    types = pytest.importorskip("anthropic.types.message_create_params")
    found = members(types.MessageCreateParamsBase, types.MessageCreateParamsStreaming)
    assert found - set().union(*MESSAGES.values()) == set(), "neither mapped nor ignored nor refused"
    blocks = kinds(importlib.import_module("anthropic.types.content_block_param").ContentBlockParam)
    assert BLOCKS_TAKEN <= blocks
    for kind in blocks - BLOCKS_TAKEN:
        status, data = server.call(
            "POST", "/v1/messages", {
                "model": "m", "max_tokens": 1,
                "messages": [{"role": "user", "content": [{"type": kind}]}]})
        assert status == 400 and kind.encode() in data, (kind, data)

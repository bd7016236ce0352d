# SPDX-License-Identifier: Apache-2.0
"""Every member of the newest types of Ollama's library, and of every answer of Ollama's,
Anthropic's and OpenAI's, is held against tables: mapped, ignored for a reason, refused by name, or
absent for a reason. A row that no type has any more fails as well."""
import importlib, json, typing

import pytest

import support

ASKED = [{"role": "user", "content": "x"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(tmp_path_factory.mktemp("types") / "state", "--model", "m=echo") as server:
        yield server


def types_of(name):
    return pytest.importorskip(name)


def members(model):
    """The names on the wire of a type of pydantic."""
    return {field.alias or name for name, field in model.model_fields.items()}


# --- what Ollama's clients ask ---

WRONG = {"any": 1}  # no member is of this kind but a schema
IMAGES = "only of models that draw"
TUNES = "tunes another engine's memory, threads or steps"
# request: (route, mapped, {ignored: why}, {refused: a value})
REQUESTS = {
    "ChatRequest": (
        "/api/chat", {
            "model", "messages", "stream", "format", "options", "keep_alive", "tools", "think",
            "logprobs", "top_logprobs"}, {}, {}),
    "GenerateRequest": (
        "/api/generate", {
            "model", "prompt", "system", "stream", "raw", "format", "options", "keep_alive",
            "think", "logprobs", "top_logprobs"}, {
                "width": IMAGES, "height": IMAGES, "steps": IMAGES}, {
                    "suffix": "x", "template": "x", "context": [1], "images": ["aGk="]}),
    "EmbedRequest": ("/api/embed", {
        "model", "input", "keep_alive", "dimensions", "truncate", "options"}, {}, {}),
    "EmbeddingsRequest": ("/api/embeddings", {"model", "prompt", "keep_alive", "options"}, {}, {}),
    "ShowRequest": ("/api/show", {"model"}, {}, {}),
    "CopyRequest": ("/api/copy", {"source", "destination"}, {}, {}),
    "DeleteRequest": ("/api/delete", {"model"}, {}, {}),
    "PullRequest": ("/api/pull", {"model", "stream"}, {"insecure": "an address is no client's"},
                    {})}
OPTIONS = {
    "mapped": {
        "frequency_penalty", "num_predict", "presence_penalty", "repeat_penalty", "seed", "stop",
        "temperature", "top_k", "top_p"}, "ignored": {
            "embedding_only": TUNES, "f16_kv": TUNES, "logits_all": TUNES, "low_vram": TUNES,
            "main_gpu": TUNES, "mirostat": TUNES, "mirostat_eta": TUNES, "mirostat_tau": TUNES,
            "num_batch": TUNES, "num_ctx": "nothing is cut", "num_gpu": TUNES, "num_keep": TUNES,
            "num_thread": TUNES, "numa": TUNES, "penalize_newline": TUNES, "repeat_last_n": TUNES,
            "tfs_z": TUNES, "use_mlock": TUNES, "use_mmap": TUNES, "vocab_only": TUNES},
    "refused": {"typical_p": 0.5}}
MESSAGE = {"role", "content", "thinking", "tool_calls", "tool_name", "images"}
GOOD = {
    "/api/chat": {"messages": ASKED}, "/api/generate": {"prompt": "x"}, "/api/embed": {
        "input": "x"}, "/api/embeddings": {"prompt": "x"}}


def ask(server, route, **more):
    body = {"model": "m", **GOOD[route], "stream": False, **more}
    return server.call("POST", route, body)


@pytest.mark.parametrize("name", REQUESTS)
def test_each_member_of_a_request_of_ollama_is_known(name):
    _, mapped, ignored, refused = REQUESTS[name]
    assert members(getattr(types_of("ollama._types"), name)) == {*mapped, *ignored, *refused}


def test_each_option_and_member_of_a_message_of_ollama_is_known():
    types = types_of("ollama._types")
    assert members(types.Options) == {
        *OPTIONS["mapped"], *OPTIONS["ignored"], *OPTIONS["refused"]}
    assert members(types.Message) == MESSAGE


@pytest.mark.parametrize("name", [n for n, row in REQUESTS.items() if row[0] in GOOD])
def test_each_member_of_a_request_of_ollama_does_what_its_table_says(server, name):
    route, mapped, ignored, refused = REQUESTS[name]
    for member in mapped - {"format", "options"}:
        status, data = ask(server, route, **{member: WRONG})
        assert status == 400 and isinstance(json.loads(data)["error"], str), (member, data)
    for member in ignored:
        assert ask(server, route, **{member: WRONG})[0] == 200, member
    for member, value in refused.items():
        status, data = ask(server, route, **{member: value})
        assert status == 400 and (member.encode() in data or b"insert" in data), (member, data)


@pytest.mark.parametrize("route", ("/api/chat", "/api/generate"))
def test_each_option_of_ollama_does_what_its_table_says(server, route):
    for option in OPTIONS["mapped"]:
        status, data = ask(server, route, options={option: WRONG})
        assert status == 400 and option.encode() in data, (option, data)
    for option in OPTIONS["ignored"]:
        assert ask(server, route, options={option: 1})[0] == 200, option
    for option, value in OPTIONS["refused"].items():
        status, data = ask(server, route, options={option: value})
        assert status == 400 and option.encode() in data, (option, data)


@pytest.mark.parametrize("route", (
    "/api/create", "/api/push", "/api/blobs/sha256:" + "0" * 64, "/api/me", "/api/signout",
    "/api/web_search", "/api/web_fetch"))
def test_what_another_service_does_is_refused_in_a_sentence(server, route):
    status, data = server.call("POST", route, {"model": "x"})
    assert status == 501 and "not supported by this server" in json.loads(data)["error"]
    assert server.json("GET", "/api/status") == {"cloud": {"disabled": True, "source": "env"}}


# --- what is answered ---

DREW, HOSTED = "only of models that draw", "of a hosted service"
NOT_ASKED, FILLED = "only if it is asked for", "only if the model gives one"
TOOLS = "only of hosted tools"
# answer: {a member that it has not: why}
ABSENT = {
    "ollama._types": {
        "ChatResponse": {"logprobs": NOT_ASKED}, "GenerateResponse": {
            "completed": DREW, "total": DREW, "image": DREW, "context": "nothing is kept",
            "logprobs": NOT_ASKED, "thinking": FILLED}, "EmbedResponse": {
                name: "Ollama sends none, either" for name in (
                    "created_at", "done", "done_reason", "eval_count", "eval_duration",
                    "prompt_eval_duration")}, "EmbeddingsResponse": {}, "ShowResponse": {},
        "ListResponse.Model": {}, "ProcessResponse.Model": {}},
    "anthropic.types": {
        "Message": {"container": TOOLS, "diagnostics": HOSTED, "stop_details": HOSTED}, "Usage": {
            "cache_creation": HOSTED, "inference_geo": HOSTED, "output_tokens_details": HOSTED,
            "server_tool_use": TOOLS, "speed": HOSTED}, "TextBlock": {
                "citations": "no documents are taken"}, "ModelInfo": {
                    "deprecated_at": HOSTED, "line": HOSTED, "max_tokens": "the context bounds it",
                    "retires_at": HOSTED}},
    "anthropic.types.messages": {"MessageBatch": {}, "MessageBatchRequestCounts": {},
                                 "DeletedMessageBatch": {}},
    "openai.types.responses": {
        "Response": {
            "access_programs": HOSTED, "conversation": "nothing is kept", "image": "no images",
            "input_transformations": HOSTED, "moderation": HOSTED, "prompt": "nothing is kept",
            "prompt_cache_diagnostics": HOSTED, "prompt_cache_options": HOSTED,
            "prompt_cache_retention": HOSTED, "tool_usage": TOOLS}, "ResponseUsage": {},
        "ResponseOutputMessage": {"phase": HOSTED}}}


def answers(server):
    """(type, answer) of each kind."""
    options = {"num_predict": 1}
    yield "ChatResponse", json.loads(ask(server, "/api/chat", options=options)[1])
    yield "GenerateResponse", json.loads(ask(server, "/api/generate", options=options)[1])
    yield "EmbedResponse", json.loads(ask(server, "/api/embed")[1])
    yield "EmbeddingsResponse", json.loads(ask(server, "/api/embeddings")[1])
    yield "ShowResponse", server.json("POST", "/api/show", {"model": "m"})
    yield "ListResponse.Model", server.json("GET", "/api/tags")["models"][0]
    yield "ProcessResponse.Model", server.json("GET", "/api/ps")["models"][0]
    asked = {"model": "m", "max_tokens": 4, "messages": ASKED}
    message = server.json("POST", "/v1/messages", asked)
    yield from (("Message", message), ("Usage", message["usage"]), ("TextBlock",
                                                                    message["content"][0]))
    yield "ModelInfo", server.json("GET", "/v1/models/m")
    batch = server.json("POST", "/v1/messages/batches", {
        "requests": [{"custom_id": "a", "params": asked}]})
    yield from (("MessageBatch", batch), ("MessageBatchRequestCounts", batch["request_counts"]))
    place = f"/v1/messages/batches/{batch['id']}"
    support.until(lambda: server.json("GET", place)["processing_status"] == "ended")
    yield "DeletedMessageBatch", server.json("DELETE", place)
    response = server.json("POST", "/v1/responses", {"model": "m", "input": "x"})
    yield from (("Response", response), ("ResponseUsage", response["usage"]),
                ("ResponseOutputMessage", response["output"][0]))


def test_each_member_of_an_answer_is_there_or_absent_for_a_reason(server):
    rows = {name: (module, absent) for module, types in ABSENT.items()
            for name, absent in types.items()}
    seen = set()
    for name, answer in answers(server):
        module, absent = rows[name]
        found = importlib.import_module(module) if types_of(module) else None
        for part in name.split("."):
            found = getattr(found, part)
        assert members(found) - set(answer) == set(absent), name
        seen.add(name)
    assert seen == set(rows)


# --- what Anthropic's clients ask besides the request itself (test_dialect_types.py) ---

PARTS = {
    "TextBlockParam": {"text", "type", "cache_control", "citations"},
    "ToolUseBlockParam": {"id", "input", "name", "type", "cache_control", "caller",
                          "toolset_name"},
    "ToolResultBlockParam": {"content", "is_error", "tool_use_id", "type", "cache_control",
                             "toolset_name"},
    "ThinkingBlockParam": {"signature", "thinking", "type"},
    "ToolParam": {"description", "input_schema", "name", "strict", "type", "allowed_callers",
                  "cache_control", "defer_loading", "eager_input_streaming", "input_examples"},
    "OutputConfigParam": {"effort", "format"}}
THINKING = {"enabled", "disabled", "between_tools", "adaptive"}
CHOICES = {"auto", "any", "tool", "none"}
COUNTED = {"cache_control", "messages", "model", "output_config", "speed", "system", "thinking",
           "tool_choice", "tools", "user_profile_id", "workspace_id"}


def kind_of(param):
    return typing.get_args(typing.get_args(typing.get_type_hints(param, include_extras=True)[
        "type"])[0])[0]


def test_each_member_of_the_parts_of_a_message_is_known():
    types = types_of("anthropic.types")
    for name, known in PARTS.items():
        assert set(typing.get_type_hints(getattr(types, name))) == known, name
    assert {kind_of(each) for each in typing.get_args(types.ThinkingConfigParam)} == THINKING
    assert {kind_of(each) for each in typing.get_args(types.ToolChoiceParam)} == CHOICES
    assert set(typing.get_type_hints(types.MessageCountTokensParams)) == COUNTED
    batches = types_of("anthropic.types.messages.batch_create_params")
    assert set(typing.get_type_hints(batches.Request)) == {"custom_id", "params"}
    assert set(typing.get_type_hints(batches.BatchCreateParams)) == {
        "requests", "user_profile_id", "workspace_id"}


def test_each_kind_of_thinking_choice_and_tool_is_taken_or_refused_by_name(server):
    types = types_of("anthropic.types")
    asked = {"model": "m", "max_tokens": 2000, "messages": ASKED}
    for kind in THINKING:
        more = {"budget_tokens": 1024} if kind == "enabled" else {}
        status, data = server.call("POST", "/v1/messages", {
            **asked, "thinking": {"type": kind, **more}})
        assert status == 200, (kind, data)
    tool = {"name": "f", "input_schema": {"type": "object"}}
    for kind in CHOICES - {"tool", "any"}:
        status, data = server.call("POST", "/v1/messages", {
            **asked, "tools": [tool], "tool_choice": {"type": kind}})
        assert status == 200 or b"tool" in data, (kind, data)
    hosted = [each for each in typing.get_args(types.ToolUnionParam) if each is not types.ToolParam]
    assert len(hosted) > 10
    for each in hosted:
        kind = kind_of(each)
        status, data = server.call("POST", "/v1/messages", {
            **asked, "tools": [{"type": kind, "name": "x"}]})
        assert status == 400 and kind.encode() in data, (kind, data)

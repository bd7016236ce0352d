# SPDX-License-Identifier: Apache-2.0
"""Cases 117 to 140: chat completions, completions and models, on the default model."""
import concurrent.futures, contextlib, json, math, os, signal, socket
from typing import Literal

import openai
import pydantic
import pytest

import support
from cases import CHAT, line, metric, plain, poll, post, refused


def ask(client, text="Name three colours.", **options):
    options = {
        "model": "smollm2", "max_tokens": 16, "temperature": 0, "messages": [{
            "role": "user", "content": text}], **options}
    extra = {key: options.pop(key) for key in list(options) if key in EXTRAS}
    return client.chat.completions.create(**options, extra_body=extra or None)


EXTRAS = ("ignore_eos", "guided_json", "priority", "stop_token_ids", "echo")


def text_of(answer):
    return answer.choices[0].message.content


def test_case_117_several_choices(model):
    """n=3: indices 0 to 2."""
    answer = ask(model, n=3, temperature=1)
    assert [choice.index
            for choice in answer.choices] == [0, 1, 2] and all(choice.message.content
                                                               for choice in answer.choices)
    assert answer.usage.completion_tokens <= 48


def test_case_118_stop_texts(model):
    """A stop text across tokens: the text ends before it, in streams too, finish_reason stop."""
    whole = text_of(ask(model, max_tokens=40))
    stop = whole[len(whole) // 2 - 3:len(whole) // 2 + 3]
    wanted = whole[:whole.index(stop)]
    answer = ask(model, max_tokens=40, stop=[stop])
    assert (text_of(answer), answer.choices[0].finish_reason) == (wanted, "stop")
    chunks = list(ask(model, max_tokens=40, stop=[stop], stream=True))
    assert "".join(
        choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == wanted
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"


def test_case_119_too_many_stops(model):
    """Five stop texts, or an empty one: 400 that names stop."""
    for stop in (list("abcde"), [""], ""):
        assert refused(400, ask, model, stop=stop).param.startswith("stop")


def test_case_120_one_token(model):
    """max_tokens 1: finish_reason length, one completion token."""
    answer = ask(model, max_tokens=1)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 1)


def test_case_121_both_maxima(model):
    """max_tokens and max_completion_tokens: the latter wins."""
    for one, other in ((5, 2), (2, 5)):
        assert ask(model, max_tokens=one,
                   max_completion_tokens=other).usage.completion_tokens == other


def test_case_122_ranges(model):
    """temperature 2.1 or -1, top_p 1.1, n 0, penalties of 3: 400 with the param."""
    for name, value in (("temperature", 2.1), ("temperature", -1), ("top_p", 1.1), ("n", 0),
                        ("n", 129), ("presence_penalty", 3), ("frequency_penalty",
                                                              -2.1), ("max_tokens", 0)):
        error = refused(400, ask, model, **{name: value})
        assert error.param == name and name in str(error) and error.code.endswith("_value")


def test_case_123_logprobs(model):
    """logprobs with top_logprobs 2: at least two entries a token, bytes that decode to it, values
    at most 0, no NaN."""
    answer = ask(model, logprobs=True, top_logprobs=2)
    for entry in answer.choices[0].logprobs.content:
        assert len(entry.top_logprobs) >= 2 and entry.logprob <= 0 and math.isfinite(entry.logprob)
        assert bytes(entry.bytes).decode(errors="replace") == entry.token
        assert [top.logprob for top in entry.top_logprobs] == sorted(
            (top.logprob for top in entry.top_logprobs), reverse=True)
    assert bytes(sum((entry.bytes for entry in answer.choices[0].logprobs.content),
                     [])).decode() == text_of(answer)


def test_case_124_top_logprobs_alone(model):
    """top_logprobs without logprobs: 400."""
    assert refused(400, ask, model, top_logprobs=2).param == "top_logprobs"


def test_case_125_seeds(model):
    """The same seed twice, alone and under load: the same text."""
    def sampled(i):
        return text_of(ask(model, seed=7, temperature=1, max_tokens=24))
    alone = sampled(0)
    assert sampled(0) == alone
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        others = [
            pool.submit(ask, model, f"Count to {i}.", temperature=1, max_tokens=24)
            for i in range(6)]
        assert set(pool.map(sampled, range(3))) == {alone}
        assert all(text_of(other.result()) for other in others)


def test_case_126_json_objects(model):
    """response_format json_object: the content parses."""
    answer = ask(model,
                 "A JSON object, please.",
                 max_tokens=200,
                 response_format={"type": "json_object"})
    assert answer.choices[0].finish_reason == "length" or isinstance(json.loads(text_of(answer)),
                                                                     dict)


def test_case_127_typed_objects(model):
    """The SDK's parse() with a model class gives an object of it."""
    class Colour(pydantic.BaseModel):
        name: Literal["red", "green", "blue"]

    answer = model.chat.completions.parse(model="smollm2",
                                          messages=[{"role": "user", "content": "A colour."}],
                                          response_format=Colour,
                                          max_tokens=200)
    assert answer.choices[0].message.parsed.name in ("red", "green", "blue")


def test_case_128_a_schema_without_a_body(model):
    """json_schema without its schema: 400."""
    assert "json_schema" in refused(400, ask, model, response_format={"type": "json_schema"}).param


def test_case_129_guided_json(model):
    """guided_json: constrained or 400, never free text."""
    schema = {
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": False}
    assert isinstance(json.loads(text_of(ask(model, guided_json=schema, max_tokens=100)))["a"], int)


def test_case_130_streams_with_usage(model, real):
    """include_usage: the last chunk has usage and no choices, the others usage null, then [DONE];
    the text is that of the plain answer."""
    body = {
        "model": "smollm2", "messages": [{"role": "user", "content": "Name three colours."}],
        "temperature": 0, "max_tokens": 16, "stream": True, "stream_options": {
            "include_usage": True}}
    status, headers, data = plain(real, "POST", CHAT, json.dumps(body),
                                  {"Content-Type": "application/json"})
    assert status == 200 and headers["content-type"].startswith(
        "text/event-stream") and headers["cache-control"] == "no-cache, no-store"
    events = [event for event in data.decode().split("\n\n") if event and not event.startswith(":")]
    assert all(event.startswith("data: ") for event in events) and events[-1] == "data: [DONE]"
    chunks = [json.loads(event[6:]) for event in events[:-1]]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] > 0
    assert all(chunk["usage"] is None
               for chunk in chunks[:-1]) and len({chunk["id"]
                                                  for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == text_of(ask(model))


def test_case_131_an_error_in_the_middle_of_a_stream(client):
    """The engine fails after the first text: the SDK raises APIError; there is no [DONE]."""
    stream = ask(client, "some text", stream=True, echo={"status": 500})
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.body["message"]


def test_case_132_a_client_that_leaves(model, real):
    """The client goes away in its stream: the sequence ends and its blocks are free, long before
    its tokens are through."""
    generated = lambda: metric(real, 'quern_engine_generated_tokens_total{engine="0"}')
    before, cancelled = generated(), metric(
        real, 'quern_requests_total{endpoint="chat",outcome="cancelled"}')
    for _ in range(3):
        stream = ask(model, stream=True, max_tokens=4000, ignore_eos=True)
        next(iter(stream))
        stream.close()
    poll(lambda: metric(real, 'quern_requests_total{endpoint="chat",outcome="cancelled"}') ==
         cancelled + 3)
    # An engine reports once a second: first that they were there, and then that they are gone.
    poll(lambda: generated() > before and metric(real, 'quern_engine_running{engine="0"}') == 0)
    assert generated() - before < 3 * 2000


def test_case_133_cached_tokens(model):
    """The second time a long prompt has cached tokens, at most all of it; the first time none."""
    prompt = "The lighthouse keeper counted ships. " * 30
    first, second = ask(model, prompt, max_tokens=2).usage, ask(model, prompt, max_tokens=2).usage
    # the template's own words may be there already
    assert first.prompt_tokens_details.cached_tokens < 48
    cached = second.prompt_tokens_details.cached_tokens
    assert first.prompt_tokens // 2 < cached <= second.prompt_tokens


def test_case_134_service_tiers(model, echo, client):
    """service_tier flex is echoed, and default where none is asked for; under overload flex gets
    429 resource_unavailable, others go on."""
    assert ask(model, service_tier="flex", max_tokens=2).service_tier == "flex"
    assert ask(model, max_tokens=2).service_tier == "default"
    body = json.dumps({
        "model": "smollm2", "messages": [{"role": "user", "content": "x"}],
        "echo": {"hang": True}}).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(512):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", echo.port)))
            held.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body) + body)
        poll(lambda: metric(echo, "quern_requests_inflight") >= 512)
        error = refused(429, ask, client, service_tier="flex")
        assert (error.code,
                error.type) == ("resource_unavailable",
                                "rate_limit_exceeded") and error.response.headers["retry-after"]
        assert ask(client).service_tier == "default"
    poll(lambda: metric(echo, "quern_requests_inflight") == 0)
    assert ask(client, service_tier="flex").service_tier == "flex"


@pytest.mark.model
def test_case_135_priorities(tmp_path):
    """A request of priority -1 behind many of 0, of which a dozen run at once, is answered before
    the last of them."""
    with support.serving(tmp_path / "state", "--model", "smollm2", "--max-num-seqs", "1") as server:
        client, order = openai.OpenAI(base_url=server.url,
                                      api_key="none",
                                      max_retries=0,
                                      timeout=300), []

        def one(name, **options):
            ask(client, f"Tell a story about {name}.", max_tokens=12, ignore_eos=True, **options)
            order.append(name)
        with concurrent.futures.ThreadPoolExecutor(41) as pool:
            os.kill(server.engine_pid(),
                    signal.SIGSTOP)  # none is answered until all have been sent
            waiting = [pool.submit(one, i) for i in range(40)]
            poll(lambda: metric(server, "quern_requests_inflight") == 40)
            waiting.append(pool.submit(one, "first", priority=-1))
            poll(lambda: metric(server, "quern_requests_inflight") == 41)
            os.kill(server.engine_pid(), signal.SIGCONT)
            for done in waiting:
                done.result()
        assert order.index("first") < 30, order  # without its priority it is the last


def test_case_136_unknown_models(model):
    """An unknown model: 404 model_not_found, streamed or not; of the list too."""
    for stream in (False, True):
        error = refused(404, ask, model, model="nope", stream=stream)
        assert (error.code, error.param) == ("model_not_found", "model") and "nope" in str(error)
    assert refused(404, model.completions.create, model="nope",
                   prompt="x").code == "model_not_found"
    assert refused(404, model.models.retrieve, "nope").code == "model_not_found"
    listed = model.models.list().data[0]
    assert (listed.id, listed.object) == ("smollm2",
                                          "model") and listed.max_model_len > 0 and listed.owned_by


def test_case_137_no_messages(model):
    """messages []: 400."""
    assert refused(400, ask, model, messages=[]).param == "messages"


def constrained(model, call, check):
    """Constrained output, or the clear refusal of an engine without grammars; never free text."""
    try:
        answer = call()
    except openai.BadRequestError as error:
        assert error.code == "unsupported_parameter" and error.param, error
    else:
        check(answer)


@pytest.mark.not_there_yet("tool_choice required needs a grammar: 400 unsupported_parameter")
def test_case_138_tools(model):
    """tools []: 400; tool_choice required: finish_reason tool_calls, arguments that parse."""
    assert refused(400, ask, model, tools=[]).param == "tools"
    tool = {
        "type": "function", "function": {
            "name": "look", "parameters": {
                "type": "object", "properties": {"at": {"type": "string"}}}}}

    def check(answer):
        assert answer.choices[0].finish_reason == "tool_calls"
        json.loads(answer.choices[0].message.tool_calls[0].function.arguments)

    constrained(
        model, lambda: ask(
            model, "Look at the sea.", tools=[tool], tool_choice="required", max_tokens=200), check)


def test_case_139_completions_of_two_prompts(model):
    """Two prompts with n=2: indices 0 to 3; 16 tokens unless said otherwise."""
    answer = model.completions.create(model="smollm2",
                                      prompt=["Once upon", "The sea"],
                                      n=2,
                                      extra_body={"ignore_eos": True})
    assert [choice.index
            for choice in answer.choices] == [0, 1, 2, 3] and answer.object == "text_completion"
    assert answer.usage.completion_tokens == 64


def test_case_140_stream_options_alone(model):
    """stream_options without stream: 400."""
    assert refused(400, ask, model,
                   stream_options={"include_usage": True}).param == "stream_options"

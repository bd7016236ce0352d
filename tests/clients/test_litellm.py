# SPDX-License-Identifier: Apache-2.0
"""LiteLLM's SDK, with its two providers for servers of this kind: chats, streams, tools,
embeddings, batches, errors and the tries after them; and its proxy in front of quern."""
import asyncio, json, os, pathlib, subprocess, sys, urllib.request

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # and no look at the web for prices
import litellm
import openai
import pytest

import support
from conftest import GRIND, LONG_TEXT, full_memory, is_grind, line, metric

PROVIDERS = ["hosted_vllm", "openai"]
litellm.suppress_debug_info = True


def where(server, **more):
    return {
        "api_base": server.url, "api_key": "none", "timeout": 300, "num_retries": 0,
        "max_retries": 0, **more}


def messages(text):
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_line_of_a_batch_has_the_answer_of_the_same_chat(tiny, tmp_path, provider):
    asked = {f"line-{i}": f"Tell me about the number {i}." for i in range(6)}
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([
            line(name, text, "tiny", max_tokens=8, temperature=0) for name, text in asked.items()]))
    there = {"custom_llm_provider": provider, "api_base": tiny.url, "api_key": "none"}
    with open(tmp_path / "in.jsonl", "rb") as file:
        made = litellm.create_file(file=file, purpose="batch", **there)
    batch = litellm.create_batch(completion_window="24h",
                                 endpoint="/v1/chat/completions",
                                 input_file_id=made.id,
                                 metadata={"job": "same"},
                                 **there)
    support.until(
        lambda: litellm.retrieve_batch(batch_id=batch.id, **there).status in support.TERMINAL, 300)
    batch = litellm.retrieve_batch(batch_id=batch.id, **there)
    assert (batch.status, batch.metadata, batch.request_counts.completed) == ("completed", {
        "job": "same"}, 6)
    output = [
        json.loads(text)
        for text in litellm.file_content(file_id=batch.output_file_id, **there).text.splitlines()]
    assert [entry["custom_id"] for entry in output] == list(asked)
    for entry in output:
        chat = litellm.completion(model=f"{provider}/tiny",
                                  messages=messages(asked[entry["custom_id"]]),
                                  max_tokens=8,
                                  temperature=0,
                                  **where(tiny))
        body = entry["response"]["body"]
        assert body["choices"][0]["message"]["content"] == chat.choices[0].message.content
        assert body["usage"]["total_tokens"] == chat.usage.total_tokens
    assert batch.id in [entry.id for entry in litellm.list_batches(**there).data]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_streamed_chat_is_the_same_as_a_whole_one(tiny, provider):
    asked = {
        "model": f"{provider}/tiny", "messages": messages("Once upon a time"), "max_tokens": 12,
        "temperature": 0, **where(tiny)}
    whole = litellm.completion(**asked)
    chunks = list(litellm.completion(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or ""
                   for chunk in chunks
                   if chunk.choices) == whole.choices[0].message.content
    built = litellm.stream_chunk_builder(chunks, messages=asked["messages"])
    assert built.choices[0].message.content == whole.choices[0].message.content and built.choices[
        0].finish_reason == whole.choices[0].finish_reason
    assert (built.usage.prompt_tokens,
            built.usage.completion_tokens) == (whole.usage.prompt_tokens,
                                               whole.usage.completion_tokens)


def test_an_asynchronous_stream(tiny):
    async def text():
        stream = await litellm.acompletion(model="hosted_vllm/tiny",
                                           messages=messages("Once"),
                                           max_tokens=8,
                                           temperature=0,
                                           stream=True,
                                           **where(tiny))
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    whole = litellm.completion(model="hosted_vllm/tiny",
                               messages=messages("Once"),
                               max_tokens=8,
                               temperature=0,
                               **where(tiny))
    assert asyncio.run(text()) == whole.choices[0].message.content


def test_text_completions_and_embeddings(tiny, echo):
    answer = litellm.text_completion(model="hosted_vllm/tiny",
                                     prompt="Once",
                                     max_tokens=5,
                                     temperature=0,
                                     **where(tiny))
    assert answer.usage.completion_tokens <= 5 and isinstance(answer.choices[0].text, str)
    embedded = litellm.embedding(model="hosted_vllm/gpt-4", input=["a", "b"], **where(echo))
    assert [entry["index"]
            for entry in embedded.data] == [0, 1] and embedded.usage.prompt_tokens > 0


def test_an_answer_held_to_a_schema(tiny):
    schema = {
        "type": "object", "properties": {
            "kind": {"enum": ["wheat", "rye"]}, "good": {"type": "boolean"}}, "required": [
                "kind", "good"], "additionalProperties": False}
    answer = litellm.completion(model="hosted_vllm/tiny",
                                messages=messages("Judge."),
                                max_tokens=200,
                                temperature=0,
                                **where(tiny),
                                response_format={
                                    "type": "json_schema", "json_schema": {
                                        "name": "verdict", "strict": True, "schema": schema}})
    verdict = json.loads(answer.choices[0].message.content)
    assert verdict["kind"] in ("wheat", "rye") and isinstance(verdict["good"], bool)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("choice",
                         ["required", {"type": "function", "function": {"name": "grind"}}])
def test_a_forced_call_of_a_tool_is_the_same_whole_and_streamed(tools, provider, choice):
    asked = {
        "model": f"{provider}/tiny", "messages": messages("Grind the wheat."), "max_tokens": 400,
        "temperature": 0, "tools": [GRIND], "tool_choice": choice, "parallel_tool_calls": False}
    whole = litellm.completion(**asked, **where(tools)).choices[0]
    streamed = litellm.stream_chunk_builder(
        list(litellm.completion(**asked, **where(tools), stream=True))).choices[0]
    assert whole.message.tool_calls and all(is_grind(call) for call in whole.message.tool_calls)
    assert [call.function.arguments for call in streamed.message.tool_calls] == [
        call.function.arguments for call in whole.message.tool_calls]
    # A named function ends with `stop`, of which LiteLLM makes `tool_calls` in a whole answer and
    # not in a stream.
    assert {whole.finish_reason, streamed.finish_reason} <= {"stop", "tool_calls"}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("asked, kind", [
    ({"max_tokens": -1}, litellm.BadRequestError), ({"model": "absent"}, litellm.NotFoundError),
    ({"messages": messages("long " * 2000)}, litellm.ContextWindowExceededError)])
def test_errors_have_the_class_that_the_sdk_names_for_them(tiny, provider, asked, kind):
    asked = {"model": "tiny", "messages": messages("x"), **asked}
    for stream in (False, True):
        with pytest.raises(kind):
            litellm.completion(**{**asked, "model": f"{provider}/{asked['model']}"},
                               stream=stream,
                               **where(tiny))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_wrong_key_is_an_authentication_error(keyed, provider):
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(model=f"{provider}/gpt-4",
                           messages=messages("x"),
                           **where(keyed, api_key="sk-wrong"))
    assert litellm.completion(model=f"{provider}/gpt-4",
                              messages=messages("x"),
                              **where(keyed, api_key="sk-right")).choices


def router(provider, server, key="none"):
    """LiteLLM's router, and so its proxy, waits as retry-after says; the plain calls try again at
    once."""
    return litellm.Router(model_list=[{
        "model_name": "m", "litellm_params": {
            "model": f"{provider}/gpt-4", "api_base": server.url, "api_key": key}}],
                          num_retries=4)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_too_many_requests_are_a_rate_limit_error_and_the_router_waits_as_told(counted, provider):
    server, key = counted
    with pytest.raises(litellm.RateLimitError):
        for _ in range(13):
            litellm.completion(model=f"{provider}/gpt-4",
                               messages=messages("x"),
                               **where(server, api_key=key))
    assert router(provider, server, key).completion("m", messages("x")).choices


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_full_server_is_asked_again_and_answers(small_memory, provider):
    with full_memory(small_memory):
        answer = router(provider, small_memory).completion("m", messages(LONG_TEXT))
    assert answer.choices[0].message.content == LONG_TEXT


PROXY = """model_list:
  - model_name: grain
    litellm_params: {{model: hosted_vllm/tiny, api_base: {url}, api_key: none}}
  - model_name: chaff
    litellm_params: {{model: hosted_vllm/absent, api_base: {url}, api_key: none}}
files_settings:
  - {{custom_llm_provider: openai, api_base: {url}, api_key: none}}
general_settings: {{master_key: sk-proxy}}
"""


@pytest.fixture(scope="module")
def proxy(tiny, tmp_path_factory):
    """The client of a LiteLLM proxy in front of `tiny`."""
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "config.yaml").write_text(PROXY.format(url=tiny.url))
    with support.reserved_port() as port, open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [
                pathlib.Path(sys.executable).with_name("litellm"), "--config", "config.yaml",
                "--host", "127.0.0.1", "--port",
                str(port)],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": tiny.url})

        def is_up():
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness",
                                              timeout=60).status == 200
            except OSError:
                return False
        try:
            support.until(is_up, 300)
            yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1",
                                api_key="sk-proxy",
                                max_retries=0,
                                timeout=300)
        finally:
            process.terminate()
            process.wait(120)


def test_chats_through_the_proxy_are_those_of_the_server(proxy, tiny):
    asked = {"messages": messages("Once upon a time"), "max_tokens": 8, "temperature": 0}
    direct = tiny.json("POST", "/v1/chat/completions", {"model": "tiny", **asked})
    whole = proxy.chat.completions.create(model="grain", **asked)
    chunks = list(
        proxy.chat.completions.create(model="grain",
                                      **asked,
                                      stream=True,
                                      stream_options={"include_usage": True}))
    assert whole.choices[0].message.content == direct["choices"][0]["message"]["content"]
    assert "".join(choice.delta.content or ""
                   for chunk in chunks
                   for choice in chunk.choices) == whole.choices[0].message.content
    assert whole.usage.total_tokens == chunks[-1].usage.total_tokens == direct["usage"][
        "total_tokens"]
    with pytest.raises(openai.NotFoundError):
        proxy.chat.completions.create(model="chaff", **asked)


def test_a_batch_goes_through_the_proxy(proxy):
    there = {"extra_query": {"provider": "openai"}, "extra_body": {"custom_llm_provider": "openai"}}
    content = support.jsonl([
        line(f"line-{i}", f"number {i}", "tiny", max_tokens=4) for i in range(4)])
    file = proxy.files.create(file=("in.jsonl", content),
                              purpose="batch",
                              extra_body=there["extra_body"])
    batch = proxy.batches.create(input_file_id=file.id,
                                 endpoint="/v1/chat/completions",
                                 completion_window="24h",
                                 extra_body=there["extra_body"])
    support.until(lambda: proxy.batches.retrieve(batch.id, **there).status in support.TERMINAL, 300)
    batch = proxy.batches.retrieve(batch.id, **there)
    assert (batch.status, batch.request_counts.completed) == ("completed", 4)
    lines = [
        json.loads(text)
        for text in proxy.files.content(batch.output_file_id, **there).text.splitlines()]
    assert [entry["custom_id"] for entry in lines] == [f"line-{i}" for i in range(4)]
    assert file.id in [entry.id for entry in proxy.files.list(extra_query={"provider": "openai"})]


# --- decisions ---

DECISIONS = [{"type": "predicate", "name": "p", "instructions": "is it?"}, {
    "type": "choice", "name": "c", "instructions": "w?", "choices": [{"value": "x"}, {
        "value": True, "description": "d"}]}, {
            "type": "score", "name": "s", "instructions": "s?", "levels": [{
                "label": "lo", "description": "low one"}, {"label": "hi"}]}]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_decisions(real, provider):
    """Of `openai` it asks /v1/decisions, of `hosted_vllm` /v1/systemone."""
    route = {"openai": "createDecision", "hosted_vllm": "createSystemOne"}[provider]
    before = metric(real, f'quern_http_requests_total{{route="{route}",code="2xx"}}')
    made = litellm.decisions(model=f"{provider}/smollm2",
                             input="Ten years of servers.",
                             questions=DECISIONS,
                             api_base=real.url,
                             api_key="none",
                             timeout=300)
    first, choice, score = made.answers
    assert 0 <= first.probability <= 1
    assert choice.choice in ("x", True,
                             "true") and abs(sum(p.probability
                                                 for p in choice.probabilities) - 1) < 1e-9
    assert 0 <= score.score <= 1 and len(score.probabilities) == 2
    assert (first.name, choice.name, score.name) == ("p", "c", "s") and made.usage.input_tokens > 0
    # A request is counted at its end, which the thread of its connection may see after the client
    # has the answer.
    support.until(lambda: metric(real, f'quern_http_requests_total{{route="{route}",code="2xx"}}')
                  == before + 1)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_decision_that_is_refused_is_an_error_of_the_request(real, provider):
    with pytest.raises(litellm.BadRequestError):
        litellm.decisions(model=f"{provider}/smollm2",
                          input="word " * 20_000,
                          questions=DECISIONS,
                          api_base=real.url,
                          api_key="none",
                          timeout=300)

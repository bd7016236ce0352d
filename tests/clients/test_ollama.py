# SPDX-License-Identifier: Apache-2.0
"""Ollama's own Python client and LangChain's classes for Ollama, unmodified, against quern's /api."""
import asyncio, json

import ollama
import pytest
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM

import support

GREEDY = {"temperature": 0, "top_k": -1, "top_p": 1, "num_predict": 12}
QUESTION = [{"role": "user", "content": "Name a river of Europe."}]
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Rhine", "Elbe"]}},
          "required": ["name"], "additionalProperties": False}
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
QUESTIONS = {
    "plain": QUESTION,
    "system": [{"role": "system", "content": "Be brief."}, *QUESTION],
    "several turns": [*QUESTION, {"role": "assistant", "content": "The Rhine."},
                      {"role": "user", "content": "Another?"}],
    "a thought": [*QUESTION, {"role": "assistant", "thinking": "Hm.", "content": "The Rhine."},
                  {"role": "user", "content": "Another?"}],
    "empty text": [*QUESTION, {"role": "assistant", "content": ""},
                   {"role": "user", "content": "Well?"}],
    "no images": [{**QUESTION[0], "images": []}],
    "letters of others": [{"role": "user", "content": "Größe, 水, \U0001f30a?"}],
}
OPTIONS = {
    "none": {},
    "num_ctx": {"num_ctx": 16},
    "seed": {"seed": 7, "temperature": 1.0},
    "penalties": {"repeat_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1},
    "of another engine": {"num_gpu": 1, "num_thread": 4, "mirostat": 0, "num_keep": 4,
                          "repeat_last_n": 64, "use_mmap": True},
    "samplers": {"top_k": 20, "top_p": 0.9, "min_p": 0.05, "typical_p": 1.0},
}


def client(server, **more):
    return ollama.Client(host=f"http://127.0.0.1:{server.port}", **more)


def ask(server, model="smollm2", messages=QUESTION, options=None, **more):
    return client(server).chat(model, messages=messages, options={**GREEDY, **(options or {})},
                               **more)


@pytest.fixture(scope="session")
def machine(tmp_path_factory, small_model):
    """Serves what lies on this machine, as `quern serve` without a model does."""
    yield from support.server_of_session(tmp_path_factory, "machine", "--keep-alive", "5m")


@pytest.fixture(scope="session")
def thinker(tmp_path_factory):
    """A model of random weights whose template lets it think and shows tools."""
    folder = support.SHARED / "tiny/qwen3"
    template = support.SHARED / "templates/Qwen-Qwen3-0.6B.jinja"
    if not (folder.exists() and template.exists()):
        pytest.skip("the tiny models and templates of ../shared are not there")
    yield from support.server_of_session(tmp_path_factory, "thinker", "--model", f"tiny={folder}",
                                         "--chat-template", str(template), "--threads", "1")


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_streamed_chat_says_what_a_whole_one_says(machine, name):
    whole = ask(machine, messages=QUESTIONS[name])
    parts = list(ask(machine, messages=QUESTIONS[name], stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert whole.done and parts[-1].done and not any(part.done for part in parts[:-1])
    for last in (whole, parts[-1]):
        assert last.done_reason in ("stop", "length") and last.model == "smollm2"
        assert last.prompt_eval_count > 3 and 1 <= last.eval_count <= 12
        assert 0 < last.eval_duration < last.total_duration
        assert last.load_duration > 0 and last.prompt_eval_duration > 0 and last.created_at
    assert parts[-1].eval_count == whole.eval_count


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_taken(machine, name):
    assert ask(machine, options=OPTIONS[name]).done


def test_one_seed_has_one_answer(machine):
    texts = {ask(machine, options={"seed": 3, "temperature": 1.2, "top_k": 0, "top_p": 1.0})
             .message.content for _ in range(3)}
    assert len(texts) == 1


def test_stop_texts_and_limits(machine):
    text = ask(machine).message.content
    word = text.split()[2]
    assert ask(machine, options={"stop": [word]}).message.content == text[:text.index(word)]
    cut = ask(machine, options={"num_predict": 2})
    assert cut.eval_count == 2 and cut.done_reason == "length"


@pytest.mark.parametrize("streams", [False, True])
def test_formats(machine, streams):
    for shape in (SCHEMA, "json"):
        answer = ask(machine, format=shape, options={"num_predict": 200}, stream=streams)
        text = "".join(part.message.content for part in answer) if streams \
            else answer.message.content
        if shape == SCHEMA:
            assert json.loads(text)["name"] in ("Rhine", "Elbe")


@pytest.mark.parametrize("streams", [False, True])
def test_generate(machine, streams):
    answer = client(machine).generate("smollm2", prompt=QUESTION[0]["content"], options=GREEDY,
                                      system="Be brief.", stream=streams)
    text = "".join(part.response for part in answer) if streams else answer.response
    assert text == ask(machine, messages=QUESTIONS["system"]).message.content


def test_generate_raw(machine):
    answer = client(machine).generate("smollm2", prompt="Once upon", raw=True, options=GREEDY)
    assert answer.response and answer.eval_count == 12
    with pytest.raises(ollama.ResponseError, match="raw mode does not support"):
        client(machine).generate("smollm2", prompt="a", raw=True, system="b")
    with pytest.raises(ollama.ResponseError, match="does not support insert"):
        client(machine).generate("smollm2", prompt="a", suffix="b")


def test_logprobs(machine):
    answer = ask(machine, logprobs=True, top_logprobs=3)
    assert answer.logprobs and len(answer.logprobs[0].top_logprobs) == 3
    assert all(entry.logprob <= 0 for entry in answer.logprobs)


def test_asynchronous_calls(machine):
    async def run():
        asked = ollama.AsyncClient(host=f"http://127.0.0.1:{machine.port}")
        whole = await asked.chat("smollm2", messages=QUESTION, options=GREEDY)
        parts = [part async for part in await asked.chat(
            "smollm2", messages=QUESTION, options=GREEDY, stream=True)]
        return whole.message.content, "".join(part.message.content for part in parts)

    whole, streamed = asyncio.run(run())
    assert whole == streamed == ask(machine).message.content


@pytest.mark.parametrize("text", ["a river", ["a river", "a hill"], []])
def test_embed(machine, text):
    answer = client(machine).embed("all-minilm", input=text)
    assert len(answer.embeddings) == (1 if isinstance(text, str) else len(text))
    assert all(len(vector) == 384 for vector in answer.embeddings)
    if text:
        assert answer.prompt_eval_count > 2


def test_embeddings_of_the_older_route(machine):
    one = client(machine).embeddings("all-minilm", "a river").embedding
    assert list(one) == list(client(machine).embed("all-minilm", input="a river").embeddings[0])


def test_a_long_text_is_cut_only_where_the_client_wants_it(machine):
    long = "word " * 2000
    assert len(client(machine).embed("all-minilm", input=long).embeddings) == 1
    with pytest.raises(ollama.ResponseError) as refused:
        client(machine).embed("all-minilm", input=long, truncate=False)
    assert refused.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="8192"):
        ask(machine, messages=[{"role": "user", "content": "word " * 9000}],
            options={"num_ctx": 2048})


def test_models_are_listed_and_shown(machine):
    names = {model.model: model for model in client(machine).list().models}
    assert {"smollm2:latest", "all-minilm:latest"} <= set(names)
    told = names["smollm2:latest"]
    assert told.size > 9 * 10**7 and len(told.digest) == 64 and told.modified_at
    assert told.details.family == "llama" and told.details.parameter_size.endswith("M")
    shown = client(machine).show("smollm2")
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["llama.context_length"] == 8192
    assert shown.capabilities == ["completion"]
    assert "embedding" in client(machine).show("all-minilm").capabilities
    with pytest.raises(ollama.ResponseError) as refused:
        client(machine).show("nobody")
    assert refused.value.status_code == 404


def running(server):
    return {model.model: model for model in client(server).ps().models}


@pytest.mark.parametrize("keep", ["5m", 300, -1, "1h30m"])
def test_a_model_stays_as_long_as_it_is_asked_to(machine, keep):
    ask(machine, keep_alive=keep)
    told = running(machine)["smollm2:latest"]
    assert told.expires_at and told.context_length == 8192 and told.size > 0


def test_a_model_unloads_and_loads(machine):
    ask(machine, keep_alive=0)
    support.until(lambda: "smollm2:latest" not in running(machine))
    loaded = client(machine).generate("smollm2")
    assert loaded.done_reason == "load" and "smollm2:latest" in running(machine)
    gone = client(machine).generate("smollm2", keep_alive=0)
    assert gone.done_reason == "unload" and "smollm2:latest" not in running(machine)
    assert client(machine).chat("smollm2").done_reason == "load"


def test_pull_of_a_model_that_is_there(machine):
    assert client(machine).pull("smollm2").status == "success"
    assert [step.status for step in client(machine).pull("smollm2", stream=True)][-1] == "success"


@pytest.mark.parametrize("call", [
    lambda it: it.chat("nobody", messages=QUESTION),
    lambda it: it.generate("nobody", prompt="a"),
    lambda it: it.embed("nobody", input="a"),
    lambda it: list(it.chat("nobody", messages=QUESTION, stream=True))])
def test_an_unknown_model_is_not_found(machine, call):
    with pytest.raises(ollama.ResponseError) as refused:
        call(client(machine))
    assert refused.value.status_code == 404 and "nobody" in refused.value.error


@pytest.mark.parametrize("call, words", [
    (lambda it: it.chat("smollm2", messages=QUESTION, tools=[WEATHER]), "does not support tools"),
    (lambda it: it.chat("smollm2", messages=QUESTION, think=True), "does not support thinking"),
    (lambda it: it.generate("smollm2", prompt="a", think="high"), "does not support thinking"),
    (lambda it: it.chat("all-minilm", messages=QUESTION), "does not support chat"),
    (lambda it: it.embed("smollm2", input="a"), "does not support embeddings"),
    (lambda it: it.chat("smollm2", messages=[{**QUESTION[0], "images": [b"\x89PNG"]}]), "images"),
    (lambda it: it.chat("smollm2", messages=QUESTION, keep_alive="later"), "invalid duration"),
])
def test_what_a_model_does_not_do_is_refused_in_ollamas_words(machine, call, words):
    with pytest.raises(ollama.ResponseError) as refused:
        call(client(machine))
    assert refused.value.status_code == 400 and words in refused.value.error


def test_thinking_may_be_off_for_every_model(machine):
    assert ask(machine, think=False).message.content == ask(machine).message.content


@pytest.mark.parametrize("think", [True, False, "low", None])
def test_thoughts(thinker, think):
    capabilities = client(thinker).show("tiny").capabilities
    assert {"completion", "tools", "thinking"} <= set(capabilities)
    options = {"num_predict": 40, "temperature": 0}
    whole = ask(thinker, "tiny", options=options, think=think)
    parts = list(ask(thinker, "tiny", options=options, think=think, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert "".join(part.message.thinking or "" for part in parts) == (whole.message.thinking or "")
    if think is False:
        assert not whole.message.thinking


def test_tools_and_their_results(thinker):
    messages = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "weather", "arguments": {"city": "Bonn"}}}]},
        {"role": "tool", "content": "rain", "tool_name": "weather"}]
    for asked in (QUESTION, messages):
        assert ask(thinker, "tiny", messages=asked, tools=[WEATHER],
                   options={"num_predict": 8}).done

    def weather(city: str) -> str:
        """The weather of a city.

        Args:
          city: its name
        """
        return city

    assert ask(thinker, "tiny", tools=[weather], options={"num_predict": 8}).done


# --- LangChain ---


def langchain(server, **more):
    return ChatOllama(model="smollm2", base_url=f"http://127.0.0.1:{server.port}", temperature=0,
                      num_predict=12, top_k=1, **more)


def test_langchain_chats(machine):
    model = langchain(machine, validate_model_on_init=True)
    whole = model.invoke("Name a river of Europe.")
    assert whole.content and whole.usage_metadata["output_tokens"] > 0
    assert whole.response_metadata["done_reason"] in ("stop", "length")
    assert "".join(part.content for part in model.stream("Name a river of Europe.")) == \
        whole.content
    assert asyncio.run(model.ainvoke("Name a river of Europe.")).content == whole.content
    assert len(model.batch(["a", "b"])) == 2


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_langchain_structured_output(machine, method):
    model = ChatOllama(model="smollm2", base_url=f"http://127.0.0.1:{machine.port}",
                       temperature=0, num_predict=200)
    schema = {**SCHEMA, "title": "River"}
    answer = model.with_structured_output(schema, method=method, include_raw=True).invoke(
        "A river as JSON.")
    if method == "json_schema":
        assert answer["parsed"]["name"] in ("Rhine", "Elbe")


def test_langchain_of_a_model_that_keeps_and_unloads(machine):
    assert langchain(machine, keep_alive="10m").invoke("Hi").content
    assert langchain(machine, keep_alive=0).invoke("Hi").content
    support.until(lambda: "smollm2:latest" not in running(machine))


def test_langchain_completes(machine):
    model = OllamaLLM(model="smollm2", base_url=f"http://127.0.0.1:{machine.port}", temperature=0,
                      num_predict=8)
    text = model.invoke("Once upon a time")
    assert text and "".join(model.stream("Once upon a time")) == text


def test_langchain_embeds(machine):
    model = OllamaEmbeddings(model="all-minilm", base_url=f"http://127.0.0.1:{machine.port}")
    vectors = model.embed_documents(["a river", "a hill"])
    assert [len(vector) for vector in vectors] == [384, 384]
    assert model.embed_query("a river") == vectors[0]


def test_langchain_binds_tools_and_thinks(thinker):
    model = ChatOllama(model="tiny", base_url=f"http://127.0.0.1:{thinker.port}", temperature=0,
                       num_predict=24)
    assert model.bind_tools([WEATHER]).invoke("Weather?") is not None
    assert model.bind(reasoning=False).invoke("Hi") is not None

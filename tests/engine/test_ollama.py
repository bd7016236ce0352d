# SPDX-License-Identifier: Apache-2.0
"""Ollama's own API on a real model: the same question through it, through OpenAI's API and as a
line of a batch has the same answer and the same counts; streams say what bodies say; what is wrong
is refused in Ollama's form."""
import http.client, json, re
from datetime import datetime, timezone

import pytest

import support

GREEDY = {"temperature": 0, "top_k": -1, "top_p": 1}
QUESTION = [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Name a river of Europe."}]
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Rhine", "Elbe"]}},
          "required": ["name"], "additionalProperties": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    state = tmp_path_factory.mktemp("ollama") / "state"
    with support.serving(state, "--model", "smollm2") as server:
        yield server


@pytest.fixture(scope="module")
def leaving(tmp_path_factory):
    """Its model leaves after a time, or as a client asks."""
    state = tmp_path_factory.mktemp("ollama-leaving") / "state"
    with support.serving(state, "--model", "smollm2", "--keep-alive", "10m") as server:
        yield server


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    state = tmp_path_factory.mktemp("ollama-embed") / "state"
    with support.serving(state, "--model", support.MINILM) as server:
        yield server


def post(server, path, body, status=200):
    got, answer = server.call("POST", path, body)
    assert got == status, (path, got, answer)
    return answer.decode()


def stream(server, path, body):
    lines = post(server, path, body).splitlines()
    return [json.loads(line) for line in lines]


def whole(server, path, body):
    return json.loads(post(server, path, {**body, "stream": False}))


def refused(server, path, body, status=400):
    answer = json.loads(post(server, path, body, status))
    assert list(answer) == ["error"] and isinstance(answer["error"], str)
    return answer["error"]


def chat(**more):
    return {"model": "smollm2", "messages": QUESTION, "options": {**GREEDY, "num_predict": 12},
            **more}


def test_one_question_has_one_answer_by_every_way(server):
    body = {"model": "smollm2", "messages": QUESTION, "max_tokens": 12, "temperature": 0}
    plain = server.json("POST", "/v1/chat/completions", body)
    text, usage = plain["choices"][0]["message"]["content"], plain["usage"]
    batch = server.wait(
        server.create(support.jsonl([{"custom_id": "a", "method": "POST",
                                      "url": "/v1/chat/completions", "body": body}]))["id"])
    line = server.results(batch)[0][0]["response"]["body"]
    answer = whole(server, "/api/chat", chat())
    events = stream(server, "/api/chat", chat())
    assert line["choices"][0]["message"]["content"] == text
    assert answer["message"] == {"role": "assistant", "content": text}
    assert "".join(event["message"]["content"] for event in events) == text
    for last in (answer, events[-1]):
        assert last["prompt_eval_count"] == usage["prompt_tokens"]
        assert last["eval_count"] == usage["completion_tokens"]
        assert last["done"] is True and last["done_reason"] in ("stop", "length")
        assert all(last[name] >= 1 for name in (
            "total_duration", "load_duration", "prompt_eval_duration", "eval_duration"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", last["created_at"])
    assert not any(event["done"] for event in events[:-1])


def test_generate_is_a_chat_of_a_system_text_and_a_prompt(server):
    body = {"model": "smollm2", "system": QUESTION[0]["content"], "prompt": QUESTION[1]["content"],
            "options": {**GREEDY, "num_predict": 12}}
    text = whole(server, "/api/chat", chat())["message"]["content"]
    assert whole(server, "/api/generate", body)["response"] == text
    assert "".join(event["response"] for event in stream(server, "/api/generate", body)) == text


def test_raw_text_is_completed_as_it_stands(server):
    options = {**GREEDY, "num_predict": 6}
    plain = server.json("POST", "/v1/completions", {
        "model": "smollm2", "prompt": "Once upon", "max_tokens": 6, "temperature": 0})
    answer = whole(server, "/api/generate", {
        "model": "smollm2", "prompt": "Once upon", "raw": True, "options": options})
    assert answer["response"] == plain["choices"][0]["text"]
    assert answer["eval_count"] == 6 and answer["done_reason"] == "length"


def test_an_answer_keeps_to_its_format(server):
    answer = whole(server, "/api/chat", chat(format=SCHEMA))
    assert json.loads(answer["message"]["content"])["name"] in ("Rhine", "Elbe")
    options = {**GREEDY, "num_predict": 60}
    events = stream(server, "/api/generate", {
        "model": "smollm2", "prompt": "A JSON object.", "format": SCHEMA, "options": options})
    json.loads("".join(event["response"] for event in events))


def test_stop_texts_end_an_answer(server):
    text = whole(server, "/api/chat", chat())["message"]["content"]
    word = text.split()[2]
    cut = whole(server, "/api/chat", chat(options={**GREEDY, "num_predict": 12, "stop": [word]}))
    assert cut["message"]["content"] == text[:text.index(word)]
    assert cut["done_reason"] == "stop"


def test_more_tokens_than_fit_are_as_many_as_fit(server):
    answer = whole(server, "/api/chat", chat(format=SCHEMA, options={
        **GREEDY, "num_predict": 10**6, "num_ctx": 16}))
    assert answer["done_reason"] == "stop"
    refusal = server.call("POST", "/v1/chat/completions", {
        "model": "smollm2", "messages": QUESTION, "max_tokens": 10**6})
    assert refusal[0] == 400


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(server):
    long = [{"role": "user", "content": "word " * 9000}]
    sentence = refused(server, "/api/chat", chat(messages=long))
    assert re.search(r"the input length exceeds .*\b9\d\d\d tokens.*\b8192\b", sentence), sentence


def test_log_probabilities(server):
    answer = whole(server, "/api/chat", chat(logprobs=True, top_logprobs=2))
    assert len(answer["logprobs"]) == answer["eval_count"] or answer["done_reason"] == "stop"
    assert set(answer["logprobs"][0]) >= {"token", "logprob", "bytes", "top_logprobs"}
    events = stream(server, "/api/chat", chat(logprobs=True, top_logprobs=2))
    entries = [entry for event in events for entry in event.get("logprobs", [])]
    assert [entry["token"] for entry in entries] == [
        entry["token"] for entry in answer["logprobs"]]


def test_an_empty_request_loads_the_model(server):
    answer = json.loads(post(server, "/api/chat", {"model": "smollm2"}))
    assert answer["done_reason"] == "load" and answer["message"]["content"] == ""
    answer = json.loads(post(server, "/api/generate", {"model": "smollm2:latest"}))
    assert answer["done_reason"] == "load" and answer["response"] == ""
    assert answer["model"] == "smollm2:latest"


def loaded(server):
    return {model["name"]: model for model in server.json("GET", "/api/ps")["models"]}


def test_a_model_of_the_operators_stays_whatever_a_client_asks(server):
    whole(server, "/api/chat", chat(keep_alive=0))
    whole(server, "/api/chat", chat(keep_alive="1s"))
    answer = json.loads(post(server, "/api/generate", {"model": "smollm2", "keep_alive": 0}))
    assert answer["done_reason"] == "unload"
    assert loaded(server)["smollm2:latest"]["expires_at"] > "2300"


def test_a_model_is_kept_as_long_as_the_last_client_asks(leaving):
    server = leaving
    whole(server, "/api/chat", chat(keep_alive="5m"))
    left = datetime.fromisoformat(loaded(server)["smollm2:latest"]["expires_at"]) - \
        datetime.now(timezone.utc)
    assert 200 < left.total_seconds() <= 300
    whole(server, "/api/chat", chat(keep_alive=-1))
    assert loaded(server)["smollm2:latest"]["expires_at"] > "2300"
    text = whole(server, "/api/chat", chat(keep_alive=0))["message"]["content"]
    support.until(lambda: not loaded(server))
    again = whole(server, "/api/chat", chat())
    assert again["message"]["content"] == text
    assert again["load_duration"] > 10**6 and loaded(server)
    for path in ("/api/chat", "/api/generate"):
        answer = json.loads(post(server, path, {"model": "smollm2", "keep_alive": 0}))
        assert answer["done"] is True and answer["done_reason"] == "unload"
        support.until(lambda: not loaded(server))  # it is answered before the model has left
        assert json.loads(post(server, path, {"model": "smollm2"}))["done_reason"] == "load"
        assert loaded(server)
    refused(server, "/api/generate", {"model": "nobody", "keep_alive": 0}, 404)
    assert "duration" in refused(server, "/api/chat", chat(keep_alive="later"))


def test_no_client_interrupts_a_batch(leaving):
    server = leaving
    lines = [{"custom_id": f"{i}", "method": "POST", "url": "/v1/chat/completions", "body": {
        "model": "smollm2", "messages": QUESTION, "max_tokens": 60, "seed": i}} for i in range(40)]
    batch = server.create(support.jsonl(lines))
    for _ in range(10):
        json.loads(post(server, "/api/generate", {"model": "smollm2", "keep_alive": 0}))
    batch = server.wait(batch["id"])
    assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
    assert server.json("GET", f"/v1/batches/{batch['id']}")["quern"].get("lines_retried", 0) == 0


def test_what_is_wrong_is_refused_in_one_sentence(server):
    assert refused(server, "/api/chat", {"messages": QUESTION}) == "model is required"
    assert "nobody" in refused(server, "/api/chat", chat(model="nobody"), 404)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    assert refused(server, "/api/chat", chat(tools=[tool])) == '"smollm2" does not support tools'
    for think in (True, "low"):
        assert refused(server, "/api/chat", chat(think=think)) == \
            '"smollm2" does not support thinking'
    whole(server, "/api/chat", chat(think=False))
    assert refused(server, "/api/embed", {"model": "smollm2", "input": "a"}) == \
        '"smollm2" does not support embeddings'
    assert "images" in refused(server, "/api/chat", chat(messages=[{
        "role": "user", "content": "a", "images": ["AAAA"]}]))
    refused(server, "/api/create", {"model": "x"}, 501)
    refused(server, "/api/nothing", {}, 404)
    assert "JSON" in refused(server, "/api/chat", b"{")


def test_the_body_is_json_whatever_its_type_says(server):
    for kind in (None, "application/x-www-form-urlencoded", "text/plain"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        headers = {"Content-Type": kind} if kind else {}
        connection.putrequest("POST", "/api/generate")
        body = json.dumps({"model": "smollm2"}).encode()
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        assert connection.getresponse().status == 200
        connection.close()
    page = {"Origin": "https://elsewhere.example"}
    assert server.call("POST", "/api/generate", {"model": "smollm2"}, "text/plain", page)[0] == 403
    own = {"Origin": server.site, "Sec-Fetch-Site": "same-origin"}
    assert server.call("POST", "/api/generate", {"model": "smollm2"}, "text/plain", own)[0] == 415


def test_models_are_listed_and_shown(server):
    models = server.json("GET", "/api/tags")["models"]
    assert [model["name"] for model in models][0] == "smollm2:latest"
    for model in models + server.json("GET", "/api/ps")["models"]:
        assert re.fullmatch("[0-9a-f]{64}", model["digest"])
        assert all(model["details"][name] for name in (
            "format", "family", "families", "parameter_size", "quantization_level"))
        assert model["capabilities"] == ["completion"]
        assert model["size"] > 9 * 10**7 and model["details"]["format"] == "gguf"
        assert model["details"]["family"] == "llama"
        assert re.fullmatch(r"13\d\.\d\dM", model["details"]["parameter_size"])
        assert re.match(r"(I?Q\d|F16|BF16)", model["details"]["quantization_level"])
    for name in ("model", "name"):
        shown = server.json("POST", "/api/show", {name: "smollm2"})
        architecture = shown["model_info"]["general.architecture"]
        assert architecture == "llama"
        assert shown["model_info"][f"{architecture}.context_length"] == 8192
        assert shown["model_info"]["general.parameter_count"] > 13 * 10**7
        assert "{%" in shown["template"]
    refused(server, "/api/show", {"model": "nobody"}, 404)
    assert re.fullmatch(r"[\d.]+", server.json("GET", "/api/version")["version"])


def test_vectors(embedder):
    model = embedder.json("GET", "/api/tags")["models"][0]
    assert model["capabilities"] == ["embedding"]
    body = {"model": model["name"], "input": ["a river", "a hill"], "options": {"seed": None}}
    answer = json.loads(post(embedder, "/api/embed", body))
    plain = embedder.json("POST", "/v1/embeddings", {
        "model": model["name"], "input": body["input"]})
    assert answer["embeddings"] == [row["embedding"] for row in plain["data"]]
    assert answer["prompt_eval_count"] == plain["usage"]["prompt_tokens"]
    one = json.loads(post(embedder, "/api/embeddings", {
        "model": model["name"], "prompt": "a river"}))
    assert one == {"embedding": answer["embeddings"][0]}
    assert json.loads(post(embedder, "/api/embed", {**body, "input": []}))["embeddings"] == []
    long = "word " * 2000
    assert len(json.loads(post(embedder, "/api/embed", {**body, "input": long}))["embeddings"]) == 1
    refused(embedder, "/api/embed", {**body, "input": long, "truncate": False})
    assert model["details"]["family"] == "bert" and model["details"]["embedding_length"] == 384
    assert "does not support chat" in refused(embedder, "/api/chat", {
        "model": model["name"], "messages": QUESTION})
    assert "does not support generate" in refused(embedder, "/api/generate", {
        "model": model["name"], "prompt": "a"})


def test_durations_are_those_of_the_engine(server):
    for last in (whole(server, "/api/chat", chat()), stream(server, "/api/chat", chat())[-1]):
        parts = [last[name] for name in ("load_duration", "prompt_eval_duration", "eval_duration")]
        assert all(part > 1 for part in parts)
        assert sum(parts) <= last["total_duration"]


def test_the_root_says_that_it_runs_unless_a_page_is_asked_for(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for accept, kind in (("*/*", "text/plain"), ("text/html,*/*;q=0.8", "text/html")):
        connection.request("GET", "/", headers={"Accept": accept})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.headers["Content-Type"].startswith(kind)
        assert answer.headers["Vary"] == "Accept"
        assert (text == b"Ollama is running") == (kind == "text/plain")
    for path in ("/", "/api/tags", "/api/version", "/api/ps"):
        connection.request("HEAD", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.close()

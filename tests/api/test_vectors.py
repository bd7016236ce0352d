# SPDX-License-Identifier: Apache-2.0
"""/v1/embeddings, live and as lines of batches: the numbers of a real model (all-MiniLM-L6-v2
against torch's), the forms of the contract through the `openai` client, and what an upstream and
the echo worker make of them."""
import base64, concurrent.futures, json, math, shutil, struct

import openai
import pytest

import support

URL = "/v1/embeddings"
VECTORS = support.SHARED / "vectors/minilm.json"
if not VECTORS.exists():
    pytest.skip(f"{VECTORS} is not here", allow_module_level=True)
CASES = json.loads(VECTORS.read_text())["cases"]
TEXTS = [case for case in CASES if case["text"]]


def client_of(server):
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)


def line(custom_id, text, model="all-minilm", **body):
    return {
        "custom_id": custom_id, "method": "POST", "url": URL, "body": {
            "model": model, "input": text, **body}}


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def decoded(text):
    data = base64.b64decode(text, validate=True)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def assert_reference(vector, case):
    assert len(vector) == 384 and abs(math.hypot(*vector) - 1) < 1e-5
    assert cosine(vector, case["embedding"]) >= 0.9999, case["text"][:60]


def run(server, requests, **extra):
    batch = server.wait(server.create(support.jsonl(requests), endpoint=URL, **extra)["id"])
    output, errors = server.results(batch)
    assert batch["status"] == "completed" and sorted(
        entry["custom_id"] for entry in output + errors) == sorted(r["custom_id"] for r in requests)
    return batch, {entry["custom_id"]: entry["response"]["body"]
                   for entry in output}, {entry["custom_id"]: entry
                                          for entry in errors}


# --- one real model ---

def test_the_vectors_are_those_of_the_reference(minilm_server):
    """Every case alone, with the reference's own tokens, and all together."""
    client = client_of(minilm_server)
    for case in TEXTS:
        answer = client.embeddings.create(model="all-minilm",
                                          input=case["text"],
                                          extra_body={"truncate_prompt_tokens": 256})
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == len(case["ids"])
        assert_reference(answer.data[0].embedding, case)
    for case in CASES:
        assert_reference(
            client.embeddings.create(model="all-minilm", input=case["ids"]).data[0].embedding, case)
    answer = client.embeddings.create(model="all-minilm",
                                      input=[case["text"] for case in TEXTS],
                                      extra_body={"truncate_prompt_tokens": -1})
    assert [entry.index for entry in answer.data] == list(range(len(TEXTS)))
    for entry, case in zip(answer.data, TEXTS):
        assert_reference(entry.embedding, case)


def test_a_batch_has_the_vectors_of_the_reference_and_the_errors_apart(minilm_server):
    requests = [
        line(f"text-{i}", case["text"], truncate_prompt_tokens=-1) for i, case in enumerate(TEXTS)]
    requests += [
        line(f"ids-{i}", [case["ids"], case["ids"]], encoding_format="base64")
        for i, case in enumerate(CASES)]
    bad = {
        "empty": ([], {}), "long": (["a", "word " * 600], {}),
        "id": ([10**9], {}), "dimensions": ("a", {"dimensions": 100}), "format": ("a", {
            "encoding_format": "hex"}), "form": ({"text": "a"}, {})}
    requests += [line(name, text, **body) for name, (text, body) in bad.items()]
    batch, output, errors = run(minilm_server, requests)
    assert batch["request_counts"] == {
        "total": len(requests), "completed": len(TEXTS) + len(CASES), "failed": len(bad)}
    for i, case in enumerate(TEXTS):
        assert_reference(output[f"text-{i}"]["data"][0]["embedding"], case)
    for i, case in enumerate(CASES):
        for entry in output[f"ids-{i}"]["data"]:
            assert_reference(decoded(entry["embedding"]), case)
    assert set(errors) == set(bad)
    for name, entry in errors.items():
        error = entry["response"]["body"]["error"]
        assert entry["response"]["status_code"] == 400 and error["message"] and error[
            "param"].split("[")[0] in ("input", "dimensions", "encoding_format")
    long = errors["long"]["response"]["body"]["error"]
    assert long["param"] == "input[1]" and long[
        "code"] == "context_length_exceeded" and "602 tokens" in long["message"]
    assert batch["usage"]["input_tokens"] == sum(
        body["usage"]["prompt_tokens"]
        for body in output.values()) and batch["usage"]["output_tokens"] == 0


def test_a_text_has_one_vector_whatever_else_runs(minilm_server):
    """Alone, among 300 others in one request, and in 40 requests at once: bit for bit the same."""
    client = client_of(minilm_server)
    texts = [f"{i} " + "lantern stone market " * (i % 17) for i in range(300)]

    def ask(wanted):
        return [
            entry.embedding
            for entry in client.embeddings.create(model="all-minilm", input=wanted).data]

    together = ask(texts)
    assert [ask(texts[i])[0] for i in (0, 16, 150, 299)] == [together[i] for i in (0, 16, 150, 299)]
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        parts = list(pool.map(ask, (texts[i:i + 10] for i in range(0, 300, 10))))
    assert [vector for part in parts for vector in part] == together


def test_2048_texts_come_back_in_order(minilm_server):
    client = client_of(minilm_server)
    texts = [f"number {i}" for i in range(2048)]
    answer = client.embeddings.create(model="all-minilm", input=texts, encoding_format="float")
    assert [entry.index for entry in answer.data] == list(range(2048))
    last = client.embeddings.create(model="all-minilm", input=texts[2047],
                                    encoding_format="float").data[0]
    assert answer.data[2047].embedding == last.embedding


def test_a_person_passes_a_batch_and_a_cancel_ends_it(minilm_server):
    """While a batch of long requests runs a single one is answered; cancelled, the batch accounts
    for every line."""
    requests = [
        line(f"e{i}", [f"{i} {j} " + "lantern stone market " * 12
                       for j in range(30)])
        for i in range(500)]
    batch = minilm_server.create(support.jsonl(requests), endpoint=URL)
    support.until(lambda: minilm_server.batch(batch["id"])["request_counts"]["completed"] > 0)
    assert len(client_of(minilm_server).embeddings.create(model="all-minilm",
                                                          input="hello").data) == 1
    assert minilm_server.batch(
        batch["id"])["status"] == "in_progress", "the answer came before the batch was done"
    minilm_server.json("POST", f"/v1/batches/{batch['id']}/cancel")
    batch = minilm_server.wait(batch["id"])
    output, errors = minilm_server.results(batch)
    assert batch["status"] == "cancelled" and 0 < len(output) < 500
    assert sorted(entry["custom_id"] for entry in output + errors) == sorted(
        r["custom_id"] for r in requests)
    assert all(entry["error"]["code"] == "batch_cancelled" for entry in errors)
    assert len(client_of(minilm_server).embeddings.create(model="all-minilm",
                                                          input="hello").data) == 1


def test_models_say_what_they_do_and_refuse_the_rest(minilm_server, model_server):
    assert minilm_server.json("GET", "/v1/models/all-minilm")["capabilities"] == ["embedding"]
    assert model_server.json("GET", "/v1/models/smollm2")["capabilities"] == [
        "completion", "decision"]
    chat = {"model": "all-minilm", "messages": [{"role": "user", "content": "hello"}]}
    for path, body in (("/v1/chat/completions", chat),
                       ("/v1/chat/completions", {**chat, "stream": True}), ("/v1/completions", {
                           "model": "all-minilm", "prompt": "hello"})):
        error = minilm_server.json("POST", path, body, status=400)["error"]
        assert error["code"] == "unsupported_endpoint" and "/v1/embeddings" in error["message"]
    error = model_server.json("POST", URL, {"model": "smollm2", "input": "hello"},
                              status=400)["error"]
    assert error["code"] == "unsupported_endpoint" and "/v1/chat/completions" in error["message"]


def test_what_a_client_may_not_ask_is_named(minilm_server):
    for body, param in (({"input": "a", "stream": True}, "stream"), ({
            "input": "a", "instruction": "find"}, "instruction"), ({
                "input": "a", "truncate_prompt_tokens": 100000}, "truncate_prompt_tokens"), ({
                    "input": None}, "input"), ({"input": "a",
                                                "add_special_tokens": 1}, "add_special_tokens"), ({
                                                    "input": ["a"] * 2049}, "input")):
        error = minilm_server.json("POST", URL, {"model": "all-minilm", **body},
                                   status=400)["error"]
        assert error["param"] == param and param in error["message"]
    error = minilm_server.json("POST",
                               URL, {"model": "all-minilm", "input": [[5, 10**6]]},
                               status=400)["error"]
    assert error["param"] == "input[0]" and "check_embedding_ctx_length" in error["message"]
    assert minilm_server.json("POST", URL, {"model": "nope", "input": "a"},
                              status=404)["error"]["code"] == "model_not_found"
    tokens = [
        minilm_server.json("POST", URL,
                           {"model": "all-minilm", "input": "a", **body})["usage"]["prompt_tokens"]
        for body in ({}, {"add_special_tokens": False},
                     {"user": "me", "priority": 4, "service_tier": "flex", "dimensions": 384})]
    assert tokens == [3, 1, 3]


def test_preflight_and_run_agree(tmp_path):
    """The tokens that are announced are those of the answers, and so are the lines that will be
    refused."""
    requests = [line(f"e{i}", [f"text {i}", "lantern " * (i % 9 + 1)]) for i in range(40)] + [
        line("bad", ""), line("long", "word " * 600)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(requests))
    told = support.quern("preflight", tmp_path / "in.jsonl", "--model", support.MINILM, "--json",
                         "--pilot", "20")
    told = json.loads(told.stdout)
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", support.MINILM)
    assert done.returncode == 1, done.stderr
    bodies = [
        json.loads(text)["response"]["body"]
        for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert told["prompt_tokens"] == sum(
        body["usage"]["prompt_tokens"] for body in bodies if "usage" in body)
    assert told["requests"] == 42 and told["faulty"] == sum("error" in body for body in bodies) == 2
    assert told["context_tokens"] is None and "input" in told["faults"][0]["message"]
    assert told["pilot"]["failed"] == 0 and told["seconds"]["mean"] > 0 and told["output_tokens"][
        "mean"] == 0


def test_texts_that_mean_the_same_are_neighbours(tmp_path):
    """The example in the README: twenty questions in pairs, of which nearly all find their
    partner."""
    done = support.quern("run", "-i", support.ROOT / "examples/embeddings-20.jsonl", "-o",
                         tmp_path / "out.jsonl", "--model", support.MINILM)
    assert done.returncode == 0, done.stderr
    vectors = [
        json.loads(text)["response"]["body"]["data"][0]["embedding"]
        for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    nearest = [
        max((j for j in range(20) if j != i),
            key=lambda j: cosine(vectors[i], vectors[j])) for i in range(20)]
    assert len(vectors) == 20 and sum(other == i ^ 1 for i, other in enumerate(nearest)) >= 18


def test_a_model_that_generates_and_embeds_takes_instructions(tmp_path):
    """A folder of that name is run as GritLM: an instruction is wrapped, read and not pooled;
    completions go on beside it."""
    model = tmp_path / "GritLM-tiny"
    shutil.copytree(support.SHARED / "tiny/mistral", model, ignore=shutil.ignore_patterns("*.gguf"))
    text, head = "a lantern of stone", "<|user|>\nFind the place\n<|embed|>\n"
    ids = [
        json.loads(
            support.quern("tokenize", "--model", model, "--special", "--bos", input=part).stdout)
        for part in (head + text, head)]
    query = json.dumps({"ids": [ids[0]], "pool_first": [len(ids[1])]})
    wanted = json.loads(support.quern("embed", "--model", model, input=query).stdout)
    with support.serving(tmp_path / "state", "--model", model) as server:
        assert server.json("GET", "/v1/models/GritLM-tiny")["capabilities"] == [
            "completion", "embedding", "decision"]
        client = client_of(server)

        def ask(**extra):
            return client.embeddings.create(model="GritLM-tiny",
                                            input=text,
                                            encoding_format="float",
                                            extra_body=extra)

        answer = ask(instruction="Find the place")
        assert cosine(answer.data[0].embedding,
                      wanted["embeddings"][0]) > 0.999999 and answer.usage.prompt_tokens == len(
                          ids[0])
        assert cosine(ask().data[0].embedding, answer.data[0].embedding) < 0.9999
        requests = [line(f"e{i}", f"{text} {i}", "GritLM-tiny") for i in range(30)]
        requests += [{
            "custom_id": f"c{i}", "method": "POST", "url": "/v1/completions", "body": {
                "model": "GritLM-tiny", "prompt": f"{i}", "max_tokens": 4}} for i in range(30)]
        batch, output, errors = run(server, requests)
        assert batch["request_counts"]["completed"] == 60 and not errors
        assert all(
            output[f"c{i}"]["choices"] and len(output[f"e{i}"]["data"]) == 1 for i in range(30))
    support.fsck(tmp_path / "state")


# --- without a model ---

def test_an_upstream_embeds_live_and_in_batches(tmp_path):
    """Another quern, whose echo worker makes vectors of the texts' bytes."""
    with support.serving(tmp_path / "far", "--model", "small=echo") as far:
        with support.serving(tmp_path / "state", "--upstream",
                             f"far=http://127.0.0.1:{far.port}") as server:
            client, there = client_of(server), client_of(far)
            for form in ("hello", ["hello", "you"], [1, 2], [[1, 2], [3]]):
                got, wanted = (c.embeddings.create(model="small",
                                                   input=form,
                                                   encoding_format="float")
                               for c in (client, there))
                assert [entry.embedding for entry in got.data] == [
                    entry.embedding for entry in wanted.data]
                assert got.usage == wanted.usage and got.model == "small"
            texts = [f"text {i}" for i in range(200)]
            batch, output, errors = run(server, [
                line(f"e{i}", text, "small", encoding_format="base64")
                for i, text in enumerate(texts)])
            wanted = there.embeddings.create(model="small", input=texts).data
            assert [decoded(output[f"e{i}"]["data"][0]["embedding"]) for i in range(200)] == [
                entry.embedding for entry in wanted]
            assert not errors and batch["usage"]["input_tokens"] > 0
    support.fsck(tmp_path / "state")


def test_equal_texts_run_once(tmp_path):
    with support.serving(tmp_path / "state", "--model", "echo") as server:
        _, output, _ = run(server, [line(f"e{i}", f"text {i % 50}", "echo") for i in range(300)])
        for i in range(300):
            assert output[f"e{i}"]["data"] == output[f"e{i % 50}"]["data"]
        metrics = server.call("GET", "/metrics")[1].decode().splitlines()
        assert 'quern_engine_steps_total{engine="0"} 50' in metrics
        assert len({json.dumps(output[f"e{i}"]["data"]) for i in range(50)}) == 50
    support.fsck(tmp_path / "state")


def test_answers_of_many_megabytes(tmp_path):
    """2048 vectors of 384 floats are about 9 MB: live, and as lines whose results are read back
    whole."""
    texts = [f"text {i}" for i in range(2048)]
    with support.serving(tmp_path / "state", "--model", "echo") as server:
        live = server.json("POST", URL,
                           {"model": "echo", "input": texts, "dimensions": 384})["data"]
        assert len(live) == 2048 and all(len(entry["embedding"]) == 384 for entry in live)
        requests = [line(f"e{i}", texts, "echo", dimensions=384, user=str(i))
                    for i in range(3)] + [line("small", "text 0", "echo", dimensions=384)]
        _, output, _ = run(server, requests)
        assert all(output[f"e{i}"]["data"] == live
                   for i in range(3)) and output["small"]["data"] == live[:1]
    support.fsck(tmp_path / "state")

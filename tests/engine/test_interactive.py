# SPDX-License-Identifier: Apache-2.0
"""Chats beside a batch on one engine: they are answered at once, say what they say alone, and leave
when their client does."""
import concurrent.futures, http.client, json, re

import pytest

import support

LINES = 300  # lines in the batch, all of which are with the engine
WORDS = "rivers clocks bread snow maps wool salt lamps".split()


def body(index, **options):
    text = " ".join(
        [f"Write about {WORDS[index % len(WORDS)]}, number {index}."] * (1 + 5 * (index % 4)))
    return {
        "model": "smollm2", "messages": [{"role": "user", "content": text}], "temperature": 0,
        "max_tokens": 2 + index, **options}


def text_of(server, request):
    return server.json("POST", "/v1/chat/completions", request)["choices"][0]["message"]["content"]


def gauge(server, name):
    return float(
        re.search(rf"^{name}\S* (\S+)$",
                  server.call("GET", "/metrics")[1].decode(), re.M)[1])


@pytest.fixture
def busy_server(model_server):
    """The server with a batch that outlasts any test, some of whose lines run."""
    lines = [
        support.request(str(i),
                        f"Line {i}. " + "Count the stars and the boats. " * (i % 30),
                        temperature=0,
                        max_tokens=1500,
                        ignore_eos=True) for i in range(LINES)]
    batch = model_server.create(support.jsonl(lines))
    support.until(lambda: gauge(model_server, "quern_engine_running") > 5)
    yield model_server
    model_server.json("POST", f"/v1/batches/{batch['id']}/cancel")
    model_server.wait(batch["id"])


def test_greedy_chats_have_the_same_text_beside_a_batch_as_alone(model_server, request):
    alone = [text_of(model_server, body(i)) for i in range(8)]
    server = request.getfixturevalue("busy_server")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(lambda i: text_of(server, body(i)), range(8)))
    assert beside == alone
    assert gauge(server, "quern_engine_running") > 0  # the batch still runs


def test_greedy_lines_have_the_same_text_beside_chats_as_alone(model_server):
    lines = [
        support.request(str(i),
                        f"Name {i + 2} things made of {WORDS[i % 8]}.",
                        temperature=0,
                        max_tokens=24) for i in range(16)]
    texts = []
    for chats in (0, 16):
        batch = model_server.create(support.jsonl(lines))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(
                pool.map(lambda i: text_of(model_server, body(i, max_tokens=3)),
                         range(100, 100 + chats)))
        output, errors = model_server.results(model_server.wait(batch["id"]))
        assert not errors
        texts.append({
            line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"]
            for line in output})
    assert texts[0] == texts[1]


def test_case_132_a_client_that_disconnects_frees_its_sequence(busy_server):
    """Also one that runs beside a full batch; and the engine goes on. The outcome counts once its
    sequence is gone."""
    def cancelled():
        text = busy_server.call("GET", "/metrics")[1].decode()
        return sum(
            float(n)
            for n in re.findall(r'^\S*requests\S*outcome="cancelled"\S* (\S+)$', text, re.M))

    def chats():
        return gauge(busy_server, "quern_requests_inflight") - LINES

    for stream in (True, False):
        support.until(lambda: chats() == 0)
        before = cancelled()
        connection = http.client.HTTPConnection("127.0.0.1", busy_server.port, timeout=60)
        connection.request("POST", "/v1/chat/completions",
                           json.dumps(body(3, max_tokens=1500, ignore_eos=True, stream=stream)),
                           {"Content-Type": "application/json"})
        if stream:
            answer = connection.getresponse()
            assert answer.readline().startswith(b"data: ")
            answer.close()
        else:
            support.until(lambda: chats() == 1)
        connection.close()
        support.until(lambda: cancelled() > before)
    support.until(lambda: chats() == 0)
    assert text_of(busy_server, body(1, max_tokens=1)) is not None

# SPDX-License-Identifier: Apache-2.0
"""One question through four APIs, each alone and as a line of a batch: the same text and the same
counts of tokens at temperature 0."""
import json

import pytest

import support

QUESTION = [{"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": "Why is the sea salty?"}]
CHAT = {"model": "smollm2", "messages": QUESTION, "max_tokens": 24, "temperature": 0}
OLLAMA = {"model": "smollm2", "messages": QUESTION, "stream": False, "options": {
    "num_predict": 24, "temperature": 0}}
MESSAGES = {"model": "smollm2", "system": QUESTION[0]["content"], "messages": QUESTION[1:],
            "max_tokens": 24, "temperature": 0}
RESPONSES = {"model": "smollm2", "instructions": QUESTION[0]["content"],
             "input": QUESTION[1]["content"], "max_output_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(tmp_path_factory.mktemp("four") / "state", "--model", "smollm2") as server:
        yield server


def of_chat(body):
    usage = body["usage"]
    return (body["choices"][0]["message"]["content"], usage["prompt_tokens"],
            usage["completion_tokens"], body["choices"][0]["finish_reason"] == "length")


def of_ollama(body):
    return (body["message"]["content"], body["prompt_eval_count"], body["eval_count"],
            body["done_reason"] == "length")


def of_messages(body):
    usage = body["usage"]
    return (body["content"][0]["text"], usage["input_tokens"] + usage["cache_read_input_tokens"],
            usage["output_tokens"], body["stop_reason"] == "max_tokens")


def of_responses(body):
    usage = body["usage"]
    return (body["output"][0]["content"][0]["text"], usage["input_tokens"], usage["output_tokens"],
            body["status"] == "incomplete")


def test_four_apis_say_the_same_alone_and_in_batches(server):
    asked = [("/v1/chat/completions", CHAT, of_chat), ("/v1/messages", MESSAGES, of_messages),
             ("/v1/responses", RESPONSES, of_responses)]
    want = of_chat(server.json("POST", "/v1/chat/completions", CHAT))
    assert want[0] and want[1] > 10 and want[2] > 1
    assert of_ollama(server.json("POST", "/api/chat", OLLAMA)) == want
    for url, body, read in asked:
        assert read(server.json("POST", url, body)) == want, url
        line = {"custom_id": "a", "method": "POST", "url": url, "body": body}
        batch = server.wait(server.create(json.dumps(line).encode() + b"\n", endpoint=url)["id"])
        output, errors = server.results(batch)
        assert errors == [] and read(output[0]["response"]["body"]) == want, url

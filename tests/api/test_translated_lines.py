# SPDX-License-Identifier: Apache-2.0
"""Lines of a batch in the form of OpenAI's Responses and of Anthropic's Messages: their records have
the bodies that these clients read, whatever worker ran them; a line that its API refuses is an
error of its own; every reader of results finds the answers."""
import json, subprocess

import pytest

import support

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"


def line(name, url, body):
    return {"custom_id": name, "method": "POST", "url": url, "body": {"model": "m", **body}}


def message(name, text, **more):
    return line(name, MESSAGES, {
        "max_tokens": 50, "messages": [{"role": "user", "content": text}], **more})


def response(name, text, **more):
    return line(name, RESPONSES, {"input": text, **more})


@pytest.fixture(scope="module", params=["own", "upstream"])
def server(request, tmp_path_factory):
    """The echo worker, here or behind an upstream."""
    folder = tmp_path_factory.mktemp("translated")
    with support.serving(folder / "far", "--model", "m=echo") as far:
        if request.param == "own":
            yield far
            return
        with support.serving(folder / "state", "--upstream", f"m={far.site}") as near:
            yield near


def run(server, lines, endpoint):
    content = b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in lines)
    batch = server.wait(server.create(content, endpoint=endpoint)["id"])
    assert batch["status"] == "completed", batch
    output, errors = server.results(batch)
    return batch, {each["custom_id"]: each["response"] for each in output + errors}


def test_messages(server):
    batch, found = run(server, [
        message("a", "Grüße", system="s"), message("b", "x", stream=True),
        message("c", [{"type": "image", "source": {}}]), message("d", "x", max_tokens=0),
        message("e", "x", response_format={"type": "json_object"}),
        message("f", "x", guided_choice=["a"]), message("g", "x", logit_bias={"1": -100}),
        message("h", "x", output_config={"response_format": {"type": "json_schema"}})],
                       MESSAGES)
    assert (batch["request_counts"]["completed"], batch["request_counts"]["failed"]) == (1, 7)
    body = found["a"]["body"]
    assert body["type"] == "message" and body["id"].startswith("msg_") and body["model"] == "m"
    assert body["content"] == [{"type": "text", "text": "Grüße"}]
    assert body["stop_reason"] == "end_turn" and body["usage"]["output_tokens"] > 0
    for name, word in (("b", "stream"), ("c", "image"), ("d", "max_tokens"),
                       ("e", "response_format"), ("f", "guided_choice"), ("g", "logit_bias"),
                       ("h", "output_config.response_format")):
        assert found[name]["status_code"] == 400
        body = found[name]["body"]
        assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
        assert word in body["error"]["message"]


def test_responses(server):
    batch, found = run(server, [
        response("a", "Grüße", instructions="Sei\nkurz", metadata={"k": "ä"}),
        response("b", "x", previous_response_id="resp_1"),
        response("c", "x", tools=[{"type": "web_search"}]),
        # What another API would hold the answer to is refused by name, as for single requests.
        response("d", "x", response_format={"type": "json_object"}),
        response("e", "x", guided_json={"type": "object"})], RESPONSES)
    body = found["a"]["body"]
    assert body["object"] == "response" and body["status"] == "completed"
    assert (body["instructions"], body["metadata"]) == ("Sei\nkurz", {"k": "ä"})
    assert body["output"][0]["content"][0]["text"] == "Grüße"
    assert body["usage"]["total_tokens"] == batch["usage"]["total_tokens"]
    assert found["b"]["body"]["error"]["param"] == "previous_response_id"
    assert found["c"]["body"]["error"]["param"] == "tools[0].type"
    for name, param in (("d", "response_format"), ("e", "guided_json")):
        assert found[name]["status_code"] == 400, found[name]
        assert found[name]["body"]["error"]["param"] == param, found[name]


def test_every_download_has_the_same_bytes_and_every_reader_the_answers(server, tmp_path):
    lines = [message("a", "one"), message("b", "two")]
    batch, _ = run(server, lines, MESSAGES)
    _, file = server.call("GET", f"/v1/files/{batch['output_file_id']}/content")
    _, page = server.call("GET", f"/v1/batches/{batch['id']}/results")
    # The page has the order in which the answers came.
    assert sorted(file.splitlines()) == sorted(page.splitlines()) and file.count(b"\n") == 2
    fields = f"/v1/batches/{batch['id']}/answers/fields"
    support.until(lambda: (got := server.json("GET", fields))["indexed"] == got["lines"], 60)
    data = server.json("GET", f"/v1/batches/{batch['id']}/answers")["data"]
    assert ["one" in json.dumps(data[0]), "two" in json.dumps(data[1])] == [True, True], data
    told = tmp_path / "out.csv"
    subprocess.run([
        support.BINARY, "results", batch["id"], "-o", told, "--base-url", server.url], check=True,
                   capture_output=True)
    assert "one" in told.read_text() and "two" in told.read_text()

# SPDX-License-Identifier: Apache-2.0
"""Clients of other servers: Azure's URLs and key, URLs that are nearly right, packed bodies, and
the rarer forms of HTTP/1.1."""
import gzip, json, socket

import openai
import pytest

import support

ASK = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(tmp_path_factory.mktemp("other") / "state", "--model", "echo") as running:
        yield running


@pytest.mark.parametrize("path", [
    "/openai/deployments/echo/chat/completions?api-version=2024-10-21",
    "/openai/v1/chat/completions", "/openai/v1/chat/completions?api-version=preview"])
def test_azures_base_url_is_one_of_this_server(server, path):
    status, data = server.call("POST", path, ASK)
    assert status == 200 and json.loads(data)["choices"][0]["message"]["content"] == "hi"


def test_a_deployment_names_the_model_that_the_body_leaves_out(server):
    ask = {"messages": ASK["messages"]}
    status, data = server.call("POST", "/openai/deployments/echo/chat/completions?api-version=1",
                               ask)
    assert status == 200 and json.loads(data)["model"] == "echo"
    status, data = server.call(
        "POST", "/openai/deployments/other%2Fone/chat/completions?api-version=1", ask)
    assert status == 404 and "'other/one'" in json.loads(data)["error"]["message"]
    assert server.call("GET", "/openai/files?api-version=1&limit=1")[0] == 200
    assert server.call("POST", "/openai/deployments//chat/completions", ask)[0] == 404


def test_a_batch_runs_through_azures_urls(server):
    line = {"custom_id": "a", "method": "POST", "url": "/chat/completions", "body": ASK}
    file = server.upload(support.jsonl([line]))["id"]
    status, data = server.call(
        "POST", "/openai/batches?api-version=2024-10-21",
        {"input_file_id": file, "endpoint": "/chat/completions", "completion_window": "24h"})
    assert status == 200
    assert server.wait(json.loads(data)["id"])["request_counts"] == {
        "total": 1, "completed": 1, "failed": 0}


def test_openais_client_for_azure_works(server):
    client = openai.AzureOpenAI(azure_endpoint=server.site,
                                api_key="k",
                                api_version="2024-10-21",
                                max_retries=0)
    ask = {"model": "echo", "messages": ASK["messages"]}
    assert client.chat.completions.create(**ask).choices[0].message.content == "hi"
    assert "".join(chunk.choices[0].delta.content or ""
                   for chunk in client.chat.completions.create(**ask, stream=True)
                   if chunk.choices) == "hi"
    assert len(client.embeddings.create(model="echo", input=["a", "b"]).data) == 2
    assert [model.id for model in client.models.list()] == ["echo"]
    file = client.files.create(file=("in.jsonl",
                                     support.jsonl([{
                                         "custom_id": "a", "method": "POST",
                                         "url": "/chat/completions", "body": ASK}])),
                               purpose="batch")
    batch = client.batches.create(input_file_id=file.id,
                                  endpoint="/chat/completions",
                                  completion_window="24h")
    done = server.wait(batch.id)
    assert json.loads(client.files.content(
        done["output_file_id"]).text)["response"]["status_code"] == 200


def test_azures_clients_send_the_key_alone(tmp_path):
    key = "sk-test-0123456789abcdef"
    (tmp_path / "key").write_text(key + "\n")
    (tmp_path / "key").chmod(0o600)
    with support.serving(tmp_path / "state", "--model", "echo", "--api-key-file",
                         str(tmp_path / "key")) as running:
        status = [
            running.call("GET", "/openai/models", headers=headers)[0]
            for headers in ({"api-key": key}, {"api-key": "wrong"}, {"api-key": ""})]
        assert status == [200, 401, 401]
        assert key not in running.log_text()


@pytest.mark.parametrize("path,meant", [("//v1/chat/completions", CHAT),
                                        ("/v1//chat/completions", CHAT),
                                        ("/v1/chat/completions/chat/completions", CHAT),
                                        ("/chat/completions/chat/completions", CHAT),
                                        ("/v1/chat/completions/v1/chat/completions", CHAT),
                                        ("/api/v1/chat/completions", CHAT),
                                        ("//chat/completions", CHAT),
                                        ("/v1/chat/completions/batches", "/v1/batches"),
                                        ("/v1/v1/v1/embeddings", "/v1/embeddings"),
                                        ("/proxy/openai/v1/chat/completions", CHAT)])
def test_an_url_that_is_nearly_right_names_the_right_one(server, path, meant):
    status, data = server.call("POST", path, ASK)
    assert status == 404 and f"Did you mean {meant}? A client's base URL " in json.loads(
        data)["error"]["message"]


@pytest.mark.parametrize("path,meant", [("/v1/v1/messages", "/v1/messages"),
                                        ("/api/v1/messages", "/v1/messages"),
                                        ("/v1/v1/messages/count_tokens",
                                         "/v1/messages/count_tokens"),
                                        ("/v1/api/chat", "/api/chat"),
                                        ("/ollama/api/generate", "/api/generate")])
def test_an_url_of_another_api_is_told_the_base_of_its_own_clients(server, path, meant):
    """Anthropic's and Ollama's clients add /v1 and /api themselves, and read their own errors."""
    status, data = server.call("POST", path, ASK)
    error = json.loads(data)["error"]
    sentence = error if isinstance(error, str) else error["message"]
    assert status == 404 and f"Did you mean {meant}? A client's base URL is http://HOST:PORT" in (
        sentence) and "with nothing after it" in sentence and "PORT/v1" not in sentence
    assert isinstance(error, str) == path.startswith("/v1/api/")
    assert (json.loads(data).get("type") == "error") == ("v1/messages" in path)


def test_an_url_without_any_sense_has_no_hint(server):
    for path in ("/v1/nothing", "/nothing/", "/v1/chat"):
        assert json.loads(server.call(
            "POST", path, ASK)[1])["error"]["message"].endswith(". Check the URL for typos")
    assert json.loads(server.call("POST", "/api/nothing",
                                  ASK)[1])["error"].endswith(". Check the URL for typos")


@pytest.mark.parametrize("path,kind", [(CHAT, "application/json"),
                                       ("/v1/files", "multipart/form-data; boundary=B")])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "GZIP , identity"])
def test_a_packed_body_is_refused_with_the_name_of_its_coding(server, path, kind, coding):
    status, data = server.call("POST",
                               path,
                               gzip.compress(json.dumps(ASK).encode()),
                               headers={"Content-Type": kind, "Content-Encoding": coding})
    error = json.loads(data)["error"]
    assert status == 415 and f"'Content-Encoding: {coding}'" in error["message"] and error[
        "code"] == "unsupported_content_encoding"


def test_the_coding_that_is_none_is_taken(server):
    for coding in ("identity", "Identity"):
        assert server.call("POST", CHAT, ASK, headers={"Content-Encoding": coding})[0] == 200


BODY = json.dumps(ASK).encode()
HEAD = b"Host: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
START = b"POST /v1/chat/completions HTTP/1.1\r\n" + HEAD


@pytest.mark.parametrize("data", [
    START + b"Content-Length: %d \r\n\r\n" % len(BODY) + BODY,
    START + b"Content-Length:\t%d\t \r\n\r\n" % len(BODY) + BODY,
    START.replace(b"application/json", b"application/json  ") +
    b"Transfer-Encoding: chunked \r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n", START +
    b"Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n" % len(BODY) + BODY + b"\r\n0;last\r\n\r\n",
    START + b"Transfer-Encoding: chunked\r\n\r\n%x ; a=\"x;y\" ;c\r\n" % len(BODY) + BODY +
    b"\r\n0\r\n\r\n", START + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY +
    b"\r\n0\r\nX-Checksum: 5\r\nX-Other:\r\n\r\n",
    START.replace(b"POST /", b"POST http://localhost:8080/") +
    b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    START.replace(b"POST /", b"POST HTTPS://LocalHost/") +
    b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY])
def test_the_rarer_forms_of_http_are_understood(server, data):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ") and b'"content":"hi"' in answer

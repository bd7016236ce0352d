# SPDX-License-Identifier: Apache-2.0
"""Cases 1 to 13: what every endpoint shares."""
import http.client, json, re, socket, urllib.parse

import openai
import pytest

import support
from cases import CHAT, create, form, line, lines, plain, post, refused


def test_case_001_every_answer_has_a_request_id_of_its_own(echo, client):
    """Any 200 and any error carries x-request-id, `req_…`, another one for each request; a client's
    own is echoed."""
    seen = set()
    for method, path in [("GET", "/v1/models"), ("GET", "/v1/nope"), ("GET", "/v1/files?limit=0"),
                         ("PUT", "/v1/files"), ("GET", "/metrics")] * 3:
        _, headers, _ = plain(echo, method, path)
        assert re.fullmatch(r"req_[0-9a-f]{32}", headers["x-request-id"])
        seen.add(headers["x-request-id"])
    assert len(seen) == 15
    assert client.models.list()._request_id.startswith("req_")
    stream = client.chat.completions.create(model="smollm2",
                                            messages=[{"role": "user", "content": "x"}],
                                            stream=True)
    assert stream.response.headers["x-request-id"].startswith("req_")
    stream.close()
    assert plain(echo, "GET", "/health",
                 headers={"X-Request-Id": "trace.1_a-Z"})[1]["x-request-id"] == "trace.1_a-Z"
    for bad in ("a b", "x" * 65, "é", "<script>"):
        assert plain(echo, "GET", "/health",
                     headers={"X-Request-Id": bad.encode()})[1]["x-request-id"].startswith("req_")


def test_case_002_without_a_key_where_one_is_wanted(keyed):
    """A key is configured and none is sent: 401 with the whole envelope."""
    status, headers, data = plain(keyed, "GET", "/v1/models")
    error = json.loads(data)["error"]
    assert (status, error["type"], error["code"], error["param"]) == (401, "invalid_request_error",
                                                                      None, None)
    assert headers["www-authenticate"] == "Bearer" and set(error) == {
        "message", "type", "param", "code"}


def test_case_003_with_a_wrong_key(keyed):
    """A wrong key: 401, code invalid_api_key, in words that LiteLLM takes for an authentication
    error; the right ones work."""
    wrong = openai.OpenAI(base_url=keyed.url, api_key="sk-wrong", max_retries=0)
    error = refused(401, wrong.models.list)
    assert isinstance(error, openai.AuthenticationError) and error.code == "invalid_api_key"
    assert error.response.json()["error"]["message"].startswith("Incorrect API key provided")
    for key in ("sk-right", "sk-other"):
        assert openai.OpenAI(base_url=keyed.url, api_key=key).models.list().data


def test_case_004_without_keys_everybody_may(echo):
    """No key is configured and none is sent: 200; a key that is sent anyway does not matter."""
    assert plain(echo, "GET", "/v1/models")[0] == 200
    assert plain(echo, "GET", "/v1/models", headers={"Authorization": "Bearer whatever"})[0] == 200


def test_case_005_broken_json_is_a_400(echo):
    """A body that is not JSON: 400 invalid_request_error, and the server goes on."""
    status, _, data = plain(echo, "POST", "/v1/batches", '{"a":',
                            {"Content-Type": "application/json"})
    error = json.loads(data)["error"]
    assert (status, error["type"], error["code"], error["param"]) == (400, "invalid_request_error",
                                                                      None, None)
    assert plain(echo, "GET", "/health")[0] == 200


def test_case_006_cancel_has_an_empty_body(echo, client):
    """A cancel with Content-Type JSON and no bytes is no parse error."""
    batch = create(client, lines(1, echo={"delay_ms": 300000}))
    status, _, data = plain(echo, "POST", f"/v1/batches/{batch.id}/cancel", b"",
                            {"Content-Type": "application/json", "Content-Length": "0"})
    assert status == 200 and json.loads(data)["status"] in ("cancelling", "cancelled")


def test_case_007_unknown_routes_are_404_in_json(echo):
    """GET /v1/nope: 404 with the envelope, not HTML."""
    status, headers, data = plain(echo, "GET", "/v1/nope")
    assert status == 404 and headers["content-type"] == "application/json"
    assert set(json.loads(data)["error"]) == {"message", "type", "param", "code"}


def test_case_008_wrong_methods_are_405_in_json(echo):
    """PUT /v1/files: 405 with the envelope and Allow; OPTIONS says the same, HEAD is GET without
    its body."""
    status, headers, data = plain(echo, "PUT", "/v1/files")
    assert status == 405 and {"GET", "POST"} <= set(headers["allow"].split(", "))
    assert json.loads(data)["error"]["type"] == "invalid_request_error"
    status, headers, data = plain(echo, "OPTIONS", "/v1/files")
    assert (status, data) == (204, b"") and {"GET", "HEAD", "POST", "OPTIONS"} == set(
        headers["allow"].split(", "))
    assert plain(echo, "OPTIONS", "/v1/nope")[0] == 404
    head, get = plain(echo, "HEAD", "/v1/models"), plain(echo, "GET", "/v1/models")
    assert head[0] == get[0] == 200 and head[2] == b"" and head[1]["content-length"] == str(
        len(get[2]))


def test_case_009_chunked_uploads_are_the_same_files(echo):
    """A chunked multipart upload gives the same File as one with Content-Length."""
    body, headers = form(("purpose", b"batch"), ("file", lines(3), "x.jsonl"))
    whole = plain(echo, "POST", "/v1/files", body, headers)
    chunked = plain(echo, "POST", "/v1/files", iter([body[:10], body[10:11], body[11:]]), headers)
    first, second = json.loads(whole[2]), json.loads(chunked[2])
    for key in ("bytes", "filename", "purpose", "status", "object"):
        assert first[key] == second[key]
    contents = [
        plain(echo, "GET", f"/v1/files/{file['id']}/content")[2] for file in (first, second)]
    assert contents[0] == contents[1] == lines(3)


def test_case_010_expect_100_continue_is_answered(echo):
    """Expect: 100-continue gets `100 Continue`, and the upload then 200."""
    body, headers = form(("purpose", b"batch"), ("file", lines(1), "x.jsonl"))
    with socket.create_connection(("127.0.0.1", echo.port), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
            % (headers["Content-Type"].encode(), len(body)))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_case_011_a_connection_serves_many_requests(echo):
    """100 requests one after another on one socket are all served."""
    connection = http.client.HTTPConnection("127.0.0.1", echo.port, timeout=60)
    connection.connect()
    own = connection.sock.getsockname()
    for _ in range(100):
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200 and connection.sock.getsockname() == own
    connection.close()


def test_case_012_unknown_fields_are_ignored(echo, client):
    """An unknown top-level field of any JSON body is ignored."""
    assert create(client, lines(1), extra_body={"unknown": {"a": [1]}}).id.startswith("batch_")
    extra = {"unknown": None, "other": [1]}
    assert client.chat.completions.create(model="smollm2",
                                          messages=[{"role": "user", "content": "x"}],
                                          extra_body=extra).choices
    assert client.completions.create(model="smollm2", prompt="x", extra_body=extra).choices
    made = {"bytes": 1, "filename": "x", "mime_type": "text/plain", "purpose": "user_data"}
    status, upload = post(echo, "/v1/uploads", {**made, **extra})
    assert status == 200
    assert post(echo, f"/v1/uploads/{upload['id']}/complete",
                {"part_ids": [], **extra})[0] == 400  # for its bytes, not its fields


def test_case_013_model_ids_with_a_slash(echo, client):
    """GET /v1/models/org%2Fname and …/org/name give the same object; a trailing slash makes no
    difference."""
    name = "org/name x"
    encoded = plain(echo, "GET", "/v1/models/" + urllib.parse.quote(name, safe=""))
    raw = plain(echo, "GET", "/v1/models/org/name%20x")
    assert encoded[0] == raw[0] == 200 and encoded[2] == raw[2] and json.loads(raw[2])["id"] == name
    assert client.models.retrieve(name).id == name
    assert plain(echo, "GET", "/v1/models/")[2] == plain(echo, "GET", "/v1/models")[2]
    assert plain(echo, "GET", "/v1/files/?limit=1")[0] == 200

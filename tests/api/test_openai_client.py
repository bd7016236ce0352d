# SPDX-License-Identifier: Apache-2.0
"""The wire contract, seen through the real `openai` Python client (3.x) and plain HTTP.

Test names carry the number of the contract's conformance case. QUERN_BASE_URL points to a running
server, such as tests/unit/api/api_server, e.g. http://127.0.0.1:8000; it needs no model beyond one
that answers (QUERN_MODEL, default: the first one listed). QUERN_API_KEY is the key it wants, if any.
Run: pytest tests/api/test_openai_client.py (needs the packages openai and pytest)."""

import asyncio
import http.client
import io
import json
import os
import re
import socket
import time
import urllib.parse
import uuid

import openai
import pytest

BASE = os.environ.get("QUERN_BASE_URL", "")
KEY = os.environ.get("QUERN_API_KEY", "none")
LINE = b'{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":{"model":"%s","messages":[{"role":"user","content":"%s"}]}}\n'

pytestmark = pytest.mark.skipif(not BASE, reason="QUERN_BASE_URL is not set")


@pytest.fixture(scope="session")
def client():
    return openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=60)


@pytest.fixture(scope="session")
def model(client):
    return os.environ.get("QUERN_MODEL") or client.models.list().data[0].id


def plain(method, path, body=None, headers=None):
    """One request without a client library: (status, headers, body)."""
    url = urllib.parse.urlsplit(BASE)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    connection.request(method, path, body, {"Authorization": "Bearer " + KEY, **(headers or {})})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data


def post_json(path, value, headers=None):
    status, _, data = plain("POST", path, json.dumps(value), {"Content-Type": "application/json", **(headers or {})})
    return status, json.loads(data)


def refused(status, call, *arguments, **named):
    with pytest.raises(openai.APIStatusError) as caught:
        call(*arguments, **named)
    assert caught.value.status_code == status, caught.value
    assert re.fullmatch(r"req_[0-9a-f]{32}", caught.value.request_id)
    body = caught.value.response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    return caught.value


def lines(model, count, start=0):
    return b"".join(LINE % (b"id-%d" % i, model.encode(), b"text %d" % i) for i in range(start, start + count))


def upload(client, content, purpose="batch"):
    return client.files.create(file=("in.jsonl", content), purpose=purpose)


def create(client, file_id, **named):
    named.setdefault("endpoint", "/v1/chat/completions")
    named.setdefault("completion_window", "24h")
    return client.batches.create(input_file_id=file_id, **named)


def wait(client, batch_id, limit_s=60):
    end = time.monotonic() + limit_s
    while True:
        batch = client.batches.retrieve(batch_id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        assert time.monotonic() < end, batch
        time.sleep(0.02)


def run(client, content, **named):
    return wait(client, create(client, upload(client, content).id, **named).id)


def result_lines(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


# --- transport ---

def test_001_every_answer_has_its_own_request_id(client):
    seen = set()
    for path in ("/health", "/version", "/v1/models", "/v1/nope", "/v1/files?limit=0", "/metrics") * 3:
        _, headers, _ = plain("GET", path)
        assert re.fullmatch(r"req_[0-9a-f]{32}", headers["x-request-id"])
        seen.add(headers["x-request-id"])
    assert len(seen) == 18
    assert client.models.list()._request_id.startswith("req_")


@pytest.mark.skipif(KEY == "none", reason="the server has no keys")
def test_002_003_keys_are_asked_for():
    wrong = openai.OpenAI(base_url=BASE + "/v1", api_key="wrong", max_retries=0)
    error = refused(401, wrong.models.list)
    assert isinstance(error, openai.AuthenticationError) and error.code == "invalid_api_key"
    url = urllib.parse.urlsplit(BASE)
    connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.request("GET", "/v1/models")
    answer = connection.getresponse()
    body = json.loads(answer.read())["error"]
    assert answer.status == 401 and body["code"] is None and body["type"] == "invalid_request_error"
    for path in ("/health", "/ready", "/version"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200


@pytest.mark.skipif(KEY != "none", reason="the server has keys")
def test_004_without_keys_everybody_may():
    url = urllib.parse.urlsplit(BASE)
    connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.request("GET", "/v1/models")
    assert connection.getresponse().status == 200


def test_005_broken_json_is_a_400():
    status, _, data = plain("POST", "/v1/batches", '{"a":', {"Content-Type": "application/json"})
    error = json.loads(data)["error"]
    assert status == 400 and error["type"] == "invalid_request_error"
    assert error["code"] is None and error["param"] is None
    assert plain("GET", "/health")[0] == 200


def test_006_cancel_needs_no_body(client):
    error = refused(404, client.batches.cancel, "batch_0")
    assert "No batch found with id 'batch_0'." in error.message


def test_007_unknown_routes_are_404_in_the_envelope():
    status, headers, data = plain("GET", "/v1/nope")
    assert status == 404 and headers["content-type"] == "application/json"
    assert set(json.loads(data)["error"]) == {"message", "type", "param", "code"}


def test_008_wrong_methods_are_405_in_the_envelope():
    status, headers, data = plain("PUT", "/v1/files")
    assert status == 405 and set(headers["allow"].split(", ")) == {"GET", "POST"}
    assert json.loads(data)["error"]["type"] == "invalid_request_error"


def multipart(parts):
    body = b""
    for name, content, filename in parts:
        body += b'--BOUND\r\nContent-Disposition: form-data; name="%s"' % name.encode()
        body += b'; filename="%s"' % filename.encode() if filename else b""
        body += b"\r\n\r\n" + content + b"\r\n"
    return body + b"--BOUND--\r\n", {"Content-Type": "multipart/form-data; boundary=BOUND"}


def test_009_chunked_uploads_are_the_same_files(model):
    body, headers = multipart([("purpose", b"batch", None), ("file", lines(model, 3), "x.jsonl")])
    whole = plain("POST", "/v1/files", body, headers)
    chunked = plain("POST", "/v1/files", iter([body[:10], body[10:11], body[11:]]), headers)
    assert whole[0] == chunked[0] == 200
    first, second = json.loads(whole[2]), json.loads(chunked[2])
    for key in ("bytes", "filename", "purpose", "status", "object"):
        assert first[key] == second[key]


def test_010_expect_100_continue_is_answered(model):
    body, headers = multipart([("purpose", b"batch", None), ("file", lines(model, 1), "x.jsonl")])
    url = urllib.parse.urlsplit(BASE)
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.sendall(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\n"
                           b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n"
                           % (KEY.encode(), headers["Content-Type"].encode(), len(body)))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_011_one_connection_serves_many_requests():
    url = urllib.parse.urlsplit(BASE)
    connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.connect()
    own_port = connection.sock.getsockname()
    for _ in range(100):
        connection.request("GET", "/v1/models", headers={"Authorization": "Bearer " + KEY})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200 and connection.sock.getsockname() == own_port


def test_012_unknown_fields_are_ignored(client, model):
    batch = create(client, upload(client, lines(model, 1)).id, extra_body={"unknown": {"a": [1]}})
    assert batch.id.startswith("batch_")
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}],
                                            extra_body={"unknown": None, "other": 1})
    assert answer.choices


def test_013_model_ids_with_a_slash_are_found_both_ways(client):
    names = [entry.id for entry in client.models.list().data if "/" in entry.id]
    if not names:
        pytest.skip("no model with a slash in its name")
    encoded = plain("GET", "/v1/models/" + urllib.parse.quote(names[0], safe=""))
    raw = plain("GET", "/v1/models/" + names[0])
    assert encoded[0] == raw[0] == 200 and encoded[2] == raw[2]
    assert client.models.retrieve(names[0]).id == names[0]


def test_trailing_slashes_make_no_difference():
    assert plain("GET", "/v1/models/")[2] == plain("GET", "/v1/models")[2]


# --- files ---

def test_014_an_uploaded_file_is_described_exactly(client, model, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(lines(model, 5))
    with open(path, "rb") as opened:
        file = client.files.create(file=opened, purpose="batch")
    assert re.fullmatch(r"file-[0-9A-Za-z]{22}", file.id)
    assert (file.bytes, file.status, file.filename, file.purpose) == (path.stat().st_size, "processed", "x.jsonl", "batch")
    assert file.expires_at == file.created_at + 2592000 and file.object == "file" and file.status_details is None
    assert client.files.wait_for_processing(file.id).id == file.id


def test_015_bytes_without_a_name_are_fine(client):
    file = client.files.create(file=b"{}\n", purpose="batch")
    assert file.filename == "upload"
    assert client.files.create(file=io.BytesIO(b"{}\n"), purpose="batch").bytes == 3


def test_016_parts_come_in_any_order(model):
    body, headers = multipart([("file", lines(model, 1), "x.jsonl"), ("purpose", b"batch", None)])
    assert plain("POST", "/v1/files", body, headers)[0] == 200


def test_017_expires_after_sets_the_expiry(client):
    file = client.files.create(file=b"{}\n", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert file.expires_at == file.created_at + 3600
    assert upload(client, b"x", "user_data").expires_at is None


@pytest.mark.parametrize("expiry", [{"anchor": "created_at", "seconds": 3599}, {"anchor": "created_at", "seconds": 2592001},
                                    {"anchor": "last_used", "seconds": 3600}, {"anchor": "created_at", "seconds": "x"}])
def test_018_019_bad_expiries_are_refused(client, expiry):
    error = refused(400, client.files.create, file=b"{}\n", purpose="batch", expires_after=expiry)
    assert "expires_after" in error.param and "expires_after" in str(error)


def test_020_a_purpose_is_required():
    body, headers = multipart([("file", b"{}\n", "x")])
    status, _, data = plain("POST", "/v1/files", body, headers)
    error = json.loads(data)["error"]
    assert (status, error["code"], error["param"]) == (400, "missing_required_parameter", "purpose")


def test_021_purposes_are_from_a_list(client):
    error = refused(400, client.files.create, file=b"{}\n", purpose="banana")
    assert error.code == "invalid_value" and "banana" in str(error)
    refused(400, client.files.create, file=b"{}\n", purpose="batch_output")


def test_022_a_file_is_required():
    body, headers = multipart([("purpose", b"batch", None)])
    status, _, data = plain("POST", "/v1/files", body, headers)
    assert status == 400 and json.loads(data)["error"]["param"] == "file"


@pytest.mark.parametrize("content", [b"", b"{malformed\n", b"\n\n{malformed\n", b"\xff\xfe\n"])
def test_023_024_what_is_not_jsonl_is_refused_for_batches(client, content):
    error = refused(400, upload, client, content)
    assert "Invalid file format" in str(error) and "jsonl" in str(error)


def test_025_a_bad_second_line_is_accepted_here(client, model):
    assert upload(client, lines(model, 1) + b"{broken\n").id


def test_027_almost_the_boundary_is_stored_exactly():
    content = b"\r\n--BOUN\r\n--BOUN--\r\n--BOUNd" + b"\r\n-" * 100
    body, headers = multipart([("purpose", b"user_data", None), ("file", content, "x")])
    file = json.loads(plain("POST", "/v1/files", body, headers)[2])
    assert plain("GET", f"/v1/files/{file['id']}/content")[2] == content


def test_028_an_aborted_upload_leaves_nothing(client):
    before = [file.id for file in client.files.list()]
    url = urllib.parse.urlsplit(BASE)
    for _ in range(5):
        with socket.create_connection((url.hostname, url.port)) as connection:
            body, headers = multipart([("purpose", b"user_data", None), ("file", b"x" * 100000, "x")])
            connection.sendall(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
                               % (KEY.encode(), headers["Content-Type"].encode(), len(body)) + body[:50000])
    time.sleep(0.3)
    assert [file.id for file in client.files.list()] == before


def test_029_any_bytes_come_back_exactly(client):
    content = bytes(range(256)) * 300 + b"\r\n\0\r\n" + os.urandom(70000)
    file = upload(client, content, "user_data")
    assert client.files.content(file.id).read() == content
    status, headers, _ = plain("GET", f"/v1/files/{file.id}/content")
    assert status == 200 and headers["content-type"] == "application/octet-stream"
    assert headers["content-length"] == str(len(content)) and headers["content-disposition"].startswith("attachment")


def test_030_unknown_files_are_404(client):
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        error = refused(404, call, "file-x")
        assert isinstance(error, openai.NotFoundError) and "No such File object: file-x" in str(error)
        assert error.param == "id"


def test_031_a_deleted_file_is_gone(client):
    file = upload(client, b"x", "user_data")
    deleted = client.files.delete(file.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (file.id, "file", True)
    refused(404, client.files.retrieve, file.id)
    refused(404, client.files.content, file.id)
    refused(404, client.files.delete, file.id)
    assert file.id not in [entry.id for entry in client.files.list()]


def test_032_pages_never_skip_or_repeat(client):
    made = [upload(client, b"x", "vision").id for _ in range(5)]
    page = client.files.list(purpose="vision", limit=2)
    assert len(page.data) == 2 and page.has_more is True
    assert (page.first_id, page.last_id) == (page.data[0].id, page.data[1].id)
    everything = [file.id for file in client.files.list(purpose="vision", limit=2)]
    assert len(everything) == len(set(everything)) and everything[:5] == made[::-1]
    for file_id in everything:
        client.files.delete(file_id)


def test_033_ascending_is_descending_reversed(client):
    for _ in range(3):
        upload(client, b"x", "user_data")
    down = [file.id for file in client.files.list(order="desc")]
    assert [file.id for file in client.files.list(order="asc")] == down[::-1]
    refused(400, client.files.list, order="sideways")


def test_034_lists_filter_by_purpose(client, model):
    run(client, lines(model, 1))
    purposes = {file.purpose for file in client.files.list(purpose="batch_output")}
    assert purposes == {"batch_output"}


@pytest.mark.parametrize("limit", ["0", "10001", "x", "-1", "1.5", "99999999999999999999"])
def test_035_limits_are_checked(limit):
    status, _, data = plain("GET", "/v1/files?limit=" + limit)
    assert status == 400 and json.loads(data)["error"]["param"] == "limit"


def test_036_an_empty_list_has_every_key():
    status, _, data = plain("GET", "/v1/files?purpose=fine-tune-results")
    assert status == 200
    assert json.loads(data) == {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}


def test_037_an_unknown_cursor_is_refused(client):
    error = refused(400, client.files.list, after="file-nope")
    assert (error.code, error.param) == ("invalid_value", "after")


def test_039_ranges_and_entity_tags_are_obeyed(client):
    content = os.urandom(100000)
    path = f"/v1/files/{upload(client, content, 'user_data').id}/content"
    status, headers, data = plain("GET", path, headers={"Range": "bytes=0-9"})
    assert (status, data) == (206, content[:10]) and headers["content-range"] == "bytes 0-9/100000"
    assert plain("GET", path, headers={"Range": "bytes=99990-"})[2] == content[-10:]
    status, headers, data = plain("GET", path, headers={"Range": "bytes=100000-"})
    assert status == 416 and headers["content-range"] == "bytes */100000"
    etag = plain("GET", path)[1]["etag"]
    assert plain("GET", path, headers={"If-None-Match": etag})[0] == 304


# --- batches ---

def test_048_a_created_batch_has_every_key(client, model):
    status, batch = post_json("/v1/batches", {"input_file_id": upload(client, lines(model, 1)).id,
                                              "endpoint": "/v1/chat/completions", "completion_window": "24h"})
    assert status == 200
    assert set(batch) >= {"id", "object", "endpoint", "input_file_id", "completion_window", "status", "created_at", "model",
                          "errors", "output_file_id", "error_file_id", "in_progress_at", "finalizing_at", "completed_at",
                          "failed_at", "expired_at", "cancelling_at", "cancelled_at", "expires_at", "request_counts",
                          "usage", "metadata"}
    assert re.fullmatch(r"batch_[0-9a-f]{32}", batch["id"]) and batch["object"] == "batch"
    assert batch["expires_at"] == batch["created_at"] + 86400
    assert set(batch["request_counts"]) == {"total", "completed", "failed"}


def test_049_metadata_may_be_absent_or_null(client, model):
    file_id = upload(client, lines(model, 1)).id
    assert create(client, file_id).metadata is None
    assert create(client, file_id, metadata=None).metadata is None


def test_050_metadata_is_echoed_exactly(client, model):
    metadata = {"k%02d" % i + "é" * 61: "ü" * 512 for i in range(16)}
    batch = create(client, upload(client, lines(model, 1)).id, metadata=metadata)
    assert batch.metadata == metadata
    assert client.batches.retrieve(batch.id).metadata == metadata


@pytest.mark.parametrize("metadata", [{str(i): "x" for i in range(17)}, {"k" * 65: "x"}, {"k": "x" * 513}])
def test_051_metadata_has_limits(client, model, metadata):
    assert "metadata" in str(refused(400, create, client, "file-x", metadata=metadata))


def test_052_metadata_values_are_strings(client):
    error = refused(400, create, client, "file-x", metadata={"tags": ["a"]})
    assert (error.code, error.param) == ("invalid_type", "metadata.tags")


def test_053_endpoints_are_from_a_list(client):
    error = refused(400, create, client, "file-x", endpoint="/v1/invalid/endpoint")
    assert error.code == "invalid_value"
    assert "/v1/invalid/endpoint" in str(error) and "Supported values" in str(error)


@pytest.mark.parametrize("window", ["1h", "48h", "invalid", ""])
def test_054_the_window_is_24h(client, window):
    assert "completion_window" in str(refused(400, create, client, "file-x", completion_window=window))


def test_055_an_input_file_is_required():
    status, body = post_json("/v1/batches", {"endpoint": "/v1/chat/completions", "completion_window": "24h"})
    assert (status, body["error"]["code"], body["error"]["param"]) == (400, "missing_required_parameter", "input_file_id")


def test_056_an_unknown_input_file_fails_the_batch(client):
    batch = wait(client, create(client, "file-unknown").id)
    assert batch.status == "failed" and len(batch.errors.data) == 1
    error = batch.errors.data[0]
    assert error.code == "invalid_request" and error.line is None and "Cannot find file" in error.message


def test_057_a_file_of_another_purpose_fails_the_batch(client, model):
    file = upload(client, lines(model, 1), "user_data")
    batch = wait(client, create(client, file.id).id)
    assert batch.status == "failed" and len(batch.errors.data) == 1


def test_058_result_files_expire_when_asked(client, model):
    batch = run(client, lines(model, 1), extra_body={"output_expires_after": {"anchor": "created_at", "seconds": 3600}})
    file = client.files.retrieve(batch.output_file_id)
    assert file.expires_at == file.created_at + 3600


def test_059_an_idempotency_key_makes_one_batch(client, model):
    file_id = upload(client, lines(model, 1)).id
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    first = create(client, file_id, extra_headers=headers)
    assert create(client, file_id, extra_headers=headers).id == first.id
    error = refused(409, create, client, file_id, metadata={"a": "b"}, extra_headers=headers)
    assert "conflict" in str(error).lower() and error.response.headers["x-should-retry"] == "false"


def test_060_output_expiry_has_limits(client):
    refused(400, create, client, "file-x", extra_body={"output_expires_after": {"anchor": "created_at", "seconds": 10}})


# --- execution and results ---

def test_081_082_good_lines_complete(client, model):
    batch = run(client, lines(model, 3))
    assert batch.status == "completed" and batch.error_file_id is None
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    results = result_lines(client, batch.output_file_id)
    assert sorted(line["custom_id"] for line in results) == ["id-0", "id-1", "id-2"]
    live = client.chat.completions.with_raw_response.create(model=model, messages=[{"role": "user", "content": "text 0"}])
    shape = set(json.loads(live.text))
    for line in results:
        assert set(line) == {"id", "custom_id", "response", "error"}
        assert line["id"].startswith("batch_req_") and line["error"] is None
        assert line["response"]["status_code"] == 200 and set(line["response"]["body"]) == shape


def test_085_every_custom_id_comes_back_once(client, model):
    batch = run(client, lines(model, 10000))
    results = result_lines(client, batch.output_file_id)
    assert len(results) == batch.request_counts.completed == batch.request_counts.total == 10000
    assert {line["custom_id"] for line in results} == {"id-%d" % i for i in range(10000)}


def test_086_custom_ids_are_echoed(client, model):
    ids = ["😀", 'a"b', "back\\slash", "x" * 512, " spaced ", "é"]
    content = "".join(json.dumps({"custom_id": i, "method": "POST", "url": "/v1/chat/completions",
                                  "body": {"model": model, "messages": [{"role": "user", "content": "x"}]}}) + "\n" for i in ids)
    batch = run(client, content.encode())
    assert sorted(line["custom_id"] for line in result_lines(client, batch.output_file_id)) == sorted(ids)


def test_087_separators_inside_text_do_not_split_records(client, model):
    text = "a\u2028b\u2029c\u0085d"
    content = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
                          "body": {"model": model, "messages": [{"role": "user", "content": text}]}}, ensure_ascii=False)
    batch = run(client, content.encode() + b"\n")
    assert len(client.files.content(batch.output_file_id).text.splitlines()) == 1


def test_088_089_batch_and_interactive_agree(client, model):
    batch = run(client, lines(model, 4))
    results = result_lines(client, batch.output_file_id)
    for line in results:
        live = client.chat.completions.create(model=model, messages=[{"role": "user", "content": line["custom_id"].replace("id-", "text ")}])
        assert line["response"]["body"]["choices"][0]["message"]["content"] == live.choices[0].message.content
    usage = [line["response"]["body"]["usage"] for line in results]
    assert batch.usage.input_tokens == sum(entry["prompt_tokens"] for entry in usage)
    assert batch.usage.output_tokens == sum(entry["completion_tokens"] for entry in usage)
    assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens


def test_090_091_092_polls_are_consistent(client, model):
    batch = create(client, upload(client, lines(model, 3000)).id)
    last = (0, 0)
    while True:
        batch = client.batches.retrieve(batch.id)
        counts = batch.request_counts
        assert counts.completed + counts.failed <= counts.total or counts.total == 0
        assert (counts.completed, counts.failed) >= last
        last = (counts.completed, counts.failed)
        if batch.status == "completed":
            break
        assert batch.output_file_id is None and batch.error_file_id is None
        time.sleep(0.05)
    content = client.files.content(batch.output_file_id).read()
    assert content.count(b"\n") == 3000 and content.endswith(b"\n")
    file = client.files.retrieve(batch.output_file_id)
    assert (file.purpose, file.bytes, file.filename) == ("batch_output", len(content), batch.id + "_output.jsonl")


def test_102_a_completed_batch_cannot_be_cancelled(client, model):
    batch = run(client, lines(model, 1))
    error = refused(409, client.batches.cancel, batch.id)
    assert "Cannot cancel a batch with status 'completed'." in str(error)
    assert error.response.headers["x-should-retry"] == "false"


# --- lists ---

def test_114_115_116_batch_lists_page_newest_first(client, model):
    file_id = upload(client, lines(model, 1)).id
    made = [create(client, file_id).id for _ in range(25)]
    page = client.batches.list()
    assert [batch.id for batch in page.data] == made[::-1][:20] and page.has_more is True
    iterated = []
    for batch in client.batches.list():
        iterated.append(batch.id)
        if len(iterated) == 25:
            break
    assert iterated == made[::-1]
    refused(400, client.batches.list, limit=101)
    refused(400, client.batches.list, limit=0)
    refused(400, client.batches.list, after="batch_nope")
    oldest = [batch.id for batch in client.batches.list(limit=100)][-1]
    page = client.batches.list(after=oldest)
    assert page.data == [] and page.has_more is False


# --- chat, completions, models ---

def test_130_a_stream_carries_the_text_of_the_plain_answer(client, model):
    messages = [{"role": "user", "content": "hello stream é😀"}]
    plain_answer = client.chat.completions.create(model=model, messages=messages, temperature=0)
    chunks = list(client.chat.completions.create(model=model, messages=messages, temperature=0, stream=True))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == plain_answer.choices[0].message.content
    assert len({chunk.id for chunk in chunks}) == 1
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] in ("stop", "length")
    status, headers, data = plain("POST", "/v1/chat/completions", json.dumps({"model": model, "messages": messages, "stream": True}),
                                  {"Content-Type": "application/json"})
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache" and data.endswith(b"data: [DONE]\n\n")
    assert all(event.startswith(b"data: ") or event.startswith(b":") for event in data.split(b"\n\n")[:-1])


def test_136_an_unknown_model_is_404(client):
    messages = [{"role": "user", "content": "x"}]
    for stream in (False, True):
        error = refused(404, client.chat.completions.create, model="nope", messages=messages, stream=stream)
        assert (error.code, error.param) == ("model_not_found", "model") and "nope" in str(error)
    assert refused(404, client.completions.create, model="nope", prompt="x").code == "model_not_found"
    assert refused(404, client.models.retrieve, "nope").code == "model_not_found"


def test_137_messages_may_not_be_empty(client, model):
    if os.environ.get("QUERN_ECHO") or model == "echo":
        pytest.skip("the echo worker checks nothing")
    refused(400, client.chat.completions.create, model=model, messages=[])


def test_140_stream_options_need_stream(client, model):
    error = refused(400, client.chat.completions.create, model=model, messages=[{"role": "user", "content": "x"}],
                    extra_body={"stream_options": {"include_usage": True}})
    assert error.param == "stream_options"


@pytest.mark.parametrize("body,param", [({"messages": []}, "model"), ({"model": 7}, "model"), ({"model": None}, "model")])
def test_a_model_is_required(body, param):
    for path in ("/v1/chat/completions", "/v1/completions"):
        status, answer = post_json(path, body)
        assert (status, answer["error"]["param"]) == (400, param)


def test_stream_is_a_boolean(model):
    status, answer = post_json("/v1/chat/completions", {"model": model, "messages": [], "stream": "yes"})
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_type", "stream")


def test_completions_answer(client, model):
    answer = client.completions.create(model=model, prompt="abc")
    assert answer.object == "text_completion" and answer.choices[0].index == 0


def test_models_are_listed_with_their_aliases(client, model):
    listed = client.models.list().data
    assert model in [entry.id for entry in listed]
    for entry in listed:
        assert entry.object == "model" and entry.owned_by and hasattr(entry, "max_model_len")
        assert client.models.retrieve(entry.id).id == entry.id
        messages = [{"role": "user", "content": "x"}]
        assert client.chat.completions.create(model=entry.id, messages=messages).choices


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/uploads"])
def test_endpoints_that_are_not_there_say_so(path):
    status, answer = post_json(path, {"model": "x"})
    assert status in (400, 404) and answer["error"]["code"] in ("unsupported_endpoint", None)


def test_health_version_and_metrics():
    assert plain("GET", "/health")[0] == plain("GET", "/ping")[0] == plain("GET", "/ready")[0] == 200
    assert json.loads(plain("GET", "/version")[2])["version"]
    status, headers, data = plain("GET", "/metrics")
    assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples, types = {}, {}
    for line in data.decode().splitlines():
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name not in types and kind in ("counter", "gauge")
            types[name] = kind
        elif not line.startswith("#"):
            key, value = line.rsplit(" ", 1)
            assert key not in samples
            samples[key] = float(value)
            name = key.split("{")[0]
            assert re.fullmatch(r"(quern|process)_[a-z_]+", name) and name in types
            assert types[name] != "counter" or name.endswith("_total")
    assert 'quern_batches{status="in_progress"}' in samples
    assert 'quern_requests_total{endpoint="score",outcome="expired"}' in samples
    assert samples["process_resident_memory_bytes"] > 0


def test_the_async_client_works_many_at_a_time(model):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0) as client:
            async def chat(number):
                messages = [{"role": "user", "content": f"number {number}"}]
                answer = await client.chat.completions.create(model=model, messages=messages)
                stream = await client.chat.completions.create(model=model, messages=messages, stream=True)
                text = "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])
                return answer.choices[0].message.content == text
            file = await client.files.create(file=b"{}\n", purpose="batch")
            listed = [entry.id async for entry in client.files.list(limit=3)]
            assert file.id in listed and len(listed) == len(set(listed))
            return await asyncio.gather(*(chat(number) for number in range(60)))
    assert all(asyncio.run(all_of_them()))


def test_streams_can_be_left_half_way(client, model):
    for _ in range(10):
        stream = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}], stream=True)
        next(iter(stream))
        stream.close()
    assert plain("GET", "/health")[0] == 200

# SPDX-License-Identifier: Apache-2.0
"""Cases 14 to 40: the Files API."""
import io, json, os, pathlib, re, socket

import openai
import pytest

import support
from cases import form, lines, plain, poll, refused, rewrite, serving, upload


def send(server, *parts):
    body, headers = form(*parts)
    status, _, data = plain(server, "POST", "/v1/files", body, headers)
    return status, json.loads(data)


def test_case_014_an_uploaded_file_is_described_exactly(client, tmp_path):
    """An open file with purpose batch: bytes, name, status processed, expiry after 30 days."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(lines(5))
    with open(path, "rb") as opened:
        file = client.files.create(file=opened, purpose="batch")
    assert re.fullmatch(r"file-[0-9A-Za-z]{22}", file.id)
    assert (file.bytes, file.status, file.filename,
            file.purpose) == (path.stat().st_size, "processed", "x.jsonl", "batch")
    assert file.expires_at == file.created_at + 2592000
    assert file.object == "file" and file.status_details is None
    assert client.files.retrieve(file.id) == file and client.files.wait_for_processing(
        file.id).id == file.id


def test_case_015_bytes_without_a_name(client):
    """Bytes and BytesIO come with the file name `upload`: 200."""
    assert client.files.create(file=b"{}\n", purpose="batch").filename == "upload"
    assert client.files.create(file=io.BytesIO(b"{}\n"), purpose="batch").bytes == 3


def test_case_016_parts_in_any_order(echo):
    """The file before the purpose gives the same as the purpose before the file."""
    first = send(echo, ("purpose", b"batch"), ("file", lines(2), "x.jsonl"))
    second = send(echo, ("file", lines(2), "x.jsonl"), ("purpose", b"batch"))
    assert first[0] == second[0] == 200
    assert {**first[1], "id": 0, "created_at": 0,
            "expires_at": 0} == {**second[1], "id": 0, "created_at": 0, "expires_at": 0}


def test_case_017_expires_after_sets_the_expiry(client, echo):
    """expires_after of 3600 seconds: expires_at is created_at + 3600, for any purpose, also as one
    part of JSON."""
    for purpose in ("batch", "user_data"):
        file = client.files.create(file=b"{}\n",
                                   purpose=purpose,
                                   expires_after={"anchor": "created_at", "seconds": 3600})
        assert file.expires_at == file.created_at + 3600
    assert upload(client, b"x", "user_data").expires_at is None
    own = ("purpose", b"batch"), ("file", lines(2), "x.jsonl")
    for parts in ([("expires_after", b' {"seconds": 3600, "anchor": "created_at"}\n')],
                  [("expires_after.anchor", b"created_at"), ("expires_after.seconds", b"3600")]):
        status, file = send(echo, *parts, *own)
        assert status == 200 and file["expires_at"] == file["created_at"] + 3600
    for empty in (b"", b"null"):
        status, file = send(echo, ("expires_after", empty), *own)
        assert status == 200 and file["expires_at"] == file["created_at"] + 2592000
    for wrong, param in ((b"3600", "expires_after"), (b"[]", "expires_after"),
                         (b'{"anchor": "created_at"', "expires_after"),
                         (b"{}", "expires_after.anchor"), (b'{"anchor": "created_at"}',
                                                           "expires_after.seconds"),
                         (b'{"anchor": "created_at", "seconds": "3600"}', "expires_after.seconds"),
                         (b'{"anchor": "created_at", "seconds": 10}', "expires_after.seconds"),
                         (b'{"anchor": 7, "seconds": 3600}', "expires_after.anchor")):
        status, answer = send(echo, ("expires_after", wrong), *own)
        assert (status, answer["error"]["param"]) == (400, param), wrong
    status, answer = send(echo, ("expires_after", b'{"anchor": "created_at", "seconds": 3600}'),
                          ("expires_after[seconds]", b"7200"), *own)
    assert (status, answer["error"]["param"]) == (400, "expires_after")


def test_case_018_expiries_out_of_range(client):
    """3599 or 2592001 seconds: 400 that names expires_after; the bounds themselves are fine."""
    for seconds in (3599, 2592001, -1, "x"):
        error = refused(400,
                        client.files.create,
                        file=b"{}\n",
                        purpose="batch",
                        expires_after={"anchor": "created_at", "seconds": seconds})
        assert "expires_after" in error.param and "expires_after" in str(error)
    for seconds in (3600, 2592000):
        assert client.files.create(file=b"{}\n",
                                   purpose="batch",
                                   expires_after={"anchor": "created_at", "seconds": seconds}).id


def test_case_019_expiry_anchors(client):
    """The anchor last_used: 400."""
    error = refused(400,
                    client.files.create,
                    file=b"{}\n",
                    purpose="batch",
                    expires_after={"anchor": "last_used", "seconds": 3600})
    assert error.code == "invalid_value" and "last_used" in str(error)


def test_case_020_a_purpose_is_required(echo):
    """No purpose: 400 missing_required_parameter, param purpose."""
    status, answer = send(echo, ("file", b"{}\n", "x"))
    assert (status, answer["error"]["code"],
            answer["error"]["param"]) == (400, "missing_required_parameter", "purpose")


def test_case_021_purposes_are_from_a_list(client):
    """Purpose banana: 400 invalid_value; batch_output is the server's own."""
    error = refused(400, client.files.create, file=b"{}\n", purpose="banana")
    assert error.code == "invalid_value" and error.param == "purpose" and "banana" in str(error)
    refused(400, client.files.create, file=b"{}\n", purpose="batch_output")


def test_case_022_a_file_is_required(echo):
    """No file: 400, param file."""
    status, answer = send(echo, ("purpose", b"batch"))
    assert (status, answer["error"]["param"]) == (400, "file")


def test_case_023_an_empty_file_is_no_batch(client):
    """Zero bytes with purpose batch: 400 that says Invalid file format and jsonl."""
    error = refused(400, upload, client, b"")
    assert "Invalid file format" in str(error) and "jsonl" in str(error)
    assert upload(client, b"", "user_data").bytes == 0


def test_case_024_a_first_line_that_is_not_json(client):
    """A first line that cannot be parsed: 400 likewise, also behind blank lines or in another
    encoding."""
    for content in (b"{malformed\n", b"\n\n{malformed\n", b"\xff\xfe\n"):
        error = refused(400, upload, client, content)
        assert "Invalid file format" in str(error) and "jsonl" in str(error)


def test_case_025_a_broken_second_line_is_accepted_here(client):
    """A good first line and a broken second: 200; the batch reports it (case 62)."""
    assert upload(client, lines(1) + b"{broken\n").status == "processed"


def test_case_026_a_file_over_the_limit(small):
    """Over the size limit: 413, no temporary file left, and the server goes on; a declared length
    is refused at once."""
    status, answer = send(small, ("purpose", b"user_data"), ("file", b"x" * 100001, "x"))
    assert (status, answer["error"]["type"]) == (
        413, "invalid_request_error") and "100000" in answer["error"]["message"]
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: 9000000000\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")
    poll(lambda: not list((small.state / "tmp").iterdir()))
    assert send(small, ("purpose", b"user_data"),
                ("file", b"x" * 100000, "x"))[1]["bytes"] == 100000


def test_case_027_almost_the_boundary(echo):
    """Bytes that hold the boundary less one character are stored exactly."""
    content = b"\r\n--BOUN\r\n--BOUN--\r\n--BOUNd" + b"\r\n-" * 100
    file = send(echo, ("purpose", b"user_data"), ("file", content, "x"))[1]
    assert plain(echo, "GET", f"/v1/files/{file['id']}/content")[2] == content


def test_case_028_an_aborted_upload(echo, client):
    """An upload that ends in its middle: no file is listed and no bytes stay on the disk."""
    before = [file.id for file in client.files.list()]
    body, headers = form(("purpose", b"user_data"), ("file", b"x" * 100000, "x"))
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", echo.port)) as connection:
            connection.sendall(
                b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
                % (headers["Content-Type"].encode(), len(body)) + body[:50000])
    poll(lambda: not list((echo.state / "tmp").iterdir()))
    assert [file.id for file in client.files.list()] == before


def test_case_029_any_bytes_come_back(client, echo):
    """NUL, CRLF and bytes that are not UTF-8 come back as they were, with their length and as an
    attachment."""
    content = bytes(range(256)) * 300 + b"\r\n\0\r\n" + os.urandom(70000)
    file = upload(client, content, "user_data")
    assert client.files.content(file.id).read() == content
    _, headers, _ = plain(echo, "GET", f"/v1/files/{file.id}/content")
    assert headers["content-type"] == "application/octet-stream" and headers[
        "content-length"] == str(len(content))
    assert headers["content-disposition"].startswith("attachment")


def test_case_030_unknown_files(client):
    """Retrieve, content and delete of an unknown id: 404, param id; any bytes may be in the id."""
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        error = refused(404, call, "file-x")
        assert isinstance(error, openai.NotFoundError) and "No such File object: file-x" in str(
            error) and error.param == "id"
        refused(404, call, "../é meta.db")


def test_case_031_a_deleted_file_is_gone(client):
    """Delete answers id, object and deleted; then the id is 404 and not listed."""
    file = upload(client, b"x", "user_data")
    deleted = client.files.delete(file.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (file.id, "file", True)
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        refused(404, call, file.id)
    assert file.id not in [entry.id for entry in client.files.list()]


def test_case_032_pages_never_skip_or_repeat(client):
    """Five files, limit 2: two of them, has_more, first_id and last_id; the iteration yields all
    five once."""
    made = [upload(client, b"x", "vision").id for _ in range(5)]
    page = client.files.list(purpose="vision", limit=2)
    assert (len(page.data), page.has_more, page.first_id,
            page.last_id) == (2, True, page.data[0].id, page.data[1].id)
    assert [file.id for file in client.files.list(purpose="vision", limit=2)] == made[::-1]


def test_case_033_both_orders_within_a_second(client):
    """order=asc is the reverse of desc, even for files of one second."""
    made = [upload(client, b"x", "evals").id for _ in range(9)]
    down = [file.id for file in client.files.list(purpose="evals", limit=4)]
    up = [file.id for file in client.files.list(purpose="evals", order="asc", limit=4)]
    assert up == made and down == made[::-1]
    refused(400, client.files.list, order="up")


def test_case_034_the_purpose_filter(client, echo):
    """purpose=batch_output lists result files only."""
    batch = echo.wait(echo.create(lines(1))["id"])
    listed = list(client.files.list(purpose="batch_output"))
    assert batch["output_file_id"] in [file.id for file in listed] and {
        file.purpose
        for file in listed} == {"batch_output"}


def test_case_035_limits_out_of_range(client):
    """limit 0, 10001 and x: 400 that names limit."""
    for limit in (0, 10001, "x", -1, ""):
        assert refused(400, client.files.list, extra_query={"limit": limit}).param == "limit"
    assert client.files.list(limit=10000).data is not None


def test_case_036_an_empty_server(strict):
    """Nothing there: 200 with an empty list and null ids, which LiteLLM's proxy probes for."""
    status, _, data = plain(strict, "GET", "/v1/files?purpose=fine-tune")
    assert status == 200
    assert json.loads(data) == {
        "object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}


def test_case_037_an_unknown_cursor(client):
    """An unknown after: 400 invalid_value, param after, never the first page again."""
    error = refused(400, client.files.list, after="file-nope")
    assert (error.code, error.param) == ("invalid_value", "after")


def peak_kib(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1])


def test_case_038_a_slow_reader_of_a_large_file(echo, client, tmp_path):
    """A large file (256 MiB here) and a reader that stops: the server's memory stays as it is, all
    bytes arrive."""
    total = 256 << 20
    with open(tmp_path / "large", "wb") as file:
        file.truncate(total)
    with open(tmp_path / "large", "rb") as file:
        made = client.files.create(file=file, purpose="user_data")
    before = peak_kib(echo)
    with socket.create_connection(("127.0.0.1", echo.port), timeout=120) as connection:
        connection.sendall(
            b"GET /v1/files/%s/content HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" %
            made.id.encode())
        got = len(connection.recv(65536))
        for _ in range(20):  # others are served meanwhile
            assert plain(echo, "GET", "/health")[0] == 200
        while data := connection.recv(1 << 20):
            got += len(data)
    assert got > total and peak_kib(echo) - before < 32 << 10
    client.files.delete(made.id)


def test_case_039_a_part_of_a_file(echo, client):
    """Range: bytes=0-9 is 206 with ten bytes; If-Range and If-None-Match are obeyed, HEAD tells the
    length."""
    content = bytes(range(100))
    path = f"/v1/files/{upload(client, content, 'user_data').id}/content"
    status, headers, data = plain(echo, "GET", path, headers={"Range": "bytes=0-9"})
    assert (status, data, headers["content-range"]) == (206, content[:10], "bytes 0-9/100")
    assert plain(echo, "GET", path, headers={"Range": "bytes=-10"})[2] == content[-10:]
    assert plain(echo, "GET", path, headers={"Range": "bytes=90-"})[2] == content[90:]
    status, other, _ = plain(echo, "GET", path, headers={"Range": "bytes=100-"})
    assert (status, other["content-range"]) == (416, "bytes */100")
    assert plain(echo, "GET", path, headers={"Range": "bytes=5-9",
                                             "If-Range": headers["etag"]})[2] == content[5:10]
    assert plain(echo, "GET", path, headers={"Range": "bytes=5-9",
                                             "If-Range": '"other"'})[:3:2] == (200, content)
    assert plain(echo, "GET", path, headers={"If-None-Match": headers["etag"]})[:3:2] == (304, b"")
    status, head, data = plain(echo, "HEAD", path)
    assert (status, data, head["content-length"], head["accept-ranges"]) == (200, b"", "100",
                                                                             "bytes")


def test_case_040_an_expired_file(tmp_path):
    """Past its expires_at a file is 404 and not listed, after a restart too."""
    with serving(tmp_path) as (server, start):
        client = start()
        kept, gone = upload(client, b"a", "user_data"), upload(client, b"b", "user_data")
        assert server.stop() == 0
        rewrite(server, "UPDATE files SET expires = created - 1 WHERE id = ?", gone.id)
        client = start()
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            refused(404, call, gone.id)
        assert [file.id for file in client.files.list()] == [kept.id]
        refused(400, client.files.list, after=gone.id)

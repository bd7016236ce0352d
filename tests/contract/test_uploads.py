# SPDX-License-Identifier: Apache-2.0
"""Cases 41 to 47: files in parts."""
import asyncio, concurrent.futures, hashlib, json, random

import openai
import pytest

import support
from cases import CHAT, form, lines, plain, post, refused, rewrite, serving, wait


def announce(client, count, purpose="user_data", **more):
    return client.uploads.create(bytes=count,
                                 filename="x.jsonl",
                                 mime_type="text/jsonl",
                                 purpose=purpose,
                                 **more)


def add(client, upload, data):
    return client.uploads.parts.create(upload.id, data=data).id


@pytest.mark.slow
def test_case_041_the_client_uploads_in_chunks(client, echo, tmp_path):
    """The SDK's upload_file_chunked of 150 MB sends three parts; size and content are exact, the
    file is like any other."""
    data = random.Random(41).randbytes(1 << 20) * 150
    path = tmp_path / "large.bin"
    path.write_bytes(data)
    done = client.uploads.upload_file_chunked(file=path,
                                              mime_type="application/octet-stream",
                                              purpose="user_data",
                                              md5=hashlib.md5(data).hexdigest())
    assert (done.status, done.file.bytes, done.file.filename) == ("completed", len(data),
                                                                  "large.bin")
    assert done.expires_at == done.created_at + 3600 and done.file.expires_at is None
    assert hashlib.sha256(client.files.content(
        done.file.id).read()).digest() == hashlib.sha256(data).digest()
    assert not list((echo.state / "parts").iterdir())
    client.files.delete(done.file.id)

    async def small():
        async with openai.AsyncOpenAI(base_url=echo.url, api_key="none") as other:
            return await other.uploads.upload_file_chunked(file=lines(3),
                                                           filename="in.jsonl",
                                                           bytes=len(lines(3)),
                                                           mime_type="text/jsonl",
                                                           purpose="batch",
                                                           part_size=50)
    done = asyncio.run(small())
    assert done.file.expires_at == done.file.created_at + 2592000
    batch = client.batches.create(input_file_id=done.file.id,
                                  endpoint=CHAT,
                                  completion_window="24h")
    assert wait(client, batch.id).request_counts.completed == 3


def test_case_042_the_order_is_that_of_part_ids(client, echo):
    """part_ids reversed give reversed content, whatever the order of arrival; parts may arrive side
    by side."""
    upload = announce(client, 6)
    first, second = add(client, upload, b"abc"), add(client, upload, b"def")
    done = client.uploads.complete(upload.id, part_ids=[second, first])
    assert client.files.content(done.file.id).read() == b"defabc"
    upload = announce(client, 400)
    pieces = [b"%04d" % i for i in range(100)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda piece: add(client, upload, piece), pieces))
    done = client.uploads.complete(upload.id, part_ids=ids)
    assert client.files.content(done.file.id).read() == b"".join(pieces)


def test_case_043_the_bytes_must_be_those_announced(client, echo):
    """A sum of bytes that differs: 400, and the upload is pending still."""
    upload = announce(client, 5)
    ids = [add(client, upload, b"abc"), add(client, upload, b"d"), add(client, upload, b"e")]
    for wrong in (ids[:1], ids[:2], [], ids + [add(client, upload, b"f")]):
        assert refused(400, client.uploads.complete, upload.id, part_ids=wrong).param == "part_ids"
    assert json.loads(plain(echo, "GET", f"/v1/uploads/{upload.id}")[2])["status"] == "pending"
    assert client.uploads.complete(upload.id, part_ids=ids).status == "completed"


def test_case_044_a_wrong_md5(client):
    """An md5 that is not that of the content: 400; the right one, in any case, completes it."""
    upload = announce(client, 3)
    part = add(client, upload, b"abc")
    assert refused(400, client.uploads.complete, upload.id, part_ids=[part],
                   md5="0" * 32).param == "md5"
    assert refused(400, client.uploads.complete, upload.id, part_ids=[part],
                   md5="abc").param == "md5"
    assert client.uploads.complete(
        upload.id, part_ids=[part],
        md5=hashlib.md5(b"abc").hexdigest().upper()).status == "completed"


def test_case_045_nothing_follows_the_end(client):
    """A part, a complete or a cancel after complete or cancel: 400."""
    for end in ("complete", "cancel"):
        upload = announce(client, 3)
        part = add(client, upload, b"abc")
        ended = client.uploads.complete(upload.id, part_ids=[
            part]) if end == "complete" else client.uploads.cancel(upload.id)
        assert ended.status == {"complete": "completed", "cancel": "cancelled"}[end]
        for call in (lambda: add(client, upload, b"x"),
                     lambda: client.uploads.complete(upload.id, part_ids=[part]),
                     lambda: client.uploads.cancel(upload.id)):
            assert ended.status in str(refused(400, call))


def test_case_046_a_part_of_somebody_else(client):
    """A part id of another upload, an unknown one, one named twice: 400; an unknown upload: 404."""
    upload, other = announce(client, 6), announce(client, 3)
    own, foreign = add(client, upload, b"abc"), add(client, other, b"def")
    for ids in ([own, foreign], [own, "part_nope"], [own, own], ["../meta.db"]):
        assert refused(400, client.uploads.complete, upload.id, part_ids=ids).param == "part_ids"
    for call in (lambda: client.uploads.parts.create("upload_nope", data=b"x"),
                 lambda: client.uploads.complete("upload_nope", part_ids=[]),
                 lambda: client.uploads.cancel("upload_nope")):
        assert refused(404, call).param == "upload_id"


def test_case_047_an_upload_expires(tmp_path):
    """Pending after an hour is expired, across restarts: nothing can be added, and it cannot be
    completed."""
    with serving(tmp_path) as (server, start):
        client = start()
        old, young = announce(client, 3), announce(client, 3)
        parts = add(client, old, b"abc"), add(client, young, b"abc")
        server.kill()
        rewrite(
            server,
            "UPDATE uploads SET created = created - 3600, expires = expires - 3600 WHERE id = ?",
            old.id)
        client = start()
        assert json.loads(plain(server, "GET", f"/v1/uploads/{old.id}")[2])["status"] == "expired"
        for call in (lambda: add(client, old, b"x"),
                     lambda: client.uploads.complete(old.id, part_ids=[parts[0]]),
                     lambda: client.uploads.cancel(old.id)):
            assert "expired" in str(refused(400, call))
        # Acknowledged before the kill, and still there.
        assert client.files.content(client.uploads.complete(young.id, part_ids=[
            parts[1]]).file.id).read() == b"abc"
        # Any sweep takes what the expired one left: completing another one is one.
        assert not list((server.state / "parts").iterdir())


@pytest.mark.parametrize("change,param,code", [
    ({"bytes": None}, "bytes", "missing_required_parameter"),
    ({"bytes": "1"}, "bytes", "invalid_type"), ({"bytes": 0}, "bytes", "integer_below_min_value"),
    ({"bytes": (8 << 30) + 1}, "bytes", "integer_above_max_value"),
    ({"filename": ""}, "filename", "string_below_min_length"),
    ({"purpose": "banana"}, "purpose", "invalid_value"),
    ({"mime_type": 7}, "mime_type", "invalid_type"),
    ({"expires_after": {"anchor": "created_at", "seconds": 3599}
      }, "expires_after.seconds", "integer_below_min_value"),
    ({"expires_after": {"anchor": "x", "seconds": 3600}}, "expires_after.anchor", "invalid_value")])
def test_what_is_wrong_with_an_announcement_is_named(echo, change, param, code):
    body = {"bytes": 1, "filename": "x", "mime_type": "text/plain", "purpose": "batch", **change}
    status, answer = post(echo, "/v1/uploads", body)
    assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, param, code)


def test_what_is_no_batch_file_stays_pending(client):
    upload = announce(client, 3, purpose="batch")
    part = add(client, upload, b"{x\n")
    assert "Invalid file format" in str(
        refused(400, client.uploads.complete, upload.id, part_ids=[part]))
    assert client.uploads.cancel(upload.id).status == "cancelled"


def test_a_part_has_at_most_64_mib(echo, client):
    upload = announce(client, 100 << 20)
    body, headers = form(("data", b"x" * ((64 << 20) + 1), "upload"))
    status, _, data = plain(echo, "POST", f"/v1/uploads/{upload.id}/parts", body, headers)
    assert status == 413 and "67108864" in json.loads(data)["error"]["message"]
    body, headers = form(("other", b"x"))
    status, _, data = plain(echo, "POST", f"/v1/uploads/{upload.id}/parts", body, headers)
    assert (status, json.loads(data)["error"]["param"]) == (400, "data")

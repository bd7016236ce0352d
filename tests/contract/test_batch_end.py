# SPDX-License-Identifier: Apache-2.0
"""Cases 100 to 116: cancelling, windows, crashes, and lists of batches."""
import json, os, random, subprocess, time

import pytest

import support
from cases import CHAT, create, identities, line, lines, metric, plain, poll, refused, results
from cases import rewrite, run, serving, upload, wait

SEED = support.SEED


def slow(count, latency_ms=300000, quick=0):
    """Lines of which the first `quick` are answered at once and the others much later."""
    return support.jsonl(
        [line(f"id-{i}") for i in range(quick)] +
        [line(f"id-{i}", echo={"delay_ms": latency_ms}) for i in range(quick, count)])


def ids(count):
    return [f"id-{i}" for i in range(count)]


def test_case_100_cancel_while_it_runs(client):
    """200 cancelling, then cancelled; finished lines are in the output, all others in the error
    file with batch_cancelled."""
    batch = create(client, slow(200, quick=50))
    poll(lambda: client.batches.retrieve(batch.id).request_counts.completed == 50)
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = wait(client, batch.id)
    assert batch.status == "cancelled" and batch.cancelling_at <= batch.cancelled_at
    assert batch.request_counts.failed == 0
    output, errors = identities(client, batch, ids(200))
    assert len(output) == 50
    for entry in errors:
        assert entry["response"] is None and entry["error"]["code"] == "batch_cancelled" and entry[
            "error"]["message"]


def test_case_101_cancel_twice(client):
    """Both calls are 200, and cancelling_at is stamped once."""
    batch = create(client, slow(20))
    poll(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    first = client.batches.cancel(batch.id)
    second = client.batches.cancel(batch.id)
    assert first.cancelling_at == second.cancelling_at is not None
    assert wait(client, batch.id).cancelling_at == first.cancelling_at


def test_case_102_cancel_what_has_ended(client, tmp_path):
    """A completed, failed or expired batch: 409 that has the status, and the SDK asks once."""
    ended = [run(client, lines(1)), run(client, b'{"a":1}\n')]
    assert [batch.status for batch in ended] == ["completed", "failed"]
    for batch in ended:
        error = refused(409, client.with_options(max_retries=2).batches.cancel, batch.id)
        assert f"Cannot cancel a batch with status '{batch.status}'." in str(error)
        assert error.response.headers[
            "x-should-retry"] == "false" and error.response.request.headers[
                "x-stainless-retry-count"] == "0"


def test_case_103_cancel_what_is_cancelled(client):
    """A cancelled batch: 200 and the same object."""
    batch = create(client, slow(3))
    client.batches.cancel(batch.id)
    batch = wait(client, batch.id)
    assert batch.status == "cancelled" and client.batches.cancel(batch.id) == batch


def test_case_104_cancel_what_is_unknown(client):
    """An unknown id: 404 No batch found."""
    assert "No batch found with id 'batch_nope'." in str(
        refused(404, client.batches.cancel, "batch_nope"))


def test_case_105_cancel_while_it_is_validated(client):
    """Cancelled at once after creation: cancelled, with null file ids or every line
    batch_cancelled."""
    content = slow(20000)
    for _ in range(3):
        batch = create(client, content)
        client.batches.cancel(batch.id)
        batch = wait(client, batch.id)
        assert batch.status == "cancelled" and batch.output_file_id is None
        errors = results(client, batch.error_file_id)
        assert errors == [] or {entry["error"]["code"]
                                for entry in errors} == {"batch_cancelled"} and len(errors) == 20000


def close_window(server, batch_id, seconds_left):
    rewrite(
        server,
        "UPDATE batches SET created = created - 86400 + ?2, expires = expires - 86400 + ?2 WHERE id = ?1",
        batch_id, seconds_left)


def expired(client, batch_id, count, quick):
    batch = wait(client, batch_id)
    assert batch.status == "expired" and batch.expired_at >= batch.expires_at
    assert batch.request_counts.failed == 0
    output, errors = identities(client, batch, ids(count))
    assert len(output) == quick
    for entry in errors:
        assert entry["response"] is None and entry["error"]["code"] == "batch_expired"
    return batch


def test_case_106_a_window_too_short_for_the_work(tmp_path):
    """The window closes while it runs: expired, what is finished is kept, the rest is batch_expired
    and not in `failed`."""
    clock = support.Clock(tmp_path)
    with serving(tmp_path, clock=clock) as (server, start):
        client = start()
        batch = create(
            client,
            support.jsonl([
                line(f"id-{i}", **({} if i < 10 else {"echo": {"hang": True}}))
                for i in range(40)]))
        poll(lambda: client.batches.retrieve(batch.id).request_counts.completed == 10)
        clock.move(86400 - 3600)
        assert client.batches.retrieve(batch.id).status == "in_progress"
        clock.move(3600)
        expired(client, batch.id, 40, 10)
        error = refused(409, client.batches.cancel, batch.id)  # case 102, for an expired one
        assert "'expired'" in str(error)


def test_case_107_a_window_that_closes_meanwhile(tmp_path):
    """The window ends while the server is down: expired at the start, with the results it had."""
    with serving(tmp_path) as (server, start):
        client = start()
        batch, late = create(client, slow(40, quick=10)), None
        poll(lambda: client.batches.retrieve(batch.id).request_counts.completed == 10)
        server.kill()
        close_window(server, batch.id, -100)
        client = start()
        expired(client, batch.id, 40, 10)


def test_case_108_killed_at_random(tmp_path):
    """kill -9 at random moments: the batch completes, ids are the input's, once each, and no line
    is torn (the crash suite kills far more)."""
    print(f"seed {SEED}")
    rng, count, seen = random.Random(SEED), 6000, 0
    with serving(tmp_path) as (server, start):
        client = start()
        batch = create(client, lines(count))
        for _ in range(8):
            time.sleep(0.08 * rng.random())
            server.kill()
            client = start()
            counts = client.batches.retrieve(batch.id).request_counts
            assert counts.completed >= seen or counts.total == 0, f"seed {SEED}"
            seen = max(seen, counts.completed)
        batch = wait(client, batch.id)
        assert batch.status == "completed"
        identities(client, batch, ids(count))


def test_case_109_killed_after_a_create(tmp_path):
    """kill -9 right after the 200 of create: the batch is there, and runs."""
    with serving(tmp_path) as (server, start):
        client = start()
        for _ in range(3):
            batch = create(client, lines(3))
            server.kill()
            client = start()
            assert wait(client, batch.id).request_counts.completed == 3


def test_case_110_killed_after_an_upload(tmp_path):
    """kill -9 right after the 200 of upload: the file is there with its bytes; so is an
    acknowledged part."""
    with serving(tmp_path) as (server, start):
        client = start()
        for i in range(3):
            content = os.urandom(100000)
            file = upload(client, content, "user_data")
            server.kill()
            client = start()
            assert client.files.content(file.id).read() == content
        made = client.uploads.create(bytes=7, filename="x", mime_type="x", purpose="user_data")
        part = client.uploads.parts.create(made.id, data=b"content")
        server.kill()
        client = start()
        assert client.files.content(client.uploads.complete(made.id, part_ids=[
            part.id]).file.id).read() == b"content"


def test_case_111_a_full_disk(tmp_path):
    """The disk fills up while results are written: the batch pauses, and completes with whole lines
    when there is room again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={64 << 20}", "tmpfs",
                           str(disk)],
                          capture_output=True,
                          text=True)
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        (disk / "state").mkdir()
        (tmp_path / "state").symlink_to(
            disk / "state")  # the server's log stays beside it, on the other disk
        clock = support.Clock(tmp_path)
        with serving(tmp_path, clock=clock) as (server, start):
            client = start()
            batch = create(client, lines(3000, padding="x" * 100, echo={
                "each_ms": 1000}))  # an hour, so that the disk fills meanwhile
            clock.until(lambda: client.batches.retrieve(batch.id).request_counts.completed > 0, 1)
            with open(disk / "filler", "wb") as filler:
                for _ in range(50):
                    free = os.statvfs(disk).f_bavail * 4096
                    if free == 0:
                        break
                    try:
                        os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, free)
                    except OSError:
                        pass
            clock.until(lambda: metric(server, "quern_store_full") == 1, 10)
            assert client.batches.retrieve(batch.id).status in ("in_progress", "finalizing")
            (disk / "filler").unlink()
            clock.until(lambda: client.batches.retrieve(batch.id).status in support.TERMINAL, 100)
            batch = wait(client, batch.id)
            assert batch.status == "completed"
            identities(client, batch, ids(3000))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_case_112_an_engine_that_fails(echo, client):
    """An error that may pass is tried again up to the bound and then is an error line; the batch
    completes."""
    before = metric(echo, "quern_lines_retried_total")
    batch = run(
        client,
        support.jsonl([
            line("good"),
            line("busy", echo={"status": 503}),
            line("bad", echo={"status": 500})]))
    assert batch.status == "completed" and (batch.request_counts.completed,
                                            batch.request_counts.failed) == (1, 2)
    _, errors = identities(client, batch, ["good", "busy", "bad"])
    assert {entry["custom_id"]: entry["response"]["status_code"]
            for entry in errors} == {"busy": 503, "bad": 500}
    assert metric(echo, "quern_lines_retried_total") - before == 4


def test_case_113_the_input_is_deleted(echo, client):
    """Deleting the input of a running batch: the id is gone, the batch completes."""
    batch = create(client, support.jsonl([
        line(f"id-{i}", echo={"delay_ms": 1}) for i in range(500)]))
    assert client.files.delete(batch.input_file_id).deleted
    refused(404, client.files.retrieve, batch.input_file_id)
    batch = wait(client, batch.id)
    assert batch.status == "completed"
    identities(client, batch, ids(500))
    for file_id in (batch.output_file_id,):  # results can go too; the batch stays as it is
        client.files.delete(file_id)
        assert client.batches.retrieve(batch.id) == batch
        refused(404, client.files.content, file_id)


# --- lists ---

def test_case_114_pages_of_batches(client):
    """25 batches: 20 on the first page, newest first, has_more; the iteration gives all 25."""
    file_id = upload(client, lines(1)).id
    made = [
        client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h").id
        for _ in range(25)]
    page = client.batches.list()
    assert [batch.id for batch in page.data] == made[::-1][:20] and page.has_more is True
    assert (page.first_id, page.last_id) == (page.data[0].id, page.data[-1].id)
    everything = [batch.id for batch in client.batches.list()]
    assert everything[:25] == made[::-1] and len(set(everything)) == len(everything)


def test_case_115_too_large_a_page(client):
    """limit 101: 400; 0 and an unknown after too."""
    for options in ({"limit": 101}, {"limit": 0}):
        assert refused(400, client.batches.list, **options).param == "limit"
    assert refused(400, client.batches.list, after="batch_nope").param == "after"
    assert len(client.batches.list(limit=1).data) == 1


def test_case_116_after_the_last(client):
    """after the oldest id: an empty page, has_more false."""
    oldest = [batch.id for batch in client.batches.list(limit=100)][-1]
    page = client.batches.list(after=oldest)
    assert page.data == [] and page.has_more is False

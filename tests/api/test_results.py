# SPDX-License-Identifier: Apache-2.0
"""GET /v1/batches/{id}/results: the lines of a batch while it runs and after it, each once, in one
order."""
import json, threading, time

import httpx
import pytest

import support

MANY = 400


def slow(count, ms=5, **body):
    return [
        support.request(f"r{i:04d}", f"text {i}", echo={"each_ms": ms}, **body)
        for i in range(count)]


def follow_pages(client, batch_id, limit=None, after=0):
    """Takes pages until the server says that there are no more. Yields the raw lines."""
    while True:
        answer = client.get(f"/v1/batches/{batch_id}/results",
                            params={"after": after, **({"limit": limit} if limit else {})})
        assert answer.status_code == 200, answer.text
        assert answer.content == b"" or answer.content.endswith(b"\n")
        lines = answer.content.split(b"\n")[:-1]
        assert limit is None or len(lines) <= limit
        last = int(answer.headers["x-last-line"])
        assert last == after + len(lines)
        after = last
        yield from lines
        if answer.headers["x-incomplete"] == "false":
            return
        time.sleep(0.01)


def published(server, batch):
    """The raw lines of both files."""
    lines = []
    for key in ("output_file_id", "error_file_id"):
        if batch[key]:
            lines += server.call("GET", f"/v1/files/{batch[key]}/content")[1].split(b"\n")[:-1]
    return lines


@pytest.fixture
def client(echo_server):
    with httpx.Client(base_url=f"http://127.0.0.1:{echo_server.port}", timeout=60) as client:
        yield client


def test_two_readers_of_a_running_batch_get_every_line_once_as_it_is_published(echo_server, client):
    batch = echo_server.create(support.jsonl(slow(MANY)))
    second, seen_running = [], []
    reader = threading.Thread(
        target=lambda: second.extend(follow_pages(client, batch["id"], limit=7)))
    reader.start()
    first = list(follow_pages(client, batch["id"]))
    reader.join()
    batch = echo_server.wait(batch["id"])
    files = published(echo_server, batch)
    assert len(files) == MANY
    assert first == second
    assert sorted(first) == sorted(files)


def test_the_count_goes_on_over_the_end_of_the_batch(tmp_path):
    clock = support.Clock(tmp_path)
    with support.serving(tmp_path / "state", "--model", "smollm2=echo", environment=clock.environment) as server, \
            httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60, headers={"Connection": "close"}) as client:
        batch, answers = server.create(support.jsonl(slow(60, ms=10000))), []

        def has_lines():
            answers.append(client.get(f"/v1/batches/{batch['id']}/results", params={"limit": 5}))
            return answers[-1].content

        clock.until(has_lines, 1)
        taken, after = answers[-1].content.split(b"\n")[:-1], int(
            answers[-1].headers["x-last-line"])
        assert answers[-1].headers["x-incomplete"] == "true" and server.batch(
            batch["id"])["status"] == "in_progress"
        clock.until(lambda: server.batch(batch["id"])["status"] in support.TERMINAL, 60)
        rest = list(follow_pages(client, batch["id"], after=after))
        assert sorted(taken + rest) == sorted(published(server, server.batch(batch["id"])))
        # Asking again from the start gives the same lines in the same order.
        assert list(follow_pages(client, batch["id"], limit=11)) == taken + rest
    support.fsck(tmp_path / "state")


def test_following_gives_the_lines_as_they_come_and_ends_with_the_batch(echo_server, client):
    batch = echo_server.create(support.jsonl(slow(50, ms=20)))
    with client.stream("GET", f"/v1/batches/{batch['id']}/results",
                       params={"follow": "true"}) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/jsonl"
        lines = [line.encode() for line in answer.iter_lines()]
    batch = echo_server.wait(batch["id"])
    assert sorted(lines) == sorted(published(echo_server, batch))
    with client.stream("GET",
                       f"/v1/batches/{batch['id']}/results",
                       params={"follow": "true", "after": 45, "limit": 3}) as answer:
        assert [line.encode() for line in answer.iter_lines()] == lines[45:48]


def test_lines_that_never_ran_come_last_and_failed_ones_in_their_turn(echo_server, client):
    requests = slow(20, ms=1) + [
        support.request(f"bad{i}", "x", echo={"status": 418}) for i in range(3)]
    requests += [support.request(f"hang{i}", "x", echo={"hang": True}) for i in range(4)]
    batch = echo_server.create(support.jsonl(requests))
    support.until(lambda: echo_server.batch(batch["id"])["request_counts"] == {
        "total": 27, "completed": 20, "failed": 3})
    echo_server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
    batch = echo_server.wait(batch["id"])
    assert batch["status"] == "cancelled"
    lines = [json.loads(line) for line in follow_pages(client, batch["id"], limit=6)]
    assert len(lines) == 27
    assert [line["error"]["code"] for line in lines[-4:]] == ["batch_cancelled"] * 4
    assert {
        line["custom_id"]
        for line in lines
        if line["response"] and line["response"]["status_code"] == 418} == {"bad0", "bad1", "bad2"}


def test_a_restart_does_not_disturb_the_count(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        batch = server.create(support.jsonl(slow(40, ms=1)))
        batch = server.wait(batch["id"])
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            before = list(follow_pages(client, batch["id"]))
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            assert list(follow_pages(client, batch["id"], limit=9)) == before
            assert list(follow_pages(client, batch["id"], after=33)) == before[33:]
            assert server.call("DELETE", f"/v1/files/{batch['output_file_id']}")[0] == 200
            gone = client.get(f"/v1/batches/{batch['id']}/results")
            assert gone.status_code == 404 and "no longer available" in gone.json(
            )["error"]["message"]
    support.fsck(tmp_path / "state")


def test_bad_questions_are_answered_clearly(echo_server, client):
    assert client.get("/v1/batches/batch_unknown/results").status_code == 404
    assert client.get("/v1/batches/batch_unknown/results",
                      params={"follow": "true"}).status_code == 404
    batch = echo_server.create(support.jsonl(slow(1, ms=1)))
    for params, word in ({"after": "x"}, "after"), ({"after": "-1"}, "after"), ({
            "limit": 0}, "limit"), ({"follow": "yes"}, "follow"):
        answer = client.get(f"/v1/batches/{batch['id']}/results", params=params)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == word, answer.text
    # Beyond the end there is nothing, and nothing to wait for.
    echo_server.wait(batch["id"])
    answer = client.get(f"/v1/batches/{batch['id']}/results", params={"after": 10**18})
    assert (answer.status_code, answer.content, answer.headers["x-incomplete"]) == (200, b"",
                                                                                    "false")


def test_a_batch_that_was_refused_has_no_lines(echo_server, client):
    batch = echo_server.create(b'{"custom_id":"a"}\n')
    batch = echo_server.wait(batch["id"])
    answer = client.get(f"/v1/batches/{batch['id']}/results")
    assert (answer.status_code, answer.content, answer.headers["x-incomplete"]) == (200, b"",
                                                                                    "false")

# SPDX-License-Identifier: Apache-2.0
"""Clients that ask for much and read nothing, or stop in the middle: what they cost the server, and
what they get when they read on."""
import contextlib, json, pathlib, socket

import pytest

import support

ECHO = ("--model", "smollm2=echo")
KIB = 1024
pytestmark = pytest.mark.usefixtures("many_files")


def memory(server, key="VmRSS"):
    """KiB of the server's process: now, or with VmHWM at their highest since reset()."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key))


def reset(server):
    """Forgets the highest memory so far; returns the memory now."""
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as file:
        file.write("5")
    return memory(server)


def asks(path, body=None):
    """The bytes of a request."""
    head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + (body or b"")


def dial(stack, server, said=b"", source="127.0.0.1"):
    """A connection whose client has little room for an answer."""
    client = stack.enter_context(socket.socket())
    client.settimeout(120)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.bind((source, 0))
    client.connect(("127.0.0.1", server.port))
    client.sendall(said)
    return client


def stuck(stack, server, path, body=None, source="127.0.0.1"):
    """A client that has the first bytes of its answer in its socket, and leaves them there."""
    reader = dial(stack, server, asks(path, body), source)
    reader.recv(1, socket.MSG_PEEK)
    return reader


def status(reader):
    return int(reader.recv(12, socket.MSG_PEEK).split()[1])


def chat(text, **more):
    return json.dumps({"model": "smollm2", "messages": [{"role": "user", "content": text}],
                       **more}).encode()


def read_on(reader):
    """Headers and body of a stuck reader's whole answer."""
    data = bytearray()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    while piece := reader.recv(1 << 20):
        data += piece
    return bytes(data).split(b"\r\n\r\n", 1)


def results_of(batch):
    return f"/v1/batches/{batch['id']}/results"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with a batch whose results fill several pages."""
    with support.serving(tmp_path_factory.mktemp("slow") / "state", *ECHO) as server:
        batch = server.create(
            support.jsonl([support.request(f"r{i}", "x" * 4000) for i in range(2500)]))
        server.finished = server.wait(batch["id"])
        yield server


def test_slow_readers_of_results_cost_128_kib_each(served):
    path = results_of(served.finished)
    wanted, before = served.call("GET", path)[1], reset(served)
    assert len(wanted) > 4 << 20
    with contextlib.ExitStack() as stack:
        readers = [stuck(stack, served, path) for _ in range(300)]
        peak = memory(served, "VmHWM")
        assert peak - before < 300 * 128, f"{peak - before} KiB for 300 readers"
        for reader in readers[::60]:
            head, body = read_on(reader)
            assert b" 200 " in head and f"Content-Length: {len(wanted)}".encode() in head
            assert body == wanted
        assert served.call("GET", path) == (200, wanted), "a good client is served beside them"


@pytest.mark.parametrize("text", ["x" * 3000, "y" * 100_000], ids=["short lines", "long lines"])
def test_a_page_begun_while_the_batch_runs_is_read_to_its_end_after_it(tmp_path, text):
    with support.serving(tmp_path / "state", *ECHO) as server, contextlib.ExitStack() as stack:
        count = 6_000_000 // len(text)
        requests = [support.request(f"r{i}", text)
                    for i in range(count)] + [support.request("hangs", "z", echo={"hang": True})]
        batch = server.create(support.jsonl(requests))
        support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] == count,
                      300)
        wanted, wanted_later = (server.call("GET",
                                            results_of(batch) + query)[1]
                                for query in ("", "?after=7"))
        reader, later = (stuck(stack, server, path)
                         for path in (results_of(batch), results_of(batch) + "?after=7"))
        server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
        ended = server.wait(batch["id"])
        head, body = read_on(reader)
        assert b"X-Incomplete: true" in head and body == wanted
        # This one reads files that are deleted meanwhile.
        reader = stuck(stack, server, results_of(batch))
        assert server.call("DELETE", f"/v1/files/{ended['output_file_id']}")[0] == 200
        assert read_on(reader)[1] == wanted
        # And this one comes late: where its page ends early, its client sees that.
        head, body = read_on(later)
        assert f"Content-Length: {len(wanted_later)}".encode() in head and wanted_later.startswith(
            body)
    support.fsck(tmp_path / "state")


def test_a_follower_gets_every_line_of_a_large_batch(served):
    batch = served.finished
    with contextlib.ExitStack() as stack:
        before = reset(served)
        readers = [stuck(stack, served, results_of(batch) + "?follow=true") for _ in range(60)]
        assert memory(served, "VmHWM") - before < 60 * 256
        _, body = read_on(readers[0])
        pieces, at = [], 0
        while at < len(body):  # chunks: a size in hex, the bytes, CRLF
            end = body.index(b"\r\n", at)
            start, size = end + 2, int(body[at:end], 16)
            pieces.append(body[start:start + size])
            at = start + size + 2
        assert sorted(b"".join(pieces).split(b"\n")) == sorted(
            served.call("GET", f"/v1/files/{batch['output_file_id']}/content")[1].split(b"\n"))


def test_all_answers_together_are_bounded(tmp_path):
    with support.serving(tmp_path / "state", *ECHO, "--answer-memory-bytes",
                         str(8 << 20)) as server, contextlib.ExitStack() as stack:
        large, path = chat("x" * 1_000_000), "/v1/chat/completions"
        assert server.call("POST", path, large)[0] == 200
        readers = [stuck(stack, server, path, large) for _ in range(20)]
        held = [reader for reader in readers if status(reader) == 200]
        refused = [reader for reader in readers if reader not in held]
        assert 7 <= len(held) <= 9, "of 1 MB each, and what the kernel has taken of them"
        head, body = read_on(refused[0])
        assert b" 503 " in head and b"retry-after: " in head.lower(
        ) and b"--answer-memory-bytes" in body
        # Small answers are given, and so is what is read from the disk.
        assert server.call("POST", path, chat("small"))[0] == server.call(
            "GET", "/metrics")[0] == server.call("GET", "/openapi.json")[0] == 200
        for reader in held:
            assert len(json.loads(
                read_on(reader)[1])["choices"][0]["message"]["content"]) == 1_000_000
        support.until(lambda: server.call("POST", path, large)[0] == 200)


def test_a_stream_that_nobody_reads_ends_with_an_event_that_says_so(tmp_path):
    with support.serving(tmp_path / "state", *ECHO, "--answer-memory-bytes",
                         str(8 << 20)) as server, contextlib.ExitStack() as stack:
        readers = [
            stuck(stack, server, "/v1/chat/completions", chat("x" * 1_000_000, stream=True))
            for _ in range(20)]
        answers = [read_on(reader)[1] for reader in readers]
        slow = [answer for answer in answers if b"slow_client" in answer]
        assert len(slow) >= 10
        for answer in slow:
            event = answer[answer.rindex(b"data: "):]
            assert json.loads(
                event[6:event.index(b"\n")]
            )["error"]["code"] == "slow_client" and not answer.endswith(b"\r\n0\r\n\r\n")
        assert all(b"[DONE]" in answer for answer in answers if answer not in slow)


def test_bodies_of_answered_requests_are_given_back(tmp_path):
    with support.serving(tmp_path / "state", *ECHO, "--body-memory-bytes",
                         str(16 << 20)) as server, contextlib.ExitStack() as stack:
        large = chat("x" * 1_000_000)  # counted 4 times
        readers = [stuck(stack, server, "/v1/chat/completions", large) for _ in range(12)]
        assert [status(reader) for reader in readers] == [200] * 12


def test_stalled_clients_leave_when_places_are_short(tmp_path):
    clock, source = support.Clock(tmp_path), "127.0.0.3"
    with support.serving(tmp_path / "state", *ECHO, "--connections-per-address", "8", environment=clock.environment) as server, \
            contextlib.ExitStack() as stack:
        file = server.upload(b"y" * 4_000_000, purpose="user_data")
        readers = [
            stuck(stack, server, f"/v1/files/{file['id']}/content", source=source)
            for _ in range(8)]

        def is_served():
            with contextlib.suppress(ConnectionError):
                return status(stuck(stack, server, "/health", source=source)) == 200

        clock.until(is_served, 2)
        whole = 0
        for reader in readers:
            with contextlib.suppress(ConnectionError):
                whole += len(read_on(reader)[1]) == 4_000_000
        assert whole == 7, "one left"


# --- ten thousand ---

WAVE = 1000
PER_CONNECTION_KIB = 256  # SECURITY.md promises it


def waves(batch):
    """What clients of ten kinds say, and whether they then close their writing side."""
    results, content = results_of(batch), f"/v1/files/{batch['output_file_id']}/content"
    return {
        "silent": b"", "half a header block": b"GET /v1/fi", "half a body": asks(
            "/v1/chat/completions",
            chat("x" * 60000))[:50000], "a small answer": asks("/health").replace(
                b"Connection: close\r\n",
                b""), "pipelined": asks(results).replace(b"close", b"keep-alive") * 8,
        "results": asks(results), "content": asks(content), "a document": asks("/openapi.json"),
        "half-open": asks(results + "?after=9"), "a stream": asks("/v1/chat/completions",
                                                                  chat("x" * 60000, stream=True))}


def said_of_wait(server, client):
    """What is known of a client that waits for too long, in the kernel's words (proc(5)): both ends
    of its connection with the bytes that wait there, and the system call of each thread of the
    server."""
    port = f":{client.getsockname()[1]:04X} "
    ends = [
        line.strip()
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()
        if port in line]
    tasks = sorted(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir())
    return "\n".join([
        *ends,
        *(f"{task.name} {(task / 'comm').read_text().strip()}: {(task / 'syscall').read_text().strip()}"
          for task in tasks)])


@pytest.mark.slow
def test_ten_thousand_slow_stuck_half_open_and_idle_connections(served):
    kinds, asked, seen = waves(served.finished), 0, {}
    before = reset(served)
    for kind, said in kinds.items():
        with contextlib.ExitStack() as stack:
            for _ in range(WAVE):
                asked += 1
                # One address has 896 places: the others are turned away, or take the place of an
                # idle one.
                with contextlib.suppress(OSError):
                    client = dial(stack, served, said)
                    if kind == "half-open":
                        client.shutdown(socket.SHUT_WR)
            with contextlib.ExitStack() as good:
                for i in range(20):
                    client = dial(good,
                                  served,
                                  asks(results_of(served.finished) + "?limit=3"),
                                  source="127.0.0.2")
                    try:
                        head, body = read_on(client)
                    except TimeoutError:
                        pytest.fail(
                            f"good client {i} next to {kind} waits:\n{said_of_wait(served, client)}"
                        )
                    assert b" 200 " in head and body.count(
                        b"\n") == 3, f"a good client next to {kind}: {head}"
            seen[kind] = memory(served) - before
    assert asked == 10_000
    peak = memory(served, "VmHWM") - before
    assert peak < 1024 * PER_CONNECTION_KIB, f"{peak} KiB at most; after each kind: {seen}"

# SPDX-License-Identifier: Apache-2.0
"""Clients that ask for much and read nothing, or stop in the middle: what they cost the server, and what they get when they read on."""
import contextlib, resource, socket

import pytest

import support

ECHO = ("--model", "smollm2=echo")
KIB = 1024


@pytest.fixture(scope="module", autouse=True)
def many_files():
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, old[1]), old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, old)


def memory(server, key="VmRSS"):
    """KiB of the server's process: now, or with VmHWM at their highest since reset()."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key))


def reset(server):
    """Forgets the highest memory so far; returns the memory now."""
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as file:
        file.write("5")
    return memory(server)


def stuck(stack, server, path):
    """A client that has the first bytes of its answer in its socket, and leaves them there."""
    reader = stack.enter_context(socket.socket())
    reader.settimeout(120)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", server.port))
    reader.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    reader.recv(1, socket.MSG_PEEK)
    return reader


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
        batch = server.create(support.jsonl([support.request(f"r{i}", "x" * 4000) for i in range(2500)]))
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
        requests = [support.request(f"r{i}", text) for i in range(count)] + [support.request("hangs", "z", echo={"hang": True})]
        batch = server.create(support.jsonl(requests))
        support.until(lambda: server.batch(batch["id"])["request_counts"]["completed"] == count, 300)
        wanted = server.call("GET", results_of(batch))[1]
        reader, later = (stuck(stack, server, path) for path in (results_of(batch), results_of(batch) + "?after=7"))
        server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
        ended = server.wait(batch["id"])
        head, body = read_on(reader)
        assert b"X-Incomplete: true" in head and body == wanted
        # This one reads files that are deleted meanwhile.
        reader = stuck(stack, server, results_of(batch))
        assert server.call("DELETE", f"/v1/files/{ended['output_file_id']}")[0] == 200
        assert read_on(reader)[1] == wanted
        # And this one comes too late: its page ends early, and is seen to.
        head, body = read_on(later)
        assert f"Content-Length: {len(body)}".encode() not in head and wanted.split(b"\n", 7)[7].startswith(body)
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
        assert sorted(b"".join(pieces).split(b"\n")) == sorted(served.call("GET", f"/v1/files/{batch['output_file_id']}/content")[1].split(b"\n"))

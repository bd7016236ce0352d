# SPDX-License-Identifier: Apache-2.0
"""Clients that are refused while they still send: they see their answer, and no reset of the
connection."""
import contextlib, json, socket

import pytest

import support

ECHO = ("--model", "smollm2=echo")
MIB = 1 << 20


def chat(bytes_, **more):
    return json.dumps({
        "model": "smollm2", "messages": [{"role": "user", "content": "x" * bytes_}],
        **more}).encode()


def post(path, bytes_, kind="application/json"):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {bytes_}\r\n\r\n".encode(
    )


def dial(stack, server, said=b"", source="127.0.0.1"):
    client = stack.enter_context(socket.socket())
    client.settimeout(600)
    client.bind((source, 0))
    client.connect(("127.0.0.1", server.port))
    client.sendall(said)
    return client


def read(client):
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data


def body_bytes(server):
    return next(
        int(float(line.split()[1]))
        for line in server.call("GET", "/metrics")[1].splitlines()
        if line.startswith(b"quern_http_body_bytes "))


# What is refused: a body above the limit, an upload to a route that is not one, an upload without a
# boundary, a chunk of no size.
HEADS = {
    "too large": (post("/v1/chat/completions", 200 * MIB), b" 413 "),
    "no such route": (post("/v1/nothing", 200 * MIB), b" 404 "), "no boundary": (post(
        "/v1/files", 200 * MIB,
        "multipart/form-data"), b" 400 "), "no chunk": (post("/v1/chat/completions", 1).replace(
            b"Content-Length: 1", b"Transfer-Encoding: chunked") + b"what\r\n", b" 400 ")}


@pytest.mark.parametrize("kind", HEADS)
def test_a_refused_client_may_send_on_before_it_reads(tmp_path, kind):
    clock = support.Clock(tmp_path)
    head, status = HEADS[kind]
    with support.serving(tmp_path / "state", *ECHO,
                         environment=clock.environment) as server, contextlib.ExitStack() as stack:
        client = dial(stack, server, head)
        client.recv(1,
                    socket.MSG_PEEK)  # the answer is there, and so is the end of the server's side
        for _ in range(8):
            clock.move(1)
            server.call("GET", "/health")  # the server has seen the time
            client.sendall(bytes(MIB))
        data = read(client)
        assert status in data[:20] and json.loads(data.split(b"\r\n\r\n",
                                                             1)[1])["error"]["message"], data


def test_bodies_without_memory_get_their_503(tmp_path):
    with support.serving(tmp_path / "state", *ECHO, "--body-memory-bytes",
                         str(32 * MIB)) as server, contextlib.ExitStack() as stack:
        held = chat(4 * MIB, echo={"hang": True})  # counted 4 times
        dial(stack, server, post("/v1/chat/completions", len(held)) + held)
        support.until(lambda: body_bytes(server) == len(held))
        body = chat(5 * MIB)
        for _ in range(8):
            data = read(dial(stack, server, post("/v1/chat/completions", len(body)) + body))
            head, told = data.split(b"\r\n\r\n", 1)
            assert b" 503 " in head and b"retry-after: 1" in head and b"--body-memory-bytes" in told
        assert server.call("POST", "/v1/chat/completions", chat(2 * MIB))[0] == 200


def test_a_client_without_a_place_may_send_on_before_it_reads(tmp_path):
    with support.serving(tmp_path / "state", *ECHO, "--connections-per-address",
                         "2") as server, contextlib.ExitStack() as stack:
        hung = chat(10, echo={"hang": True})
        for _ in range(2):  # no idle ones that could leave
            dial(stack, server, post("/v1/chat/completions", len(hung)) + hung, "127.0.0.2")
        support.until(
            lambda: server.call("GET", "/metrics")[1].count(b"quern_http_requests_inflight 3") == 1)
        client = dial(stack, server, source="127.0.0.2")
        client.recv(1, socket.MSG_PEEK)
        for _ in range(2):
            client.sendall(bytes(MIB))
        data = read(client)
        assert b" 503 " in data[:20] and b"Too many connections" in data


def test_a_batch_whose_file_was_refused_has_no_schema(echo_server):
    batch = echo_server.json(
        "POST", "/v1/batches", {
            "input_file_id": "file-none", "endpoint": "/v1/chat/completions",
            "completion_window": "24h"})
    echo_server.wait(batch["id"])
    found = echo_server.json("GET", f"/v1/batches/{batch['id']}/schema")
    assert found == {"schema": None, "is_made": True, "indexed": 0, "lines": 0}

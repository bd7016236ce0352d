# SPDX-License-Identifier: Apache-2.0
"""A server that has few descriptors: more batches than it may have files open, more connections,
and each open that fails in turn. Nothing of it is a broken disk: the server lives, says so, and
every line comes once."""
import contextlib, json, os, re, resource, signal, socket, subprocess

import pytest

import life, support

LIMIT = 340  # the least a server with one echo model starts with, and a little


class Bounded(support.Server):
    """A server that may have LIMIT files open, also the hard way."""

    def __init__(self, state, *arguments, limit=LIMIT, environment=None):
        super().__init__(state, *arguments, environment=environment)
        self.limit = limit

    def start(self):
        self.log = open(self.state.parent / f"{self.state.name}.log", "a")
        command = [
            "prlimit", f"--nofile={self.limit}:{self.limit}", support.BINARY, "serve", "--port",
            "0", "--state-dir",
            str(self.state), *self.arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, **(self.environment or {})})
        line = self.process.stdout.readline()
        found = re.match(r"listening on https?://\S+:(\d+)$", line.strip())
        assert found, f"the server did not start: {self.process.wait(60)} {self.log_text()[-2000:]}"
        self.port = int(found[1])
        return self

    def open_files(self):
        return int(life.metric(self, "process_open_fds"))


@contextlib.contextmanager
def bounded(state, *arguments, **keywords):
    server = Bounded(state, *arguments, **keywords)
    try:
        yield server.start()
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        server.process.stdout.close()


def test_more_batches_wait_than_files_may_be_open(tmp_path):
    """Each has one line that is done and one that hangs: its log has a record, and its input will
    be read again."""
    state, lines = tmp_path / "state", life.echo_lines(2)
    lines[1]["body"]["echo"] = {"hang": True}
    with bounded(state, *life.ECHO) as server:
        file = server.upload(support.jsonl(lines))["id"]
        body = {
            "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batches = [server.json("POST", "/v1/batches", body)["id"] for _ in range(LIMIT)]
        for batch in batches:
            life.wait_for_lines(server, batch, 1)
        assert server.open_files() < LIMIT - 100, server.open_files()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    support.fsck(state)
    with bounded(state, *life.ECHO) as server:  # and again at the next start
        assert server.open_files() < LIMIT - 100
        for batch in batches:
            assert server.batch(batch)["request_counts"]["completed"] >= 1
        for batch in batches:
            server.json("POST", f"/v1/batches/{batch}/cancel", {})
        for batch in batches:
            ended = server.wait(batch)
            assert ended["status"] == "cancelled" and ended["request_counts"]["completed"] >= 1
        assert server.stop() == 0, server.log_text()[-2000:]
        assert "event=sync_failed" not in server.log_text() and "disk_full" not in server.log_text()
    support.fsck(state)


def test_more_connections_come_than_files_may_be_open(tmp_path):
    """Clients that keep their connections open get an answer or a refusal; the batch next to them
    ends."""
    state, requests = tmp_path / "state", life.echo_lines(200)
    with bounded(state, *life.ECHO) as server, contextlib.ExitStack() as stack:
        assert "event=connections_fitted" in server.log_text()
        sockets = []
        for _ in range(LIMIT * 2):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), 10))
                connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
                sockets.append(connection)
        assert sockets
        stack.close()
        support.until(
            lambda: server.call("GET", "/v1/models")[0] == 200)  # the server has seen their ends
        client = life.Client(requests)
        client.go(server)
        assert server.stop() == 0, server.log_text()[-2000:]
        assert "event=sync_failed" not in server.log_text() and "disk_full" not in server.log_text()
    support.fsck(state)


def test_a_batch_ends_while_connections_hold_all_that_is_left(tmp_path):
    """The connections stay, and the results of a batch that was created before are written all the
    same."""
    state, clock = tmp_path / "state", support.Clock(tmp_path)
    with bounded(state, *life.ECHO, environment=clock.environment) as server, \
            contextlib.ExitStack() as stack:
        batch = server.create(support.jsonl(life.held_lines(3000, 2000)))["id"]
        life.wait_for_lines(server, batch, 1000)
        for _ in range(LIMIT):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), 10))
                connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert f"batch={batch} event=completed" not in server.log_text()
        clock.move(61)  # the held line is answered
        life.poll(lambda: f"batch={batch} event=completed" in server.log_text(),
                  what="the end of the batch")
        stack.close()
        assert server.stop() == 0, server.log_text()[-2000:]
    support.fsck(state)


def test_a_limit_that_is_too_low_is_told(tmp_path):
    done = subprocess.run([
        "prlimit", "--nofile=200:200", support.BINARY, "serve", "--port", "0", "--state-dir",
        str(tmp_path / "state"), *life.ECHO],
                          capture_output=True,
                          text=True,
                          timeout=60)
    assert done.returncode > 0 and "the limit of 200 open files is too low: this server needs " in done.stderr, done.stderr


@pytest.mark.parametrize("error", ("EMFILE", "ENFILE", "ENOMEM"))
def test_an_open_that_fails_for_want_of_descriptors_ends_nothing(tmp_path, error):
    """The n-th open fails, for each n of a life. Before the server listens it may end, with a
    sentence; after that it goes on."""
    served = 0
    for at in life.spread(1, 60, max(8, life.scaled(60))):
        state = tmp_path / f"state-{at}"
        server = life.Victim(state, *life.ECHO, plan=f"open:{at}:{error}", ends=(1, 2, 3, 5, 6, 7))
        client = life.Client(life.echo_lines(50))
        try:
            server.start()
        except life.Died:
            assert "error=" in server.log_text() or "quern serve:" in server.log_text(
            ), server.log_text()[-1500:]
            continue
        try:
            served += 1
            life.poll(lambda: takes(server, client), what="the upload")
            client.wait(server)
            assert server.stop() == 0, f"open {at}: {server.log_text()[-1500:]}"
            assert "event=sync_failed" not in server.log_text(
            ) and "disk_full" not in server.log_text(), server.log_text()
        finally:
            if server.process.poll() is None:
                server.kill()
        support.fsck(state)
    assert served >= 4


def takes(server, client):
    """One try to upload and create; a 503 asks to come again."""
    if not client.file:
        boundary = "b0undary"
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}\r\nContent-Disposition: '
            f'form-data; name="file"; filename="a.jsonl"\r\n\r\n'
        ).encode() + client.content + f"\r\n--{boundary}--\r\n".encode()
        status, data = server.call("POST", "/v1/files", body,
                                   f"multipart/form-data; boundary={boundary}")
        assert status in (200, 503), data
        client.file = json.loads(data)["id"] if status == 200 else None
        return False
    status, data = server.call("POST", "/v1/batches", {
        "input_file_id": client.file, "endpoint": "/v1/chat/completions", "completion_window": "24h"
    })
    assert status in (200, 503), data
    if status == 200:
        client.batch = json.loads(data)["id"]
    return status == 200

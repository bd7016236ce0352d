# SPDX-License-Identifier: Apache-2.0
"""A server that dies between the end of a batch and its webhook: the event comes after the restart,
under the same id as whatever was sent before (I12), and none comes for an end that is not
durable."""
import json, socket, threading

import life, support

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


class Door:
    """A receiver that keeps each request's id and batch; while `deaf` it reads a request and says
    nothing."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/hook"
        self.deaf, self.seen, self.changed, self.held = True, [], threading.Condition(), []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"}}"):
            piece = connection.recv(65536)
            if not piece:
                return
            data += piece
        event = json.loads(data.split(b"\r\n\r\n", 1)[1])
        header = next(
            line.split(b": ", 1)[1]
            for line in data.split(b"\r\n")
            if line.lower().startswith(b"webhook-id"))
        assert header.decode() == event["id"]
        with self.changed:
            deaf = self.deaf
            self.seen.append((event["id"], event["data"]["id"], event["type"]))
            self.changed.notify_all()
        if deaf:
            self.held.append(connection)
        else:
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            connection.close()

    def wait(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= count,
                                         60), f"{len(self.seen)} of {count}"
            return list(self.seen)

    def close(self):
        self.listener.close()
        for connection in self.held:
            connection.close()


def arguments(tmp_path, url):
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return (*life.ECHO, "--webhook-secret-file", str(path), "--webhook-url", url,
            "--webhook-allow-private", "--webhook-retry-seconds", "1")


def test_a_kill_between_the_end_and_the_answer_sends_the_same_event_again(tmp_path):
    door, state = Door(), tmp_path / "state"
    with support.serving(state, *arguments(tmp_path, door.url)) as server:
        batch = server.wait(server.create(support.jsonl(life.echo_lines(20)))["id"])
        first = door.wait(1)[0]
        server.kill()
    support.fsck(state)
    door.deaf = False
    with support.serving(state, *arguments(tmp_path, door.url)) as server:
        assert door.wait(2) == [first, first]
        assert first[1:] == (batch["id"], "batch.completed")
        life.poll(lambda: life.metric(server, "quern_webhook_pending") == 0)
    support.fsck(state)
    door.close()


def test_killed_at_any_disk_call_the_batch_ends_once_and_its_event_has_one_id(tmp_path):
    """The fault plan kills the process at calls spread over the life of one batch; the transaction
    that ends it is among them. Whatever was heard before the death is heard again under its own
    id."""
    requests = life.echo_lines(20)
    for number, at in enumerate(life.spread(1, 40, life.scaled(12))):
        door, state = Door(), tmp_path / f"{number}"
        door.deaf = False
        options, client = arguments(tmp_path, door.url), life.Client(requests)
        victim = life.Victim(state, *options, plan=f"any:{at}:KILL")
        try:
            client.go(victim.start())
            victim.kill()
        except life.Died:
            pass
        with support.serving(state, *options) as server:
            client.go(server)
            batch = server.batch(client.batch)
            door.wait(1)
            life.poll(lambda: life.metric(server, "quern_webhook_pending") == 0)
            assert batch["status"] == "completed"
            ours = {event for event in door.seen if event[1] == client.batch}
            assert len(ours) == 1 and next(iter(ours))[2] == "batch.completed"
        support.fsck(state)
        door.close()

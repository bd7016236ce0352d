# SPDX-License-Identifier: Apache-2.0
"""Cases 148 to 154: webhooks, received by a real HTTP server and unwrapped by the real client."""
import base64, hashlib, hmac, http.server, json, threading

import openai
import pytest

import support
from cases import create, lines, metric, poll, serving, wait

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PAUSE_S = 30  # before a second try; no machine is so slow that it comes unless the clock is moved
OLD = "whsec_" + base64.b64encode(b"the secret before").decode()


class Receiver:
    """Answers each delivery with the next status of the list, then 200; keeps what came."""

    def __init__(self, statuses=(), location=None, port=0):
        self.statuses, self.seen, self.lock = list(statuses), [], threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):
                body = handler.rfile.read(int(handler.headers["content-length"]))
                with self.lock:
                    status = self.statuses.pop(0) if self.statuses else 200
                    self.seen.append((dict(handler.headers.items()), body, status))
                handler.send_response(status)
                if status == 302:
                    handler.send_header("Location", location)
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(handler, *arguments):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def told(folder, url, *secrets):
    """Arguments of a server that tells `url`."""
    secret = folder / "secret"
    secret.write_text("\n".join(secrets or (SECRET,)) + "\n")
    secret.chmod(0o600)
    return ("--model", "smollm2=echo", "--webhook-url", url, "--webhook-secret-file", str(secret),
            "--webhook-allow-private", "--webhook-retry-seconds", str(PAUSE_S))


def let_fail(server, clock, count):
    """Waits until deliveries have failed `count` times; then the next one is due."""
    poll(lambda: metric(server, 'quern_webhook_deliveries_total{outcome="failed"}') == count)
    clock.move(2**count * PAUSE_S)


def low(headers):
    return {name.lower(): value for name, value in headers.items()}


def sign(secret, headers, body):
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def test_case_148_signatures(tmp_path):
    """The signature is HMAC-SHA256 over id, timestamp and body, as in the contract's vector."""
    vector = {"webhook-id": "evt_0001", "webhook-timestamp": "1750000000"}
    body = b'{"id":"evt_0001","object":"event","created_at":1750000000,"type":"batch.completed","data":{"id":"batch_0001"}}'
    assert sign(SECRET, vector, body) == "v1,LilyHpwyW2Q5628HWpiG28heaXlTm7HxE8lv8thvFe0="
    with Receiver() as receiver, serving(tmp_path, *told(tmp_path,
                                                         receiver.url)) as (server, start):
        create(start(), lines(1))
        poll(lambda: receiver.seen)
        headers, body, _ = receiver.seen[0]
        assert low(headers)["webhook-signature"] == sign(SECRET, low(headers), body)
        assert low(headers)["content-type"] == "application/json"


def test_case_149_unwrapped_by_the_client(tmp_path):
    """client.webhooks.unwrap of real deliveries: the event's class and the batch's id, for each way
    a batch ends."""
    with Receiver() as receiver, serving(tmp_path, *told(tmp_path,
                                                         receiver.url)) as (server, start):
        client = start()
        done, bad = create(client, lines(1)), create(client, b'{"a":1}\n')
        left = create(client, lines(3, echo={"delay_ms": 300000}))
        client.batches.cancel(left.id)
        poll(lambda: len(receiver.seen) == 3)
        events = [
            client.webhooks.unwrap(body.decode(), low(headers), secret=SECRET)
            for headers, body, _ in receiver.seen]
        assert {(event.type, event.data.id)
                for event in events} == {("batch.completed", done.id), ("batch.failed", bad.id),
                                         ("batch.cancelled", left.id)}
        for event in events:
            batch = client.batches.retrieve(event.data.id)
            assert event.object == "event" and event.created_at == (batch.completed_at
                                                                    or batch.failed_at
                                                                    or batch.cancelled_at)
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(receiver.seen[0][1].decode() + " ",
                                   low(receiver.seen[0][0]),
                                   secret=SECRET)


def test_case_150_a_receiver_that_fails_twice(tmp_path):
    """500 twice, then 200: the same webhook-id, a signature for each attempt's own time, and no
    delivery after the 200."""
    clock = support.Clock(tmp_path)
    with Receiver([500, 500]) as receiver, serving(tmp_path,
                                                   *told(tmp_path, receiver.url),
                                                   clock=clock) as (server, start):
        client = start()
        create(client, lines(1))
        let_fail(server, clock, 1)
        let_fail(server, clock, 2)
        poll(lambda: len(receiver.seen) == 3)
        create(client, lines(1))
        poll(lambda: len(receiver.seen) == 4
             )  # another event came through, and no fourth of the first
        attempts = [low(headers) for headers, _, _ in receiver.seen[:3]]
        assert len({headers["webhook-id"]
                    for headers in attempts}) == 1 and len({
                        body
                        for _, body, _ in receiver.seen[:3]}) == 1
        assert len({h["webhook-timestamp"]
                    for h in attempts}) == len({h["webhook-signature"]
                                                for h in attempts}) == 3
        for headers, body, _ in receiver.seen[:3]:
            client.webhooks.unwrap(body.decode(), low(headers), secret=SECRET)
        assert low(receiver.seen[3][0])["webhook-id"] != attempts[0]["webhook-id"]


def test_case_151_redirects_are_failures(tmp_path):
    """302: not followed, and tried again."""
    clock = support.Clock(tmp_path)
    with Receiver() as other, Receiver([302], other.url) as receiver, \
            serving(tmp_path, *told(tmp_path, receiver.url), clock=clock) as (server, start):
        create(start(), lines(1))
        let_fail(server, clock, 1)
        poll(lambda: len(receiver.seen) == 2)
        assert [status for _, _, status in receiver.seen] == [302, 200] and other.seen == []


def test_case_152_a_receiver_that_is_down(tmp_path):
    """Nobody listens: the batch does not mind, and after a restart of both it is told."""
    clock = support.Clock(tmp_path)
    with support.reserved_port() as port, \
            serving(tmp_path, *told(tmp_path, f"http://127.0.0.1:{port}/hook"), clock=clock) as (server, start):
        client = start()
        batch = create(client, lines(3))
        assert wait(client, batch.id).status == "completed"
        let_fail(server, clock, 1)
        server.kill()
        with Receiver(port=port) as back:
            client = start()
            poll(lambda: back.seen)
            headers, body, _ = back.seen[0]
            assert client.webhooks.unwrap(body.decode(), low(headers),
                                          secret=SECRET).data.id == batch.id


def test_case_153_two_secrets(tmp_path):
    """Two secrets: two v1 signatures, each of which verifies."""
    with Receiver() as receiver, serving(tmp_path, *told(tmp_path, receiver.url, SECRET,
                                                         OLD)) as (server, start):
        client = start()
        create(client, lines(1))
        poll(lambda: receiver.seen)
        headers, body, _ = receiver.seen[0]
        assert len(low(headers)["webhook-signature"].split(" ")) == 2
        for secret in (SECRET, OLD):
            assert client.webhooks.unwrap(body.decode(), low(headers),
                                          secret=secret).type == "batch.completed"


def test_case_154_after_the_end(tmp_path):
    """One event a batch, sent when a retrieve already shows the end."""
    with Receiver() as receiver, serving(tmp_path, *told(tmp_path,
                                                         receiver.url)) as (server, start):
        client = start()
        batches, checked = [create(client, lines(50)).id for _ in range(10)], 0
        while checked < len(batches):
            poll(lambda: len(receiver.seen) > checked)
            event = json.loads(receiver.seen[checked][1])
            assert client.batches.retrieve(event["data"]["id"]).status == "completed"
            checked += 1
        assert sorted(
            json.loads(body)["data"]["id"] for _, body, _ in receiver.seen) == sorted(batches)

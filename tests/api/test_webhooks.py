# SPDX-License-Identifier: Apache-2.0
"""Webhooks against a receiver in this process: cases 148 to 154 of the contract, invariant I12, and
what must not delay or leak. The signature is checked by the real client,
`openai.OpenAI().webhooks`."""
import base64, contextlib, http.server, json, re, threading

import openai
import pytest

import support

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
OLD_SECRET = "a plain old secret"
ECHO = ("--model", "smollm2=echo")
PAUSE_S = 30  # before a second try; no machine is so slow that it comes unless the clock is moved


class Receiver:
    """Keeps what it is sent, and answers with `statuses` in turn, then 200."""

    def __init__(self, statuses=(), port=0, location=None, size=2):
        self.statuses, self.seen, self.ready = list(statuses), [], threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                with outer.ready:
                    status = outer.statuses.pop(0) if outer.statuses else 200
                    outer.seen.append((self.path, dict(self.headers), body, status))
                    outer.ready.notify_all()
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(b"x" * size)

            def do_GET(self):
                with outer.ready:
                    outer.seen.append((self.path, dict(self.headers), b"", 0))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?token=canary-in-the-query"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, count, seconds=60):
        with self.ready:
            assert self.ready.wait_for(lambda: len(self.seen) >= count,
                                       seconds), f"{len(self.seen)} of {count} deliveries"
            return list(self.seen)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def receiving(*arguments, **keywords):
    receiver = Receiver(*arguments, **keywords)
    try:
        yield receiver
    finally:
        receiver.close()


@pytest.fixture
def secret_file(tmp_path):
    return write_secret(tmp_path, SECRET)


def write_secret(tmp_path, *secrets):
    path = tmp_path / "webhook.secret"
    path.write_text("\n".join(secrets) + "\n")
    path.chmod(0o600)
    return path


def hooked(secret_file, *more):
    return (*ECHO, "--webhook-secret-file", str(secret_file), "--webhook-allow-private",
            "--webhook-retry-seconds", str(PAUSE_S), *more)


def unwrap(delivery, secret=SECRET):
    return openai.OpenAI(api_key="none").webhooks.unwrap(
        delivery[2], {k.lower(): v
                      for k, v in delivery[1].items()}, secret=secret)


def run_batch(server, **extra):
    batch = server.create(support.jsonl([support.request("a", "hello")]), **extra)
    return server.wait(batch["id"])


def pending(server):
    text = server.call("GET", "/metrics")[1].decode()
    return float(re.search(r"^quern_webhook_pending (\S+)", text, re.M)[1])


def outcomes(server):
    text = server.call("GET", "/metrics")[1].decode()
    return {
        name: int(count)
        for name, count in re.findall(r'quern_webhook_deliveries_total\{outcome="(\w+)"\} (\d+)',
                                      text)}


def let_fail(server, clock, count):
    """Waits until deliveries have failed `count` times; then the next one is due."""
    support.until(lambda: outcomes(server)["failed"] == count)
    clock.move(2 ** count * PAUSE_S)


@pytest.fixture
def clock(tmp_path):
    return support.Clock(tmp_path)


def test_149_the_clients_unwrap_takes_a_real_delivery(tmp_path, secret_file):
    with receiving() as receiver, support.serving(
            tmp_path / "state", *hooked(secret_file, "--webhook-url", receiver.url)) as server:
        batch = run_batch(server)
        delivery = receiver.wait(1)[0]
        event = unwrap(delivery)
        assert type(event).__name__ == "BatchCompletedWebhookEvent"
        assert (event.type, event.object, event.data.id) == ("batch.completed", "event",
                                                             batch["id"])
        assert event.created_at == batch["completed_at"]
        headers = {k.lower(): v for k, v in delivery[1].items()}
        assert headers["webhook-id"] == event.id and re.fullmatch(r"evt_[0-9a-f]{32}", event.id)
        assert headers["content-type"] == "application/json"
        assert json.loads(delivery[2]) == {
            "id": event.id, "object": "event", "created_at": event.created_at,
            "type": "batch.completed", "data": {"id": batch["id"]}}
        with pytest.raises(openai.InvalidWebhookSignatureError):
            unwrap(delivery, "whsec_" + base64.b64encode(b"another secret").decode())
        support.until(lambda: outcomes(server) == {"succeeded": 1, "failed": 0, "given_up": 0} and
                      pending(server) == 0)
    assert "canary-in-the-query" not in server.log_text() and SECRET[6:] not in server.log_text()
    support.fsck(tmp_path / "state")


def test_each_end_of_a_batch_has_its_event(tmp_path, secret_file):
    with receiving() as receiver, support.serving(
            tmp_path / "state", *hooked(secret_file, "--webhook-url", receiver.url)) as server:
        good = run_batch(server)
        failed = server.wait(server.create(b'{"custom_id":"a"}\n')["id"])
        long = server.create(support.jsonl([support.request("a", "hello", echo={"hang": True})]))
        server.json("POST", f"/v1/batches/{long['id']}/cancel", {})
        cancelled = server.wait(long["id"])
        assert [b["status"] for b in (good, failed, cancelled)] == [
            "completed", "failed", "cancelled"]
        seen = {(event.type, event.data.id, event.created_at)
                for event in map(unwrap, receiver.wait(3))}
        assert seen == {("batch.completed", good["id"], good["completed_at"]),
                        ("batch.failed", failed["id"], failed["failed_at"]),
                        ("batch.cancelled", cancelled["id"], cancelled["cancelled_at"])}
    support.fsck(tmp_path / "state")


def test_only_the_events_that_were_asked_for_are_sent(tmp_path, secret_file):
    more = ("--webhook-events", "batch.failed, quern.batch.stuck")
    with receiving() as receiver, support.serving(
            tmp_path / "state", *hooked(secret_file, "--webhook-url", receiver.url,
                                        *more)) as server:
        run_batch(server)
        failed = server.wait(server.create(b'{"custom_id":"a"}\n')["id"])
        assert unwrap(receiver.wait(1)[0]).data.id == failed["id"]
        support.until(lambda: pending(server) == 0)
        assert len(receiver.seen) == 1


def test_150_a_retry_has_the_same_id_and_a_new_timestamp_and_signature(
        tmp_path, secret_file, clock):
    with receiving([500, 500]) as receiver, support.serving(
            tmp_path / "state",
            *hooked(secret_file, "--webhook-url", receiver.url),
            environment=clock.environment) as server:
        run_batch(server)
        let_fail(server, clock, 1)
        let_fail(server, clock, 2)
        tries = receiver.wait(3)
        support.until(lambda: pending(server) == 0)
        assert [t[3] for t in receiver.seen] == [500, 500, 200]
        headers = [{k.lower(): v for k, v in t[1].items()} for t in tries]
        assert len({h["webhook-id"] for h in headers}) == 1
        assert len({h["webhook-timestamp"] for h in headers}) == 3
        assert len({h["webhook-signature"] for h in headers}) == 3
        for delivery in tries:
            unwrap(delivery)
        assert outcomes(server) == {"succeeded": 1, "failed": 2, "given_up": 0}


def test_the_whole_schedule_of_three_days_runs_until_the_event_is_given_up(
        tmp_path, secret_file, clock):
    """Pauses of 5 s, 10 s … 4 h, each random in 75 % to 125 % of its length, until the event is 72
    hours old."""
    pauses, looks = [min(5 * 2 ** number, 4 * 3600) for number in range(40)], 0
    with receiving([500] * 100) as receiver, receiving() as other, \
            support.serving(tmp_path / "state",
                            *hooked(secret_file, "--webhook-retry-seconds", "5"),
                            environment=clock.environment) as server:
        run_batch(server, webhook_url=receiver.url)
        support.until(lambda: outcomes(server)["failed"] == 1)
        last = next(number for number in range(40) if 1.26 * sum(pauses[:number]) >= 72 * 3600)
        for number in range(last):
            clock.move(0.7 * pauses[number])
            # a twentieth of this pause is more than this takes on the slowest machine
            if number >= 9 and number % 3 == 0:
                run_batch(server, webhook_url=other.url)
                looks += 1
                other.wait(looks)  # an event in between: what is due has been looked for since
                assert len(receiver.seen) == number + 1
            clock.move(0.56 * pauses[number])
            support.until(
                lambda: outcomes(server)["failed"] + outcomes(server)["given_up"] == number + 2)
            assert outcomes(server)["given_up"] == (number + 1 == last)
        support.until(lambda: pending(server) == 0)
        clock.move(24 * 3600)
        run_batch(server, webhook_url=other.url)
        other.wait(looks + 1)
        assert len(receiver.seen) == last + 1
    support.fsck(tmp_path / "state")


def test_151_a_redirect_is_a_failure_and_is_not_followed(tmp_path, secret_file, clock):
    with receiving() as other, receiving([302, 307], location=other.url) as receiver, \
            support.serving(tmp_path / "state",
                            *hooked(secret_file, "--webhook-url", receiver.url),
                            environment=clock.environment) as server:
        run_batch(server)
        let_fail(server, clock, 1)
        let_fail(server, clock, 2)
        assert [t[3] for t in receiver.wait(3)] == [302, 307, 200]
        assert other.seen == []


def test_152_a_dead_receiver_delays_nothing_and_gets_its_event_after_a_restart(
        tmp_path, secret_file, clock):
    with support.reserved_port() as port:
        arguments = hooked(secret_file, "--webhook-url", f"http://127.0.0.1:{port}/hook")
        with support.serving(tmp_path / "state", *arguments,
                             environment=clock.environment) as server:
            batch = run_batch(server)
            assert batch["status"] == "completed"
            support.until(lambda: outcomes(server)["failed"] >= 1)
            assert pending(server) == 1
        support.fsck(tmp_path / "state")
        clock.move(2 * PAUSE_S)
        with receiving(port=port) as receiver, support.serving(
                tmp_path / "state", *arguments, environment=clock.environment) as server:
            assert unwrap(receiver.wait(1)[0]).data.id == batch["id"]
            support.until(lambda: pending(server) == 0)


def test_a_dead_receiver_does_not_delay_another(tmp_path, secret_file):
    with receiving() as good, receiving() as dead, support.serving(tmp_path / "state",
                                                                   *hooked(secret_file)) as server:
        held = threading.Event()
        dead.server.finish_request = lambda *arguments: held.wait(
            60)  # takes connections and says nothing
        for _ in range(3):
            run_batch(server, webhook_url=dead.url)
        batch = run_batch(server, webhook_url=good.url)
        assert unwrap(good.wait(1)[0]).data.id == batch["id"]
        held.set()


def test_153_two_secrets_give_two_signatures_and_each_verifies(tmp_path):
    secrets = write_secret(tmp_path, SECRET, "# the one before", OLD_SECRET)
    with receiving() as receiver, support.serving(tmp_path / "state",
                                                  *hooked(secrets, "--webhook-url",
                                                          receiver.url)) as server:
        run_batch(server)
        delivery = receiver.wait(1)[0]
        signatures = {k.lower(): v for k, v in delivery[1].items()}["webhook-signature"].split(" ")
        assert len(signatures) == 2 and all(s.startswith("v1,")
                                            for s in signatures) and signatures[0] != signatures[1]
        unwrap(delivery, SECRET)
        unwrap(delivery, OLD_SECRET)


def test_154_one_event_a_batch_and_only_once_a_retrieve_shows_its_end(tmp_path, secret_file):
    shown = []
    with receiving() as receiver, support.serving(
            tmp_path / "state", *hooked(secret_file, "--webhook-url", receiver.url)) as server:
        answer = receiver.server.RequestHandlerClass.do_POST

        def look_and_answer(handler):
            batch_id = None
            body = handler.rfile.read(int(handler.headers["content-length"]))
            batch_id = json.loads(body)["data"]["id"]
            shown.append(server.batch(batch_id)["status"])
            handler.rfile = __import__("io").BytesIO(body)
            answer(handler)

        receiver.server.RequestHandlerClass.do_POST = look_and_answer
        batches = [run_batch(server)["id"] for _ in range(5)]
        receiver.wait(5)
        support.until(lambda: pending(server) == 0)
        assert shown == ["completed"] * 5
        assert sorted(unwrap(d).data.id for d in receiver.seen) == sorted(batches)


def test_a_batchs_own_url_is_told_of_that_batch_only(tmp_path, secret_file):
    with receiving() as own, receiving() as configured, \
            support.serving(tmp_path / "state", *hooked(secret_file, "--webhook-url", configured.url)) as server:
        first, second = run_batch(server), run_batch(server, webhook_url=own.url)
        assert unwrap(own.wait(1)[0]).data.id == second["id"]
        both = [unwrap(d) for d in configured.wait(2)]
        assert [e.data.id for e in both] == [first["id"], second["id"]]
        assert unwrap(own.seen[0]).id == both[1].id, "one event, one id, whoever gets it"
    support.fsck(tmp_path / "state")


def test_a_long_reply_is_cut_off_and_the_status_counts(tmp_path, secret_file):
    with receiving(size=10 << 20) as receiver, support.serving(
            tmp_path / "state", *hooked(secret_file, "--webhook-url", receiver.url)) as server:
        run_batch(server)
        receiver.wait(1)
        support.until(lambda: outcomes(server) == {"succeeded": 1, "failed": 0, "given_up": 0})


def test_no_proxy_of_the_environment_is_used(tmp_path, secret_file):
    with receiving() as receiver, receiving() as proxy:
        environment = {
            name: f"http://127.0.0.1:{proxy.port}"
            for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY")}
        with support.serving(tmp_path / "state",
                             *hooked(secret_file, "--webhook-url", receiver.url),
                             environment=environment) as server:
            run_batch(server)
            receiver.wait(1)
        assert proxy.seen == []


@pytest.mark.parametrize("url, works", [("https://hooks.invalid/hook", True),
                                        ("http://example.com/hook", False),
                                        ("https://127.0.0.1/", False),
                                        ("https://user:pw@example.com/", False),
                                        ("https://2130706433/", False), ("https://[::1]/", False),
                                        ("https://0x7f.1/", False), ("https://localhost./", False),
                                        ("ftp://example.com/", False),
                                        ("https://169.254.169.254/latest", False),
                                        ("https://[::ffff:10.0.0.1]/", False), (7, False)])
def test_a_batchs_url_must_be_https_and_public_unless_allowed(tmp_path, secret_file, url, works):
    with support.serving(tmp_path / "state", *ECHO, "--webhook-secret-file",
                         str(secret_file)) as server:
        file = server.upload(support.jsonl([support.request("a", "hello")]))
        status, data = server.call(
            "POST", "/v1/batches", {
                "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h", "webhook_url": url})
        assert status == (200 if works else 400), data
        if not works:
            error = json.loads(data)["error"]
            assert error["param"] == "webhook_url" and "webhook_url" in error["message"]


def test_a_name_that_resolves_to_a_private_address_gets_no_connection(tmp_path, secret_file):
    """What a rebinding name server does: the name passes, and the address behind it does not. This
    machine's own name stands for such a name; it resolves to one of the machine's own addresses."""
    import socket
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        import ipaddress
        if not ipaddress.ip_address(socket.gethostbyname(name)).is_global:
            with support.serving(tmp_path / "state", *ECHO, "--webhook-secret-file",
                                 str(secret_file), "--webhook-retry-seconds", "1") as server:
                run_batch(server, webhook_url=f"https://{name}:9/hook")
                support.until(lambda: outcomes(server)["failed"] >= 1)
                text = server.call("GET", "/metrics")[1].decode()
                assert float(re.search(r"^quern_webhook_refused_total (\S+)", text, re.M)[1]) >= 1
                assert "not on the open internet" in server.log_text()
            return
    pytest.skip("this machine's name does not resolve to a private address")


def test_without_a_secret_a_batchs_url_is_refused_and_so_is_the_option(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        file = server.upload(support.jsonl([support.request("a", "hello")]))
        status, data = server.call(
            "POST", "/v1/batches", {
                "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h", "webhook_url": "https://example.com/"})
        assert status == 400 and b"no webhook secret" in data
    done = support.quern("serve",
                         "--port",
                         "0",
                         "--state-dir",
                         tmp_path / "other",
                         *ECHO,
                         "--webhook-url",
                         "https://example.com/",
                         timeout=60)
    assert done.returncode != 0 and "--webhook-secret-file" in done.stderr


@pytest.mark.parametrize("text, mode, why", [(SECRET, 0o644, "chmod 600"),
                                             (SECRET, 0o640, "chmod 600"), ("", 0o600, "no secret"),
                                             ("whsec_?", 0o600, "not base64"),
                                             ("a\nb\nc", 0o600, "one secret too many")])
def test_a_bad_secret_file_is_refused_without_showing_it(tmp_path, text, mode, why):
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(mode)
    done = support.quern("serve",
                         "--port",
                         "0",
                         "--state-dir",
                         tmp_path / "state",
                         *ECHO,
                         "--webhook-secret-file",
                         path,
                         timeout=60)
    assert done.returncode != 0 and why in done.stderr and str(path) in done.stderr
    assert SECRET[6:] not in done.stdout + done.stderr


@pytest.mark.parametrize("way", ["variable", "file", "credential", "env-file"])
def test_a_secret_may_come_from_the_environment_or_the_service_manager(tmp_path, secret_file, way):
    environment, more = {}, ()
    if way == "variable":
        environment = {"QUERN_WEBHOOK_SECRET": SECRET}
    elif way == "file":
        environment = {"QUERN_WEBHOOK_SECRET_FILE": str(secret_file)}
    elif way == "credential":
        folder = tmp_path / "credentials"
        folder.mkdir()
        (folder / "webhook-secret").write_text(SECRET)
        (folder / "webhook-secret").chmod(0o444)
        environment = {"CREDENTIALS_DIRECTORY": str(folder)}
    else:
        variables = tmp_path / ".env"
        variables.write_text(f'# for quern\nOTHER=1\nexport QUERN_WEBHOOK_SECRET="{SECRET}"\n')
        variables.chmod(0o600)
        more = ("--env-file", str(variables))
    with receiving() as receiver:
        arguments = (*ECHO, "--webhook-allow-private", "--webhook-url", receiver.url, *more)
        with support.serving(tmp_path / "state", *arguments, environment=environment) as server:
            run_batch(server)
            unwrap(receiver.wait(1)[0])
            assert SECRET.encode() not in open(f"/proc/{server.process.pid}/environ", "rb").read()

# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: what a running server reads again, what it names instead, and that a mistake changes
nothing."""
import base64, hashlib, hmac, http.client, http.server, json, os, pathlib, pty, re, signal, ssl
import threading

import pytest

import gcp, support
import upstream as fake_upstream
from certificate import make_certificate

ECHO = ("--model", "smollm2=echo")
PAGE = pathlib.Path(__file__).parents[2] / "docs/man/quern-serve.1"


def write(path, text):
    """A secret's file, replaced as a whole."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.chmod(0o600)
    new.rename(path)
    return path


def ends(server):
    return re.findall(r"event=(reloaded|reload_failed)\b", server.log_text())


def reload(server):
    """How the reload ended, and what the log says about it."""
    before, length = len(ends(server)), len(server.log_text())
    server.process.send_signal(signal.SIGHUP)
    support.until(lambda: len(ends(server)) > before, 300)
    return ends(server)[-1], server.log_text()[length:]


def status(server, key):
    return server.call("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0]


# --- keys of clients ---

def test_a_key_is_added_and_another_one_revoked(tmp_path):
    file = write(tmp_path / "keys", "sk-one\nsk-two\n")
    with support.serving(tmp_path / "state", *ECHO, "--api-key-file", str(file), "--api-key",
                         "sk-told") as server:
        write(file, "sk-two\nsk-three\n")
        assert [status(server, key) for key in ("sk-one", "sk-two", "sk-three")] == [200, 200, 401]
        end, said = reload(server)
        assert end == "reloaded" and "needs_restart" not in said, said
        assert [status(server, key) for key in ("sk-one", "sk-two", "sk-three", "sk-told")] == [
            401, 200, 200, 200]
        assert "sk-three" not in server.log_text()


def test_keys_of_a_variable_stay(tmp_path):
    with support.serving(tmp_path / "state", *ECHO,
                         environment={"QUERN_API_KEYS": "sk-one"}) as server:
        for _ in range(2):
            assert reload(server)[0] == "reloaded" and status(server, "sk-one") == 200 and status(
                server, "") == 401


def test_a_settings_file_may_name_another_file_of_keys(tmp_path):
    write(tmp_path / "first", "sk-one\n")
    write(tmp_path / "second", "sk-two\n")
    config = write(tmp_path / "config", f"api-key-file = {tmp_path / 'first'}\n")
    with support.serving(tmp_path / "state", *ECHO, "--config", str(config)) as server:
        write(config, f"api-key-file = {tmp_path / 'second'}\n")
        assert reload(server)[0] == "reloaded" and [
            status(server, key) for key in ("sk-one", "sk-two")] == [401, 200]
        # Without any file of keys, the server asks for a key that nobody has. It does not open.
        write(config, "# nothing\n")
        assert reload(server)[0] == "reloaded" and [
            status(server, key) for key in ("sk-one", "sk-two", "")] == [401, 401, 401]


@pytest.mark.parametrize(
    "mistake", ["empty", "readable", "gone", "unknown setting", "wrong value", "wrong level"])
def test_a_mistake_changes_nothing_and_is_said(tmp_path, mistake):
    file = write(tmp_path / "keys", "sk-one\n")
    config = write(tmp_path / "config",
                   f"api-key-file = {file}\nlog-level = info\ndrain-seconds = 40\n")
    why = {
        "empty": "has no key", "readable": "can be read by others", "gone": "No such file",
        "unknown setting": "config:3: no option --colour",
        "wrong value": "config:3: --port: 'x' is not an integer",
        "wrong level": "--log-level 'loud'"}[mistake]
    with support.serving(tmp_path / "state", *ECHO, "--config", str(config)) as server:
        write(file, "sk-two\n")
        if mistake == "empty":
            write(file, "# no key\n")
        elif mistake == "readable":
            file.chmod(0o644)
        elif mistake == "gone":
            file.unlink()
        more = {
            "unknown setting": "colour = red", "wrong value": "port = x",
            "wrong level": "log-level = loud"}.get(mistake, "")
        level = "" if mistake == "wrong level" else "log-level = error\n"
        write(config, f"api-key-file = {file}\n" + (level or "# line 2\n") + more + "\n")
        end, said = reload(server)
        assert end == "reload_failed" and why in said and "sk-two" not in said, said
        assert [status(server, key) for key in ("sk-one", "sk-two")] == [200, 401]
        # The level that a failed reload named is not in force: lines of level info still come.
        support.until(lambda: "event=request" in server.log_text().split("event=reload_failed")[-1])
        write(file, "sk-one\nsk-two\n")
        write(config, f"api-key-file = {file}\n")
        assert reload(server)[0] == "reloaded" and status(server, "sk-two") == 200


# --- other secrets ---

def certificate_texts(folder, name):
    return [path.read_text() for path in make_certificate(folder, name, owner=name)]


def connect(server):
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=300)
    connection.connect()
    return connection, ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(True))


def test_new_connections_get_a_new_certificate_and_others_go_on(tmp_path):
    old, old_key = certificate_texts(tmp_path, "old")
    new, new_key = certificate_texts(tmp_path, "new")
    certificate, key = write(tmp_path / "server.pem", old), write(tmp_path / "server.key", old_key)
    with support.serving(tmp_path / "state", *ECHO, "--ssl-certfile", str(certificate),
                         "--ssl-keyfile", str(key)) as server:
        first, shown = connect(server)
        # Its request is under way while the certificate changes.
        body = {
            "model": "smollm2", "messages": [{"role": "user", "content": "x"}], "echo": {
                "delay_ms": 3000}}
        first.request("POST", "/v1/chat/completions", json.dumps(body),
                      {"Content-Type": "application/json"})
        assert shown == old
        write(certificate, new)
        end, said = reload(server)
        assert end == "reload_failed" and "does not belong to" in said, said
        assert connect(server)[1] == old
        write(key, new_key)
        assert reload(server)[0] == "reloaded"
        assert connect(server)[1] == new
        assert first.getresponse().status == 200
        first.close()


def test_https_is_neither_turned_on_nor_off(tmp_path):
    pem, key = certificate_texts(tmp_path, "x")
    config = write(tmp_path / "config", "# plain\n")
    write(tmp_path / "both", pem + key)
    with support.serving(tmp_path / "state", *ECHO, "--config", str(config)) as server:
        write(config, f"ssl-certfile = {tmp_path / 'both'}\n")
        end, said = reload(server)
        assert end == "reloaded" and "event=needs_restart option=ssl-certfile" in said, said
        assert server.call("GET", "/health")[0] == 200


class Receiver(http.server.BaseHTTPRequestHandler):
    events = None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.events.append((self.headers["webhook-id"], self.headers["webhook-timestamp"],
                            self.headers["webhook-signature"], body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def signed_with(event, secret):
    name, timestamp, signatures, body = event
    signature = base64.b64encode(
        hmac.new(secret.encode(), f"{name}.{timestamp}.".encode() + body,
                 hashlib.sha256).digest()).decode()
    return f"v1,{signature}" in signatures.split()


def test_webhooks_are_signed_with_a_new_secret(tmp_path):
    events = []
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                               type("Bound", (Receiver, ), {"events": events}))
    threading.Thread(target=receiver.serve_forever, args=(0.02,), daemon=True).start()
    file = write(tmp_path / "secret", "the first secret\n")
    arguments = (*ECHO, "--webhook-allow-private", "--webhook-url",
                 f"http://127.0.0.1:{receiver.server_port}/", "--webhook-secret-file", str(file))
    try:
        with support.serving(tmp_path / "state", *arguments) as server:
            for secret in ("the first secret", "the second secret"):
                write(file, secret + "\n")
                assert reload(server)[0] == "reloaded"
                server.wait(server.create(support.jsonl([support.request("a", "x")]))["id"])
                support.until(lambda: events)
                assert signed_with(events.pop(), secret)
            write(file, "")
            end, said = reload(server)
            assert end == "reload_failed" and "there is no secret" in said, said
    finally:
        receiver.shutdown()
        receiver.server_close()


def test_an_upstream_gets_a_new_key(tmp_path):
    upstream = fake_upstream.Upstream()
    file = write(tmp_path / "key", "sk-old\n")
    try:
        with support.serving(tmp_path / "state", "--upstream",
                             f"fake={upstream.url},key-file={file}") as server:
            for key in ("sk-old", "sk-new"):
                write(file, key + "\n")
                assert reload(server)[0] == "reloaded"
                # The key is handed to the thread of the upstream, which takes it before it sends
                # what comes later.
                batch = server.create(
                    support.jsonl([support.request("a", "x " + key, model="fake")]))
                assert server.wait(batch["id"])["request_counts"]["completed"] == 1
                assert upstream.behaviour.heads[-1]["authorization"] == f"Bearer {key}"
    finally:
        upstream.stop()


def test_a_new_version_in_secret_manager_and_a_cloud_that_fails(tmp_path):
    cloud = gcp.Cloud()
    cloud.secrets[gcp.NAME] = b"sk-one\n"
    try:
        with support.serving(tmp_path / "state",
                             *ECHO,
                             "--api-key-file",
                             gcp.PLACE,
                             environment=cloud.environment) as server:
            cloud.secrets[gcp.NAME] = b"sk-two\n"
            assert reload(server)[0] == "reloaded" and [
                status(server, key) for key in ("sk-one", "sk-two")] == [401, 200]
            cloud.secrets[gcp.NAME] = b"sk-three\n"
            cloud.misdeeds["secret"] = [403] * 100
            end, said = reload(server)
            assert end == "reload_failed" and gcp.NAME in said and "Secret Accessor" in said, said
            assert [status(server, key) for key in ("sk-two", "sk-three")] == [200, 401]
    finally:
        cloud.close()


# --- settings ---

def test_each_setting_that_needs_a_restart_is_named_once(tmp_path):
    config = write(tmp_path / "config", "lookahead-lines = 64\n")
    with support.serving(tmp_path / "state", *ECHO, "--config", str(config)) as server:
        write(
            config,
            "lookahead-lines = 65\nalias = other=smollm2\nlog-level = debug\ndrain-seconds = 7\nextended-windows = true\n"
        )
        for _ in range(2):
            end, said = reload(server)
            assert end == "reloaded"
            assert sorted(re.findall(r"event=needs_restart option=([a-z-]+)", said)) == [
                "alias", "extended-windows", "lookahead-lines"], said
        write(config, "lookahead-lines = 64\ndrain-seconds = 7\nlog-level = debug\n")
        assert "needs_restart" not in reload(server)[1]
        assert server.stop(300) == 0
        assert "draining deadline_ms=7000" in server.log_text()


def test_options_that_change_nothing_are_noted_once(tmp_path):
    with support.serving(tmp_path / "state", *ECHO, "--enforce-eager") as server:
        assert reload(server)[0] == "reloaded"
        assert server.log_text().count("--enforce-eager changes nothing") == 1


def test_the_page_lists_what_config_says(tmp_path):
    names = support.quern("config", "reloadable").stdout.split()
    section = PAGE.read_text().replace("\\-",
                                       "-").split(".SH SIGNALS")[1].split(".SH")[0].split(".PP")[0]
    assert sorted(names) == sorted(re.findall(r"--([a-z-]+)", section)) and "api-key-file" in names


# --- with work under way ---

def test_a_thousand_signals_under_load_lose_nothing(tmp_path):
    file = write(tmp_path / "keys", "sk-one\n")
    requests = [support.request(f"line-{i}", f"text {i}") for i in range(3000)]
    requests[-1]["body"]["echo"] = {
        "delay_ms": 3000}  # the batch outlasts the signals, or most of them
    with support.serving(tmp_path / "state", *ECHO, "--api-key-file", str(file)) as server:
        call = server.call
        server.call = lambda method, path, body=None, kind="application/json", headers=None: call(
            method, path, body, kind, {"Authorization": "Bearer sk-one", **(headers or {})})
        batch = server.create(support.jsonl(requests))["id"]
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "hello"}]}
        for number in range(1000):
            server.process.send_signal(signal.SIGHUP)
            if number % 20 == 0:
                write(file, f"sk-one\nsk-{number}\n")
                assert server.call("POST", "/v1/chat/completions", body)[0] == 200
        done = server.wait(batch)
        assert done["status"] == "completed" and done["request_counts"] == {
            "total": 3000, "completed": 3000, "failed": 0}
        output, errors = server.results(done)
        assert not errors and [line["custom_id"]
                               for line in output] == [f"line-{i}" for i in range(3000)]
        assert reload(server)[0] == "reloaded" and "reload_failed" not in server.log_text()
        assert server.stop(300) == 0
    support.fsck(tmp_path / "state")


def test_a_service_manager_is_told(tmp_path):
    from test_service import Manager
    manager = Manager(tmp_path / "notify")
    with support.serving(tmp_path / "state", *ECHO, environment=manager.environment()) as server:
        manager.hear("READY=1")
        reload(server)
        manager.hear("MONOTONIC_USEC=[0-9]+")
        assert server.stop(300) == 0
    lines = manager.rest()
    at = lines.index("RELOADING=1")
    assert lines[at + 1].startswith("MONOTONIC_USEC=") and "READY=1" in lines[at + 2:]


@pytest.mark.parametrize("ignores", [False, True])
def test_a_terminal_that_goes_away_drains_unless_nohup(tmp_path, ignores):
    log = open(tmp_path / "log", "wb")
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(
            signal.SIGHUP,
            signal.SIG_IGN if ignores else signal.SIG_DFL)  # the suite itself may run under nohup
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        os.execv(
            support.BINARY,
            [support.BINARY, "serve", "--port", "0", "--state-dir",
             str(tmp_path / "state"), *ECHO])
    try:
        support.until(lambda: b"listening" in (tmp_path / "log").read_bytes())
        os.close(terminal)
        if ignores:
            support.until(lambda: b"event=reloaded" in (tmp_path / "log").read_bytes())
            os.kill(pid, signal.SIGTERM)
        ended = []
        support.until(
            lambda: (found := os.waitpid(pid, os.WNOHANG))[0] and ended.append(found[1]) is None,
            300)
        assert os.waitstatus_to_exitcode(ended[0]) == 0
        assert b"draining" in (tmp_path / "log").read_bytes()
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

# SPDX-License-Identifier: Apache-2.0
"""What `quern serve` tells a service manager over $NOTIFY_SOCKET: a real datagram socket, by its
path and by an abstract name."""
import os, pathlib, re, signal, socket, subprocess

import pytest

import support

ECHO = ("--model", "smollm2=echo")


class Manager:
    """The socket of a service manager, and the lines that came through it."""

    def __init__(self, name):
        self.name, self.lines = str(name), []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + self.name[1:] if self.name[0] == "@" else self.name)
        self.socket.settimeout(300)

    def environment(self, **more):
        return {"NOTIFY_SOCKET": self.name, **more}

    def hear(self, pattern):
        """The first line that has come, or comes, and matches."""
        while True:
            for line in self.lines:
                if re.fullmatch(pattern, line):
                    return line
            self.lines += self.socket.recv(65536).decode().split("\n")

    def rest(self):
        """All lines, once the server has ended."""
        self.socket.setblocking(False)
        try:
            while True:
                self.lines += self.socket.recv(65536).decode().split("\n")
        except BlockingIOError:
            return self.lines


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    return Manager(tmp_path / "notify" if request.param ==
                   "path" else f"@quern-test-{os.getpid()}-{os.urandom(4).hex()}")


def test_a_server_says_when_it_is_ready_and_when_it_stops(manager, tmp_path):
    with support.serving(tmp_path / "state",
                         *ECHO,
                         "--drain-seconds",
                         "40",
                         environment=manager.environment()) as server:
        manager.hear("READY=1")
        manager.hear("STATUS=idle; 0 lines done")
        assert server.stop(300) == 0
    lines = manager.rest()
    assert lines[0].startswith("STATUS=opening ") and lines.index("READY=1") == 1
    assert lines[-3:] == [
        "STOPPING=1", "EXTEND_TIMEOUT_USEC=70000000",
        "STATUS=draining: 0 lines and 0 requests in flight"]
    assert not any(line.startswith("WATCHDOG")
                   for line in lines), "the manager set no WATCHDOG_USEC"


def test_a_start_tells_what_it_recovered_and_what_runs(tmp_path):
    requests = [support.request(f"line-{i}", "x") for i in range(50)]
    requests[30]["body"]["echo"] = {"delay_ms": 3600000}  # this line and those behind it wait
    manager, clock = Manager(tmp_path / "notify"), support.Clock(tmp_path)
    with support.serving(tmp_path / "state", *ECHO) as server:
        batch = server.create(support.jsonl(requests))["id"]
        support.until(lambda: server.batch(batch)["request_counts"]["completed"] == 30)
        server.kill()
    with support.serving(tmp_path / "state",
                         *ECHO,
                         "--drain-seconds",
                         "0",
                         environment={**manager.environment(), **clock.environment}) as server:
        support.until(
            lambda: b"quern_recovered_requests_total 30\n" in server.call("GET", "/metrics")[1])
        clock.move(6)
        manager.hear(
            "STATUS=1 batch, [0-9]+ lines in flight, 0 lines/s; 0 lines done; recovered 30 of 50 lines"
        )
        assert server.stop(300) == 0
        manager.hear("STATUS=draining: [0-9]+ lines and 0 requests in flight")


def test_the_thread_that_writes_results_gives_the_beats(tmp_path):
    """strace tells which thread sends which message: WATCHDOG=1 is sent by log-writer alone."""
    manager, trace = Manager(tmp_path / "notify"), tmp_path / "trace"
    command = [
        "strace", "-f", "-qq", "-e", "trace=sendto", "-e", "signal=none", "-o", trace,
        support.BINARY, "serve", "--port", "0", "--state-dir", tmp_path / "state", *ECHO]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, **manager.environment(WATCHDOG_USEC="200000")})
    try:
        assert server.stdout.readline().startswith("listening")
        for beats in range(1, 4):
            manager.hear("WATCHDOG=1")
            manager.lines.remove("WATCHDOG=1")
        quern = support.children(server.pid)[0]
        threads = {
            int(path.name): (path / "comm").read_text().strip()
            for path in pathlib.Path(f"/proc/{quern}/task").iterdir()}
        os.kill(quern, signal.SIGTERM)
        assert server.wait(300) == 0
    finally:
        server.kill()
        server.wait()
    senders = {
        word: {
            threads[int(tid)]
            for tid in re.findall(rf'^(\d+) +sendto\(\d+, "{word}', trace.read_text(), re.M)}
        for word in ("WATCHDOG=1", "READY=1", "STOPPING=1")}
    assert senders == {"WATCHDOG=1": {"log-writer"}, "READY=1": {"quern"}, "STOPPING=1": {"quern"}}


@pytest.mark.parametrize("name, value, why",
                         [("NOTIFY_SOCKET", "run/notify", "neither a path nor @NAME"),
                          ("WATCHDOG_USEC", "30s", "no number of microseconds")])
def test_a_wrong_variable_of_the_manager_is_refused(tmp_path, name, value, why):
    done = support.quern("serve", "--port", "0", "--state-dir", tmp_path / "state", *ECHO,
                         env={**os.environ, "NOTIFY_SOCKET": "@quern-test", name: value})
    assert done.returncode == 3 and name in done.stderr and why in done.stderr, done.stderr


def test_a_manager_that_has_gone_stops_nothing(tmp_path):
    environment = {"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "200000"}
    with support.serving(tmp_path / "state", *ECHO, environment=environment) as server:
        assert server.wait(server.create(support.jsonl([support.request(
            "a", "x")]))["id"])["status"] == "completed"
        assert server.stop(300) == 0

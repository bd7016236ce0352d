# SPDX-License-Identifier: Apache-2.0
"""A Redis server and nodes (`quern worker`) for tests. The server is the one of Debian's package
redis-tools, whose program redis-check-rdb is redis-server under another name; so no service of the
machine is started. Tests that need it are skipped where neither is installed."""
import os, pathlib, re, shutil, signal, socket, subprocess, threading, time

try:
    import pytest
except ImportError:  # bench/cluster needs none
    pytest = None

import support

PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server") or shutil.which(
    "redis-check-rdb")
needs_redis = pytest and pytest.mark.skipif(
    not PROGRAM, reason="no Redis server here: install Debian's package redis-tools")


def command_of(*words):
    command = b"*%d\r\n" % len(words)
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        command += b"$%d\r\n%s\r\n" % (len(word), word)
    return command


class Redis:
    """On a port that stays its own over restarts. It keeps nothing."""

    def __init__(self, folder, *arguments):
        self.folder, self.arguments = pathlib.Path(folder), arguments
        self.reserved = support.reserved_port()
        self.port = self.reserved.__enter__()
        self.process = None

    def start(self):
        with open(self.folder / "redis.log", "a") as log:
            self.process = subprocess.Popen([
                "redis-server", "--bind", "127.0.0.1", "--port",
                str(self.port), "--save", "", "--appendonly", "no", "--dir",
                str(self.folder), "--maxmemory", "256mb", "--maxmemory-policy", "noeviction",
                *self.arguments],
                                            executable=PROGRAM,
                                            stdout=log,
                                            stderr=log)
        support.until(lambda: self.ask("PING") == b"+PONG")
        return self

    def ask_as(self, user, password, *words):
        return self.ask(*words, before=command_of("AUTH", user, password))

    def ask(self, *words, before=b""):
        """The first line of the reply, and for a text the text; None if nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as peer:
                peer.sendall(before + command_of(*words))
                reader = peer.makefile("rb")
                if before:
                    assert reader.readline() == b"+OK\r\n"
                line = reader.readline().rstrip(b"\r\n")
                if line[:1] == b"$" and line != b"$-1":
                    return reader.read(int(line[1:]))
                if line[:1] == b"*" and line != b"*-1":
                    items = []
                    for _ in range(int(line[1:])):
                        items.append(reader.read(int(reader.readline()[1:]) + 2)[:-2])
                    return items
                return line
        except OSError:
            return None

    def packs(self):
        """How many packs lie in streams."""
        names = self.ask("KEYS", "{quern:*}:[wr]:*")
        return sum(int(self.ask("XLEN", name)[1:]) for name in names)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()
        self.reserved.__exit__(None, None, None)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/?cluster=test"


def wait_for_beats(server):
    """Until both nodes of a server have told of themselves again."""
    since = time.monotonic()

    def told():
        asked = time.monotonic()
        ages = [node["beat_age_s"] for node in server.json("GET", "/v1/machine")["nodes"]]
        return len(ages) == 2 and all(age < asked - since for age in ages)
    support.until(told)


def lines_run(server):
    """How many lines a server's nodes have run, by their own count. A beat that was on its way may
    not know the last of them."""
    wait_for_beats(server)
    wait_for_beats(server)
    text = server.call("GET", "/metrics")[1].decode()
    return sum(map(int, re.findall(r"^quern_engine_steps_total\{.*\} (\d+)$", text, re.M)))


class Proxy:
    """A way to Redis that can be bad: "cut" closes connections and takes none, "still" passes no
    byte on, "slow" a few at a time, "corrupt" changes some."""

    def __init__(self, port):
        self.port, self.state, self.rng, self.pairs = port, "good", None, []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.near_port = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.near_port}/?cluster=test"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port), 5)
                far.settimeout(None)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                near.close()
                continue
            with self.lock:
                self.pairs.append((near, far))
                if self.state == "cut":
                    self.cut()
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(65536):
                self.saw(source, data)
                while self.state == "still":
                    time.sleep(0.02)
                if self.state == "slow":
                    for at in range(0, len(data), 512):
                        sink.sendall(data[at:at + 512])
                        time.sleep(0.01 if self.state == "slow" else 0)
                    continue
                if self.state == "corrupt" and self.rng.random() < 0.3:
                    at = self.rng.randrange(len(data))
                    data = data[:at] + bytes([self.rng.randrange(256)]) + data[at + 1:]
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def saw(self, source, data):
        pass

    def cut(self):
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs.clear()

    def become(self, state, rng):
        """What was corrupted may leave half a command behind: such connections end with it."""
        with self.lock:
            if state == "cut" or self.state == "corrupt":
                self.cut()
            self.rng, self.state = rng, state

    def close(self):
        self.listener.close()
        with self.lock:
            self.cut()


class Sniper(Proxy):
    """A way to Redis on which the process behind it is killed at its n-th command after arm(n): it
    has been sent, and Redis does it, but no reply comes back."""

    def __init__(self, port):
        super().__init__(port)
        self.left, self.kill, self.rests = 0, None, {}

    def arm(self, at, kill):
        """Counts commands of connections that are made from now on; 0: none."""
        with self.lock:
            self.rests = {near: None for near, _ in self.pairs}
            self.kill, self.left = kill, at

    def saw(self, source, data):
        with self.lock:
            rest = self.rests.get(source, b"")
            if self.left == 0 or rest is None or any(source is far for _, far in self.pairs):
                return
            rest += data
            while self.left > 0 and (end := command_end(rest)):
                rest = rest[end:]
                self.left -= 1
                if self.left == 0:
                    self.kill()
            self.rests[source] = rest


def command_end(data):
    """Where the first command ends; None if it is not whole."""
    at = data.find(b"\r\n") + 2
    if at < 2:
        return None
    for _ in range(int(data[1:at - 2])):
        end = data.find(b"\r\n", at) + 2
        if end < 2:
            return None
        at = end + int(data[at + 1:end - 2]) + 2
    return at if at <= len(data) else None


class Node:
    """A running `quern worker`."""

    def __init__(self, folder, redis, *arguments, environment=None):
        self.log = open(pathlib.Path(folder) / "nodes.log", "a")
        self.process = subprocess.Popen(
            [support.BINARY, "worker", "--queue", redis.url, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **(environment or {})})
        line = self.process.stdout.readline()
        assert line.startswith("node "), (line, pathlib.Path(self.log.name).read_text()[-2000:])
        self.name = line.split()[1]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.log.close()

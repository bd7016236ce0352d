# SPDX-License-Identifier: Apache-2.0
"""What the Python suites share: starting quern, talking to it with the standard library, and
judging result files."""
import contextlib, http.client, http.server, json, mmap, os, pathlib, random, re, shutil, signal
import socket, subprocess, threading, time, uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("QUERN_BINARY", str(ROOT / "build/src/quern"))
os.environ.setdefault("QUERN_PACKED_CACHE_DIR", str(ROOT / "build/packed"))  # and not the user's
SHARED = pathlib.Path(os.environ.get("QUERN_SHARED", ROOT.parent / "shared"))
MINILM = os.environ.get("QUERN_MINILM", "all-minilm")
SHARE = float(os.environ.get("QUERN_SHARE") or 1)  # how many drawn cases slow tests run
# What tests draw from. QUERN_SEED repeats one that was printed. QUERN_DRAW is what .ci/run makes of
# the sources, so that a gate that has passed does not fail over another draw.
SEED = os.environ.get("QUERN_SEED") or os.environ.get("QUERN_DRAW") or ""
SEED = int(SEED) if SEED.isdigit() else random.randrange(1 << 30)
IS_NIGHTLY = float(os.environ.get("QUERN_KILLS") or 0) >= 1  # what repeats a test in another way runs


def drawn(cases, least=1):
    """A share of the cases of a slow test (QUERN_SHARE), for its parametrize. What failed is
    repeated by its name, with QUERN_SHARE=1."""
    draw, cases = random.Random(SEED), list(cases)
    return draw.sample(cases, max(least, round(len(cases) * SHARE))) if SHARE < 1 else cases


def plugin(kind):
    """A stub of a device's plugin (tests/unit/inference/gpu/stub_plugin.c)."""
    return pathlib.Path(BINARY).resolve().parent.parent / f"tests/unit/inference/gpu/stub-{kind}.so"


def cuda_plugin():
    """The plugin of real GPUs, which is built only where nvcc is."""
    return pathlib.Path(
        os.environ.get("QUERN_GPU_PLUGIN")
        or pathlib.Path(BINARY).resolve().parent.parent / "src/inference/gpu/cuda/libquern-cuda.so")


def has_card():
    """Whether tests can use a real GPU: its driver is here, and its plugin was built."""
    return cuda_plugin().exists() and pathlib.Path("/dev/nvidiactl").exists()


def cards():
    """How many GPUs there are."""
    return len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))


NO_CARD = "no CUDA plugin was built, or there is no NVIDIA GPU"


def plain_device(folder=None, *lines):
    """The plugin of the plain device (tests/gpu): as it is built, or a copy in the folder with
    variables of its own."""
    built = pathlib.Path(BINARY).resolve().parent.parent / "tests/gpu/libquern-plain.so"
    return built if folder is None else with_variables(built, folder, *lines)


def with_variables(plugin, folder, *lines):
    """A copy of a plugin in the folder, with variables of its own
    (tests/gpu/plugin_environment.c)."""
    copy = pathlib.Path(shutil.copy(plugin, folder))
    copy.with_name(copy.name + ".env").write_text("".join(line + "\n" for line in lines))
    return copy


def poison_plugin(folder, plugin):
    """A plugin around `plugin` in which a line with the token POISON makes the GPU access memory
    outside (tests/gpu/poison_plugin.c)."""
    built = pathlib.Path(
        os.environ.get("QUERN_POISON_PLUGIN")
        or pathlib.Path(BINARY).resolve().parent.parent / "tests/gpu/libquern-poison.so")
    copy = pathlib.Path(shutil.copy(built, folder))
    copy.with_name(copy.name + ".of").write_text(f"{plugin}\n")
    return copy


TERMINAL = ("completed", "failed", "expired", "cancelled")


class Clock:
    """The clock of a server that a test moves (src/ground/base/clock.h): a server that gets
    `environment` follows it."""

    def __init__(self, folder):
        path = pathlib.Path(folder) / "clock"
        path.write_bytes(bytes(8))
        path.chmod(0o600)
        with open(path, "r+b") as file:
            self.moved_ms = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
        self.environment = {"QUERN_TEST_CLOCK": str(path)}

    def now(self):
        """Seconds on the server's monotonic clock."""
        return time.monotonic() + self.moved_ms[0] / 1000

    def move(self, seconds):
        self.moved_ms[0] += int(seconds * 1000)

    def until(self, holds, step, is_busy=lambda: False, seconds=120):
        """Lets time pass in steps of so many seconds until holds() is true. It stands still while
        is_busy()."""
        until(lambda: holds() or (not is_busy() and self.move(step)), seconds, 0.02)


class Server:
    """A running `quern serve` and a plain client for it."""

    def __init__(self, state, *arguments, environment=None):
        self.state, self.arguments, self.environment = pathlib.Path(state), arguments, environment
        self.process = self.port = None

    def start(self):
        self.log = open(self.state.parent / f"{self.state.name}.log", "a")
        self.process = subprocess.Popen(
            [BINARY, "serve", "--port", "0", "--state-dir",
             str(self.state), *self.arguments],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **(self.environment or {})})
        line = self.process.stdout.readline()
        found = re.match(r"listening on https?://\S+:(\d+)$", line.strip())
        assert found, f"the server did not start: {line!r}; {self.log_text()[-2000:]}"
        self.port = int(found[1])
        return self

    def log_text(self):
        return pathlib.Path(self.log.name).read_text()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def site(self):
        """The address of the pages, without a slash at its end."""
        return self.url.removesuffix("/v1")

    def kill(self):
        """kill -9 of the server; its engine must die with it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds=60):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(seconds)
        return self.process.returncode if self.process else None

    def call(self, method, path, body=None, kind="application/json", headers=None):
        """Status and body bytes of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(
                method, path, body,
                {"Content-Type": kind, **(headers or {})} if body is not None else headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, status=200):
        got, data = self.call(method, path, body)
        assert got == status, f"{method} {path}: {got} {data[:500]!r}"
        return json.loads(data)

    def upload(self, content, purpose="batch", filename="in.jsonl"):
        boundary = uuid.uuid4().hex
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n--{boundary}\r\nContent-Disposition: '
            f'form-data; name="file"; filename="{filename}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        ).encode()
        body += content + f"\r\n--{boundary}--\r\n".encode()
        status, data = self.call("POST", "/v1/files", body,
                                 f"multipart/form-data; boundary={boundary}")
        assert status == 200, data
        return json.loads(data)

    def create(self, content, **extra):
        file = self.upload(content)
        return self.json(
            "POST", "/v1/batches", {
                "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h", **extra})

    def batch(self, batch_id):
        return self.json("GET", f"/v1/batches/{batch_id}")

    def wait(self, batch_id, seconds=300, until=TERMINAL):
        for waited in polls(0.2 if until == TERMINAL else 0.05):
            batch = self.batch(batch_id)
            if batch["status"] in until:
                return batch
            assert waited < seconds, f"not done in {seconds} s: {batch['status']} {batch['request_counts']}; {self.log_text()[-1500:]}"

    def results(self, batch):
        """The lines of the output and of the error file, parsed."""
        parsed = []
        for key in ("output_file_id", "error_file_id"):
            data = b""
            if batch[key]:
                status, data = self.call("GET", f"/v1/files/{batch[key]}/content")
                assert status == 200, data
                assert data.endswith(b"\n") and b"\n\n" not in data
            parsed.append([json.loads(line) for line in data.split(b"\n")[:-1]])
        return parsed

    def judgements(self, batch_id):
        """All judgements of a batch, oldest first."""
        rows, after, has_more = [], 0, True
        while has_more:
            page = self.json("GET", f"/v1/batches/{batch_id}/judgements?limit=1000&after={after}")
            rows, after, has_more = rows + page["data"], page["after"], page["has_more"]
        return rows

    def engine_pid(self):
        """The process id of the one engine child."""
        return next(iter(children(self.process.pid)), None)


@contextlib.contextmanager
def serving(state, *arguments, environment=None):
    server = Server(state, *arguments, environment=environment).start()
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            try:
                server.process.wait(30)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()


def children(pid):
    """The process ids of a process's children. Threads and processes may end meanwhile."""
    found = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


@contextlib.contextmanager
def reserved_port():
    """A port on which nobody listens, and which nobody else gets: a server that is told it can
    listen there, again and again."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


class _Accepting(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def webhook_receiver():
    """The URL of a receiver that takes every webhook."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Accepting) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{receiver.server_port}/"
        finally:
            receiver.shutdown()


def polls(apart):
    """How long somebody waits, in seconds, each time that it is time to look again: after 10 ms,
    and later after a tenth of that time, `apart` seconds at most. A look at a server takes a
    millisecond or two of CPU time, and five tests wait at the same time."""
    begin = time.monotonic()
    while True:
        waited = time.monotonic() - begin
        yield waited
        time.sleep(min(apart, max(0.01, waited / 10)))


def until(holds, seconds=120, apart=0.05):
    """Polls until holds() is true."""
    for waited in polls(apart):
        if holds():
            return
        assert waited < seconds, f"not so after {seconds} s"


def within(seconds, make, holds, undo):
    """What make() made, of which holds(made) is true as long as no more than so many seconds have
    passed since make() began. An attempt that took longer proves nothing: it is undone and made
    again."""
    for _ in range(20):
        begin = time.monotonic()
        made = make()
        is_so = holds(made)
        if is_so:
            return made
        assert time.monotonic() - begin >= seconds, f"not so within {seconds} s"
        undo(made)
    raise AssertionError(f"twenty attempts took longer than {seconds} s")


def quern(*arguments, **keywords):
    return subprocess.run([BINARY, *map(str, arguments)],
                          capture_output=True,
                          text=True,
                          **keywords)


def interrupt(command, rng, seconds, times=3):
    """Runs a command several times, and ends each with a signal at a random moment before
    `seconds`."""
    for i in range(times):
        number = signal.SIGTERM if i % 3 == 1 else signal.SIGKILL
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * seconds)
        process.send_signal(number)
        process.wait()


def make_key(state, *arguments):
    """The text of a new key."""
    done = quern("key", "create", "--state-dir", state, "--name", "test", *arguments)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"sk-[0-9a-z]{8}_[A-Za-z0-9_-]{43}\n", done.stdout)
    return done.stdout.strip()


def server_of_session(tmp_path_factory, name, *arguments):
    """For a fixture: a server that must end well, with a state directory that fsck takes."""
    folder = tmp_path_factory.mktemp(name)
    with serving(folder / "state", *arguments) as server:
        yield server
        assert server.stop() == 0, server.log_text()[-2000:]
    fsck(folder / "state")


def fsck(state):
    done = quern("fsck", "--state-dir", state)
    assert done.returncode == 0, f"fsck: {done.stdout}{done.stderr}"


def request(custom_id, text, model="smollm2", **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": model, "messages": [{"role": "user", "content": text}], **body}}


def jsonl(requests):
    return "".join(json.dumps(r) + "\n" for r in requests).encode()


def masked(line):
    """A result line without what may differ between two runs: ids, times, and how much of the
    prompt was shared."""
    line = json.loads(json.dumps(line))
    line["id"] = None
    if line.get("response"):
        line["response"]["request_id"] = None
        body = line["response"]["body"]
        for key in ("id", "created", "system_fingerprint"):
            body.pop(key, None)
        (body.get("usage") or {}).pop("prompt_tokens_details", None)
    return json.dumps(line, sort_keys=True)

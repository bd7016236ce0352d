#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What quern says on the wire, written down while the contract suite runs, so that two builds can
be compared.

As a plugin of pytest (`-p record --record FILE`) it puts a relay in front of every server that a
test starts. The relay passes all bytes on and writes each exchange of HTTP as one JSON line, in the
order of the tests. Ids, times, nonces and ports are masked. The last lines hold the names and types
of the metrics and the segment files of one batch on the echo worker.

  tools/test record FILE                     record the build
  QUERN_BINARY=OTHER tools/test record FILE  record another binary
  tools/test compare FILE FILE               exit 1 and list the differences, per test

How often a client asks depends on time, so the comparison takes the set of different exchanges per
test, and a batch that has not ended counts by the keys of its object. """
import collections, hashlib, json, os, pathlib, queue, random, re, socket, struct, sys, tempfile
import threading

KEPT = 16 << 20  # bytes of one body that are kept; the rest is hashed only
LONG = 2000  # characters of a body in the record; a longer one is cut and hashed
MASKS = [  # in this order
    (re.compile(
        r"(?<![0-9A-Za-z])((?:file|batch|batch_req|upload|part|req|chatcmpl|cmpl|embd|msg|evt)[-_])[0-9A-Za-z]{20,64}(?![0-9A-Za-z])"
    ), r"\1*"),
    (re.compile(
        r"(?<![0-9A-Za-z])([a-z]+[-_]|)(?=[A-Za-z]*[0-9])[0-9A-Za-z]{20,64}(?![0-9A-Za-z])"),
     r"\1*"), (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:*"),
    (re.compile(
        r'"(created|created_at|expires_at|[a-z_]+_at|expires|timestamp|date)":( ?)\d+(\.\d+)?'),
     r'"\1":\2"T"'),
    (re.compile(
        r'"((?:[a-z0-9_]*_)?(?:ms|seconds|us|per_second|age|pid|epoch))":( ?)-?[\d.]+(e-?\d+)?'),
     r'"\1":\2"T"'), (re.compile(r"whsec_[A-Za-z0-9+/=]+"), "whsec_*"),
    (re.compile(r"/tmp/[^\s\"']+"), "/tmp/*"), (re.compile(r"\b1[789]\d{8}\b"), "T"), ]
HEADERS = {
    "x-request-id", "content-length", "etag", "last-modified", "date",
    "content-disposition"}  # present, but of another value each time
SAMPLED = ("case_083", "case_095", "case_096", "case_097", "case_099", "case_117", "case_125",
           "case_127", "case_135", "case_139", "case_159")  # at temperature 1 without a seed
LEFT_OUT = {"test_every_operation_answers_as_the_document_says"
            }  # not compared: its requests depend on the ids in earlier answers


def mask(text):
    for pattern, with_what in MASKS:
        text = pattern.sub(with_what, text)
    return text


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


class Tap:
    """One direction of a connection, as a file: relay threads put bytes in, the parser reads
    them."""

    def __init__(self):
        self.chunks, self.data, self.test = queue.SimpleQueue(), b"", ""

    def more(self):
        chunk, test = self.chunks.get()
        if not self.data:
            self.test = test
        self.data += chunk
        return bool(chunk)

    def line(self):
        while b"\n" not in self.data:
            if not self.more():
                raise EOFError
        line, self.data = self.data.split(b"\n", 1)
        return line.rstrip(b"\r").decode("latin-1")

    def body(self, count):
        """`count` bytes, or all until the end when it is None: what is kept of them, their number,
        and whether all came."""
        kept, hashed, got = bytearray(), hashlib.sha256(), 0
        while count is None or got < count:
            if not self.data and not self.more():
                break
            take, self.data = (self.data, b"") if count is None else (self.data[:count - got],
                                                                      self.data[count - got:])
            hashed.update(take)
            kept += take[:KEPT - len(kept)]
            got += len(take)
        return (bytes(kept) if got == len(kept) else bytes(kept[:LONG]) +
                f"…{got} bytes {hashed.hexdigest()[:16]}".encode()), count is None or got == count


def read_head(tap):
    first = ""
    while not first:
        first = tap.line()
    fields = []
    while line := tap.line():
        fields.append(tuple(part.strip() for part in line.partition(":")[::2]))
    return first, fields, {name.lower(): value for name, value in fields}


def read_body(tap, fields, until_end):
    if "chunked" in fields.get("transfer-encoding", "").lower():
        whole = b""
        while True:
            try:
                size = int(tap.line().split(";")[0], 16)
            except ValueError:
                return whole, False
            if size == 0:
                while tap.line():
                    pass
                return whole, True
            part, complete = tap.body(size)
            whole += part
            tap.line()
    if "content-length" in fields:
        return tap.body(int(
            fields["content-length"])) if fields["content-length"].isdigit() else (b"", False)
    return tap.body(None) if until_end else (b"", True)


class Recorder:
    """Relays and what came over them."""

    def __init__(self):
        self.exchanges, self.lock, self.readers = [], threading.Lock(), []

    def front(self, port):
        """A port whose connections go on to `port`, recorded."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        threading.Thread(target=self.accept, args=(listener, port), daemon=True).start()
        return listener.getsockname()[1]

    def accept(self, listener, port):
        while True:
            client, _ = listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", port))
            except OSError:  # the server is down: so is the relay
                client.close()
                continue
            asked, answered = Tap(), Tap()
            for source, target, tap in ((client, server, asked), (server, client, answered)):
                threading.Thread(target=self.relay, args=(source, target, tap), daemon=True).start()
            reader = threading.Thread(target=self.read, args=(asked, answered), daemon=True)
            reader.start()
            with self.lock:
                self.readers.append(reader)

    @staticmethod
    def relay(source, target, tap):
        try:
            while data := source.recv(1 << 16):
                tap.chunks.put((data, os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # reset: the other side learns it too
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        tap.chunks.put((b"", ""))

    def read(self, asked, answered):
        """The exchanges of one connection."""
        try:
            while True:
                first, _, fields = read_head(asked)
                test, method, target = asked.test, *(first.split(" ") + ["", ""])[:2]
                body, _ = read_body(asked, fields, False)
                status, names, got = read_head(answered)
                if status.split(" ")[1] == "100":
                    status, names, got = read_head(answered)
                number = int(status.split(" ")[1])
                if method == "HEAD" or number in (204, 304):
                    text, complete = b"", True
                else:
                    text, complete = read_body(answered, got, True)
                self.add(test, method, target, fields, body, number, names, got, text, complete)
                if got.get("connection", "").lower() == "close":
                    return
        except (EOFError, IndexError, ValueError):
            return

    def add(self, test, method, target, fields, body, status, names, got, text, complete):
        kind = got.get("content-type", "")
        boundary = re.search(r"boundary=\"?([^\";]+)", fields.get("content-type", ""))
        if boundary:
            body = body.replace(boundary[1].encode("latin-1"), b"BOUNDARY")
        record = {
            "test": test, "method": method, "path": mask(target), "request": digest(
                mask(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")),
            "status": status, "headers": [[name, "*" if name.lower() in HEADERS else mask(value)]
                                          for name, value in names], "body": shown(
                                              target, kind, text)}
        if not complete:
            record["cut"] = True
        with self.lock:
            self.exchanges.append(record)


def shown(target, kind, data):
    if target.startswith("/metrics") and kind.startswith("text/plain"):
        return metrics_shape(data.decode())
    text = data.decode("utf-8", "backslashreplace")
    if kind.startswith("text/event-stream"):
        return stream_shape(text)
    if kind.startswith("application/json"):
        try:
            return json.dumps(object_shape(json.loads(text)), ensure_ascii=False) if re.search(
                r'"(batch|list)"', text) else cut(mask(text))
        except ValueError:
            pass
    if "/content" in target or "/results" in target:
        return "\n".join(sorted(cut(mask(line)) for line in text.split("\n")))
    return cut(mask(text))


def cut(text):
    return text if len(text) <= LONG else text[:LONG] + "…" + digest(
        text.encode("utf-8", "surrogateescape"))


def object_shape(value):
    """A batch that has not ended, or was cut off at some point, by its keys, a list of files or
    batches by the keys of an entry, anything else masked."""
    if isinstance(value, dict):
        if value.get("object") == "batch" and value.get("status") not in ("completed", "failed",
                                                                          "expired"):
            return {"object": "batch", "keys": list(value)}
        if value.get("object") == "list" and isinstance(value.get("data"), list):
            entries = value["data"]
            if entries and isinstance(entries[0], dict) and entries[0].get("object") in (
                    "file", "batch"):  # those of other tests too
                return {
                    "object": "list", "keys": list(value), "of": entries[0]["object"],
                    "entries": list(entries[0])}
        return json.loads(
            mask(
                json.dumps({key: object_shape(entry)
                            for key, entry in value.items()},
                           ensure_ascii=False)))
    return [object_shape(entry) for entry in value] if isinstance(value, list) else value


def stream_shape(text):
    """The different events of a stream without their text, and all the text of it: how it is cut
    depends on time."""
    said, events = "", []
    for line in mask(text).split("\n"):
        if line.startswith("data: {"):
            try:
                event = json.loads(line[6:])
            except ValueError:
                events.append(line)
                continue
            for choice in event.get("choices") or []:
                for holder in (choice, choice.get("delta") or {}):
                    for key in ("content", "text"):
                        if isinstance(holder.get(key), str):
                            said, holder[key] = said + holder[key], "…"
                if choice.get("logprobs"):
                    choice["logprobs"] = "…"
            line = json.dumps(event)
        if line not in events:
            events.append(line)
    return {"events": sorted(events), "text": said}


def metrics_shape(text):
    """Names, types and the label names of each series."""
    found = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            found.add(line)
        elif line and not line.startswith("#"):
            name, labels = re.match(r"([\w:]+)(\{.*\})?", line).groups()
            found.add(name + "{" + ",".join(re.findall(r'(\w+)="', labels or "")) + "}")
    return sorted(found)


def segments(folder):
    """The records of all segments, in order of their lines, without ids, times and what depends on
    them."""
    found = []
    for path in sorted(pathlib.Path(folder).rglob("seg-*.log")):
        data = path.read_bytes()
        if not data:
            continue
        magic, version, index, zero, first = struct.unpack_from("<4IQ", data)
        found.append([
            "header", path.name, data[:4].decode(), version, index, zero, first,
            struct.unpack_from("<Q", data, 24)[0],
            mask(data[32:72].rstrip(b"\0").decode()), data[72:104].hex(), data[104:124].hex()])
        offset, records = 128, []
        while offset + 48 <= len(data) and data[offset:offset + 4] != b"\0\0\0\0":
            size, kind, flags, attempt, line, _, batch, epoch, answer = struct.unpack_from(
                "<IBBHQQQII", data, offset + 8)
            text = data[offset + 48:offset + 48 + size]
            usage = []
            if flags & 1:
                text, usage = text[:-16], list(struct.unpack("<4I", text[-16:]))
            records.append([
                "record", data[offset:offset + 4].decode(), size, kind, flags, attempt, line, batch,
                epoch, answer,
                mask(text.decode()), usage])
            offset += 48 + size
        found += sorted(records, key=lambda record: record[6]) + [[
            "end", "clean" if not any(data[offset:]) else "torn"]]
    return found


def echo_run():
    """Segments, result files and metrics of one batch on the echo worker."""
    import support
    lines = []
    for i in range(60):
        body = {
            "messages": [{"role": "user", "content": f"text {i} é\n\"" + "x" * (i * 7)}],
            "model": "smollm2", "max_completion_tokens": 5 + i}
        if i % 7 == 3:
            body["echo"] = {"status": 400 + i % 3}
        lines.append({
            "custom_id": f"line-{i}", "method": "POST", "url": "/v1/chat/completions",
            "body": body})
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder) / "state"
        with support.serving(state, "--model", "smollm2=echo") as server:
            batch = server.wait(server.create(support.jsonl(lines))["id"])
            yield {"echo run": "batch", "body": object_shape(batch)}
            for entries in server.results(batch):
                for entry in sorted(entries, key=lambda entry: entry["custom_id"]):
                    yield {"echo run": "result", "body": mask(json.dumps(entry))}
            yield {
                "echo run": "metrics", "body": metrics_shape(
                    server.call("GET", "/metrics")[1].decode())}
            hanging = server.create(
                support.jsonl([
                    *lines, {
                        **lines[0], "custom_id": "hangs",
                        "body": {**lines[0]["body"], "echo": {"hang": True}}}]))
            support.until(lambda: sum(
                server.batch(hanging["id"])["request_counts"][key]
                for key in ("completed", "failed")) == len(lines))
            server.kill()  # the segments of a batch that has ended are empty
        found = segments(state)
        assert len(found) > len(lines), "the segments hold no records"
        for entry in found:
            yield {"echo run": "segment", "body": entry}


# As a plugin of pytest

def pytest_addoption(parser):
    parser.addoption("--record", metavar="FILE", help="write the exchanges of every server to FILE")


def pytest_configure(config):
    if not config.getoption("--record"):
        return
    import support
    config.recorder = recorder = Recorder()
    start = support.Server.start

    def start_recorded(server):
        start(server)
        server.port = recorder.front(server.port)
        return server
    config.start_of_servers, config.urandom = start, os.urandom
    os.urandom = random.randbytes
    support.Server.start = start_recorded


def pytest_runtest_setup(item):
    random.seed(item.nodeid)  # for what a test makes up, os.urandom and uuid too


def pytest_unconfigure(config):
    if not config.getoption("--record"):
        return
    import support
    support.Server.start, os.urandom = config.start_of_servers, config.urandom
    for reader in config.recorder.readers:
        reader.join(1)
    with open(config.getoption("--record"), "w") as file:
        for record in [*config.recorder.exchanges, *echo_run()]:
            file.write(json.dumps(record) + "\n")


# Comparison

def kinds(path):
    """{test: {exchange: the first of its lines}}, each exchange as text."""
    found = collections.defaultdict(dict)
    for line in open(path):
        record = json.loads(line)
        if "test" not in record:
            found["echo run"][json.dumps([record["echo run"], record["body"]])] = record
            continue
        test = record.pop("test")
        if test.rsplit("::")[-1] in LEFT_OUT:
            continue
        if record["path"] == "/metrics" and isinstance(
                record["body"], list):  # some series appear with their first event
            found["metrics"].update({text: text for text in record["body"]})
            continue
        if record["method"] == "POST" and record["path"] == "/v1/batches" and record[
                "status"] == 200:  # ended already, if it was asked for twice
            body = json.loads(record["body"])
            record["body"] = json.dumps({"object": "batch", "keys": body.get("keys") or list(body)})
        if '"object": "batch", "keys"' in str(record["body"]):  # seen or not as time has it
            test, record["path"], record["request"] = "unfinished batches", re.sub(
                r"\?.*", "", record["path"]), ""
        elif any(name in test for name in SAMPLED):
            record["request"] = ""
            record["body"] = sorted(set(re.findall(r'"(\w+)\\*": ?', json.dumps(
                record["body"]))))  # the names of its members
        found[test][json.dumps(record)] = record
    return found


def compare(one, other):
    first, second = kinds(one), kinds(other)
    differences = 0
    for test in sorted(first.keys() | second.keys()):
        for sign, these, those in (("-", first, second), ("+", second, first)):
            for text in these[test]:
                if text not in those[test]:
                    differences += 1
                    print(f"{sign} {test or 'between tests'}\n    {text[:1500]}")
    print(
        f"{sum(map(len, first.values()))} and {sum(map(len, second.values()))} different exchanges in {len(first.keys() | second.keys())} tests: "
        + (f"{differences} differences" if differences else "equal"))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(compare(*sys.argv[1:]) if len(sys.argv) == 3 else __doc__)

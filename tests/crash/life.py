# SPDX-License-Identifier: Apache-2.0
"""The whole life of one batch as a client sees it, made to be interrupted anywhere: upload, create,
run, publish, download. After each death of the server the same client goes on, and checks what it
was told before."""
import http.client, json, os, signal, subprocess, time, uuid

import support

# QUERN_KILLS scales the counts of all crash suites: the share of the planned deaths that are died.
# `make nightly` dies all of them (1.0), `make test` an eighth; elsewhere a tenth, another one each
# time where the seed is random.
SCALE = float(os.environ.get("QUERN_KILLS") or "0.1")
ECHO = ("--model", "smollm2=echo")


def scaled(count):
    return max(1, round(count * SCALE))


def spread(first, last, count):
    """About `count` numbers from first to last, both included, evenly apart."""
    count = min(count, last - first + 1)
    return sorted({first + round(i * (last - first) / max(1, count - 1)) for i in range(count)})


def echo_lines(count, words=3):
    """Requests whose answers the echo worker repeats; ids with bytes that need escaping."""
    return [
        support.request(f"line-{i:05d} é", f"{i} " + "lantern stone " * (words + i % 7))
        for i in range(count)]


def held_lines(count, *places):
    """`count` requests that are answered at once, but those at `places` only after a minute, then
    two …; those behind them wait too. So a test that does something in the meantime does it before
    the batch ends."""
    lines = echo_lines(count, words=1)
    for number, place in enumerate(places):
        lines[place]["body"]["echo"] = {"delay_ms": 60000 * (number + 1)}
    return lines


def answers(requests):
    """What the echo worker has to say to each request, in input order."""
    return [(r["custom_id"], r["body"]["messages"][-1]["content"]) for r in requests]


def judge(lines, requests):
    """Every request answered once, with its own text."""
    got = [(line["custom_id"], line["response"]["body"]["choices"][0]["message"]["content"])
           for line in lines]
    assert got == answers(requests), f"{len(got)} of {len(requests)} lines, or other ones"
    assert all(line["error"] is None and line["response"]["status_code"] == 200 for line in lines)


class Died(Exception):
    """The server ended under the client, in the way the test asked for."""


class Victim(support.Server):
    """A server that is expected to die: by the plan in QUERN_FAULT or by the tracer in `prefix`."""

    def __init__(self, state, *arguments, plan=None, prefix=(), ends=(-signal.SIGKILL,)):
        super().__init__(state, *arguments, environment={"QUERN_FAULT": plan} if plan else None)
        self.prefix, self.ends = list(prefix), ends

    def start(self):
        self.log = open(self.state.parent / f"{self.state.name}.log", "a")
        command = [
            *self.prefix, support.BINARY, "serve", "--port", "0", "--state-dir",
            str(self.state), *self.arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, **(self.environment or {})})
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://"):
            self.died()
            raise Died
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def died(self):
        """Waits for the end and checks that it is the one that was planned."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            code = "nothing: it closed a connection and lives"
        assert code in self.ends, f"ended with {code}, not {self.ends}: {self.log_text()[-1500:]}"

    def call(self, *arguments, **keywords):
        try:
            return super().call(*arguments, **keywords)
        except (ConnectionError, http.client.HTTPException):
            self.died()
            raise Died from None


class Client:
    """One batch from upload to download. Whatever was acknowledged is asked for again after a
    restart."""

    def __init__(self, requests, clock=None):
        self.requests, self.content, self.clock = requests, support.jsonl(requests), clock
        self.key = uuid.uuid4().hex
        self.file = self.batch = None
        self.seen = 0      # lines counted
        self.output = None # bytes of the output file once downloaded

    def go(self, server, until="downloaded", seconds=120):
        """Goes on where it was, up to the named step."""
        if not self.file:
            self.file = server.upload(self.content)["id"]
        else:
            assert server.call("GET", f"/v1/files/{self.file}/content") == (200, self.content)
        if until == "uploaded":
            return
        body = {
            "input_file_id": self.file, "endpoint": "/v1/chat/completions",
            "completion_window": "24h"}
        status, data = server.call("POST",
                                   "/v1/batches",
                                   body,
                                   headers={"Idempotency-Key": self.key})
        assert status == 200, data
        created = json.loads(data)["id"]
        assert self.batch in (None, created), "the same idempotency key gave another batch"
        self.batch = created
        if until == "created":
            return
        self.wait(server, seconds)
        self.download(server)

    def look(self, server):
        """The batch as it is now; what was counted before must still be."""
        batch = server.batch(self.batch)
        counts = batch["request_counts"]
        done = counts["completed"] + counts["failed"]
        # Between validation and the first look at the log the counts are not there yet.
        assert done >= self.seen, f"{self.seen} lines were counted, now {done}"
        self.seen = done
        return batch

    def wait(self, server, seconds=120):
        for waited in support.polls(0.005 if self.clock else 0.1):
            batch = self.look(server)
            if batch["status"] in support.TERMINAL:
                break
            assert waited < seconds, f"{batch}; {server.log_text()[-2000:]}"
            if self.clock:
                self.clock.move(10)
        count = len(self.requests)
        assert (batch["status"], batch["request_counts"]) == ("completed", {
            "total": count, "completed": count, "failed": 0})
        assert batch["error_file_id"] is None
        return batch

    def download(self, server):
        batch = server.batch(self.batch)
        status, data = server.call("GET", f"/v1/files/{batch['output_file_id']}/content")
        assert status == 200, data
        assert self.output in (None, data), "published bytes changed"
        self.output = data
        judge([json.loads(line) for line in data.decode().splitlines()], self.requests)


def finish(client, state, *arguments):
    """A clean start takes the batch to its end; then the directory is checked."""
    with support.serving(state, *(arguments or ECHO)) as server:
        client.go(server)
        assert server.stop() == 0
    support.fsck(state)


def metric(server, name):
    for line in server.call("GET", "/metrics")[1].decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def poll(question, seconds=120, what="it"):
    """Asks until the answer is true."""
    for waited in support.polls(0.05):
        if answer := question():
            return answer
        assert waited < seconds, f"{what} did not happen in {seconds} s"


def wait_for_lines(server, batch_id, lines):
    """The batch once so many of its lines are counted, or as it ended."""
    while True:
        batch = server.batch(batch_id)
        counts = batch["request_counts"]
        if batch["status"] in support.TERMINAL or counts["completed"] + counts["failed"] >= lines:
            return batch
        time.sleep(0.005)


def run_command(folder, *extra):
    return [
        support.BINARY, "run", "-i",
        str(folder / "in.jsonl"), "-o",
        str(folder / "out.jsonl"), *(extra or ECHO)]


def judge_file(path, requests):
    judge([json.loads(line) for line in path.read_text().splitlines()], requests)

# SPDX-License-Identifier: Apache-2.0
"""JSON bombs: texts that would cost far more memory than they are long, against every route and
every field of a line. The sums are asserted on the server's and the engine's own peaks. The times
are printed: a busy machine may not fail a test."""
import concurrent.futures, http.client, json, os, pathlib, random, re, socket, subprocess, sys, time

import pytest

import support, upstream

TINY = support.SHARED / "tiny/llama3"
MIB = 1 << 20
COST, COST_LEAST = 8, 8 * MIB  # as in src/inference/engine/request_body.h
SLACK = 48 * MIB  # threads, logs, the answers, what malloc keeps between
SEED = int(os.environ.get("QUERN_SEED", "20261122"))


def memory(pid, key):
    return int(
        re.search(rf"^{key}:\s+(\d+)",
                  pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]) << 10


PROBE = """
import http.client, json, select, sys, time
times = []
while not select.select([sys.stdin], [], [], 0.02)[0]:
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=600)
    try:
        connection.request("GET", ["/health", "/ready", "/metrics"][len(times) % 3])
        assert connection.getresponse().status == 200
    except OSError:
        continue  # a machine that gave this process no time for 10 s
    finally:
        connection.close()
    times.append(time.monotonic() - begun)
print(json.dumps(times))
"""


class Watch:
    """Peaks of server and engine over what they had at the beginning, and the times of health
    beside the bombs, asked by another process."""

    def __init__(self, server):
        support.until(lambda: server.call("GET", "/health")[0] == 200)
        self.server, self.pids = server, [server.process.pid, server.engine_pid()]
        for pid in self.pids:
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins again
        self.before = [memory(pid, "VmRSS") for pid in self.pids]

    def __enter__(self):
        self.probe = subprocess.Popen(
            [sys.executable, "-c", PROBE, str(self.server.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True)
        return self

    def __exit__(self, *_):
        times = sorted(json.loads(self.probe.communicate("end")[0])) or [0]
        assert self.probe.returncode == 0
        assert self.server.engine_pid(
        ) == self.pids[1], f"the engine died: {self.server.log_text()[-2000:]}"
        self.peaks = [memory(pid, "VmHWM") - before for pid, before in zip(self.pids, self.before)]
        print(
            f"peaks over the start: server {self.peaks[0] / MIB:.0f} MiB, engine {self.peaks[1] / MIB:.0f} MiB; {len(times)} probes, p50 "
            f"{times[len(times) // 2] * 1000:.0f} ms, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms, max {times[-1] * 1000:.0f} ms"
        )
        assert times[-1] < 120

    def left(self):
        return max(memory(pid, "VmRSS") - before for pid, before in zip(self.pids, self.before))


def post(server, path, body, method="POST", kind="application/json"):
    """Status, headers and body; status 0 if the server closed the connection before it had read
    all."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    try:
        try:
            connection.request(method, path, body, {"Content-Type": kind})
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer may have come all the same
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, {}, b""
    finally:
        connection.close()


# The bombs

PIECES = [
    "{}", "[]", "0", '""', "[[]]", '{"a":0}', "[{}]", "1e5", "null", "true", '"a"', "-1.5",
    '{"a":{"b":[]}}', '"\\u0041"', '{"role":"user"}', '{"role":"user","content":""}',
    '{"type":"text","text":""}', "[1]", "17", '{"type":"function","function":{"name":"f"}}']


def wide(rng, bytes_):
    """Very many of one thing."""
    piece = rng.choice(PIECES)
    if rng.random() < 0.2:
        return "{" + ",".join(f'"{i:x}":{piece}' for i in range(max(1, bytes_ //
                                                                    (len(piece) + 8)))) + "}"
    return "[" + ",".join([piece] * max(1, bytes_ // (len(piece) + 1))) + "]"


def deep(rng, bytes_):
    """Nested up to and over what is allowed."""
    depth = rng.choice([1, 60, 120, 126, 127, 128, 129, 1000, 100000])
    depth = min(depth, max(1, bytes_ // 6))
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ('[{"":', "}]")])
    return opening * depth + rng.choice(["0", "[]", "{}", '""']) + closing * depth


def numbers(rng, bytes_):
    draw = [
        lambda: str(rng.randrange(10**rng.randrange(1, 30))),
        lambda: f"{rng.random():.{rng.randrange(1, 20)}e}",
        lambda: "1e" + "9" * rng.randrange(1, 6), lambda: "-0",
        lambda: "0." + "0" * rng.randrange(1, 400) + "1"]
    made = rng.choice(draw)()
    return "[" + ",".join([made] * max(1, bytes_ // (len(made) + 1))) + "]"


def strings(rng, bytes_):
    unit = rng.choice([
        "a", "\\n", "\\u0000", "\\ud83d\\ude00", "\\\\", '\\"', "word ", "字", "😀", "ab\\t",
        "\\u00e9", " ", "<|im_end|>", "[{},"])
    return '"' + unit * max(1, bytes_ // len(unit.encode())) + '"'


def tree(rng, bytes_, depth=0):
    """A random value."""
    kind = rng.randrange(6) if depth < 12 and bytes_ > 20 else 2 + rng.randrange(4)
    if kind > 2:
        return rng.choice(PIECES)
    if kind == 2:
        return strings(rng, min(bytes_, 1 + rng.randrange(200)))
    parts, left = [], bytes_
    while left > 0:
        part = tree(rng, rng.randrange(left) + 1, depth + 1)
        parts.append(part if kind else f'"{rng.randrange(1000)}":{part}')
        left -= len(part) + 8
    return "[{}]".format(",".join(parts)) if kind else "{" + ",".join(parts) + "}"


def value(rng, bytes_):
    return rng.choice([wide, wide, deep, numbers, strings, tree])(rng, bytes_)


CHAT = {"model": '"m"', "messages": '[{"role":"user","content":"hi"}]', "max_tokens": "1"}
TEXT = {"model": '"m"', "prompt": '"hi"', "max_tokens": "1"}
EMBED = {"model": '"m"', "input": '"hi"'}
DECISION = {
    "model": '"m"', "input": '"hi"', "questions": '[{"type":"predicate","instructions":"a?"}]'}
FIELDS = [
    "model", "messages", "prompt", "input", "tools", "stop", "logit_bias", "metadata",
    "chat_template_kwargs", "bad_words", "stop_token_ids", "x", "user", "response_format",
    "structured_outputs", "guided_json", "stream_options", "seed", "tool_choice", "temperature",
    "chat_template", "service_tier", "questions"]
MESSAGES = [
    '[{"role":"user","content":%s}]', '[{"role":%s,"content":"a"}]',
    '[{"role":"user","content":[%s]}]', '[{"role":"user","content":"a","x":%s}]',
    '[{"role":"user","content":"a"},{"role":"assistant","tool_calls":%s}]',
    '[{"role":"user","content":"a"},%s]',
    '[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":%s}}]}]',
    '[{"role":"user","content":[{"type":"text","text":%s}]}]']
# Fields that ask for a shape, with a bomb inside of the shape, and questions of a decision.
TOOL = '[{"type":"function","function":{"name":"f","parameters":%s,"strict":true}}]'
SHAPES = [
    ("response_format", '{"type":"json_schema","json_schema":{"name":"a","schema":%s}}'),
    ("response_format", '{"type":"json_schema","json_schema":{"name":"a","schema":{"enum":%s}}}'),
    ("response_format",
     '{"type":"json_schema","json_schema":{"name":"a","schema":{"properties":{"a":%s}}}}'),
    ("structured_outputs", '{"json":%s}'), ("structured_outputs", '{"choice":%s}'),
    ("structured_outputs", '{"regex":%s}'), ("structured_outputs", '{"grammar":%s}'),
    ("structured_outputs", '{"structural_tag":%s}'), ("guided_choice", "%s"),
    ("guided_regex", "%s"), ("tools", TOOL)]
QUESTIONS = [
    "[%s]", '[{"type":%s,"instructions":"a?"}]', '[{"type":"predicate","instructions":%s}]',
    '[{"type":"choice","instructions":"a?","options":%s}]',
    '[{"type":"choice","instructions":"a?","options":["a",%s]}]',
    '[{"type":"score","instructions":"a?","x":%s}]']


def body_with(rng, base, bytes_):
    """The base with a bomb in one of its members, or between them."""
    members = dict(base)
    bomb = value(rng, bytes_)
    if "questions" in members and rng.random() < 0.5:
        members["questions"] = rng.choice(QUESTIONS) % bomb
    elif "max_tokens" in members and rng.random() < 0.2:
        name, form = rng.choice(SHAPES)
        members[name] = form % bomb
        if name == "tools":
            members["tool_choice"] = '"required"'
    elif rng.random() < 0.4 and "messages" in members:
        form = rng.choice(MESSAGES)
        members["messages"] = form % (json.dumps(bomb)
                                      if "arguments" in form and rng.random() < 0.7 else bomb)
    else:
        members[rng.choice(FIELDS)] = bomb
    order = list(members.items())
    rng.shuffle(order)
    return "{" + ",".join(f'"{key}":{member}' for key, member in order) + "}"


def spoiled(rng, text):
    """Sometimes cut off, of another encoding, with a byte changed, or with bytes that are no
    UTF-8."""
    data = text.encode()
    kind = rng.randrange(14)
    if kind == 0:
        return data[:rng.randrange(len(data))]
    if kind == 1:
        return text.encode(rng.choice(["utf-16", "utf-32", "utf-8-sig"]))
    if kind == 2:
        at = rng.randrange(len(data))
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    return data


def size(rng):
    """Mostly some KiB, now and then up to 2 MiB."""
    return int(2 ** rng.uniform(3, 21) if rng.random() < 0.08 else 2 ** rng.uniform(3, 14))


ROUTES = [("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/completions", TEXT),
          ("POST", "/v1/embeddings", EMBED), ("POST", "/v1/score", EMBED),
          ("POST", "/v1/responses", {**CHAT, "input": '"hi"'}), ("POST", "/v1/decisions", DECISION),
          ("POST", "/tokenize", {"model": '"m"', "prompt": '"hi"'}), ("POST", "/tokenize", CHAT),
          ("POST", "/detokenize", {"model": '"m"', "tokens": "[1]"}),
          ("GET", "/tokenizer_info", {}),
          ("POST", "/v1/batches", {
              "input_file_id": '"file-1"', "endpoint": '"/v1/chat/completions"',
              "completion_window": '"24h"'}),
          ("POST", "/v1/batches/preflight", {"input_file_id": '"file-1"'}),
          ("POST", "/v1/batches/batch_1/retry", {"statuses": "[500]"}),
          ("POST", "/v1/batches/batch_1/cancel", {}), ("POST", "/v1/batches/batch_1/pause", {}),
          ("POST", "/v1/batches/batch_1/resume", {}),
          ("POST", "/v1/uploads", {
              "bytes": "1", "filename": '"a"', "purpose": '"batch"', "mime_type": '"text/plain"'}),
          ("POST", "/v1/uploads/upload_1/complete", {"part_ids": '["part_1"]'}),
          ("POST", "/v1/uploads/upload_1/cancel", {}), ("POST", "/v1/files", {}),
          ("POST", "/v1/uploads/upload_1/parts", {}), ("DELETE", "/v1/files/file-1", {}),
          ("GET", "/v1/files", {}), ("GET", "/v1/models", {}), ("GET", "/health", {}),
          ("GET", "/v1/batches", {}), ("GET", "/v1/batches/batch_1/results", {}),
          ("GET", "/openapi.json", {})]


def test_two_thousand_bombs_cost_what_they_may(tmp_path):
    """Every input has an answer that blames what is wrong; server and engine stay within the bound
    and give the memory back."""
    rng = random.Random(SEED)
    bodies = [
        (rng.choice(ROUTES[:9]) if rng.random() < 0.6 else rng.choice(ROUTES)) for _ in range(1400)]
    bodies = [(method, path, spoiled(rng, body_with(rng, base, size(rng))))
              for method, path, base in bodies]
    good = '{"custom_id":"first","method":"POST","url":"/v1/chat/completions","body":{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}}'
    lines = [good]  # the first line of a file must be JSON for the upload
    for i in range(1, 701):
        line = {
            "custom_id": f'"{i}"', "method": '"POST"', "url": '"/v1/chat/completions"',
            "body": body_with(rng, {**CHAT}, size(rng))}
        lines.append("{" + ",".join(f'"{key}":{member}' for key, member in line.items()) + "}")
    decided = [
        '{"custom_id":"%d","method":"POST","url":"/v1/decisions","body":%s}' %
        (i, body_with(rng, DECISION, size(rng)) if i else "{" +
         ",".join(f'"{key}":{member}'
                  for key, member in DECISION.items()) + "}")
        for i in range(200)]
    formless = [good.encode()]
    for i in range(200):
        line = {
            "custom_id": f'"{i}"', "method": '"POST"', "url": '"/v1/chat/completions"',
            "body": '{"model":"m","messages":[]}'}
        line[rng.choice([*line, "x"])] = value(rng, size(rng))
        formless.append(
            spoiled(
                rng,
                "{" + ",".join(f'"{key}":{member}' for key, member in line.items()) + "}").replace(
                    b"\n", b" "))
    largest = max(
        map(len, [body for *_, body in bodies] + [line.encode() for line in lines + decided]))
    with support.serving(tmp_path / "state", "--model", f"m={TINY}", "--threads", "2",
                         "--body-memory-bytes", str(64 * MIB)) as server:
        with Watch(server) as watch, concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda one: (one, post(server, one[1], one[2], one[0])),
                                    bodies))
            assert server.wait(server.create(b"\n".join(formless) + b"\n")["id"],
                               600)["status"] == "failed"
            kept, done = run_what_is_valid(server, lines)
            output, errors = server.results(done)
            kept_decided, done = run_what_is_valid(server, decided, endpoint="/v1/decisions")
            ends = server.results(done)
        print(
            f"seed {SEED}, {len(bodies) + len(lines) + len(decided) + len(formless)} inputs, the largest of {largest} bytes"
        )
        for (method, path, body), (status, _, data) in answers:
            assert status in (
                0, 200, 400, 404, 405, 408, 409, 413, 415, 501,
                503), f"seed {SEED}: {method} {path}: {status} {data[:300]} {body[:300]}"
            if status >= 400:
                check_blame(body, json.loads(data)["error"]["message"])
        assert sum(status > 0 for _, (status, _, _) in answers) > len(answers) * 0.9
        assert len(kept) > 300 and len(output) + len(errors) == len(kept)
        for record in errors:
            assert record["response"]["status_code"] == 400, record
            check_blame(lines[int(record["custom_id"])].encode(),
                        record["response"]["body"]["error"]["message"])
        assert len(kept_decided) > 100 and sum(map(len, ends)) == len(kept_decided) and ends[0]
        for record in ends[1]:
            assert record["response"]["status_code"] == 400, record
            check_blame(decided[int(record["custom_id"])].encode(),
                        record["response"]["body"]["error"]["message"])
        engine_threads = os.cpu_count()
        assert watch.peaks[0] <= 64 * MIB + SLACK, f"seed {SEED}"
        assert watch.peaks[
            1] <= COST * largest + COST_LEAST * engine_threads + 32 * MIB + SLACK, f"seed {SEED}"
        support.until(lambda: watch.left() < SLACK)
    support.fsck(tmp_path / "state")


def run_what_is_valid(server, lines, **extra):
    """A batch of the lines that the validator takes: it names the others."""
    kept = list(lines)
    while True:
        batch = server.wait(server.create("\n".join(kept).encode() + b"\n", **extra)["id"], 600)
        if batch["status"] != "failed":
            return kept, batch
        bad = {error["line"] for error in batch["errors"]["data"]}
        assert bad and {error["code"]
                        for error in batch["errors"]["data"]} <= {
                            "invalid_request", "invalid_json_line", "model_not_found",
                            "missing_required_parameter", "invalid_type", "invalid_value",
                            "unsupported_parameter"}  # from the fourth: of shapes
        kept = [line for number, line in enumerate(kept, 1) if number not in bad]


def check_blame(body, message):
    """A body that Python reads is never said to be no JSON; numbers, nesting, keys that quern does
    not read have sentences of their own."""
    if "body is not valid JSON" not in message:
        return
    try:
        json.loads(body.decode("utf-8"), parse_constant=lambda _: 1 / 0)
    except (ValueError, RecursionError, ZeroDivisionError):
        return
    if re.search(rb"\\u[dD][89a-fA-F]", body):
        return  # half a pair of surrogates, which Python takes
    raise AssertionError(f"seed {SEED}: {message} of {body[:300]!r}")


HEAD = '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}],"x":['
LARGE = {
    "objects": (HEAD, "{},", "{}]}"), "arrays": (HEAD, "[],", "[]]}"),
    "texts": (HEAD, '"",', '""]}'), "messages": ('{"model":"m","messages":[', "{},", "{}]}"),
    "one word": ('{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"', "a", '"}]}'),
    "ids": ('{"model":"m","max_tokens":1,"prompt":[', "1,", "1]}"),
    "a prompt": ('{"model":"m","max_tokens":1,"prompt":"', "ab", '"}')}


def large(name, bytes_):
    head, piece, tail = LARGE[name]
    return (head + piece * ((bytes_ - len(head) - len(tail)) // len(piece)) + tail).encode()


@pytest.mark.parametrize("name", LARGE)
def test_a_body_of_31_mib_costs_at_most_eight_times_its_bytes(tmp_path, name):
    body = large(name, 31 * MIB)
    path = "/v1/completions" if "prompt" in name or name == "ids" else "/v1/chat/completions"
    with support.serving(tmp_path / "state", "--model", f"m={TINY}", "--threads", "2") as server:
        with Watch(server) as watch:
            begun = time.monotonic()
            status, _, data = post(server, path, body)
            print(f"{name}: {time.monotonic() - begun:.1f} s")
        assert status == 400 and "not valid JSON" not in json.loads(data)["error"]["message"], data
        assert max(watch.peaks) <= COST * len(body)
        support.until(lambda: watch.left() < SLACK)


WORDS = {
    "short words": ("/tokenize", {"prompt": "q7z " * (2 * MIB), "return_token_strs": True}),
    "without texts": ("/tokenize", {"prompt": "the " * (2 * MIB)}), "long tokens": ("/detokenize", {
        "tokens": [11] * (2 * MIB)})}


@pytest.mark.parametrize("name", WORDS)
def test_questions_about_words_cost_at_most_eight_times_their_bytes(tmp_path, name):
    """The answer counts, which may be many times as long: 29 times its bytes were taken for one."""
    path, asked = WORDS[name]
    body = json.dumps({"model": "m", **asked}).encode()
    with support.serving(tmp_path / "state", "--model", f"m={TINY}", "--threads", "2") as server:
        with Watch(server) as watch:
            status, _, data = post(server, path, body)
        assert status == 200 or json.loads(
            data)["error"]["code"] == "request_too_complex", data[:300]
        assert max(watch.peaks) <= COST * len(body) + SLACK
        support.until(lambda: watch.left() < SLACK)


def test_sixty_four_large_bombs_at_a_time_stay_within_the_memory_of_all_bodies(tmp_path):
    body = large("objects", 8 * MIB)
    with support.serving(tmp_path / "state", "--model", f"m={TINY}", "--threads", "2",
                         "--body-memory-bytes", str(128 * MIB)) as server:
        with Watch(server) as watch, concurrent.futures.ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda _: post(server, "/v1/chat/completions", body),
                                    range(64)))
        for status, headers, data in answers:
            assert status in (0, 400, 408, 503), data
            assert status != 503 or int(headers["retry-after"]) >= 1
        assert watch.peaks[0] <= 128 * MIB + SLACK
        assert watch.peaks[1] <= COST * len(
            body) + 128 * MIB // 4 + SLACK  # one is prepared, the others wait as text
        support.until(lambda: watch.left() < SLACK)


def test_lines_of_16_mib_are_failed_lines_with_their_sentence(tmp_path):
    """And a line beside them runs. Two such lines ended a server's engine, or in a false "not valid
    JSON"."""
    def line(i, body):
        return b'{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":' % i + body + b"}\n"
    names = ["objects", "arrays", "messages", "one word"]
    content = b"".join(line(i, large(name, 16 * MIB - 200)) for i, name in enumerate(names)) + line(
        4, b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}')
    with support.serving(tmp_path / "state", "--model", f"m={TINY}", "--threads", "2") as server:
        with Watch(server) as watch:
            batch = server.wait(server.create(content)["id"], 600)
        output, errors = server.results(batch)
        assert [record["custom_id"] for record in output] == ["4"]
        assert [record["custom_id"] for record in errors] == ["0", "1", "2", "3"]
        for record in errors[:3]:
            assert record["response"]["status_code"] == 400
            assert record["response"]["body"]["error"]["code"] == "request_too_complex"
            assert "too complex" in record["response"]["body"]["error"]["message"]
        assert errors[3]["response"]["status_code"] == 400
        assert watch.peaks[0] <= COST * 16 * MIB
        assert watch.peaks[
            1] <= COST * 16 * MIB + 48 * MIB + SLACK  # with the lines that wait behind it
        support.until(lambda: watch.left() < SLACK)


def announce(server, path, bytes_):
    """The answer to the head of a request whose body is that long and does not come."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {bytes_}\r\n\r\n"
            .encode())
        return client.makefile("rb").read()


def test_other_routes_take_a_mebibyte(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        for path in ("/v1/batches", "/v1/batches/preflight", "/v1/batches/batch_1/retry",
                     "/v1/uploads", "/v1/uploads/upload_1/complete"):
            status, _, data = post(server, path, b'{"x":"' + b"a" * (MIB - 8) + b'"}')
            assert status in (400, 404), data
            answer = announce(server, path, MIB + 1)
            assert answer.startswith(b"HTTP/1.1 413 ") and b"1048576 bytes" in answer, answer
            status, _, data = post(server, path, b'{"x":[' + b"{}," * 100000 + b"{}]}")
            assert status == 404 or json.loads(data)["error"]["code"] == "request_too_complex", (
                path, data)


@pytest.fixture
def slow_upstream():
    with upstream.held("m") as far:
        yield far


def test_a_body_over_the_memory_of_all_bodies_may_come_again(tmp_path, slow_upstream):
    """Bodies count at four times their bytes, until they have been answered."""
    def body(bytes_):
        return b'{"model":"m","messages":[{"role":"user","content":"' + b"a" * bytes_ + b'"}]}'

    with support.serving(tmp_path / "state", "--upstream", f"u={slow_upstream.url}", "--body-memory-bytes", str(8 * MIB)) as server, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        def counted():
            return int(
                float(
                    re.search(rb"^quern_http_body_bytes (\S+)$",
                              server.call("GET", "/metrics")[1], re.M)[1]))
        support.until(lambda: b'"m"' in server.call("GET", "/v1/models")[1])
        first = pool.submit(post, server, "/v1/chat/completions", body(1500000))
        support.until(lambda: counted() == len(body(1500000)))
        answers = []
        support.until(lambda: answers.append(post(server, "/v1/chat/completions", body(900000))) or
                      answers[-1][0] != 0)
        status, headers, data = answers[-1]
        assert status == 503 and int(
            headers["retry-after"]) >= 1 and b"--body-memory-bytes" in data, data
        slow_upstream.may_answer.set()
        assert first.result()[0] == 200
        support.until(lambda: counted() == 0)
        assert post(server, "/v1/chat/completions", body(900000))[0] == 200
        assert announce(server, "/v1/chat/completions",
                        2 * MIB + 1).startswith(b"HTTP/1.1 413 ")  # it could never be kept

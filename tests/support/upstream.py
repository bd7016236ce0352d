#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An OpenAI-compatible upstream that misbehaves on demand, for the tests and for bench/upstream.

A request says itself how it wants to be treated, by words in its last message: `mode=stall times=2`
does that the first two times the same message comes and answers well from then on; without `times`,
always. `say=a%20b then=c finish=length` is an answer, that from the second time on, and its
finish_reason. GET /control?mode=M&for=SECONDS&from=COUNT treats every request so that comes after
COUNT others. GET /stats tells what was seen. Runs in the caller's process (Upstream) or as a
program, to be killed: upstream.py PORT [--service-ms N] [--answers N] """
import argparse, asyncio, contextlib, gzip, http.server, json, pathlib, re, subprocess, sys
import threading, time, urllib.parse, urllib.request, zlib

GZIP = gzip.compress(b"0" * (8 << 20), 9)


class Behaviour:
    def __init__(self, service_ms=0, models=("fake",), first_answer=None):
        self.service, self.models = service_ms / 1000, models
        self.seen, self.order, self.heads, self.bodies = {}, [], [], []
        self.now = self.held = self.peak = self.probes = 0
        self.clock, self.probed = time.monotonic, []  # when each probe came
        self.storm, self.storm_until, self.storm_after, self.storm_from = None, 0, "", 0

    def stats(self):
        return {
            "seen": self.seen, "order": self.order, "now": self.now, "held": self.held,
            "peak": self.peak, "probes": self.probes, "heads": self.heads[-20:],
            "bodies": self.bodies[-20:]}

    async def handle(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n", 1)[0].split(" ", 2)
        fields = {
            k.strip().lower(): v.strip()
            for k, v in (line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)}
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        path, _, query = target.partition("?")
        if path == "/stats":
            return self.json(writer, 200, self.stats())
        if path == "/control":
            words = dict(urllib.parse.parse_qsl(query))
            self.storm, self.storm_until = words.get("mode"), time.monotonic() + float(
                words.get("for", 1e9))
            self.storm_after, self.storm_from = words.get("after", ""), int(words.get("from", 0))
            return self.json(writer, 200, {})
        storm = self.storm if time.monotonic() < self.storm_until and len(
            self.order) >= self.storm_from else None
        if path in ("/health", "/v1/models"):
            self.probes += 1
            self.probed.append(self.clock())
            if storm in ("503", "500"):
                return self.json(writer, int(storm),
                                 {"error": {"message": "away", "code": int(storm)}})
            if path == "/health":
                return self.json(writer, 200, {"status": "ok"})
            return self.json(
                writer, 200, {
                    "object": "list", "data": [{
                        "id": m, "object": "model", "created": 1700000000, "max_model_len": 4096}
                                               for m in self.models]})
        request = json.loads(body)
        text = request["messages"][-1]["content"] if "messages" in request else str(
            request.get("prompt") or request.get("input"))
        if isinstance(text, list):
            text = "".join(part["text"] for part in text)
        self.heads.append(fields)
        self.bodies.append(request)
        self.order.append(text)
        count = self.seen[text] = self.seen.get(text, 0) + 1
        words = dict(re.findall(r"\b(mode|times|after|ms)=(\S+)", text))
        mode = words.get("mode") if count <= int(words.get("times", 1 << 30)) else None
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            await asyncio.sleep(int(words.get("ms", 0)) / 1000 + self.service)
            return await self.treat(storm or mode, writer, request, text,
                                    words.get("after", "") or self.storm_after)
        finally:
            self.now -= 1

    def json(self, writer, status, value, extra=""):
        data = json.dumps(value).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{extra}\r\n"
            .encode() + data)
        return True

    def answer(self, request, text):
        n, words = len(text), dict(re.findall(r"\b(say|then|finish)=(\S+)", text))
        said = words.get("then" if self.seen[text] > 1 and "then" in words else "say")
        content = "re: " + text + " \u2028é😀" if said is None else urllib.parse.unquote(said)
        usage = {
            "prompt_tokens": n, "completion_tokens": 3, "total_tokens": n + 3,
            "prompt_tokens_details": None}
        if "input" in request:
            inputs = request["input"] if isinstance(request["input"], list) else [request["input"]]
            return {
                "object": "list", "model": request["model"],
                "data": [{"object": "embedding", "index": i, "embedding": [0.5, -1.0]}
                         for i in range(len(inputs))], "usage": usage}
        said = {"text": content} if "prompt" in request else {
            "message": {"role": "assistant", "content": content}}
        return {
            "id": "chatcmpl-1",
            "object": "text_completion" if "prompt" in request else "chat.completion", "created": 1,
            "model": request["model"], "choices": [
                {"index": i, **said, "finish_reason": words.get("finish", "stop")}
                for i in range(request.get("n") or 1)], "usage": usage}

    async def stream(self, mode, writer, request, text):
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n: hello\n\n"
        )
        base = {
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
        chunks = [{"index": 0, "delta": {"role": "assistant", "content": ""}},
                  *({"index": 0, "delta": {"content": part}}
                    for part in re.findall(r"\S+\s*|\s+", text))]
        for number, choice in enumerate(chunks if mode != "no-choice" else []):
            writer.write(
                b"data: " +
                json.dumps({**base, "choices": [{**choice, "finish_reason": None}]}).encode() +
                b"\r\n\r\n")
            await writer.drain()
            if mode == "cut" and number == 1:
                return False
            if mode == "event-error" and number == 1:
                writer.write(b'data: {"error": {"message": "it broke", "code": 500}}\n\n')
                return False
            if mode == "event-garbage" and number == 1:
                writer.write(b"data: {nonsense\n\n")
                return False
        if mode != "no-choice":
            writer.write(b"data: " + json.dumps({
                **base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode() +
                         b"\n\n")
        if (request.get("stream_options") or {}).get("include_usage") and mode != "no-usage":
            usage = {
                "prompt_tokens": len(text), "completion_tokens": 3, "total_tokens": len(text) + 3}
            writer.write(b"data: " + json.dumps({**base, "choices": [], "usage": usage}).encode() +
                         b"\n\n")
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        return False

    async def treat(self, mode, writer, request, text, after):
        if mode and (mode[0] == "4" or mode[0] == "5") and mode.isdigit():
            extra = f"Retry-After: {after}\r\n" if after and not after.endswith(
                "ms") else f"retry-after-ms: {after[:-2]}\r\n" if after else ""
            return self.json(
                writer, int(mode), {
                    "error": {
                        "message": f"told to say {mode}", "type": "t", "param": None,
                        "code": int(mode)}}, extra)
        good = json.dumps(self.answer(request, text), indent=1).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        whole = head + b"Content-Length: %d\r\n\r\n" % len(good)
        if mode is None or mode not in MODES:
            if request.get("stream"):
                return await self.stream(mode, writer, request, text)
            writer.write(whole + good)
            await writer.drain()
            return True
        self.held += mode in HELD
        try:
            return await MODES[mode](writer, head, whole, good)
        finally:
            self.held -= mode in HELD


class _Held(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({
            "object": "list", "data": [{"id": self.server.model, "object": "model", "created": 1}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.is_asked.set()
        self.server.may_answer.wait()
        self.answer({
            "id": "x", "object": "chat.completion", "created": 1, "model": self.server.model,
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}, "choices": [{
                "index": 0, "message": {"role": "assistant", "content": "a"},
                "finish_reason": "stop"}]})

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def held(model):
    """An upstream of one model at `url` that sets `is_asked` at each chat and answers once the
    caller has set `may_answer`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Held) as server:
        server.model, server.url = model, f"http://127.0.0.1:{server.server_port}/v1"
        server.is_asked, server.may_answer = threading.Event(), threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.may_answer.set()
            server.shutdown()


async def forever(writer):
    await writer.drain()
    await asyncio.sleep(3600)


async def stall(writer, head, whole, good):
    await forever(writer)


async def stall_body(writer, head, whole, good):
    writer.write(whole + good[:20])
    await forever(writer)


async def garbage(writer, head, whole, good):
    writer.write(head + b"Content-Length: 9\r\n\r\nnot json!")
    return True


async def half(writer, head, whole, good):  # the length is right, the JSON is not
    writer.write(head + b"Content-Length: %d\r\n\r\n" % (len(good) // 2) + good[:len(good) // 2])
    return True


async def cut(writer, head, whole, good):
    writer.write(whole + good[:20])
    await writer.drain()
    return False


async def reset(writer, head, whole, good):
    writer.transport.abort()
    return False


async def close(writer, head, whole, good):
    return False


async def loris(writer, head, whole, good):
    writer.write(whole)
    for i in range(len(good)):
        writer.write(good[i:i + 1])
        await writer.drain()
        await asyncio.sleep(0.3)
    return True


async def loris_head(writer, head, whole, good):
    writer.write(b"HTTP/1.1 200 OK\r\nX-A: ")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.3)


async def bomb(writer, head, whole, good):
    writer.write(head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(GZIP) + GZIP)
    return True


async def endless(writer, head, whole, good):
    writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()


async def heads(writer, head, whole, good):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Fill: " + b"a" * 8000 + b"\r\n")
        await writer.drain()


async def html(writer, head, whole, good):
    page = b"<html>hello</html>"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" %
                 len(page) + page)
    return True


async def redirect(writer, head, whole, good):
    writer.write(b"HTTP/1.1 307 X\r\nLocation: /stats\r\nContent-Length: 0\r\n\r\n")
    return True


async def chunks(writer, head, whole, good):
    writer.write(head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + good)
    await writer.drain()
    return False


async def array(writer, head, whole, good):
    writer.write(head + b"Content-Length: 2\r\n\r\n[]")
    return True


def always(text, status=b"200 OK", more=b""):
    async def answer(writer, head, whole, good):
        writer.write(
            b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n" %
            (status, len(text), more) + text)
        return True
    return answer


def altered(old, new):
    """A good answer with other bytes in it."""
    async def answer(writer, head, whole, good):
        text = good.replace(old, new, 1)
        assert text != good
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(text) + text)
        return True
    return answer


async def packed(writer, head, whole, good):
    text = gzip.compress(good)
    writer.write(head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    return True


async def deflated(writer, head, whole, good):
    text = zlib.compress(good)
    writer.write(head + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(text) +
                 text)
    return True


async def oddly_coded(writer, head, whole, good):  # no coding at all, but a header that names one
    writer.write(head + b"Content-Encoding: utf-8\r\nContent-Length: %d\r\n\r\n" % len(good) + good)
    return True


async def marked(writer, head, whole, good):
    writer.write(head + b"Content-Length: %d\r\n\r\n\xef\xbb\xbf" % (len(good) + 3) + good)
    return True


async def old(writer, head, whole, good):
    writer.write(b"nonsense\r\n\r\n")
    await writer.drain()
    return False


async def detail(writer, head, whole, good):
    text = b'{"detail": [{"loc": ["body", "messages"], "msg": "Field required", "type": "missing"}]}'
    writer.write(b"HTTP/1.1 422 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
                 len(text) + text)
    return True


async def ollama(writer, head, whole, good):
    text = b'{"error": "model is no good"}'
    writer.write(b"HTTP/1.1 404 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
                 len(text) + text)
    return True


MODES = {
    "stall": stall,
    "stall-body": stall_body,
    "garbage": garbage,
    "half": half,
    "cut-body": cut,
    "close": close,
    "loris": loris,
    "loris-head": loris_head,
    "bomb": bomb,
    "endless": endless,
    "heads": heads,
    "html": html,
    "redirect": redirect,
    "chunks": chunks,
    "array": array,
    "old": old,
    "detail": detail,
    "ollama": ollama,
    # Answers of status 200 without what was asked for.
    "disguised": always(b'{"error": {"message": "it broke, says 200", "code": 500}}'),
    "no-choices": always(b'{"object": "chat.completion"}'),
    "null-choices": always(b'{"choices": null}'),
    "empty-choices": always(b'{"choices": []}'),
    "no-message": always(b'{"choices": [{"index": 0}]}'),
    "choice-error": always(
        b'{"choices": [{"error": {"message": "it broke", "code": 502}, "finish_reason": "error"}]}'
    ),
    # Overloads under other names.
    "overload-200": always(
        b'{"choices": null, "error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "slow down"}}}'
    ),
    "overload-529": always(
        b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
        b"529 X"),
    "overload-page": always(
        b"<html><head><title>503 Service Temporarily Unavailable</title></head></html>", b"503 X"),
    "overload-bare": always(b"", b"429 X"),
    "quota": always(
        b'{"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}}',
        b"429 X"),
    "quota-400": always(
        b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}',
        b"400 X"),
    "odd-coding": oddly_coded,
    "reset": reset,
    "ratelimit-reset": always(
        b"", b"429 X", b"X-RateLimit-Remaining-Tokens: 0\r\nX-RateLimit-Reset-Tokens: 1s\r\n")}
# Good answers whose JSON or coding is unusual: Python's clients read them.
UNUSUAL = {
    "packed": packed, "deflated": deflated, "marked": marked, "half-pair": altered(
        b"\\ud83d\\ude00", b"\\ud83d"), "infinity": altered(
            b'"index": 0', b'"index": 0, "logprobs": {"content": [{"logprob": -Infinity}]}'),
    "nan": altered(b'"created": 1', b'"created": NaN')}
MODES |= UNUSUAL
HELD = ("stall", "stall-body", "loris", "loris-head")  # answers that come slowly or never


class Upstream:
    """One in a thread of this process, on a free port."""

    def __init__(self, port=0, **options):
        self.behaviour = Behaviour(**options)
        self.loop = asyncio.new_event_loop()
        started = threading.Event()

        def run():
            asyncio.set_event_loop(self.loop)
            self.server = self.loop.run_until_complete(
                asyncio.start_server(self.behaviour.handle,
                                     "127.0.0.1",
                                     port,
                                     backlog=1024,
                                     limit=1 << 24))
            self.port = self.server.sockets[0].getsockname()[1]
            started.set()
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        started.wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def is_busy(self):
        """A request is here that will be answered soon. The loop has gone round before it is asked:
        it has seen what came."""
        for _ in range(3):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(60)
        return self.behaviour.now > self.behaviour.held

    def control(self, mode, seconds=1e9, after="", from_=0):
        behaviour = self.behaviour
        behaviour.storm, behaviour.storm_until = mode, time.monotonic() + seconds
        behaviour.storm_after, behaviour.storm_from = after, from_

    def stop(self):
        async def end():
            self.server.close()
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()
            await asyncio.sleep(0)
            self.loop.stop()
        asyncio.run_coroutine_threadsafe(end(), self.loop)
        self.thread.join(10)


class Process:
    """One in a process of its own, to be killed and started again on the same port."""

    def __init__(self, port, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(port), *arguments], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stats(self):
        return json.load(urllib.request.urlopen(self.url + "/stats", timeout=30))

    def is_busy(self):
        stats = self.stats()
        return stats["now"] > stats["held"]

    def kill(self):
        self.process.kill()
        self.process.wait()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--service-ms", type=int, default=0)
    parser.add_argument("--answers",
                        type=int,
                        help="requests that are answered; later ones wait for ever")
    options = parser.parse_args()
    behaviour = Behaviour(options.service_ms)
    if options.answers is not None:
        behaviour.storm, behaviour.storm_until, behaviour.storm_from = "stall", 1e18, options.answers
    server = await asyncio.start_server(behaviour.handle,
                                        "127.0.0.1",
                                        options.port,
                                        backlog=1024,
                                        limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

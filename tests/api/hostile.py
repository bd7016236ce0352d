#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Raw-socket cases against a running server: framing, sizes, pace, truncation, pipelining.

Each case is one function or one table row; after each, the server must still answer /health. Usage:
  hostile.py --port PORT [--host 127.0.0.1] [--slow]
--slow adds the cases that wait for the server's own time limits (about 25 s, run at the same time).
Standard library only. Prints `N passed, N failed` and exits with 1 when one failed."""

import argparse
import json
import re
import select
import socket
import sys
import threading
import time

HOST = "127.0.0.1"
PORT = 0
LIMIT_S = 120.0
CASES = []
SLOW = 0  # slow cases that run at the same time as the others


def case(name):
    def add(function):
        CASES.append((name, function))
        return function
    return add


class Failure(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Failure(text)


# --- a client that assumes nothing ---

def dial():
    connection = socket.create_connection((HOST, PORT), timeout=LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def send(connection, data):
    """Sends what can be sent; a server that has refused half-way may have closed."""
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def is_readable(connection, wait_s):
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def read_all(connection, limit_s=LIMIT_S):
    """Everything up to the end of the connection; fails when it stays open."""
    data = b""
    end = time.monotonic() + limit_s
    while True:
        left = end - time.monotonic()
        need(left > 0, f"the connection stayed open; so far {data[:200]!r}")
        if not is_readable(connection, left):
            continue
        try:
            got = connection.recv(65536)
        except ConnectionResetError:
            return data
        if not got:
            return data
        data += got


class Reader:
    """Reads answers one by one from a connection that stays open."""

    def __init__(self, connection):
        self.connection = connection
        self.data = b""

    def more(self):
        got = self.connection.recv(65536)
        need(got, f"the connection ended after {self.data[:200]!r}")
        self.data += got

    def until(self, mark):
        while mark not in self.data:
            self.more()
        part, self.data = self.data.split(mark, 1)
        return part

    def exactly(self, count):
        while len(self.data) < count:
            self.more()
        part, self.data = self.data[:count], self.data[count:]
        return part

    def answer(self):
        head = self.until(b"\r\n\r\n").decode("latin-1")
        status = int(head.split(" ")[1])
        headers = {}
        for line in head.split("\r\n")[1:]:
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        if status == 100:
            return status, headers, b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(self.until(b"\r\n"), 16)
                body += self.exactly(size)
                self.exactly(2)
                if size == 0:
                    return status, headers, body
        return status, headers, self.exactly(int(headers.get("content-length", 0)))


def answers(data):
    """All (status, headers, body) in the bytes of a connection that has ended."""
    class Ended:
        @staticmethod
        def recv(_):
            return b""
    found = []
    reader = Reader(Ended)
    reader.data = data
    while reader.data:
        found.append(reader.answer())
    return found


def check_error(answer, status):
    got, headers, body = answer
    wanted = status if isinstance(status, tuple) else (status,)
    need(got in wanted, f"status {got}, wanted {wanted}: {body[:200]!r}")
    need(re.fullmatch(r"req_[0-9a-f]{32}", headers.get("x-request-id", "")),
         f"no x-request-id in {headers}")
    error = json.loads(body)["error"]
    need(set(error) == {"message", "type", "param", "code"}, f"envelope {error}")
    need(error["type"] in ("invalid_request_error", "server_error"), f"type {error}")
    need("/tmp" not in error["message"] and "\n" not in error["message"], f"message {error}")


def refused(data, status, limit_s=LIMIT_S):
    """The bytes must get exactly one answer, an error, and the end of the connection."""
    with dial() as connection:
        send(connection, data)
        got = answers(read_all(connection, limit_s))
    need(len(got) == 1, f"{len(got)} answers")
    check_error(got[0], status)
    return got[0]


def healthy():
    with dial() as connection:
        send(connection, b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        got = answers(read_all(connection))
    need(len(got) == 1 and got[0][0] == 200, f"the server is not well: {got}")
    with dial() as connection:
        send(connection, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        got = answers(read_all(connection))
    need(len(got) == 1 and got[0][0] in (200, 503), f"the server is not well: {got}")


def wait_for_quiet():
    """Until the server knows that the connections of a case have ended: the one that asks and the
    slow cases are the only ones. As long as it does not know, there may be no place for the one
    that asks."""
    end = time.monotonic() + LIMIT_S
    while True:
        status, _, body = once(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        need(status in (200, 503), f"status {status}")
        if status == 200 and int(re.search(rb"^quern_http_connections (\d+)", body,
                                           re.M)[1]) <= 1 + SLOW:
            return
        need(time.monotonic() < end, f"connections stayed open: {body[-300:]!r}")
        time.sleep(0.02)


GET = b"GET /version HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/batches HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
END = b"\r\n"
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"

# --- requests that must be refused, with one answer and a closed connection ---

REFUSED = [
    ("both Content-Length and Transfer-Encoding",
     POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, 400),
    ("both, the other way round",
     POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED, 400),
    ("two equal Content-Length",
     POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + SMUGGLED, 400),
    ("two different Content-Length",
     POST + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + SMUGGLED, 400),
    ("Content-Length list", POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
    ("Content-Length with plus", POST + b"Content-Length: +2\r\n\r\n{}", 400),
    ("negative Content-Length", POST + b"Content-Length: -2\r\n\r\n{}", 400),
    ("hexadecimal Content-Length", POST + b"Content-Length: 0x2\r\n\r\n{}", 400),
    ("empty Content-Length", POST + b"Content-Length: \r\n\r\n{}", 400),
    ("Content-Length with text", POST + b"Content-Length: 2abc\r\n\r\n{}", 400),
    ("Content-Length with a blank inside", POST + b"Content-Length: 1 2\r\n\r\n{}", 400),
    ("Content-Length beyond 64 bits", POST + b"Content-Length: 184467440737095516160\r\n\r\n{}",
     400),
    ("Content-Length beyond 63 bits", POST + b"Content-Length: 9999999999999999999\r\n\r\n{}", 400),
    ("Content-Length folded", POST + b"Content-Length:\r\n 2\r\n\r\n{}", 400),
    ("Content-Length name with blank", POST + b"Content-Length : 2\r\n\r\n{}", 400),
    ("Content-Length after a NUL", POST + b"A: \0\r\nContent-Length: 2\r\n\r\n{}", 400),
    ("Transfer-Encoding gzip", POST + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding gzip, chunked", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
     400),
    ("Transfer-Encoding chunked, identity",
     POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding identity", POST + b"Transfer-Encoding: identity\r\n\r\n", 400),
    ("Transfer-Encoding xchunked", POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding chunked twice",
     POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding empty", POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding with vertical tab",
     POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding folded", POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding in HTTP/1.0",
     b"POST /v1/batches HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("bare LF after the request line", b"GET /version HTTP/1.1\nHost: localhost\r\n\r\n", 400),
    ("bare LF after a header", b"GET /version HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n", 400),
    ("bare LF as the empty line", b"GET /version HTTP/1.1\r\nHost: localhost\r\n\n", 400),
    ("bare LF everywhere", b"GET /version HTTP/1.1\nHost: localhost\n\n", 400),
    ("bare CR in a header", GET + b"A: b\rContent-Length: 5\r\n\r\n", 400),
    ("bare CR in the request line", b"GET /version\r HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("folded header with a blank", GET + b"A: b\r\n c\r\n\r\n", 400),
    ("folded header with a tab", GET + b"A: b\r\n\tc\r\n\r\n", 400),
    ("folded first header", b"GET /version HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
    ("blank before the colon", GET + b"A : b\r\n\r\n", 400),
    ("no colon", GET + b"nonsense\r\n\r\n", 400), ("empty field name", GET + b": b\r\n\r\n", 400),
    ("field name with a separator", GET + b"A(b: c\r\n\r\n", 400),
    ("field name with a byte over 127", GET + b"A\xff: c\r\n\r\n", 400),
    ("NUL in a value", GET + b"A: b\0c\r\n\r\n", 400),
    ("control character in a value", GET + b"A: b\x01c\r\n\r\n", 400),
    ("DEL in a value", GET + b"A: b\x7fc\r\n\r\n", 400),
    ("no Host", b"GET /version HTTP/1.1\r\n\r\n", 400),
    ("two Host", b"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: y\r\n\r\n", 400),
    ("two Authorization", GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400),
    ("two Content-Type", POST + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 400),
    ("unknown expectation", POST + b"Expect: 200-maybe\r\nContent-Length: 2\r\n\r\n{}", 417),
    ("two blanks after the method", b"GET  /version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("tab after the method", b"GET\t/version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("no version", b"GET /version\r\nHost: localhost\r\n\r\n", 400),
    ("blank after the version", b"GET /version HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400),
    ("lower case version", b"GET /version http/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("version 1.10", b"GET /version HTTP/1.10\r\nHost: localhost\r\n\r\n", 400),
    ("version 0.9", b"GET /version HTTP/0.9\r\nHost: localhost\r\n\r\n", 505),
    ("version 2.0", b"GET /version HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
    ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x0a" * 300, 400),
    ("SSH banner", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", 400),
    ("method with a separator", b"G,T /version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("method of 17 letters", b"A" * 17 + b" /version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("target without slash", b"GET version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("absolute target", b"GET http://x/version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("absolute target without a path", b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
     400),
    ("absolute target with a user",
     b"GET http://localhost@x/version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("asterisk target", b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("authority target", b"CONNECT x:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("raw byte over 127 in the target", b"GET /\xc3\xa4 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("NUL in the target", b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("empty line first", b"\r\nGET /version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("only empty lines", b"\r\n\r\n\r\n\r\n", 400),
    ("target over 8 KiB", b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    ("target that never ends", b"GET /" + b"a" * 20000, 414),
    ("header block over 16 KiB", GET + b"A: " + b"b" * 16384 + b"\r\n\r\n", 431),
    ("header block that never ends", GET + b"A: b\r\n" * 90 + b"B: " + b"c" * 20000, 431),
    ("101 headers", b"GET /version HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100 + b"\r\n",
     431), ("100,000 headers", GET + b"A: b\r\n" * 100000 + b"\r\n", 431),
    ("giant header of 8 MiB", GET + b"A: " + b"b" * (8 << 20), 431),
    ("chunk size with a blank", POST + b"Transfer-Encoding: chunked\r\n\r\n2 \r\n{}\r\n0\r\n\r\n",
     400),
    ("chunk size with 0x", POST + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", 400),
    ("negative chunk size", POST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", 400),
    ("chunk size overflow",
     POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n", 400),
    ("chunk size of 64 bits",
     POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n", 400),
    ("chunk size with many zeroes",
     POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 400 + b"2\r\n{}\r\n0\r\n\r\n", 400),
    ("empty chunk size", POST + b"Transfer-Encoding: chunked\r\n\r\n\r\n{}\r\n0\r\n\r\n", 400),
    ("chunk size line with bare LF", POST + b"Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
     400),
    ("chunk data too long", POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n", 400),
    ("chunk data ended by bare LF", POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\n0\r\n\r\n",
     400),
    ("trailer field",
     POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nContent-Length: 4\r\n\r\n", 400),
    ("last chunk without its empty line",
     POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + SMUGGLED, 400),
    ("body far over the limit, declared", POST + b"Content-Length: 99999999999\r\n\r\n{", 413),
    ("body over the limit with 100-continue",
     POST + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", 413),
    ("unknown route with a large body",
     b"POST /v1/nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\nabc", 404),
    ("upload that is no multipart",
     b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 99999\r\n\r\nabc",
     400),
    ("upload without a boundary",
     b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data\r\nContent-Length: 99999\r\n\r\nabc",
     400), ]

for _name, _data, _status in REFUSED:
    CASES.append((_name, lambda data=_data, status=_status: refused(data, status)))

# --- requests that are sound HTTP and wrong otherwise: an error, and the connection goes on ---

KEPT = [
    ("unknown path", GET.replace(b"/version", b"/v1/nope") + END, 404),
    ("path traversal", GET.replace(b"/version", b"/v1/files/../../etc/passwd") + END, 404),
    ("encoded path traversal", GET.replace(b"/version", b"/v1/files/..%2F..%2Fetc%2Fpasswd") + END,
     404),
    ("encoded traversal of content",
     GET.replace(b"/version", b"/v1/files/%2e%2e%2f%2e%2e%2fLOCK/content") + END, 404),
    ("absolute path as an id", GET.replace(b"/version", b"/v1/files/%2Fetc%2Fpasswd/content") + END,
     404), ("NUL in an id", GET.replace(b"/version", b"/v1/files/a%00b") + END, 400),
    ("newline in an id", GET.replace(b"/version", b"/v1/files/a%0d%0ab") + END, 400),
    ("broken percent", GET.replace(b"/version", b"/v1/files/%zz") + END, 400),
    ("invalid UTF-8 in an id", GET.replace(b"/version", b"/v1/files/%ff%fe") + END, 400),
    ("id of 7000 bytes", GET.replace(b"/version", b"/v1/files/" + b"a" * 7000) + END, 404),
    ("quotes in an id", GET.replace(b"/version", b"/v1/batches/'%22;DROP") + END, 404),
    ("wrong method", GET.replace(b"GET", b"PATCH") + END, 405),
    ("TRACE", GET.replace(b"GET", b"TRACE") + END, 405),
    ("method nobody knows", GET.replace(b"GET", b"BREW") + END, 405),
    ("empty JSON body", POST + b"Content-Length: 0\r\n\r\n", 400),
    ("broken JSON", POST + b"Content-Length: 5\r\n\r\n{\"a\":", 400),
    ("JSON array", POST + b"Content-Length: 2\r\n\r\n[]", 400),
    ("JSON with a NUL byte", POST + b"Content-Length: 3\r\n\r\n{\0}", 400),
    ("JSON of invalid UTF-8", POST + b"Content-Length: 9\r\n\r\n{\"a\":\"\xff\"}", 400),
    ("JSON 30,000 deep", POST + b"Content-Length: 30000\r\n\r\n" + b"[" * 30000, 400),
    ("JSON with a huge exponent", POST + b"Content-Length: 17\r\n\r\n{\"a\":1e999999999}", 400),
    ("broken JSON in chunks of one",
     POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n\"\r\n0\r\n\r\n", 400),
    ("chunk extension", POST + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n", 400),
    ("chunk extension after a blank",
     POST + b"Transfer-Encoding: chunked\r\n\r\n2 ; a=\"b;c\"\r\n{}\r\n0;x\r\n\r\n", 400),
    ("trailer field without a meaning",
     POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: 4\r\n\r\n", 400),
    ("blank after a length", POST + b"Content-Length: 2 \t\r\n\r\n{}", 400),
    ("blank after the coding", POST + b"Transfer-Encoding: chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n",
     400),
    ("packed body", POST + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 415),
    ("limit out of range", GET.replace(b"/version", b"/v1/files?limit=0") + END, 400),
    ("limit that is no number", GET.replace(b"/version", b"/v1/files?limit=%27") + END, 400),
    ("after nothing known", GET.replace(b"/version", b"/v1/files?after=nope") + END, 400),
    ("100 query keys", GET.replace(b"/version", b"/v1/batches?limit=0&" + b"a=b&" * 100) + END,
     400),
    ("body on a GET", GET.replace(b"/version", b"/v1/nope") + b"Content-Length: 5\r\n\r\nhello",
     404), ]


def kept(data, status):
    with dial() as connection:
        reader = Reader(connection)
        for _ in range(2):
            send(connection, data)
            check_error(reader.answer(), status)
        send(connection, GET + END)
        need(reader.answer()[0] == 200, "the connection was not kept")


for _name, _data, _status in KEPT:
    CASES.append((_name, lambda data=_data, status=_status: kept(data, status)))

# --- uploads ---

BOUNDARY = b"XyZ"


def part(name, content, extra=b""):
    return (b"--XyZ\r\nContent-Disposition: form-data; name=\"" + name + b"\"" + extra +
            b"\r\n\r\n" + content + b"\r\n")


PURPOSE = part(b"purpose", b"user_data")
FILE = part(b"file", b"hello\n", b"; filename=\"a.txt\"")
UPLOAD = b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=XyZ\r\n"


def with_length(body):
    return UPLOAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def in_chunks(body, size):
    data = UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for at in range(0, len(body), size):
        piece = body[at:at + size]
        data += b"%x\r\n" % len(piece) + piece + b"\r\n"
    return data + b"0\r\n\r\n"


def once(data):
    with dial() as connection:
        send(connection, data)
        return Reader(connection).answer()


def stored(data):
    status, _, body = once(data)
    need(status == 200, f"status {status}: {body[:200]!r}")
    return json.loads(body)


def fetched(file_id):
    status, _, body = once(b"GET /v1/files/" + file_id.encode() +
                           b"/content HTTP/1.1\r\nHost: localhost\r\n\r\n")
    need(status == 200, f"status {status}")
    return body


def file_ids():
    status, _, body = once(b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\n\r\n")
    need(status == 200, f"status {status}")
    return [entry["id"] for entry in json.loads(body)["data"]]


BAD_UPLOADS = [
    ("upload without a file", PURPOSE + b"--XyZ--", 400),
    ("upload without a purpose", FILE + b"--XyZ--", 400), ("upload with no part", b"--XyZ--", 400),
    ("upload with an empty body", b"", 400),
    ("upload cut before its closing delimiter", PURPOSE + FILE, 400),
    ("upload with another boundary", PURPOSE.replace(b"XyZ", b"Abc") + b"--Abc--", 400),
    ("upload with two files", PURPOSE + FILE + FILE + b"--XyZ--", 400),
    ("upload with two purposes", PURPOSE + PURPOSE + FILE + b"--XyZ--", 400),
    ("part without a name", b"--XyZ\r\nContent-Disposition: form-data\r\n\r\nx\r\n--XyZ--", 400),
    ("part without a disposition", b"--XyZ\r\nContent-Type: text/plain\r\n\r\nx\r\n--XyZ--", 400),
    ("part with two dispositions",
     b"--XyZ\r\n" + b"Content-Disposition: form-data; name=a\r\n" * 2 + b"\r\nx\r\n--XyZ--", 400),
    ("part with a quote that never ends",
     b"--XyZ\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--XyZ--", 400),
    ("part with a header of 64 KiB", b"--XyZ\r\nA: " + b"b" * 65536 + b"\r\n\r\nx\r\n--XyZ--", 400),
    ("part name of 5000 bytes", part(b"a" * 3000, b"x") + b"--XyZ--", 400),
    ("1000 parts", part(b"a", b"") * 1000 + b"--XyZ--", 400),
    ("purpose of 1 MiB", part(b"purpose", b"a" * (1 << 20)) + FILE + b"--XyZ--", 400),
    ("purpose with a NUL", part(b"purpose", b"batch\0") + FILE + b"--XyZ--", 400),
    ("seconds beyond 64 bits", PURPOSE + part(b"expires_after[anchor]", b"created_at") +
     part(b"expires_after[seconds]", b"9" * 30) + FILE + b"--XyZ--", 400),
    ("delimiter line with garbage", b"--XyZ!\r\n" + PURPOSE + FILE + b"--XyZ--", 400),
    ("delimiter line with bare LF", b"--XyZ\nContent-Disposition: form-data; name=a\n\nx\n--XyZ--",
     400), ]

for _name, _body, _status in BAD_UPLOADS:
    CASES.append(
        (_name, lambda body=_body, status=_status: check_error(once(with_length(body)), status)))
    CASES.append((_name + ", in chunks of 7",
                  lambda body=_body, status=_status: check_error(once(in_chunks(body, 7)), status)))


@case("an upload is the same with a length and in chunks of any size")
def _():
    content = b"\r\n--Xy\r\n--XyZ"[:-1] + b"\0\xff\r\n\r\n--"
    body = PURPOSE + part(b"file", content, b"; filename=\"a.bin\"") + b"--XyZ--\r\n"
    for data in [with_length(body)] + [in_chunks(body, size) for size in (1, 2, 3, 5, 100000)]:
        file = stored(data)
        need(file["bytes"] == len(content), f"bytes {file}")
        need(fetched(file["id"]) == content, "other bytes came back")


@case("hostile file names are kept as names only")
def _():
    for name in (b"../../etc/passwd", b"a\\\"b", b"%22", b"C:\\x\\y", b"\xff\xfe", b"", b"a" * 1000,
                 b"/abs"):
        file = stored(
            with_length(PURPOSE + part(b"file", b"x", b"; filename=\"" + name + b"\"") +
                        b"--XyZ--"))
        need(re.fullmatch(r"file-[0-9A-Za-z]{22,24}", file["id"]), f"id {file['id']}")
        need(fetched(file["id"]) == b"x", "other bytes came back")


@case("an upload cut off by its client leaves no file")
def _():
    before = file_ids()
    body = PURPOSE + FILE + b"--XyZ--"
    for cut in (1, 20, len(PURPOSE) + 3, len(body) - 1):
        with dial() as connection:
            send(connection, UPLOAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:cut])
        with dial() as connection:
            send(connection, in_chunks(body, 16)[:-cut])
    wait_for_quiet()
    need(file_ids() == before, "a file was listed")


@case("an upload that is reset leaves the server well")
def _():
    for _ in range(20):
        connection = dial()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        send(connection, UPLOAD + b"Content-Length: 100000\r\n\r\n" + PURPOSE)
        connection.close()


@case("100 Continue comes before the body is sent")
def _():
    body = PURPOSE + FILE + b"--XyZ--"
    with dial() as connection:
        reader = Reader(connection)
        send(connection, UPLOAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        need(reader.answer()[0] == 100, "no 100")
        send(connection, body)
        need(reader.answer()[0] == 200, "no 200")


# --- pipelining and keep-alive ---

@case("100 requests on one connection, one after the other")
def _():
    with dial() as connection:
        reader = Reader(connection)
        seen = set()
        for _ in range(100):
            send(connection, GET + END)
            status, headers, _ = reader.answer()
            need(status == 200, f"status {status}")
            seen.add(headers["x-request-id"])
        need(len(seen) == 100, "request ids repeat")


@case("500 pipelined requests are answered in order")
def _():
    with dial() as connection:
        reader = Reader(connection)
        data = b"".join(
            GET.replace(b"/version", b"/v1/files/file-%d" % i) + END for i in range(500))
        threading.Thread(target=send, args=(connection, data)).start()
        for i in range(500):
            status, _, body = reader.answer()
            need(status == 404 and (b"file-%d\"" % i) in body or b"file-%d" % i in body,
                 f"answer {i}: {body!r}")


@case("a framing error after good requests is answered after them")
def _():
    with dial() as connection:
        send(connection,
             (GET + END) * 3 + b"GET /version HTTP/1.1\nHost: localhost\r\n\r\n" + SMUGGLED)
        got = answers(read_all(connection))
    need([answer[0] for answer in got] == [200, 200, 200, 400], f"statuses {[a[0] for a in got]}")


@case("a body that ends early does not swallow the next request")
def _():
    with dial() as connection:
        send(connection, POST + b"Content-Length: 2\r\n\r\n{}" + GET + END)
        reader = Reader(connection)
        check_error(reader.answer(), 400)
        need(reader.answer()[0] == 200, "the second request was lost")


@case("a chunked body and a pipelined request after it")
def _():
    with dial() as connection:
        send(connection,
             POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + GET + END)
        reader = Reader(connection)
        check_error(reader.answer(), 400)
        need(reader.answer()[0] == 200, "the second request was lost")


@case("one byte at a time")
def _():
    with dial() as connection:
        for byte in GET + b"Connection: close\r\n" + END:
            send(connection, bytes([byte]))
        got = answers(read_all(connection))
    need([answer[0] for answer in got] == [200], f"{got}")


@case("HTTP/1.0 is answered and closed")
def _():
    with dial() as connection:
        send(connection, b"GET /version HTTP/1.0\r\n\r\n")
        need([answer[0] for answer in answers(read_all(connection))] == [200], "not 200")


@case("HEAD has the headers and no body")
def _():
    with dial() as connection:
        send(connection, GET.replace(b"GET", b"HEAD") + b"Connection: close\r\n" + END)
        data = read_all(connection)
    need(data.startswith(b"HTTP/1.1 200") and data.endswith(b"\r\n\r\n"), f"{data!r}")


@case("a client that shuts its sending side still gets its answer")
def _():
    for _ in range(20):
        with dial() as connection:
            send(connection, GET + END)
            connection.shutdown(socket.SHUT_WR)
            need([answer[0] for answer in answers(read_all(connection))] == [200], "no answer")


# --- truncation and disconnects ---

@case("a header block cut off anywhere")
def _():
    data = GET + b"A: b\r\n" + END
    for cut in range(len(data)):
        with dial() as connection:
            send(connection, data[:cut])
            connection.shutdown(socket.SHUT_WR)
            need(read_all(connection) == b"", f"an answer to {cut} bytes")


@case("a JSON body cut off")
def _():
    with dial() as connection:
        send(connection, POST + b"Content-Length: 100\r\n\r\n{\"a\":")
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)


@case("200 connections that say nothing")
def _():
    connections = [dial() for _ in range(200)]
    healthy()
    for connection in connections:
        connection.close()


@case("200 connections that are reset at once")
def _():
    for _ in range(200):
        connection = dial()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()


@case("1500 connections: the server stays well or says 503")
def _():
    connections = []
    statuses = set()
    try:
        for _ in range(1500):
            try:
                connections.append(dial())
            except OSError:
                break
        for connection in connections[-20:]:
            send(connection, GET + b"Connection: close\r\n" + END)
            data = read_all(connection)
            if data:
                statuses.add(answers(data)[0][0])
    finally:
        for connection in connections:
            connection.close()
    need(statuses <= {200, 503}, f"statuses {statuses}")
    wait_for_quiet()


@case("a client that reads nothing does not stop the others")
def _():
    with dial() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        data = (GET.replace(b"/version", b"/metrics") + END) * 300
        connection.settimeout(1)
        try:
            connection.sendall(data)
        except (socket.timeout, ConnectionResetError, BrokenPipeError):
            pass
        healthy()


@case("a client that goes away while it waits")
def _():
    body = json.dumps({
        "model": "echo", "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
    for _ in range(20):
        with dial() as connection:
            send(
                connection,
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + b"Content-Length: %d\r\n\r\n" % len(body) + body)


@case("an endless chunked upload is refused with 413")
def _():
    with dial() as connection:
        send(connection, POST + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        sent = 0
        while sent < 64:
            if is_readable(connection, 0):
                break
            try:
                connection.sendall(piece)
            except OSError:
                break
            sent += 1
        need(sent < 64, "64 MiB were taken")
        data = read_all(connection)
        need(not data or answers(data)[0][0] == 413, f"{data[:200]!r}")


@case("threads of garbage")
def _():
    def garbage(seed):
        state = seed * 2654435761 % 2**32
        for _ in range(10):
            data = bytearray()
            for _ in range(300):
                state = (state * 1103515245 + 12345) % 2**31
                data.append(state >> 16 & 0xff)
            with dial() as connection:
                send(connection, bytes(data))
                connection.shutdown(socket.SHUT_WR)
                read_all(connection)
    threads = [threading.Thread(target=garbage, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- the server's own time limits ---

def slow_header():
    start = time.monotonic()
    with dial() as connection:
        send(connection, b"GET /version HTTP/1.1\r\n")
        data = b""
        while time.monotonic() - start < LIMIT_S:
            if is_readable(connection, 0.5):
                data = read_all(connection)
                break
            send(connection, b"A: b\r\n")
        check_error(answers(data)[0], 408)


def slow_body():
    with dial() as connection:
        send(connection, POST + b"Content-Length: 100000\r\n\r\n{")
        start = time.monotonic()
        data = b""
        while time.monotonic() - start < LIMIT_S:
            if is_readable(connection, 0.5):
                data = read_all(connection)
                break
            send(connection, b" ")
        check_error(answers(data)[0], 408)


def run_one(name, function, results):
    try:
        function()
        healthy()
        results.append(True)
    except Exception as failure:  # a case that breaks in any way has failed
        print(f"FAILED {name}: {type(failure).__name__}: {failure}")
        results.append(False)


def main():
    global HOST, PORT, SLOW
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--only", default="", help="run the cases whose name holds this")
    options = parser.parse_args()
    HOST, PORT = options.host, options.port
    results = []
    threads = []
    if options.slow:
        SLOW = 2
        for name, function in (("slow header", slow_header), ("slow body", slow_body)):
            threads.append(threading.Thread(target=run_one, args=(name, function, results)))
            threads[-1].start()
    for name, function in CASES:
        if options.only in name:
            run_one(name, function, results)
    for thread in threads:
        thread.join()
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

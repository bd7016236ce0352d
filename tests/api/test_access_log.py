# SPDX-License-Identifier: Apache-2.0
"""The access log: a line per request with its X-Request-Id, the reason of a refusal, and the two
forms of all lines. No client can forge a line, fill the disk with lines, have a prompt logged, or
stop the server by them."""
import http.client, json, re, socket, subprocess, threading, time

import support

ECHO = ("--model", "smollm2=echo")
CHAT = "/v1/chat/completions"
REQUEST = r"\S+ serve (\w+) request_id=(\S+) event=request method=(\S+) path=(\S+) status=(\d+) bytes=(\d+) body_bytes=(\d+) ms=[\d.]+ peer=127.0.0.1 owner=(\S+) key=\S+"


def chat(text, **more):
    return {
        "model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 2,
        **more}


def ask(server, method, path, body=None, **headers):
    """Status, request id and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    data = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, data, {
        "Content-Type": "application/json", **{k.replace("_", "-"): v
                                               for k, v in headers.items()}})
    answer = connection.getresponse()
    found = answer.status, answer.getheader("x-request-id"), answer.read()
    connection.close()
    return found


def raw(server, data):
    """What the server answers to bytes, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=600) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def line_of(server, request_id):
    """The line of a request, which is written when its answer has been sent."""
    def found():
        return [
            line for line in server.log_text().splitlines()
            if f"request_id={request_id} " in line or f'"request_id":"{request_id}"' in line]
    support.until(found)
    assert len(found()) == 1, found()
    return found()[0]


def test_each_request_leaves_a_line_with_its_id(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        body = json.dumps(chat("hello"))
        status, name, answer = ask(server, "POST", CHAT, body, X_Request_Id="mine.1_a-Z")
        assert status == 200 and name == "mine.1_a-Z"
        found = re.fullmatch(REQUEST, line_of(server, name))
        assert found and found.groups() == ("info", name, "POST", CHAT, "200", str(
            len(answer)), str(len(body)), "default")
        status, name, answer = ask(server, "GET", "/v1/models?secret=in-the-query")
        assert status == 200 and re.fullmatch("req_[0-9a-f]{32}", name)
        assert re.fullmatch(REQUEST, line_of(
            server, name))[4] == "/v1/models" and "in-the-query" not in server.log_text()
        status, name, answer = ask(server, "POST", CHAT, chat("hello", stream=True))
        assert status == 200 and int(re.fullmatch(REQUEST, line_of(server, name))[6]) == len(answer)
        for path in ("/health", "/ready", "/version", "/metrics"):
            assert ask(server, "GET", path)[0] == 200
        ask(server, "GET", "/v1/models", X_Request_Id="the-last")
        line_of(server, "the-last")
        assert not re.search("path=/(health|ready|version|metrics)",
                             server.log_text()), "probes come every few seconds"


def test_each_refusal_has_an_id_and_leaves_its_reason(tmp_path):
    with support.serving(tmp_path / "state", *ECHO, "--no-access-log") as server:
        cases = [(
            "GET", "/v1/files?limit=x", None, 400,
            "code=invalid_type param=limit error=\"Invalid type for 'limit': expected an integer, got 'x'.\""
        ), ("POST", CHAT, b"{", 400, "The request body is not valid JSON"),
                 ("POST", CHAT, chat("x", model="nope"), 404,
                  "code=model_not_found param=model error=\"The model 'nope' does not exist."),
                 ("POST", "/v1/batches", {
                     "input_file_id": 5}, 400, "code=invalid_type param=input_file_id"),
                 ("GET", "/v1/nope", None, 404, "Unknown request URL: GET /v1/nope"),
                 ("PUT", "/v1/files", None, 405, "Method PUT is not allowed"),
                 ("POST", "/v1/batches", b"x" * (2 << 20), 413, "larger than the limit"),
                 ("GET", "/v1/batches/batch_0", None, 404, "No batch found")]
        for number, (method, path, body, status, told) in enumerate(cases):
            got, name, _ = ask(server, method, path, body, X_Request_Id=f"case-{number}.")
            assert (got, name) == (status, f"case-{number}."), (path, got, name)
            line = line_of(server, name)
            assert f"status={status} " in line and told in line, line
            assert re.match(
                REQUEST,
                line)[8] == ('""' if "Unknown" in told or status == 405 else "default"), line
        got, name, _ = ask(server, "POST", CHAT, "x", Content_Type="text/plain")
        assert got == 415 and "code=unsupported_media_type" in line_of(server, name)
        # Bytes that are no request have an id, too.
        head = raw(
            server,
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        name = re.search(rb"x-request-id: (\S+)", head)[1].decode()
        assert " 400 " in head.decode(
        ) and "event=connection_refused status=400 peer=127.0.0.1 error=" in line_of(server, name)
        assert ask(server, "GET", "/v1/models", X_Request_Id="served")[0] == 200
        assert ask(server, "GET", "/v1/nope", X_Request_Id="refused")[0] == 404
        line_of(server, "refused")
        assert "=served " not in server.log_text(), "--no-access-log leaves refused requests only"


def test_a_stranger_has_no_owner_and_a_key_has_its_own(tmp_path):
    made = support.quern("key", "create", "--state-dir", tmp_path / "state", "--name", "n",
                         "--owner", "team-a", "--scopes", "files,metrics")
    key = made.stdout.strip()
    with support.serving(tmp_path / "state", *ECHO) as server:
        for header, status, owner in (({}, 401, '""'), ({
                "Authorization": "Bearer wrong-key-of-a-client"}, 401, '""'), ({
                    "Authorization": f"Bearer {key}"}, 200, "team-a")):
            got, name, _ = ask(server, "GET", "/v1/files", **header)
            assert got == status and f" owner={owner}" in line_of(server, name)
        assert key[12:] not in server.log_text() and "wrong-key-of-a-client" not in server.log_text(
        )


def test_the_options_of_vllm_turn_lines_off(tmp_path):
    with support.serving(tmp_path / "a", *ECHO, "--disable-uvicorn-access-log") as server:
        ask(server, "GET", "/v1/models", X_Request_Id="served")
        ask(server, "GET", "/v1/nope", X_Request_Id="refused")
        line_of(server, "refused")
        assert "=served " not in server.log_text()
    with support.serving(tmp_path / "b", *ECHO, "--disable-access-log-for-endpoints",
                         "/v1/models, /v1/nope") as server:
        for path in ("/v1/models", "/v1/nope", "/v1/files"):
            ask(server, "GET", path, X_Request_Id="of" + path.replace("/", "-"))
        line_of(server, "of-v1-files")
        assert "of-v1-models" not in server.log_text() and "of-v1-nope" not in server.log_text()


HOSTILE = [
    b"GET /a%0a{\"level\":\"error\"}\x1b[2J\xff\" status=200 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\"},{\"x\":\"\\ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/files?limit=%0a%22%5c%ff%e2%80%ae HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\xe2\x80\xa8\xc2\x9b31m HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/files HTTP/1.1\r\nHost: evil\"\\\x1b\xff\r\n\r\n",
    b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\"\xc2\x9b\\n\r\n\r\n",
    b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\" status=200 b=\"\r\n\r\n",
    b"GET /v1/models/%1b%00%22 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"M\"E\\T HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\xff\"\n\n"]


def test_every_line_is_one_object_whatever_clients_send(tmp_path):
    """All lines of the log with --log-format json, from the first note about an option to the
    end."""
    with support.serving(tmp_path / "state", *ECHO, "--enforce-eager", "--log-format",
                         "json") as server:
        for data in HOSTILE:
            raw(server, data)
        for model in ('"\\\n\r\x1b\u009b\u2028\u202e', "x" * 300, "\U0001F600" * 90):
            ask(server, "POST", CHAT, chat("x", model=model))
            ask(server, "POST", "/v1/batches",
                {"input_file_id": model, "endpoint": model, model: model})
        _, name, _ = ask(server, "GET", "/v1/files?limit=0", X_Request_Id="the-last")
        line_of(server, name)
        assert server.stop() == 0
    lines = server.log_text().splitlines(keepends=True)
    assert len(lines) > 12
    for line in lines:
        parsed = json.loads(line)
        assert line.endswith("\n") and {"ts", "level", "msg", "process"
                                        } <= set(parsed) and line[:-1].isprintable(), line
        assert all(isinstance(value, (str, int, float)) for value in parsed.values())
    (last,) = [json.loads(line) for line in lines if "the-last" in line]
    assert {
        name: last[name]
        for name in ("level", "process", "event", "method", "path", "status", "owner", "param",
                     "peer")} == {
                         "level": "info", "process": "serve", "event": "request", "method": "GET",
                         "path": "/v1/files", "status": 400, "owner": "default", "param": "limit",
                         "peer": "127.0.0.1"}
    assert "option_changes_nothing" in lines[0]
    done = support.quern("serve", *ECHO, "--state-dir", "/dev/null/x", "--log-format=json")
    assert json.loads(done.stderr.splitlines()[-1])["event"] == "ended" and done.returncode != 0
    done = support.quern("serve", *ECHO, "--state-dir", tmp_path / "state", "--log-format", "xml")
    assert done.returncode == 2 and "--log-format 'xml' is not text or json" in done.stderr


def test_text_lines_are_whole_whatever_clients_send(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        for data in HOSTILE:
            raw(server, data)
        _, name, _ = ask(server, "GET", "/v1/models", X_Request_Id="the-last")
        line_of(server, name)
        for line in server.log_text().splitlines():
            assert re.match(
                r"\d{4}-\d\d-\d\dT[\d:.]+Z serve (info|warn) (request_id=\S+ )?event=\w+ ",
                line) and line.isprintable(), line
        assert not re.search(r" path=\S* status=200 .* status=", server.log_text())


def test_the_engine_writes_the_same_form_and_no_prompt_is_logged(tmp_path):
    """The canary stands where a refusal of the engine quotes what it got."""
    with support.serving(tmp_path / "state", "--model", "smollm2", "--log-format",
                         "json") as server:
        answers = [
            ask(server, "POST", CHAT, chat("the canary sings")),
            ask(server, "POST", CHAT, {"model": "smollm2", "messages": "the canary sings"}),
            ask(server, "POST", CHAT,
                chat("hello", messages=[{"role": "the canary sings", "content": "hello"}])),
            ask(server, "POST", CHAT, chat("hello", response_format={"type": "canary"})),
            ask(server, "POST", CHAT, chat("hello", temperature="it's the canary's")),
            ask(server, "POST", "/v1/completions",
                {"model": "smollm2", "prompt": {"canary": "canary"}}),
            ask(server, "POST", "/v1/completions",
                b'{"model": "smollm2", "prompt": "the canary sings'),
            ask(server, "POST", "/v1/completions",
                {"model": "smollm2", "prompt": "the canary sings", "n": 0})]
        assert [status for status, _, _ in answers] == [200] + 7 * [400], answers
        lines = [json.loads(line_of(server, name)) for _, name, _ in answers]
        assert all(line["error"]
                   for line in lines[1:]) and lines[2]["param"] and lines[-1]["param"] == "n"
        assert "canary" not in server.log_text()
        assert server.stop() == 0
    processes = {json.loads(line)["process"] for line in server.log_text().splitlines()}
    assert processes == {"serve", "engine"}


def test_a_flood_of_refusals_leaves_few_lines_and_their_number(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        connection, begin = http.client.HTTPConnection("127.0.0.1", server.port,
                                                       timeout=600), time.monotonic()
        for _ in range(1000):
            connection.request("GET", "/v1/nope")
            assert connection.getresponse().read()
        took = time.monotonic() - begin
        connection.close()
        written = server.log_text().count("path=/v1/nope ")
        assert written <= 100 + 10 * (took + 1)
        if took > 30:
            return  # too slow for a flood
        # A served request has a rate of its own.
        line_of(server, ask(server, "GET", "/v1/models")[1])

        def all_told():
            ask(server, "GET", "/v1/nope/again")
            log = server.log_text()
            skipped = sum(
                map(
                    int,
                    re.findall(
                        r"event=access_log_skipped kind=unknown lines=(\d+); too many to log",
                        log)))
            return skipped > 0 and skipped + log.count("path=/v1/nope") >= 1000
        support.until(all_told)
        told = re.search(rb"^quern_access_log_skipped_total (\d+)$",
                         ask(server, "GET", "/metrics")[2], re.M)
        assert int(told[1]) > 0


def test_a_log_that_is_not_read_stops_nobody(tmp_path):
    """Standard error is a pipe that is full, as behind a collector that hangs: requests go on, and
    the lines that are lost are counted."""
    process = subprocess.Popen(
        [support.BINARY, "serve", "--port", "0", "--state-dir", tmp_path / "state", *ECHO],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    try:
        port = int(process.stdout.readline().rsplit(b":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        for _ in range(1200):  # about 200 bytes each; a pipe has 64 KiB
            connection.request("GET", "/v1/models")
            assert connection.getresponse().read()
        read = []
        reader = threading.Thread(target=lambda: read.extend(process.stderr))
        reader.start()

        def is_told():
            connection.request("GET", "/v1/models")
            assert connection.getresponse().read()
            return any(b"event=access_log_skipped kind=served" in line for line in read)
        support.until(is_told)
        connection.close()
        process.terminate()
        assert process.wait(600) == 0
        reader.join(600)
    finally:
        process.kill()

# SPDX-License-Identifier: Apache-2.0
"""quern run with http URLs for its input and its output, as `vllm run-batch` takes them."""
import http.server, json, os, socket, threading

import pytest

import support

LINES = support.jsonl([support.request(f"r{i}", f"question {i}") for i in range(5)])


class Web(http.server.ThreadingHTTPServer):
    """Files to GET and PUT; `answers` are the methods and statuses of the next requests that do not
    get their file."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.answers, self.seen = {}, [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def told(self, body):
        """Answers as the test has told; False: as a server of files does."""
        self.server.seen.append((self.command, self.path, len(body)))
        if not self.server.answers or self.server.answers[0][0] != self.command:
            return False
        status = self.server.answers.pop(0)[1]
        if status == "half":  # the connection breaks in the middle of the answer
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"custom_id": "half')
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.answer(status,
                        headers=[("Location", "/moved")] if status in (302, 307) else [
                            ("Retry-After", "0")])
        return True

    def do_GET(self):
        if not self.told(b""):
            body = self.server.files.get(self.path.split("?")[0])
            self.answer(404 if body is None else 200, body or b"")

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.told(body):
            self.server.files[self.path.split("?")[0]] = body
            self.answer(200)


@pytest.fixture
def web():
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(folder, source, target, *extra):
    return support.quern("run",
                         "-i",
                         source,
                         "-o",
                         target,
                         "--model",
                         "smollm2=echo",
                         "--output-tmp-dir",
                         folder,
                         *extra,
                         env={**os.environ, "no_proxy": "*"})


def ids(data):
    return [json.loads(line)["custom_id"] for line in data.splitlines()]


def test_a_run_from_the_web_to_the_web(tmp_path, web):
    web.files["/in.jsonl"] = LINES
    done = run(tmp_path, f"{web.url}/in.jsonl?sig=SECRET", f"{web.url}/out.jsonl?sig=SECRET",
               "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["completed"] == 5, done.stderr
    assert ids(web.files["/out.jsonl"]) == [f"r{i}" for i in range(5)]
    assert [s[0] for s in web.seen] == ["GET", "PUT"] and "SECRET" in web.seen[1][1]
    assert not list(tmp_path.iterdir()) and "SECRET" not in done.stderr


def test_a_server_that_fails_for_a_moment_is_asked_again(tmp_path, web):
    web.files["/in.jsonl"] = web.files["/moved"] = LINES
    web.answers = [("GET", "half"), ("GET", 503), ("GET", 302)]
    out = tmp_path / "out.jsonl"
    done = run(tmp_path, f"{web.url}/in.jsonl", out)
    assert done.returncode == 0 and ids(out.read_bytes()) == [f"r{i}"
                                                              for i in range(5)], done.stderr
    assert [s[1] for s in web.seen] == ["/in.jsonl", "/in.jsonl", "/in.jsonl", "/moved"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.jsonl", "out.jsonl.manifest.json", "out.jsonl.manifest.salts.json"]
    source = tmp_path / "in.jsonl"
    source.write_bytes(LINES)
    web.answers = [("PUT", 500), ("PUT", 307)]
    done = run(tmp_path, source, f"{web.url}/put.jsonl")
    assert done.returncode == 0 and ids(web.files["/moved"]) == [f"r{i}"
                                                                 for i in range(5)], done.stderr


def test_an_upload_that_fails_is_made_by_the_same_command_and_nothing_runs_again(tmp_path, web):
    web.files["/in.jsonl"] = LINES
    web.answers = [("PUT", 403)]
    done = run(tmp_path, f"{web.url}/in.jsonl", f"{web.url}/out.jsonl?sig=1")
    local, = tmp_path.glob("quern-*.jsonl")
    assert done.returncode == 5 and str(
        local) in done.stderr and "sends them again" in done.stderr, done.stderr
    assert ids(local.read_bytes()) == [f"r{i}" for i in range(5)] and "/out.jsonl" not in web.files
    del web.files["/in.jsonl"]  # neither fetched nor run again
    done = run(tmp_path, f"{web.url}/in.jsonl", f"{web.url}/out.jsonl?sig=2")
    assert done.returncode == 0 and ids(web.files["/out.jsonl"]) == [f"r{i}"
                                                                     for i in range(5)], done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("status,wanted", [(404, 4), (403, 5), (418, 3)])
def test_an_input_that_cannot_be_had_ends_with_its_status(tmp_path, web, status, wanted):
    web.answers = [("GET", status)]
    done = run(tmp_path, f"{web.url}/in.jsonl?sig=SECRET", tmp_path / "out.jsonl")
    assert done.returncode == wanted and str(
        status) in done.stderr and "SECRET" not in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_refused_input_is_fetched_anew(tmp_path, web):
    web.files["/in.jsonl"] = b'{"custom_id": "a"}\n'
    out = tmp_path / "out.jsonl"
    assert run(tmp_path, f"{web.url}/in.jsonl", out).returncode == 3
    assert not list(tmp_path.iterdir())
    web.files["/in.jsonl"] = LINES
    assert run(tmp_path, f"{web.url}/in.jsonl", out).returncode == 0
    assert run(tmp_path, "ftp://x/in.jsonl",
               tmp_path / "b").returncode == 4  # a file of that name, which is not there
    assert run(tmp_path, "https://", tmp_path / "b").returncode == 2

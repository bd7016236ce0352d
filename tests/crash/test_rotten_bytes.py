# SPDX-License-Identifier: Apache-2.0
"""Bytes of clients that rot on the disk are not handed on as good ones: a damaged output file is
not downloaded whole, and a request that has changed since it was validated is not run."""
import hashlib, http.client, http.server, json, shutil, threading

import pytest

import life, support


def flip(path, at, bit=1):
    mode = path.stat().st_mode
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)
    path.chmod(mode)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A state directory with an ended batch whose output has many pieces."""
    state, client = tmp_path_factory.mktemp("rotten") / "state", life.Client(life.echo_lines(400))
    with support.serving(state, *life.ECHO) as server:
        client.go(server)
        batch = server.batch(client.batch)
        assert server.stop() == 0
    return state, batch, client.output


@pytest.mark.parametrize("where", (0.0, 0.5, 1.0))
def test_quern_results_makes_no_file_of_damaged_bytes(ended, tmp_path, where):
    """Its transfer breaks off, and the part that it keeps is summed when it goes on at a server
    that has been started anew."""
    origin, batch, whole = ended
    state, out = tmp_path / "state", tmp_path / "out.jsonl"
    shutil.copytree(origin, state)
    (path,) = state.glob(f"files/*/{batch['output_file_id']}")
    flip(path, int(where * (len(whole) - 1)))
    for attempt in range(3):
        with support.serving(state, *life.ECHO) as server:
            done = support.quern("results", batch["id"], "--base-url", server.url, "-o", out,
                                 "--retry-seconds", "1")
            assert server.stop() == 0
        assert done.returncode not in (
            0, 2) and not out.exists(), f"{attempt}: {done.stdout}{done.stderr}"
    flip(path, int(where * (len(whole) - 1)))
    with support.serving(state, *life.ECHO) as server:
        done = support.quern("results", batch["id"], "--base-url", server.url, "-o", out)
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.stop() == 0
    assert out.read_bytes() == whole


@pytest.mark.parametrize("where", (0.0, 0.5, 1.0))
def test_a_damaged_output_file_is_not_downloaded_whole(ended, tmp_path, where):
    origin, batch, whole = ended
    state = tmp_path / "state"
    shutil.copytree(origin, state)
    (path,) = state.glob(f"files/*/{batch['output_file_id']}")
    flip(path, int(where * (len(whole) - 1)))
    content = f"/v1/files/{batch['output_file_id']}/content"
    with support.serving(state, *life.ECHO) as server:
        with pytest.raises(http.client.IncompleteRead) as broken:
            server.call("GET", content)
        assert len(broken.value.partial) < len(whole)
        status, data = server.call(
            "GET", content)  # and from then on it is told, whatever part is asked for
        assert status == 500 and "event=file_damaged" in server.log_text(), data
        assert server.call("GET", content, headers={"Range": "bytes=0-10"})[0] == 500
        done = support.quern("results", batch["id"], "--base-url", server.url, "-o",
                             tmp_path / "out.jsonl", "--retry-seconds", "1")
        assert done.returncode not in (
            0, 2) and not (tmp_path / "out.jsonl").exists(), done.stdout + done.stderr
        assert server.call("GET", f"/v1/files/{batch['input_file_id']}/content")[0] == 200
        assert server.stop() == 0


def test_results_that_have_rotted_are_not_given_by_pages_either(ended, tmp_path):
    origin, batch, whole = ended
    state = tmp_path / "state"
    shutil.copytree(origin, state)
    (path,) = state.glob(f"files/*/{batch['output_file_id']}")
    flip(path, whole.index(b"\n") - 40)  # in the first line
    with support.serving(state, *life.ECHO) as server:
        try:
            status, data = server.call("GET", f"/v1/batches/{batch['id']}/results?limit=400")
        except http.client.IncompleteRead as broken:
            status, data = 0, broken.partial
        assert status in (0, 500) and all(line in whole.split(b"\n")
                                          for line in data.split(b"\n")[:-1])
        assert server.stop() == 0


def test_a_cut_output_file_breaks_off(ended, tmp_path):
    origin, batch, whole = ended
    state = tmp_path / "state"
    shutil.copytree(origin, state)
    (path,) = state.glob(f"files/*/{batch['output_file_id']}")
    path.chmod(0o600)
    path.write_bytes(whole[:len(whole) // 2])
    with support.serving(state, *life.ECHO) as server:
        with pytest.raises(http.client.IncompleteRead):
            server.call("GET", f"/v1/files/{batch['output_file_id']}/content")
        assert server.stop() == 0


def test_a_whole_file_and_its_parts_are_downloaded(ended, tmp_path):
    origin, batch, whole = ended
    state = tmp_path / "state"
    shutil.copytree(origin, state)
    content = f"/v1/files/{batch['output_file_id']}/content"
    with support.serving(state, *life.ECHO) as server:
        assert server.call("GET", content) == (200, whole)
        for first, last in ((0, 0), (0, len(whole) - 1), (8191, 8192), (100, len(whole) - 1),
                            (len(whole) - 1, len(whole) - 1)):
            assert server.call("GET", content, headers={
                "Range": f"bytes={first}-{last}"}) == (206, whole[first:last + 1])
        assert server.call("HEAD", content) == (200, b"")
        assert server.stop() == 0


def test_a_request_that_has_rotted_is_not_run(tmp_path):
    """Its batch was validated, and waits while the server is down; one letter of a prompt changes,
    and the line is JSON as before."""
    state, requests = tmp_path / "state", life.echo_lines(40)
    requests[19]["body"]["echo"] = {"hang": True}
    client = life.Client(requests)
    with support.serving(state, *life.ECHO, "--lookahead-lines", "4") as server:
        client.go(server, "created")
        life.wait_for_lines(server, client.batch, 10)
        server.kill()
    (path,) = state.glob(f"files/*/{client.file}")
    data = path.read_bytes()
    flip(path, data.index(b"39 lantern") + 3)  # the last line: "lantern" becomes "mantern"
    assert b"39 mantern" in path.read_bytes()
    with support.serving(state, *life.ECHO, "--lookahead-lines", "4") as server:
        batch = server.wait(client.batch)
        assert batch["status"] == "failed" and "input file" in batch["errors"]["data"][0][
            "message"], batch
        lines = server.results(batch)[0]
        assert all("mantern" not in json.dumps(line) for line in lines) and len(lines) >= 10
        assert server.stop() == 0
    assert "its bytes are not what was stored" in support.quern("fsck", "--state-dir", state).stdout


class Lying(http.server.BaseHTTPRequestHandler):
    """A server that sends other bytes than those its ETag names."""
    text, etag = b"", ""

    def do_GET(self):
        batch = {
            "id": "batch_1", "object": "batch", "status": "completed",
            "endpoint": "/v1/chat/completions", "input_file_id": "file-in",
            "output_file_id": "file-out", "error_file_id": None,
            "completion_window": "24h", "created_at": 1, "request_counts": {
                "total": 1, "completed": 1, "failed": 0}, "errors": None, "metadata": None}
        file = {
            "id": "file-out", "object": "file", "bytes": len(self.text), "created_at": 1,
            "filename": "out.jsonl", "purpose": "batch_output"}
        body = self.text if self.path.endswith("/content") else json.dumps(
            file if "/files/" in self.path else batch).encode()
        self.send_response(200)
        if self.path.endswith("/content"):
            self.send_header("ETag", self.etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("etag,good",
                         (("right", True), ("wrong", False), ('"abc"', True), ('W/"x"', True)))
def test_quern_results_compares_what_it_downloaded(tmp_path, etag, good):
    text = json.dumps({
        "id": "r", "custom_id": "a", "response": {
            "status_code": 200, "request_id": "q", "body": {}}, "error": None}).encode() + b"\n"
    right = hashlib.sha256(text).hexdigest()
    tag = {"right": f'"{right}"', "wrong": f'"{hashlib.sha256(b"x").hexdigest()}"'}.get(etag, etag)
    handler = type("Handler", (Lying,), {"text": text, "etag": tag})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as lying:
        threading.Thread(target=lying.serve_forever, daemon=True).start()
        done = support.quern("results",
                             "batch_1",
                             "--base-url",
                             f"http://127.0.0.1:{lying.server_port}/v1",
                             "-o",
                             tmp_path / "out.jsonl",
                             timeout=60)
        lying.shutdown()
    assert (done.returncode == 0) == good, done.stdout + done.stderr
    assert (tmp_path / "out.jsonl").exists() == good
    assert good or right in done.stderr and "ETag" in done.stderr, done.stderr

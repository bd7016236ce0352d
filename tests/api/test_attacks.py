# SPDX-License-Identifier: Apache-2.0
"""Attacks on the routes of other APIs (/api/*, /v1/messages) and on those that delete and that read
the audit trail. Each ends with an answer, and the server goes on; `tools/test attacks` has them
among all others."""
import http.client, json, os, pathlib, re, time

import pytest

import support

TURNS = [{"role": "user", "content": "hi"}]
BODIES = {
    "/api/chat": {"messages": TURNS, "stream": False},
    "/api/generate": {"prompt": "hi", "stream": False},
    "/api/embed": {"input": "hi"},
    "/v1/messages": {"messages": TURNS, "max_tokens": 8},
    "/v1/messages/count_tokens": {"messages": TURNS}}
ROUTES = list(BODIES)
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    state = tmp_path_factory.mktemp("attacks") / "state"
    with support.serving(state, "--model", "m=echo") as server:
        yield server


def post(server, path, body):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, data = server.call("POST", path, raw)
    assert server.call("GET", "/health")[0] == 200
    return status, data.decode(errors="replace")


def good(server):
    status, _ = post(server, "/api/chat", {"model": "m", **BODIES["/api/chat"]})
    assert status == 200


def peak_mib(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) // 1024


@pytest.mark.parametrize("path", ROUTES)
def test_deep_and_long_bodies(server, path):
    head = json.dumps({"model": "m", **BODIES[path]})[:-1].encode()
    for tail in (b',"options":' + b"[" * 100000 + b"]" * 100000, b',"tools":' + b'{"a":' * 5000 +
                 b"1" + b"}" * 5000, b',"format":"\xff"', b',"x":"\\ud800",', b',"model":"n"',
                 b',"stop":' + b"9" * MIB):
        status, text = post(server, path, head + tail + b"}")
        assert status in (200, 400) and len(text) < 4096, (tail[:20], status, text[:200])
    many = b",".join(b'"k%d":%d' % (i, i) for i in range(200000))
    assert post(server, path, head + b"," + many + b"}")[0] in (200, 400)
    good(server)


@pytest.mark.parametrize("path", ROUTES)
def test_a_body_over_32_mib(server, path):
    head = json.dumps({"model": "m", **BODIES[path]})[:-1].encode()
    status, data = server.call("POST", path, head + b',"x":"' + b"a" * (33 * MIB) + b'"}')
    assert status == 413, data[:200]
    good(server)


def test_tools_without_end(server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for path, tools in (("/api/chat", [tool] * 20000), ("/v1/messages", [
        {"name": f"f{i}", "input_schema": {"type": "object"}} for i in range(20000)])):
        began = time.monotonic()
        status, text = post(server, path, {"model": "m", **BODIES[path], "tools": tools})
        assert status in (200, 400, 503), text[:300]
        assert time.monotonic() - began < 60 * float(os.environ.get("QUERN_TIMEOUT", "1"))
    good(server)


def test_images_of_many_mebibytes(server):
    image = "A" * (12 * MIB)
    source = {"type": "base64", "media_type": "image/png", "data": image}
    for path, body in (("/api/chat", {"messages": [{**TURNS[0], "images": [image, image]}]}),
                       ("/api/generate", {"images": [image]}),
                       ("/v1/messages", {"messages": [{"role": "user", "content": [{
                           "type": "image", "source": source}]}]})):
        status, text = post(server, path, {"model": "m", **BODIES[path], **body})
        assert status == 400 and "image" in text and len(text) < 1024, text[:300]
    assert peak_mib(server) < 900
    good(server)


def test_how_long_a_model_stays(server):
    for value in (-1, 0, 1e308, -1e308, "99999999999h", "-1", "", "5", "NaN", "1e400s", "1h1h", {},
                  [], True, "5m", "\u0000", "9" * 5000, 2 ** 70):
        status, text = post(server, "/api/chat", {
            "model": "m", **BODIES["/api/chat"], "keep_alive": value})
        assert status in (200, 400) and len(text) < 4096, (value, status, text[:200])
    good(server)


@pytest.mark.parametrize("path", ROUTES)
def test_names_of_models_lead_nowhere(server, path):
    for name in ("../../etc/passwd", "/etc/passwd", "m\u0000", "\u001b[2Jm", "m\r\nx: y",
                 "%2e%2e/m", "hf.co/../../x", "m" * 100000, "\u202em", "-m", "a/b/c/d:e", " "):
        status, text = post(server, path, {**BODIES[path], "model": name})
        assert status in (400, 404), (name[:40], status, text[:200])
        assert "\u001b" not in text and "root:" not in text and str(server.state) not in text
    assert "\u001b" not in server.log_text() and "\nx: y" not in server.log_text()
    for route in ("/api/show", "/api/delete", "/api/pull", "/api/copy", "/api/create"):
        status, text = post(server, route, {"model": "../../etc/passwd", "name": "/etc/passwd"})
        assert status >= 400 and "root:" not in text, (route, status, text)
    good(server)


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/v1/messages"])
def test_streams_that_nobody_reads_leave_nothing(server, path):
    body = json.dumps({"model": "m", **BODIES[path], "stream": True}).encode()
    for _ in range(40):
        link = http.client.HTTPConnection("127.0.0.1", server.port)
        link.request("POST", path, body, {"Content-Type": "application/json"})
        link.sock.close()
    in_flight = lambda: re.search(r"^quern_requests_inflight (\d+)",
                                  server.call("GET", "/metrics")[1].decode(), re.M)
    support.until(lambda: in_flight()[1] == "0")
    good(server)


def test_an_id_deletes_nothing_else(server):
    batch = server.wait(server.create(support.jsonl([support.request("a", "x", model="m")]))["id"])
    for name in ("..", "%2e%2e", "..%2f..%2fmeta.db", batch["id"] + "%00", batch["id"] + "/..",
                 batch["id"].upper(), "*", "%25", batch["id"][:-1], "x" * 5000, batch["id"] + "?a"):
        if name.startswith(batch["id"]) and "?" in name:
            continue
        status, data = server.call("DELETE", f"/v1/batches/{name}")
        assert status in (400, 404, 405, 414), (name[:60], status, data)
    assert server.batch(batch["id"])["status"] == "completed"
    assert (server.state / "meta.db").exists()
    assert server.call("DELETE", f"/v1/batches/{batch['id']}")[0] == 200
    assert server.call("DELETE", f"/v1/batches/{batch['id']}")[0] == 404


def test_parameters_of_the_audit_trail(server):
    for query in ("limit=-1", "limit=0", "limit=99999999999999999999", "limit=x", "after=../../x",
                  "after=%00", "after=" + "9" * 4000, "limit=1&limit=2", "unknown=%1b[2J"):
        status, data = server.call("GET", f"/v1/audit?{query}")
        assert status in (200, 400) and len(data) < 1 << 20, (query[:40], status, data[:200])
        assert b"\x1b" not in data
    good(server)

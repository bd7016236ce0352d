# SPDX-License-Identifier: Apache-2.0
"""Web pages of other sites, which make the browser of a visitor send requests here: cross-site
requests with a browser's headers, DNS rebinding by the Host header, bodies that a page may send
anywhere, and CORS for pages that are allowed. tests/peers/test_browser.py shows the same in a real
browser."""
import http.client, json

import pytest

import support

ECHO = ("--model", "smollm2=echo")
LINE = support.jsonl([support.request("a", "hello")])
MULTIPART = (
    b"--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--B\r\nContent-Disposition: form-data; name=\"file\"; "
    b"filename=\"x.jsonl\"\r\n\r\n" + LINE + b"\r\n--B--\r\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(
            tmp_path_factory.mktemp("pages") / "state", *ECHO, "--allowed-origin",
            "https://app.example", "--allowed-host", "gpu-box") as server:
        yield server


def ask(server, method, path, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"Host": f"localhost:{server.port}", **(headers or {})}
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), text


def code(text):
    return json.loads(text)["error"]["code"]


FOREIGN = [{"Origin": "https://evil.example"}, {"Origin": "null"}, {
    "Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "cross-site"}, {
        "Sec-Fetch-Site": "same-site"}, {"Origin": "http://app.example"}]


@pytest.mark.parametrize("page", FOREIGN, ids=str)
def test_a_foreign_page_gets_and_changes_nothing(server, page):
    file_id = server.upload(LINE)["id"]
    asked = [("GET", "/v1/files", {}, None), ("GET", f"/v1/files/{file_id}/content", {}, None),
             ("DELETE", f"/v1/files/{file_id}", {}, None),
             ("POST", "/v1/files", {"Content-Type": "multipart/form-data; boundary=B"}, MULTIPART),
             ("GET", "/v1/models", {}, None), ("GET", "/v1/batches", {}, None),
             ("GET", "/metrics", {}, None), ("POST", "/v1/batches/batch_x/cancel", {}, None),
             ("POST", "/v1/batches", {"Content-Type": "application/json"}, b"{}"),
             ("POST", "/v1/chat/completions", {"Content-Type": "text/plain"}, b"{}")]
    before = ask(server, "GET", "/v1/files")[2]
    for method, path, headers, body in asked:
        status, answered, text = ask(server, method, path, {**headers, **page}, body)
        assert status == 403 and code(text) == "origin_not_allowed", (method, path)
        assert not any(name.startswith("access-control") for name in answered)
    assert ask(server, "GET", "/v1/files")[2] == before
    status, answered, _ = ask(server, "OPTIONS", "/v1/files",
                              {**page, "Access-Control-Request-Method": "DELETE"})
    assert not any(name.startswith("access-control") for name in answered)
    assert ask(server, "GET", "/health", page)[0] == 200, "an open route has nothing to hide"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "localhost.evil.example", "192.168.1.5", "[::2]:80"])
def test_a_name_that_was_made_to_mean_this_machine_gets_nothing(server, host):
    for headers in ({}, {"Origin": f"http://{host}"}, {"Sec-Fetch-Site": "same-origin"}):
        status, _, text = ask(server, "GET", "/v1/files", {"Host": host, **headers})
        assert status == 421 and code(
            text) == "host_not_allowed" and "--allowed-host" in json.loads(text)["error"]["message"]


@pytest.mark.parametrize("host",
                         ["localhost", "127.0.0.1", "[::1]:8080", "gpu-box:8080", "api.localhost"])
def test_the_servers_own_names_pass(server, host):
    assert ask(server, "GET", "/v1/files", {"Host": host})[0] == 200
    assert ask(
        server, "GET", "/v1/files",
        {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"})[0] == 200


@pytest.mark.parametrize("kind", [
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=B", None,
    "application/jsonx"])
@pytest.mark.parametrize(
    "path", ["/v1/batches", "/v1/chat/completions", "/v1/uploads", "/v1/batches/preflight"])
def test_json_is_sent_as_json(server, path, kind):
    status, _, text = ask(server, "POST", path, {"Content-Type": kind} if kind else {},
                          b'{"model":"smollm2"}')
    assert status == 415 and code(
        text) == "unsupported_media_type" and "application/json" in json.loads(
            text)["error"]["message"]


def test_json_with_a_charset_and_no_body_at_all_pass(server):
    body = json.dumps({"model": "smollm2", "messages": [{"role": "user", "content": "x"}]}).encode()
    assert ask(server, "POST", "/v1/chat/completions",
               {"Content-Type": "Application/JSON; charset=utf-8"}, body)[0] == 200
    assert ask(server, "POST", "/v1/batches/batch_x/cancel", {}, b"")[0] == 404


def test_an_allowed_page_may_use_and_read_everything(server):
    page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    status, headers, _ = ask(
        server, "OPTIONS", "/v1/files", {
            **page, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"})
    assert status == 204 and headers["access-control-allow-origin"] == page[
        "Origin"] and "origin" in headers["vary"].lower()
    assert headers[
        "access-control-allow-headers"] == "authorization,content-type" and "DELETE" in headers[
            "access-control-allow-methods"]
    status, headers, _ = ask(server, "GET", "/v1/files", page)
    assert status == 200 and headers["access-control-allow-origin"] == page["Origin"]
    status, headers, _ = ask(server, "GET", "/v1/files/file-nothere", page)
    assert status == 404 and headers["access-control-allow-origin"] == page[
        "Origin"], "a page may read its errors"
    body = json.dumps({
        "model": "smollm2", "stream": True, "messages": [{"role": "user",
                                                          "content": "x"}]}).encode()
    status, headers, text = ask(server, "POST", "/v1/chat/completions",
                                {**page, "Content-Type": "application/json"}, body)
    assert status == 200 and headers["access-control-allow-origin"] == page[
        "Origin"] and text.endswith(b"[DONE]\n\n")


def test_with_keys_any_name_will_do_for_a_browser_has_no_key(tmp_path):
    state = tmp_path / "state"
    key = support.quern("key", "create", "--state-dir", state, "--name", "k").stdout.strip()
    with support.serving(state, *ECHO) as server:
        bearer = {"Authorization": f"Bearer {key}"}
        assert ask(server, "GET", "/v1/files", {**bearer, "Host": "quern.example"})[0] == 200
        assert ask(server, "GET", "/v1/files",
                   {**bearer, "Host": "quern.example", "Origin": "https://quern.example"})[0] == 200
        assert ask(server, "GET", "/v1/files",
                   {**bearer, "Origin": "https://evil.example"})[0] == 403


def test_two_origins_in_one_request_are_refused(server):
    status, text = server.call("GET",
                               "/v1/files",
                               headers={
                                   "Origin": "https://app.example",
                                   "origin": "https://evil.example"})[:2]
    assert status == 400


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/path"])
def test_an_allowed_origin_that_is_none_is_refused_at_the_start(tmp_path, origin):
    done = support.quern("serve",
                         "--port",
                         "0",
                         "--state-dir",
                         tmp_path / "state",
                         *ECHO,
                         "--allowed-origin",
                         origin,
                         timeout=60)
    assert done.returncode == 3 and "--allowed-origin" in done.stderr and origin in done.stderr

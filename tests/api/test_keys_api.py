# SPDX-License-Identifier: Apache-2.0
"""GET and POST /v1/keys, DELETE /v1/keys/{id}: what `quern key` does, for admins, over HTTP."""
import contextlib, http.client, json, re, socket

import pytest

import support
from support import make_key
from test_keys import ECHO, As

ALL = ["admin", "files", "batches", "infer", "metrics"]


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def admin(state):
    key = make_key(state, "--scopes", "admin")
    with support.serving(state, *ECHO) as server:
        yield As(server, key)


def refusal(caller, method, path, body=None, headers=None):
    status, text = caller.call(method, path, body, headers=headers)
    return status, json.loads(text)["error"]


def test_a_key_is_made_shown_once_used_and_revoked(admin, state):
    made = admin.json(
        "POST", "/v1/keys", {
            "name": "Ana", "owner": "team-a", "scopes": ["batches", "files"], "expires": "90d",
            "requests_per_minute": 600, "batches_max": 2})
    key = made.pop("key")
    assert re.fullmatch(r"sk-[0-9a-z]{8}_[A-Za-z0-9_-]{43}", key) and key[3:11] == made["id"]
    assert (made["object"], made["name"], made["owner"], made["state"]) == ("api_key", "Ana",
                                                                            "team-a", "good")
    assert made["scopes"] == ["files", "batches"
                              ] and made["expires_at"] - made["created_at"] == 90 * 86400
    assert made["limits"] == {
        "requests_per_minute": 600, "queued_tokens": None, "batches": 2, "stored_bytes": None}
    ana = As(admin.server, key)
    assert ana.status("GET", "/v1/batches") == 200 and ana.status(
        "GET", "/v1/machine") == 403, "it counts at once"
    listed = {row["id"]: row for row in admin.json("GET", "/v1/keys")["data"]}
    assert key[12:] not in json.dumps(listed) and len(listed) == 2
    assert 590 <= listed[made["id"]]["use"]["requests_left"] <= 600 and listed[
        made["id"]]["use"]["batches"] == 0
    told = support.quern("key", "list", "--state-dir", state).stdout
    assert re.search(rf"{made['id']}  good      team-a .* files,batches  Ana\n", told), told
    gone = admin.json("DELETE", f"/v1/keys/{made['id']}")
    assert gone["state"] == "revoked" and gone["revoked_at"]
    assert ana.status("GET", "/v1/batches") == 401, "it ends at once"
    assert admin.json(
        "DELETE",
        f"/v1/keys/{made['id']}")["revoked_at"] == gone["revoked_at"], "twice changes nothing"


def test_both_ways_refuse_the_same(admin, state):
    status, error = refusal(admin, "POST", "/v1/keys", {"owner": "a"})
    assert (status, error["param"]) == (400, "name")
    for body, param in (({"owner": "a b"}, "owner"), ({"scopes": ["all"]}, "scopes"), ({
            "expires": "soon"}, "expires"), ({"name": "a\u001b[2J"}, "name"), ({
                "requests_per_minute": -1}, "requests_per_minute"), ({"scopes": []}, "scopes")):
        status, error = refusal(admin, "POST", "/v1/keys", {"name": "x"} | body)
        assert (status, error["param"]) == (400, param), error
        assert f"'{param}'" in error["message"]
    for option, value in (("--owner", "a b"), ("--scopes", "all"), ("--expires", "soon"),
                          ("--name", "a\033[2J")):
        done = support.quern("key", "create", "--state-dir", state, "--name", "x", option, value)
        assert done.returncode == 2 and f"{option}: " in done.stderr, done.stderr
    assert len(admin.json("GET", "/v1/keys")["data"]) == 1, "none was made"
    assert refusal(admin, "DELETE", "/v1/keys/no-such")[0] == 404
    for _ in range(2):
        admin.json("POST", "/v1/keys", {"name": "twin"})
    assert refusal(admin, "DELETE", "/v1/keys/twin")[0] == 409, "two keys have the name"


def test_what_a_key_is_asked_for_is_asked_exactly(admin):
    """A limit with a slip in its name was no limit, and one scope with a comma was two."""
    for body in ({"stored_byte_max": 1}, {"Scopes": ["files"]}, {"": 1}, {"expires_at": 1}):
        status, error = refusal(admin, "POST", "/v1/keys", {"name": "x"} | body)
        assert (status, error["code"]) == (
            400, "unknown_parameter") and f"'{next(iter(body))}'" in error["message"]
    for scopes in (["files,admin"], ["files", ""], ["files,"], [" files"], [",admin"], ["admin\t"]):
        status, error = refusal(admin, "POST", "/v1/keys", {"name": "x", "scopes": scopes})
        assert (status, error["param"]) == (400, "scopes"), scopes
    assert len(admin.json("GET", "/v1/keys")["data"]) == 1


def test_open_batches_have_a_limit_that_a_key_may_lift(admin, state):
    made = [
        admin.json("POST", "/v1/keys", {"name": "x", "owner": f"o{i}"} | body)
        for i, body in enumerate(({}, {"batches_max": None}, {"batches_max": 0},
                                  {"batches_max": 7}))]
    assert [row["limits"]["batches"] for row in made] == [1000, 1000, None, 7]
    assert support.quern("key", "create", "--state-dir", state, "--name", "y").returncode == 0
    assert support.quern("key", "create", "--state-dir", state, "--name", "z", "--batches-max",
                         "0").returncode == 0
    listed = {
        row["name"]: row["limits"]["batches"]
        for row in admin.json("GET", "/v1/keys")["data"]}
    assert listed["y"] == 1000 and listed["z"] is None


def follow(stack, server, key, batch):
    """An open stream of a batch's results, with its first line read."""
    connection = stack.enter_context(
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)))
    connection.request("GET",
                       f"/v1/batches/{batch}/results?follow=true",
                       headers={"Authorization": f"Bearer {key}"} if key else {})
    answer = connection.getresponse()
    assert answer.status == 200
    got = b""
    while b'"done"' not in got:
        got += answer.read1()
    return answer


def ends_broken(answer):
    """Whether the rest of a stream ends without its last chunk, which would say that the batch is
    complete."""
    try:
        while answer.read1():
            pass
    except (http.client.HTTPException, OSError):
        return True
    return answer.fp is not None


def test_a_stream_of_results_ends_with_its_key(tmp_path, state):
    clock = support.Clock(tmp_path)
    key = make_key(state, "--scopes", "admin,files,batches")
    with support.serving(state, *ECHO,
                         environment=clock.environment) as server, contextlib.ExitStack() as stack:
        owner = As(server, key)
        batch = owner.create(
            support.jsonl([
                support.request("done", "x"),
                support.request("held", "x", echo={"delay_ms": 3600000})]))["id"]
        revoked = owner.json("POST", "/v1/keys", {"name": "revoked"})
        brief = owner.json("POST", "/v1/keys", {"name": "brief", "expires": "30m"})
        streams = [follow(stack, server, made["key"], batch) for made in (revoked, brief)]
        kept = follow(stack, server, key, batch)
        assert owner.status("DELETE", f"/v1/keys/{revoked['id']}") == 200
        assert ends_broken(streams[0])
        clock.move(1900)
        assert ends_broken(streams[1])
        assert owner.status("POST", f"/v1/batches/{batch}/cancel", {}) == 200
        assert b'"held"' in kept.read(), "the owner's own stream goes on to the end of the batch"
        assert server.log_text().count("reason=key") == 2


def test_a_stream_without_a_key_ends_with_the_first_key(state):
    with support.serving(state, *ECHO) as server, contextlib.ExitStack() as stack:
        batch = server.create(
            support.jsonl([
                support.request("done", "x"),
                support.request("held", "x", echo={"delay_ms": 3600000})]))["id"]
        stream = follow(stack, server, None, batch)
        server.json("POST", "/v1/keys", {"name": "first", "scopes": ALL})
        assert ends_broken(stream)


def test_every_answer_is_not_kept_and_is_what_it_says(admin):
    """Also those that come before a route is known, and those of the gate."""
    port = admin.server.port
    for start in (
            "GET /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            "GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "GET / HTTP/3.7\r\n\r\n",
            "nonsense\r\n\r\n",
            "POST /v1/batches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n",
            f"GET /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n{list(admin.headers)[0]}: {list(admin.headers.values())[0]}\r\n\r\n"
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(start.encode())
            head = b""
            while b"\r\n\r\n" not in head:
                got = connection.recv(65536)
                assert got, (start, head)
                head += got
        lines = head.split(b"\r\n\r\n")[0].decode().lower().split("\r\n")
        assert lines.count("x-content-type-options: nosniff") == 1 and lines.count(
            "cache-control: no-store") == 1, (start, head)


def test_a_disk_error_is_the_servers_and_shows_no_path(admin, state):
    """A folder that is gone was answered as 404, with the path that could not be opened."""
    batch = admin.wait(admin.create(support.jsonl([support.request("a", "x")]))["id"])
    upload = admin.json(
        "POST", "/v1/uploads",
        {"bytes": 3, "filename": "f", "mime_type": "text/plain", "purpose": "user_data"})["id"]
    for folder in ("tmp", "files"):
        (state / folder).rename(state / f"{folder}.away")
    form = b'--x\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\nabc\r\n--x--\r\n'
    multipart = "multipart/form-data; boundary=x"
    answers = [
        admin.call("POST", "/v1/files", form % b"file", multipart),
        admin.call("POST", f"/v1/uploads/{upload}/parts", form % b"data", multipart),
        admin.call("GET", f"/v1/batches/{batch['id']}/judgements/export"),
        admin.call("GET", f"/v1/files/{batch['output_file_id']}/content")]
    for status, body in answers:
        assert status == 500 and str(
            state).encode() not in body and b"its log has the reason" in body, body
    assert str(state) in admin.server.log_text()
    for folder in ("tmp", "files"):
        (state / f"{folder}.away").rename(state / folder)
    assert admin.call("POST", f"/v1/uploads/{upload}/parts", form % b"data", multipart)[0] == 200


def test_use_is_that_of_the_owner(admin):
    made = admin.json(
        "POST", "/v1/keys",
        {"name": "Ana", "owner": "ana", "queued_tokens_max": 1000, "stored_bytes_max": 100000})
    ana = As(admin.server, made["key"])
    content = support.jsonl([support.request("a", "hello", echo={"hang": True})])
    batch = ana.create(content)["id"]
    use = next(
        row for row in admin.json("GET", "/v1/keys")["data"] if row["id"] == made["id"])["use"]
    assert use == {
        "requests_left": None, "queued_tokens": len(content) // 4, "batches": 1,
        "stored_bytes": len(content)}
    ana.json("POST", f"/v1/batches/{batch}/cancel", {})
    ana.wait(batch)
    use = next(
        row for row in admin.json("GET", "/v1/keys")["data"] if row["id"] == made["id"])["use"]
    assert use["queued_tokens"] == use["batches"] == 0


def test_only_admins_see_and_change_keys(tmp_path, state):
    keys = [make_key(state, "--scopes", "files,batches,infer,metrics"), "fixed-77"]
    fixed = tmp_path / "fixed"
    fixed.write_text("fixed-77\n")
    fixed.chmod(0o600)
    with support.serving(state, *ECHO, "--api-key-file", str(fixed)) as server:
        for key in keys:
            for method, path in (("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE",
                                                                             "/v1/keys/test")):
                status, error = refusal(
                    As(server, key), method, path,
                    {"name": "mine", "scopes": ALL} if method == "POST" else None)
                assert (status, error["code"]) == (403, "missing_scope"), (key, method)
        assert As(server, keys[0]).status("GET", "/v1/files") == 200, "nothing was revoked"


def test_the_first_key_is_made_on_the_machine_only(state):
    with support.serving(state, *ECHO) as server:
        assert server.json("GET", "/v1/keys") == {"object": "list", "asks": False, "data": []}
        for header in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
                       "X-Real-IP", "Via", "CF-Connecting-IP", "CF-Ray", "True-Client-IP",
                       "X-Client-IP", "X-Cluster-Client-IP", "Fastly-Client-IP",
                       "X-Envoy-External-Address", "CDN-Loop", "X-Original-Forwarded-For",
                       "Forwarded-For", "Tailscale-User-Login", "X-Amzn-Trace-Id"):
            for value in ("203.0.113.9", "127.0.0.1", ""):
                status, error = refusal(server,
                                        "POST",
                                        "/v1/keys", {"name": "x"},
                                        headers={header: value})
                assert (status, error["code"]) == (
                    403, "first_key") and "quern key create" in error["message"], header
        status, _ = server.call("POST",
                                "/v1/keys", {"name": "x"},
                                headers={"Origin": "https://elsewhere.example"})
        assert status == 403, "a page of another site"
        made = server.json("POST", "/v1/keys", {"name": "first", "scopes": ALL})
        assert server.call("GET", "/v1/files")[0] == 401, "from now on it asks"
        admin = As(server, made["key"])
        assert admin.json("GET", "/v1/keys")["asks"] is True
        assert admin.status("POST",
                            "/v1/keys", {"name": "x"},
                            headers={
                                "X-Forwarded-For": "203.0.113.9"}) == 200, "a key is proof enough"


def test_the_keys_text_is_in_no_log_and_no_file(admin, state):
    secret = admin.json("POST", "/v1/keys", {"name": "canary"})["key"][12:]
    assert As(admin.server, "x").status("GET", "/v1/files") == 401
    assert secret not in admin.server.log_text()
    admin.server.kill()
    for path in state.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path

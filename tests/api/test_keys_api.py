# SPDX-License-Identifier: Apache-2.0
"""GET and POST /v1/keys, DELETE /v1/keys/{id}: what `quern key` does, for admins, over HTTP."""
import json, re

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
    made = admin.json("POST", "/v1/keys", {"name": "Ana", "owner": "team-a", "scopes": ["batches", "files"], "expires": "90d",
                                           "requests_per_minute": 600, "batches_max": 2})
    key = made.pop("key")
    assert re.fullmatch(r"sk-[0-9a-z]{8}_[A-Za-z0-9_-]{43}", key) and key[3:11] == made["id"]
    assert (made["object"], made["name"], made["owner"], made["state"]) == ("api_key", "Ana", "team-a", "good")
    assert made["scopes"] == ["files", "batches"] and made["expires_at"] - made["created_at"] == 90 * 86400
    assert made["limits"] == {"requests_per_minute": 600, "queued_tokens": None, "batches": 2, "stored_bytes": None}
    ana = As(admin.server, key)
    assert ana.status("GET", "/v1/batches") == 200 and ana.status("GET", "/v1/machine") == 403, "it counts at once"
    listed = {row["id"]: row for row in admin.json("GET", "/v1/keys")["data"]}
    assert key[12:] not in json.dumps(listed) and len(listed) == 2
    assert 590 <= listed[made["id"]]["use"]["requests_left"] <= 600 and listed[made["id"]]["use"]["batches"] == 0
    told = support.quern("key", "list", "--state-dir", state).stdout
    assert re.search(rf"{made['id']}  good      team-a .* files,batches  Ana\n", told), told
    gone = admin.json("DELETE", f"/v1/keys/{made['id']}")
    assert gone["state"] == "revoked" and gone["revoked_at"]
    assert ana.status("GET", "/v1/batches") == 401, "it ends at once"
    assert admin.json("DELETE", f"/v1/keys/{made['id']}")["revoked_at"] == gone["revoked_at"], "twice changes nothing"


def test_both_ways_refuse_the_same(admin, state):
    status, error = refusal(admin, "POST", "/v1/keys", {"owner": "a"})
    assert (status, error["param"]) == (400, "name")
    for body, param in (({"owner": "a b"}, "owner"), ({"scopes": ["all"]}, "scopes"), ({"expires": "soon"}, "expires"),
                        ({"name": "a\u001b[2J"}, "name"), ({"requests_per_minute": -1}, "requests_per_minute"), ({"scopes": []}, "scopes")):
        status, error = refusal(admin, "POST", "/v1/keys", {"name": "x"} | body)
        assert (status, error["param"]) == (400, param), error
        assert f"'{param}'" in error["message"]
    for option, value in (("--owner", "a b"), ("--scopes", "all"), ("--expires", "soon"), ("--name", "a\033[2J")):
        done = support.quern("key", "create", "--state-dir", state, "--name", "x", option, value)
        assert done.returncode == 2 and f"{option}: " in done.stderr, done.stderr
    assert len(admin.json("GET", "/v1/keys")["data"]) == 1, "none was made"
    assert refusal(admin, "DELETE", "/v1/keys/no-such")[0] == 404
    for _ in range(2):
        admin.json("POST", "/v1/keys", {"name": "twin"})
    assert refusal(admin, "DELETE", "/v1/keys/twin")[0] == 409, "two keys have the name"


def test_use_is_that_of_the_owner(admin):
    made = admin.json("POST", "/v1/keys", {"name": "Ana", "owner": "ana", "queued_tokens_max": 1000, "stored_bytes_max": 100000})
    ana = As(admin.server, made["key"])
    content = support.jsonl([support.request("a", "hello", echo={"hang": True})])
    batch = ana.create(content)["id"]
    use = next(row for row in admin.json("GET", "/v1/keys")["data"] if row["id"] == made["id"])["use"]
    assert use == {"requests_left": None, "queued_tokens": len(content) // 4, "batches": 1, "stored_bytes": len(content)}
    ana.json("POST", f"/v1/batches/{batch}/cancel", {})
    ana.wait(batch)
    use = next(row for row in admin.json("GET", "/v1/keys")["data"] if row["id"] == made["id"])["use"]
    assert use["queued_tokens"] == use["batches"] == 0


def test_only_admins_see_and_change_keys(tmp_path, state):
    keys = [make_key(state, "--scopes", "files,batches,infer,metrics"), "fixed-77"]
    fixed = tmp_path / "fixed"
    fixed.write_text("fixed-77\n")
    fixed.chmod(0o600)
    with support.serving(state, *ECHO, "--api-key-file", str(fixed)) as server:
        for key in keys:
            for method, path in (("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE", "/v1/keys/test")):
                status, error = refusal(As(server, key), method, path, {"name": "mine", "scopes": ALL} if method == "POST" else None)
                assert (status, error["code"]) == (403, "missing_scope"), (key, method)
        assert As(server, keys[0]).status("GET", "/v1/files") == 200, "nothing was revoked"


def test_the_first_key_is_made_on_the_machine_only(state):
    with support.serving(state, *ECHO) as server:
        assert server.json("GET", "/v1/keys") == {"object": "list", "asks": False, "data": []}
        for header in ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"):
            status, error = refusal(server, "POST", "/v1/keys", {"name": "x"}, headers={header: "203.0.113.9"})
            assert (status, error["code"]) == (403, "first_key") and "quern key create" in error["message"]
        status, _ = server.call("POST", "/v1/keys", {"name": "x"}, headers={"Origin": "https://elsewhere.example"})
        assert status == 403, "a page of another site"
        made = server.json("POST", "/v1/keys", {"name": "first", "scopes": ALL})
        assert server.call("GET", "/v1/files")[0] == 401, "from now on it asks"
        admin = As(server, made["key"])
        assert admin.json("GET", "/v1/keys")["asks"] is True
        assert admin.status("POST", "/v1/keys", {"name": "x"}, headers={"X-Forwarded-For": "203.0.113.9"}) == 200, "a key is proof enough"


def test_the_keys_text_is_in_no_log_and_no_file(admin, state):
    secret = admin.json("POST", "/v1/keys", {"name": "canary"})["key"][12:]
    assert As(admin.server, "x").status("GET", "/v1/files") == 401
    assert secret not in admin.server.log_text()
    admin.server.kill()
    for path in state.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path

# SPDX-License-Identifier: Apache-2.0
"""API keys: cases 2 to 4 of the contract, scopes, quotas, owners that do not see each other (I13),
and a canary that looks for a key wherever it must not be (I15)."""
import contextlib, http.client, json, os, pathlib, re, time

import openai
import pytest

import support
from support import make_key

ECHO = ("--model", "smollm2=echo")
LINE = support.jsonl([support.request("a", "hello")])
SOURCE = support.ROOT / "src/service/api/api.c"


class As:
    """A server seen through one key; `support.Server`'s helpers with its header."""

    def __init__(self, server, key):
        self.server, self.headers = server, {"Authorization": f"Bearer {key}"} if key else {}

    def call(self, method, path, body=None, kind="application/json", headers=None):
        return self.server.call(method, path, body, kind, {**self.headers, **(headers or {})})

    json, upload, create, batch, results = (getattr(
        support.Server, name) for name in ("json", "upload", "create", "batch", "results"))

    def wait(self, batch_id):
        support.until(lambda: self.batch(batch_id)["status"] in support.TERMINAL)
        return self.batch(batch_id)

    def status(self, *arguments, **keywords):
        return self.call(*arguments, **keywords)[0]


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def routes():
    found = re.findall(r'\{"([A-Z]+)",\s*"([^"]+)",\s*KEY_SCOPE_(\w+)', SOURCE.read_text())
    assert len(found) > 15
    return found


def filled(pattern):
    return re.sub(r"\{[^}]*\}", "x", pattern)


def test_2_3_4_no_key_a_wrong_key_and_no_keys_at_all(tmp_path, state):
    with support.serving(tmp_path / "open", *ECHO) as server:
        assert server.call("GET", "/v1/files")[0] == 200
    key = make_key(state)
    with support.serving(state, *ECHO) as server:
        status, body = server.call("GET", "/v1/files")
        assert status == 401 and set(json.loads(body)["error"]) == {
            "message", "type", "param", "code"}
        answers = {
            As(server, wrong).call("GET", "/v1/files")
            for wrong in ("wrong", key[:-1], key[:-1] + "-", key + "x", key[:12] + "A" * 43,
                          "sk-00000000_" + key[12:], "sk-" + "a" * 52, "é")}
        assert len(answers) == 1, "every wrong key has the same answer"
        status, body = answers.pop()
        assert status == 401 and json.loads(body)["error"]["code"] == "invalid_api_key"
        client = openai.OpenAI(base_url=server.url, api_key=key, max_retries=0)
        assert client.models.list().data[0].id == "smollm2"
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=server.url, api_key="sk-no", max_retries=0).models.list()


def test_every_route_wants_a_key_but_the_open_ones(state):
    make_key(state)
    with support.serving(state, *ECHO) as server:
        answers = {(method, pattern): server.call(method, filled(pattern),
                                                  b"{}" if method != "GET" else None)[0]
                   for method, pattern, _ in routes()}
        open_ones = {pattern for (_, pattern), status in answers.items() if status != 401}
        assert open_ones <= {
            "/", "/pages/{name}", "/health", "/ready", "/version", "/ping",
            "/openapi.json", "/api/version"}, open_ones
        assert {"/health", "/ready", "/version"} <= open_ones


def test_a_quota_of_stored_bytes_counts_files_uploads_and_results(tmp_path, state):
    keys = {
        owner: make_key(state, "--owner", owner,
                        *(["--stored-bytes-max", "10000"] if owner == "a" else []))
        for owner in ("a", "b")}
    clock = support.Clock(tmp_path)
    with support.serving(state, *ECHO, environment=clock.environment) as server:
        a, b = As(server, keys["a"]), As(server, keys["b"])

        def put(size):
            form = (
                b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--x\r\nContent-Disposition: form-data; name="file"; '
                b'filename="f"\r\n\r\n' + b"y" * size + b"\r\n--x--\r\n")
            status, body = a.call("POST", "/v1/files", form, "multipart/form-data; boundary=x")
            return status, json.loads(body)

        def announce(size):
            status, body = a.call(
                "POST", "/v1/uploads",
                {"bytes": size, "filename": "f", "mime_type": "text/plain", "purpose": "user_data"})
            return status, json.loads(body)

        b.upload(b"y" * 20000, "user_data")
        first = put(6000)[1]
        status, answer = put(4001)
        assert (status, answer["error"]["code"]) == (413, "storage_quota_exceeded"), answer
        assert put(300000)[0] == 413, "before all of it is read, or after"
        status, upload = announce(3000)
        assert status == 200 and announce(1001)[0] == 413 and put(1001)[0] == 413
        assert put(1000)[0] == 200 and put(1)[0] == 413
        assert a.call("POST", f"/v1/uploads/{upload['id']}/cancel", {})[0] == 200
        assert put(1)[0] == 200, "what was announced and given up does not count"
        a.call("DELETE", f"/v1/files/{first['id']}")
        batch = a.wait(
            a.create(support.jsonl([support.request(str(i), "hello") for i in range(3)]))["id"])
        assert batch["status"] == "completed"
        left = 10000 - sum(file["bytes"] for file in a.json("GET", "/v1/files?limit=10000")["data"])
        assert left > 0 and put(left + 1)[0] == 413 and put(left)[0] == 200
        status, body = a.call(
            "POST", "/v1/batches", {
                "input_file_id": batch["input_file_id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h"})
        assert status == 429 and b"Storage quota exceeded" in body
        listed = a.json("GET", "/v1/files?limit=10000")["data"]
        assert sum(file["bytes"] for file in listed) == 10000
        assert any(file["purpose"] == "batch_output" for file in listed), "results count"


def test_an_owner_with_many_followers_leaves_places_for_others(state):
    keys = [make_key(state, "--owner", owner) for owner in "abc"]
    with support.serving(
            state, "--upstream",
            "away=http://127.0.0.1:9,models=away") as server, contextlib.ExitStack() as stack:
        owners = [As(server, key) for key in keys]
        batches = [
            owner.create(support.jsonl([support.request("a", "hello", model="away")]))["id"]
            for owner in owners]

        def follow(which):
            """Status of a stream that stays open; no line of the batch ever ends."""
            connection = stack.enter_context(
                contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port,
                                                              timeout=600)))
            connection.request("GET",
                               f"/v1/batches/{batches[which]}/results?after=0&follow=true",
                               headers=owners[which].headers)
            return connection.getresponse().status

        assert [follow(0) for _ in range(66)] == [200] * 64 + [429] * 2
        assert [follow(1) for _ in range(34)] == [200] * 32 + [429] * 2
        assert [follow(2) for _ in range(18)] == [200] * 16 + [429] * 2


def test_the_open_routes_tell_an_unknown_caller_no_more_than_they_must(state):
    key = make_key(state)
    with support.serving(state, *ECHO, "--upstream", "secret=http://127.0.0.1:9", "--upstream",
                         "other=http://127.0.0.1:9,models=m") as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert server.call("GET", "/health", headers=headers) == (200, b'{"status":"ok"}')
            assert server.call("GET", "/ping", headers=headers) == (200, b'{"status":"ok"}')
            status, body = server.call("GET", "/ready", headers=headers)
            assert body == (b'{"ready":true}' if status == 200 else b'{"ready":false}')
            for path in ("/version", "/openapi.json"):
                assert b"secret" not in server.call("GET", path, headers=headers)[1]
        known = As(server, key)
        assert {"status", "models", "upstreams"} == set(known.json("GET", "/health"))
        assert {"ready", "checks", "text", "upstreams"} == set(
            json.loads(known.call("GET", "/ready")[1]))


def test_without_keys_everyone_is_known(tmp_path):
    with support.serving(tmp_path / "open", *ECHO) as server:
        assert {"status", "models"} == set(server.json("GET", "/health"))
        assert {"ready", "checks", "text"} == set(server.json("GET", "/ready"))


def test_an_address_that_guesses_is_slowed_and_holds_up_nobody_with_a_made_key(tmp_path, state):
    clock = support.Clock(tmp_path)
    made, fixed = make_key(state), tmp_path / "fixed"
    fixed.write_text("guess-77\n")
    fixed.chmod(0o600)
    with support.serving(state, *ECHO, "--api-key-file", str(fixed),
                         environment=clock.environment) as server:
        # Real time gives a few guesses back while they are made.
        answers = [As(server, f"guess-{1000 + i}").call("GET", "/v1/files")[0] for i in range(400)]
        assert answers[:60] == [401] * 60 and set(answers) == {401, 429}
        assert server.log_text().count("event=wrong_keys address=127.0.0.1") == 1
        while As(server, "guess-1").status("GET", "/v1/files") == 401:
            pass
        assert [As(server, made).status("GET", "/v1/files") for _ in range(20)] == [200] * 20
        assert server.call("GET", "/v1/files")[0] == 401, "no key is no guess"
        assert server.call("GET", "/health", headers={"Authorization": "Bearer wrong"})[0] == 200
        clock.move(120)
        assert As(server, "guess-77").status("GET", "/v1/files") == 200
        text = As(server, "guess-77").call("GET", "/metrics")[1].decode()
        assert int(re.search(r'quern_auth_failures_total\{reason="guessing"\} (\d+)', text)[1]) > 0


SCOPES = {"files": "FILES", "batches": "BATCHES", "infer": "INFER", "metrics": "METRICS"}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_opens_the_routes_of_its_scope_only(state, scope):
    caller_key = make_key(state, "--scopes", scope)
    with support.serving(state, *ECHO) as server:
        caller = As(server, caller_key)
        for method, pattern, wanted in routes():
            status, body = caller.call(method, filled(pattern), b"{}" if method != "GET" else None)
            # Ollama's routes answer with a sentence, and Anthropic's with a type of error.
            error = json.loads(body)["error"] if status == 403 else {}
            refused = isinstance(error, str) or "missing_scope" == error.get(
                "code") or error.get("type") == "permission_error"
            assert refused == (wanted not in ("OPEN", "ANY", SCOPES[scope])), (method, pattern,
                                                                               status, body)


def test_a_key_made_and_revoked_while_the_server_runs_counts_within_a_second(tmp_path, state):
    clock = support.Clock(tmp_path)
    with support.serving(state, *ECHO, environment=clock.environment) as server:
        assert server.call("GET", "/v1/files")[0] == 200, "no keys, no door"
        key = make_key(state)
        clock.move(1.1)  # the server looks at the file once a second
        assert server.call("GET", "/v1/files")[0] == 401
        assert As(server, key).status("GET", "/v1/files") == 200
        listed = support.quern("key", "list", "--state-dir", state)
        assert key[3:11] in listed.stdout and key[
            12:] not in listed.stdout and "files,batches,infer" in listed.stdout
        assert support.quern("key", "revoke", "--state-dir", state, key[3:11]).returncode == 0
        clock.move(1.1)
        assert As(server, key).status("GET", "/v1/files") == 401
        assert "revoked" in support.quern("key", "list", "--state-dir", state).stdout


def test_two_owners_do_not_see_each_other_and_an_admin_sees_both(state):
    keys = {name: make_key(state, "--owner", name) for name in ("alice", "bob")}
    admin_key, plain_key = make_key(state, "--scopes", "admin"), make_key(state)
    with support.serving(state, *ECHO) as server:
        alice, bob, admin, default = As(server, keys["alice"]), As(server, keys["bob"]), As(
            server, admin_key), As(server, plain_key)
        file = alice.upload(LINE)["id"]
        create = {
            "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = alice.wait(alice.json("POST", "/v1/batches", create)["id"])
        output = batch["output_file_id"]
        assert batch["status"] == "completed" and alice.status("GET",
                                                               f"/v1/files/{output}/content") == 200
        missing = {"files": "file-" + "0" * 22, "batches": "batch_" + "0" * 32}
        for stranger in (bob, default):
            for method, path in [("GET", "/v1/files/%s"), ("GET", "/v1/files/%s/content"),
                                 ("DELETE", "/v1/files/%s"), ("GET", "/v1/batches/%s"),
                                 ("POST", "/v1/batches/%s/cancel")]:
                kind = path.split("/")[2]
                for one in (file, output) if kind == "files" else (batch["id"],):
                    status, body = stranger.call(method, path % one,
                                                 b"" if method == "POST" else None)
                    _, like = stranger.call(method, path % missing[kind],
                                            b"" if method == "POST" else None)
                    assert status == 404 and body.decode().replace(
                        one, "ID") == like.decode().replace(missing[kind], "ID"), (method, path)
            assert stranger.json("GET", "/v1/files")["data"] == [] and stranger.json(
                "GET", "/v1/batches")["data"] == []
            assert stranger.status("GET", f"/v1/files?after={file}") == 400 and stranger.status(
                "GET", f"/v1/batches?after={batch['id']}") == 400
            theirs = stranger.wait(stranger.json("POST", "/v1/batches", create)["id"])
            assert theirs["status"] == "failed" and "Cannot find file" in theirs["errors"]["data"][
                0]["message"]
        assert {f["id"] for f in alice.json("GET", "/v1/files")["data"]} == {file, output}
        assert {f["id"] for f in admin.json("GET", "/v1/files")["data"]} == {file, output}
        assert admin.batch(batch["id"])["id"] == batch["id"] and admin.status(
            "GET", f"/v1/files/{output}/content") == 200
        assert len(admin.json("GET", "/v1/batches")["data"]) == 3
        assert len(bob.json("GET", "/v1/batches")["data"]) == 1
        assert alice.batch(batch["id"])["status"] == "completed" and alice.status(
            "GET", f"/v1/files/{file}") == 200, "nobody changed anything"
        assert server.stop() == 0
    support.fsck(state)


def test_every_route_on_a_batch_file_or_upload_is_closed_to_another_owner(state):
    """Walks the table, so that a new route cannot forget to ask whose the thing is."""
    alice_key, bob_key = make_key(state, "--owner", "alice"), make_key(state, "--owner", "bob")
    with support.serving(state, *ECHO) as server:
        alice, bob = As(server, alice_key), As(server, bob_key)
        batch = alice.wait(alice.create(LINE)["id"])
        message = alice.wait(
            alice.create(LINE.replace(b"/v1/chat/completions", b"/v1/messages"),
                         endpoint="/v1/messages")["id"])
        ids = {
            "batches": batch["id"], "files": batch["output_file_id"],
            "messages/batches": message["id"].replace("batch_", "msgbatch_")}
        status, data = alice.call("POST", "/v1/uploads", {
            "filename": "x.jsonl", "purpose": "batch", "bytes": 10, "mime_type": "application/jsonl"
        })
        if status == 200:
            ids["uploads"] = json.loads(data)["id"]
        walked = 0
        for method, pattern, _ in routes():
            found = re.match(r"/v1/(batches|messages/batches|files|uploads)/\{\w+\}", pattern)
            if not found or found[1] not in ids:
                continue
            path = re.sub(r"\{[^}]*\}", ids[found[1]], pattern.replace("{line}", "1"))
            body, kind = (b"{}", "application/json") if method == "POST" else (None, None)
            if pattern.endswith("/parts"):
                body, kind = b'--b\r\nContent-Disposition: form-data; name="data"; filename="x"\r\n\r\n{}\n\r\n--b--\r\n', "multipart/form-data; boundary=b"
            if pattern.endswith("/complete"):
                body = b'{"part_ids":["part_x"]}'
            status, data = bob.call(method, path, body, kind)
            assert status == 404, (method, pattern, status, data)
            assert method != "GET" or alice.status(
                method, path) != 404, f"{pattern}: the walk did not name the thing"
            walked += 1
        assert walked >= 5
        assert alice.status("GET", f"/v1/files/{batch['output_file_id']}/content") == 200


def test_answers_that_are_used_again_stay_with_their_owner(state):
    keys = {
        name: make_key(state, "--owner", name, "--scopes", "files,batches,metrics")
        for name in ("alice", "bob")}
    lines = support.jsonl([support.request(f"{i}", f"text {i}", temperature=0) for i in range(20)])
    reused = {}
    with support.serving(state, *ECHO) as server:
        for name in ("alice", "bob", "alice"):
            caller = As(server, keys[name])
            batch = caller.wait(caller.create(lines)["id"])
            assert batch["status"] == "completed" and batch["request_counts"]["failed"] == 0
            reused.setdefault(name, []).append(
                batch["usage"]["input_tokens_details"]["deduplicated_tokens"])
    assert reused["bob"] == [0] and reused["alice"][0] == 0 and reused["alice"][
        1] > 0, "a hit would tell that somebody asked before"


def test_an_idempotency_key_is_its_owners(state):
    alice_key, bob_key, default_key = make_key(state, "--owner", "alice"), make_key(
        state, "--owner", "bob"), make_key(state)
    with support.serving(state, *ECHO) as server:
        made = {}
        for name, key in (("alice", alice_key), ("bob", bob_key), ("default", default_key)):
            caller = As(server, key)
            body = {
                "input_file_id": caller.upload(LINE)["id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h"}
            for _ in range(2):
                status, data = caller.call("POST",
                                           "/v1/batches",
                                           body,
                                           headers={"Idempotency-Key": "same"})
                assert status == 200
                made.setdefault(name, set()).add(json.loads(data)["id"])
            status, data = caller.call("POST",
                                       "/v1/batches", {**body, "metadata": {"a": "b"}},
                                       headers={"Idempotency-Key": "same"})
            assert status == 409 and b"onflict" in data
        assert all(len(ids) == 1 for ids in made.values()) and len(set.union(*made.values())) == 3
        caller = As(server, default_key)
        body = {
            "input_file_id": "file-x", "endpoint": "/v1/chat/completions",
            "completion_window": "24h", "idempotency_key": "bob\x1fsame"}
        assert caller.status("POST", "/v1/batches",
                             body) == 400, "no way around into another owner's keys"


def test_a_restart_keeps_owners_and_what_was_there_before_keys_is_the_default_owners(state):
    with support.serving(state, *ECHO) as server:
        old = server.create(LINE)
        server.wait(old["id"])
    alice_key, default_key = make_key(state, "--owner", "alice"), make_key(
        state, "--owner", "default")
    with support.serving(state, *ECHO) as server:
        assert As(server, alice_key).status("GET", f"/v1/batches/{old['id']}") == 404
        assert As(server, default_key).status("GET", f"/v1/batches/{old['id']}") == 200
        mine = As(server, alice_key).create(LINE)["id"]
    with support.serving(state, *ECHO) as server:
        assert As(server, alice_key).wait(mine)["status"] == "completed"
        assert As(server, default_key).status("GET", f"/v1/batches/{mine}") == 404


def test_requests_per_minute_end_in_429_with_the_time_to_wait(state):
    key = make_key(state, "--requests-per-minute", "3")
    with support.serving(state, *ECHO) as server:
        caller = As(server, key)
        assert [caller.status("GET", "/v1/files") for _ in range(3)] == [200] * 3
        with pytest.raises(openai.RateLimitError) as caught:
            openai.OpenAI(base_url=server.url, api_key=key, max_retries=0).files.list()
        assert caught.value.code == "rate_limit_exceeded" and 1 <= int(
            caught.value.response.headers["retry-after"]) <= 21
        assert server.call("GET", "/health")[0] == 200, "the open routes are not counted"


def test_batches_and_queued_tokens_are_bounded_by_owner(state):
    key, other = make_key(state, "--owner", "a", "--batches-max", "1", "--queued-tokens-max",
                          "10000000"), make_key(state, "--owner", "b")
    small = make_key(state, "--owner", "c", "--queued-tokens-max", "10")
    with support.serving(state, *ECHO) as server:
        caller = As(server, key)
        first = caller.create(support.jsonl([support.request("a", "hello",
                                                             echo={"hang": True})]))["id"]
        file = caller.upload(LINE)["id"]
        body = {
            "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        status, data = caller.call("POST", "/v1/batches", body)
        assert status == 429 and json.loads(data)["error"]["code"] == "rate_limit_exceeded"
        assert As(server, other).wait(As(server, other).create(
            LINE)["id"])["status"] == "completed", "another owner's limits are its own"
        caller.json("POST", f"/v1/batches/{first}/cancel", {})
        assert caller.wait(first)["status"] == "cancelled"
        assert caller.wait(caller.json("POST", "/v1/batches", body)["id"])["status"] == "completed"
        refused = As(server, small).create(LINE)
        assert refused["status"] == "failed" and refused["failed_at"] and refused["errors"]["data"][
            0]["code"] == "token_limit_exceeded"
        assert server.stop() == 0
    support.fsck(state)


def test_the_key_file_of_the_operator_still_works_and_must_be_private(tmp_path, state):
    path, clock = tmp_path / "keys", support.Clock(tmp_path)
    path.write_text("# ours\nfirst-key\nsecond-key\n")
    path.chmod(0o600)
    with support.serving(state, *ECHO, "--api-key-file", str(path),
                         environment=clock.environment) as server:
        assert server.call("GET", "/v1/files")[0] == 401
        assert As(server, "second-key").status("GET", "/v1/files") == 200 and As(
            server, "first-key").status("GET", "/metrics") == 200
        made = make_key(state)
        clock.move(1.1)
        assert As(server, made).status("GET", "/v1/files") == 200
    path.chmod(0o644)
    done = support.quern("serve",
                         "--port",
                         "0",
                         "--state-dir",
                         state,
                         *ECHO,
                         "--api-key-file",
                         path,
                         timeout=60)
    assert done.returncode != 0 and "chmod 600" in done.stderr and "first-key" not in done.stderr


@pytest.mark.parametrize("arguments, why",
                         [(["create"], "--name"),
                          (["create", "--name", "x", "--scopes", "root"], "--scopes"),
                          (["create", "--name", "x", "--owner", "a b"], "--owner"),
                          (["revoke", "nobody"], "nobody"),
                          (["create", "--name", "x", "--expires", "soon"], "--expires"),
                          (["revoke"], "id or the name"), ([], "create")])
def test_a_wrong_key_command_says_what_is_wrong(state, arguments, why):
    done = support.quern("key", *arguments, "--state-dir", state)
    assert done.returncode == (4 if "nobody" in arguments else
                               2) and why in done.stderr and done.stdout == ""


def test_a_command_killed_at_any_disk_call_leaves_the_keys_whole(state):
    """Either the old keys or the old and the new one; and a full disk is said, and gives no key."""
    old = make_key(state)
    for call in range(1, 24):
        before = (state / "keys.jsonl").read_text()
        done = support.quern("key",
                             "create",
                             "--state-dir",
                             state,
                             "--name",
                             f"k{call}",
                             env={**os.environ, "QUERN_FAULT": f"any:{call}:KILL"})
        after = (state / "keys.jsonl").read_text()
        assert after == before or (after.startswith(before)
                                   and after.count("\n") == before.count("\n") + 1)
        if done.returncode == 0:
            break
        assert done.stdout == "", "a key is shown when it is durable, not before"
    assert done.returncode == 0 and call > 3, "the plan met every call"
    before = (state / "keys.jsonl").read_text()
    done = support.quern("key",
                         "create",
                         "--state-dir",
                         state,
                         "--name",
                         "full",
                         env={**os.environ, "QUERN_FAULT": "write:1:ENOSPC"})
    assert done.returncode == 6 and done.stdout == "" and (state /
                                                           "keys.jsonl").read_text() == before
    with support.serving(state, *ECHO) as server:
        assert As(server, old).status("GET", "/v1/files") == 200


def test_an_expired_key_opens_nothing(state):
    key = make_key(state, "--expires", "1m")
    path = state / "keys.jsonl"
    row = json.loads(path.read_text())
    assert 0 < row["expires"] - time.time() <= 61
    path.write_text(json.dumps({**row, "expires": int(time.time()) - 1}) + "\n")
    with support.serving(state, *ECHO) as server:
        assert As(server, key).status("GET", "/v1/files") == 401


def test_a_key_is_nowhere_but_with_its_holder(tmp_path, state):
    """The canary: a key is used on good and bad requests, and then looked for."""
    key = make_key(state, "--scopes", "files,batches,infer,metrics")
    fixed = tmp_path / "keys"
    fixed.write_text("canary-of-the-operator\n")
    fixed.chmod(0o600)
    texts = []
    with support.serving(state, *ECHO, "--log-level", "debug", "--api-key-file", str(fixed)) if has_log_level() else \
            support.serving(state, *ECHO, "--api-key-file", str(fixed)) as server:
        for caller in (As(server, key), As(server, "canary-of-the-operator"), As(server, key[:-1])):
            for method, pattern, _ in routes():
                texts.append(
                    caller.call(method, filled(pattern),
                                b'{"model":"smollm2"' if method == "POST" else None)[1])
        assert not any(str(state).encode() in text or b"meta.db" in text
                       for text in texts), "an answer names a path"
        good = As(server, key)
        batch = good.wait(good.create(LINE)["id"])
        texts += [
            json.dumps(batch).encode(),
            good.call("GET", "/metrics")[1],
            server.log_text().encode()]
        for name in ("cmdline", "environ"):
            texts.append(pathlib.Path(f"/proc/{server.process.pid}/{name}").read_bytes())
        limits = pathlib.Path(f"/proc/{server.process.pid}/limits").read_text()
        assert re.search(r"Max core file size\s+0\s+0", limits)
        assert server.stop() == 0
    texts += [
        path.read_bytes() for path in state.rglob("*") if path.is_file() and path.name != "ballast"]
    assert len(texts) > 60
    for secret in (key[12:], "canary-of-the-operator"):
        assert not any(secret.encode() in text for text in texts)
    support.fsck(state)


def has_log_level():
    return "--log-level" in support.quern("serve", "--help").stdout

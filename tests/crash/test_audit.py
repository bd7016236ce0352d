# SPDX-License-Identifier: Apache-2.0
"""The audit trail: who changed what, durable before the change, bounded, and without a secret."""
import json

import life, support


def trail(state, *words):
    done = support.quern("audit", "--state-dir", state, "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def acts(state, *words):
    return [(e["action"], e["subject"], e.get("outcome")) for e in reversed(trail(state, *words))]


def test_each_change_has_an_entry_with_its_actor(tmp_path):
    state = tmp_path / "state"
    key = support.make_key(state, "--name", "root", "--scopes", "admin,files,batches,infer,metrics")
    key_id = key[3:11]
    head = {"Authorization": f"Bearer {key}"}
    with support.serving(state, *life.ECHO) as server:

        def call(method, path, body=None):
            status, data = server.call(method, path, body, headers=head)
            return status, json.loads(data)

        made = call("POST", "/v1/keys", {"name": "second"})[1]
        assert call("DELETE", f"/v1/keys/{made['id']}")[0] == 200
        batch = call("POST", "/v1/batches", {
            "input_file_id": "file-none", "endpoint": "/v1/chat/completions",
            "completion_window": "24h"})[1]
        support.until(lambda: call("GET", f"/v1/batches/{batch['id']}")[1]["status"] == "failed")
        assert call("POST", f"/v1/batches/{batch['id']}/cancel", {})[0] == 409
        assert call("DELETE", f"/v1/batches/{batch['id']}")[0] == 200
        assert call("POST", "/v1/machine/models/none/unload", {})[0] == 404
        page = call("GET", "/v1/audit?limit=2")[1]
        assert len(page["data"]) == 2 and page["has_more"] is True
        older = call("GET", f"/v1/audit?before={page['data'][-1]['seq']}")[1]
        assert older["has_more"] is False
        assert call("GET", f"/v1/audit?actor={key_id}&action=key.create")[1]["data"][0][
            "subject"] == made["id"]
        assert call("GET", "/v1/audit?since=now")[0] == 400
        lines = [line for line in server.log_text().splitlines() if "DELETE" in line]
        assert lines and all(f"key={key_id}" in line for line in lines)
    assert acts(state) == [
        ("key.create", key_id, None), ("key.create", made["id"], None),
        ("key.revoke", made["id"], None), ("batch.cancel", batch["id"], None),
        ("batch.cancel", batch["id"], "failed"), ("batch.delete", batch["id"], None),
        ("model.unload", "none", None), ("model.unload", "none", "failed")]
    entries = trail(state)
    assert [e["seq"] for e in entries] == list(range(len(entries), 0, -1))
    assert {e["actor"] for e in entries[:-1]} == {key_id} and entries[-1]["actor"].startswith("uid")
    assert all(e["peer"] == "127.0.0.1" and e["request_id"] for e in entries[:-1])
    assert key not in "".join(p.read_text() for p in state.glob("audit*.jsonl"))
    assert made["key"] not in "".join(p.read_text() for p in state.glob("audit*.jsonl"))
    assert len(trail(state, "--action", "key")) == 3 and not trail(state, "--until", "1h")
    support.fsck(state)


def test_only_admins_read_the_trail(tmp_path):
    state = tmp_path / "state"
    key = support.make_key(state, "--name", "plain")
    with support.serving(state, *life.ECHO) as server:
        assert server.call("GET", "/v1/audit", headers={"Authorization": f"Bearer {key}"})[0] == 403


def test_an_entry_is_there_for_each_deletion_that_a_kill_let_through(tmp_path):
    state = tmp_path / "state"
    with support.serving(state, *life.ECHO) as server:
        ids = [server.wait(server.create(support.jsonl(life.echo_lines(2)))["id"])["id"]
               for _ in range(3)]
        seen = []
        for batch_id in ids:
            assert server.call("DELETE", f"/v1/batches/{batch_id}")[0] == 200
            seen.append(batch_id)
            if len(seen) == 2:
                server.kill()
                break
    support.fsck(state)
    assert [subject for action, subject, _ in acts(state) if action == "batch.delete"] == seen


def test_a_torn_entry_is_skipped_and_the_next_one_stands_alone(tmp_path):
    state = tmp_path / "state"
    support.make_key(state)
    with open(state / "audit.jsonl", "ab") as file:
        file.write(b'{"object":"audit_entry","seq":2,"crea')
    support.make_key(state)
    assert [e["seq"] for e in trail(state)] == [2, 1]


def test_the_trail_turns_to_a_new_file_and_keeps_sixteen(tmp_path):
    state = tmp_path / "state"
    support.make_key(state)
    line = (state / "audit.jsonl").read_bytes()
    for at in range(1, 16):
        (state / f"audit.{at}.jsonl").write_bytes(line.replace(b'"seq":1', b'"seq":0'))
    (state / "audit.jsonl").write_bytes(line * ((1 << 20) // len(line) + 1))
    support.make_key(state)
    files = sorted(p.name for p in state.glob("audit*.jsonl"))
    assert len(files) == 16 and "audit.15.jsonl" in files
    assert (state / "audit.jsonl").read_bytes().count(b"\n") == 1
    assert trail(state, "--limit", "1")[0]["seq"] == 2

# SPDX-License-Identifier: Apache-2.0
"""Deleting ended batches: the route, `quern rm`, and --keep-days."""
import json, subprocess, time

import pytest

import life, support


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(tmp_path_factory.mktemp("delete") / "state", *life.ECHO) as server:
        yield server


def ended(server, count=5, **extra):
    return server.wait(server.create(support.jsonl(life.echo_lines(count)), **extra)["id"])


def bytes_of(server, *file_ids):
    return sum(server.json("GET", f"/v1/files/{i}")["bytes"] for i in file_ids)


def test_a_deleted_batch_is_gone_with_its_files(server):
    batch = ended(server)
    size = bytes_of(server, batch["input_file_id"], batch["output_file_id"])
    gone = server.json("DELETE", f"/v1/batches/{batch['id']}")
    assert (gone["id"], gone["object"], gone["deleted"]) == (batch["id"], "batch", True)
    assert gone["quern"]["files"] == 2 and gone["quern"]["judgements"] == 0
    assert gone["quern"]["bytes"] >= size
    server.json("GET", f"/v1/batches/{batch['id']}", status=404)
    server.json("DELETE", f"/v1/batches/{batch['id']}", status=404)
    for file in (batch["input_file_id"], batch["output_file_id"]):
        server.json("GET", f"/v1/files/{file}", status=404)
    assert batch["id"] not in [b["id"] for b in server.json("GET", "/v1/batches")["data"]]
    assert not list(server.state.glob(f"*/{batch['id']}*"))
    assert not list(server.state.glob(f"files/*/{batch['output_file_id']}"))


def test_a_batch_that_runs_is_not_deleted(server):
    batch = server.create(support.jsonl(life.held_lines(3, 1)))
    server.wait(batch["id"], until=("in_progress", ))
    refused = server.json("DELETE", f"/v1/batches/{batch['id']}", status=409)
    assert "in_progress" in refused["error"]["message"]
    server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
    server.wait(batch["id"])
    server.json("DELETE", f"/v1/batches/{batch['id']}")


def test_its_idempotency_key_is_free_again(server):
    first = ended(server, idempotency_key="once more")
    same = server.create(support.jsonl(life.echo_lines(5)), idempotency_key="other")
    server.wait(same["id"])
    server.json("DELETE", f"/v1/batches/{first['id']}")
    again = ended(server, idempotency_key="once more")
    assert again["id"] != first["id"]


def test_rm_prints_what_it_freed_and_names_what_it_cannot_delete(server):
    one, two = ended(server), ended(server)
    done = support.quern("rm", one["id"], "batch_none", two["id"], "--base-url", server.url)
    assert done.returncode == 4, done.stderr
    assert f"{one['id']} deleted: 2 files, " in done.stdout
    assert "2 of 3 batches deleted" in done.stdout and "batch_none" in done.stderr
    told = support.quern("rm", ended(server)["id"], "--json", "--base-url", server.url)
    assert told.returncode == 0 and json.loads(told.stdout)["deleted"] is True


def test_rm_older_than_asks_and_spares_the_young(server):
    batch = ended(server)
    young = support.quern("rm", "--older-than", "1d", "--yes", "--base-url", server.url)
    assert young.returncode == 0 and "0 of 0 batches" in young.stdout
    server.json("GET", f"/v1/batches/{batch['id']}")
    while server.json("GET", f"/v1/batches/{batch['id']}")["completed_at"] >= int(time.time()):
        time.sleep(0.05)
    asked = support.quern("rm", "--older-than", "0m", "--base-url", server.url,
                          stdin=subprocess.DEVNULL)
    assert asked.returncode == 3 and "--yes" in asked.stderr
    server.json("GET", f"/v1/batches/{batch['id']}")
    done = support.quern("rm", "--older-than", "0m", "-y", "--base-url", server.url)
    assert done.returncode == 0, done.stderr
    server.json("GET", f"/v1/batches/{batch['id']}", status=404)


@pytest.mark.parametrize("words", ((), ("--older-than", "soon"), ("b_1", "--older-than", "1d")))
def test_rm_refuses_a_command_line_that_says_too_little_or_too_much(words):
    assert support.quern("rm", *words).returncode == 2


def test_output_files_expire_as_asked(server):
    batch = ended(server, output_expires_after={"anchor": "created_at", "seconds": 3600})
    file = server.json("GET", f"/v1/files/{batch['output_file_id']}")
    assert file["expires_at"] == file["created_at"] + 3600
    server.json("DELETE", f"/v1/batches/{batch['id']}")


def test_another_owner_cannot_delete_a_batch(tmp_path):
    state = tmp_path / "state"
    keys = [
        support.make_key(state, "--name", owner, "--owner", owner) for owner in ("ann", "bob")]
    admin = support.make_key(state, "--name", "root", "--scopes", "admin,batches")
    with support.serving(state, *life.ECHO) as server:
        head = [{"Authorization": f"Bearer {key}"} for key in (*keys, admin)]
        batches = [made_by(server, head[0]) for _ in range(2)]
        path = f"/v1/batches/{batches[0]}"
        assert server.call("DELETE", path, headers=head[1])[0] == 404
        assert server.call("DELETE", path, headers=head[0])[0] == 200
        assert server.call("DELETE", f"/v1/batches/{batches[1]}", headers=head[2])[0] == 200
    support.fsck(state)


def made_by(server, headers):
    """The id of an ended batch of the key's owner."""
    kind = "multipart/form-data; boundary=b"
    body = ("--b\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n--b\r\n"
            "Content-Disposition: form-data; name=file; filename=in.jsonl\r\n\r\n"
            f"{support.jsonl(life.echo_lines(2)).decode()}\r\n--b--\r\n").encode()
    file = json.loads(server.call("POST", "/v1/files", body, kind, headers=headers)[1])
    batch = json.loads(
        server.call(
            "POST", "/v1/batches", json.dumps({
                "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h"}).encode(), headers=headers)[1])
    path = f"/v1/batches/{batch['id']}"
    support.until(lambda: json.loads(server.call("GET", path, headers=headers)[1])["status"] ==
                  "completed")
    return batch["id"]


def test_old_batches_go_by_themselves_with_keep_days(tmp_path):
    state, clock = tmp_path / "state", support.Clock(tmp_path)
    with support.serving(state, *life.ECHO, "--keep-days", "2",
                         environment=clock.environment) as server:
        batch = ended(server)
        assert "event=retention keep_days=2" in server.log_text()
        shown = server.json("GET", f"/v1/batches/{batch['id']}")
        assert shown["quern"]["delete_at"] == shown["completed_at"] + 2 * 86400
        assert "deleted on" in support.quern("status", batch["id"], "--base-url",
                                             server.url).stdout
        clock.move(2 * 86400 + 120)
        support.until(lambda: server.call("GET", f"/v1/batches/{batch['id']}")[0] == 404)
        support.until(lambda: "event=deleted by=age" in server.log_text())
        metrics = server.call("GET", "/metrics")[1].decode()
        assert 'quern_batches_deleted_total{by="age"} 1' in metrics
        assert "quern_keep_days 2" in metrics
        support.until(lambda: not list((state / "batches").iterdir()))
    support.fsck(state)

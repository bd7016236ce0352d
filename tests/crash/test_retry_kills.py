# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every call to the disk around the making of a retry: one new batch or none, never half
a file."""
import json, shutil

import life, support
from life import Died, ECHO, Victim

REQUESTS = [
    support.request(f"r{i}", f"text {i}", **({"echo": {"status": 500}} if i % 3 == 0 else {}))
    for i in range(30)]
FAILED = support.jsonl([r for r in REQUESTS if "echo" in r["body"]])


def retries(server, batch):
    return [
        b for b in server.json("GET", "/v1/batches?limit=100")["data"]
        if b["quern"]["retry_of"] == batch]


def ask(server, batch, key):
    return server.call("POST",
                       f"/v1/batches/{batch}/retry",
                       "{}",
                       headers={"Idempotency-Key": key} if key else None)


def life_with(tmp_path, batch, number, key):
    """True when the server died at the n-th call to the disk after its start."""
    state = tmp_path / f"life-{number}-{bool(key)}"
    shutil.copytree(tmp_path / "state", state)
    victim = Victim(state, *ECHO, plan=f"any:{number}:KILL")
    died, before = False, 0
    try:
        victim.start()
        status, data = ask(victim, batch, key)
        assert status == 200, data
        victim.wait(json.loads(data)["id"])
        before = 1
    except Died:
        died = True
    finally:
        if victim.process.poll() is None:
            victim.kill()
        victim.log.close()
    support.fsck(state)
    with support.serving(state, *ECHO) as server:
        found = retries(server, batch)
        assert before <= len(found) <= 1
        files = [
            f for f in server.json("GET", "/v1/files?limit=1000")["data"]
            if f["filename"] == f"{batch}_retry.jsonl"]
        assert [f["id"] for f in files] == [b["input_file_id"] for b in found]
        if key:
            status, data = ask(server, batch, key)
            assert status == 200 and len(retries(server, batch)) == 1
            found = [json.loads(data)]
        for again in found:
            assert server.call("GET",
                               f"/v1/files/{again['input_file_id']}/content") == (200, FAILED)
            assert server.wait(again["id"])["request_counts"] == {
                "total": 10, "completed": 0, "failed": 10}
        assert server.stop() == 0
    support.fsck(state)
    stored = [path for path in (state / "files").rglob("file-*")]
    with support.serving(state, *ECHO) as server:
        assert len(stored) == len(server.json(
            "GET", "/v1/files?limit=1000")["data"]), "bytes without a row were left"
    shutil.rmtree(state)
    return died


def test_a_server_killed_while_it_makes_a_retry_makes_one_or_none(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        batch = server.wait(server.create(support.jsonl(REQUESTS),
                                          retry={"attempts": 1})["id"])["id"]
        assert server.stop() == 0
    deaths, number = 0, 1
    while True:
        died = [
            life_with(tmp_path, batch, number, "key"),
            life_with(tmp_path, batch, number + 1, None)]
        deaths += sum(died)
        if not any(died):
            break
        number += 2
    print(f"{deaths} deaths")
    assert deaths > 30

# SPDX-License-Identifier: Apache-2.0
"""kill -9 while the requests of a Message Batch arrive, while they run and while their results are
published. A call that was answered has its batch, one that was not has one or none; each request
has one result in the end, and fsck is clean."""
import json, random, os, shutil

import life, support
from life import Died, ECHO, Victim

ROUTE = "/v1/messages/batches"
REQUESTS = 40
SEED = int(os.environ.get("QUERN_SEED", "29"))
BODY = json.dumps({
    "requests": [{
        "custom_id": f"r{number}", "params": {
            # A faulty one is that request's own error.
            "model": "smollm2" if number % 10 else "nobody", "max_tokens": 50,
            "messages": [{"role": "user", "content": f"text {number}"}]}}
                 for number in range(REQUESTS)]})


def batches(server):
    return server.json("GET", ROUTE)["data"]


def wait(server, name):
    return life.poll(
        lambda: (found := server.json("GET", f"{ROUTE}/{name}"))["processing_status"] == "ended" and
        found)


def check(server, batch):
    """Each request has its own result, once."""
    assert batch["request_counts"] == {
        "processing": 0, "succeeded": REQUESTS - 4, "errored": 4, "canceled": 0, "expired": 0}
    status, data = server.call("GET", f"{ROUTE}/{batch['id']}/results")
    assert status == 200, data
    lines = [json.loads(line) for line in data.splitlines()]
    found = {line["custom_id"]: line["result"] for line in lines}
    assert len(lines) == len(found) == REQUESTS
    for number in range(REQUESTS):
        result = found[f"r{number}"]
        if number % 10:
            assert result["message"]["content"][0]["text"] == f"text {number}"
        else:
            assert result["error"]["error"]["type"] == "not_found_error"


def live(tmp_path, number):
    """True when the server died at the n-th call to the disk after its start."""
    state = tmp_path / f"life-{number}"
    shutil.copytree(tmp_path / "state", state)
    victim = Victim(state, *ECHO, plan=f"any:{number}:KILL")
    died, made = False, None
    try:
        victim.start()
        status, data = victim.call("POST", ROUTE, BODY)
        assert status == 200, data
        made = json.loads(data)["id"]
        wait(victim, made)
        victim.call("GET", f"{ROUTE}/{made}/results")
    except Died:
        died = True
    finally:
        if victim.process.poll() is None:
            victim.kill()
        victim.log.close()
    support.fsck(state)
    with support.serving(state, *ECHO) as server:
        found = batches(server)
        assert len(found) <= 1 and (not made or [each["id"] for each in found] == [made])
        for batch in found:
            check(server, wait(server, batch["id"]))
        assert server.stop() == 0
    support.fsck(state)
    shutil.rmtree(state)
    return died


def test_a_server_killed_at_any_call_to_the_disk_has_each_request_once(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        assert server.stop() == 0
    # A whole life without a death tells how many calls there are.
    first, last = 1, 1
    while live(tmp_path, last):
        first, last = last, last * 2
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if live(tmp_path, middle) else (first, middle)
    rng = random.Random(SEED)
    places = [rng.randint(1, first) for _ in range(life.scaled(50))]
    print(f"seed {SEED}, {first} calls, {len(places)} deaths")
    for number in places:
        # How many calls a life has depends on how many records go out together.
        while not live(tmp_path, number):
            number = number * 3 // 4

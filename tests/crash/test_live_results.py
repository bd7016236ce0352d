# SPDX-License-Identifier: Apache-2.0
"""kill -9 beside a reader of live results: what it was given stays, each line comes once, and all
of it is in the files."""
import json, random, time

import support
import life

SEED = support.SEED


def take(server, batch, after):
    """One page: the raw lines and where to go on."""
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", f"/v1/batches/{batch}/results?after={after}&limit=9")
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status == 200, data
    assert data == b"" or data.endswith(b"\n")
    return data.split(b"\n")[:-1], int(
        answer.headers["X-Last-Line"]), answer.headers["X-Incomplete"] == "true"


def test_a_reader_beside_kills_gets_every_line_once_and_as_published(tmp_path):
    print(f"seed {SEED}")
    rng, kills, state = random.Random(SEED), 0, tmp_path / "state"
    requests = [support.request(f"r{i:03d}", f"text {i}", echo={"each_ms": 8}) for i in range(250)]
    server = support.Server(state, *life.ECHO)
    taken, after, more, batch = [], 0, True, None
    while more:
        server.start()
        if batch is None:
            batch = server.create(support.jsonl(requests))["id"]
        wanted = len(taken) + rng.randrange(1, 60)
        deadline = time.monotonic() + 60
        while more and (kills == life.scaled(12) or len(taken) < wanted):
            lines, after, more = take(server, batch, after)
            taken += lines
            assert time.monotonic() < deadline
            if not lines:
                time.sleep(0.005)
        if more:
            server.kill()
            kills += 1
            support.fsck(state)
    done = server.batch(batch)
    assert done["status"] == "completed"
    assert sorted(taken) == sorted(
        server.call("GET", f"/v1/files/{done['output_file_id']}/content")[1].split(b"\n")[:-1])
    assert [json.loads(line)["custom_id"]
            for line in sorted(taken)] and len(set(taken)) == len(requests)
    server.kill()
    server.start()
    again, at = [], 0
    more = True
    while more:
        lines, at, more = take(server, batch, at)
        again += lines
    assert again == taken, "the order changed with a restart"
    assert server.stop() == 0
    support.fsck(state)
    print(f"{kills} kills")

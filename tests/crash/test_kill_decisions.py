# SPDX-License-Identifier: Apache-2.0
"""kill -9 in the middle of a batch of decisions: of the server and of the engine alone. Every line
has one result in the end, the answers are bit for bit those of an undisturbed run, and fsck is
clean.

`tests/crash/test_kill_decisions.py --kills N` kills the server N times, over as many batches as
that takes; in the tests, QUERN_KILLS scales the counts. QUERN_SEED repeats a failure."""
import os, random, signal, time

import pytest

import life, support

SEED = support.SEED
URL = "/v1/decisions"
LINES = 40
WORDS = "river stone lantern market winter engine garden copper letter window harbour signal".split(
)


def requests():
    """Lines of one to six questions about a text of their own, on both routes; a few fail on
    purpose. The same for every run."""
    rng = random.Random(12)
    lines = []
    for i in range(LINES):
        questions = [{
            "type": "choice", "name": f"q{k}", "instructions": rng.choice(WORDS),
            "choices": [{"value": word}
                        for word in rng.sample(WORDS, rng.randrange(2, 6))]}
                     for k in range(rng.randrange(1, 7))]
        if i % 10 == 7:
            questions[0]["choices"] = questions[0]["choices"][:1]
        text, url = " ".join(rng.choices(WORDS, k=40)), URL
        body = {"model": "smollm2", "input": text, "questions": questions}
        if i % 3 == 2 and i % 10 != 7:
            url = "/v1/systemone"
            body = {
                "model": "smollm2", "state": text, "temperatures": {"q0": 1.5}, "questions": {
                    q["name"]: {"type": "noul", "instructions": q["instructions"]}
                    if q["name"] == "q1" else {
                        "type": "choice", "instructions": q["instructions"], "criteria": {
                            c["value"]: None
                            for c in q["choices"]}}
                    for q in questions}}
        lines.append({"custom_id": f"line-{i:03d} é", "method": "POST", "url": url, "body": body})
    return lines


def outcome(server, batch):
    """Status and answers of each line, which is there once."""
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": LINES, "completed": LINES - 4, "failed": 4}
    output, errors = server.results(batch)
    lines = output + errors
    found = {
        line["custom_id"]: (line["response"]["status_code"],
                            line["response"]["body"].get("answers"))
        for line in lines}
    assert len(found) == len(lines) == LINES, f"seed {SEED}"
    return found


def calm(folder):
    """What a run gives that nobody touched."""
    with support.serving(folder / "state", "--model", "smollm2", "--result-cache-bytes",
                         "0") as server:
        return outcome(server,
                       server.wait(server.create(support.jsonl(requests()), endpoint=URL)["id"]))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return calm(tmp_path_factory.mktemp("calm"))


def kill_often(folder, kills, expected):
    """Kills a server so many times, over as many batches as that takes; each batch must end as an
    undisturbed one."""
    rng = random.Random(SEED)
    server = support.Server(folder / "state", "--model", "smollm2", "--result-cache-bytes",
                            "0").start()
    batches = 0
    while kills > 0:
        batch_id = server.create(support.jsonl(requests()), endpoint=URL)["id"]
        batch, done = server.json("GET", f"/v1/batches/{batch_id}"), 0
        while kills > 0 and batch["status"] not in support.TERMINAL:
            batch = life.wait_for_lines(server, batch_id, min(LINES, done + rng.randrange(1, 10)))
            if batch["status"] not in support.TERMINAL:
                counts = batch["request_counts"]
                assert counts["completed"] + counts[
                    "failed"] >= done, f"a counted line was lost; seed {SEED}"
                done = counts["completed"] + counts["failed"]
            time.sleep(0.05 * rng.random())
            server.kill()
            kills -= 1
            support.fsck(server.state)
            server.start()
        assert outcome(server, server.wait(batch_id)) == expected, f"seed {SEED}"
        batches += 1
    assert server.stop() == 0
    support.fsck(server.state)
    return batches


def test_kills_in_a_batch_of_decisions_lose_and_double_nothing(tmp_path, undisturbed):
    print(f"seed {SEED}")
    kill_often(tmp_path, life.scaled(4), undisturbed)


def test_the_engine_killed_in_a_batch_of_decisions_is_started_again(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng = random.Random(SEED + 1)
    with support.serving(tmp_path / "state", "--model", "smollm2", "--result-cache-bytes",
                         "0") as server:
        batch_id = server.create(support.jsonl(requests()), endpoint=URL)["id"]
        for lines in (rng.randrange(1, 10), rng.randrange(15, 25)):
            life.wait_for_lines(server, batch_id, lines)
            if pid := server.engine_pid():
                os.kill(pid, signal.SIGKILL)
        assert outcome(server, server.wait(batch_id)) == undisturbed, f"seed {SEED}"
    support.fsck(tmp_path / "state")


if __name__ == "__main__":
    import argparse, pathlib, tempfile
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory(prefix="quern-kills-") as name:
        folders = [pathlib.Path(name) / part for part in ("calm", "killed")]
        for folder in folders:
            folder.mkdir()
        batches = kill_often(folders[1], kills, calm(folders[0]))
    print(
        f"{kills} kills over {batches} batches of {LINES} lines: each line once, equal answers, fsck clean; seed {SEED}"
    )

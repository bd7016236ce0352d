# SPDX-License-Identifier: Apache-2.0
"""kill -9 in the middle of a batch of decisions: of the server and of the engine alone. Every line has one result in the end, the
answers are bit for bit those of an undisturbed run, and fsck is clean.

QUERN_KILLS scales the counts; QUERN_SEED repeats a failure."""
import os, random, signal, time

import pytest

import life, support

SEED = int(os.environ.get("QUERN_SEED", random.randrange(1 << 30)))
URL = "/v1/decisions"
LINES = 40
WORDS = "river stone lantern market winter engine garden copper letter window harbour signal".split()


def requests():
    """Lines of one to six questions about a text of their own; a few fail on purpose. The same for every run."""
    rng = random.Random(12)
    lines = []
    for i in range(LINES):
        questions = [{"type": "choice", "name": f"q{k}", "instructions": rng.choice(WORDS),
                      "choices": [{"value": word} for word in rng.sample(WORDS, rng.randrange(2, 6))]} for k in range(rng.randrange(1, 7))]
        if i % 10 == 7:
            questions[0]["choices"] = questions[0]["choices"][:1]
        body = {"model": "smollm2", "input": " ".join(rng.choices(WORDS, k=40)), "questions": questions}
        lines.append({"custom_id": f"line-{i:03d} é", "method": "POST", "url": URL, "body": body})
    return lines


def outcome(server, batch):
    """Status and answers of each line, which is there once."""
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": LINES, "completed": LINES - 4, "failed": 4}
    output, errors = server.results(batch)
    lines = output + errors
    found = {line["custom_id"]: (line["response"]["status_code"], line["response"]["body"].get("answers")) for line in lines}
    assert len(found) == len(lines) == LINES, f"seed {SEED}"
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a run gives that nobody touched."""
    with support.serving(tmp_path_factory.mktemp("calm") / "state", "--model", "smollm2", "--result-cache-bytes", "0") as server:
        return outcome(server, server.wait(server.create(support.jsonl(requests()), endpoint=URL)["id"]))


def test_kills_in_a_batch_of_decisions_lose_and_double_nothing(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    server = support.Server(tmp_path / "state", "--model", "smollm2", "--result-cache-bytes", "0").start()
    batch_id = server.create(support.jsonl(requests()), endpoint=URL)["id"]
    done = 0
    for _ in range(life.scaled(4)):
        batch = life.wait_for_lines(server, batch_id, min(LINES, done + rng.randrange(1, 10)))
        if batch["status"] not in support.TERMINAL:
            counts = batch["request_counts"]
            assert counts["completed"] + counts["failed"] >= done, f"a counted line was lost; seed {SEED}"
            done = counts["completed"] + counts["failed"]
        time.sleep(0.05 * rng.random())
        server.kill()
        support.fsck(server.state)
        server.start()
    assert outcome(server, server.wait(batch_id)) == undisturbed, f"seed {SEED}"
    assert server.stop() == 0
    support.fsck(server.state)


def test_the_engine_killed_in_a_batch_of_decisions_is_started_again(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng = random.Random(SEED + 1)
    with support.serving(tmp_path / "state", "--model", "smollm2", "--result-cache-bytes", "0") as server:
        batch_id = server.create(support.jsonl(requests()), endpoint=URL)["id"]
        for lines in (rng.randrange(1, 10), rng.randrange(15, 25)):
            life.wait_for_lines(server, batch_id, lines)
            if pid := server.engine_pid():
                os.kill(pid, signal.SIGKILL)
        assert outcome(server, server.wait(batch_id)) == undisturbed, f"seed {SEED}"
    support.fsck(tmp_path / "state")

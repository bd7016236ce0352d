# SPDX-License-Identifier: Apache-2.0
"""kill -9 in the middle of a batch of embeddings: of the server, then of the engine alone. Every
line has one result in the end, the vectors are bit for bit those of an undisturbed run, and fsck is
clean.

QUERN_KILLS scales the counts; QUERN_SEED repeats a failure."""
import contextlib, os, random, signal, time

import pytest

import life, support

SEED = support.SEED
URL = "/v1/embeddings"
LINES = 150
WORDS = "river stone lantern market winter engine garden copper letter window harbour signal".split(
)


def requests():
    """Lines of one to eight texts of different lengths; a few fail on purpose. The same for every
    run."""
    rng = random.Random(11)
    lines = []
    for i in range(LINES):
        texts = [
            " ".join(rng.choices(WORDS, k=rng.randrange(1, 30)))
            for _ in range(rng.randrange(1, 9))]
        body = {
            "model": "all-minilm", "input": texts, "encoding_format": rng.choice([
                "float", "base64"])}
        if i % 30 == 7:
            body["dimensions"] = 5
        lines.append({"custom_id": f"line-{i:03d} é", "method": "POST", "url": URL, "body": body})
    return lines


def outcome(server, batch):
    """Status and body of each line, which is there once."""
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": LINES, "completed": LINES - 5, "failed": 5}
    output, errors = server.results(batch)
    lines = output + errors
    found = {
        line["custom_id"]: (line["response"]["status_code"], line["response"]["body"])
        for line in lines}
    assert len(found) == len(lines) == LINES, f"seed {SEED}"
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a run gives that nobody touched."""
    with support.serving(
            tmp_path_factory.mktemp("calm") / "state", "--model", support.MINILM,
            "--result-cache-bytes", "0") as server:
        return outcome(server,
                       server.wait(server.create(support.jsonl(requests()), endpoint=URL)["id"]))


def test_kills_in_a_batch_of_embeddings_lose_and_double_nothing(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    server = support.Server(tmp_path / "state", "--model", support.MINILM, "--result-cache-bytes",
                            "0").start()
    batch_id = server.create(support.jsonl(requests()), endpoint=URL)["id"]
    done = 0
    for _ in range(life.scaled(6)):
        batch = life.wait_for_lines(server, batch_id, min(LINES, done + rng.randrange(1, 30)))
        if batch["status"] not in support.TERMINAL:
            counts = batch["request_counts"]
            assert counts["completed"] + counts[
                "failed"] >= done, f"a counted line was lost; seed {SEED}"
            done = counts["completed"] + counts["failed"]
        time.sleep(0.05 * rng.random())
        server.kill()
        support.fsck(server.state)
        server.start()
    assert outcome(server, server.wait(batch_id)) == undisturbed, f"seed {SEED}"
    assert server.stop() == 0
    support.fsck(server.state)


def test_the_engine_killed_in_a_batch_of_embeddings_is_started_again(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng = random.Random(SEED + 1)
    with support.serving(tmp_path / "state", "--model", support.MINILM, "--result-cache-bytes",
                         "0") as server:
        batch_id = server.create(support.jsonl(requests()), endpoint=URL)["id"]
        for lines in (rng.randrange(1, 40), rng.randrange(60, 100)):
            life.wait_for_lines(server, batch_id, lines)
            if pid := server.engine_pid():
                os.kill(pid, signal.SIGKILL)
        assert outcome(server, server.wait(batch_id)) == undisturbed, f"seed {SEED}"
    support.fsck(tmp_path / "state")


def test_an_engine_that_stands_still_in_a_batch_of_embeddings_is_replaced(tmp_path, undisturbed):
    clock, arguments = support.Clock(tmp_path), ("--model", support.MINILM, "--result-cache-bytes",
                                                 "0", "--hang-seconds", "60")
    with support.serving(tmp_path / "state", *arguments, environment=clock.environment) as server:
        while "no progress" not in server.log_text(
        ):  # once more where all lines were done before it stood still
            batch_id, pid = server.create(support.jsonl(requests()),
                                          endpoint=URL)["id"], server.engine_pid()
            life.wait_for_lines(server, batch_id, 1)
            os.kill(pid, signal.SIGSTOP)
            clock.until(
                lambda: "no progress" in server.log_text() or server.batch(batch_id)["status"] in
                support.TERMINAL, 0.5)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            assert outcome(server, server.wait(batch_id)) == undisturbed
    support.fsck(tmp_path / "state")

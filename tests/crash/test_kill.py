# SPDX-License-Identifier: Apache-2.0
"""kill -9 at random moments: of the server, of `quern run`, of the engine alone. Afterwards every
custom_id is there exactly once, fsck is clean, no counted line was lost, and the answers are those
of an undisturbed greedy run.

QUERN_KILLS scales the counts (1.0: 50 serve, 50 run, 20 engine); QUERN_SEED repeats a failure."""
import json, os, random, shutil, signal, subprocess, time

import pytest

import life, support

SEED = support.SEED
LINES = 60
WORDS = "river stone lantern market winter engine garden copper letter window harbour signal".split(
)


def requests():
    """Greedy requests with a shared system prompt; a few fail on purpose. The same for every
    run."""
    rng = random.Random(5)
    lines = []
    for i in range(LINES):
        line = support.request(f"line-{i:03d} é",
                               " ".join(rng.choices(WORDS, k=rng.randrange(3, 40))),
                               temperature=0,
                               max_tokens=rng.randrange(4, 40))
        line["body"]["messages"].insert(
            0, {"role": "system", "content": "You are a terse assistant. " * 8})
        if i % 20 == 7:
            line["body"]["top_p"] = 7
        lines.append(line)
    return lines


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The masked results of a run nobody touched, by custom_id."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "in.jsonl").write_bytes(support.jsonl(requests()))
    done = support.quern("run", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl", "--model",
                         "smollm2")
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [r["custom_id"] for r in requests()]
    return {line["custom_id"]: support.masked(line) for line in lines}


def judge(lines, undisturbed):
    ids = [line["custom_id"] for line in lines]
    assert len(ids) == len(
        set(ids)), f"twice: {sorted(i for i in ids if ids.count(i) > 1)}; seed {SEED}"
    assert set(ids) == set(undisturbed), f"lost: {sorted(set(undisturbed) - set(ids))}; seed {SEED}"
    for line in lines:
        assert support.masked(line) == undisturbed[line["custom_id"]], f"seed {SEED}"


def test_the_server_killed_at_random_moments_loses_and_doubles_nothing(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng, kills, wanted, batches = random.Random(SEED), 0, life.scaled(50), 0
    state = tmp_path / "state"
    server = support.Server(state, "--model", "smollm2")
    batch_id, seen = None, 0
    while kills < wanted:
        server.start()
        if batch_id is None:
            batch_id, seen = server.create(support.jsonl(requests()))["id"], 0
            batches += 1
        deadline = time.monotonic() + rng.choice([0.05, 0.6, 1.5
                                                  ]) * rng.random() + 0.3 * rng.random()
        finished = None
        while time.monotonic() < deadline and not finished:
            batch = server.batch(batch_id)
            counts = batch["request_counts"]
            if batch["status"] != "validating":
                assert counts["completed"] + counts[
                    "failed"] >= seen, f"a counted line was lost; seed {SEED}"
                seen = counts["completed"] + counts["failed"]
            finished = batch if batch["status"] in support.TERMINAL else None
            time.sleep(0.005)
        server.kill()
        kills += 1
        support.fsck(state)
        if finished:
            assert finished["status"] == "completed"
            server.start()
            output, errors = server.results(server.batch(batch_id))
            judge(output + errors, undisturbed)
            server.kill()
            batch_id = None
    server.start()
    if batch_id:
        batch = server.wait(batch_id)
        counts = batch["request_counts"]
        assert (batch["status"], counts) == ("completed", {
            "total": LINES, "completed": LINES - 3, "failed": 3})
        output, errors = server.results(batch)
        judge(output + errors, undisturbed)
    assert server.stop() == 0
    support.fsck(state)
    print(f"{kills} kills over {batches} batches")


def test_run_killed_at_random_moments_and_repeated_gives_the_same_file(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng, kills, wanted = random.Random(SEED + 1), 0, life.scaled(50)
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(requests()))
    command = [
        support.BINARY, "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model",
        "smollm2"]
    while kills < wanted:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert process.wait(rng.choice([0.05, 0.6, 1.8]) * rng.random() + 0.02) == 1
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            assert not (tmp_path / "out.jsonl").exists() or len(
                (tmp_path / "out.jsonl").read_text().splitlines()) == LINES
            continue
        judge([json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()],
              undisturbed)
        (tmp_path / "out.jsonl").unlink()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [r["custom_id"] for r in requests()]
    judge(lines, undisturbed)


def test_the_engine_killed_alone_is_restarted_and_its_lines_run_again(tmp_path, undisturbed):
    print(f"seed {SEED}")
    rng, kills, wanted = random.Random(SEED + 2), 0, life.scaled(20)
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        while kills < wanted:
            batch = server.create(support.jsonl(requests()))
            while batch["status"] not in support.TERMINAL:
                time.sleep(0.2 + 1.2 * rng.random())
                pid = server.engine_pid()
                if pid and kills < wanted and rng.random() < 0.8:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                    if kills % 3 == 0:
                        server.wait(
                            batch["id"]
                        )  # let one through: endless kills would look like a poison line
                batch = server.batch(batch["id"])
            assert batch["status"] == "completed"
            output, errors = server.results(batch)
            judge(output + errors, undisturbed)
    support.fsck(tmp_path / "state")

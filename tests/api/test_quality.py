# SPDX-License-Identifier: Apache-2.0
"""Quality alarms: what answers look like is counted, told, and may pause a batch; pausing by hand;
all over restarts."""
import json

import pytest

import support

LIMITS = {"min_lines": 20}


def metric(server, name):
    return next(
        float(line.rsplit(" ", 1)[1])
        for line in server.call("GET", "/metrics")[1].decode().splitlines()
        if line.startswith(name + " "))


@pytest.fixture
def clock(tmp_path):
    return support.Clock(tmp_path)


@pytest.fixture
def server(tmp_path, clock):
    with support.serving(tmp_path / "state",
                         "--model",
                         "smollm2=echo",
                         environment=clock.environment) as server:
        yield server
        assert server.stop() == 0
    support.fsck(tmp_path / "state")


def done(batch):
    return batch["request_counts"]["completed"]


@pytest.mark.parametrize("share, requests", [
    ("truncated", [
        support.request(f"a{i}", f"x {i}",
                        **({"echo": {"finish_reason": "length"}} if i % 2 else {}))
        for i in range(40)]),
    ("in_thought", [
        support.request(f"a{i}",
                        "" if i % 2 else f"x {i}",
                        seed=i,
                        **({"echo": {"finish_reason": "length"}} if i % 2 else {}))
        for i in range(40)]),
    ("empty", [support.request(f"a{i}", " " if i % 2 else f"x {i}", n=i + 1) for i in range(40)]),
    ("identical", [
        support.request(f"a{i}", "Yes" if i % 4 else f"x {i}", seed=i) for i in range(40)]),
    ("invalid_json", [
        support.request(f"a{i}",
                        json.dumps({"n": i})[:5 if i % 2 else None]) for i in range(40)]), ])
def test_each_kind_of_wrong_answers_raises_its_alarm(server, share, requests):
    name = f'quern_quality_alarms_total{{share="{share}"}}'
    assert metric(server, name) == 0
    batch = server.wait(server.create(support.jsonl(requests), quality_limits=LIMITS)["id"])
    quality = batch["quern"]["quality"]
    assert (batch["status"], quality["answers"], quality["alarm"]) == ("completed", 40, share)
    assert quality[share] == pytest.approx({"identical": 0.75}.get(share, 0.5), abs=0.001)
    assert metric(server, name) == 1 and batch["quern"]["paused"] is None


def test_good_answers_raise_none_and_few_are_not_judged(server):
    batch = server.wait(
        server.create(support.jsonl([support.request(f"a{i}", f"x {i}") for i in range(60)]))["id"])
    assert batch["quern"]["quality"] == {
        "answers": 60, "in_thought": 0, "truncated": 0, "empty": 0, "identical": 0,
        "invalid_json": 0, "alarm": None, "shapes": None}
    few = server.wait(
        server.create(support.jsonl([support.request(f"a{i}", "") for i in range(9)]))["id"])
    assert few["quern"]["quality"]["empty"] == 1 and few["quern"]["quality"]["alarm"] is None


def test_an_alarm_pauses_when_asked_to_and_resume_lets_it_go_on_over_restarts(tmp_path, clock):
    state = tmp_path / "state"
    count = 6000  # more than a worker holds at a time
    with support.serving(state, "--model", "smollm2=echo") as server:
        requests = [
            support.request(f"a{i:04d}",
                            f"x {i}",
                            echo={"each_ms": 1, "finish_reason": "length" if i < 5000 else "stop"})
            for i in range(count)]
        batch = server.create(support.jsonl(requests), on_quality="pause", quality_limits=LIMITS)
        support.until(lambda: server.batch(batch["id"])["quern"]["paused"] == "quality")
        batch = server.batch(batch["id"])
        assert batch["status"] == "in_progress" and batch["quern"]["quality"]["alarm"] == "truncated"
        assert batch["waiting_for"] == "its owner: it is paused"
        server.kill()
    support.fsck(state)
    with support.serving(state, "--model", "smollm2=echo", environment=clock.environment) as server:
        batch = server.batch(batch["id"])
        assert batch["quern"]["paused"] == "quality" and batch["quern"]["quality"][
            "alarm"] == "truncated", "the marks are in the log"
        before = done(batch)
        assert 20 <= before < count
        other = server.wait(server.create(support.jsonl([support.request(
            "b", "c")]))["id"])  # dispatch has gone round
        assert other["status"] == "completed" and done(server.batch(batch["id"])) == before
        resumed = server.json("POST", f"/v1/batches/{batch['id']}/resume", {})
        assert resumed["quern"]["paused"] is None
        clock.until(lambda: server.batch(batch["id"])["status"] in support.TERMINAL, 1)
        batch = server.batch(batch["id"])
        assert (batch["status"], batch["request_counts"]) == ("completed", {
            "total": count, "completed": count, "failed": 0})
        assert batch["quern"]["quality"]["truncated"] == pytest.approx(5000 / count, abs=0.001)
        assert server.stop() == 0
    support.fsck(state)


def test_pausing_by_hand_keeps_what_is_in_flight_and_can_be_cancelled(server, clock):
    batch = server.create(
        support.jsonl([
            support.request(f"a{i}", f"x {i}", echo={"each_ms": 1000}) for i in range(9000)]))
    clock.until(lambda: done(server.batch(batch["id"])) > 0, 1)
    paused = server.json("POST", f"/v1/batches/{batch['id']}/pause", {})
    assert paused["quern"]["paused"] == "request" and paused["status"] == "in_progress"
    assert server.json("POST", f"/v1/batches/{batch['id']}/pause",
                       {})["quern"]["paused"] == "request"
    assert metric(server, "quern_batches_paused") == 1

    clock.until(lambda: metric(server, "quern_requests_inflight") == 0, 100)
    before = done(server.batch(batch["id"]))
    assert 0 < before < 9000
    other = server.wait(server.create(support.jsonl([support.request("b", "c")]))["id"])
    assert other["status"] == "completed" and done(server.batch(batch["id"])) == before
    server.json("POST", f"/v1/batches/{batch['id']}/resume", {})
    clock.until(lambda: done(server.batch(batch["id"])) > before, 1)
    server.json("POST", f"/v1/batches/{batch['id']}/pause", {})
    server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
    batch = server.wait(batch["id"])
    assert batch["status"] == "cancelled" and batch["quern"]["paused"] is None


def test_only_batches_in_progress_can_be_paused(server):
    batch = server.wait(server.create(support.jsonl([support.request("a", "b")]))["id"])
    for verb in "pause", "resume":
        status, data = server.call("POST", f"/v1/batches/{batch['id']}/{verb}", "{}")
        assert status == 409 and json.loads(
            data)["error"]["message"] == f"Cannot {verb} a batch with status 'completed'."
        assert server.call("POST", f"/v1/batches/batch_unknown/{verb}", "{}")[0] == 404

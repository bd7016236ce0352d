# SPDX-License-Identifier: Apache-2.0
"""In which order batches run, how long one that stands still goes unnoticed, and what /metrics says
of both."""
import re

import pytest

import support


@pytest.fixture
def clock(tmp_path):
    return support.Clock(tmp_path)


@pytest.fixture
def server(tmp_path, clock):
    with support.serving(tmp_path / "state",
                         "--model",
                         "smollm2=echo",
                         "--lookahead-lines",
                         "8",
                         "--stuck-seconds",
                         "3600",
                         environment=clock.environment) as server:
        yield server
    support.fsck(tmp_path / "state")


def lines(salt, count, **body):
    return support.jsonl([
        support.request(f"{salt}-{i}", f"{salt} {i}", **body) for i in range(count)])


def end_of(server, clock, batch):
    """The batch when it has ended. A minute after the other passes until then: each answers as many
    lines as are in flight."""
    clock.until(lambda: server.batch(batch["id"])["status"] in support.TERMINAL, 60)
    return server.batch(batch["id"])


def metrics(server):
    """name{labels} -> value."""
    status, data = server.call("GET", "/metrics")
    assert status == 200
    return {
        name: float(value)
        for name, value in re.findall(r"^([a-z_:]+(?:\{[^}]*\})?) (\S+)$", data.decode(), re.M)}


def test_case_135_priority_minus_one_behind_zeros_ends_first(server, clock):
    zeros = server.create(lines("zero", 200, echo={"delay_ms": 60000}))
    server.wait(zeros["id"], until=("in_progress",))
    minus = server.create(lines("minus", 5), priority=-1)
    ended = end_of(server, clock, minus)
    assert ended["status"] == "completed" and ended["priority"] == -1 and ended[
        "service_tier"] == "batch"
    assert server.batch(zeros["id"])["status"] == "in_progress"
    assert end_of(server, clock, zeros)["request_counts"] == {
        "total": 200, "completed": 200, "failed": 0}


def test_the_service_tier_of_a_batch_goes_before_its_priority(server, clock):
    first = server.create(lines("first", 200, echo={"delay_ms": 60000}), priority=-5)
    server.wait(first["id"], until=("in_progress",))
    second = server.create(lines("second", 5), priority=5, service_tier="priority")
    output, errors = server.results(end_of(server, clock, second))
    assert not errors and {line["response"]["body"]["service_tier"]
                           for line in output} == {"priority"}
    assert server.batch(first["id"])["status"] == "in_progress"
    server.json("POST", f"/v1/batches/{first['id']}/cancel", {})
    server.wait(first["id"])


def test_case_134_flex_is_echoed(server):
    answer = server.json("POST", "/v1/chat/completions", {
        "model": "smollm2", "service_tier": "flex", "messages": [{"role": "user", "content": "x"}]})
    assert answer["service_tier"] == "flex"


def test_a_batch_that_stands_still_says_why_and_is_cancelled_all_the_same(server, clock):
    batch = server.create(lines("hang", 3, echo={"hang": True}))
    # Before time passes: a batch may also be stuck with one line.
    support.until(lambda: metrics(server)["quern_requests_inflight"] == 3)
    clock.until(lambda: "event=batch_stuck" in server.log_text(), 60)
    assert f"batch={batch['id']} event=batch_stuck" in server.log_text()
    assert server.batch(
        batch["id"])["waiting_for"] == "results of 3 requests that are with an engine"
    seen = metrics(server)
    assert seen["quern_batch_oldest_progress_age_seconds"] >= 3600
    assert seen['quern_queue_depth{model="smollm2"}'] == 3
    assert seen['quern_queue_oldest_age_seconds{model="smollm2"}'] >= 3600
    assert 80000 < seen["quern_batch_deadline_seconds_min"] <= 86400 - 3600
    assert seen["quern_batches_stuck"] == 1
    server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
    ended = server.wait(batch["id"], seconds=60)
    assert ended["status"] == "cancelled" and ended["waiting_for"] is None
    _, errors = server.results(ended)
    assert [line["error"]["code"] for line in errors] == ["batch_cancelled"] * 3
    assert metrics(server)["quern_batch_oldest_progress_age_seconds"] == 0


def test_culprits_among_innocent_lines_are_the_only_errors(server):
    wanted = {f"c-{i}" for i in (0, 33, 34, 59)}
    requests = [
        support.request(f"c-{i}", "x", echo={"down": f"c-{i}" in wanted}) for i in range(60)]
    output, errors = server.results(server.wait(server.create(support.jsonl(requests))["id"]))
    assert {line["custom_id"] for line in errors} == wanted and len(output) == 56
    assert {line["response"]["body"]["error"]["code"] for line in errors} == {"worker_lost"}

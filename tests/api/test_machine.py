# SPDX-License-Identifier: Apache-2.0
"""GET /v1/machine: models, queues, owners, throughput and events, and who sees whose."""
import json, os, signal

import pytest

import support
from metrics import Metrics
from support import make_key
from test_keys import ECHO, As


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def machine(caller):
    return caller.json("GET", "/v1/machine")


def kinds(caller):
    return [event["kind"] for event in machine(caller)["events"]]


def in_flight(caller):
    return Metrics(caller.call("GET", "/metrics")[1].decode()).value("quern_requests_inflight")


def hanging(count, **body):
    return support.jsonl([
        support.request(f"c-{number}", f"x {number}", echo={"hang": True}, **body)
        for number in range(count)])


def test_models_queues_and_owners_are_those_of_now(state):
    with support.serving(state, *ECHO, "--upstream",
                         "away=http://127.0.0.1:9,models=away") as server:
        support.until(lambda: "model_loaded" in kinds(server))
        now = machine(server)
        assert (now["object"], now["owners"], now["queues"], now["devices"]) == ("machine", [], [],
                                                                                 [])
        assert [(model["worker"], model["id"], model["upstream"]) for model in now["models"]] == [
            (0, "smollm2", None), (1, "away", "away")]
        assert now["models"][0]["state"] == "loaded" and now["models"][0]["text"] == "ready"
        batch = server.create(hanging(7))
        support.until(lambda: machine(server)["queues"])
        now = machine(server)
        assert now["queues"] == [{
            "model": "smollm2", "lines": 7, "requests": 0, "waiting_batches": 0,
            "oldest_age_s": now["queues"][0]["oldest_age_s"]}]
        assert now["models"][0]["queue_depth"] == 7
        assert now["owners"] == [{
            "owner": "default", "open_batches": 1, "queued_lines": 7, "requests": 0}]
        server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
        server.wait(batch["id"])
        support.until(lambda: machine(server)["owners"] == [])


def test_throughput_adds_up_to_what_was_done(tmp_path, state):
    clock = support.Clock(tmp_path)
    with support.serving(state, *ECHO, environment=clock.environment) as server:
        batch = server.wait(
            server.create(
                support.jsonl([
                    support.request(f"c-{number}", f"text {number}")
                    for number in range(30)]))["id"])
        wanted = (30, batch["usage"]["output_tokens"])
        clock.until(
            lambda: tuple(sum(machine(server)["throughput"][name])
                          for name in ("lines", "tokens")) == wanted, 1)
        answer = machine(server)["throughput"]
        assert answer["step_s"] == 10 and len(answer["tokens"]) == len(answer["lines"]) <= 360
        clock.move(7200)
        clock.until(lambda: len(machine(server)["throughput"]["lines"]) == 360, 10)
        assert sum(machine(server)["throughput"]["lines"][-300:]) == 0


def test_a_stuck_batch_and_an_alarm_are_events_of_their_owner(tmp_path, state):
    clock = support.Clock(tmp_path)
    scopes = "files,batches,infer,metrics"
    keys = {name: make_key(state, "--owner", name, "--scopes", scopes) for name in ("alice", "bob")}
    admin_key = make_key(state, "--scopes", "admin")
    with support.serving(state, *ECHO, "--stuck-seconds", "600",
                         environment=clock.environment) as server:
        alice, bob, admin = As(server, keys["alice"]), As(server, keys["bob"]), As(
            server, admin_key)
        bad = support.jsonl([
            support.request(f"a{number}", " ", n=number + 1) for number in range(40)])
        alarmed = alice.wait(alice.create(bad, quality_limits={"min_lines": 20})["id"])["id"]
        stuck = alice.create(hanging(3))["id"]
        support.until(
            lambda: in_flight(alice) == 3
        )  # before time passes: a batch may also be stuck in its check, or with one line
        clock.until(lambda: "batch_stuck" in kinds(alice), 60)
        seen = {event["kind"]: event for event in machine(alice)["events"]}
        assert seen["quality_alarm"]["batch_id"] == alarmed and "'empty'" in seen["quality_alarm"][
            "message"]
        assert seen["batch_stuck"]["batch_id"] == stuck and "results of 3 requests" in seen[
            "batch_stuck"]["message"]
        assert seen["model_loaded"] == {
            **seen["model_loaded"], "batch_id": None, "message": "smollm2 is loaded."}
        support.until(lambda: len(machine(alice)["owners"]) == 1 and machine(alice)["owners"][0][
            "open_batches"] == 1)
        assert machine(alice)["owners"] == [{
            "owner": "alice", "open_batches": 1, "queued_lines": 3, "requests": 0}]
        theirs = machine(bob)
        assert theirs["owners"] == [] and {event["batch_id"]
                                           for event in theirs["events"]} == {None}
        assert "alice" not in json.dumps(theirs) and stuck not in json.dumps(
            theirs) and alarmed not in json.dumps(theirs)
        bob_batch = bob.create(hanging(2))["id"]
        support.until(lambda: bob.batch(bob_batch)["status"] == "in_progress")
        assert sorted(row["owner"] for row in machine(admin)["owners"]) == ["alice", "bob"]
        assert {"batch_stuck", "quality_alarm"} <= set(kinds(admin))
        for caller, batch in ((alice, stuck), (bob, bob_batch)):
            caller.json("POST", f"/v1/batches/{batch}/cancel", {})
            caller.wait(batch)


def test_it_wants_the_scope_of_metrics_or_an_admin(state):
    keys = {
        scope: make_key(state, "--scopes", scope)
        for scope in ("files", "batches", "infer", "metrics", "admin")}
    with support.serving(state, *ECHO) as server:
        for scope, key in keys.items():
            status, body = As(server, key).call("GET", "/v1/machine")
            assert status == (200 if scope in ("metrics", "admin") else 403), (scope, body)
        assert server.call("GET", "/v1/machine")[0] == 401


def test_a_worker_that_goes_down_and_comes_back_leaves_events(state):
    with support.serving(state, *ECHO) as server:
        support.until(lambda: "model_loaded" in kinds(server))
        lines = [support.request(f"c-{number}", f"x {number}")
                 for number in range(5)] + [support.request("down", "x", echo={"down": True})]
        batch = server.wait(server.create(support.jsonl(lines))["id"])
        assert batch["request_counts"] == {"total": 6, "completed": 5, "failed": 1}
        support.until(lambda: {"engine_down", "line_lost"} <= set(kinds(server)))
        lost = [event for event in machine(server)["events"] if event["kind"] == "line_lost"]
        assert [(event["batch_id"], event["message"]) for event in lost] == \
            [(batch["id"], "Line 6 has an error record: every engine that ran it went down.")]


def test_a_killed_engine_is_an_event_and_its_memory_is_told(state):
    with support.serving(state, "--model", "smollm2") as server:
        support.until(lambda: machine(server)["models"][0]["memory_bytes"] is not None)
        model = machine(server)["models"][0]
        assert model["memory_bytes"] > 10 << 20 and model["state"] == "loaded"
        os.kill(server.engine_pid(), signal.SIGKILL)
        support.until(lambda: {"engine_down", "engine_restarted"} <= set(kinds(server)))
        down = next(event for event in machine(server)["events"] if event["kind"] == "engine_down")
        assert down["message"].startswith("Worker 0: ") and "signal 9" in down["message"]
        assert machine(server)["models"][0]["restarts"] == 1


def test_a_model_is_unloaded_under_a_batch_and_loses_none_of_its_lines(state):
    with support.serving(state, "--model", "smollm2", "--max-num-seqs", "2") as server:
        lines = [
            support.request(f"c-{number}",
                            f"Count to {number}.",
                            temperature=0,
                            max_tokens=12,
                            ignore_eos=True) for number in range(60)]
        support.until(lambda: "model_loaded" in kinds(
            server))  # looked for once per second: a model that is unloaded before leaves no event
        batch = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch)["request_counts"]["completed"] > 0)
        assert server.json("POST", "/v1/machine/models/smollm2/unload")["id"] == "smollm2"
        support.until(
            lambda: machine(server)["models"][0]["text"] == "unloaded by an administrator")
        model = machine(server)["models"][0]
        assert (model["state"], model["held"], model["can_unload"],
                model["memory_bytes"]) == ("unloaded", True, True, None)
        assert server.batch(
            batch)["request_counts"]["failed"] == 0, "the lines that have not run wait"
        status, body = server.call(
            "POST", "/v1/chat/completions",
            {"model": "smollm2", "messages": [{"role": "user", "content": "x"}]})
        assert status == 503 and "unloaded until an administrator loads it" in json.loads(
            body)["error"]["message"]
        assert server.call("GET", "/ready")[0] == 503
        support.until(lambda: "model_unloaded" in kinds(server))
        server.json("POST", "/v1/machine/models/smollm2/load")
        ended = server.wait(batch)
        assert ended["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
        output, errors = server.results(ended)
        assert sorted(line["custom_id"]
                      for line in output) == sorted(line["custom_id"]
                                                    for line in lines) and not errors
        assert "engine_down" not in kinds(server)
        assert server.stop() == 0
    support.fsck(state)


def test_only_admins_unload_and_only_models_of_this_server(state):
    keys = {
        scope: make_key(state, "--scopes", scope)
        for scope in ("files,batches,infer,metrics", "admin")}
    with support.serving(state, *ECHO) as server:
        plain, admin = (As(server, key) for key in keys.values())
        assert plain.status("POST", "/v1/machine/models/smollm2/unload") == 403
        assert admin.status("POST", "/v1/machine/models/none/unload") == 404
        status, body = admin.call("POST", "/v1/machine/models/smollm2/unload")
        assert status == 409 and "no engine of this server runs it" in json.loads(
            body)["error"]["message"]
        assert machine(admin)["models"][0]["can_unload"] is False and machine(
            admin)["admin"] is True
        assert machine(As(server, keys["files,batches,infer,metrics"]))["admin"] is False

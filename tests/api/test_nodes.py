# SPDX-License-Identifier: Apache-2.0
"""What a server tells about its nodes: quern status, /v1/machine, /v1/machine/workers, metrics."""
import json, pathlib, sys

import pytest

import support
from cluster import Node, Redis, needs_redis
from metrics import Metrics
from support import make_key
from test_keys import As

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

ECHO = ("--model", "smollm2=echo")


@pytest.fixture()
def redis(tmp_path):
    with Redis(tmp_path) as server:
        yield server


def machine(server):
    return server.json("GET", "/v1/machine")


def workers(server, query=""):
    return server.json("GET", "/v1/machine/workers" + query)


def metrics(server):
    return Metrics(server.call("GET", "/metrics")[1].decode())


def status(server, *arguments):
    done = support.quern("status", "--base-url", server.url, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def hanging(count):
    return support.jsonl([
        support.request(f"c-{number}", f"x {number}", echo={"hang": True})
        for number in range(count)])


@needs_redis
def test_nodes_and_their_requests_are_told_everywhere(tmp_path, redis):
    with support.serving(tmp_path / "state", "--queue", redis.url) as server:
        assert machine(server)["nodes"] == []
        support.until(lambda: machine(server)["queue"]["up"])
        with Node(tmp_path, redis, *ECHO, "--name", "first") as one:
            support.until(lambda: [node["state"] for node in machine(server)["nodes"]] == ["ready"])
            batch = server.create(hanging(7))
            support.until(lambda: machine(server)["nodes"][0]["in_flight"] == 7)
            now = machine(server)
            node = now["nodes"][0]
            assert node["id"] == one.name and node["name"] == "first"
            assert node["models"] == ["smollm2", "echo"] and node["text"] is None
            assert (node["workers"], node["workers_ready"]) == (1, 1)
            assert node["beat_age_s"] < 12 and now["queue"]["in_flight"] == 7
            support.until(lambda: metrics(server).value(
                "quern_cluster_result_wait_seconds_count") > 0)  # it tells its jobs
            told = metrics(server)
            assert told.value("quern_cluster_queue_up") == 1
            assert told.value("quern_cluster_nodes", state="ready") == 1
            assert told.value("quern_cluster_requests_inflight") == 7
            assert told.value("quern_cluster_redis_bytes_max") == 256 << 20
            assert 100 << 10 < told.value("quern_cluster_redis_bytes") < 64 << 20
            assert told.value("quern_node_requests_inflight", node=one.name, machine="first") == 7
            assert told.value("quern_workers_wanted", model="smollm2") == 1
            assert told.value("quern_workers_ready", model="smollm2") == 1
            page = status(server)
            assert "queue between machines: up" in page and "in flight 7," in page
            row = next(row for row in page.splitlines() if row.startswith(one.name))
            assert row.split()[1:4] == ["ready", "1/1", "7"] and row.endswith("smollm2, echo")
            assert json.loads(status(server, "--json"))["nodes"][0]["id"] == one.name
            one.kill()
            support.until(lambda: machine(server)["nodes"] == [])
            now = machine(server)["queue"]
            assert now["nodes_lost"] == 1 and now["returned"] == 7
        with Node(tmp_path, redis, *ECHO):
            support.until(lambda: machine(server)["queue"]["in_flight"] == 7)
            server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
            server.wait(batch["id"])


@needs_redis
def test_the_wish_for_workers_follows_the_backlog_down_to_zero(tmp_path, redis):
    with support.serving(tmp_path / "state", "--queue", redis.url) as server:
        assert workers(server)["wanted"] == 0
        batch = server.create(hanging(35))
        support.until(lambda: workers(server)["wanted"] == 1)
        assert workers(server)["ready"] == 0
        support.until(lambda: server.batch(batch["id"])["waiting_for"] ==
                      "a worker that serves 'smollm2'")
        assert machine(server)["queues"][0]["waiting_batches"] == 1
        with Node(tmp_path, redis, *ECHO):
            support.until(lambda: workers(server)["backlog"] == 35)
        assert workers(server, "?lines=10")["wanted"] == 4
        assert workers(server, "?lines=1")["wanted"] == 35
        own = workers(server, "?lines=10&model=smollm2")
        assert own["model"] == "smollm2" and own["wanted"] == 4 and own["lines_per_second"] is None
        assert [row["model"] for row in own["models"]] == ["smollm2"]
        assert workers(server, "?lines=10&model=other")["wanted"] == 0
        with Node(tmp_path, redis, *ECHO):
            support.until(lambda: workers(server)["ready"] == 1)
            server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
            server.wait(batch["id"])
            support.until(lambda: workers(server)["wanted"] == 0)


@needs_redis
def test_the_wish_uses_the_measured_rate_of_nodes(tmp_path, redis):
    lines = life.echo_lines(2000)
    for line in lines:
        line["body"]["echo"] = {"each_ms": 5}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        batch = server.create(support.jsonl(lines))
        support.until(lambda: workers(server)["lines_per_second"])
        own = workers(server, "?seconds=1")
        if own["backlog"]:
            assert own["wanted"] == min(48, -(-own["backlog"] // max(1, own["lines_per_second"])))
        server.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
        server.wait(batch["id"])


def test_a_wrong_rule_of_the_wish_is_named(tmp_path):
    with support.serving(tmp_path / "state", *ECHO) as server:
        for query in ("seconds=0", "seconds=x", "lines=-1", "lines=1e3"):
            status, body = server.call("GET", f"/v1/machine/workers?{query}")
            name, value = query.split("=")
            message = json.loads(body)["error"]["message"]
            assert status == 400 and f"'{name}'" in message and f"'{value}'" in message


def test_without_a_queue_there_are_no_nodes_and_no_such_series(tmp_path):
    key = make_key(tmp_path / "state", "--scopes", "metrics")
    files = make_key(tmp_path / "state", "--scopes", "files")
    with support.serving(tmp_path / "state", *ECHO) as server:
        caller = As(server, key)
        now = caller.json("GET", "/v1/machine")
        assert now["queue"] is None and now["nodes"] == []
        told = Metrics(caller.call("GET", "/metrics")[1].decode())
        assert not told.series("quern_cluster_queue_up") and not told.series("quern_node_up")
        assert caller.json("GET", "/v1/machine/workers")["wanted"] == 0
        assert As(server, files).call("GET", "/v1/machine/workers")[0] == 403

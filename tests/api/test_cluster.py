# SPDX-License-Identifier: Apache-2.0
"""A server and nodes as processes of their own, over a real Redis server."""
import json, pathlib, signal, sys, time

import pytest

import support
from cluster import Node, Redis, needs_redis

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

pytestmark = needs_redis
ECHO = ("--model", "smollm2=echo")


@pytest.fixture()
def redis(tmp_path):
    with Redis(tmp_path) as server:
        yield server


def test_two_nodes_run_a_batch_and_nothing_is_left_in_the_queue(tmp_path, redis):
    lines = life.echo_lines(2000)
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO) as one, Node(tmp_path, redis, *ECHO) as two:
        batch = server.wait(server.create(support.jsonl(lines))["id"])
        output, errors = server.results(batch)
        life.judge(output, lines)
        assert errors == []
        support.until(lambda: redis.packs() == 0)
        assert one.stop() == 0 and two.stop() == 0
        assert server.stop() == 0
        assert redis.ask("KEYS", "{quern:*}:[wr]:*") == []
    support.fsck(tmp_path / "state")


def test_a_batch_waits_for_the_first_node(tmp_path, redis):
    lines = life.echo_lines(20)
    with support.serving(tmp_path / "state", "--queue", redis.url) as server:
        batch_id = server.create(support.jsonl(lines))["id"]
        with Node(tmp_path, redis, *ECHO):
            output, _ = server.results(server.wait(batch_id))
            life.judge(output, lines)


def test_a_server_without_its_queue_serves_and_says_so(tmp_path, redis):
    redis.kill()
    lines = life.echo_lines(50)
    with support.serving(tmp_path / "state", "--queue", redis.url, *ECHO) as server:
        output, _ = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
        life.judge(output, lines)
        support.until(lambda: "event=queue_lost" in server.log_text())


def test_a_stopped_node_gives_back_what_it_has_not_begun(tmp_path, redis):
    lines = life.echo_lines(300)
    for line in lines[:200]:
        line["body"]["echo"] = {"each_ms": 20}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO, "--drain-seconds", "0") as one:
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        with Node(tmp_path, redis, *ECHO):
            assert one.stop() == 0
            output, errors = server.results(server.wait(batch_id))
            life.judge(output, lines)
            assert errors == []


def test_results_that_come_after_the_server_has_gone_stay_for_the_next_one_alone(tmp_path, redis):
    lines = life.echo_lines(40)
    for line in lines:
        line["body"]["echo"] = {"each_ms": 100}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO) as node:
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        assert server.stop() == 0
        assert node.stop() == 0  # it ends what it runs first
        for name in redis.ask("KEYS", "{quern:*}:[wr]:*"):
            assert 0 < int(redis.ask("PTTL", name)[1:]) <= 600000
    with support.serving(tmp_path / "state", "--queue", redis.url, *ECHO) as server:
        output, _ = server.results(server.wait(batch_id))
        life.judge(output, lines)
        support.until(lambda: redis.packs() == 0)


def test_a_client_streams_from_a_node(tmp_path, redis):
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        support.until(lambda: server.call("GET", "/v1/models/smollm2")[0] == 200)
        status, data = server.call(
            "POST", "/v1/chat/completions", {
                "model": "smollm2", "stream": True,
                "messages": [{"role": "user", "content": "good morning"}]})
        assert status == 200
        assert data.rstrip().endswith(b"data: [DONE]")
        said = "".join(
            json.loads(row[6:])["choices"][0]["delta"].get("content") or ""
            for row in data.decode().splitlines()
            if row.startswith("data: {") and json.loads(row[6:])["choices"])
        assert said == "good morning"


def test_two_nodes_with_real_engines_answer_as_one_server_does(tmp_path, redis):
    lines = [
        support.request(f"line-{i}", f"Say {i} in words.", temperature=0, max_tokens=8)
        for i in range(24)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", "smollm2", "--threads", "1")
    assert done.returncode == 0, done.stderr
    wanted = [
        support.masked(json.loads(line)) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, "--model", "smollm2", "--threads", "1"), \
            Node(tmp_path, redis, "--model", "smollm2", "--threads", "1"):
        output, errors = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
        assert errors == []
        assert [support.masked(line) for line in output] == wanted


def test_an_upstream_can_be_the_worker_of_a_node(tmp_path, redis):
    lines = life.echo_lines(200)
    with support.serving(tmp_path / "far", *ECHO) as far, \
            support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, "--upstream", f"far={far.url}"):
        output, errors = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
        life.judge(output, lines)
        assert errors == []


def test_a_second_server_of_the_cluster_gets_no_node(tmp_path, redis):
    lines = life.echo_lines(100)
    with support.serving(tmp_path / "one", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        batch_id = server.create(support.jsonl(lines))["id"]
        with support.serving(tmp_path / "two", "--queue", redis.url) as other:
            support.until(lambda: "another server leads" in other.log_text())
            output, _ = server.results(server.wait(batch_id))
            life.judge(output, lines)
            assert "node_joined" not in other.log_text()


def test_a_server_that_wakes_behind_another_one_leads_no_more(tmp_path, redis):
    lines = life.echo_lines(60)
    with support.serving(tmp_path / "one", "--queue", redis.url) as first, \
            support.serving(tmp_path / "two", "--queue", redis.url) as second, \
            Node(tmp_path, redis, *ECHO):
        support.until(lambda: first.json("GET", "/v1/machine")["queue"]["up"])
        first.process.send_signal(signal.SIGSTOP)
        support.until(lambda: second.json("GET", "/v1/machine")["queue"]["up"])
        first.process.send_signal(signal.SIGCONT)
        support.until(lambda: "another server leads" in first.log_text())
        output, errors = second.results(second.wait(second.create(support.jsonl(lines))["id"]))
        life.judge(output, lines)
        assert errors == [] and not first.json("GET", "/v1/machine")["queue"]["up"]
        batch_id = first.create(support.jsonl(lines))["id"]
        assert second.stop() == 0
        # The cluster is free again: the first one takes the node, and its batch runs.
        output, _ = first.results(first.wait(batch_id))
        life.judge(output, lines)


@pytest.mark.parametrize("arguments, message", [
    ((), "--queue is missing"),
    (("--queue", "http://localhost"), "neither redis:// nor rediss://"),
    (("--queue", "redis://a:b@localhost"), "password"),
    (("--queue", "redis://localhost", "--queue-ca-file", "x"), "rediss://"),
    (("--queue", "redis://localhost", "--name", "a b"), "--name 'a b'"),
])
def test_wrong_options_of_a_node_are_named(arguments, message):
    done = support.quern("worker", *ECHO, *arguments)
    assert done.returncode == 2 and message in done.stderr, done.stderr

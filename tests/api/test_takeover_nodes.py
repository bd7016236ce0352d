# SPDX-License-Identifier: Apache-2.0
"""Nodes behind a queue (`quern worker --queue`) when the server's machine is lost, and a standby goes
on from the copy: nodes, queue, storage, server and standby are processes of their own."""
import pathlib, signal, sys, threading

import pytest

import object_storage, support
from cluster import Node, Proxy, Redis, lines_run, needs_redis
from test_copy import machine, running, storage  # fixtures

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

pytestmark = needs_redis
ECHO = life.ECHO


class Cluster:
    """A server with a copy, its standby, and two nodes, none of which knows of the other server."""

    def __init__(self, folder, machine, storage):
        self.redis = Redis(folder).start()
        self.one, self.two = (
            machine(name, "--queue", self.redis.url, model=()) for name in ("one", "two"))
        self.way = Proxy(storage.server.server_port)  # from the first one to the storage
        self.one.environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self.way.near_port}"
        self.one.start()
        self.two.stand_by()
        self.nodes = [Node(folder, self.redis, *ECHO) for _ in range(2)]
        support.until(lambda: self.ready(self.one) == 2)

    def ready(self, server):
        return [node["state"] for node in server.json("GET", "/v1/machine")["nodes"]].count("ready")

    def judge(self, batch_id, lines):
        """Each line once, with its own answer."""
        batch = self.two.wait(batch_id)
        output, errors = self.two.results(batch)
        life.judge(output, lines)
        assert batch["status"] == "completed" and errors == []

    def end(self):
        support.until(lambda: self.redis.packs() == 0)
        for node in self.nodes:
            assert node.stop() == 0
        assert self.two.stop() == 0
        assert self.redis.ask("KEYS", "{quern:*}:[wr]:*") == []
        support.fsck(self.two.state)

    def close(self):
        for node in self.nodes:
            node.__exit__()
        self.redis.__exit__()
        self.way.close()


@pytest.fixture
def cluster(machine, storage, tmp_path):
    made = Cluster(tmp_path, machine, storage)
    yield made
    made.close()


def slow_lines(count):
    """Every fifth takes a second or more, so that nodes have some when the server is lost."""
    lines = life.echo_lines(count)
    for line in lines[::5]:
        line["body"]["echo"] = {"each_ms": 150}
    return lines


def completed(server, batch_id):
    return server.batch(batch_id)["request_counts"]["completed"]


def test_nodes_go_on_with_the_standby_of_a_killed_server(cluster):
    one, two, lines = cluster.one, cluster.two, slow_lines(400)
    done = one.create(support.jsonl(life.echo_lines(60)))["id"]
    told = one.results(one.wait(done))
    running = one.create(support.jsonl(lines))["id"]
    support.until(lambda: completed(one, running) > 0)
    counted = completed(one, running)
    one.kill()
    two.take_over()
    assert two.results(two.batch(done)) == told
    assert completed(two, running) >= counted
    cluster.judge(running, lines)
    assert lines_run(cluster.two) == 60 + 400  # what nodes had is taken, and none has run twice
    again = two.create(support.jsonl(lines))["id"]
    cluster.judge(again, lines)
    cluster.end()


def kill_at_write(server, storage, number, how):
    """Kills the server at one of its next writes, before or after it takes effect."""
    reached = threading.Event()

    def at_write(own, start):
        if how == "after":
            b"".join(own())
        server.process.send_signal(signal.SIGKILL)
        reached.set()
        raise object_storage.Breaks

    good = ("PUT", "", lambda own, start: own())
    storage.answers = [good] * (number - 1) + [("PUT", "", at_write)]
    assert reached.wait(120)
    server.process.wait()


@pytest.mark.parametrize("number", support.drawn(range(1, 6), least=1))
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_server_that_is_killed_at_a_write_of_its_copy_loses_no_line(
        cluster, storage, number, how):
    lines = slow_lines(400)
    running = cluster.one.create(support.jsonl(lines))["id"]
    kill_at_write(cluster.one, storage, number, how)
    cluster.two.take_over()
    cluster.judge(running, lines)
    cluster.end()


@pytest.mark.parametrize("number", support.drawn(range(1, 5), least=1))
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_server_that_is_killed_while_it_ends_a_batch_publishes_it_once(
        cluster, storage, number, how):
    """The last result, the records in their order, and the end of the batch are a few writes."""
    one, lines = cluster.one, life.echo_lines(200)
    lines[-1]["body"]["echo"] = {"each_ms": 150}
    running = one.create(support.jsonl(lines))["id"]
    support.until(lambda: completed(one, running) >= 199)
    kill_at_write(one, storage, number, how)
    cluster.two.take_over()
    cluster.judge(running, lines)
    cluster.end()


def test_a_server_that_wakes_behind_its_standby_takes_nothing_from_the_queue(cluster):
    one, two, lines = cluster.one, cluster.two, slow_lines(400)
    running = one.create(support.jsonl(lines))["id"]
    support.until(lambda: completed(one, running) > 0)
    one.process.send_signal(signal.SIGSTOP)
    two.take_over()
    one.process.send_signal(signal.SIGCONT)
    assert one.process.wait(60) != 0
    cluster.judge(running, lines)
    assert "event=copy_fenced" in one.log_text()
    cluster.end()


def test_a_server_that_is_cut_off_from_its_copy_alone_does_not_take_the_queue_back(cluster):
    one, two, lines = cluster.one, cluster.two, slow_lines(400)
    running = one.create(support.jsonl(lines))["id"]
    support.until(lambda: completed(one, running) > 0)
    cluster.way.become("cut", None)
    one.clock.move(20)
    two.take_over()
    support.until(lambda: "another one may have taken over" in one.log_text())
    cluster.judge(running, lines)
    assert lines_run(cluster.two) == 400  # the time that was skipped asked no line back
    assert one.process.poll() is None
    cluster.way.become("good", None)
    assert one.process.wait(60) != 0 and "event=copy_fenced" in one.log_text()
    cluster.end()

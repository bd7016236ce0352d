# SPDX-License-Identifier: Apache-2.0
"""Nodes over a real Redis: lines that take a node's worker down, cancel, drain, other weights, TLS,
and a queue that is full of hostile bytes."""
import os, pathlib, random, signal, sys

import pytest

import support, upstream
from certificate import make_certificate
from cluster import Node, Proxy, Redis, lines_run, needs_redis
from metrics import Metrics

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

pytestmark = needs_redis
ECHO = ("--model", "smollm2=echo")
TINY = support.SHARED / "tiny/llama3"
PLAIN = ("--threads", "1", "--chat-template",
         "{% for message in messages %}{{ message.content }}{% endfor %}")
SEED = support.SEED


@pytest.fixture()
def redis(tmp_path):
    with Redis(tmp_path) as server:
        yield server


def nodes_of(server):
    return server.json("GET", "/v1/machine")["nodes"]


def metrics_of(server):
    return Metrics(server.call("GET", "/metrics")[1].decode())


def children(process):
    """Numbers of the processes that a process has started."""
    path = f"/proc/{process.pid}/task/{process.pid}/children"
    found = set(map(int, pathlib.Path(path).read_text().split()))
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        try:
            found |= set(map(int, (task / "children").read_text().split()))
        except OSError:
            pass  # the thread has ended
    return found


def test_lines_that_take_workers_down_fail_alone_and_all_others_count_once(tmp_path, redis):
    lines, bad = life.echo_lines(60), (7, 41, 42)
    for place in bad:
        lines[place]["body"]["echo"] = {"down": True}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO), Node(tmp_path, redis, *ECHO):
        batch = server.wait(server.create(support.jsonl(lines))["id"])
        assert batch["request_counts"] == {"total": 60, "completed": 57, "failed": 3}
        output, errors = server.results(batch)
        life.judge(output, [line for at, line in enumerate(lines) if at not in bad])
        assert [line["custom_id"] for line in errors] == [lines[at]["custom_id"] for at in bad]
        assert {line["response"]["body"]["error"]["code"] for line in errors} == {"worker_lost"}


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}")
def test_a_killed_engine_of_a_node_costs_no_line(tmp_path, redis):
    lines = [
        support.request(f"line-{i}", f"Say {i}.", model="m", temperature=0, max_tokens=64,
                        ignore_eos=True) for i in range(200)]
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, "--model", f"m={TINY}/model-q8_0.gguf", *PLAIN) as node:
        support.until(lambda: [one["state"] for one in nodes_of(server)] == ["ready"])
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        for number in children(node.process):
            os.kill(number, signal.SIGKILL)
        output, errors = server.results(server.wait(batch_id))
        assert errors == [] and [line["custom_id"] for line in output] == [
            line["custom_id"] for line in lines]
        support.until(lambda: nodes_of(server)[0]["restarts"] >= 1)
        assert nodes_of(server)[0]["id"] == node.name


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}")
def test_an_engine_of_a_node_that_stands_still_is_killed_and_costs_no_line(tmp_path, redis):
    clock = support.Clock(tmp_path)
    lines = [
        support.request(f"line-{i}", f"Say {i}.", model="m", temperature=0,
                        max_tokens=64 if i else 1, ignore_eos=True) for i in range(60)]
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, "--model", f"m={TINY}/model-q8_0.gguf", *PLAIN, "--hang-seconds",
                 "60", environment=clock.environment) as node:
        support.until(lambda: [one["state"] for one in nodes_of(server)] == ["ready"])
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        for number in children(node.process):
            os.kill(number, signal.SIGSTOP)
        log = tmp_path / "nodes.log"
        # In small steps: a node that sees seconds pass at once thinks that it was stopped itself.
        clock.until(lambda: "the engine made no progress for" in log.read_text(), 0.5)
        output, errors = server.results(server.wait(batch_id))
        assert errors == [] and [line["custom_id"] for line in output] == [
            line["custom_id"] for line in lines]
        support.until(lambda: nodes_of(server)[0]["restarts"] >= 1)


def test_a_cancelled_batch_ends_at_its_nodes(tmp_path, redis):
    lines = life.echo_lines(40)
    for line in lines[20:]:
        line["body"]["echo"] = {"hang": True}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] == 20)
        server.json("POST", f"/v1/batches/{batch_id}/cancel", {})
        batch = server.wait(batch_id)
        assert batch["status"] == "cancelled"
        life.judge(server.results(batch)[0], lines[:20])
        support.until(lambda: nodes_of(server)[0]["in_flight"] == 0)


def test_a_node_that_answers_nothing_does_not_hold_the_end_of_a_batch(tmp_path, redis):
    clock, lines = support.Clock(tmp_path), life.echo_lines(300)
    far = upstream.Upstream(models=("smollm2", ))
    far.behaviour.storm, far.behaviour.storm_until = "stall", float("inf")
    both = dict(environment=clock.environment)
    with support.serving(tmp_path / "state", "--queue", redis.url, **both) as server, \
            Node(tmp_path, redis, "--upstream", f"far={far.url}", **both) as slow, \
            Node(tmp_path, redis, *ECHO, **both):
        support.until(lambda: [one["state"] for one in nodes_of(server)] == ["ready"] * 2)
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: far.behaviour.held > 0)
        clock.until(lambda: server.batch(batch_id)["status"] in support.TERMINAL, 0.5)
        output, errors = server.results(server.batch(batch_id))
        life.judge(output, lines)
        assert errors == []
        log = server.log_text()
        assert "event=lines_recalled" in log or "event=line_overdue" in log
        assert "event=node_lost" not in log  # it beats all the time
        told = metrics_of(server)
        assert told.value("quern_lines_recalled_total") > 0
        assert told.value("quern_node_results_total", node=slow.name) < 300
        support.until(lambda: {one["id"]: one["in_flight"] for one in nodes_of(server)
                               }[slow.name] == 0)
    far.stop()


def test_a_node_beyond_all_seats_says_so_and_gets_the_next_free_one(tmp_path, redis):
    """Upstreams that nobody answers for have seats, too."""
    away = [word for at in range(12) for word in ("--upstream", f"u{at}=http://127.0.0.1:9")]
    with support.serving(tmp_path / "state", "--queue", redis.url) as server:
        others = [Node(tmp_path, redis, *away) for _ in range(4)]
        support.until(lambda: [one["workers"] for one in nodes_of(server)] == [12] * 4)
        with Node(tmp_path, redis, *ECHO, *away[:2]) as late:
            def state():
                return {one["id"]: (one["state"], one["text"]) for one in nodes_of(server)}[late.name]
            support.until(lambda: late.name in [one["id"] for one in nodes_of(server)])
            assert state() == ("loading", "all 48 seats for workers of nodes are taken")
            assert f"event=no_seat node={late.name} error=\"2 of its workers get no work" in (
                server.log_text())
            assert others[0].stop() == 0
            support.until(lambda: state()[0] == "ready")
            lines = life.echo_lines(20)
            output, errors = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
            life.judge(output, lines)
            assert errors == [] and f"event=node_seated node={late.name} workers=2 seats=2" in (
                server.log_text())
            assert late.stop() == 0
        for other in others[1:]:
            assert other.stop() == 0


def test_a_queue_that_is_away_at_the_end_of_a_batch_makes_no_line_run_twice(tmp_path, redis):
    """Answers wait at the nodes meanwhile, however old their lines are."""
    clock, way, lines = support.Clock(tmp_path), Proxy(redis.port), life.echo_lines(40)
    for line in lines[::4]:
        line["body"]["echo"] = {"each_ms": 100}
    with support.serving(tmp_path / "state", "--queue", way.url,
                         environment=clock.environment) as server, \
            Node(tmp_path, redis, *ECHO), Node(tmp_path, redis, *ECHO):
        support.until(lambda: [one["state"] for one in nodes_of(server)] == ["ready"] * 2)
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        way.become("cut", None)
        support.until(lambda: "event=queue_lost" in server.log_text())
        begun_s = clock.now()
        clock.until(lambda: clock.now() > begun_s + 60, 1)
        way.become("good", None)
        output, errors = server.results(server.wait(batch_id))
        life.judge(output, lines)
        assert errors == [] and lines_run(server) == 40
    way.close()


def test_a_node_that_drains_finishes_what_it_has_begun(tmp_path, redis):
    lines = life.echo_lines(30)
    for line in lines:
        line["body"]["echo"] = {"each_ms": 30}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO, "--drain-seconds", "60") as node:
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        assert node.stop() == 0
        support.until(lambda: nodes_of(server) == [])
        # An echo begins all that it has: each line was finished within the grace time.
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] == 30)
        output, errors = server.results(server.wait(batch_id))
        life.judge(output, lines)
        queue = server.json("GET", "/v1/machine")["queue"]
        assert errors == [] and queue["returned"] == 0 and queue["nodes_lost"] == 0


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}")
def test_nodes_with_other_weights_of_one_name_are_not_mixed(tmp_path, redis):
    files = sorted(TINY.glob("model-*.gguf"))[:2]
    assert len(files) == 2, "two quantizations of one model"
    lines = [support.request(f"line-{i}", f"Say {i}.", model="m", max_tokens=2, temperature=0)
             for i in range(8)]
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, "--model", f"m={files[0]}", *PLAIN) as one:
        support.until(lambda: [node["state"] for node in nodes_of(server)] == ["ready"])
        with Node(tmp_path, redis, "--model", f"m={files[1]}", *PLAIN) as two, \
                Node(tmp_path, redis, "--model", f"m={files[0]}", *PLAIN) as three:
            support.until(lambda: [node["state"] for node in nodes_of(server)] == ["ready"] * 3)
            states = {node["id"]: node for node in nodes_of(server)}
            # Under its file's own name it stays.
            assert states[two.name]["models"] == [files[1].stem]
            assert "m" in states[three.name]["models"] and states[three.name]["text"] is None
            assert states[two.name]["text"] in (
                f"its weights of 'm' differ from those of the node {name}"
                for name in (one.name, three.name))
            output, errors = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
            assert errors == [] and len(output) == 8
            states = {node["id"]: node for node in nodes_of(server)}
            assert states[two.name]["results"] == 0
        assert "event=weights_differ" in server.log_text()


def test_a_full_queue_costs_no_line(tmp_path, redis):
    lines = life.echo_lines(400, words=60)
    for line in lines:
        line["body"]["echo"] = {"each_ms": 3}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        assert redis.ask("CONFIG", "SET", "maxmemory", "1") == b"+OK"
        log = tmp_path / "nodes.log"
        support.until(lambda: "OOM" in log.read_text())
        assert redis.ask("CONFIG", "SET", "maxmemory", "256mb") == b"+OK"
        output, errors = server.results(server.wait(batch_id))
        life.judge(output, lines)
        assert errors == []


def test_nodes_are_not_missed_while_the_queue_takes_no_beat(tmp_path, redis):
    lines = life.echo_lines(40)
    for line in lines:
        line["body"]["echo"] = {"delay_ms": 20000}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(
            lambda: [node["running"] + node["waiting"] for node in nodes_of(server)] == [40])
        assert redis.ask("CONFIG", "SET", "maxmemory", "1") == b"+OK"
        # Its beats have the age of the last one that was taken, for longer than a node may be
        # silent.
        support.until(lambda: [node["beat_age_s"] > 17 for node in nodes_of(server)] == [True])
        assert redis.ask("CONFIG", "SET", "maxmemory", "256mb") == b"+OK"
        output, errors = server.results(server.wait(batch_id))
        life.judge(output, lines)
        queue = server.json("GET", "/v1/machine")["queue"]
        assert errors == [] and queue["nodes_lost"] == 0 and queue["returned"] == 0


def test_a_node_and_a_server_of_unknown_releases_are_refused_in_a_sentence(tmp_path, redis):
    own = "{quern:test}:"
    with Node(tmp_path, redis, *ECHO) as node:
        redis.ask("XADD", f"{own}w:{node.name}", "1-1", "p", b"\x02" + bytes(60))
        log = tmp_path / "nodes.log"
        support.until(lambda: "event=server_refused" in log.read_text())
        assert "this node reads layout 1" in log.read_text()
        redis.ask("SADD", own + "nodes", "later-1")
        redis.ask("SET", own + "node:later-1", b"\x02" + bytes(200))
        with support.serving(tmp_path / "state", "--queue", redis.url) as server:
            support.until(lambda: "event=node_refused node=later-1" in server.log_text())
            lines = life.echo_lines(20)
            output, _ = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
            life.judge(output, lines)
            assert [one["id"] for one in nodes_of(server)] == [node.name]


def test_a_line_of_many_mebibytes_crosses_the_queue(tmp_path, redis):
    lines = life.echo_lines(4)
    lines[1]["body"]["messages"][-1]["content"] = "stone " * (2 << 20)
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        output, errors = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
        life.judge(output, lines)
        assert errors == [] and server.json("GET", "/v1/machine")["queue"]["returned"] == 0


@pytest.mark.skipif(life.SCALE < 1, reason="a gigabyte on the disk: QUERN_KILLS=1, make nightly")
def test_answers_of_sixty_mebibytes_cross_the_queue_in_reads_that_hold_them(tmp_path):
    """Five of them are more than a reply may have."""
    count, inputs = 6, 2900
    lines = [{
        "custom_id": f"line-{i}", "method": "POST", "url": "/v1/embeddings",
        "body": {"model": "smollm2", "input": [f"{i}"] * inputs, "dimensions": 4096,
                 "encoding_format": "base64", "echo": {"delay_ms": 0 if i else 15000}}}
             for i in range(count)]
    with Redis(tmp_path, "--maxmemory", "900mb") as redis, \
            support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO):
        batch_id = server.create(support.jsonl(lines), endpoint="/v1/embeddings")["id"]
        # All of them wait in the queue when the server reads again.
        support.until(lambda: [one["waiting"] for one in nodes_of(server)] == [count])
        os.kill(server.process.pid, signal.SIGSTOP)
        support.until(lambda: redis.packs() >= count)
        os.kill(server.process.pid, signal.SIGCONT)
        batch = server.wait(batch_id)
        assert batch["request_counts"] == {"total": count, "completed": count, "failed": 0}
        support.until(lambda: redis.packs() == 0)
        status, data = server.call("GET", f"/v1/files/{batch['output_file_id']}/content")
        assert status == 200 and len(data) > count * (60 << 20)


def test_a_queue_with_tls_is_trusted_by_its_authority_alone(tmp_path):
    certificate, key = make_certificate(tmp_path, "queue")
    (tmp_path / "own.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
    (tmp_path / "own.pem").chmod(0o600)
    lines = life.echo_lines(100)
    with support.reserved_port() as port, \
            Redis(tmp_path, "--tls-port", str(port), "--tls-cert-file", str(certificate),
                  "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)):
        url = f"rediss://127.0.0.1:{port}/?cluster=test"
        place = type("Place", (), {"url": url})
        trust = ("--queue-ca-file", certificate, "--queue-cert-file", tmp_path / "own.pem")
        with support.serving(tmp_path / "state", "--queue", url, *map(str, trust)) as server:
            with Node(tmp_path, place, *ECHO), \
                    Node(tmp_path, place, *ECHO, "--queue-ca-file", certificate):
                # One does not trust the certificate, the other has none of its own.
                log = tmp_path / "nodes.log"
                support.until(lambda: log.read_text().count("event=queue_lost") >= 2)
                assert nodes_of(server) == []
            with Node(tmp_path, place, *ECHO, *trust):
                output, _ = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
                life.judge(output, lines)


def poison(redis, draw):
    """Something hostile in one of the cluster's keys."""
    own = "{quern:test}:"
    names = [name.decode() for name in redis.ask("KEYS", own + "*") or []]
    key = draw.choice(names + [own + "node:" + draw.choice(["ghost", "a b", "x" * 300, "\x1b[2J"])])
    junk = bytes(draw.randrange(256) for _ in range(draw.choice([0, 1, 23, 24, 25, 60, 400])))
    # The head of a pack or a beat that looks right, so that more of a reader is reached.
    junk = draw.choice([b"", b"\x01", b"\x01" + bytes(7)]) + junk
    what = draw.randrange(6)
    if what == 0:
        redis.ask("SADD", own + "nodes", draw.choice([junk, "ghost", "..", "a/b"]))
    elif what == 1 and ":r:" in key or ":w:" in key:
        redis.ask("XADD", key, "*", draw.choice(["p", "n", "q"]), junk)
        redis.ask("XADD", key, "*", "n", draw.choice(["ghost", junk]), "p", junk)
    elif what == 2:
        redis.ask("SET", own + "node:" + draw.choice(["ghost", "other"]), junk)
    elif what == 3:
        redis.ask("DEL", key)
        redis.ask("LPUSH", key, junk)  # a list, which no key is
    elif what == 4:
        redis.ask("SET", key, junk)
    else:
        redis.ask("SET", own + "gen", junk)


def test_hostile_bytes_in_any_key_make_no_wrong_record_and_end_nobody(tmp_path, redis):
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    lines = life.echo_lines(300)
    for line in lines:
        line["body"]["echo"] = {"each_ms": 5}
    with support.serving(tmp_path / "state", "--queue", redis.url) as server, \
            Node(tmp_path, redis, *ECHO) as node:
        batch_id = server.create(support.jsonl(lines))["id"]
        support.until(lambda: server.batch(batch_id)["request_counts"]["completed"] > 0)
        for _ in range(150):
            poison(redis, draw)
        assert node.process.poll() is None and server.json("GET", "/v1/machine")["queue"]
        # What was put there is gone; the two meet again.
        assert redis.ask("FLUSHALL") == b"+OK"
        output, errors = server.results(server.wait(batch_id))
        life.judge(output, lines)
        assert errors == []
        assert node.stop() == 0
    support.fsck(tmp_path / "state")

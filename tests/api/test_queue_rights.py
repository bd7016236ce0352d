# SPDX-License-Identifier: Apache-2.0
"""The rights of the two sides at a real Redis server: quern doctor shows the commands, they are
enough, and a node cannot do more."""
import json, os, pathlib, re, sys

import pytest

import support
from cluster import Node, Redis, needs_redis

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

pytestmark = needs_redis
ECHO = ("--model", "smollm2=echo")
OWN = "{quern:test}:"


@pytest.fixture()
def redis(tmp_path):
    with Redis(tmp_path) as server:
        yield server


def look(folder, url, *arguments):
    """Findings of `quern doctor --redis URL` about the queue: verdict, text, remedy."""
    config = pathlib.Path(folder) / "config"
    config.write_text("model = m=echo\nport = 0\n")
    done = support.quern("doctor", "--config", config, "--state-dir", pathlib.Path(folder) / "none",
                         "--json", "--redis", url, *arguments, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    return [(finding["verdict"], finding["text"], finding["remedy"])
            for finding in json.loads(done.stdout)["findings"] if finding["area"] == "queue"]


def make_users(folder, redis):
    """Runs the commands that the doctor shows; the files of both passwords by name of the user."""
    files = {}
    for _, _, remedy in look(folder, redis.url):
        if not (remedy or "").startswith("ACL SETUSER"):
            continue
        name = remedy.split()[2]
        assert redis.ask(*remedy.replace("SECRET", f"hush-{name}").split()) == b"+OK", remedy
        files[name] = pathlib.Path(folder) / f"password-{name}"
        files[name].write_text(f"hush-{name}\n")
        files[name].chmod(0o600)
    assert sorted(files) == ["node", "server"]
    return files


def as_user(redis, name):
    return redis.url.replace("redis://", f"redis://{name}@")


def test_the_rights_that_the_doctor_shows_are_enough_for_both_sides(tmp_path, redis):
    files = make_users(tmp_path, redis)
    assert redis.ask("ACL", "SETUSER", "default", "off") == b"+OK"
    lines = life.echo_lines(200)
    with support.serving(tmp_path / "state", "--queue", as_user(redis, "server"),
                         "--queue-password-file", files["server"]) as server:
        place = type("Place", (), {"url": as_user(redis, "node")})
        with Node(tmp_path, place, *ECHO, "--queue-password-file", files["node"]) as node:
            output, _ = server.results(server.wait(server.create(support.jsonl(lines))["id"]))
            life.judge(output, lines)
            assert node.stop() == 0
        support.until(lambda: server.json("GET", "/v1/machine")["nodes"] == [])
        assert server.stop() == 0
    text = (tmp_path / "nodes.log").read_text() + server.log_text()
    assert "NOPERM" not in text and "hush" not in text


@pytest.mark.parametrize("words", [
    ("XADD", OWN + "w:other", "*", "p", "work"),
    ("DEL", OWN + "w:other"),
    ("XTRIM", OWN + "w:other", "MAXLEN", "0"),
    ("XREAD", "STREAMS", OWN + "r:1", "0"),
    ("XRANGE", OWN + "r:1", "-", "+"),
    ("XLEN", OWN + "r:1"),
    ("XDEL", OWN + "r:1", "1-1"),
    ("DEL", OWN + "r:1"),
    ("GET", OWN + "node:other"),
    ("SMEMBERS", OWN + "nodes"),
    ("SET", OWN + "server", "me 9"),
    ("GET", OWN + "server"),
    ("SET", OWN + "gen", "x"),
    ("DEL", OWN + "gen"),
    ("XREAD", "STREAMS", "{quern:other}:w:node", "0"),
    ("XADD", "{quern:other}:r:1", "*", "p", "x"),
    ("GET", "{quern:other}:gen"),
    ("SET", "{quern:other}:node:a", "x"),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("FLUSHALL", ),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("EVAL", "return 1", "0"),
    ("MONITOR", ),
    ("PUBLISH", "a", "b"),
    ("INFO", ),
], ids=lambda words: "-".join(re.sub(r"\W+", "", word) for word in words[:2]))
def test_a_node_can_neither_add_work_nor_read_results_nor_see_another_cluster(
        tmp_path_factory, users, words):
    redis = users
    answer = redis.ask_as("node", "hush-node", *words)
    assert answer is not None and answer.startswith(b"-NOPERM"), answer


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    folder = tmp_path_factory.mktemp("users")
    with Redis(folder) as redis:
        make_users(folder, redis)
        for key in (OWN, "{quern:other}:"):
            assert redis.ask("XADD", key + "r:1", "1-1", "p", "secret") == b"1-1"
            assert redis.ask("SET", key + "gen", "1") == b"+OK"
        # What a node may do works, so that the refusals below are not those of a wrong password.
        assert redis.ask_as("node", "hush-node", "GET", OWN + "gen") == b"1"
        assert redis.ask_as("node", "hush-node", "XADD", OWN + "r:1", "*", "p", "x")[:1] != b"-"
        yield redis


def test_the_doctor_names_what_is_wrong_with_a_queue(tmp_path, redis):
    found = look(tmp_path, redis.url)
    assert any(verdict == "good" and " runs " in text for verdict, text, _ in found)
    assert ("hint", "maxmemory is 256 MiB; requests in flight may take 256 MiB, and results that "
            "wait come on top", "raise --maxmemory, or lower --queue-memory-bytes of the server") in found
    assert any("no server leads the cluster 'test' now" in text for _, text, _ in found)
    assert redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru") == b"+OK"
    assert redis.ask("CONFIG", "SET", "appendonly", "yes") == b"+OK"
    found = look(tmp_path, redis.url)
    assert any(verdict == "wrong" and "allkeys-lru" in text for verdict, text, _ in found)
    assert any(verdict == "hint" and "append-only" in text for verdict, text, _ in found)
    assert redis.ask("CONFIG", "SET", "maxmemory", "0") == b"+OK"
    assert redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction") == b"+OK"
    assert any("maxmemory is not set" in text for _, text, _ in look(tmp_path, redis.url))
    (tmp_path / "wrong").write_text("guess\n")
    (tmp_path / "wrong").chmod(0o600)
    found = look(tmp_path, as_user(redis, "nobody"), "--queue-password-file", tmp_path / "wrong")
    assert [verdict for verdict, _, _ in found] == ["wrong"] and "refuses" in found[0][1]
    assert "guess" not in str(found)
    redis.kill()
    found = look(tmp_path, redis.url)
    assert [verdict for verdict, _, _ in found] == ["wrong"]
    found = look(tmp_path, "http://x")
    assert [verdict for verdict, _, _ in found] == ["wrong"] and "redis://" in found[0][1]

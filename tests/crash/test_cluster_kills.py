# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the server, of nodes and of Redis, FLUSHALL and lost streams, at random moments of
batches over a real Redis server. Afterwards every custom_id is there exactly once with its own
answer, fsck is clean, and nothing is left in the queue. After deaths of the server alone each line
has run once.

QUERN_KILLS scales the counts (1.0: 300 nodes, 100 servers, 200 FLUSHALLs, and 60 each of Redis,
paused nodes, lost streams, older copies and bad networks); QUERN_SEED repeats the draws."""
import random, signal, time

import pytest

import life, support
from cluster import Node, Proxy, Redis, Sniper, lines_run, needs_redis

pytestmark = needs_redis
SEED = support.SEED
LINES = 400


class Scene:
    """A server and two nodes, of which any may be dead."""

    def __init__(self, folder, seed):
        self.folder, self.rng = folder, random.Random(seed)
        self.redis = Redis(folder).start()
        self.sniper = Sniper(self.redis.port)
        self.server = life.Victim(folder / "state", "--queue", self.sniper.url)
        self.server.start()
        self.proxy = Proxy(self.redis.port)
        self.nodes = [self.node(), Node(folder, self.proxy, *life.ECHO)]

    def node(self):
        return Node(self.folder, self.redis, *life.ECHO)

    def end(self):
        for node in self.nodes:
            node.process.send_signal(signal.SIGCONT)
            assert node.stop() == 0
        assert self.server.stop() == 0
        assert self.redis.ask("KEYS", "{quern:*}:[wr]:*") == []
        self.proxy.close()
        self.sniper.close()
        self.redis.__exit__()
        support.fsck(self.folder / "state")


    # --- what is broken ---

    def kill_node(self):
        at = self.rng.randrange(2)
        self.nodes[at].kill()
        self.nodes[at] = self.node()

    def kill_server(self):
        self.server.kill()
        self.server.start()

    def flush(self):
        assert self.redis.ask("FLUSHALL") == b"+OK"

    def kill_redis(self):
        self.redis.kill()
        time.sleep(self.rng.random())
        self.redis.start()

    def pause_node(self):
        """For so long that it is missed, or only for a moment."""
        node = self.rng.choice(self.nodes)
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.choice([0.2, 1, 17]))
        node.process.send_signal(signal.SIGCONT)

    def older_copy(self):
        """Redis comes back as it was a moment before: packs are lost, others are there again."""
        assert self.redis.ask("SAVE") == b"+OK"
        time.sleep(self.rng.random() * 0.4)
        self.redis.kill()
        self.redis.start()
        (self.folder / "dump.rdb").unlink()

    def bad_network(self):
        """Both ways of a node, cut, or without a byte for longer than a timeout, or with other
        bytes."""
        self.proxy.become(self.rng.choice(["cut", "still", "slow", "corrupt"]), self.rng)
        time.sleep(self.rng.choice([0.2, 1, 7]))
        self.proxy.become("good", self.rng)

    def lose_streams(self):
        for name in self.redis.ask("KEYS", self.rng.choice(["{quern:*}:w:*", "{quern:*}:r:*"])):
            self.redis.ask("DEL", name)


def lines_of(each_ms):
    lines = life.echo_lines(LINES)
    for line in lines:
        line["body"]["echo"] = {"each_ms": each_ms}
    return lines


@pytest.mark.parametrize("what, count", [("kill_node", 300), ("kill_server", 100), ("flush", 200),
                                         ("kill_redis", 60), ("pause_node", 60),
                                         ("lose_streams", 60), ("older_copy", 60),
                                         ("bad_network", 60)])
def test_a_batch_ends_as_if_nothing_had_happened(tmp_path, what, count):
    print(f"seed {SEED}")
    each_ms = 25 if what == "flush" else 3
    lines, scene, done, begun = lines_of(each_ms), Scene(tmp_path, f"{SEED} {what}"), 0, 0
    wanted = min(life.scaled(count), 4) if life.SCALE < 1 else count  # a batch in the gate
    while done < wanted:
        batch_id, begun = scene.server.create(support.jsonl(lines))["id"], begun + LINES
        for _ in range(min(4, wanted - done)):
            time.sleep(scene.rng.random() * 0.5)
            getattr(scene, what)()
            done += 1
        batch = scene.server.wait(batch_id)
        assert batch["status"] == "completed", f"seed {SEED}"
        output, errors = scene.server.results(batch)
        life.judge(output, lines)
        assert errors == [], f"seed {SEED}"
        if what == "kill_server":  # the next one adopts what nodes have
            assert lines_run(scene.server) == begun, f"seed {SEED}"
        if what == "flush":  # two seconds of the results of both nodes
            again = lines_run(scene.server) - begun
            assert 0 <= again <= done * 2 * 2000 // each_ms, f"seed {SEED}"
    support.until(lambda: scene.redis.packs() == 0)
    scene.end()


def test_a_server_that_is_killed_at_any_command_repeats_no_line(tmp_path):
    """At each command from its start on, while nodes have lines of the server before."""
    print(f"seed {SEED}")
    scene, begun = Scene(tmp_path, f"{SEED} command"), 0
    places = life.spread(1, 100, life.scaled(100))
    if life.SCALE < 1:
        places = sorted(scene.rng.sample(range(1, 41), min(life.scaled(100), 4)))
    lines = lines_of(3)
    for place in places:
        batch_id, begun = scene.server.create(support.jsonl(lines))["id"], begun + LINES
        support.until(lambda: scene.server.batch(batch_id)["request_counts"]["completed"] > 0)
        scene.server.kill()
        scene.sniper.arm(place, lambda: scene.server.process.kill())
        batch = None
        while not batch:
            try:
                if scene.server.process.poll() is not None:
                    time.sleep(1.1)  # the epoch is another one, as it is a second
                    scene.server.start()
                batch = scene.server.wait(batch_id)
            except life.Died:
                scene.server.process.wait()
        scene.sniper.arm(0, None)
        output, errors = scene.server.results(batch)
        life.judge(output, lines)
        assert errors == [], f"seed {SEED}, command {place}"
        assert lines_run(scene.server) == begun, f"seed {SEED}, command {place}"
    support.until(lambda: scene.redis.packs() == 0)
    scene.end()

# SPDX-License-Identifier: Apache-2.0
"""Nodes that are killed while lines are in flight: those lines run again and no others, and no
result is seen twice. Each node has an upstream of its own, which counts the requests of each line
and says in each answer whose it is."""
import contextlib, random, time

import pytest

import support, upstream
from cluster import Node, Redis, needs_redis

pytestmark = needs_redis
LINES, NODES = 500, 4


class Begun(list):
    """The texts of requests as they come, and when."""

    def __init__(self):
        super().__init__()
        self.times = {}

    def append(self, text):
        super().append(text)
        self.times.setdefault(text, []).append(time.monotonic())


class Place:
    """A node and its upstream."""

    def __init__(self, folder, redis, number):
        self.number, self.killed_at = number, None
        self.far = upstream.Upstream(models=("smollm2", ), service_ms=150)
        self.far.behaviour.answer, self.far.behaviour.order = self.answer, Begun()
        self.node = Node(folder, redis, "--upstream", f"far={self.far.url}")

    def answer(self, request, text):
        return {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1,
            "model": request["model"], "choices": [{
                "index": 0, "message": {"role": "assistant", "content": f"{self.number} of {text}"},
                "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}

    @property
    def begun(self):
        return self.far.behaviour.order

    def kill(self):
        self.node.kill()
        self.killed_at = time.monotonic()

    def close(self):
        self.node.__exit__()
        self.far.stop()


@pytest.fixture()
def redis(tmp_path):
    with Redis(tmp_path) as server:
        yield server


def runs_of(places, text):
    """Where the line was begun, in order: (when, place)."""
    return sorted((at, place.number) for place in places for at in place.begun.times.get(text, ()))


def check(places, text, content):
    """All places but the last one where it ran are of nodes that were killed with the line in
    flight, and the answer is that of the last."""
    runs = runs_of(places, text)
    told = f"{text}: {runs}, answered as {content!r}"
    assert content == f"{runs[-1][1]} of {text}", told
    for (_, number), (again, _) in zip(runs, runs[1:]):
        assert places[number].killed_at and again > places[number].killed_at, told


def test_exactly_the_lines_in_flight_at_killed_nodes_run_again(tmp_path, redis):
    rng = random.Random(support.SEED)
    texts = [f"question {i}" for i in range(LINES)]
    lines = [support.request(f"line-{i}", text) for i, text in enumerate(texts)]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(support.serving(tmp_path / "state", "--queue", redis.url))
        places = [Place(tmp_path, redis, number) for number in range(NODES)]
        for place in places:
            stack.callback(place.close)
        support.until(lambda: [one["state"] for one in server.json("GET", "/v1/machine")["nodes"]
                               ] == ["ready"] * NODES)
        batch_id = server.create(support.jsonl(lines))["id"]
        for place in rng.sample(places, NODES - 1):  # one stays
            least = rng.randrange(1, 40)
            support.until(lambda place=place, least=least: len(place.begun) >= least, apart=0.002)
            place.kill()
        batch = server.wait(batch_id)
        output, errors = server.results(batch)
        assert errors == [] and batch["request_counts"] == {
            "total": LINES, "completed": LINES, "failed": 0}
        assert [line["custom_id"] for line in output] == [line["custom_id"] for line in lines]
        for text, line in zip(texts, output):
            check(places, text, line["response"]["body"]["choices"][0]["message"]["content"])
        again = sum(len(runs_of(places, text)) - 1 for text in texts)
        print(f"{again} of {LINES} lines ran again, "
              f"{[(place.number, len(place.begun)) for place in places]}")
        assert again > 0
        support.until(lambda: redis.packs() == 0)
    support.fsck(tmp_path / "state")

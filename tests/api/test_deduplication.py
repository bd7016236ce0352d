# SPDX-License-Identifier: Apache-2.0
"""Equal requests whose answer is determined run once, inside a batch and across batches; nothing
else is ever merged."""
import json, random

import support


def metric(server, name):
    for line in server.call("GET", "/metrics")[1].decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def ran(server):
    """Requests that the echo worker answered."""
    return metric(server, 'quern_engine_steps_total{engine="0"}')


def run(server, requests):
    batch = server.wait(server.create(support.jsonl(requests))["id"])
    assert batch["status"] == "completed" and batch["request_counts"]["failed"] == 0
    output, errors = server.results(batch)
    assert [line["custom_id"] for line in output] == [r["custom_id"]
                                                      for r in requests] and errors == []
    return batch, output


def text_of(line):
    return line["response"]["body"]["choices"][0]["message"]["content"]


def test_equal_requests_of_a_batch_run_once_and_each_gets_the_answer(tmp_path):
    texts = [f"candidate {i}"
             for i in range(400)] + [f"candidate {i * 7 % 400}" for i in range(100)]
    random.Random(1).shuffle(texts)
    requests = [
        support.request(f"id-{i}", text, model="echo", temperature=0)
        for i, text in enumerate(texts)]
    with support.serving(tmp_path / "state", "--model", "echo") as server:
        batch, output = run(server, requests)
        assert [text_of(line) for line in output] == texts
        assert ran(server) == 400
        usage, bodies = batch["usage"], [line["response"]["body"]["usage"] for line in output]
        assert usage["input_tokens"] == sum(
            u["prompt_tokens"] for u in bodies), "the sum over the bodies"
        reused = usage["input_tokens_details"]["deduplicated_tokens"]
        assert 0 < reused < usage["input_tokens"] and reused == metric(
            server, 'quern_deduplicated_tokens_total{type="input"}')
        assert metric(server, "quern_lines_deduplicated_total") == 100
        assert len({line["id"]
                    for line in output}) == len({line["response"]["request_id"]
                                                 for line in output}) == 500
    support.fsck(tmp_path / "state")


def test_the_next_batch_computes_nothing_also_after_a_restart(tmp_path):
    requests = [
        support.request(f"id-{i}", f"text {i}", model="echo", temperature=0) for i in range(200)]
    with support.serving(tmp_path / "state", "--model", "echo") as server:
        first = run(server, requests)[1]
        assert ran(server) == 200
        again = [
            {**r, "custom_id": "b" + r["custom_id"], "body": {"user": "someone else", **r["body"]}}
            for r in requests]
        assert [text_of(line) for line in run(server, again)[1]] == [
            text_of(line) for line in first]
        assert ran(server) == 200
    with support.serving(tmp_path / "state", "--model", "echo") as server:
        batch, output = run(server, requests)
        assert [text_of(line) for line in output] == [text_of(line) for line in first]
        assert ran(server) == 0
        usage = batch["usage"]
        assert usage["output_tokens_details"]["deduplicated_tokens"] == usage["output_tokens"] > 0
        stored = server.batch(batch["id"])["usage"]
        assert stored == usage
    support.fsck(tmp_path / "state")


def test_sampled_requests_and_near_duplicates_never_merge(tmp_path):
    near = [{"temperature": 0}, {"temperature": 0, "seed": 1}, {"temperature": 1, "seed": 1}, {
        "temperature": 1, "seed": 2}, {"temperature": 0, "max_tokens": 5}, {
            "temperature": 0, "max_tokens": 50}, {"temperature": 0, "stop": ["x"]}, {
                "temperature": 0, "stop": "x"}, {"temperature": 0, "top_p": 0.5}]
    requests = [
        support.request(f"near-{i}", "the same text", model="echo", **body)
        for i, body in enumerate(near)]
    for i, text in enumerate([
            "the same text ", " the same text", "the  same text", "The same text",
            "the same\u00a0text", "the same text\n"]):
        requests.append(support.request(f"text-{i}", text, model="echo", temperature=0))
    requests += [
        support.request(f"sampled-{i}", "the same text", model="echo", temperature=0.7)
        for i in range(20)]
    requests += [support.request(f"default-{i}", "the same text", model="echo") for i in range(20)]
    with support.serving(tmp_path / "state", "--model", "echo") as server:
        output = run(server, requests)[1]
        assert ran(server) == len(requests)
        for request, line in zip(requests, output):
            assert text_of(line).startswith(request["body"]["messages"][0]["content"][:5])


def test_the_switch_turns_it_off(tmp_path):
    requests = [
        support.request(f"id-{i}", "one text", model="echo", temperature=0) for i in range(50)]
    with support.serving(tmp_path / "state", "--model", "echo", "--result-cache-bytes",
                         "0") as server:
        run(server, requests)
        assert ran(server) == 50
        assert metric(server, "quern_lines_deduplicated_total") == 0


def test_followers_of_a_leader_that_is_cancelled_or_killed_are_not_lost(tmp_path):
    """A hundred equal lines wait for one that takes its time; the server is killed meanwhile, then
    cancelled."""
    clock, slow = support.Clock(tmp_path), {"echo": {"delay_ms": 600000}}
    requests = [
        support.request(f"id-{i}", "one slow text", model="echo", temperature=0, **slow)
        for i in range(100)]
    state = tmp_path / "state"
    with support.serving(state, "--model", "echo") as server:
        batch = server.create(support.jsonl(requests))["id"]
        server.wait(batch, until=("in_progress",))
        server.kill()
    support.fsck(state)
    with support.serving(state, "--model", "echo", environment=clock.environment) as server:
        clock.until(lambda: server.batch(batch)["status"] in support.TERMINAL, 60)
        ended = server.batch(batch)
        assert ended["request_counts"] == {"total": 100, "completed": 100, "failed": 0}
        assert ran(server) == 1
        other = [{**r, "body": {**r["body"], "seed": 5}} for r in requests]
        second = server.create(support.jsonl(other))["id"]
        server.wait(second, until=("in_progress",))
        server.json("POST", f"/v1/batches/{second}/cancel", {})
        ended = server.wait(second)
        output, errors = server.results(ended)
        assert ended["status"] == "cancelled" and len(output) + len(errors) == 100
    support.fsck(state)


def test_a_fifth_of_duplicates_saves_a_fifth_of_the_tokens_of_a_real_model(tmp_path):
    texts = [
        f"Write one sentence about the number {i} and a person called {name}."
        for i, name in enumerate("Ada Bob Cyd Dan Eve Fay Gus Hal".split())]
    texts += texts[:2]
    requests = [
        support.request(f"id-{i}", text, temperature=0, max_tokens=20, ignore_eos=True)
        for i, text in enumerate(texts)]
    with support.serving(tmp_path / "state", "--model", "smollm2") as server:
        batch, output = run(server, requests)
        assert [text_of(line) for line in output[8:]] == [text_of(line) for line in output[:2]]
        usage = batch["usage"]
        reused = usage["input_tokens_details"]["deduplicated_tokens"] + usage[
            "output_tokens_details"]["deduplicated_tokens"]
        assert reused >= 0.19 * usage["total_tokens"]
        # The engine tells its figures once a second.
        support.until(
            lambda: metric(server, 'quern_engine_generated_tokens_total{engine="0"}') >= 160)
        assert metric(server,
                      'quern_engine_generated_tokens_total{engine="0"}') == 160, "eight of ten ran"

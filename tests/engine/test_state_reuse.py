# SPDX-License-Identifier: Apache-2.0
"""Prompts that share a beginning, on models with states: each beginning is computed once, and every
answer has the tokens of a run in which nothing is shared."""
import json, random, re

import pytest

import support

TINY = support.SHARED / "tiny_next"
pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")
TEXTS = max(20, round(100 * support.SHARE))  # per system prompt
# The most that is computed, as a share of the least. With fewer texts the ends of beginnings inside
# a block, which are computed again, weigh more.
MOST = 1.05 if TEXTS >= 100 else 1.1
SEED = 11


def tokens(draw, count):
    return [draw.randrange(100, 400) for _ in range(count)]


def drawn(kind):
    """Shuffled prompts: five system prompts, two of which begin alike, each with TEXTS texts."""
    draw = random.Random(f"{SEED} {kind}")
    common, role = tokens(draw, 9), tokens(draw, 40)
    systems = [common + tokens(draw, draw.randint(90, 250)) for _ in range(3)]
    systems += [common + role + tokens(draw, 60) for _ in range(2)]
    prompts = [system + tokens(draw, draw.randint(20, 60)) for system in systems
               for _ in range(TEXTS)]
    draw.shuffle(prompts)
    return prompts


def least(prompts):
    """Tokens of the tree of prompts; the last token of a prompt is always computed."""
    tree, count = {}, 0
    for prompt in prompts:
        at, new = tree, 0
        for token in prompt:
            new += token not in at
            at = at.setdefault(token, {})
        count += max(new, 1)
    return count


def lines_of(prompts, **options):
    return support.jsonl([{
        "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 4 + i % 40 // 36 * 60,
            "ignore_eos": True, "return_token_ids": True, **options}}
                          for i, prompt in enumerate(prompts)])


def answers_of(lines):
    """Tokens of each answer, and the prompt tokens that were computed."""
    answers, computed = {}, 0
    for line in lines:
        body = line["response"]["body"]
        usage = body["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert 0 <= cached < usage["prompt_tokens"]
        computed += usage["prompt_tokens"] - cached
        answers[line["custom_id"]] = [choice["token_ids"] for choice in body["choices"]]
    return answers, computed


def run(folder, content, family, *arguments):
    (folder / "in.jsonl").write_bytes(content)
    done = support.quern("run", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl", "--model",
                         f"m={TINY / family}", "--device", "cpu", *arguments)
    assert done.returncode == 0, done.stderr
    text = (folder / "out.jsonl").read_text()
    (folder / "out.jsonl").unlink()
    return answers_of(map(json.loads, text.splitlines()))


@pytest.mark.parametrize("family", ["qwen3_5", "lfm2", "granitemoehybrid"])
def test_a_common_beginning_is_computed_once(tmp_path, family):
    prompts = drawn("once")
    content = lines_of(prompts)
    alone, all_tokens = run(tmp_path, content, family, "--no-enable-prefix-caching")
    assert len(alone) == len(prompts) and all_tokens == sum(map(len, prompts))
    for arguments in [(), ("--max-num-seqs", "6", "--max-num-batched-tokens", "40")]:
        shared, computed = run(tmp_path, content, family, *arguments)
        ratio = computed / least(prompts)
        print(f"{family} {arguments}: {computed} of {all_tokens} tokens computed, {ratio:.3f} of "
              "the least")
        assert shared == alone
        assert 1 <= ratio <= MOST


def test_answers_of_one_request_share_their_prompt(tmp_path):
    prompts = drawn("n")[:20]
    content = lines_of(prompts, n=3, temperature=1, seed=5)
    alone, _ = run(tmp_path, content, "qwen3_5", "--no-enable-prefix-caching")
    shared, _ = run(tmp_path, content, "qwen3_5")
    assert shared == alone and all(len(choices) == 3 for choices in shared.values())


def number(server, name):
    text = server.call("GET", "/metrics")[1].decode()
    return float(re.search(rf"^{name}{{\S* (\S+)$", text, re.M)[1])


def test_preempted_and_restarted_answers_are_the_same(tmp_path):
    """With so little memory for keys that a client's request preempts lines, and with a server that
    is killed in a second batch. An engine reports once a second, so that a batch may be over when
    its preemptions are told."""
    prompts, later = drawn("small")[:100], drawn("more")[:50]
    urgent = [prompt + prompts[0] for prompt in prompts[1:13]]
    content = lines_of(prompts + later + urgent, max_tokens=200)
    alone, _ = run(tmp_path, content, "qwen3_5", "--no-enable-prefix-caching")
    alone = [alone[str(i)] for i in range(len(alone))]
    server = support.Server(tmp_path / "state", "--model", f"m={TINY / 'qwen3_5'}", "--device",
                            "cpu", "--kv-cache-memory-bytes", "3MiB")

    def begun(prompts):
        batch = server.create(lines_of(prompts, max_tokens=200), endpoint="/v1/completions")["id"]
        support.until(lambda: server.batch(batch)["request_counts"]["completed"] > 0, apart=0.01)
        return batch

    def ended(batch):
        lines, errors = server.results(server.wait(batch))
        told = answers_of(lines)[0]
        assert not errors
        return [told[str(i)] for i in range(len(told))]

    server.start()
    try:
        batch = begun(prompts)
        for i, prompt in enumerate(urgent):
            body = json.loads(lines_of([prompt], max_tokens=200))["body"]
            answer = server.json("POST", "/v1/completions", body)
            assert [answer["choices"][0]["token_ids"]] == alone[len(prompts + later) + i]
        support.until(lambda: number(server, "quern_engine_preemptions_total") > 0 and
                      number(server, "quern_engine_state_hits_total") > 0)
        assert ended(batch) == alone[:len(prompts)]
        batch = begun(later)
        server.kill()
        server.start()
        assert ended(batch) == alone[len(prompts):len(prompts + later)]
    finally:
        server.stop()

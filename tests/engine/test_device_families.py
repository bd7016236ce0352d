# SPDX-License-Identifier: Apache-2.0
"""Every family that a GPU computes, dense or with experts, on the device of the tests
(tests/gpu/plain_gpu.c), beside the CPU in float32: windows, caps, factors, norms of heads, biases
and stretched rotations come to a GPU as numbers of its program. Each family is a tiny model in
which leaving one of them out moves a logit by a few tenths (test_families.py)."""
import json, shutil

import pytest

import gguf_of, support
import test_next_families
from test_families import HERE, SHARED, TINY, cases_of

FAMILIES = [
    "deepseek_v2", "deepseek_v2-groups", "glm4_moe_lite", "falcon_h1", "falcon_h1-norm", "gemma", "gemma2", "glm4", "glm4_moe", "glm4_moe-norms",
    "granite", "granite4", "lfm2_moe", "nemotron_h", "phi3", "phi3-long", "phi4-mini",
    "qwen2_5_vl", "qwen3_next", "qwen3_vl", "seed_oss", "smollm3", *SHARED]
TOP = 20
# A log-probability's largest difference. Both compute in float32: 1e-5 at most was measured.
LIMIT = 1e-3


def logprobs_of(folder, model, cases, *arguments):
    lines = [{
        "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": case["ids"], "temperature": 0, "max_tokens": 1,
            "ignore_eos": True, "prompt_logprobs": TOP}} for i, case in enumerate(cases)]
    (folder / "in.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("run", "-q", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                         "--overwrite", "--no-packed-cache", "--model", f"m={model}", *arguments)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [[{token: entry["logprob"]
              for token, entry in row.items()}
             for row in answer["response"]["body"]["choices"][0]["prompt_logprobs"][1:]]
            for answer in sorted(answers, key=lambda answer: int(answer["custom_id"]))]


def compare(folder, model, cases, *arguments):
    cpu = logprobs_of(folder, model, cases, "--device", "cpu", "--reference", *arguments)
    card = logprobs_of(folder, model, cases, "--device", "cuda", "--device-plugin",
                       support.plain_device(), "--max-num-batched-tokens", 48, *arguments)
    assert largest(card, cpu) <= LIMIT


def largest(card, cpu):
    """Over all positions and the tokens that both name."""
    return max(
        abs(row[token] - other[token]) for rows, others in zip(card, cpu, strict=True)
        for row, other in zip(rows, others, strict=True) for token in row.keys() & other.keys())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_on_a_device_is_the_one_on_the_cpu(tmp_path, family):
    model = TINY / family / "model-bf16.gguf" if family in SHARED else tmp_path / "model.gguf"
    if family not in SHARED:
        gguf_of.convert(HERE / family, model)
    compare(tmp_path, model, cases_of(family))


def test_a_granite_4_without_mamba_layers_is_computed_on_a_device(tmp_path):
    """Experts beside a shared one without a factor, and Granite's four multipliers; weights are
    made up alike on both."""
    config = json.loads((HERE / "granite4/config.json").read_text())
    config |= {"layer_types": ["attention"] * 4, "num_local_experts": 6, "num_experts_per_tok": 2,
               "shared_intermediate_size": 32, "vocab_size": 512}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / "qwen2" / name, tmp_path)
    compare(tmp_path, tmp_path, cases_of("granite"), "--load-format", "dummy")


@pytest.mark.skipif(not test_next_families.TINY.exists(), reason="shared/tiny_next is not here")
@pytest.mark.parametrize("family", ["gemma4_e", "gemma4_moe", "deepseek_v3"])
def test_layers_that_differ_are_those_of_the_cpu(tmp_path, family):
    """Gemma 4: heads of two sizes, keys of another layer, a part of a token for each layer, norms
    of values, factors of layers, and experts beside a feed-forward. DeepSeek V3: entries for all
    heads, q by two products, experts by sigmoids in groups."""
    compare(tmp_path, test_next_families.TINY / family, test_next_families.cases_of(family))

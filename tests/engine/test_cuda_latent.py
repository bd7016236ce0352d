# SPDX-License-Identifier: Apache-2.0
"""Latent attention through the CUDA plugin's host code, over a runtime and kernels in plain C
(tests/gpu/cuda/host), beside the CPU in float32: entries for all heads, one product of q and two,
weights of 8 bits, prompts whole and in pieces, and what is refused."""
import json, shutil

import pytest

import support
from test_cuda_experts import CARD, CPU, logprobs_of, median
from test_latent import V3, widths
from test_next_families import TINY, cases_of

pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")
# The median over positions of the largest difference of a log-probability. Weights are made up and
# alike on both.
FORMS = [("two", 16, "none", 0.2), ("one", 512, "none", 0.2), ("two", 64, "int8", 0.6)]


def made_up(folder, **change):
    """A folder with a config alone, of sizes that kernels of a GPU have."""
    config = widths(vocab_size=512, num_hidden_layers=3, **change)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(V3 / name, folder)
    return folder


def cases(_):
    return cases_of("deepseek_v3")


@pytest.mark.parametrize("products, rows, weights, limit", FORMS)
def test_entries_for_all_heads(tmp_path, products, rows, weights, limit):
    model = made_up(tmp_path, **({"q_lora_rank": None} if products == "one" else {}))
    chosen = [] if weights == "none" else ["--quantization", weights]
    dummy = ["--load-format", "dummy"]
    cpu = logprobs_of(tmp_path, model, *CPU, *dummy, cases=cases)
    card = logprobs_of(tmp_path, model, *CARD, *dummy, "--max-num-batched-tokens", rows, *chosen,
                       cases=cases)
    assert median(card, cpu) <= limit


def refusal(folder, *arguments):
    (folder / "in.jsonl").write_text(
        json.dumps({
            "custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {
                "model": "m", "prompt": [1, 2], "max_tokens": 2}}) + "\n")
    done = support.quern("run", "-q", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                         "--model", f"m={made_up(folder)}", "--load-format", "dummy", *CARD,
                         *arguments)
    assert done.returncode != 0
    return done.stderr


def test_entries_are_kept_in_bf16(tmp_path):
    assert "entries of latent attention are kept in bf16 only" in refusal(
        tmp_path, "--kv-cache-dtype", "fp8")


def test_the_memory_of_a_token_is_told_before(tmp_path):
    done = support.quern("models", "inspect", "--json", "--device-memory-mib", "4096", V3)
    assert done.returncode == 0, done.stderr
    forms = json.loads(done.stdout)["card"]["forms"]
    assert {form["kv_bytes_per_token"] for form in forms} == {3 * (64 + 32) * 2}
    assert {form["kv"] for form in forms} == {"bfloat16"}

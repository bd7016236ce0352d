# SPDX-License-Identifier: Apache-2.0
"""The fast paths of the families of shared/tiny_next: how far their distributions are from the
reference's (transformers in float32), as a mean KL divergence.

A route that flips makes another model of a position. So with routers a case counts if transformers
in bf16 stays within 0.33 of itself in float32 there, and of its positions the nearest three
quarters: measured, 1 of 12 to 16 flips, by a KL of 1 or more, and the others are below 0.004."""
import json, math

import pytest

from test_next_families import TINY, cases_of, logits_of, vocab_of

pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")
BAR = 0.02  # issue 40, "must hold" 1
ROUNDED = 0.33
FAMILIES = [
    "deepseek_v3", "gemma4_e", "gemma4_moe", "gpt_oss", "granitemoehybrid", "lfm2", "qwen3_5", "qwen3_5_moe",
    "qwen3_moe"]


def counts(case):
    return case.get("min_router_gap") is None or case[
        "max_abs_logit_error_when_run_in_bf16"] <= ROUNDED


def logprobs(logits):
    top = max(logits)
    total = top + math.log(sum(math.exp(logit - top) for logit in logits))
    return [logit - total for logit in logits]


def divergence(expected, got):
    """KL of two lists of logits. A token that can never be sampled has no logit in `got`."""
    known = sorted(got)
    p, q = logprobs([expected[i] for i in known]), logprobs([got[i] for i in known])
    return sum(math.exp(a) * (a - b) for a, b in zip(p, q))


@pytest.mark.parametrize("kernels", ["avx2", "avx512", "avx512-bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_fast_paths_are_within_the_bar_of_the_reference(family, kernels):
    cases = [case for case in cases_of(family) if counts(case)]
    rows_of = logits_of(TINY / family, [case["ids"] for case in cases], "--kernels", kernels,
                        vocab=vocab_of(family))
    found = [
        divergence(logits, rows[int(at)]) for case, rows in zip(cases, rows_of, strict=True)
        for at, logits in [*case["logits_at"].items(), (case["n"] - 1, case["last_logits"])]]
    has_routers = cases[0].get("min_router_gap") is not None
    kept = sorted(found)[:len(found) - len(found) // 4 if has_routers else None]
    mean = sum(kept) / len(kept)
    print(f"{family}, {kernels}: KL mean {mean:.1e}, largest {max(found):.1e}, {len(cases)} cases")
    assert mean <= BAR

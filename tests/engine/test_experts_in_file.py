# SPDX-License-Identifier: Apache-2.0
"""Models larger than the memory for their weights: experts stay in the file, and every answer and
log-probability is the same."""
import re

import pytest

import gguf_of, support
from test_cuda_experts import logprobs_of
from test_next_families import TINY

CPU = ["--device", "cpu"]
pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts")
    for family in ("gpt_oss", "deepseek_v3"):
        gguf_of.convert(TINY / family, folder / f"{family}.gguf")
    return {
        "qwen3_moe": TINY / "qwen3_moe", "gemma4_moe": TINY / "gemma4_moe",
        "gpt_oss": folder / "gpt_oss.gguf", "deepseek_v3": folder / "deepseek_v3.gguf"}


def left(folder, model, limit):
    """Bytes of experts that a server leaves in the file, by its log."""
    state = folder / f"state-{limit}"
    with support.serving(state, "--model", f"m={model}", *CPU, "--no-packed-cache",
                         "--weight-memory-bytes", str(limit)) as server:
        status, data = server.call("POST", "/v1/completions", {
            "model": "m", "prompt": [5, 6, 7], "max_tokens": 1})
        assert status == 200, data
        found = re.search(r"event=experts_in_file bytes=(\d+)", server.log_text())
    return int(found[1]) if found else 0


@pytest.mark.parametrize("family, kernels",
                         [("qwen3_moe", "avx2"), ("qwen3_moe", "ref"), ("gemma4_moe", None),
                          ("gpt_oss", None), ("deepseek_v3", None)])
def test_answers_are_those_of_weights_in_memory(tmp_path, forms, family, kernels):
    flags = [*CPU, "--no-packed-cache", *(["--kernels", kernels] if kernels else [])]
    usual = logprobs_of(tmp_path, forms[family], *flags, family=family)
    for rows in (512, 16):
        assert logprobs_of(tmp_path, forms[family], *flags, "--weight-memory-bytes", 1,
                           "--max-num-batched-tokens", rows, family=family) == usual


def test_only_what_does_not_fit_is_left_and_the_log_says_so(tmp_path, forms):
    model = forms["qwen3_moe"]
    most, some = left(tmp_path, model, 1), left(tmp_path, model, 900000)
    assert most > some > left(tmp_path, model, "1g") == 0
    for family in ("gemma4_moe", "gpt_oss", "deepseek_v3"):
        (tmp_path / family).mkdir()
        assert left(tmp_path / family, forms[family], 1) > 0, family


def test_a_packed_copy_serves_a_model_that_did_not_fit(tmp_path, forms):
    """The copy is mapped, so its pages need no memory of their own; no partial copy is kept."""
    copies = tmp_path / "copies"
    flags = [*CPU, "--packed-cache-dir", copies]
    little = logprobs_of(tmp_path, forms["qwen3_moe"], *flags, "--weight-memory-bytes", 1)
    assert not [path for path in copies.rglob("*") if path.is_file() and path.stat().st_size > 4096]
    usual = logprobs_of(tmp_path, forms["qwen3_moe"], *flags)
    assert usual == little
    again = logprobs_of(tmp_path, forms["qwen3_moe"], *flags, "--weight-memory-bytes", 1)
    assert again == little

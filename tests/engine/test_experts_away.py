# SPDX-License-Identifier: Apache-2.0
"""Experts that a GPU has no room for lie in the host's memory and come over the bus in each step,
with the CUDA plugin's host code over a runtime and kernels in plain C (tests/gpu/cuda/host)."""
import json, re, shutil

import pytest

import support
from test_cuda_host import PLUGIN, PROMPTS
from test_forms import TOO_FEW

NEXT = support.SHARED / "tiny_next"
LAYERS = 8
ON_CARD = [
    "--device", "cuda", "--device-plugin", PLUGIN, "--load-format", "dummy", "--max-model-len", 128,
    "--max-num-batched-tokens", 64, "--log-level", "info",
    # One after another: whose rows share a step moves the last bits of a row.
    "--max-num-seqs", 1, "--no-enable-prefix-caching"]


@pytest.fixture
def model(tmp_path):
    """Eight layers of 16 experts, 96 MB in bf16, with weights that are made up alike each time."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = json.loads((NEXT / "qwen3_moe/config.json").read_text())
    config |= {
        "num_hidden_layers": LAYERS, "num_local_experts": 16, "moe_intermediate_size": 512,
        "hidden_size": 256}
    (folder / "config.json").write_text(json.dumps(config))
    for file in (NEXT / "qwen3_moe").glob("tokenizer*"):
        shutil.copy(file, folder)
    return folder


def run(tmp_path, model, *arguments):
    """The answers' texts, and what was logged."""
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([{
            "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
                "model": "m", "prompt": prompt, "max_tokens": 12, "temperature": 0,
                "ignore_eos": True}} for i, prompt in enumerate(PROMPTS)]))
    out = tmp_path / "out.jsonl"
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", out, "--overwrite", "--model",
                         f"m={model}", *ON_CARD, *arguments)
    if done.returncode != 0: return None, done.stderr
    return [
        json.loads(line)["response"]["body"]["choices"][0]["text"]
        for line in out.read_text().splitlines()], done.stderr


@pytest.mark.parametrize("form", ["none", "int8"])
def test_a_model_whose_experts_do_not_fit_gives_the_same_answers(tmp_path, model, form):
    forms = ["--quantization", form]
    wanted, log = run(tmp_path, model, *forms, "--gpu-memory-limit-mib", 400)
    assert "event=experts_away" not in log
    nothing, log = run(tmp_path, model, *forms, "--gpu-memory-limit-mib", TOO_FEW)
    needed = int(re.search(r"reason=\"the model needs (\d+) MiB", log).group(1))
    least = int(re.search(r"quern run: .*the model needs (\d+) MiB", log).group(1))
    assert nothing is None and least + 20 < needed
    for limit in (needed - 1, least + 1):
        got, log = run(tmp_path, model, *forms, "--gpu-memory-limit-mib", limit)
        assert got == wanted and f"event=experts_away layers={LAYERS} of={LAYERS}" in log

# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts through the CUDA plugin's host code, over a runtime and kernels in plain C
(tests/gpu/cuda/host), beside the CPU in float32.

A route that flips moves the logits of its position by up to 8 in these models of noise, and
activations in bf16 flip a few. So log-probabilities are compared at the middle position."""
import json, pathlib

import pytest

import gguf_of, support, test_families
from test_next_families import TINY, cases_of, fuse

PLUGIN = pathlib.Path(
    support.BINARY).resolve().parent.parent / "tests/gpu/cuda/libquern-cuda-host.so"
CARD = [
    "--device", "cuda", "--device-plugin", PLUGIN, "--gpu-memory-limit-mib", 800, "--max-num-seqs",
    8, "--max-model-len", 512]
CPU = ["--device", "cpu", "--reference"]
TOP = 20
# The median over positions of the largest difference of a log-probability, as the CPU's path in
# bf16 has it (test_next_families.py); measured: 0.06, 0.97, 0.26.
LIMITS = {"none": 0.2, "fp8": 2.0, "int8": 0.6}
pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """The folder, the GGUF file, and the folder with the experts of a layer in two tensors."""
    folder = tmp_path_factory.mktemp("experts")
    gguf_of.convert(TINY / "qwen3_moe", folder / "qwen3_moe.gguf")
    fuse(TINY / "qwen3_moe", folder / "fused")
    return {
        "folder": TINY / "qwen3_moe", "gguf": folder / "qwen3_moe.gguf", "fused": folder / "fused"}


def logprobs_of(folder, model, *arguments, family="qwen3_moe", cases=cases_of):
    """[prompt][position] → {token: log-probability} of the reference's prompts, all in
    one batch."""
    lines = [{
        "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": case["ids"], "temperature": 0,
            "max_tokens": 1, "ignore_eos": True, "prompt_logprobs": TOP}}
             for i, case in enumerate(cases(family))]
    (folder / "in.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("run", "-q", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                         "--overwrite", "--model", f"m={model}", *arguments)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [[{token: entry["logprob"]
              for token, entry in row.items()}
             for row in answer["response"]["body"]["choices"][0]["prompt_logprobs"][1:]]
            for answer in sorted(answers, key=lambda answer: int(answer["custom_id"]))]


def median(card, cpu):
    """Over all positions, of the largest difference in a token that both name."""
    worst = sorted(
        max(abs(row[token] - other[token]) for token in row.keys() & other.keys())
        for rows, others in zip(card, cpu, strict=True)
        for row, other in zip(rows, others, strict=True))
    print(f"{len(worst)} positions: median {worst[len(worst) // 2]:.2g}, largest {worst[-1]:.2g}")
    return worst[len(worst) // 2]


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    return logprobs_of(tmp_path_factory.mktemp("cpu"), TINY / "qwen3_moe", *CPU)


@pytest.mark.parametrize("form", ["folder", "gguf", "fused"])
@pytest.mark.parametrize("rows", [16, 64, 512])
def test_logits_are_the_cpu_s_whole_and_in_chunks(tmp_path, forms, cpu, form, rows):
    card = logprobs_of(tmp_path, forms[form], *CARD, "--max-num-batched-tokens", rows)
    assert median(card, cpu) <= LIMITS["none"]


def test_the_device_of_the_tests_has_experts(tmp_path, cpu):
    """tests/gpu/plain_gpu.c, which the tests of the layers above use."""
    card = logprobs_of(tmp_path, TINY / "qwen3_moe", "--device", "cuda", "--device-plugin",
                       support.plain_device(), "--max-num-seqs", 8, "--max-model-len", 512,
                       "--max-num-batched-tokens", 64)
    assert median(card, cpu) <= LIMITS["none"]


@pytest.mark.parametrize("weights", ["fp8", "int8"])
def test_experts_of_8_bits(tmp_path, cpu, weights):
    card = logprobs_of(tmp_path, TINY / "qwen3_moe", *CARD, "--max-num-batched-tokens", 64,
                       "--quantization", weights)
    assert median(card, cpu) <= LIMITS[weights]


# gpt-oss: sinks, windows by turns, biases, clamped gates, and experts of four bits in the file,
# which are bf16 or 8 bits on the GPU.
OSS_LIMITS = {"none": 0.4, "fp8": 2.0, "int8": 0.8}


@pytest.fixture(scope="module")
def oss_cpu(tmp_path_factory):
    return logprobs_of(tmp_path_factory.mktemp("oss"), TINY / "gpt_oss", *CPU, family="gpt_oss")


@pytest.mark.parametrize("rows, weights", [(16, "none"), (512, "none"), (64, "fp8"), (64, "int8")])
def test_gpt_oss(tmp_path, oss_cpu, rows, weights):
    card = logprobs_of(tmp_path,
                       TINY / "gpt_oss",
                       *CARD,
                       "--max-num-batched-tokens",
                       rows,
                       *([] if weights == "none" else ["--quantization", weights]),
                       family="gpt_oss")
    assert median(card, oss_cpu) <= OSS_LIMITS[weights]


def test_gpt_oss_on_the_device_of_the_tests(tmp_path, oss_cpu):
    card = logprobs_of(tmp_path,
                       TINY / "gpt_oss",
                       "--device",
                       "cuda",
                       "--device-plugin",
                       support.plain_device(),
                       "--max-num-seqs",
                       8,
                       "--max-model-len",
                       512,
                       "--max-num-batched-tokens",
                       64,
                       family="gpt_oss")
    assert median(card, oss_cpu) <= 1e-3


# Shared experts, with a factor and without, routers with sigmoids and a bias, and both beside
# layers with a state. The median as above; measured: 0.25, 0.05 and 0.05 in bf16,
# 1.9, 0.37 and 0.68 in E4M3, 0.72, 0.1 and 0.15 in INT8.
SHARED_LIMITS = {
    "qwen3_5_moe": {"none": 0.5, "fp8": 3.0, "int8": 1.5},
    "glm4_moe": {"none": 0.15, "fp8": 1.0, "int8": 0.3},
    "lfm2_moe": {"none": 0.15, "fp8": 1.5, "int8": 0.5}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """{family: (model, what its cases are found by, log-probabilities of the CPU)}"""
    folder = tmp_path_factory.mktemp("shared")
    made = {}
    for family in SHARED_LIMITS:
        cases = cases_of if (TINY / family).exists() else test_families.cases_of
        model = folder / f"{family}.gguf"
        gguf_of.convert(
            TINY / family if (TINY / family).exists() else test_families.HERE / family, model)
        made[family] = (model, cases, logprobs_of(folder, model, *CPU, family=family, cases=cases))
    return made


@pytest.mark.parametrize("rows, weights", [(16, "none"), (512, "none"), (64, "fp8"), (64, "int8")])
@pytest.mark.parametrize("family", SHARED_LIMITS)
def test_shared_experts_and_sigmoids(tmp_path, shared, family, rows, weights):
    model, cases, cpu = shared[family]
    chosen = [] if weights == "none" else ["--quantization", weights]
    card = logprobs_of(tmp_path, model, *CARD[:-1], 256, "--max-num-batched-tokens", rows, *chosen,
                       family=family, cases=cases)
    assert median(card, cpu) <= SHARED_LIMITS[family][weights]

# SPDX-License-Identifier: Apache-2.0
"""Models with recurrent layers on a GPU: Gated DeltaNet with gated attention of heads of 256
(qwen3_5), short convolutions (lfm2), and Mamba-2. Over the CUDA plugin's host code with a runtime
and kernels in plain C (tests/gpu/cuda/host), and over the GPU of the tests, beside the CPU in
float32."""
import json, pathlib

import pytest

import gguf_of, support, test_families
from test_next_families import TINY, cases_of

PLUGIN = pathlib.Path(
    support.BINARY).resolve().parent.parent / "tests/gpu/cuda/libquern-cuda-host.so"
CARD = [
    "--device", "cuda", "--gpu-memory-limit-mib", 800, "--max-num-seqs", 8, "--max-model-len", 512]
CPU = ["--device", "cpu", "--reference"]
TOP = 20
FAMILIES = ["qwen3_5", "lfm2"]
MAMBA = "granitemoehybrid"  # its heads of 24 have no CUDA kernel
# The median over positions of the largest difference of a log-probability; measured: 0.06 and 0.11
# in bf16, 1.05 and 1.41 in E4M3.
LIMITS = {"none": 0.2, "fp8": 2.0, "int8": 0.6}
pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")


def run(folder, name, model, lines, *arguments):
    """custom_id → answer body, by one batch."""
    source, answers = folder / f"{name}.jsonl", folder / f"{name}.out.jsonl"
    source.write_bytes(support.jsonl(lines))
    done = support.quern("run", "-q", "-i", source, "-o", answers, "--overwrite", "--model",
                         f"m={model}", *arguments)
    assert done.returncode == 0, done.stderr
    return {
        line["custom_id"]: line["response"]["body"]
        for line in map(json.loads,
                        answers.read_text().splitlines())}


def line_of(custom_id, ids, **fields):
    return {
        "custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": ids, "temperature": 0, "ignore_eos": True, **fields}}


def logprobs_of(folder, family, *arguments, model=None, cases=None):
    """[prompt][position] → {token: log-probability} of the reference's prompts."""
    lines = [
        line_of(str(i), case["ids"], max_tokens=1, prompt_logprobs=TOP)
        for i, case in enumerate(cases or cases_of(family))]
    answers = run(folder, family, model or TINY / family, lines, *arguments)
    return [[{token: entry["logprob"]
              for token, entry in row.items()}
             for row in answers[str(i)]["choices"][0]["prompt_logprobs"][1:]]
            for i in range(len(lines))]


def median(card, cpu):
    worst = sorted(
        max(abs(row[token] - other[token])
            for token in row.keys() & other.keys())
        for rows, others in zip(card, cpu, strict=True)
        for row, other in zip(rows, others, strict=True))
    print(f"{len(worst)} positions: median {worst[len(worst) // 2]:.2g}, largest {worst[-1]:.2g}")
    return worst[len(worst) // 2]


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    return {family: logprobs_of(folder, family, *CPU) for family in [*FAMILIES, MAMBA]}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [16, 64, 512])
def test_logits_are_the_cpu_s_whole_and_in_chunks(tmp_path, cpu, family, rows):
    card = logprobs_of(tmp_path, family, *CARD, "--device-plugin", PLUGIN,
                       "--max-num-batched-tokens", rows)
    assert median(card, cpu[family]) <= LIMITS["none"]


@pytest.mark.parametrize("family", ["falcon_h1", "nemotron_h"])
@pytest.mark.parametrize("weights", ["none", "int8"])
def test_states_beside_attention_and_squares(tmp_path, family, weights):
    """Falcon-H1's two mixers of a layer and Nemotron-H's layers of one half."""
    gguf_of.convert(test_families.HERE / family, tmp_path / "model.gguf")
    same = {"model": tmp_path / "model.gguf", "cases": test_families.cases_of(family)}
    cpu = logprobs_of(tmp_path, family, *CPU, **same)
    card = logprobs_of(tmp_path, family, *CARD[:-1], 256, "--device-plugin", PLUGIN,
                       "--max-num-batched-tokens", 32, "--quantization", weights, **same)
    assert median(card, cpu) <= LIMITS[weights]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_with_heads_in_turns(tmp_path, cpu, family):
    gguf_of.convert(TINY / family, tmp_path / "model.gguf")
    card = logprobs_of(tmp_path, family, *CARD, "--device-plugin", PLUGIN,
                       "--max-num-batched-tokens", 64, model=tmp_path / "model.gguf")
    assert median(card, cpu[family]) <= LIMITS["none"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights", ["fp8", "int8"])
def test_weights_of_8_bits(tmp_path, cpu, family, weights):
    card = logprobs_of(tmp_path, family, *CARD, "--device-plugin", PLUGIN,
                       "--max-num-batched-tokens", 64, "--quantization", weights)
    assert median(card, cpu[family]) <= LIMITS[weights]


@pytest.mark.parametrize("family", [*FAMILIES, MAMBA])
@pytest.mark.parametrize("rows", [16, 512])
def test_the_device_of_the_tests_has_states(tmp_path, cpu, family, rows):
    """tests/gpu/plain_gpu.c, which ends with a sentence where a state is read that nobody wrote."""
    card = logprobs_of(tmp_path, family, *CARD, "--device-plugin", support.plain_device(),
                       "--max-num-batched-tokens", rows)
    assert median(card, cpu[family]) <= 0.01


def test_states_in_bf16(tmp_path, cpu):
    card = logprobs_of(tmp_path, "qwen3_5", *CARD, "--device-plugin", PLUGIN,
                       "--mamba-ssm-cache-dtype", "bfloat16", "--max-num-batched-tokens", 16)
    assert 0 < median(card, cpu["qwen3_5"]) <= LIMITS["none"]


def answers_of(folder, name, family, prompts, *arguments):
    lines = [line_of(str(i), ids, max_tokens=12) for i, ids in enumerate(prompts)]
    answers = run(folder, name, TINY / family, lines, *arguments)
    cached = sum(body["usage"]["prompt_tokens_details"]["cached_tokens"]
                 for body in answers.values())
    return [answers[str(i)]["choices"][0]["text"] for i in range(len(prompts))], cached


@pytest.mark.parametrize("family, plugin", [(family, plugin) for family in FAMILIES
                                            for plugin in ("host", "plain")] + [(MAMBA, "plain")])
def test_a_shared_beginning_is_computed_once_and_answers_are_those_of_prompts_alone(
        tmp_path, family, plugin):
    """The state is saved inside a step where the prompts branch, at no block's end, and eight
    sequences with steps of decode and of prompts mixed go on from it."""
    path = PLUGIN if plugin == "host" else support.plain_device()
    shared = [(7 * i + 3) % 400 for i in range(75)]
    prompts = [shared + [(11 * i + j) % 400 for j in range(5 + i)] for i in range(12)]
    flags = [*CARD, "--device-plugin", path, "--max-num-batched-tokens", 48]
    together, cached = answers_of(tmp_path, "together", family, prompts, *flags)
    alone, none = answers_of(tmp_path, "alone", family, prompts, *flags,
                             "--no-enable-prefix-caching")
    assert cached >= 9 * len(shared) and none == 0
    same = sum(a == b for a, b in zip(together, alone))
    print(f"{same} of {len(prompts)} answers are the same, {cached} tokens were not computed")
    assert same >= (len(prompts) if plugin == "plain" else len(prompts) - 3)


def test_little_memory_for_states_leaves_few_sequences_and_all_answers(tmp_path):
    prompts = [[(11 * i + j) % 400 for j in range(20)] for i in range(6)]
    # The rows of a step are given: trials of them take minutes on a GPU of plain C.
    flags = [*CARD, "--device-plugin", PLUGIN, "--max-num-batched-tokens", 64]
    many, _ = answers_of(tmp_path, "many", "qwen3_5", prompts, *flags)
    few, _ = answers_of(tmp_path, "few", "qwen3_5", prompts, *flags, "--mamba-cache-memory-bytes",
                        3 << 20)
    assert len(few) == len(many) and sum(a == b for a, b in zip(few, many)) >= 5


def test_too_little_memory_for_a_state_is_refused(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(support.jsonl([line_of("a", [1, 2], max_tokens=1)]))
    done = support.quern("run", "-q", "-i", source, "-o", tmp_path / "out.jsonl", "--model",
                         f"m={TINY / 'qwen3_5'}", *CARD, "--device-plugin", PLUGIN,
                         "--mamba-cache-memory-bytes", 100000)
    assert done.returncode == 3
    assert "the memory for states is 100000 bytes, less than the " in done.stderr


def test_states_in_bf16_are_of_a_gpu_alone(tmp_path):
    done = support.quern("run", "-q", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", f"m={TINY / 'qwen3_5'}", "--device", "cpu",
                         "--mamba-ssm-cache-dtype", "bfloat16")
    assert done.returncode == 2
    assert "--mamba-ssm-cache-dtype: the CPU has no other value than auto" in done.stderr

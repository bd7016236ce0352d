# SPDX-License-Identifier: Apache-2.0
"""Models through the CUDA plugin's host code, over a runtime and kernels in plain C (tests/kernels/cuda/host): the whole way from a request
to a step's kernels, without a card."""
import json, pathlib

import pytest

import support

PLUGIN = pathlib.Path(support.BINARY).resolve().parent.parent / "tests/kernels/cuda/libquern-cuda-host.so"
CARD = ["--device", "cuda", "--device-plugin", PLUGIN, "--gpu-memory-limit-mib", 700, "--max-num-seqs", 8, "--max-model-len", 256]
PROMPTS = ["Hello there, the weather is", "Hello there, the weather is nice and", "One two three four five six seven eight nine ten"]


def texts(tmp_path, model, name, *arguments):
    with open(tmp_path / "in.jsonl", "w") as file:
        for i, prompt in enumerate(PROMPTS):
            body = {"model": "m", "prompt": prompt, "max_tokens": 16, "temperature": 0, "frequency_penalty": 0.5 if i == 2 else 0}
            file.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    out = tmp_path / f"{name}.jsonl"
    done = support.quern("run", "-q", "-i", tmp_path / "in.jsonl", "-o", out, "--model", f"m={support.SHARED / 'tiny' / model}", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["response"]["body"]["choices"][0]["text"] for line in out.read_text().splitlines()]


# The others have near-ties within bf16's rounding, or heads of 32, for which there is no kernel.
@pytest.mark.parametrize("model", ["llama3", "gemma3"])
def test_greedy_text_is_the_cpu_s(tmp_path, model):
    assert texts(tmp_path, model, "card", *CARD) == texts(tmp_path, model, "cpu", "--device", "cpu", "--reference")


@pytest.mark.parametrize("forms", [["--quantization", "fp8", "--kv-cache-dtype", "fp8"], ["--quantization", "int8"]])
def test_weights_and_cache_of_8_bits_answer(tmp_path, forms):
    assert all(texts(tmp_path, "llama3", "card", *CARD, *forms))


def test_a_head_size_without_a_kernel_is_refused(tmp_path):
    body = {"model": "m", "prompt": "Hello", "max_tokens": 1}
    (tmp_path / "in.jsonl").write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    done = support.quern("run", "-q", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model",
                         f"m={support.SHARED / 'tiny/qwen2'}", *CARD)
    assert done.returncode != 0 and "no CUDA kernel has head size 32" in done.stderr

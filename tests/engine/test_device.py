# SPDX-License-Identifier: Apache-2.0
"""The device that an engine uses, from outside: what `auto` says in one line before it runs on the CPU, what `cuda` ends with, and which
values of vLLM's options are refused."""
import json

import pytest

import support

TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"
SITUATIONS = {
    "symbol": "is no plugin: it lacks quern_device_table",
    "abi": "is of another build: its interface is",
    "bytes": "is of another build: its table has",
    "version": "is of another build: quern 0.0.1",
    "driver": "libcuda.so.1 cannot be loaded; install NVIDIA's driver",
    "empty": "this machine has no stub card that the driver shows; see nvidia-smi",
    "refused": "card 0, Stub 0, cannot be used: it has compute capability 6.1, and quern needs 8.0",
    "library": "libcublasLt.so cannot be loaded; install cuBLAS",
}


def run(tmp_path, *arguments):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": "Hello", "max_tokens": 2}}
    (tmp_path / "in.jsonl").write_text(json.dumps(line) + "\n")
    return support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", f"tiny={TINY}", *arguments)


@pytest.mark.parametrize("kind", SITUATIONS)
def test_auto_says_why_in_one_line_and_runs_on_the_cpu(tmp_path, kind):
    done = run(tmp_path, "--device-plugin", support.plugin(kind))
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "event=device" in line]
    assert len(said) == 1 and "device=cpu" in said[0] and SITUATIONS[kind] in said[0]
    assert json.loads((tmp_path / "out.jsonl").read_text())["response"]["status_code"] == 200


@pytest.mark.parametrize("kind", SITUATIONS)
def test_cuda_ends_with_3_and_the_sentence(tmp_path, kind):
    done = run(tmp_path, "--device", "cuda", "--device-plugin", support.plugin(kind))
    assert done.returncode == 3 and SITUATIONS[kind] in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_without_a_plugin_cuda_says_how_to_get_one(tmp_path):
    done = run(tmp_path, "--device", "cuda:0", "--device-plugin", tmp_path / "none.so")
    assert done.returncode == 3 and "cannot load the plugin" in done.stderr and "none.so" in done.stderr


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_memory_that_others_hold_ends_it_too(tmp_path, device):
    done = run(tmp_path, "--device", device, "--device-plugin", support.plugin("full"), "--gpu-memory-limit-mib", "5000")
    assert done.returncode == 3 and "5000 MiB are wanted, and 100 MiB are free" in done.stderr


@pytest.mark.parametrize("arguments, said", [
    (["--device", "rocm"], "--device 'rocm' is not supported (auto, cpu, cuda,"),
    (["--quantization", "awq"], "--quantization 'awq' is not supported (auto, none, fp8 and int8 are"),
    (["--kv-cache-dtype", "fp8_e5m2"], "--kv-cache-dtype 'fp8_e5m2' is not supported"),
    (["--dtype", "float16"], "--dtype 'float16' is not supported (auto and bfloat16 are"),
    (["--tensor-parallel-size", "2"], "--tensor-parallel-size 2 is not supported (1 is"),
    (["--block-size", "32"], "--block-size 32 is not supported (16 is)"),
    (["--gpu-memory-utilization", "1.1"], "--gpu-memory-utilization: 1.1 is outside"),
    (["--device", "cuda", "--reference"], "--reference and --kernels choose the CPU; --device cuda does not"),
    (["--reference", "--quantization", "fp8"], "--quantization: the CPU has no other value than auto"),
    (["--device", "cpu", "--quantization", "fp8"], "--quantization: the CPU has no other value than auto"),
])
def test_a_value_that_quern_has_not_is_refused_by_name(tmp_path, arguments, said):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_the_cpu_refuses_what_only_a_card_does(tmp_path):
    done = run(tmp_path, "--kv-cache-dtype", "fp8", "--device-plugin", support.plugin("empty"))
    assert done.returncode == 3 and "--kv-cache-dtype: the CPU has no other value than auto" in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""An engine over two GPUs that compute every step together (--tensor-parallel-size), with the CUDA
plugin's host code over a runtime and kernels in plain C (tests/gpu/cuda/host)."""
import json, re, shutil, statistics

import pytest

import support, test_next_families
from test_cuda_host import CARD, FAULTS, PLUGIN, POISON, answers, equal_tokens, run_one
from test_device_faults import create, deaths, lines, results, texts
from test_device_families import logprobs_of
from test_device_faults import state  # noqa: F401 (a fixture)
from test_families import HERE

TOGETHER = ["--tensor-parallel-size", 2]
NEXT = support.SHARED / "tiny_next"


def plugin(tmp_path, *variables):
    folder = tmp_path / "plugin"
    folder.mkdir(exist_ok=True)
    return support.with_variables(PLUGIN, folder, "QUERN_HOST_CARDS=2", *variables)


def card(tmp_path, *variables):
    """The options of a GPU, with a machine that has two."""
    options = list(CARD)
    options[options.index(PLUGIN)] = plugin(tmp_path, *variables)
    return options


@pytest.mark.parametrize("model", ["llama3", "gemma3", "qwen3", "llama3/model-q8_0.gguf"])
def test_two_cards_together_have_the_cpu_s_tokens_up_to_the_first_near_tie(tmp_path, model):
    model = support.SHARED / "tiny" / model
    both = answers(tmp_path, model, "both", *card(tmp_path), *TOGETHER)
    assert equal_tokens(tmp_path, model, both, 16) >= 16  # out of 48


@pytest.mark.parametrize("model", [
    "tiny/llama3", "tiny_next/qwen3_moe", "tiny_next/qwen3_5", "tiny_next/lfm2"])
def test_two_cards_together_have_the_log_probabilities_of_one(tmp_path, model):
    """Each part of a sum is rounded to bf16, so they differ as two orders of sums do. Those of the
    LFM2 are off by 0.18, as those of either are from the CPU's."""
    model, asked = support.SHARED / model, {"echo": True, "logprobs": 1}
    options = card(tmp_path)
    one = answers(tmp_path, model, "one", *options, fields=[asked] * 3, tokens=1)
    both = answers(tmp_path, model, "both", *options, *TOGETHER, fields=[asked] * 3, tokens=1)
    compared = 0
    for single, double in zip(one, both, strict=True):
        for got, wanted in zip(double["logprobs"]["token_logprobs"][1:-1],
                               single["logprobs"]["token_logprobs"][1:-1], strict=True):
            assert abs(got - wanted) < (0.25 if "lfm2" in model.name else 0.15)
            compared += 1
    assert compared >= 10


def check_two_cards(tmp_path, model, cases, *arguments):
    """Two are as near to the CPU as one. A near tie of a router may fall otherwise and moves the
    tokens behind it, so the middle of the differences counts."""

    def off(*options):
        got = logprobs_of(tmp_path, model, cases, *card(tmp_path), *options, *arguments)
        return statistics.median(
            abs(row[token] - other[token]) for rows, others in zip(got, cpu, strict=True)
            for row, other in zip(rows, others, strict=True) for token in row.keys() & other.keys())

    cpu = logprobs_of(tmp_path, model, cases, "--device", "cpu", "--reference", *arguments)
    one, both = off(), off(*TOGETHER)
    assert 0 < both <= 2 * one


@pytest.mark.parametrize("family", ["gemma4_e", "gemma4_moe"])
def test_parts_of_tokens_and_experts_beside_a_feed_forward_are_split(tmp_path, family):
    check_two_cards(tmp_path, NEXT / family, test_next_families.cases_of(family))


@pytest.mark.parametrize("family", ["granite", "falcon_h1"])
def test_halves_that_are_added_with_a_factor_are_split(tmp_path, family):
    """With sizes that divide, and weights that are made up."""
    config = json.loads((HERE / family / "config.json").read_text())
    config |= {"vocab_size": 512, "intermediate_size": 64, "hidden_size": 64}
    if family == "falcon_h1":
        config |= {"mamba_d_ssm": 64, "mamba_n_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(support.SHARED / "tiny/qwen2" / name, tmp_path)
    cases = [{"ids": list(range(first, 300, 7))} for first in (3, 40, 100)]
    check_two_cards(tmp_path, tmp_path, cases, "--load-format", "dummy")


@pytest.mark.parametrize("form", ["int8", "fp8"])
@pytest.mark.parametrize("model", ["tiny/llama3", "tiny_next/qwen3_moe"])
def test_weights_of_8_bits_on_two_cards_are_as_near_to_bf16_as_on_one(tmp_path, model, form):
    """The codes of weights are those of one GPU; rows of activations have a scale per GPU. Which
    rows share a step moves the rounding, and with it a router's near tie and all tokens after it,
    so the middle of the differences counts."""
    model, asked = support.SHARED / model, {"echo": True, "logprobs": 1}
    options = card(tmp_path)

    def off(name, *more):
        got = answers(tmp_path, model, name, *options, *more, fields=[asked] * 3, tokens=1)
        return statistics.median(
            abs(a - b)
            for single, wanted in zip(got, exact, strict=True)
            for a, b in zip(single["logprobs"]["token_logprobs"][1:-1],
                            wanted["logprobs"]["token_logprobs"][1:-1], strict=True))

    exact = answers(tmp_path, model, "exact", *options, fields=[asked] * 3, tokens=1)
    one = off("one", "--quantization", form)
    both = off("both", "--quantization", form, *TOGETHER)
    assert 0 < both <= 2 * one


@pytest.mark.parametrize("options, said", [
    (["--tensor-parallel-size", 4], "--tensor-parallel-size 4: of the 2 GPUs that there are 2 can"),
])
def test_what_cannot_be_split_is_refused_by_name(tmp_path, options, said):
    done = run_one(tmp_path, *card(tmp_path), *options)
    assert done.returncode != 0 and said in done.stderr


@pytest.mark.parametrize("machine", ["apart", "unmapped"])
def test_cards_that_do_not_reach_each_other_add_up_in_the_host_s_memory(tmp_path, machine):
    """The same sums in the same order, so the same answers. The plain runtime tells an illegal
    access where a kernel reads the other GPU's memory."""
    model = support.SHARED / "tiny/llama3"
    options = card(tmp_path)
    reached = answers(tmp_path, model, "reached", *options, *TOGETHER)
    (tmp_path / "apart").mkdir()
    options = card(tmp_path / "apart", f"QUERN_HOST_MACHINE={machine}")
    assert answers(tmp_path, model, "apart", *options, *TOGETHER) == reached
    done = run_one(tmp_path, *options, *TOGETHER, "--log-level", "warn")
    assert done.returncode == 0 and "event=device_apart" in done.stderr


def test_an_error_of_a_card_names_it_and_all_other_lines_are_answered(tmp_path, state):
    requests = lines(8)
    for i, request in enumerate(requests):
        request["body"].update(prompt=[1, 100 + i, POISON if i == 5 else 101, 102], max_tokens=4)
    poisoned = support.poison_plugin(tmp_path, plugin(tmp_path, "QUERN_HOST_FAULT=illegal"))
    options = list(CARD)
    options[options.index(PLUGIN)] = poisoned
    with support.serving(state, "--model", f"m={support.SHARED / 'tiny/llama3'}",
                         "--result-cache-bytes", "0", *map(str, [*options, *TOGETHER])) as server:
        good, bad = results(server, server.wait(create(server, requests)), requests)
        told = deaths(server)
    assert len(texts(good)) == 7 and list(bad) == ["line-05"]
    assert bad["line-05"]["response"]["body"]["error"]["code"] == "worker_lost"
    assert re.fullmatch(rf"step \d+ on GPU [01]: {FAULTS['illegal']}", told[0]), told
    assert all(
        re.fullmatch(
            rf"step \d+: GPU [01]: operation \d+ \(heads of layer 0\): {FAULTS['illegal']}", text)
        for text in told[1:]), told


@pytest.mark.parametrize("lost", [0, 1])
def test_a_card_that_waits_for_a_lost_one_is_let_go(tmp_path, state, lost):
    """One of two GPUs tells an error, and the other one's kernels wait for it: the plain runtime
    ends a process that waits for these before it has given up."""
    requests = lines(6)
    for i, request in enumerate(requests):
        request["body"].update(prompt=[1, 100 + i, POISON if i == 3 else 101, 102], max_tokens=4)
    options = list(CARD)
    options[options.index(PLUGIN)] = support.poison_plugin(
        tmp_path, plugin(tmp_path, f"QUERN_HOST_FAULT_ON={lost}"))
    with support.serving(state, "--model", f"m={support.SHARED / 'tiny/llama3'}",
                         "--result-cache-bytes", "0", *map(str, [*options, *TOGETHER])) as server:
        good, bad = results(server, server.wait(create(server, requests)), requests)
        told = deaths(server)
    assert len(texts(good)) == 5 and list(bad) == ["line-03"]
    assert re.fullmatch(rf"step \d+ on GPU {lost}: {FAULTS['illegal']}", told[0]), told
    assert all(
        re.fullmatch(
            rf"step \d+: GPU {lost}: operation \d+ \(heads of layer 0\): {FAULTS['illegal']}", text)
        for text in told[1:]), told

# SPDX-License-Identifier: Apache-2.0
"""Families with recurrent layers, against reference numbers in float32: the folders of
shared/tiny_next, and the GGUF files made of them."""
import functools, json, math, shutil

import pytest

import folders, gguf_of, support
from test_next_families import MARGIN, TINY, TOLERANCE, cases_of, difference, logits_of, tensors_of

pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")
FAMILIES = ["qwen3_5", "qwen3_5_moe", "lfm2", "granitemoehybrid"]

# The median over positions of the largest difference of a logit; measured: 2e-4. test_kl_bars.py
# has the paths that round activations.
FAST = {"avx2": 0.01, "avx512": 0.01}


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """{family: {form: path}}: the folder, the folder with the other form of its config (flat, or as
    transformers 5 writes it), and the GGUF file."""
    folder = tmp_path_factory.mktemp("hybrid")
    made = {}
    for family in FAMILIES:
        flat = folder / f"{family}_flat"
        shutil.copytree(TINY / family, flat)
        flat.chmod(0o755)
        (flat / "config.json").unlink()
        other = next((TINY / family).glob("config.*.json"))
        (flat / "config.json").write_bytes(other.read_bytes())
        gguf_of.convert(TINY / family, folder / f"{family}.gguf")
        made[family] = {"folder": TINY / family, "flat": flat, "gguf": folder / f"{family}.gguf"}
    return made


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["folder", "flat", "gguf"])
def test_every_position_of_every_prompt_is_the_references(forms, family, form):
    cases = cases_of(family)
    prompts = [case["ids"] + case["greedy_ids"][:-1] for case in cases]
    worst = compared = 0
    rows_of = logits_of(forms[family][form], prompts, "--reference")
    for case, rows in zip(cases, rows_of, strict=True):
        last = case["n"] - 1
        for position, logits in [(last, case["last_logits"]),
                                 *((int(at), logits) for at, logits in case["logits_at"].items())]:
            worst = max(worst, difference(rows[position], dict(enumerate(logits))))
        for i, (token, margin) in enumerate(zip(case["greedy_ids"], case["greedy_margin"])):
            if margin < MARGIN:
                break
            assert max(rows[last + i], key=rows[last + i].get) == token
            compared += 1
    print(f"{family}, {form}: largest difference {worst:.1e}, {compared} tokens compared")
    assert worst <= TOLERANCE and compared >= 80


@functools.cache
def reference_of(family):
    """The logits of a family's prompts by the reference path, computed once."""
    return logits_of(TINY / family, [case["ids"] for case in cases_of(family)], "--reference")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernels", FAST)
def test_the_fast_paths_agree_at_most_positions(family, kernels):
    prompts = [case["ids"] for case in cases_of(family)]
    pairs = zip(logits_of(TINY / family, prompts, "--kernels", kernels),
                reference_of(family),
                strict=True)
    worst = sorted(difference(*rows) for both in pairs for rows in zip(*both, strict=True))
    print(f"{family}, {kernels}: median {worst[len(worst) // 2]:.1e}, largest {worst[-1]:.1e}")
    assert worst[len(worst) // 2] <= FAST[kernels]


def sure_of(case, known):
    """How many greedy tokens are beyond doubt, and can be sampled at all."""
    return next((i for i, (token, margin) in enumerate(zip(case["greedy_ids"],
                                                           case["greedy_margin"]))
                 if margin < MARGIN or token not in known), len(case["greedy_ids"]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [64, 7])
def test_tokens_one_by_one_and_prompts_in_chunks_are_the_references(tmp_path, family, rows):
    cases = cases_of(family)
    lines = [{
        "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": case["ids"], "temperature": 0, "max_tokens": 24,
            "ignore_eos": True, "return_token_ids": True}} for i, case in enumerate(cases * 3)]
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", f"m={TINY / family}", "--device", "cpu", "--reference",
                         "--max-num-batched-tokens", str(rows), "--max-num-seqs", "5")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    tokenizer = json.loads((TINY / family / "tokenizer.json").read_text())
    known = {
        *tokenizer["model"]["vocab"].values(),
        *(token["id"] for token in tokenizer["added_tokens"])}  # no other is ever sampled
    compared = 0
    assert len(answers) == len(lines)
    for answer in answers:
        case = cases[int(answer["custom_id"]) % len(cases)]
        sure = sure_of(case, known)
        assert answer["response"]["body"]["choices"][0]["token_ids"][:sure] == case[
            "greedy_ids"][:sure]
        compared += sure
    print(f"{compared} tokens compared")
    assert compared >= 3 * 40


@pytest.mark.parametrize("family", FAMILIES)
def test_made_up_weights_have_states(tmp_path, family):
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_bytes((TINY / family / file).read_bytes())
    rows, = logits_of(tmp_path, [[1, 2, 3]], "--load-format", "dummy")
    assert all(math.isfinite(logit) for row in rows for logit in row.values())


# Bytes of a sequence's state: 4 layers of 4 heads of 128 x 128, and 3 inputs of 1024 channels; 3
# layers of 2 inputs of 128 channels; 4 layers of 6 heads of 32 x 32, and 3 inputs of 256. Bytes of
# keys and values of a token.
STATES = {"qwen3_5": (1097728, 2048), "qwen3_5_moe": (1097728, 1024), "lfm2": (3072, 512),
          "granitemoehybrid": (110592, 192)}


def text(**change):
    return lambda config: {**config, "text_config": config["text_config"] | change}


@pytest.mark.parametrize("change, sentence", [
    (text(linear_num_value_heads=3), "3 value heads cannot share 2 key heads of a state"),
    (text(linear_num_value_heads=600), "linear_num_value_heads is no integer of 1..512"),
    (text(linear_key_head_dim=512), "linear_key_head_dim is no integer of 1..256"),
    (text(linear_conv_kernel_dim=9), "linear_conv_kernel_dim is no integer of 1..4"),
    (text(linear_conv_kernel_dim=1), "a convolution over 1 inputs is not supported"),
    (text(linear_num_value_heads=6), "tensor model.language_model.layers.0."),
    (text(layer_types=["linear_attention"] * 5), "no layer is of attention"),
    (text(layer_types=["linear_attention"] * 4), "layer_types is no list of 5 layers"),
    (text(layer_types=["conv"] * 5),
     "layer_types: element 0 is neither linear_attention nor full_attention"),
    (text(num_hidden_layers=512, layer_types=None, linear_num_value_heads=512,
          linear_value_head_dim=256, linear_key_head_dim=256),
     "the state of a sequence takes"),
    (text(rope_parameters={"partial_rotary_factor": 0.001}), "partial_rotary_factor is 0.001"),
])  # yapf: disable
def test_what_cannot_be_run_is_refused_by_one_sentence(tmp_path, change, sentence):
    for file in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / "qwen3_5" / file)
    config = json.loads((TINY / "qwen3_5/config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(change(config)))
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    assert done.returncode == 3 and sentence in done.stderr and done.stderr.count(
        "\n") == 1, done.stderr


@pytest.mark.parametrize("family, change, sentence", [
    ("lfm2", {"conv_L_cache": 0}, "conv_L_cache is no integer of 1..4"),
    ("lfm2", {"conv_L_cache": 1}, "a convolution over 1 inputs is not supported"),
    ("lfm2", {"conv_L_cache": 10**6}, "conv_L_cache is no integer of 1..4"),
    ("lfm2", {"conv_bias": True}, "conv_bias true is not supported"),
    ("lfm2", {"layer_types": ["conv"] * 5}, "no layer is of attention"),
    ("lfm2", {"layer_types": ["mamba"] * 5}, "element 0 is neither conv nor full_attention"),
    ("lfm2", {"intermediate_size": 262144, "block_ffn_dim_multiplier": 1000.0},
     "a feed-forward of 174762"),
    ("granitemoehybrid", {"num_local_experts": 10**6}, "num_local_experts is no integer of 1..1024"),
    ("granitemoehybrid", {"num_local_experts": -1}, "num_local_experts is no integer of 1..1024"),
    ("granitemoehybrid", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9, over the 8 experts"),
    ("granitemoehybrid", {"num_experts_per_tok": 0}, "num_experts_per_tok is no integer of 1..1024"),
    ("granitemoehybrid", {"mamba_n_heads": 7}, "a width of 192 cannot be cut into 7 heads"),
    ("granitemoehybrid", {"mamba_n_groups": 4}, "6 value heads cannot share 4 key heads of a state"),
    ("granitemoehybrid", {"mamba_d_state": 10**6}, "mamba_d_state is no integer of 1..256"),
    ("granitemoehybrid", {"mamba_d_conv": 10**6}, "mamba_d_conv is no integer of 1..4"),
    ("granitemoehybrid", {"mamba_d_head": 16}, "mamba_d_head is not 32"),
    ("granitemoehybrid", {"mamba_conv_bias": False}, "mamba.conv1d.bias is not part of"),
    ("granitemoehybrid", {"time_step_limit": [1, 0]}, "time_step_limit is no list of two rising"),
    ("granitemoehybrid", {"layer_types": ["mamba"] * 5}, "no layer is of attention"),
    ("granitemoehybrid", {"num_hidden_layers": 512, "hidden_size": 16384, "mamba_n_heads": 128,
                          "mamba_d_head": 256, "mamba_d_state": 256,
                          "layer_types": ["attention"] + ["mamba"] * 511},
     "the state of a sequence takes"),
    ("granitemoehybrid", {"num_local_experts": 0},
     "block_sparse_moe.input_linear.weight is not part of"),
])  # yapf: disable
def test_absurd_numbers_are_refused_by_one_sentence(tmp_path, family, change, sentence):
    for file in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / family / file)
    config = json.loads((TINY / family / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    assert done.returncode == 3 and sentence in done.stderr and done.stderr.count(
        "\n") == 1, done.stderr


def test_a_tensor_of_a_state_that_is_not_there_is_named(tmp_path):
    name = "model.language_model.layers.1.linear_attn.A_log"
    tensors = tensors_of(TINY / "qwen3_5")
    del tensors[name]
    folders.write_safetensors(tmp_path / "model.safetensors", tensors)
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).symlink_to(TINY / "qwen3_5" / file)
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    assert done.returncode == 3 and f"tensor {name} is missing" in done.stderr, done.stderr


@pytest.mark.parametrize("family", STATES)
def test_the_list_of_models_says_that_it_is_served(forms, family):
    for form in ("folder", "gguf"):
        done = support.quern("models", "inspect", forms[family][form])
        assert done.returncode == 0 and "servable     yes" in done.stdout, done.stdout + done.stderr
        state, kv = STATES[family]
        assert f"state        {state} bytes a sequence" in done.stdout
        assert f"KV           {kv} bytes a token" in done.stdout

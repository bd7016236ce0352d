# SPDX-License-Identifier: Apache-2.0
"""DeepSeek: one line of the cache for all heads. Shared beginnings, preemption, quantised matrices
of heads, the memory of the cache, and what is refused."""
import json, random, time

import pytest

import folders, gguf_of, support
from test_next_families import TINY, logits_of, tensors_of

pytestmark = pytest.mark.skipif(not TINY.exists(), reason="shared/tiny_next is not here")
V3 = TINY / "deepseek_v3"
SMALL = support.ROOT / "tests/engine/families"


def answers_of(tmp_path, name, lines, *flags):
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / name, "--model",
                         f"m={V3}", "--device", "cpu", *flags)
    assert done.returncode == 0, done.stderr
    bodies = {}
    for line in (tmp_path / name).read_text().splitlines():
        answer = json.loads(line)
        bodies[answer["custom_id"]] = answer["response"]["body"]
    return bodies


def tokens_of(bodies):
    return {name: body["choices"][0]["token_ids"] for name, body in bodies.items()}


def lines_of(prompts):
    return [{
        "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 30, "ignore_eos": True,
            "return_token_ids": True}} for i, prompt in enumerate(prompts)]


@pytest.mark.parametrize("kernels", ["avx2", "avx512", "avx512-bf16"])
def test_shared_beginnings_and_preemption_change_no_token(tmp_path, kernels):
    draw = random.Random(4)
    common = [draw.randrange(100, 400) for _ in range(150)]
    lines = lines_of([common[:draw.choice((70, 150))] + [draw.randrange(100, 400)
                                                        for _ in range(draw.randint(1, 40))]
                      for _ in range(24)])
    flags = ["--kernels", kernels]
    alone = answers_of(tmp_path, "alone.jsonl", lines, *flags, "--no-enable-prefix-caching",
                       "--max-num-seqs", "1")
    shared = answers_of(tmp_path, "shared.jsonl", lines, *flags)
    # 64 blocks of 16 tokens in 3 layers, each token 96 numbers of 16 bits: too few for 24 at once.
    tight = answers_of(tmp_path, "tight.jsonl", lines, *flags, "--kv-cache-memory-bytes",
                       str(64 * 16 * 3 * 96 * 2))
    assert tokens_of(alone) == tokens_of(shared) == tokens_of(tight)
    cached = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in shared.values()]
    assert sum(count >= 64 for count in cached) >= 20, cached


def test_a_token_takes_one_line_in_each_layer():
    for model in (V3, SMALL / "deepseek_v2"):
        config = json.loads((model / "config.json").read_text())
        line = config["kv_lora_rank"] + config["qk_rope_head_dim"]
        done = support.quern("models", "inspect", model)
        assert done.returncode == 0, done.stderr
        assert f"KV           {2 * line * config['num_hidden_layers']} bytes a token" in done.stdout


def widths(**change):
    """A config whose matrices have columns that every form of weights can cut."""
    config = json.loads((V3 / "config.json").read_text())
    return config | {
        "hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 128,
        "num_hidden_layers": 2, "kv_lora_rank": 128, "q_lora_rank": 128, "num_attention_heads": 2,
        "qk_nope_head_dim": 96, "qk_rope_head_dim": 32, "v_head_dim": 32,
        "num_nextn_predict_layers": 0, "vocab_size": 96} | change


LINEAR = {
    "self_attn.q_a_proj": (128, 128), "self_attn.q_b_proj": (256, 128),
    "self_attn.kv_a_proj_with_mqa": (160, 128), "self_attn.kv_b_proj": (256, 128),
    "self_attn.o_proj": (128, 64)}
NORMS = {
    "input_layernorm": 128, "post_attention_layernorm": 128, "self_attn.q_a_layernorm": 128,
    "self_attn.kv_a_layernorm": 128}


def gauss(rng, *shape):
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    return folders.plain([rng.gauss(0, 0.1) for _ in range(count)], shape)


@pytest.mark.parametrize("form", ["fp8-block", "fp8-channel", "awq", "gptq", "gptq-act"])
def test_quantised_matrices_of_heads_are_what_their_numbers_mean(tmp_path, form):
    quantise, quantization_config = folders.QUANTISED[form]
    rng, small, whole = random.Random(5), {}, {}
    config = widths()
    for name, shape in (("model.embed_tokens", (96, 128)), ("lm_head", (96, 128))):
        small[f"{name}.weight"] = gauss(rng, *shape)
    small["model.norm.weight"] = folders.plain([1.0] * 128, (128, ))
    for layer in range(2):
        before = f"model.layers.{layer}."
        for name, size in NORMS.items():
            small[f"{before}{name}.weight"] = folders.plain([1.0] * size, (size, ))
    small["model.layers.1.mlp.gate.weight"] = gauss(rng, 8, 128)
    small["model.layers.1.mlp.gate.e_score_correction_bias"] = gauss(rng, 8)
    whole |= small
    kept = "BF16" if form.startswith("fp8") or form == "gptq-act" else "F32"
    for layer in range(2):
        modules = dict(LINEAR)
        bases = ["mlp."] if layer == 0 else [
            "mlp.shared_experts.", *(f"mlp.experts.{i}." for i in range(8))]
        modules |= {f"{base}{part}_proj": (128, 128)
                    for base in bases for part in ("gate", "up", "down")}
        for name, (rows, cols) in modules.items():
            module = f"model.layers.{layer}.{name}"
            parts, weight = quantise(rng, module, rows, cols)
            small |= parts
            whole[f"{module}.weight"] = folders.plain(weight, (rows, cols), kept)
    for name, tensors, more in (("small", small, {"quantization_config": quantization_config}),
                                ("whole", whole, {})):
        (tmp_path / name).mkdir()
        folders.write_safetensors(tmp_path / name / "model.safetensors", tensors)
        (tmp_path / name / "config.json").write_text(json.dumps(config | more))
        (tmp_path / name / "tokenizer.json").symlink_to(V3 / "tokenizer.json")
    ids = [[rng.randrange(96) for _ in range(20)]]
    got, expected = (logits_of(tmp_path / name, ids, "--reference", vocab=96)
                     for name in ("small", "whole"))
    assert got == expected


@pytest.mark.parametrize("change, sentence", [
    ({"kv_lora_rank": 0}, "kv_lora_rank is no integer of 1..512"),
    ({"kv_lora_rank": 10**6}, "kv_lora_rank is no integer of 1..512"),
    ({"kv_lora_rank": 80}, "kv_a_proj_with_mqa.weight has 2 axes, 64 x 96, instead of 64 x 112"),
    ({"q_lora_rank": None}, "tensor model.layers.0.self_attn.q_proj.weight is missing"),
    ({"qk_rope_head_dim": 31}, "31 elements of a head cannot be turned: no multiple of 16"),
    ({"qk_nope_head_dim": 10**6}, "qk_nope_head_dim is no integer of 1..512"),
    ({"v_head_dim": 48}, "self_attn.kv_b_proj.weight has 2 axes, 64 x 352, instead of 64 x 384"),
    ({"n_group": 3}, "8 experts cannot be cut into 3 groups"),
    ({"topk_group": 5}, "5 groups of a token are not 1..4"),
    ({"n_routed_experts": 10**6}, "n_routed_experts is no integer of 1..1024"),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9, over the 8 experts"),
    ({"first_k_dense_replace": 4}, "first_k_dense_replace is no integer of 0..3"),
    ({"num_attention_heads": 10**6}, "num_attention_heads is no integer of 1..512"),
    ({"num_nextn_predict_layers": 0}, "model.layers.3."),
    ({"n_shared_experts": 2}, "shared_experts.gate_proj.weight has 2 axes, 64 x 32, instead of"),
    ({"topk_method": "best"}, "topk_method 'best' is not supported"), ])
def test_what_cannot_be_run_is_refused_by_one_sentence(tmp_path, change, sentence):
    for file in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file).symlink_to(V3 / file)
    config = json.loads((V3 / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    begin = time.monotonic()
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    print(f"refused in {time.monotonic() - begin:.2f} s")
    assert done.returncode == 3 and sentence in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("change, sentence", [
    ({"kv_lora_rank": 513}, "deepseek2.attention.kv_lora_rank is 513, not 1..512"),
    ({"kv_lora_rank": 0}, "deepseek2.attention.kv_lora_rank is 0, not 1..512"),
    ({"qk_rope_head_dim": 200}, "deepseek2.rope.dimension_count is 200, not 1..128"),
    ({"qk_nope_head_dim": 0}, "deepseek2.attention.key_length_mla is 32, not 33..544"),
    ({"v_head_dim": 1000}, "deepseek2.attention.value_length_mla is 1000, not 1..512"),
    ({"n_group": 3}, "8 experts cannot be cut into 3 groups"),
    ({"n_shared_experts": 10**6}, "deepseek2.expert_shared_count is 1000000: shared experts of 32"),
    ({"first_k_dense_replace": 3}, "deepseek2.leading_dense_block_count is 3, but there are 3"),
    ({"kv_lora_rank": 48}, "tensor blk.0.attn_kv_a_mqa.weight has 2 axes"), ])
def test_a_gguf_that_cannot_be_run_is_refused_by_one_sentence(tmp_path, change, sentence):
    source = tmp_path / "source"
    source.mkdir()
    for file in ("model.safetensors", "tokenizer.json"):
        (source / file).symlink_to(V3 / file)
    config = json.loads((V3 / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config))
    pairs_of = gguf_of.gguf_of_deepseek.numbers_of
    gguf_of.gguf_of_deepseek.numbers_of = lambda given, form: pairs_of(given | change, form)
    try:
        gguf_of.convert(source, tmp_path / "bad.gguf")
    finally:
        gguf_of.gguf_of_deepseek.numbers_of = pairs_of
    done = support.quern("logits", "--model", tmp_path / "bad.gguf", input='{"ids":[1]}')
    assert done.returncode == 3 and sentence in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["self_attn.kv_b_proj.weight", "self_attn.kv_a_layernorm.weight",
                                  "self_attn.q_b_proj.weight",
                                  "mlp.gate.e_score_correction_bias",
                                  "mlp.shared_experts.up_proj.weight"])
def test_a_tensor_that_is_not_there_is_named(tmp_path, name):
    name = f"model.layers.1.{name}"
    tensors = tensors_of(V3)
    del tensors[name]
    folders.write_safetensors(tmp_path / "model.safetensors", tensors)
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).symlink_to(V3 / file)
    done = support.quern("logits", "--model", tmp_path, input='{"ids":[1]}')
    assert done.returncode == 3 and f"tensor {name} is missing" in done.stderr, done.stderr

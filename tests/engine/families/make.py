#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random models of this folder and what transformers computes with them in float32:
make.py [NAME…]

Needs torch and transformers. Each folder gets config.json as on the Hub, model.safetensors and
reference.json, of the form of shared/tiny (bert: texts' ids and vectors)."""
import json, math, pathlib, sys

import numpy, torch, transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
DECODER = SIZES | {"num_key_value_heads": 1, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}
PLAIN = SIZES | {"num_key_value_heads": 1, "torch_dtype": "bfloat16"}
LONG = {
    "type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5, 1.9, 2.4, 3.1, 4.0], "long_factor": [
        1.0, 1.4, 2.0, 3.0, 5.0, 9.0, 16.0, 30.0]}
YARN = {
    "type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.75,
    "mscale_all_dim": 0.75, "original_max_position_embeddings": 16}
NEMOTRON_H = SIZES | {
    "model_type": "nemotron_h", "num_key_value_heads": 1, "head_dim": 16,
    "torch_dtype": "bfloat16", "max_position_embeddings": 256, "layer_norm_epsilon": 1e-5,
    "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "attention_bias": False,
    "mlp_bias": False, "use_bias": False, "use_conv_bias": True, "mamba_proj_bias": False,
    "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16,
    "conv_kernel": 4, "expand": 2, "chunk_size": 16, "time_step_min": 1e-30,
    "tie_word_embeddings": False}
FALCON_H1 = DECODER | {
    "model_type": "falcon_h1", "num_hidden_layers": 2, "max_position_embeddings": 256,
    "head_dim": 16, "hidden_act": "silu", "rope_theta": 10000.0, "attention_bias": False,
    "mlp_bias": False, "projectors_bias": False, "mamba_d_ssm": 48, "mamba_n_heads": 6,
    "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_chunk_size": 16, "mamba_conv_bias": True, "mamba_proj_bias": False,
    "embedding_multiplier": 1.7, "lm_head_multiplier": 0.8, "key_multiplier": 0.6,
    "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.7, "ssm_in_multiplier": 1.25,
    "ssm_out_multiplier": 0.9, "ssm_multipliers": [0.8, 1.4, 0.7, 1.6, 0.5],
    "mlp_multipliers": [1.5, 0.6], "tie_word_embeddings": False}
EYES = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
CONFIGS = {
    "phi3": DECODER | {
        "model_type": "phi3", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "original_max_position_embeddings": 256, "rope_theta": 10000.0, "rope_scaling": None,
        "sliding_window": 12, "hidden_act": "silu", "tie_word_embeddings": False},
    "phi3-long": DECODER | {
        "model_type": "phi3", "num_hidden_layers": 2, "max_position_embeddings": 512,
        "original_max_position_embeddings": 64, "rope_theta": 10000.0, "rope_scaling": LONG,
        "sliding_window": None, "hidden_act": "silu", "tie_word_embeddings": False},
    "gemma2": DECODER | {
        "model_type": "gemma2", "num_hidden_layers": 4, "max_position_embeddings": 256,
        "head_dim": 16, "rope_theta": 10000.0, "query_pre_attn_scalar": 16, "sliding_window": 12,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 6.0,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "lfm2_moe": SIZES | {
        "model_type": "lfm2_moe", "num_hidden_layers": 5, "max_position_embeddings": 256,
        "num_key_value_heads": 1, "norm_eps": 1e-5, "torch_dtype": "bfloat16", "conv_L_cache": 3,
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "num_dense_layers": 1, "norm_topk_prob": True, "use_expert_bias": True,
        "routed_scaling_factor": 1.5, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0},
        "layer_types": ["conv", "full_attention", "conv", "full_attention", "conv"],
        "tie_word_embeddings": True},
    "cohere": PLAIN | {
        "model_type": "cohere", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "logit_scale": 0.5,
        "use_qk_norm": False},
    "cohere2": PLAIN | {
        "model_type": "cohere2", "num_hidden_layers": 4, "max_position_embeddings": 256,
        "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "logit_scale": 0.25,
        "sliding_window": 12, "sliding_window_pattern": 4},
    "nemotron": PLAIN | {
        "model_type": "nemotron", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "head_dim": 24, "norm_eps": 1e-5, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "hidden_act": "relu2", "tie_word_embeddings": False},
    "apertus": DECODER | {
        "model_type": "apertus", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "hidden_act": "xielu", "rope_theta": 10000.0, "rope_scaling": {
            "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 64, "rope_type": "llama3", "type": "llama3"},
        "tie_word_embeddings": False},
    "hunyuan_v1_dense": DECODER | {
        "model_type": "hunyuan_v1_dense", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "head_dim": 16, "hidden_act": "silu", "rope_theta": 10000.0, "rope_scaling": {
            "alpha": 50.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "type": "dynamic"},
        "tie_word_embeddings": True},
    "nemotron_h": NEMOTRON_H | {
        "hybrid_override_pattern": "M-*M", "num_hidden_layers": 4},
    "nemotron_h-experts": NEMOTRON_H | {
        "hybrid_override_pattern": "MEM*E", "num_hidden_layers": 5, "n_routed_experts": 8,
        "num_experts_per_tok": 3, "n_shared_experts": 1, "moe_intermediate_size": 24,
        "moe_shared_expert_intermediate_size": 40, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5},
    "falcon_h1": FALCON_H1 | {"mamba_rms_norm": False, "mamba_norm_before_gate": False},
    "falcon_h1-norm": FALCON_H1 | {
        "mamba_rms_norm": True, "mamba_norm_before_gate": False, "num_hidden_layers": 1},
    "qwen3_next": DECODER | {
        "model_type": "qwen3_next", "num_hidden_layers": 5, "max_position_embeddings": 256,
        "head_dim": 16, "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "hidden_act": "silu",
        "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2,
        "norm_topk_prob": True, "tie_word_embeddings": False},
    "deepseek_v2": DECODER | {
        "model_type": "deepseek_v2", "num_hidden_layers": 3, "num_key_value_heads": 2,
        "max_position_embeddings": 640, "hidden_act": "silu", "rope_theta": 10000.0,
        "rope_scaling": YARN, "kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 24,
        "qk_rope_head_dim": 16, "v_head_dim": 20, "n_routed_experts": 6, "num_experts_per_tok": 2,
        "n_shared_experts": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
        "scoring_func": "softmax", "norm_topk_prob": False, "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False},
    "deepseek_v2-groups": DECODER | {
        "model_type": "deepseek_v2", "num_hidden_layers": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "hidden_act": "silu", "rope_theta": 10000.0,
        "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 16,
        "v_head_dim": 24, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1,
        "moe_intermediate_size": 16, "first_k_dense_replace": 0, "n_group": 4, "topk_group": 2,
        "topk_method": "group_limited_greedy", "scoring_func": "softmax",
        "norm_topk_prob": False, "routed_scaling_factor": 1.6, "tie_word_embeddings": False},
    "glm4_moe_lite": DECODER | {
        "model_type": "glm4_moe_lite", "num_hidden_layers": 3, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "hidden_act": "silu", "rope_theta": 10000.0,
        "kv_lora_rank": 32, "q_lora_rank": 24, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
        "v_head_dim": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 1.8,
        "attention_bias": False, "num_nextn_predict_layers": 1, "tie_word_embeddings": False},
    "glm4_moe": DECODER | {
        "model_type": "glm4_moe", "num_hidden_layers": 3, "max_position_embeddings": 256,
        "head_dim": 16, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "hidden_act": "silu",
        "attention_bias": True, "use_qk_norm": False, "n_routed_experts": 6,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16,
        "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0, "num_nextn_predict_layers": 1, "tie_word_embeddings": False},
    "glm4_moe-norms": DECODER | {
        "model_type": "glm4_moe", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "head_dim": 16, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "hidden_act": "silu",
        "attention_bias": False, "use_qk_norm": True, "n_routed_experts": 6,
        "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 0, "n_group": 2, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 0, "tie_word_embeddings": True},
    "gemma": DECODER | {
        "model_type": "gemma", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "head_dim": 16, "rope_theta": 10000.0, "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True},
    "granite": DECODER | {
        "model_type": "granite", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
        "embedding_multiplier": 6.0, "residual_multiplier": 0.3, "attention_multiplier": 0.4,
        "logits_scaling": 0.5},
    "granite4": DECODER | {
        "model_type": "granitemoehybrid", "num_hidden_layers": 4, "max_position_embeddings": 256,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
        "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3,
        "logits_scaling": 0.5, "num_local_experts": 0, "num_experts_per_tok": 0,
        "shared_intermediate_size": 48, "position_embedding_type": "rope",
        "layer_types": ["mamba", "attention", "mamba", "mamba"], "mamba_n_heads": 4,
        "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_head": 16, "mamba_d_conv": 4,
        "mamba_expand": 2, "mamba_chunk_size": 16, "mamba_conv_bias": True,
        "mamba_proj_bias": False},
    "ministral3": DECODER | {
        "model_type": "ministral3", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "head_dim": 24, "hidden_act": "silu", "tie_word_embeddings": False, "rope_parameters": {
            "rope_type": "yarn", "type": "yarn", "rope_theta": 10000.0, "factor": 16.0,
            "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0,
            "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}},
    "olmo2": DECODER | {
        "model_type": "olmo2", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False},
    "olmo3": DECODER | {
        "model_type": "olmo3", "num_hidden_layers": 4, "max_position_embeddings": 256,
        "rope_theta": 10000.0, "hidden_act": "silu", "sliding_window": 12,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
            "beta_fast": 4.0, "beta_slow": 1.0, "attention_factor": 1.2079441541679836},
        "tie_word_embeddings": False},
    "exaone4": DECODER | {
        "model_type": "exaone4", "num_hidden_layers": 4, "max_position_embeddings": 256,
        "rope_theta": 10000.0, "hidden_act": "silu", "sliding_window": 12,
        "sliding_window_pattern": 4, "tie_word_embeddings": True},
    "seed_oss": DECODER | {
        "model_type": "seed_oss", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "head_dim": 24, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": True,
        "attention_out_bias": False, "tie_word_embeddings": False},
    "smollm3": DECODER | {
        "model_type": "smollm3", "num_hidden_layers": 4, "max_position_embeddings": 256,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
        "no_rope_layers": [1, 1, 1, 0]},
    "glm4": DECODER | {
        "model_type": "glm4", "num_hidden_layers": 2, "max_position_embeddings": 256,
        "head_dim": 16, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "hidden_act": "silu",
        "attention_bias": True, "tie_word_embeddings": False},
    "phi4-mini": DECODER | {
        "model_type": "phi3", "num_hidden_layers": 2, "max_position_embeddings": 512,
        "original_max_position_embeddings": 64, "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "rope_scaling": LONG | {key: LONG[key][:6] for key in ("short_factor", "long_factor")},
        "sliding_window": None, "hidden_act": "silu", "tie_word_embeddings": True},
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl", "vision_config": EYES | {"out_hidden_size": 32},
        "text_config": DECODER | {
            "model_type": "qwen2_5_vl_text", "num_hidden_layers": 2,
            "max_position_embeddings": 256, "hidden_act": "silu",
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}},
        "tie_word_embeddings": False},
    "qwen3_vl": {
        "model_type": "qwen3_vl", "vision_config": EYES | {
            "out_hidden_size": 32, "deepstack_visual_indexes": [0]},
        "text_config": DECODER | {
            "model_type": "qwen3_vl_text", "num_hidden_layers": 2, "head_dim": 16,
            "max_position_embeddings": 256, "hidden_act": "silu",
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3],
                "mrope_interleaved": True}},
        "tie_word_embeddings": True},
    "embeddinggemma": DECODER | {
        "model_type": "gemma3_text", "num_hidden_layers": 4, "max_position_embeddings": 256,
        "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16,
        "sliding_window": 16, "layer_types": [
            "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "use_bidirectional_attention": True, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "tie_word_embeddings": True},
    "modernbert": SIZES | {
        "model_type": "modernbert", "num_hidden_layers": 5, "max_position_embeddings": 64,
        "layer_norm_eps": 1e-5, "norm_eps": 1e-5, "norm_bias": False, "attention_bias": False,
        "mlp_bias": False, "hidden_activation": "gelu", "global_attn_every_n_layers": 3,
        "local_attention": 16, "global_rope_theta": 16000.0, "local_rope_theta": 100.0,
        "classifier_pooling": "mean", "torch_dtype": "float32"},
    "mpnet": SIZES | {
        "model_type": "mpnet", "num_hidden_layers": 2, "max_position_embeddings": 180,
        "layer_norm_eps": 1e-5, "hidden_act": "gelu", "relative_attention_num_buckets": 32,
        "torch_dtype": "float32"},
    "nomic-bert": SIZES | {
        "model_type": "nomic_bert", "num_hidden_layers": 2, "max_position_embeddings": 64,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "silu", "rope_theta": 1000.0,
        "torch_dtype": "float32"}, "bert": SIZES | {
            "model_type": "bert", "num_hidden_layers": 3, "max_position_embeddings": 48,
            "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
            "intermediate_size": 64, "vocab_size": 80, "torch_dtype": "float32"}, }
WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz",
    *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"), *"0123456789", *".,!?'", "the", "cat", "sat",
    "on", "mat", "is", "a", "dog"]


def split_experts(weights):
    """One tensor for each matrix of each expert, as released files have them; transformers 5 keeps
    gate and up of all experts as one."""
    for name in [name for name in weights if ".mixer." in name]:
        experts = weights[name].unbind() if ".mixer.experts." in name else None
        if experts:
            before, part = name.rsplit(".", 1)
            for i, weight in enumerate(experts):
                weights[f"{before}.{i}.{part}.weight"] = weight.contiguous()
            del weights[name]
    if any(".mixer." in name for name in weights):  # released files of Nemotron-H say backbone
        for name in [name for name in weights if name.startswith("model.")]:
            weights["backbone." + name.removeprefix("model.")] = weights.pop(name)
    for name in [name for name in weights if name.endswith("experts.gate_up_proj")]:
        before = name.removesuffix("gate_up_proj")
        names = ("w1", "w3", "w2") if "feed_forward" in name else (
            "gate_proj", "up_proj", "down_proj")
        pairs, downs = weights.pop(name), weights.pop(before + "down_proj")
        for i, (pair, down) in enumerate(zip(pairs, downs)):
            for part, weight in zip(names, (*pair.chunk(2), down)):
                weights[f"{before}{i}.{part}.weight"] = weight.contiguous()


def fill(model, seed, is_gemma):
    """Random weights that BF16 holds exactly, large enough that every feature moves the logits."""
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in model.named_buffers():
        if name.endswith(("expert_bias", "e_score_correction_bias")):
            buffer.copy_((0.2 * torch.randn(buffer.shape, generator=generator)).bfloat16())
    for name, weight in model.named_parameters():
        value = torch.randn(weight.shape, generator=generator)
        is_norm = "norm" in name.lower() and name.endswith("weight")
        if is_norm:
            lacks_one = is_gemma and "linear_attn" not in name
            value = (0.0 if lacks_one else 1.0) + 0.25 * value
        elif weight.dim() == 1:
            value = 0.3 * value
        elif "embed" in name or "lm_head" in name:
            value = 0.5 * value
        elif "qkv" in name or "q_proj" in name or "k_proj" in name or "query" in name or "key" in name:
            value = value * 1.6 / math.sqrt(weight.shape[1])
        elif "mixer.up_proj" in name:  # its square doubles what bf16 rounds
            value = value * 0.4 / math.sqrt(weight.shape[1])
        else:
            value = value * 0.7 / math.sqrt(weight.shape[1])
        weight.data.copy_(value.to(torch.bfloat16).float())


def decoder_case(model, ids, count=16):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().numpy()
        logprobs = [
            float(row[token] - numpy.logaddexp.reduce(row)) for row, token in zip(logits, ids[1:])]
        greedy, margins, grown = [], [], list(ids)
        for _ in range(count):
            top = torch.topk(model(torch.tensor([grown])).logits[0, -1], 2)
            greedy.append(int(top.indices[0]))
            margins.append(round(float(top.values[0] - top.values[1]), 4))
            grown.append(greedy[-1])
    return {
        "ids": ids, "n": len(ids),
        "last_logits": [round(float(x), 5) for x in logits[-1]], "prompt_logprobs": [
            round(x, 5) for x in logprobs], "greedy_ids": greedy, "greedy_margin": margins}


def bert_case(model, ids):
    with torch.no_grad():
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
    poolings = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}
    return {
        "ids": ids, **{
            name: [round(float(x), 6) for x in vector / vector.norm()]
            for name, vector in poolings.items()}}


def dense(folder, seed, into, out):
    """A module behind the pooling, as sentence-transformers saves it."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, into, generator=generator) / math.sqrt(into)
    folder.mkdir(exist_ok=True)
    save_file({"linear.weight": weight}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(
        json.dumps({
            "in_features": into, "out_features": out, "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity"}) + "\n")
    return weight


def make_embedder(name):
    """EmbeddingGemma: a Gemma 3 that sees both sides, the mean, two products, length 1."""
    given = CONFIGS[name] | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    config = transformers.Gemma3TextConfig(**{
        key: value for key, value in given.items() if key not in ("model_type", "torch_dtype")})
    config._attn_implementation = "eager"
    model = transformers.Gemma3TextModel(config).eval()
    fill(model, 7, True)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}) + "\n")
    products = [dense(folder / "2_Dense", 1, 32, 96), dense(folder / "3_Dense", 2, 96, 24)]
    kinds = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    (folder / "modules.json").write_text(
        json.dumps([{
            "idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)],
                   indent=1) + "\n")
    random = numpy.random.default_rng(3)
    cases = []
    for length in (2, 5, 17, 33, 70):
        ids = [1, *map(int, random.integers(3, 64, length - 1))]
        with torch.no_grad():
            vector = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
            for product in products:
                vector = product @ vector
        cases.append({"ids": ids, "mean": [
            round(float(x), 6) for x in vector / vector.norm()]})
    save_file({key: value.to(torch.bfloat16).contiguous()
               for key, value in model.state_dict().items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    (folder / "config.json").write_text(
        json.dumps(given | {"architectures": ["Gemma3TextModel"]}, indent=1) + "\n")
    (folder / "reference.json").write_text(
        json.dumps({
            "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
            "cases": cases}) + "\n")


def mean_pooling(folder):
    """The files of sentence-transformers that say it."""
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}) + "\n")
    (folder / "modules.json").write_text(
        json.dumps([{
            "idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}"}
                    for i, kind in enumerate(["Transformer", "Pooling"])], indent=1) + "\n")


def make(name):
    if name == "embeddinggemma":
        return make_embedder(name)
    given = CONFIGS[name]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    settings = {
        key: value
        for key, value in given.items()
        if key not in ("model_type", "torch_dtype")}
    is_encoder = "bert" in name or name == "mpnet"
    settings |= {"pad_token_id": 0} if is_encoder else {
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    given = given | {
        key: settings[key]
        for key in ("pad_token_id", "bos_token_id", "eos_token_id")
        if key in settings}
    config = transformers.AutoConfig.for_model(given["model_type"], **settings)
    config._attn_implementation = "eager"
    sees = "vision_config" in given
    kind = transformers.AutoModel if is_encoder else transformers.AutoModelForCausalLM
    if sees:
        kind = transformers.AutoModelForImageTextToText
    model = kind.from_config(config,
                             dtype=torch.float32,
                             attn_implementation="eager",
                             **({"add_pooling_layer": False} if name in (
                                 "bert", "mpnet", "nomic-bert") else {})).eval()
    fill(model, 7, name in ("gemma", "gemma2", "nemotron", "qwen3_next"))
    model.tie_weights()
    random = numpy.random.default_rng(3)
    if is_encoder:
        cases = [
            bert_case(model, [2, *map(int, random.integers(5, given["vocab_size"], length - 2)), 3])
            for length in ((2, 17, 48, 65, 170) if name == "mpnet" else (2, 5, 17, 33, 48))]
        given = given | {"architectures": [type(model).__name__]}
    else:
        lengths = (4, 23, 45) if "long_factor" in (given.get("rope_scaling") or {}) else (
            4, 23, 70)  # with the greedy ids still below the original length of 64
        cases = [
            decoder_case(model, [1, *map(int, random.integers(3, 64, length - 1))])
            for length in lengths]
        given = given | {"architectures": [type(model).__name__]}
    dtype = torch.float32 if is_encoder else torch.bfloat16
    weights = {
        key: value.to(dtype).contiguous()
        for key, value in model.state_dict().items()
        if key != "lm_head.weight" or not given.get("tie_word_embeddings")}
    split_experts(weights)
    for i in range(given.get("num_nextn_predict_layers", 0)):  # parts of what guesses tokens
        before = f"model.layers.{given['num_hidden_layers'] + i}."
        weights |= {
            before + "eh_proj.weight": torch.ones(32, 64, dtype=dtype),
            before + "enorm.weight": torch.ones(32, dtype=dtype)}
    if sees:  # one tensor stands for all that a reader of text passes over
        weights = {
            key: value
            for key, value in weights.items()
            if "visual" not in key or key.endswith("blocks.0.norm1.weight")}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(given, indent=1) + "\n")
    (folder / "reference.json").write_text(
        json.dumps({
            "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
            "cases": cases}) + "\n")
    if name in ("modernbert", "mpnet"):
        mean_pooling(folder)
    if name == "bert":
        (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for wanted in sys.argv[1:] or CONFIGS:
        make(wanted)

# SPDX-License-Identifier: Apache-2.0
"""Tiny configurations of the decoders of the table of families, in the form of the Hub, from which
drawn.py draws: those of make.py, and those whose models lie in ../shared."""
from make import CONFIGS, DECODER, SIZES

ENCODERS = ("bert", "nomic-bert", "mpnet", "modernbert", "embeddinggemma")
ROPE = {"max_position_embeddings": 256, "rope_theta": 10000.0}
SILU = {"hidden_act": "silu", "tie_word_embeddings": False}
MOE = {
    "moe_intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": []}
DELTA = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "full_attention_interval": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention", "linear_attention"]}
GEMMA = DECODER | {
    "max_position_embeddings": 256, "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 12, "tie_word_embeddings": True}
GEMMA4 = GEMMA | {
    "model_type": "gemma4_text", "vocab_size_per_layer_input": 64, "global_head_dim": 32,
    "final_logit_softcapping": 30.0, "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
V3 = DECODER | ROPE | SILU | {
    "num_key_value_heads": 2, "num_hidden_layers": 3, "kv_lora_rank": 32, "q_lora_rank": 24,
    "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16,
    "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
    "routed_scaling_factor": 1.8, "rope_interleave": True, "topk_method": "noaux_tc",
    "scoring_func": "sigmoid"}
QWEN35 = DECODER | DELTA | {
    "num_hidden_layers": 5, "max_position_embeddings": 256, "head_dim": 16, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "mrope_section": [2, 1, 1], "mrope_interleaved": True}}
DRAWN = {
    name: config for name, config in CONFIGS.items() if name not in ENCODERS} | {
    "llama": DECODER | ROPE | SILU | {"model_type": "llama", "num_hidden_layers": 2},
    "mistral": DECODER | ROPE | SILU | {
        "model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 12, "head_dim": 24},
    "qwen2": DECODER | ROPE | SILU | {
        "model_type": "qwen2", "num_hidden_layers": 3, "use_sliding_window": False,
        "sliding_window": 12, "max_window_layers": 1},
    "qwen3": DECODER | ROPE | SILU | {
        "model_type": "qwen3", "num_hidden_layers": 3, "head_dim": 24, "attention_bias": False,
        "use_sliding_window": False, "sliding_window": 12, "max_window_layers": 1},
    "qwen3_moe": DECODER | ROPE | SILU | MOE | {
        "model_type": "qwen3_moe", "num_hidden_layers": 3, "head_dim": 24,
        "attention_bias": False, "use_sliding_window": False, "sliding_window": 12,
        "max_window_layers": 1},
    "qwen3_5_text": QWEN35 | SILU | {"model_type": "qwen3_5_text"},
    "qwen3_5_moe_text": QWEN35 | SILU | {
        "model_type": "qwen3_5_moe_text", "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24},
    "gpt_oss": DECODER | ROPE | {
        "model_type": "gpt_oss", "num_hidden_layers": 4, "head_dim": 24, "num_local_experts": 6,
        "num_experts_per_tok": 2, "sliding_window": 12, "swiglu_limit": 7.0, "layer_types": [
            "sliding_attention", "full_attention"] * 2,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 64},
        "tie_word_embeddings": False},
    "gemma3_text": GEMMA | {
        "model_type": "gemma3_text", "num_hidden_layers": 4, "query_pre_attn_scalar": 20,
        "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "layer_types": [
            "sliding_attention", "sliding_attention", "full_attention", "full_attention"]},
    "gemma4_e": GEMMA4 | {
        "num_hidden_layers": 6, "layer_types": [
            "sliding_attention", "sliding_attention", "full_attention"] * 2,
        "hidden_size_per_layer_input": 16, "num_kv_shared_layers": 3,
        "use_double_wide_mlp": True},
    "gemma4_moe": GEMMA4 | {
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "layer_types": [
            "sliding_attention"] * 3 + ["full_attention"], "num_global_key_value_heads": 1,
        "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False, "enable_moe_block": True, "num_experts": 6,
        "top_k_experts": 2, "moe_intermediate_size": 16},
    "deepseek_v3": V3 | {"model_type": "deepseek_v3"},
    "lfm2": SIZES | {
        "model_type": "lfm2", "num_hidden_layers": 4, "num_key_value_heads": 1, "norm_eps": 1e-5,
        "torch_dtype": "bfloat16", "conv_L_cache": 3, "conv_bias": False, "block_multiple_of": 8,
        "block_ffn_dim_multiplier": 1.5, "block_auto_adjust_ff_dim": True,
        "max_position_embeddings": 256, "rope_theta": 10000.0, "layer_types": [
            "conv", "full_attention", "conv", "full_attention"], "tie_word_embeddings": True},
    "granitemoehybrid": CONFIGS["granite4"] | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 16,
        "position_embedding_type": "nope"},
}
EYES = CONFIGS["qwen3_vl"]
DRAWN["qwen3_vl_moe"] = EYES | {
    "model_type": "qwen3_vl_moe", "tie_word_embeddings": False, "text_config": {
        key: value for key, value in (EYES["text_config"] | MOE).items()
        if key not in ("decoder_sparse_step", "mlp_only_layers")} | {
            "model_type": "qwen3_vl_moe_text"}}
BASES = {
    name: config | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    for name, config in DRAWN.items()}

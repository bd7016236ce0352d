# SPDX-License-Identifier: Apache-2.0
"""A folder of Gemma 4 as the pairs and tensors of a GGUF file, by the rules of llama.cpp's
converter, which Ollama's follows: one length of heads for layers without a window and one for those
with it, and a huge divisor for the pairs that a head does not rotate. gguf_of.py calls it."""
import struct

NAMES = {
    "embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
    "embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    "input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight", "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
    "per_layer_input_gate.weight": "inp_gate.weight", "per_layer_projection.weight": "proj.weight",
    "post_per_layer_input_norm.weight": "post_norm.weight",
    "layer_scalar": "layer_output_scale.weight"}


def numbers_of(text):
    """key and value: a float, an integer, or a list of integers or flags."""
    layers = text["num_hidden_layers"]
    local = [kind == "sliding_attention" for kind in text["layer_types"]]
    first_shared = layers - text["num_kv_shared_layers"]
    wide = [
        2 if text["use_double_wide_mlp"] and i >= first_shared else 1
        for i in range(layers)]
    kv = text["num_key_value_heads"]
    global_kv = text["num_global_key_value_heads"] if text["attention_k_eq_v"] else kv
    yield "block_count", layers
    yield "context_length", text["max_position_embeddings"]
    yield "embedding_length", text["hidden_size"]
    yield "embedding_length_per_layer_input", text["hidden_size_per_layer_input"]
    yield "feed_forward_length", [factor * text["intermediate_size"] for factor in wide]
    yield "attention.head_count", text["num_attention_heads"]
    yield "attention.head_count_kv", [kv if is_local else global_kv for is_local in local]
    yield "attention.key_length", text["global_head_dim"]
    yield "attention.value_length", text["global_head_dim"]
    yield "attention.key_length_swa", text["head_dim"]
    yield "attention.value_length_swa", text["head_dim"]
    yield "attention.sliding_window", text["sliding_window"]
    yield "attention.sliding_window_pattern", local
    yield "attention.shared_kv_layers", text["num_kv_shared_layers"]
    yield "attention.layer_norm_rms_epsilon", float(text["rms_norm_eps"])
    yield "final_logit_softcapping", float(text["final_logit_softcapping"])
    for key, kind in (("rope.freq_base", "full_attention"), ("rope.freq_base_swa",
                                                             "sliding_attention")):
        yield key, float(text["rope_parameters"][kind]["rope_theta"])
    yield "rope.dimension_count", text["global_head_dim"]
    yield "rope.dimension_count_swa", text["head_dim"]
    if text["enable_moe_block"]:
        yield "expert_count", text["num_experts"]
        yield "expert_used_count", text["top_k_experts"]
        yield "expert_feed_forward_length", text["moe_intermediate_size"]


def tensors_of(entries, text):
    for name, (kind, shape, content) in entries.items():
        rest = name.removeprefix("model.").removeprefix("language_model.")
        layer = ""
        if rest.startswith("layers."):
            _, number, rest = rest.split(".", 2)
            layer = f"blk.{number}."
        yield layer + NAMES[rest], kind, shape, content
    pairs = text["global_head_dim"] // 2
    turned = int(text["rope_parameters"]["full_attention"]["partial_rotary_factor"] * pairs)
    yield "rope_freqs.weight", "F32", [pairs], struct.pack(
        f"<{pairs}f", *[1.0] * turned, *[1e30] * (pairs - turned))

# SPDX-License-Identifier: Apache-2.0
"""A folder of DeepSeek V2 or V3, or of GLM-4's experts, as the pairs and tensors of a GGUF file, by
the rules of llama.cpp's converter. With the form "first" they are those of before the matrices of
keys and values lay apart. gguf_of.py calls it."""
import gguf_of_states

COUNTS = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads", "feed_forward_length": "intermediate_size",
    "expert_count": "n_routed_experts", "expert_used_count": "num_experts_per_tok",
    "expert_shared_count": "n_shared_experts", "expert_feed_forward_length": "moe_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace", "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank", "expert_weights_scale": "routed_scaling_factor",
    "expert_weights_norm": "norm_topk_prob", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta", "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group"}
NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp", "eh_proj": "nextn.eh_proj",
    "enorm": "nextn.enorm", "hnorm": "nextn.hnorm"}
KINDS = {"deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm4_moe_lite": "deepseek2",
         "glm4_moe": "glm4moe"}


def apart(content, config):
    """The rows of each head's keys, turned, and those of its values."""
    rank, still, value = (config[key] for key in ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim"))
    heads = config["num_attention_heads"]
    bytes_each = len(content) // (heads * (still + value) * rank)
    def at(row, col):
        place = (row * rank + col) * bytes_each
        return content[place:place + bytes_each]

    keys = b"".join(
        at(head * (still + value) + row, col) for head in range(heads) for col in range(rank)
        for row in range(still))
    begins = [(head * (still + value) + still) * rank * bytes_each for head in range(heads)]
    values = b"".join(content[begin:begin + value * rank * bytes_each] for begin in begins)
    return (keys, [heads, rank, still]), (values, [heads, value, rank])


def tensors_of(entries, config, form):
    """(name, kind, shape, content) of each tensor."""
    keeps_all = config["model_type"] == "glm4_moe"  # the layers that guess, too
    for name, (kind, shape, content) in gguf_of_states.joined(entries).items():
        layer, name = "", name.removeprefix("model.")
        if name.startswith("layers."):
            _, number, name = name.split(".", 2)
            layer = f"blk.{number}."
            if int(number) >= config["num_hidden_layers"] and not keeps_all:
                continue
        if name == "mlp.gate.e_score_correction_bias":
            base, ending = "exp_probs_b", "bias"
        else:
            base, _, ending = name.rpartition(".")
            base = NAMES[base]
        if base == "ffn_norm" and keeps_all:
            base = "post_attention_norm"
        if len(shape) == 1 and kind == "BF16":
            kind, content = "F32", gguf_of_states.floats(kind, content).tobytes()
        if base == "attn_kv_b" and form != "first":
            for part, (data, axes) in zip("kv", apart(content, config)):
                yield f"{layer}attn_{part}_b.weight", kind, axes, data
            continue
        yield f"{layer}{base}.{ending}", kind, shape, content


def numbers_of(config, form):
    """{key: number, flag or text} without the prefix of the architecture."""
    numbers = {key: config[field] for key, field in COUNTS.items() if config.get(field) is not None}
    is_sigmoid = config["model_type"] != "deepseek_v2"
    numbers |= {"block_count": config["num_hidden_layers"], "expert_gating_func": 1 + is_sigmoid}
    if not is_sigmoid and config["topk_method"] == "greedy":
        numbers |= {"expert_group_count": 1, "expert_group_used_count": 1}
    if config["model_type"] == "glm4_moe":
        skipped = config["num_nextn_predict_layers"]
        return numbers | {
            "block_count": config["num_hidden_layers"] + skipped, "nextn_predict_layers": skipped,
            "attention.head_count_kv": config["num_key_value_heads"],
            "attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"],
            "rope.dimension_count": int(config["head_dim"] * config["partial_rotary_factor"])}
    turned, rank = config["qk_rope_head_dim"], config["kv_lora_rank"]
    key = config["qk_nope_head_dim"] + turned
    numbers |= {"rope.dimension_count": turned}
    if form == "first":
        numbers |= {
            "attention.head_count_kv": config["num_attention_heads"], "attention.key_length": key,
            "attention.value_length": config["v_head_dim"]}
    else:
        numbers |= {
            "attention.head_count_kv": 1, "attention.key_length": rank + turned,
            "attention.value_length": rank, "attention.key_length_mla": key,
            "attention.value_length_mla": config["v_head_dim"]}
    if yarn := config.get("rope_scaling"):
        numbers |= {
            "rope.scaling.type": "yarn", "rope.scaling.factor": yarn["factor"],
            "rope.scaling.original_context_length": yarn["original_max_position_embeddings"],
            "rope.scaling.yarn_log_multiplier": 0.1 * yarn["mscale_all_dim"]}
    return numbers

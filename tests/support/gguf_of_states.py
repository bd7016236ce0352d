# SPDX-License-Identifier: Apache-2.0
"""A folder of LFM2 (dense or with experts) as the pairs and tensors of a GGUF file, by the rules of
llama.cpp's converter, which Ollama's follows. gguf_of.py calls it."""
import array, collections, re

COUNTS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "leading_dense_block_count": "num_dense_layers", "shortconv.l_cache": "conv_L_cache"}
LFM2 = {
    "embed_tokens.weight": "token_embd.weight", "embedding_norm.weight": "token_embd_norm.weight",
    "operator_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.out_proj.weight": "attn_output.weight",
    "self_attn.q_layernorm.weight": "attn_q_norm.weight",
    "self_attn.k_layernorm.weight": "attn_k_norm.weight",
    "conv.in_proj.weight": "shortconv.in_proj.weight", "conv.conv.weight": "shortconv.conv.weight",
    "conv.out_proj.weight": "shortconv.out_proj.weight",
    "feed_forward.w1.weight": "ffn_gate.weight", "feed_forward.w2.weight": "ffn_down.weight",
    "feed_forward.w3.weight": "ffn_up.weight", "feed_forward.gate.weight": "ffn_gate_inp.weight",
    "feed_forward.expert_bias": "exp_probs_b.bias",
    "feed_forward.experts.w1.weight": "ffn_gate_exps.weight",
    "feed_forward.experts.w2.weight": "ffn_down_exps.weight",
    "feed_forward.experts.w3.weight": "ffn_up_exps.weight"}
KINDS = {"lfm2": "lfm2", "lfm2_moe": "lfm2moe"}


def floats(kind, content):
    if kind == "F32":
        return array.array("f", content)
    return array.array("f", b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2)))


def joined(entries):
    """The entries, with the experts of a layer as one."""
    parts, others = collections.defaultdict(dict), {}
    for name, entry in entries.items():
        if found := re.match(r"(.*\.experts)\.(\d+)(\..*)", name):
            parts[found[1] + found[3]][int(found[2])] = entry
        else:
            others[name] = entry
    for name, experts in parts.items():
        kind, shape, _ = experts[0]
        others[name] = kind, [len(experts), *shape], b"".join(
            experts[i][2] for i in range(len(experts)))
    return others


def tensors_of(entries, config):
    """(name, kind, shape, content) of each tensor."""
    for name, (kind, shape, content) in joined(entries).items():
        layer, name = "", name.removeprefix("model.")
        if name.startswith("layers."):
            _, number, name = name.split(".", 2)
            layer = f"blk.{number}."
        to = LFM2[name]
        if len(shape) == 3 and shape[1] == 1:
            shape = [shape[0], shape[2]]
        if len(shape) == 1 or "conv.conv" in to:
            kind, content = "F32", floats(kind, content).tobytes()
        yield layer + to, kind, shape, content


def numbers_of(config):
    """{key: number or list of them} without the prefix of the architecture."""
    numbers = {key: config[field] for key, field in COUNTS.items() if config.get(field) is not None}
    heads = config["num_key_value_heads"]
    numbers |= {
        "attention.head_count_kv": [
            0 if kind == "conv" else heads for kind in config["layer_types"]],
        "attention.layer_norm_rms_epsilon": config["norm_eps"],
        "rope.freq_base": config["rope_theta"], "feed_forward_length": config["intermediate_size"]}
    if config["model_type"] == "lfm2" and config.get("block_auto_adjust_ff_dim", True):
        multiple, width = config["block_multiple_of"], 2 * config["intermediate_size"] // 3
        numbers["feed_forward_length"] = -(-width // multiple) * multiple
    if config["model_type"] == "lfm2_moe":
        numbers |= {
            "expert_count": config["num_experts"], "expert_gating_func": 2,
            "expert_weights_scale": config["routed_scaling_factor"]}
    return numbers

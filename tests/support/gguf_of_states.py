# SPDX-License-Identifier: Apache-2.0
"""A folder of LFM2 or Granite 4, dense or with experts, as the pairs and tensors of a GGUF file, by
the rules of llama.cpp's converter, which Ollama's follows. gguf_of.py calls it."""
import array, collections, math, re

COUNTS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "leading_dense_block_count": "num_dense_layers", "shortconv.l_cache": "conv_L_cache",
    "feed_forward_length": "intermediate_size", "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state", "ssm.group_count": "mamba_n_groups",
    "ssm.time_step_rank": "mamba_n_heads", "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling", "expert_shared_feed_forward_length": "shared_intermediate_size"}
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
GRANITE = {
    "embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "mamba.in_proj.weight": "ssm_in.weight", "mamba.conv1d.weight": "ssm_conv1d.weight",
    "mamba.conv1d.bias": "ssm_conv1d.bias", "mamba.A_log": "ssm_a", "mamba.D": "ssm_d",
    "mamba.dt_bias": "ssm_dt.bias", "mamba.norm.weight": "ssm_norm.weight",
    "mamba.out_proj.weight": "ssm_out.weight",
    "block_sparse_moe.router.layer.weight": "ffn_gate_inp.weight",
    "block_sparse_moe.output_linear.weight": "ffn_down_exps.weight"}
KINDS = {"lfm2": "lfm2", "lfm2_moe": "lfm2moe", "granitemoehybrid": "granitehybrid"}


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


def permuted(content, rows, dim):
    """Rows (head, half, i) as (head, i, half)."""
    row = len(content) // rows
    order = (head + half * (dim // 2) + i
             for head in range(0, rows, dim)
             for i in range(dim // 2)
             for half in range(2))
    return b"".join(content[at * row:(at + 1) * row] for at in order)


def halves(layer, name, kind, shape, content):
    """Gate and up, which a folder has in one."""
    *experts, rows, cols = shape
    count = math.prod(experts)
    each = len(content) // count // 2
    for i, half in enumerate(("gate", "up")):
        yield f"{layer}ffn_{half}{name}.weight", kind, [*experts, rows // 2, cols], b"".join(
            content[(2 * e + i) * each:(2 * e + i + 1) * each] for e in range(count))


def granite_tensor(layer, name, config, kind, shape, content):
    ending = "_shexp" if config["num_local_experts"] else ""
    heads = {"attn_q.weight": "num_attention_heads", "attn_k.weight": "num_key_value_heads"}
    if name == "block_sparse_moe.input_linear.weight":
        yield from halves(layer, "_exps", kind, shape, content)
    elif name == "shared_mlp.input_linear.weight":
        yield from halves(layer, ending, kind, shape, content)
    elif name == "shared_mlp.output_linear.weight":
        yield f"{layer}ffn_down{ending}.weight", kind, shape, content
    else:
        to = GRANITE[name]
        if to in heads:
            content = permuted(content, shape[0], shape[0] // config[heads[to]])
        if len(shape) == 1 or len(shape) == 3 and shape[1] == 1:
            numbers = floats(kind, content)
            if to == "ssm_a":
                numbers = array.array("f", (-math.exp(number) for number in numbers))
            kind, content = "F32", numbers.tobytes()
            if to in ("ssm_a", "ssm_d"):
                shape = [shape[0], 1]
            if to == "ssm_norm.weight":
                groups = config["mamba_n_groups"]
                shape = [groups, shape[0] // groups]
            if len(shape) == 3:
                shape = [shape[0], shape[2]]
        yield layer + to, kind, shape, content


def tensors_of(entries, config):
    """(name, kind, shape, content) of each tensor."""
    for name, (kind, shape, content) in joined(entries).items():
        layer, name = "", name.removeprefix("model.")
        if name.startswith("layers."):
            _, number, name = name.split(".", 2)
            layer = f"blk.{number}."
        if config["model_type"] == "granitemoehybrid":
            yield from granite_tensor(layer, name, config, kind, shape, content)
            continue
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
    if config["model_type"] == "granitemoehybrid":
        numbers |= {
            "attention.head_count_kv": [
                0 if kind == "mamba" else heads for kind in config["layer_types"]],
            "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
            "rope.freq_base": config["rope_theta"], "rope.scaling.finetuned": config[
                "position_embedding_type"] == "rope",
            "ssm.inner_size": config["mamba_expand"] * config["hidden_size"]}
        return numbers | (
            {"expert_count": config["num_local_experts"]} if config["num_local_experts"] else {
                "feed_forward_length": config["shared_intermediate_size"]})
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

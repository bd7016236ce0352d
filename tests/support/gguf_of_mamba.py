# SPDX-License-Identifier: Apache-2.0
"""A folder of Nemotron-H or Falcon-H1 as the pairs and tensors of a GGUF file, by the rules of
llama.cpp's converter: it puts Falcon-H1's factors into the weights, which are F32 here for that
reason. gguf_of.py calls it."""
import array, math

from gguf_of_states import floats, joined

COUNTS = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads", "attention.key_length": "head_dim",
    "attention.value_length": "head_dim"}
OF_NEMOTRON = {
    "ssm.conv_kernel": "conv_kernel", "ssm.state_size": "ssm_state_size",
    "ssm.group_count": "n_groups", "ssm.time_step_rank": "mamba_num_heads"}
OF_EXPERTS = {
    "expert_count": "n_routed_experts", "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
    "expert_shared_count": "n_shared_experts", "expert_weights_norm": "norm_topk_prob",
    "expert_weights_scale": "routed_scaling_factor", "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group"}
OF_FALCON = {
    "block_count": "num_hidden_layers", "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size", "ssm.conv_kernel": "mamba_d_conv",
    "ssm.inner_size": "mamba_d_ssm", "ssm.state_size": "mamba_d_state",
    "ssm.group_count": "mamba_n_groups", "ssm.time_step_rank": "mamba_n_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta"}
STATES = {
    "in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight",
    "conv1d.bias": "ssm_conv1d.bias", "A_log": "ssm_a", "D": "ssm_d", "dt_bias": "ssm_dt.bias",
    "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight"}
HEADS = {f"{part}_proj.weight": f"attn_{to}.weight"
         for part, to in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))}
NEMOTRON = {
    "embeddings.weight": "token_embd.weight", "norm_f.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "norm.weight": "attn_norm.weight",
    "mixer.up_proj.weight": "ffn_up.weight", "mixer.down_proj.weight": "ffn_down.weight",
    "mixer.gate.weight": "ffn_gate_inp.weight",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mixer.experts.up_proj.weight": "ffn_up_exps.weight",
    "mixer.experts.down_proj.weight": "ffn_down_exps.weight",
    "mixer.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mixer.shared_experts.down_proj.weight": "ffn_down_shexp.weight"} | {
        f"mixer.{name}": to for name, to in (STATES | HEADS).items()}
FALCON = {
    "embed_tokens.weight": "token_embd.weight", "final_layernorm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "input_layernorm.weight": "attn_norm.weight",
    "pre_ff_layernorm.weight": "ffn_norm.weight", "feed_forward.gate_proj.weight":
    "ffn_gate.weight", "feed_forward.up_proj.weight": "ffn_up.weight",
    "feed_forward.down_proj.weight": "ffn_down.weight"} | {
        f"mamba.{name}": to for name, to in STATES.items()} | {
            f"self_attn.{name}": to for name, to in HEADS.items()}
KINDS = {"nemotron_h": "nemotron_h", "falcon_h1": "falcon-h1"}


def kind_of(config):
    has_experts = "E" in config.get("hybrid_override_pattern", "")
    return KINDS[config["model_type"]] + ("_moe" if has_experts else "")


def scaled(numbers, to, shape, config):
    """The numbers with the factors that belong to them."""
    states, width = config["ssm_multipliers"], config["mamba_d_ssm"]
    keys = config["mamba_n_groups"] * config["mamba_d_state"]
    factors = {
        "token_embd.weight": config["embedding_multiplier"],
        "output.weight": config["lm_head_multiplier"],
        "attn_q.weight": config["attention_in_multiplier"],
        "attn_k.weight": config["attention_in_multiplier"] * config["key_multiplier"],
        "attn_v.weight": config["attention_in_multiplier"],
        "attn_output.weight": config["attention_out_multiplier"],
        "ssm_out.weight": config["ssm_out_multiplier"],
        "ffn_gate.weight": config["mlp_multipliers"][0],
        "ffn_down.weight": config["mlp_multipliers"][1]}
    rows = [factors.get(to, 1.0)] * shape[0]
    if to == "ssm_in.weight":
        ends = (width, 2 * width, 2 * width + keys, 2 * width + 2 * keys, shape[0])
        rows = [config["ssm_multipliers"][next(i for i, end in enumerate(ends) if row < end)] *
                config["ssm_in_multiplier"] for row in range(shape[0])]
    each = len(numbers) // shape[0]
    return array.array("f", (number * rows[i // each] for i, number in enumerate(numbers)))


def tensors_of(entries, config):
    """(name, kind, shape, content) of each tensor."""
    is_falcon = config["model_type"] == "falcon_h1"
    for name, (kind, shape, content) in joined(entries).items():
        layer, name = "", name.removeprefix("model.").removeprefix("backbone.")
        if name.startswith("layers."):
            _, number, name = name.split(".", 2)
            layer = f"blk.{number}."
        to = (FALCON if is_falcon else NEMOTRON)[name]
        if len(shape) == 3 and shape[1] == 1:
            shape = [shape[0], shape[2]]
        if is_falcon or len(shape) == 1 or "conv1d" in to:
            numbers = floats(kind, content)
            if is_falcon and len(shape) == 2 and "conv1d" not in to:
                numbers = scaled(numbers, to, shape, config)
            if to == "ssm_a":
                numbers = array.array("f", (-math.exp(number) for number in numbers))
            kind, content = "F32", numbers.tobytes()
        if to in ("ssm_a", "ssm_d"):
            shape = [shape[0], 1]
        if to == "ssm_norm.weight":
            groups = config["mamba_n_groups" if is_falcon else "n_groups"]
            shape = [groups, shape[0] // groups]
        yield layer + to, kind, shape, content


def numbers_of(config):
    """{key: number or list of them} without the prefix of the architecture."""
    fields = COUNTS | (OF_FALCON if config["model_type"] == "falcon_h1" else OF_NEMOTRON)
    if kind_of(config).endswith("_moe"):
        fields |= OF_EXPERTS
    numbers = {key: config[field] for key, field in fields.items()}
    if config["model_type"] == "falcon_h1":
        return numbers
    pattern = config["hybrid_override_pattern"]
    width = config["moe_intermediate_size" if "E" in pattern else "intermediate_size"]
    return numbers | {
        "block_count": len(pattern),
        "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"],
        "ssm.inner_size": config["mamba_num_heads"] * config["mamba_head_dim"],
        "attention.head_count_kv": [
            config["num_key_value_heads"] if kind == "*" else 0 for kind in pattern],
        "feed_forward_length": [width if kind in "-E" else 0 for kind in pattern]}

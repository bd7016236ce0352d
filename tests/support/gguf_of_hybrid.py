# SPDX-License-Identifier: Apache-2.0
"""A folder of Qwen3.5 (dense or with experts) as the pairs and tensors of a GGUF file, by the
rules of llama.cpp's converter, which Ollama's follows: value heads take turns with the key heads, the decay is
-e^A, norms have their one. gguf_of.py calls it."""
import array, math

COUNTS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "attention.value_length": "head_dim",
    "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "ssm.conv_kernel": "linear_conv_kernel_dim", "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads", "ssm.time_step_rank": "linear_num_value_heads",
    "full_attention_interval": "full_attention_interval"}
NAMES = {
    "embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight", "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "mlp.experts.gate_proj.weight": "ffn_gate_exps.weight",
    "mlp.experts.up_proj.weight": "ffn_up_exps.weight",
    "mlp.experts.down_proj.weight": "ffn_down_exps.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight"}


def floats(kind, content):
    if kind == "F32":
        return array.array("f", content)
    return array.array("f", b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2)))


def tiled(content, text, first, each):
    """The rows from `first` on, in runs of `each` bytes per value head, in the order of GGUF."""
    keys, values = text["linear_num_key_heads"], text["linear_num_value_heads"]
    heads = [content[first + i * each:first + (i + 1) * each] for i in range(values)]
    share = values // keys
    return content[:first] + b"".join(heads[k * share + i] for i in range(share)
                                      for k in range(keys))


def reordered(name, text, shape, content):
    width = 4 if shape == [text["linear_num_value_heads"]] else 2
    row = len(content) // shape[0]
    value = text["linear_value_head_dim"]
    keys = 2 * text["linear_num_key_heads"] * text["linear_key_head_dim"]
    if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
        return tiled(content, text, keys * row, value * row)
    if name == "attn_gate.weight":
        return tiled(content, text, 0, value * row)
    if name in ("ssm_alpha.weight", "ssm_beta.weight"):
        return tiled(content, text, 0, row)
    if name in ("ssm_a", "ssm_dt.bias"):
        return tiled(content, text, 0, width)
    if name == "ssm_out.weight":
        return b"".join(
            tiled(content[i:i + row], text, 0, value * 2) for i in range(0, len(content), row))
    return content


def tensor_of(name, text, kind, shape, content):
    """(name, kind, shape, content) of one tensor; the name is the folder's, without its prefix."""
    layer = ""
    if name.startswith("layers."):
        _, number, name = name.split(".", 2)
        layer = f"blk.{number}."
    if name not in NAMES:
        return None
    to = NAMES[name]
    if to == "ssm_conv1d.weight":
        shape = [shape[0], shape[2]]
    if to == "ffn_gate_inp_shexp.weight":
        shape = [shape[1]]
    if len(shape) == 1 or to == "ssm_conv1d.weight":
        numbers = floats(kind, content)
        if to.endswith("norm.weight") and to != "ssm_norm.weight":
            numbers = array.array("f", (1 + number for number in numbers))
        if to == "ssm_a":
            numbers = array.array("f", (-math.exp(number) for number in numbers))
        kind, content = "F32", numbers.tobytes()
    return layer + to, kind, shape, reordered(to, text, shape, content)


def is_hybrid(config):
    return config["model_type"] in ("qwen3_5", "qwen3_5_moe")


def tensors_of(entries, config):
    text = config["text_config"]
    for name, (kind, shape, content) in entries.items():
        if name == "lm_head.weight":
            yield "output.weight", kind, shape, content
        elif name.startswith("model.") and not name.startswith("model.visual."):
            rest = name.removeprefix("model.").removeprefix("language_model.")
            tensor = tensor_of(rest, text, kind, shape, content)
            assert tensor, name
            yield tensor
        elif name.startswith("mtp.norm"):  # the layer that guesses further tokens is not run
            yield (f"blk.{text['num_hidden_layers']}.nextn.shared_head_norm.weight", kind, shape,
                   content)


def numbers_of(config):
    """{key: integer or float} without the prefix of the architecture."""
    text = config["text_config"]
    rope = text["rope_parameters"]
    numbers = {key: text[field] for key, field in COUNTS.items() if text.get(field) is not None}
    return numbers | {
        "block_count": text["num_hidden_layers"] + 1, "nextn_predict_layers": 1,
        "ssm.inner_size": text["linear_num_value_heads"] * text["linear_value_head_dim"],
        "rope.dimension_count": int(text["head_dim"] * rope["partial_rotary_factor"]),
        "rope.freq_base": rope["rope_theta"],
        "attention.layer_norm_rms_epsilon": text["rms_norm_eps"]}

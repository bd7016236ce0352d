# SPDX-License-Identifier: Apache-2.0
"""A folder of Qwen3-Next as the pairs and tensors of a GGUF file, by the rules of llama.cpp's
converter: q, k and v of all heads stand together, but the rates stay key head by key head, and
value heads keep their order. gguf_of.py calls it."""
import array, math

import gguf_of_hybrid, gguf_of_states

KINDS = {"qwen3_next": "qwen3next"}
NAMES = gguf_of_hybrid.NAMES | {
    "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
    **{f"mlp.experts.{part}_proj.weight": f"ffn_{part}_exps.weight"
       for part in ("gate", "up", "down")}}


def grouped(config):
    """Rows of q, k, v and gate in a key head."""
    keys, share = config["linear_num_key_heads"], config["linear_num_value_heads"] // config[
        "linear_num_key_heads"]
    wide = share * config["linear_value_head_dim"]
    return keys, [config["linear_key_head_dim"]] * 2 + [wide] * 2


def parts_of(content, config):
    keys, widths = grouped(config)
    row = len(content) // keys // sum(widths)
    for part, width in enumerate(widths):
        first = sum(widths[:part])
        yield b"".join(content[(head * sum(widths) + first) * row:][:width * row]
                       for head in range(keys))


def tensors_of(entries, config):
    for name, (kind, shape, content) in gguf_of_states.joined(entries).items():
        layer, name = "", name.removeprefix("model.")
        if name == "lm_head.weight":
            yield "output.weight", kind, shape, content
            continue
        if name.startswith("layers."):
            _, number, name = name.split(".", 2)
            layer = f"blk.{number}."
        if name == "linear_attn.in_proj_qkvz.weight":
            q, k, v, z = parts_of(content, config)
            rows = len(z) * shape[0] // len(content)
            yield layer + "attn_qkv.weight", kind, [shape[0] - rows, shape[1]], q + k + v
            yield layer + "attn_gate.weight", kind, [rows, shape[1]], z
            continue
        to = NAMES[name]
        if to == "ssm_conv1d.weight":
            shape = [shape[0], shape[2]]
        if to == "ffn_gate_inp_shexp.weight":
            shape = [shape[1]]
        if len(shape) == 1 or to == "ssm_conv1d.weight":
            numbers = gguf_of_hybrid.floats(kind, content)
            if to.endswith("norm.weight") and to != "ssm_norm.weight":
                numbers = array.array("f", (1 + number for number in numbers))
            if to == "ssm_a":
                numbers = array.array("f", (-math.exp(number) for number in numbers))
            kind, content = "F32", numbers.tobytes()
        yield layer + to, kind, shape, content


def numbers_of(config):
    numbers = {
        key: config[field]
        for key, field in gguf_of_hybrid.COUNTS.items() if config.get(field) is not None}
    return numbers | {
        "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
        "rope.dimension_count": int(config["head_dim"] * config["partial_rotary_factor"]),
        "rope.freq_base": config["rope_theta"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"]}

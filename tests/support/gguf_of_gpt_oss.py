# SPDX-License-Identifier: Apache-2.0
"""A folder of gpt-oss as the pairs and tensors of a GGUF file: as llama.cpp's converter writes it,
as Ollama's does ("ollama"), and as Ollama's first one did ("ollama-first"), whose experts keep gate and
up in turns and whose blocks keep neighbours in a byte. gguf_of.py calls it."""
LLAMA = {
    "embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.sinks": "attn_sinks.weight", "mlp.router.weight": "ffn_gate_inp.weight",
    "mlp.router.bias": "ffn_gate_inp.bias", "mlp.experts.down_proj_bias": "ffn_down_exps.bias"}
LLAMA |= {
    f"self_attn.{part}_proj.{kind}": f"attn_{to}.{kind}"
    for part, to in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))
    for kind in ("weight", "bias")}
OLLAMA = LLAMA | {
    "post_attention_layernorm.weight": "ffn_norm.weight", "self_attn.sinks": "attn_sinks",
    "self_attn.o_proj.weight": "attn_out.weight", "self_attn.o_proj.bias": "attn_out.bias"}
COUNTS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "attention.value_length": "head_dim",
    "attention.sliding_window": "sliding_window", "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok"}


def numbers_of(config, form):
    yield "rope.freq_base", float(config["rope_theta"])
    yield "attention.layer_norm_rms_epsilon", float(config["rms_norm_eps"])
    yield "rope.scaling.factor", float(config["rope_scaling"]["factor"])
    yield "rope.scaling.original_context_length", config["initial_context_length"]
    for key, field in COUNTS.items():
        yield key, config[field]
    if form == "llama":
        yield "expert_feed_forward_length", config["intermediate_size"]
        yield "rope.scaling.type", "yarn"


def blocks_of(blocks, scales, in_turns):
    """17 bytes for each block: the scale, and 16 of two values."""
    out = bytearray()
    for i, scale in enumerate(scales):
        block = blocks[16 * i:16 * i + 16]
        values = [nibble for byte in block for nibble in (byte & 15, byte >> 4)]
        out.append(scale)
        out += block if in_turns else bytes(values[j] | values[j + 16] << 4 for j in range(16))
    return bytes(out)


def halves(content, rows, row_bytes, first):
    """Every second row of each expert."""
    lines = [content[i:i + row_bytes] for i in range(0, len(content), row_bytes)]
    return b"".join(lines[first::2]), rows // 2


def tensors_of(entries, form):
    """name, kind, shape and content; MXFP4 as the kind of GGUF's number."""
    names = LLAMA if form == "llama" else OLLAMA
    is_first = form == "ollama-first"
    for name, (kind, shape, content) in entries.items():
        rest = name.removeprefix("model.")
        layer = ""
        if rest.startswith("layers."):
            _, number, rest = rest.split(".", 2)
            layer = f"blk.{number}."
        if rest in names:
            yield layer + names[rest], kind, shape, content
        elif rest == "mlp.experts.gate_up_proj_bias":
            if is_first:
                yield layer + "ffn_gate_up_exps.bias", kind, shape, content
                continue
            for first, part in enumerate(("gate", "up")):
                half, width = halves(content, shape[1], 2, first)
                yield layer + f"ffn_{part}_exps.bias", kind, [shape[0], width], half
        elif rest.endswith("_blocks"):
            experts, rows, blocks, _ = shape
            scales = entries[name.removesuffix("_blocks") + "_scales"][2]
            packed = blocks_of(content, scales, is_first)
            number = "MXFP4 in turns" if is_first else "MXFP4"
            part = "gate_up" if "gate_up" in rest else "down"
            if part == "down" or is_first:
                yield layer + f"ffn_{part}_exps.weight", number, [experts, rows, 32 * blocks], packed
                continue
            for first, part in enumerate(("gate", "up")):
                half, count = halves(packed, rows, 17 * blocks, first)
                yield layer + f"ffn_{part}_exps.weight", number, [experts, count, 32 * blocks], half

# SPDX-License-Identifier: Apache-2.0
"""Small folders as Hugging Face's tools write them, made here: safetensors files, and weights in
the quantised layouts.

The layouts and what they mean are written from their public descriptions: OCP FP8 E4M3,
compressed-tensors, AutoAWQ's "gemm", AutoGPTQ's two formats. Plain Python on purpose: it is the
other side of what src/inference/checkpoint/unpack.c does."""
import json, random, struct

CONFIG = {
    "model_type": "llama", "architectures": [
        "LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 96,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "bfloat16"}
# Every linear layer: outputs, inputs.
LINEAR = {
    "self_attn.q_proj": (128, 128), "self_attn.k_proj": (64, 128), "self_attn.v_proj": (64, 128),
    "self_attn.o_proj": (128, 128), "mlp.gate_proj": (256, 128), "mlp.up_proj": (256, 128),
    "mlp.down_proj": (128, 256)}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the outputs of a word, from its lowest four bits up


def write_safetensors(path, tensors):
    """tensors: name → (dtype, shape, bytes)."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {
            "dtype": dtype, "shape": list(shape), "data_offsets": [
                len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def f16(values):
    return struct.pack(f"<{len(values)}e", *values)


def bf16(values):
    """Rounded to float32 first, as a product in float32 is, then to the nearest even bfloat16."""
    bits = struct.unpack(f"<{len(values)}I", f32(values))
    return struct.pack(f"<{len(values)}H", *((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits))


def i32(values):
    return struct.pack(f"<{len(values)}I", *values)


def plain(values, shape, dtype="BF16"):
    return dtype, shape, {"BF16": bf16, "F16": f16, "F32": f32}[dtype](values)


def others(rng, dtype="BF16"):
    """What is never quantised: the embedding and the norms."""
    tensors = {
        "model.embed_tokens.weight": plain([rng.gauss(0, 1) for _ in range(96 * 128)], (96, 128),
                                           dtype)}
    for name in ("model.norm", "model.layers.0.input_layernorm",
                 "model.layers.0.post_attention_layernorm"):
        tensors[f"{name}.weight"] = plain([1 + rng.gauss(0, 0.1) for _ in range(128)], (128, ),
                                          dtype)
    return tensors


def e4m3(byte):
    sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
    value = mantissa * 2.0 ** -9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if sign else value


def rounded(value):
    """A scale that float16 and bfloat16 hold exactly."""
    return struct.unpack(
        "<e", struct.pack("<e",
                          struct.unpack("<f",
                                        struct.pack("<H", 0) + bf16([value]))[0]))[0]


def fp8(rng, module, rows, cols, kind):
    """kind: tensor, channel, or block (of 64 x 64)."""
    values = [rng.choice([b for b in range(256) if b & 0x7F != 0x7F]) for _ in range(rows * cols)]
    high, wide = {"tensor": (rows, cols), "channel": (1, cols), "block": (64, 64)}[kind]
    across = -(-cols // wide)
    scales = [rounded(rng.uniform(1e-4, 3e-4)) for _ in range(-(-rows // high) * across)]
    shape = {"tensor": (1,), "channel": (rows, 1), "block": (len(scales) // across, across)}[kind]
    weight = [
        e4m3(values[r * cols + c]) * scales[r // high * across + c // wide]
        for r in range(rows)
        for c in range(cols)]
    ending = ".weight_scale_inv" if kind == "block" else ".weight_scale"
    return {
        f"{module}.weight": ("F8_E4M3", (rows, cols), bytes(values)), f"{module}{ending}": plain(
            scales, shape, {"tensor": "F32", "channel": "BF16", "block": "F32"}[kind]),
        f"{module}.input_scale": plain([1.0], (1, ), "F32")}, weight


def integers(rng, rows, cols, bits, group):
    groups = -(-cols // group)
    q = [[rng.randrange(1 << bits) for _ in range(rows)] for _ in range(cols)]
    zeros = [[rng.randrange(1, 1 << bits) for _ in range(rows)] for _ in range(groups)]
    scales = [[rounded(rng.uniform(0.005, 0.02) * 8 / (1 << bits - 1))
               for _ in range(rows)]
              for _ in range(groups)]
    return groups, q, zeros, scales


def awq(rng, module, rows, cols, group=128):
    groups, q, zeros, scales = integers(rng, rows, cols, 4, group)

    def words(lines):
        return i32([
            sum(line[word * 8 + column] << 4 * i
                for i, column in enumerate(AWQ_ORDER))
            for line in lines
            for word in range(rows // 8)])

    weight = [(q[c][r] - zeros[c // group][r]) * scales[c // group][r]
              for r in range(rows)
              for c in range(cols)]
    return {
        f"{module}.qweight": ("I32", (cols, rows // 8), words(q)),
        f"{module}.qzeros": ("I32", (groups, rows // 8), words(zeros)), f"{module}.scales": plain(
            [s for line in scales for s in line], (groups, rows), "F16")}, weight


def gptq(rng, module, rows, cols, bits=4, group=128, symmetric=False, ordered=True, version=1):
    group = cols if group < 0 else group
    groups, q, zeros, scales = integers(rng, rows, cols, bits, group)
    if symmetric:
        zeros = [[1 << bits - 1] * rows for _ in range(groups)]
    each = 32 // bits
    order = [c // group for c in range(cols)]
    if not ordered:
        rng.shuffle(order)
    packed = i32([
        sum(q[word * each + i][r] << bits * i
            for i in range(each))
        for word in range(cols // each)
        for r in range(rows)])
    less = 1 if version == 1 else 0  # what the first format takes from each zero point
    packed_zeros = i32([
        sum(line[word * each + i] - less << bits * i
            for i in range(each))
        for line in zeros
        for word in range(rows // each)])
    weight = [(q[c][r] - zeros[order[c]][r]) * scales[order[c]][r]
              for r in range(rows)
              for c in range(cols)]
    return {
        f"{module}.qweight": ("I32", (cols // each, rows), packed),
        f"{module}.qzeros": ("I32", (groups, rows // each), packed_zeros),
        f"{module}.scales": plain([s for line in scales for s in line], (groups, rows),
                                  "F16"), f"{module}.g_idx": ("I32", (cols, ), i32(order))}, weight


def compressed(strategy):
    """compressed-tensors' quantization_config of FP8."""
    weights = {"num_bits": 8, "type": "float", "strategy": strategy}
    return {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


# Every way in which weights are stored small: how a module is made, quantization_config.
QUANTISED = {
    "fp8-tensor": (lambda *at: fp8(*at, "tensor"), compressed("tensor")),
    "fp8-channel": (lambda *at: fp8(*at, "channel"), compressed("channel")),
    "fp8-block": (lambda *at: fp8(*at, "block"), {
        "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [64, 64]}), "awq": (awq, {
            "quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm",
            "zero_point": True}), "awq-64": (lambda *at: awq(*at, group=64), {
                "quant_method": "awq", "bits": 4,
                "group_size": 64}), "awq-16": (lambda *at: awq(*at, group=16), {
                    "quant_method": "awq", "bits": 4, "group_size": 16}), "gptq": (gptq, {
                        "quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False,
                        "desc_act": False}), "gptq-sym": (lambda *at: gptq(*at, symmetric=True), {
                            "quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}),
    "gptq-act": (lambda *at: gptq(*at, group=32, ordered=False), {
        "quant_method": "gptq", "bits": 4, "group_size": 32,
        "desc_act": True}), "gptq-8": (lambda *at: gptq(*at, bits=8, group=-1), {
            "quant_method": "gptq", "bits": 8,
            "group_size": -1}), "gptq-v2": (lambda *at: gptq(*at, version=2), {
                "quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}), }


def write_pair(folder, quantise, quantization_config, dtype):
    """Two folders of one model: its weights as `quantise` stores them, and what these mean, as
    `dtype`."""
    rng = random.Random(7)
    small, whole = others(rng), None
    whole = dict(small)
    for name, (rows, cols) in LINEAR.items():
        module = f"model.layers.0.{name}"
        parts, weight = quantise(rng, module, rows, cols)
        small.update(parts)
        whole[f"{module}.weight"] = plain(weight, (rows, cols), dtype)
    for name, tensors, config in (("small", small,
                                   {**CONFIG, "quantization_config": quantization_config}),
                                  ("whole", whole, CONFIG)):
        (folder / name).mkdir()
        write_safetensors(folder / name / "model.safetensors", tensors)
        (folder / name / "config.json").write_text(json.dumps(config))
    return folder / "small", folder / "whole"


def write_plain(folder, dtype="BF16", config=CONFIG):
    """A model with weights that every dtype holds exactly."""
    rng = random.Random(11)
    tensors = {name: (dtype, shape, b"") for name, (_, shape, _) in others(rng).items()}
    tensors.update({
        f"model.layers.0.{name}.weight": (dtype, shape, b"")
        for name, shape in LINEAR.items()})
    for name, (_, shape, _) in tensors.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [rng.randrange(-64, 64) / 512
                  for _ in range(count)] if len(shape) > 1 else [1.0] * count
        tensors[name] = plain(values, shape, dtype)
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return tensors

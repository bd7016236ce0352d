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
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {
            "dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(content for _, _, content in tensors.values())


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


def fp8(rng, module, rows, cols, kind, ending=None):
    """kind: tensor, channel, or block (of 64 x 64)."""
    numbers = [b for b in range(256) if b & 0x7F != 0x7F]
    values = [rng.choice(numbers) for _ in range(rows * cols)]
    high, wide = {"tensor": (rows, cols), "channel": (1, cols), "block": (64, 64)}[kind]
    across = -(-cols // wide)
    scales = [rounded(rng.uniform(1e-4, 3e-4)) for _ in range(-(-rows // high) * across)]
    shape = {"tensor": (1,), "channel": (rows, 1), "block": (len(scales) // across, across)}[kind]
    weight = [
        e4m3(values[r * cols + c]) * scales[r // high * across + c // wide]
        for r in range(rows)
        for c in range(cols)]
    ending = ending or (".weight_scale_inv" if kind == "block" else ".weight_scale")
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


def by_rows(rng, module, rows, cols, bits=4, group=128, symmetric=True, ordered=True):
    """compressed-tensors' pack-quantized: neighbouring inputs of an output in a word."""
    group = cols if group < 0 else group
    groups, q, zeros, scales = integers(rng, rows, cols, bits, group)
    if symmetric:
        zeros = [[1 << bits - 1] * rows for _ in range(groups)]
    each = 32 // bits
    order = [c // group for c in range(cols)]
    if not ordered:
        rng.shuffle(order)
    words = -(-cols // each)
    packed = i32([
        sum(q[word * each + i][r] << bits * i for i in range(min(each, cols - word * each)))
        for r in range(rows) for word in range(words)])
    tensors = {
        f"{module}.weight_packed": ("I32", (rows, words), packed),
        f"{module}.weight_scale": plain([scales[g][r] for r in range(rows)
                                         for g in range(groups)], (rows, groups), "BF16"),
        f"{module}.weight_shape": ("I64", (2,), struct.pack("<2q", rows, cols))}
    if not symmetric:
        tensors[f"{module}.weight_zero_point"] = ("I32", (-(-rows // each), groups), i32([
            sum(zeros[g][word * each + i] << bits * i
                for i in range(min(each, rows - word * each)))
            for word in range(-(-rows // each)) for g in range(groups)]))
    if not ordered:
        tensors[f"{module}.weight_g_idx"] = ("I32", (cols,), i32(order))
    return tensors, [(q[c][r] - zeros[order[c]][r]) * scales[order[c]][r]
                     for r in range(rows) for c in range(cols)]


def int8(rng, module, rows, cols, group=-1):
    """compressed-tensors' int-quantized."""
    group = cols if group < 0 else group
    groups = -(-cols // group)
    q = [rng.randrange(-128, 128) for _ in range(rows * cols)]
    scales = [rounded(rng.uniform(5e-4, 2e-3)) for _ in range(rows * groups)]
    return {
        f"{module}.weight": ("I8", (rows, cols), struct.pack(f"<{len(q)}b", *q)),
        f"{module}.weight_scale": plain(scales, (rows, groups), "BF16")}, [
            q[r * cols + c] * scales[r * groups + c // group]
            for r in range(rows) for c in range(cols)]


def nvfp4(rng, module, rows, cols):
    """compressed-tensors' nvfp4-pack-quantized."""
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    q = [rng.randrange(16) for _ in range(rows * cols)]
    scales = [rng.randrange(0x30, 0x48) for _ in range(rows * cols // 16)]
    return {
        f"{module}.weight_packed": ("U8", (rows, cols // 2), bytes(
            q[i] | q[i + 1] << 4 for i in range(0, len(q), 2))),
        f"{module}.weight_scale": ("F8_E4M3", (rows, cols // 16), bytes(scales)),
        f"{module}.weight_global_scale": plain([64.0], (1,), "F32"),
        f"{module}.input_global_scale": plain([1.0], (1,), "F32")}, [
            (-1 if nibble & 8 else 1) * values[nibble & 7] * e4m3(scales[i // 16]) / 64
            for i, nibble in enumerate(q)]


def compressed(strategy, form="float-quantized", bits=8, kind="float", **more):
    """compressed-tensors' quantization_config."""
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, **more}
    return {
        "quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def packed(strategy, bits, **more):
    return compressed(strategy, "pack-quantized", bits, "int", **more)


# Every way in which weights are stored small: how a module is made, quantization_config.
QUANTISED = {
    "fp8-tensor": (lambda *at: fp8(*at, "tensor"), compressed("tensor")),
    "fp8-channel": (lambda *at: fp8(*at, "channel"), compressed("channel")),
    "fp8-blocks": (lambda *at: fp8(*at, "block", ".weight_scale"),
                   compressed("block", block_structure=[64, 64])),
    "int8": (int8, compressed("channel", "int-quantized", 8, "int")),
    "int8-group": (lambda *at: int8(*at, group=64),
                   compressed("group", "int-quantized", 8, "int", group_size=64)),
    "rows": (by_rows, packed("group", 4, group_size=128, symmetric=True)),
    "rows-32": (lambda *at: by_rows(*at, group=32, symmetric=False),
                packed("group", 4, group_size=32, symmetric=False)),
    "rows-16": (lambda *at: by_rows(*at, group=16), packed("group", 4, group_size=16)),
    "rows-act": (lambda *at: by_rows(*at, group=32, ordered=False),
                 packed("group", 4, group_size=32, actorder="group")),
    "rows-8": (lambda *at: by_rows(*at, bits=8, group=-1, symmetric=False), packed("channel", 8)),
    "nvfp4": (nvfp4, compressed("tensor_group", "nvfp4-pack-quantized", 4, group_size=16)),
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

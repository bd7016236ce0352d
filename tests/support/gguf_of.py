#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small Hugging Face folder (of a family of NAMES, or gpt_oss) as a GGUF file, by the rules of
llama.cpp's converter or Ollama's: gguf_of.py FOLDER OUT.gguf [FORM]

Weights keep their type; only the standard library is needed. Without a vocab.txt the tokens are
made up."""
import base64, json, math, pathlib, struct, sys

import gguf_of_deepseek
import gguf_of_gemma4
import gguf_of_gpt_oss
import gguf_of_hybrid
import gguf_of_mamba
import gguf_of_qwen3_next
import gguf_of_states

U8, U32, I32, F32, BOOL, STRING, ARRAY = 0, 4, 5, 6, 7, 8, 9
WITH_MODULES = (gguf_of_states, gguf_of_qwen3_next, gguf_of_mamba)
TYPES = {
    "F32": (0, 4), "F16": (1, 2), "BF16": (30, 2), "MXFP4": (39, 0), "MXFP4 in turns": (4, 0)}

BERT = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
    "classifier.dense": "cls", "classifier.out_proj": "cls.output"}
DECODER = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.gate_up_proj": "ffn_up", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down"}
NOMIC = {
    "embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm", "self_attn.qkv": "attn_qkv",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "attn_output_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_mlp_layernorm": "layer_output_norm"}
MODERN = {
    "embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm",
    "final_norm": "output_norm", "attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output", "mlp_norm": "ffn_norm", "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down",
    "head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}
MOE = {
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps"}
TWO = DECODER | {
    "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm"}
AFTER = TWO | {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm"}
NAMES = {
    "llama": TWO, "mistral": TWO, "qwen2": TWO, "qwen3": TWO,
    "cohere": TWO, "cohere2": TWO, "nemotron": TWO, "apertus": TWO | {
        "attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"},
    "hunyuan_v1_dense": TWO | {
        "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
    "gemma3_text": TWO | {
        "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm"},
    "ministral3": TWO, "olmo2": AFTER, "olmo3": AFTER, "exaone4": AFTER, "gemma": TWO, "granite": TWO, "smollm3": TWO, "qwen2_5_vl_text": TWO, "qwen3_vl_text": TWO,
    "seed_oss": TWO | {"post_attention_layernorm": "post_attention_norm"}, "glm4": TWO | {
        "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "modernbert": MODERN, "qwen3_moe": DECODER | MOE, "bert": BERT, "nomic_bert": NOMIC,
    "phi3": DECODER | {"post_attention_layernorm": "ffn_norm"}, "gemma2": DECODER | {
        "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm"}}
ARCHITECTURES = {
    "modernbert": "modern-bert", "qwen3_moe": "qwen3moe", "nomic_bert": "nomic-bert", "qwen2_5_vl_text": "qwen2vl",
    "mistral": "llama", "cohere": "command-r", "hunyuan_v1_dense": "hunyuan-dense",
    "qwen3_vl_text": "qwen3vl", "olmo3": "olmo2", "ministral3": "mistral3"}
WITH_A_PATTERN = ("cohere2", "exaone4", "gemma3", "gemma-embedding", "olmo2")
PERMUTED = ("llama", "mistral", "granite", "ministral3", "smollm3")
COUNTS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "attention.value_length": "head_dim",
    "attention.sliding_window": "sliding_window", "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size"}
FLOATS = {
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping", "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling"}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    head = string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + string(value)
    if kind == ARRAY:
        element, values = value
        body = b"".join(map(string, values)) if element == STRING else struct.pack(
            f"<{len(values)}{ {U8: 'B', I32: 'i', F32: 'f', BOOL: '?'}[element]}", *values)
        return head + struct.pack("<IQ", element, len(values)) + body
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def gguf_name(model_type, name):
    """None for what is no weight: position_ids, a pooler."""
    name = name.removeprefix("roberta.")
    name = name.replace("language_model.", "").removeprefix("bert.").removeprefix("encoder.").removeprefix("model.").replace(
        ".gamma", ".weight").replace(".beta", ".bias")
    layer = ""
    if name.startswith(("layer.", "layers.")):
        _, number, name = name.split(".", 2)
        layer = f"blk.{number}."
    base, _, kind = name.rpartition(".")
    return f"{layer}{NAMES[model_type][base]}.{kind}" if base in NAMES[model_type] else None


def widened(content):
    return b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2))


def permuted(content, rows, config):
    """Rows (head, half, i) as (head, i, half)."""
    row = len(content) // rows
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    order = (head + half * (dim // 2) + i
             for head in range(0, rows, dim)
             for i in range(dim // 2)
             for half in range(2))
    return b"".join(content[at * row:(at + 1) * row] for at in order)


def entries_of(folder):
    data = (folder / "model.safetensors").read_bytes()
    header_bytes, = struct.unpack_from("<Q", data)
    entries = {}
    for name, entry in json.loads(data[8:8 + header_bytes]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            entries[name] = (entry["dtype"], entry["shape"],
                             data[8 + header_bytes + begin:8 + header_bytes + end])
    return entries


def join_experts(entries):
    """GGUF has a layer's experts as one tensor."""
    for name in [name for name in entries if ".experts.0." in name]:
        begin, end = name.split(".experts.0.")
        count = sum(
            other.startswith(begin + ".experts.") and other.endswith("." + end) for other in entries)
        parts = [entries.pop(name.replace(".experts.0.", f".experts.{i}.")) for i in range(count)]
        entries[name.replace(".experts.0.", ".experts.")] = (
            parts[0][0], [count, *parts[0][1]], b"".join(part[2] for part in parts))


def tensors_of(folder, config, form):
    entries = entries_of(folder)
    if config["model_type"] == "gpt_oss":
        for name, kind, shape, content in gguf_of_gpt_oss.tensors_of(entries, form):
            if kind == "BF16" and (len(shape) == 1 or name.endswith(".bias")):
                kind, content = "F32", widened(content)
            yield name, TYPES[kind][0], shape, content
        return
    if config["model_type"] in gguf_of_deepseek.KINDS:
        for name, kind, shape, content in gguf_of_deepseek.tensors_of(entries, config, form):
            yield name, TYPES[kind][0], shape, content
        return
    if gguf_of_hybrid.is_hybrid(config):
        join_experts(entries)
        for name, kind, shape, content in gguf_of_hybrid.tensors_of(entries, config):
            yield name, TYPES[kind][0], shape, content
        return
    for module in WITH_MODULES:
        if config["model_type"] in module.KINDS:
            for name, kind, shape, content in module.tensors_of(entries, config):
                yield name, TYPES[kind][0], shape, content
            return
    if config["model_type"] == "gemma4":
        for name, kind, shape, content in gguf_of_gemma4.tensors_of(entries, config["text_config"]):
            if kind == "BF16" and len(shape) == 1:
                kind, content = "F32", widened(content)
            yield name, TYPES[kind][0], shape, content
        return
    if config["model_type"] == "nomic_bert":  # its files have q, k and v as one
        for name in [name for name in entries if ".q_proj." in name]:
            parts = [
                entries.pop(name.replace("q_proj", part))
                for part in ("q_proj", "k_proj", "v_proj")]
            entries[name.replace("q_proj", "qkv")] = (parts[0][0], [
                3 * parts[0][1][0], parts[0][1][1]], b"".join(part[2] for part in parts))
    join_experts(entries)
    for name, (kind, shape, content) in entries.items():
        if not (to := gguf_name(config["model_type"], name)):
            continue
        if len(shape) == 1 and kind == "BF16":  # as converters do: vectors in f32
            kind, content = "F32", widened(content)
        if config["model_type"] in PERMUTED and to.endswith(("attn_q.weight", "attn_k.weight")):
            content = permuted(content, shape[0], config)
        if config["model_type"] in ("gemma", "gemma2", "nemotron", "gemma3_text") and to.endswith("norm.weight"):
            content = struct.pack(f"<{len(content) // 4}f",
                                  *(1 + value for value, in struct.iter_unpack("<f", content)))
        if to == "position_embd.weight" and config.get("positions_skipped"):
            skipped = config["positions_skipped"]
            content = content[skipped * len(content) // shape[0]:]
            shape = [shape[0] - skipped, shape[1]]
        yield to, TYPES[kind][0], shape, content
    for i in (2, 3):  # products behind the pooling
        if (folder / f"{i}_Dense").exists():
            kind, shape, content = entries_of(folder / f"{i}_Dense")["linear.weight"]
            yield f"dense_{i}.weight", TYPES[kind][0], shape, content
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        factors = list(stretched(config, scaling))
        yield "rope_freqs.weight", 0, [len(factors)], struct.pack(f"<{len(factors)}f", *factors)
    for kind in ("short", "long"):
        if factors := scaling.get(f"{kind}_factor"):
            yield f"rope_factors_{kind}.weight", 0, [len(factors)], struct.pack(
                f"<{len(factors)}f", *factors)


def unigram_of(tokenizer, config):
    words = [word for word, _ in tokenizer["model"]["vocab"]]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    unknown = tokenizer["model"]["unk_id"]
    charsmap = base64.b64decode(tokenizer["normalizer"]["normalizers"][0]["precompiled_charsmap"])
    yield pair("tokenizer.ggml.model", STRING, "t5")
    yield pair("tokenizer.ggml.pre", STRING, "default")
    yield pair("tokenizer.ggml.token_type_count", U32, config["type_vocab_size"])
    yield pair("tokenizer.ggml.tokens", ARRAY, (STRING, words))
    yield pair("tokenizer.ggml.scores", ARRAY,
               (F32, [score for _, score in tokenizer["model"]["vocab"]]))
    yield pair("tokenizer.ggml.token_type", ARRAY,
               (I32, [2 if i == unknown else 3 if i in special else 1 for i in range(len(words))]))
    yield pair("tokenizer.ggml.precompiled_charsmap", ARRAY, (U8, list(charsmap)))
    for key in ("add_space_prefix", "remove_extra_whitespaces", "add_bos_token", "add_eos_token"):
        yield pair(f"tokenizer.ggml.{key}", BOOL, True)
    for name, word in {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "padding": "<pad>",
                       "seperator": "</s>", "cls": "<s>", "mask": "<mask>"}.items():
        yield pair(f"tokenizer.ggml.{name}_token_id", U32, words.index(word))


def vocabulary_of(folder, config):
    if config.get("positions_skipped"):
        yield from unigram_of(json.loads((folder / "tokenizer.json").read_text()), config)
        return
    if not (folder / "vocab.txt").exists():
        yield pair("tokenizer.ggml.model", STRING, "gpt2")
        yield pair("tokenizer.ggml.pre", STRING, "gpt-2")
        yield pair("tokenizer.ggml.tokens", ARRAY,
                   (STRING, [f"t{i}" for i in range(config["vocab_size"])]))
        return
    words = (folder / "vocab.txt").read_text().splitlines()
    tokens = [
        w if w.startswith("[") and w.endswith("]") else w[2:] if w.startswith("##") else "\u2581" +
        w for w in words]
    ids = {
        name: words.index(word)
        for name, word in {
            "unknown": "[UNK]", "seperator": "[SEP]", "padding": "[PAD]", "cls": "[CLS]",
            "mask": "[MASK]"}.items()}
    yield pair("tokenizer.ggml.model", STRING, "bert")
    yield pair("tokenizer.ggml.pre", STRING, "default")
    yield pair("tokenizer.ggml.token_type_count", U32, config["type_vocab_size"])
    yield pair("tokenizer.ggml.tokens", ARRAY, (STRING, tokens))
    yield pair("tokenizer.ggml.token_type", ARRAY,
               (I32, [3 if i in ids.values() else 1 for i in range(len(tokens))]))
    for name, number in ids.items():
        yield pair(f"tokenizer.ggml.{name}_token_id", U32, number)


def number_pair(key, value):
    if isinstance(value, list):
        kind = BOOL if isinstance(value[0], bool) else I32
        return pair(key, ARRAY, (kind, value))
    if isinstance(value, bool):
        return pair(key, BOOL, value)
    return pair(key, F32 if isinstance(value, float) else U32, value)


def kind_of(config):
    if config["model_type"] == "gemma3_text":
        return "gemma-embedding" if config.get("use_bidirectional_attention") else "gemma3"
    return ARCHITECTURES.get(config["model_type"], config["model_type"])


def pairs_of(folder, config, form):
    if config["model_type"] == "gemma4":
        yield pair("general.architecture", STRING, "gemma4")
        for key, number in gguf_of_gemma4.numbers_of(config["text_config"]):
            yield number_pair(f"gemma4.{key}", number)
        yield from vocabulary_of(folder, config["text_config"])
        return
    for module in WITH_MODULES:
        if kind := module.KINDS.get(config["model_type"]):
            if module is gguf_of_mamba:
                kind = gguf_of_mamba.kind_of(config)
            yield pair("general.architecture", STRING, kind)
            for key, number in module.numbers_of(config).items():
                yield number_pair(f"{kind}.{key}", number)
            yield from vocabulary_of(folder, config)
            return
    if kind := gguf_of_deepseek.KINDS.get(config["model_type"]):
        yield pair("general.architecture", STRING, kind)
        for key, number in gguf_of_deepseek.numbers_of(config, form).items():
            yield pair(f"{kind}.{key}", STRING, number) if isinstance(
                number, str) else number_pair(f"{kind}.{key}", number)
        yield from vocabulary_of(folder, config)
        return
    if config["model_type"] == "gpt_oss":
        kind = "gpt-oss" if form == "llama" else "gptoss"
        yield pair("general.architecture", STRING, kind)
        for key, number in gguf_of_gpt_oss.numbers_of(config, form):
            yield pair(f"{kind}.{key}", {float: F32, int: U32, str: STRING}[type(number)], number)
        yield from vocabulary_of(folder, config)
        return
    if gguf_of_hybrid.is_hybrid(config):
        kind = config["model_type"].replace("3_5", "35").replace("_", "")
        yield pair("general.architecture", STRING, kind)
        for key, number in gguf_of_hybrid.numbers_of(config).items():
            yield pair(f"{kind}.{key}", F32 if isinstance(number, float) else U32, number)
        yield from vocabulary_of(folder, config["text_config"])
        return
    kind = kind_of(config)
    yield pair("general.architecture", STRING, kind)
    yield pair("general.name", STRING, config.get("_name_or_path", folder.name).rsplit("/", 1)[-1])
    for keys, form in ((COUNTS, U32), (FLOATS, F32)):
        for key, field in keys.items():
            if config.get(field) is not None:
                yield pair(f"{kind}.{key}", form, config[field])
    if config.get("original_max_position_embeddings"):
        yield pair(f"{kind}.rope.scaling.original_context_length", U32,
                   config["original_max_position_embeddings"])
    yarn = (config.get("rope_parameters") or {}) | (config.get("rope_scaling") or {})
    if yarn.get("rope_type") == "yarn":
        yield pair(f"{kind}.rope.scaling.type", STRING, "yarn")
        yield pair(f"{kind}.rope.scaling.original_context_length", U32,
                   yarn["original_max_position_embeddings"])
        for key, field in (("rope.scaling.factor", "factor"),
                           ("rope.scaling.yarn_beta_fast", "beta_fast"),
                           ("rope.scaling.yarn_beta_slow", "beta_slow"),
                           ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
                           ("attention.temperature_scale", "llama_4_scaling_beta")):
            if field in yarn:
                yield pair(f"{kind}.{key}", F32, yarn[field])
    if config.get("partial_rotary_factor"):
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        yield pair(f"{kind}.rope.dimension_count", U32, int(dim * config["partial_rotary_factor"]))
    if kind == "modern-bert":
        yield pair(f"{kind}.attention.sliding_window_pattern", U32,
                   config["global_attn_every_n_layers"])
        yield pair(f"{kind}.rope.freq_base_swa", F32, config["local_rope_theta"])
        yield pair(f"{kind}.rope.scaling.type", STRING, "none")
    if kind in ("bert", "nomic-bert", "modern-bert"):
        pooling_file = folder / "1_Pooling/config.json"
        pooling = json.loads(pooling_file.read_text()) if pooling_file.exists() else {}
        yield pair(f"{kind}.attention.causal", BOOL, False)
        ranks = "SequenceClassification" in "".join(config.get("architectures", []))
        yield pair(f"{kind}.pooling_type", U32, 4 if ranks else
                   2 if pooling.get("pooling_mode_cls_token") else 1)
    if kind in WITH_A_PATTERN and config.get("layer_types"):
        yield pair(f"{kind}.attention.sliding_window_pattern", ARRAY,
                   (BOOL, [layer == "sliding_attention" for layer in config["layer_types"]]))
    if config["model_type"] == "gemma3_text":
        yield pair(f"{kind}.rope.freq_base_swa", F32, config["rope_local_base_freq"])
    if kind == "gemma-embedding":
        yield pair(f"{kind}.pooling_type", U32, 1)
    yield from numbers_of_layers(folder, config)
    yield from vocabulary_of(folder, config)


def numbers_of_layers(folder, config):
    """The numbers of Apertus' activation, which are tensors in a folder."""
    if config["model_type"] != "apertus":
        return
    entries = entries_of(folder)
    for part in ("alpha_p", "alpha_n", "beta", "eps"):
        numbers = [
            struct.unpack("<f", widened(entries[f"model.layers.{i}.mlp.act_fn.{part}"][2]))[0]
            for i in range(config["num_hidden_layers"])]
        yield pair(f"xielu.{part}", ARRAY, (F32, numbers))


def stretched(config, scaling):
    """The divisors of frequencies that Llama 3.1's scaling means, as the converter stores them."""
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for i in range(dim // 2):
        length = 2 * math.pi * config["rope_theta"]**(2 * i / dim)
        share = min(max((scaling["original_max_position_embeddings"] / length -
                         scaling["low_freq_factor"]) /
                        (scaling["high_freq_factor"] - scaling["low_freq_factor"]), 0), 1)
        yield 1 / ((1 - share) / scaling["factor"] + share)


def convert(folder, path, form="llama", config=None):
    """`config` counts instead of the folder's."""
    folder = pathlib.Path(folder)
    config = config or json.loads((folder / "config.json").read_text())
    if config["model_type"] in ("qwen2_5_vl", "qwen3_vl"):
        config |= config["text_config"]
    if config["model_type"] == "xlm-roberta":
        skipped = config["pad_token_id"] + 1
        config |= {"model_type": "bert", "positions_skipped": skipped,
                   "max_position_embeddings": config["max_position_embeddings"] - skipped}
    config |= {key: value for key, value in config.get("rope_parameters", {}).items()
               if key == "rope_theta"}
    if not config.get("use_sliding_window", True):
        config |= {"sliding_window": None}
    if "logit_scale" in config:
        config |= {"logits_scaling": config["logit_scale"]}
    if config["model_type"] == "modernbert":
        config |= {"sliding_window": config["local_attention"],
                   "rope_theta": config["global_rope_theta"]}
    if config["model_type"] == "nemotron":
        config |= {"layer_norm_eps": config["norm_eps"]}
    if alpha := (config.get("rope_scaling") or {}).get("alpha"):
        dim = config["head_dim"]
        config |= {"rope_theta": config["rope_theta"] * alpha**(dim / (dim - 2))}
    pairs, tensors = list(pairs_of(folder, config, form)), list(
        tensors_of(folder, config, form))
    infos, at = b"", 0
    for name, kind, shape, data in tensors:
        infos += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape),
                                            kind, at)
        at += len(data) + -len(data) % 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for *_, data in tensors:
            out.write(data + bytes(-len(data) % 32))


if __name__ == "__main__":
    convert(*sys.argv[1:])

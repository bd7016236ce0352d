#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A BERT encoder's Hugging Face folder as a GGUF file, by the rules of llama.cpp's converter: bert_gguf.py FOLDER OUT.gguf

Weights stay as they are (F32); only the standard library is needed."""
import json, pathlib, struct, sys

GLOBAL = {"embeddings.word_embeddings.weight": "token_embd.weight", "embeddings.position_embeddings.weight": "position_embd.weight",
          "embeddings.token_type_embeddings.weight": "token_types.weight", "embeddings.LayerNorm.weight": "token_embd_norm.weight",
          "embeddings.LayerNorm.bias": "token_embd_norm.bias"}
LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
         "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    head = string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + string(value)
    if kind == ARRAY:
        element, values = value
        body = b"".join(map(string, values)) if element == STRING else struct.pack(f"<{len(values)}{'i' if element == I32 else 'f'}", *values)
        return head + struct.pack("<IQ", element, len(values)) + body
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def gguf_name(name):
    """None for what is no weight of the encoder: position_ids, the pooler."""
    name = name.removeprefix("bert.").replace(".gamma", ".weight").replace(".beta", ".bias")
    if not name.startswith("encoder.layer."):
        return GLOBAL.get(name)
    _, _, layer, rest = name.split(".", 3)
    base, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{LAYER[base]}.{kind}"


def tensors_of(folder):
    data = (folder / "model.safetensors").read_bytes()
    header_bytes, = struct.unpack_from("<Q", data)
    for name, entry in json.loads(data[8:8 + header_bytes]).items():
        if name == "__metadata__" or not (to := gguf_name(name)):
            continue
        assert entry["dtype"] == "F32", name
        begin, end = entry["data_offsets"]
        yield to, entry["shape"], data[8 + header_bytes + begin:8 + header_bytes + end]


def pairs_of(folder):
    config = json.loads((folder / "config.json").read_text())
    words = (folder / "vocab.txt").read_text().splitlines()
    pooling_file = folder / "1_Pooling/config.json"
    pooling = json.loads(pooling_file.read_text()) if pooling_file.exists() else {"pooling_mode_mean_tokens": True}
    tokens = [w if w.startswith("[") and w.endswith("]") else w[2:] if w.startswith("##") else "\u2581" + w for w in words]
    ids = {name: words.index(word) for name, word in
           {"unknown": "[UNK]", "seperator": "[SEP]", "padding": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}.items()}
    yield pair("general.architecture", STRING, "bert")
    yield pair("general.name", STRING, config.get("_name_or_path", "bert").rsplit("/", 1)[-1])
    for key, field in {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
                       "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads"}.items():
        yield pair("bert." + key, U32, config[field])
    yield pair("bert.attention.layer_norm_epsilon", F32, config["layer_norm_eps"])
    yield pair("bert.attention.causal", BOOL, False)
    yield pair("bert.pooling_type", U32, 2 if pooling.get("pooling_mode_cls_token") else 1)
    yield pair("tokenizer.ggml.model", STRING, "bert")
    yield pair("tokenizer.ggml.pre", STRING, "default")
    yield pair("tokenizer.ggml.token_type_count", U32, config["type_vocab_size"])
    yield pair("tokenizer.ggml.tokens", ARRAY, (STRING, tokens))
    yield pair("tokenizer.ggml.token_type", ARRAY, (I32, [3 if i in ids.values() else 1 for i in range(len(tokens))]))
    for name, number in ids.items():
        yield pair(f"tokenizer.ggml.{name}_token_id", U32, number)


def convert(folder, path):
    folder = pathlib.Path(folder)
    pairs, tensors = list(pairs_of(folder)), list(tensors_of(folder))
    infos, at = b"", 0
    for name, shape, data in tensors:
        infos += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, at)
        at += len(data) + -len(data) % 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for _, _, data in tensors:
            out.write(data + bytes(-len(data) % 32))


if __name__ == "__main__":
    convert(*sys.argv[1:])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random models of this folder, with tokenizers, and what transformers computes with
them in float32: make.py [NAME…]

Needs torch, transformers and tokenizers. Each folder gets config.json as on the Hub,
tokenizer.json, model.safetensors in BF16 and reference.json: pairs of texts, their ids,
where the second text begins, and the numbers of the labels."""
import json, math, pathlib, sys

import tokenizers, torch, transformers
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
         "num_hidden_layers": 2, "torch_dtype": "bfloat16"}
PAIRS = [
    ["the cat", "the cat sat on the mat."],
    ["the cat", "dogs bark!"],
    ["what is a dog?", "a dog is not a cat, and 7 is no dog"],
    ["what is a dog?", "the mat"],
]
JUDGE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def fill(model):
    """Random weights that BF16 holds exactly, large enough that every feature moves the numbers."""
    generator = torch.Generator().manual_seed(7)
    for name, weight in model.named_parameters():
        value = torch.randn(weight.shape, generator=generator)
        if "norm" in name.lower() and name.endswith("weight"):
            value = 1.0 + 0.25 * value
        elif weight.dim() == 1:
            value = 0.3 * value
        elif "embed" in name:
            value = 0.2 * value
        elif name.startswith(("classifier", "score")):
            value = value * 4 / math.sqrt(weight.shape[1])
        elif any(part in name for part in ("q_proj", "k_proj", "query", "key")):
            value = value * 1.6 / math.sqrt(weight.shape[1])
        else:
            value = value * 1.2 / math.sqrt(weight.shape[1])
        weight.data.copy_(value.to(torch.bfloat16).float())


def wordpiece():
    words = [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz",
        *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"), *"0123456789", *".,!?'", "the", "cat",
        "sat", "on", "mat", "is", "dog"]
    tokenizer = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(words[:5])
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_level():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("y", "e"), ("ye", "s"), ("n", "o"), ("t", "h"), ("th", "e"), ("a", "t")]
    words = [*alphabet, *("".join(merge) for merge in merges)]
    tokenizer = tokenizers.Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, merges, fuse_unk=False))
    tokenizer.normalizer = normalizers.NFC()
    split = tokenizers.Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(split, "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer


def marked(model, tokenizer):
    """Cross-encoders: both texts between marks."""
    for first, second in PAIRS:
        encoded = tokenizer.encode(first, second)
        types = [0] * len(encoded.ids)
        if model.config.type_vocab_size > 1:
            types = encoded.type_ids
        with torch.no_grad():
            logits = model(torch.tensor([encoded.ids]),
                           token_type_ids=torch.tensor([types])).logits[0]
        yield {"ids": encoded.ids, "second_first": encoded.sequence_ids.index(1),
               "labels": [round(float(x), 6) for x in logits]}


def judged(model, tokenizer):
    """Qwen3-Reranker: how much more likely yes is than no."""
    head, tail = (tokenizer.encode(text, add_special_tokens=False).ids for text in JUDGE)
    yes, no = tokenizer.token_to_id("yes"), tokenizer.token_to_id("no")
    for first, second in PAIRS:
        text = f"<Instruct>: {INSTRUCTION}\n<Query>: {first}\n<Document>: {second}"
        ids = head + tokenizer.encode(text, add_special_tokens=False).ids + tail
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        yield {"ids": ids, "second_first": 0,
               "labels": [round(float(logits[yes] - logits[no]), 6)]}


BERT = {"model_type": "bert", "max_position_embeddings": 64, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0}
QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 1, "head_dim": 16, "hidden_act": "silu",
         "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
         "tie_word_embeddings": True}
# Name, tokenizer, class, how pairs are read, fields of config.json.
MODELS = {
    "bert-cross": (wordpiece, "AutoModelForSequenceClassification", marked,
                   BERT | {"id2label": {"0": "LABEL_0"}}),
    "bert-sorts": (wordpiece, "AutoModelForSequenceClassification", marked,
                   BERT | {"id2label": {"0": "bad", "1": "so so", "2": "good"}}),
    "qwen3-reranker": (byte_level, "AutoModelForCausalLM", judged, QWEN3),
}


def make(name):
    make_tokenizer, kind, read, given = MODELS[name]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tokenizer = make_tokenizer()
    given = SIZES | given | {"vocab_size": tokenizer.get_vocab_size()}
    settings = {key: value for key, value in given.items() if key not in (
        "model_type", "torch_dtype")}
    if "id2label" in settings:
        settings["id2label"] = {int(key): value for key, value in settings["id2label"].items()}
        settings["label2id"] = {value: key for key, value in settings["id2label"].items()}
    config = transformers.AutoConfig.for_model(given["model_type"], **settings)
    model = getattr(transformers, kind).from_config(
        config, dtype=torch.float32, attn_implementation="eager").eval()
    fill(model)
    model.tie_weights()
    cases = list(read(model, tokenizer))
    save_file({key: value.to(torch.bfloat16).contiguous()
               for key, value in model.state_dict().items()
               if key != "lm_head.weight" or not given.get("tie_word_embeddings")},
              folder / "model.safetensors", metadata={"format": "pt"})
    given = given | {"architectures": [type(model).__name__]}
    (folder / "config.json").write_text(json.dumps(given, indent=1) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "reference.json").write_text(json.dumps({
        "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
        "cases": [{"texts": pair, **case} for pair, case in zip(PAIRS, cases)]}) + "\n")


torch.set_num_threads(1)
for wanted in sys.argv[1:] or MODELS:
    make(wanted)

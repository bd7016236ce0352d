#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random models of this folder, with tokenizers, and what transformers computes with
them in float32: make.py [NAME…]

Needs torch, transformers, tokenizers and sentencepiece. Each folder gets config.json as on the Hub,
tokenizer.json, model.safetensors in BF16 and reference.json: pairs of texts, their ids,
where the second text begins, and the numbers of the labels."""
import io, json, math, pathlib, sys

import sentencepiece, tokenizers, torch, transformers
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


def modern():
    """ModernBERT's: bytes, and marks as BERT has them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("a", "t")]
    marks = ["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"]
    words = [*marks, *alphabet, *("".join(merge) for merge in merges)]
    tokenizer = tokenizers.Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, merges, fuse_unk=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(marks)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    return tokenizer


# What a charsmap says: hexadecimal characters, and what they become.
RULES = {"0041": "0061", "FB01": "0066 0069", "00E9": "0065", "0065 0301": "0065",
         "2116": "004E 006F", "0009": "0020", "000A": "0020", "3000": "0020", "200B": ""}
WORDS = [
    "the cat sat on the mat.", "The cat  sat\non\tthe mat. ", "  two  spaces ",
    "caf\u00e9 cafe\u0301 x", "\ufb01ne A\u0301b \u2116 7",
    "\u6771\u4eac\u3000\u6771\u4eac\u30bf\u30ef\u30fc", "\u200bdog\u200b\u2581cat",
    "\U0001f469\u200d\U0001f469 ?!...", "a", "dogdogdog qqq", "a <s>dog</s>", "mat<mask> dog"]


def unigram():
    """XLM-RoBERTa's: SentencePiece's Unigram, as Hugging Face's converter writes it."""
    corpus = [text for pair in PAIRS for text in pair] * 20 + [
        "dogs and cats bark, sat and mat: 1 2 3 what is that?"] * 20 + ["\u6771\u4eac"] * 20
    out = io.BytesIO()
    rules = HERE / "rules.tsv"
    rules.write_text("".join(f"{a}\t{b}\n" for a, b in RULES.items()))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=out, model_type="unigram", vocab_size=90,
        hard_vocab_limit=False, normalization_rule_tsv=str(rules), unk_id=0, bos_id=1, eos_id=2,
        minloglevel=2)
    rules.unlink()
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    proto = sentencepiece_model(out.getvalue())
    words = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [
        (model.id_to_piece(i), model.get_score(i)) for i in range(3, len(model))
    ] + [("<mask>", 0.0)]
    tokenizer = tokenizers.Tokenizer(models.Unigram(words, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(proto), normalizers.Strip(left=False, right=True),
        normalizers.Replace(tokenizers.Regex(" {2,}"), "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def sentencepiece_model(model):
    """The precompiled_charsmap of a model: field 2 of field 3 (normalizer_spec)."""
    def fields(data):
        at = 0
        while at < len(data):
            key, at = varint(data, at)
            if key & 7 == 0:
                value, at = varint(data, at)
            elif key & 7 == 5:
                value, at = data[at:at + 4], at + 4
            else:
                size, at = varint(data, at)
                value, at = data[at:at + size], at + size
            yield key >> 3, value

    def varint(data, at):
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at

    return dict(fields(dict(fields(model))[3]))[2]


def marked(model, tokenizer):
    """Cross-encoders: both texts between marks."""
    for first, second in PAIRS:
        encoded = tokenizer.encode(first, second)
        types = [0] * len(encoded.ids)
        has_types = hasattr(model.config, "type_vocab_size")
        if has_types and model.config.type_vocab_size > 1:
            types = encoded.type_ids
        with torch.no_grad():
            logits = model(torch.tensor([encoded.ids]), **(
                {"token_type_ids": torch.tensor([types])} if has_types else {})).logits[0]
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
XLMR = {"model_type": "xlm-roberta", "max_position_embeddings": 66, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2, "id2label": {"0": "LABEL_0"}}
QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 1, "head_dim": 16, "hidden_act": "silu",
         "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
         "tie_word_embeddings": True}
MODERN = {"model_type": "modernbert", "num_hidden_layers": 4, "max_position_embeddings": 64,
          "norm_eps": 1e-5, "layer_norm_eps": 1e-5, "hidden_activation": "gelu",
          "global_attn_every_n_layers": 3, "local_attention": 8, "global_rope_theta": 16000.0,
          "local_rope_theta": 100.0, "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 1,
          "cls_token_id": 0, "sep_token_id": 1, "classifier_activation": "gelu",
          "classifier_bias": False, "id2label": {"0": "LABEL_0"}}
# Name, tokenizer, class, how pairs are read, fields of config.json.
MODELS = {
    "bert-cross": (wordpiece, "AutoModelForSequenceClassification", marked,
                   BERT | {"id2label": {"0": "LABEL_0"}}),
    "bert-sorts": (wordpiece, "AutoModelForSequenceClassification", marked,
                   BERT | {"id2label": {"0": "bad", "1": "so so", "2": "good"}}),
    "xlmr-cross": (unigram, "AutoModelForSequenceClassification", marked, XLMR),
    "modernbert-cross": (modern, "AutoModelForSequenceClassification", marked,
                         MODERN | {"classifier_pooling": "mean"}),
    "modernbert-cls": (modern, "AutoModelForSequenceClassification", marked,
                       MODERN | {"classifier_pooling": "cls"}),
    "qwen3-reranker": (byte_level, "AutoModelForCausalLM", judged, QWEN3),
}


def vector_of(model, ids):
    with torch.no_grad():
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
    return {name: [round(float(x), 6) for x in vector / vector.norm()]
            for name, vector in (("mean", hidden.mean(0)), ("cls", hidden[0]))}


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
    reference = {
        "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
        "cases": [{"texts": pair, **case} for pair, case in zip(PAIRS, cases)]}
    if make_tokenizer == unigram:
        reference["words"] = [[text, tokenizer.encode(text).ids] for text in WORDS]
        reference["vectors"] = [vector_of(model.roberta, tokenizer.encode(text).ids)
                                for text in WORDS]
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")


torch.set_num_threads(1)
for wanted in sys.argv[1:] or MODELS:
    make(wanted)

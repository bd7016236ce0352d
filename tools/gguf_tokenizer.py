# SPDX-License-Identifier: Apache-2.0
"""A tokenizer.json with the meaning of a GGUF's vocabulary, for Hugging Face tokenizers to be
compared with.

  tools/gguf_tokenizer.py FILE.gguf [--nfc] > tokenizer.json
"""
import argparse, json, struct, sys, unicodedata

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+")


def cased():
    """Letters with a case from U+02B0 on, but for the lower ones of Armenian and Georgian."""
    return "".join(
        chr(c) for c in range(0x2B0, 0x110000)
        if unicodedata.category(chr(c)) in ("Lu", "Ll", "Lt") and not 0x560 <= c <= 0x588 and
        not 0x10D0 <= c <= 0x10FF)


# The expressions of llama.cpp, one cutting what the one before it left.
SPLITS = {
    "gpt-2": [GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")],
    "smollm": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek-llm": [
        "[\r\n]", rf"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯ{cased()}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
        "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek-v3": [
        r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
        "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|"
        r"\s+(?!\S)|\s+"],
}
SPACE = "\u2581"


def read_metadata(path):
    data = memoryview(open(path, "rb").read())
    formats = {
        0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q",
        12: "<d"}
    at = 16

    def number(code):
        nonlocal at
        value = struct.unpack_from(formats[code], data, at)[0]
        at += struct.calcsize(formats[code])
        return value

    def value(code):
        nonlocal at
        if code == 8:
            size = number(10)
            at += size
            return bytes(data[at - size:at]).decode()
        if code == 9:
            of, count = number(4), number(10)
            return [value(of) for _ in range(count)]
        return number(code)

    count = number(10)
    return {value(8): value(number(4)) for _ in range(count)}


def merges_of_scores(tokens, kinds, scores):
    """Every way to make a token of two, best first; among pairs that make one token the order does
    not matter."""
    ids = {token: i for i, token in enumerate(tokens)}
    made = []
    for i, token in enumerate(tokens):
        if kinds[i] == NORMAL:
            made += [(-scores[i], i, token[:cut], token[cut:])
                     for cut in range(1, len(token))
                     if token[:cut] in ids and token[cut:] in ids
                     and kinds[ids[token[:cut]]] != BYTE and kinds[ids[token[cut:]]] != BYTE]
    return [[left, right] for _, _, left, right in sorted(made)]


def split_steps(pre):
    return [{
        "type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
            for split in SPLITS[pre]]


def byte_level(meta, tokens, kinds, nfc):
    pre = meta["tokenizer.ggml.pre"]
    pre = {"llama3": "llama-bpe"}.get(pre, pre)
    steps = split_steps(pre)
    steps.append({
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    if pre == "gpt-2":
        steps = [dict(steps[-1], use_regex=True)]
    if pre == "smollm":
        steps = [{"type": "Digits", "individual_digits": True}, dict(steps[-1], use_regex=True)]
    cut = [merge.index(" ", 1) for merge in meta["tokenizer.ggml.merges"]]
    merges = [[merge[:at], merge[at + 1:]] for merge, at in zip(meta["tokenizer.ggml.merges"], cut)]
    vocab = {token: i for i, token in enumerate(tokens)}
    known = [
        pair for pair in merges
        if pair[0] in vocab and pair[1] in vocab and pair[0] + pair[1] in vocab]
    return {
        "normalizer": {"type": "NFC"} if nfc else None, "pre_tokenizer": {
            "type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0],
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "ignore_merges": pre == "llama-bpe", "vocab": vocab, "merges": known}}


def sentencepiece(meta, tokens, kinds):
    steps = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    decoder = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {
        "type": "ByteFallback"}, {"type": "Fuse"}]
    if meta.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, {"type": "Prepend", "prepend": SPACE})
        decoder.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoder}, "model": {
            "type": "BPE", "byte_fallback": True, "fuse_unk": True, "vocab": {
                token: i
                for i, token in enumerate(tokens)},
            "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]]
            if "tokenizer.ggml.unknown_token_id" in meta else None, "merges": merges_of_scores(
                tokens, kinds, meta["tokenizer.ggml.scores"])}}


def wordpiece(meta, tokens, kinds):
    respelled = [
        token if kinds[i] != NORMAL else token[1:] if token.startswith(SPACE) else "##" + token
        for i, token in enumerate(tokens)]
    return {
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {
            "type": "WordPiece", "prefix": "##", "cleanup": True}, "model": {
                "type": "WordPiece", "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
                "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {
                    token: i
                    for i, token in enumerate(respelled)}}}


def template(before, after, tokens):
    pieces = ([{"SpecialToken": {"id": tokens[before], "type_id": 0}}]
              if before is not None else []) + [{"Sequence": {"id": "A", "type_id": 0}}]
    pieces += [{"SpecialToken": {"id": tokens[after], "type_id": 0}}] if after is not None else []
    used = {
        tokens[i]: {"id": tokens[i], "ids": [i], "tokens": [tokens[i]]}
        for i in (before, after)
        if i is not None}
    return {
        "type": "TemplateProcessing", "single": pieces,
        "pair": pieces + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": used}


def convert(path, nfc=False):
    meta = read_metadata(path)
    tokens, model = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.model"]
    kinds = meta.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    if model == "gpt2":
        made = byte_level(meta, tokens, kinds, nfc)
        before, after = meta.get("tokenizer.ggml.bos_token_id"), None
        before = before if meta.get("tokenizer.ggml.add_bos_token", meta["tokenizer.ggml.pre"]
                                    == "llama-bpe") else None
    elif model == "llama":
        made = sentencepiece(meta, tokens, kinds)
        before = meta["tokenizer.ggml.bos_token_id"] if meta.get("tokenizer.ggml.add_bos_token",
                                                                 True) else None
        after = meta["tokenizer.ggml.eos_token_id"] if meta.get("tokenizer.ggml.add_eos_token",
                                                                False) else None
    else:
        made = wordpiece(meta, tokens, kinds)
        before, after = meta["tokenizer.ggml.cls_token_id"], meta[
            "tokenizer.ggml.seperator_token_id"]
    added = [{
        "id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": kinds[i] in (CONTROL, UNKNOWN)}
             for i, token in enumerate(tokens)
             if kinds[i] in (CONTROL, UNKNOWN, USER_DEFINED)]
    return {
        "version": "1.0",
        "truncation": None, "padding": None, "added_tokens": added, "post_processor": template(
            before, after, tokens) if before is not None or after is not None else None, **made}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--nfc",
                        action="store_true",
                        help="normalise, as the tokenizer.json of the Qwen family does")
    options = parser.parse_args()
    json.dump(convert(options.file, options.nfc), sys.stdout, ensure_ascii=False)

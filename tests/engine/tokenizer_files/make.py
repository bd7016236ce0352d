#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small vocabularies of this folder, and the ids that their makers' libraries give to
texts. Needs PyPI mistral-common, tiktoken, sentencepiece and regex.

  make.py                  writes ranks.json, fairseq.model and ids.json
  make.py --check 20000    compares quern with the libraries on as many drawn texts of many scripts,
                           with the same vocabularies, SentencePiece's nmt_nfkc rules, and the files
                           that mistral-common ships (QUERN_BINARY, default build/src/quern)"""
import argparse, base64, io, json, os, pathlib, random, subprocess, sys, tempfile

import sentencepiece, tiktoken
from mistral_common.tokens.tokenizers import tekken
from tiktoken._educational import bpe_train

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
QUERN = os.environ.get("QUERN_BINARY", str(ROOT / "build/src/quern"))
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|" \
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|" \
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]"
LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join([
    r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?[{CASED}]*[{LOWER}]+{ENDING}",
    rf"[^\r\n\p{{L}}\p{{N}}]?[{CASED}]+[{LOWER}]*{ENDING}", r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CORPUS = ("the cat sat on the mat. Dogs bark! What is a Dog? A dog's not a CAT, and 7 isn't 42.\n"
          "def f(x):\n    return x / 3.14  # https://example.org/a/b\n\n"
          "Grüße aus Köln. 東京タワーは日本の東京にある。中文字符 测试 안녕하세요 Привет мир\n") * 30
TEXTS = [
    "the cat sat on the mat.", " two  spaces ", "dogdog 1234 DogDog camelCase HTTPServer",
    "Köln 東京 東京タワーtower中文mixed中", "emoji 👩‍👩‍👧 x", "tab\tnew\r\n\n line  \n", "<s>dog</s>",
    "a/b//c.../\n/\n", "It's we'LL they'veX I'd 's", "안녕 Привет ПРИВЕТмир", "〇々⺀+⺀a 三〇1〇", "ǅa ʰx É̀e",
    "\u3000full　width ｶﾞ ﬁne e\u0301", "\u1112\u1161\u11ab", "▁dog ▁ ▁", " ", "\x00\x7f\xad\xa0"]
RULES = {"e\u0301": "\u00e9", "\u3000": " ", "\u00a0": " ", "\uff76\uff9e": "\u30ac", "\ufb01": "fi",
         "\u1112\u1161\u11ab": "\ud55c", "\u1112\u1161": "\ud558", "\t": " ", "\n": " ", "\r": " ",
         "\u00ad": ""}
NAMED = {1: "<|im_end|>", 3: "<|im_user|>"}  # behind the ranks, as tokenizer_config.json has them


def train_fairseq(**rules):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=out, model_type="unigram",
        vocab_size=160, hard_vocab_limit=False, minloglevel=2, character_coverage=1.0, **rules)
    return out.getvalue()


def small_rules(folder):
    path = pathlib.Path(folder) / "rules.tsv"
    code = lambda text: " ".join(f"{ord(c):X}" for c in text)
    path.write_text("".join(f"{code(a)}\t{code(b)}\n" for a, b in RULES.items()))
    return {"normalization_rule_tsv": str(path)}


def fairseq_ids(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return lambda text: [3 if i == 0 else i + 1 for i in processor.encode(text)]


def tekken_json(ranks, specials):
    config = {"pattern": TEKKEN, "version": "v3", "default_num_special_tokens": 30,
              "default_vocab_size": 30 + len(ranks) - 10}
    file = {"config": config,
            "vocab": [{"rank": i, "token_bytes": token, "token_str": None}
                      for i, token in enumerate(ranks)]}
    return file | ({"special_tokens": specials} if specials else {})


def kimi_encoding(ranks):
    table = {base64.b64decode(token): i for i, token in enumerate(ranks)}
    names = {NAMED.get(i - len(ranks), f"<|reserved_token_{i}|>"): i
             for i in range(len(ranks), len(ranks) + 256)}
    return tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=table, special_tokens=names)


def kimi_folder(folder, ranks):
    (folder / "tiktoken.model").write_text(
        "".join(f"{token} {i}\n" for i, token in enumerate(ranks)))
    added = {str(len(ranks) + i): {"content": text, "special": True} for i, text in NAMED.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added}))


def drawn(rng):
    words = CORPUS.split() + TEXTS + ["'S", "'ſ", "''", "9999", "½", "٣", "=/", "\r\n", "\n\n  "]
    ranges = [(0, 128), (128, 0x250), (0x300, 0x370), (0x370, 0x600), (0x900, 0xE80),
              (0x1100, 0x1200), (0x1E00, 0x2100), (0x2E80, 0x3100), (0x4E00, 0x4F00),
              (0xA640, 0xA700), (0xAC00, 0xAD00), (0xF900, 0xFB50), (0xFF00, 0xFFF0),
              (0x16FE0, 0x17000), (0x1F300, 0x1F700), (0x2A6D0, 0x2A710), (0x323A0, 0x323C0),
              (0, 0x110000)]
    text = ""
    for _ in range(rng.randrange(1, 14)):
        kind = rng.randrange(4)
        if kind == 0:
            low, high = rng.choice(ranges)
            points = [rng.randrange(low, high) for _ in range(rng.randrange(1, 8))]
            text += "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)
        elif kind == 1:
            text += rng.choice(" \t\n\u3000/'") * rng.randrange(1, 4)
        else:
            text += rng.choice(words) + rng.choice(["", " ", "中", "X", "x"])
    return text


def compare(name, folder, texts, expected):
    done = subprocess.run(
        [QUERN, "tokenize", "--model", str(folder), "--batch"], text=True, capture_output=True,
        input="".join(json.dumps(text) + "\n" for text in texts))
    assert done.returncode == 0, done.stderr
    got = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [(t, g, e) for t, g, e in zip(texts, got, map(expected, texts)) if g != e]
    print(f"{name}: {len(texts)} texts, {len(wrong)} differ")
    for text, ids, want in wrong[:3]:
        print(f"  {text!r}\n    {ids}\n    {want}")
    return len(wrong)


def check(count, seed):
    rng = random.Random(seed)
    texts = [drawn(rng) for _ in range(count)]
    ranks = json.loads((HERE / "ranks.json").read_text())
    wrong = 0
    with tempfile.TemporaryDirectory() as base:
        def folder(name):
            path = pathlib.Path(base) / name
            path.mkdir()
            (path / "config.json").write_text("{}")
            return path
        shipped = pathlib.Path(tekken.__file__).parents[2] / "data"
        for file in sorted(shipped.glob("tekken*.json")):
            path = folder(file.stem)
            (path / "tekken.json").write_bytes(file.read_bytes())
            model = tekken.Tekkenizer.from_file(file)
            wrong += compare(file.name, path, texts, lambda t: model.encode(t, False, False))
        kimi = kimi_encoding(ranks)
        kimi_folder(folder("kimi"), ranks)
        wrong += compare("tiktoken.model", pathlib.Path(base) / "kimi", texts,
                         lambda t: kimi.encode(t, disallowed_special=()))
        for name, rules in (("small", small_rules(base)),
                            ("nmt_nfkc", {"normalization_rule_name": "nmt_nfkc"})):
            model = train_fairseq(**rules)
            (folder(name) / "sentencepiece.bpe.model").write_bytes(model)
            encode = fairseq_ids(model)
            wrong += compare(f"sentencepiece.bpe.model, {name}", pathlib.Path(base) / name, texts,
                             encode)
    return wrong


def make():
    trained = bpe_train(data=CORPUS, vocab_size=400, pat_str=TEKKEN, visualise=None)
    ranks = [base64.b64encode(token).decode() for token in sorted(trained, key=trained.get)]
    (HERE / "ranks.json").write_text(json.dumps(ranks) + "\n")
    with tempfile.TemporaryDirectory() as base:
        model = train_fairseq(**small_rules(base))
        (HERE / "fairseq.model").write_bytes(model)
        path = pathlib.Path(base) / "tekken.json"
        path.write_text(json.dumps(tekken_json(ranks, None)))
        small = tekken.Tekkenizer.from_file(path)
        kimi = kimi_encoding(ranks)
        known = {"tekken": lambda t: small.encode(t, False, False),
                 "kimi": lambda t: kimi.encode(t, disallowed_special=()),
                 "fairseq": fairseq_ids(model)}
        (HERE / "ids.json").write_text("[" + ",\n".join(
            json.dumps([text] + [known[name](text) for name in known]) for text in TEXTS) + "]\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.check:
        sys.exit(check(options.check, options.seed) > 0)
    make()

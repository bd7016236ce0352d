# SPDX-License-Identifier: Apache-2.0
"""Folders without a tokenizer.json: Mistral's tekken.json, XLM-RoBERTa's sentencepiece.bpe.model
and Kimi's tiktoken.model alone. tokenizer_files/make.py has the ids from the makers' libraries."""
import json, pathlib, shutil

import pytest

import support

FILES = pathlib.Path(__file__).resolve().parent / "tokenizer_files"
RANKS = json.loads((FILES / "ranks.json").read_text())
CASES = json.loads((FILES / "ids.json").read_text())
TEXTS = [case[0] for case in CASES]
CASED = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
PATTERN = "".join([
    "[^\\r\\n\\p{L}\\p{N}]?", CASED[0], "*", CASED[1], "+|[^\\r\\n\\p{L}\\p{N}]?", CASED[0], "+",
    CASED[1], "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"])
NAMED = {1: "<|im_end|>", 3: "<|im_user|>"}


def tekken(**config):
    base = {"pattern": PATTERN, "version": "v3", "default_num_special_tokens": 30,
            "default_vocab_size": 30 + len(RANKS) - 10}
    vocab = [{"rank": i, "token_bytes": token, "token_str": None} for i, token in enumerate(RANKS)]
    return {"config": base | config, "vocab": vocab}


def write_kimi(folder, **config):
    lines = "".join(f"{token} {i}\n" for i, token in enumerate(RANKS))
    (folder / "tiktoken.model").write_text(lines)
    added = {str(len(RANKS) + i): {"content": text, "special": True} for i, text in NAMED.items()}
    base = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added}
    (folder / "tokenizer_config.json").write_text(json.dumps(base | config))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def tokenized(folder, texts, *flags):
    done = support.quern("tokenize", "--model", folder, "--batch", *flags,
                         input="".join(json.dumps(text) + "\n" for text in texts))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(folder):
    done = support.quern("tokenize", "--model", folder, "--batch", input='"a"\n')
    assert done.returncode == 3 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_tekken_json_alone_gives_mistral_commons_ids(folder):
    (folder / "tekken.json").write_text(json.dumps(tekken()))
    wanted = [case[1] for case in CASES]
    assert tokenized(folder, TEXTS) == wanted
    assert tokenized(folder, TEXTS[:2], "--bos") == [[1, *ids] for ids in wanted[:2]]
    # The names of versions up to v7, the unnamed special tokens, and tokens behind the size.
    assert tokenized(folder, ["<s>[INST]<SPECIAL_29>"], "--special") == [[1, 3, 29]]
    assert "".join(tokenized(folder, wanted[:3], "--decode")) == "".join(TEXTS[:3])
    named = [{"rank": i, "token_str": text, "is_control": True}
             for i, text in enumerate(["<unk>", "<s>", "</s>", "[THINK]"])]
    (folder / "tekken.json").write_text(
        json.dumps(tekken(version="v13") | {"special_tokens": named}))
    assert tokenized(folder, ["[THINK][INST]"], "--special") == [
        [3, *tokenized(folder, ["[INST]"])[0]]]


def test_a_tiktoken_model_alone_gives_tiktokens_ids(folder):
    write_kimi(folder)
    wanted = [case[2] for case in CASES]
    assert tokenized(folder, TEXTS) == wanted
    assert tokenized(folder, TEXTS[:2], "--bos") == wanted[:2]
    count = len(RANKS)
    assert tokenized(folder, [f"<|im_end|><|reserved_token_{count + 2}|>"], "--special") == [
        [count + 1, count + 2]]


def test_a_sentencepiece_bpe_model_alone_gives_fairseqs_ids(folder):
    shutil.copyfile(FILES / "fairseq.model", folder / "sentencepiece.bpe.model")
    wanted = [case[3] for case in CASES]
    assert tokenized(folder, TEXTS) == wanted
    assert tokenized(folder, TEXTS[:2], "--bos") == [[0, *ids, 2] for ids in wanted[:2]]
    highest = max(max(ids) for ids in wanted if ids)
    [[mask, pad]] = tokenized(folder, ["<mask><pad>"], "--special")
    assert pad == 1 and mask > highest
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CamembertTokenizer"}')
    assert "the ids of the tokenizer_class \"CamembertTokenizer\" are not known" in refused(folder)


@pytest.mark.parametrize("change, why", [
    (lambda file: file["config"].update(pattern="\\w+"), "config: the pattern is not known"),
    (lambda file: file["config"].update(version="v11"), "special_tokens is missing"),
    (lambda file: file["config"].update(default_vocab_size=10**9), "default_vocab_size is not a"),
    (lambda file: file["config"].update(default_vocab_size=30 + len(RANKS) + 1), "asks for"),
    (lambda file: file["config"].update(default_num_special_tokens=2**19), "of default_vocab_size"),
    (lambda file: file["vocab"][300].update(rank=5), "vocab: token 300 has not its place"),
    (lambda file: file["vocab"][300].update(token_bytes="%"), "vocab: token 300 has not its place"),
    (lambda file: file["vocab"][300].update(token_bytes=""), "token 330 has no bytes"),
    (lambda file: file["vocab"][300].update(token_bytes="AAAA" * 2000), "vocab: token 300 has not"),
    (lambda file: file["vocab"][65].update(token_bytes="YWJhYmFi"), "no token is the byte"),
    (lambda file: file["vocab"][300].update(token_bytes=RANKS[301]), "are spelled the same"),
    (lambda file: file.update(special_tokens=[{"rank": 40, "token_str": "x"}]), "no rank below 30"),
    (lambda file: file.update(special_tokens=[{"rank": 4, "token_str": "x"}] * 2), "twice"),
    (lambda file: file.update(special_tokens=5), "special_tokens is no list"),
    (lambda file: file.update(vocab={}), "vocab is no list"),
    (lambda file: file.update(config=[]), "config is no object")])
def test_a_damaged_tekken_json_is_refused_by_one_sentence(folder, change, why):
    file = tekken()
    change(file)
    (folder / "tekken.json").write_text(json.dumps(file))
    sentence = refused(folder)
    assert "tekken.json: " in sentence and why in sentence


def test_a_damaged_tiktoken_model_is_refused_by_one_sentence(folder):
    write_kimi(folder)
    lines = (folder / "tiktoken.model").read_text().splitlines()

    def with_line(index, line):
        (folder / "tiktoken.model").write_text("\n".join(lines[:index] + [line]
                                                           + lines[index + 1:]))
        return refused(folder)

    for line in ("%% 300", "AAAA", "AAAA 99999999999999999999", "AAAA -1", "AAAA 100000"):
        assert "line 301 is not base64, a space and a rank" in with_line(300, line)
    assert "token 5 is there twice" in with_line(300, "AAAA 5")
    assert "no token is the byte" in with_line(7, "AAAA 7")
    for data in ("", "\n\n", "\x00" * 64):
        (folder / "tiktoken.model").write_text(data)
        assert "tiktoken.model: " in refused(folder)
    write_kimi(folder, added_tokens_decoder={"5": {"content": "x"}})
    assert "the added token 5 is not one of" in refused(folder)
    write_kimi(folder, tokenizer_class="QWenTokenizer")
    assert "the rules of others are not known" in refused(folder)

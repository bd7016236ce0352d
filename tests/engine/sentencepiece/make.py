#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small tokenizer.model files of this folder, and writes the ids that SentencePiece
gives to texts. Needs sentencepiece."""
import io, json, pathlib

import sentencepiece

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = [
    "the cat sat on the mat.", "dogs bark! what is a dog?", "a dog is not a cat, and 7 is no dog",
    "3 cats and 14 dogs: 159 animals"] * 30 + ["Grüße aus Köln"] * 20 + ["東京タワー"] * 20
TEXTS = [
    "the cat sat on the mat.", " two  spaces ", "a", "dogdog 1234", "Köln 東京", "emoji 👩 x",
    "tab\tnew\nline", "<s>dog</s>", "▁dog"]
FORMS = {
    "bpe": {"model_type": "bpe", "vocab_size": 340, "byte_fallback": True, "split_digits": True,
            "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "unigram": {"model_type": "unigram", "vocab_size": 90,
                "normalization_rule_name": "identity"}}

for name, settings in FORMS.items():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, hard_vocab_limit=False, minloglevel=2,
        character_coverage=1.0, **settings)
    (HERE / f"{name}.model").write_bytes(out.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    (HERE / f"{name}.json").write_text(
        json.dumps([[text, model.encode(text)] for text in TEXTS]) + "\n")

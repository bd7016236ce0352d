#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/tokenizer/unicode_tables.c: the class of every code point, in two stages, and the
code points that form C leaves alone.

usage: unicode_tables.py > src/text/tokenizer/unicode_tables.c

Hugging Face tokenizers, which quern must agree with, matches with the classes of Unicode 16.0 but
normalises with the tables of Unicode 9.0, and BERT's rules have older ones still. The classes come
from a release of PyPI `regex` with the tables of 16.0; what NFC leaves alone and what BERT drops,
strips and cuts at is found by asking `tokenizers` about every code point:

    pip install regex==2024.11.6 unicodedata2==18.0.0 tokenizers==0.23.3
"""
import sys

import regex
import unicodedata2
from tokenizers import normalizers, pre_tokenizers

REGEX_RELEASE = "2.5.148"  # what regex 2024.11.6 calls itself
UNICODE = "16.0.0"
COLUMNS = 100

# The numbers of src/text/tokenizer/unicode.h.
LETTER, NUMBER, MARK, SPACE, WORD = 1, 2, 3, 4, 8
BERT_DROPPED, BERT_MARK, BERT_PUNCTUATION = 16, 32, 64
CLASSES = [(LETTER, r"\p{L}"), (NUMBER, r"\p{N}"), (MARK, r"\p{M}"), (SPACE, r"\p{White_Space}")]
# \w of UTS 18, which is what "single word" means for an added token.
WORD_PATTERN = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]"


def code_point_classes():
    classes = bytearray(0x110000)
    patterns = [(value, regex.compile(pattern)) for value, pattern in CLASSES]
    word = regex.compile(WORD_PATTERN)
    for code_point in range(0x110000):
        if 0xD800 <= code_point <= 0xDFFF:
            continue
        char = chr(code_point)
        for value, pattern in patterns:
            if pattern.match(char):
                classes[code_point] = value
                break
        if word.match(char):
            classes[code_point] |= WORD
    return bytes(classes)


def bert_bits():
    def normalizer(**rule):
        none = dict(clean_text=False,
                    handle_chinese_chars=False,
                    strip_accents=False,
                    lowercase=False)
        return normalizers.BertNormalizer(**{**none, **rule}).normalize_str

    clean, strip = normalizer(clean_text=True), normalizer(strip_accents=True)
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    bits = bytearray(0x110000)
    for code_point in range(0x110000):
        if 0xD800 <= code_point <= 0xDFFF:
            continue
        text = "a" + chr(code_point) + "b"
        if clean(text) == "ab":
            bits[code_point] |= BERT_DROPPED
        if strip(text) == "ab":
            bits[code_point] |= BERT_MARK
        if len(cut(text)) == 3:
            bits[code_point] |= BERT_PUNCTUATION
    return bits


def two_stages(classes, shift):
    blocks, index = {}, []
    for at in range(0, len(classes), 1 << shift):
        block = classes[at : at + (1 << shift)]
        index.append(blocks.setdefault(block, len(blocks)))
    return index, b"".join(blocks)


def nfc_left_alone():
    """Ranges of what newer Unicode reorders or composes and the NFC of `tokenizers` does not."""
    theirs, ours = normalizers.NFC().normalize_str, lambda text: unicodedata2.normalize("NFC", text)
    found = set()
    for code_point in range(0x110000):
        if 0xD800 <= code_point <= 0xDFFF:
            continue
        char = chr(code_point)
        among_marks = "\u0301" + char + "\u0316\u0345"
        if theirs(among_marks) != ours(among_marks):
            found.add(code_point)
        parts = unicodedata2.normalize("NFD", char)
        if parts != char and theirs(parts) != ours(parts):
            found |= {code_point, ord(parts[0])}
    ranges = []
    for code_point in sorted(found):
        if ranges and ranges[-1] == code_point - 1:
            ranges[-1] = code_point
        else:
            ranges += [code_point, code_point]
    return ranges


def c_array(declaration, values):
    lines, line = [declaration + " = {"], "   "
    for value in values:
        text = f" {value},"
        if len(line) + len(text) > COLUMNS:
            lines.append(line)
            line = "   "
        line += text
    return "\n".join(lines + [line, "};"])


def main():
    if regex.__version__ != REGEX_RELEASE:
        sys.exit(f"regex {regex.__version__} is not the release with Unicode {UNICODE} tables")
    classes = bytes(a | b for a, b in zip(code_point_classes(), bert_bits()))
    fits = [s for s in range(5, 9) if len(two_stages(classes, s)[1]) >> s <= 256]
    shift = min(fits, key=lambda s: sum(len(part) for part in two_stages(classes, s)))
    index, blocks = two_stages(classes, shift)
    blocks_of = 1 << shift
    print(f"""/* SPDX-License-Identifier: Apache-2.0 */

/* Unicode {UNICODE} classes of code points, in blocks of {blocks_of}, and what form C leaves alone.
 * Made by tools/unicode_tables.py; do not edit. */

#include "tokenizer/unicode.h"

_Static_assert(UNICODE_BLOCK_SHIFT == {shift}, "the header and the tables are of one make");

/* clang-format off */""")
    print(c_array(f"const uint8_t unicode_block_of[{len(index)}]", index))
    print()
    print(c_array(f"const uint8_t unicode_blocks[{len(blocks)}]", blocks))
    ranges = nfc_left_alone()
    print(f"\nconst size_t unicode_nfc_inert_count = {len(ranges) // 2};")
    pairs = [f"{{{first}, {last}}}" for first, last in zip(ranges[::2], ranges[1::2])]
    print(c_array("const uint32_t unicode_nfc_inert[][2]", pairs))
    print("/* clang-format on */")


if __name__ == "__main__":
    main()

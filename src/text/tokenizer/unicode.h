/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* unicode: which code points are letters, numbers, marks and white space, by Unicode 16.0, the
 * version of Hugging Face tokenizers 0.23. It knows no tokens.
 *
 * Thread: any; the tables are constant.
 * Memory: none. */

#include "base/utf8.h"

/* General categories L, N and M and the property White_Space; they exclude each other. */
enum char_class {
    CHAR_OTHER = 0,
    CHAR_LETTER = 1,
    CHAR_NUMBER = 2,
    CHAR_MARK = 3,
    CHAR_SPACE = 4,
};
#define CHAR_CLASS_MASK 7u
#define CHAR_WORD 8u /* set in addition to the class when \w of UTS 18 matches */
/* Code points that BertNormalizer drops, that it strips with the accents, and at which
 * BertPreTokenizer cuts. They follow older tables than the class. */
#define CHAR_BERT_DROPPED 16u
#define CHAR_BERT_MARK 32u
#define CHAR_BERT_PUNCTUATION 64u

#define UNICODE_BLOCK_SHIFT 7
extern const uint8_t unicode_block_of[0x110000 >> UNICODE_BLOCK_SHIFT];
extern const uint8_t unicode_blocks[];

/* Ranges (first, last), ascending: code points that got a combining class or a composition after
 * Unicode 9.0. The form C of Hugging Face tokenizers, and so the models, do not have these. */
extern const size_t unicode_nfc_inert_count;
extern const uint32_t unicode_nfc_inert[][2];

/* Class and CHAR_ bits of a code point up to U+10FFFF. */
static inline uint8_t unicode_bits(uint32_t code_point) {
    size_t block = unicode_block_of[code_point >> UNICODE_BLOCK_SHIFT];
    size_t within = code_point & ((1u << UNICODE_BLOCK_SHIFT) - 1);
    return unicode_blocks[(block << UNICODE_BLOCK_SHIFT) + within];
}

static inline enum char_class unicode_class(uint32_t code_point) {
    return (enum char_class)(unicode_bits(code_point) & CHAR_CLASS_MASK);
}

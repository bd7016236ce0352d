/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* small_vocab: for tests only: a byte-level vocabulary of the 256 bytes, a few merges and a few
 * special tokens. */

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

enum {
    SMALL_AB = 256,
    SMALL_ABC,
    SMALL_AA,
    SMALL_SPACE_A,
    SMALL_AAAA,
    SMALL_LONE, /* "xyz", which no merge makes */
    SMALL_BOS,
    SMALL_EOS,
    SMALL_IM_END,
    SMALL_USER,      /* "<u>" */
    SMALL_USER_LONG, /* "<u><u>!" */
    SMALL_UNKNOWN,
    SMALL_UNUSED,
    SMALL_COUNT,
};

struct small_vocab {
    char spellings[256][2];
    struct str tokens[SMALL_COUNT];
    uint8_t kinds[SMALL_COUNT];
    struct str merges[8];
    struct tokenizer_source source;
};

/* Byte b in GPT-2's alphabet, worked out by its definition. */
static inline struct str small_spelling(struct small_vocab *vocab, unsigned byte) {
    uint32_t moved = 0x100;
    for (unsigned b = 0; b <= byte; b++) {
        bool stays = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte) {
            char bytes[4];
            size_t count = utf8_encode(stays ? b : moved, bytes);
            memcpy(vocab->spellings[byte], bytes, count);
            return (struct str){vocab->spellings[byte], count};
        }
        moved += !stays;
    }
    return (struct str){0};
}

/* `pre` borrowed. The struct must stay where it is while its source is used. */
static inline void small_vocab_init(struct small_vocab *vocab, const char *pre) {
    static const char *const words[] = {"ab",      "abc",   "aa",      "\u0120a",    "aaaa",
                                        "xyz",     "<s>",   "</s>",    "<|im_end|>", "<u>",
                                        "<u><u>!", "<unk>", "<unused>"};
    static const char *const merges[] = {"a b", "ab c", "a a", "\u0120 a", "aa aa"};
    *vocab = (struct small_vocab){0};
    for (unsigned i = 0; i < 256; i++) vocab->tokens[i] = small_spelling(vocab, i);
    for (size_t i = 256; i < SMALL_COUNT; i++) vocab->tokens[i] = str_from(words[i - 256]);
    for (size_t i = 0; i < SMALL_COUNT; i++) vocab->kinds[i] = TOKEN_NORMAL;
    for (size_t i = 0; i < 5; i++) vocab->merges[i] = str_from(merges[i]);
    vocab->kinds[SMALL_BOS] = vocab->kinds[SMALL_EOS] = TOKEN_CONTROL;
    vocab->kinds[SMALL_IM_END] = TOKEN_CONTROL;
    vocab->kinds[SMALL_USER] = vocab->kinds[SMALL_USER_LONG] = TOKEN_USER_DEFINED;
    vocab->kinds[SMALL_UNKNOWN] = TOKEN_UNKNOWN;
    vocab->kinds[SMALL_UNUSED] = TOKEN_UNUSED;
    vocab->source = (struct tokenizer_source){
        .model = STR("gpt2"),
        .pre = str_from(pre),
        .tokens = vocab->tokens,
        .kinds = vocab->kinds,
        .token_count = SMALL_COUNT,
        .merges = vocab->merges,
        .merge_count = 5,
        .bos = SMALL_BOS,
        .eos = SMALL_EOS,
        .eot = TOKEN_NONE,
        .unknown = SMALL_UNKNOWN,
        .padding = TOKEN_NONE,
    };
}

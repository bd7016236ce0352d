/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ranked: a byte-level vocabulary by ranks, as tiktoken has it, while its file is read: the tokens
 * are bytes, and of two neighbours that make a token those of the lowest rank are merged first. It
 * knows no file format.
 *
 * Thread: one per struct.
 * Memory: everything lies in the arena; ranked_close frees it.
 * Invariant: each id has one token, added once. */

#include "base/arena.h"
#include "tokenizer/tokenizer.h"

struct ranked {
    struct arena arena;
    struct tokenizer_source source;
    struct str *tokens; /* (source.token_count) in GPT-2's alphabet, special ones as they are */
    uint8_t *kinds;     /* (source.token_count) TOKEN_UNUSED: not added yet */
    uint8_t *flags;
    float *scores; /* less the rank */
    bool has_byte[256];
};

/* Room for `count` tokens. ERR_LIMIT for more than a vocabulary may have. */
enum err ranked_open(struct ranked *ranked, size_t count, struct error *error) MUST_CHECK;
void ranked_close(struct ranked *ranked);

/* ERR_INVALID for an id that is out of range or has a token, and for no bytes. */
enum err ranked_add(struct ranked *ranked, size_t id, size_t rank, struct str bytes,
                    struct error *error) MUST_CHECK;
/* Adds a token that is cut out of texts as a whole, of the kind TOKEN_CONTROL or
 * TOKEN_USER_DEFINED. */
enum err ranked_add_special(struct ranked *ranked, size_t id, struct str text, enum token_kind kind,
                            struct error *error) MUST_CHECK;

/* Opens the tokenizer once all tokens are added. ERR_INVALID if a byte has no token. */
enum err ranked_finish(struct ranked *ranked, struct tokenizer **ret_tokenizer,
                       struct error *error) MUST_CHECK;

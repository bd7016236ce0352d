/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vocab: the tokens as raw bytes, their kinds, and the way back from bytes to an id. The same for
 * every kind of model; how a file's spelling becomes bytes is the model's affair.
 *
 * Thread: immutable once filled.  Memory: owns a copy of the bytes.
 * Invariant: by_bytes holds every token that has bytes, special ones before ordinary ones and
 * those before bytes. */

#include "tokenizer/table.h"
#include "tokenizer/tokenizer.h"

/* Bounds on what a file may claim; the largest vocabularies in use have 2^18 tokens. */
#define TOKENIZER_VOCAB_TOKENS_MAX (1u << 20)
#define TOKENIZER_VOCAB_BYTES_MAX (1u << 30)

struct tokenizer_vocab {
    struct str *tokens; /* (count) raw bytes */
    uint8_t *kinds;     /* (count) enum token_kind */
    uint8_t *flags;     /* (count) enum token_flag */
    size_t count;
    char *bytes;
    struct table by_bytes;
};

/* Writes the raw bytes of one token of kind normal, user-defined or byte, at most spelled.bytes of
 * them, and returns how many. */
typedef size_t (*tokenizer_vocab_decode_fn)(struct str spelled, enum token_kind kind,
                                            char *ret_bytes);

/* Checks the source's tokens and kinds and copies them, those kinds through `decode` and the others
 * as they are spelled. ERR_INVALID for no tokens, two of one spelling or an unknown kind;
 * ERR_LIMIT past the bounds or out of memory. */
enum err tokenizer_vocab_open(struct tokenizer_vocab *vocab, const struct tokenizer_source *source,
                              tokenizer_vocab_decode_fn decode, struct error *error) MUST_CHECK;
void tokenizer_vocab_close(struct tokenizer_vocab *vocab);

/* Matched as a whole text before the model sees anything (when specials are parsed, or always). */
static inline bool tokenizer_vocab_is_special(const struct tokenizer_vocab *vocab, size_t id) {
    uint8_t kind = vocab->kinds[id];
    return kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN || kind == TOKEN_USER_DEFINED;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vocab: the tokens as raw bytes, their kinds, and the way back from bytes to an id.
 *
 * It is the same for every kind of model; each kind has its own function from a file's spelling to
 * bytes.
 *
 * Thread: any; immutable once filled.
 * Memory: owns a copy of the bytes.
 * Invariant: by_bytes has every text of a token. Of several tokens with one text it has a special
 *     one before an ordinary one, and a byte token last. */

#include "tokenizer/table.h"
#include "tokenizer/tokenizer.h"

/* Limits of a file's tokens; the largest vocabularies in use have 2^18. */
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

/* Writes the raw bytes of one token of kind normal, user-defined or byte, at most spelled.bytes,
 * and returns their number. */
typedef size_t (*tokenizer_vocab_decode_fn)(struct str spelled, enum token_kind kind,
                                            char *ret_bytes);

/* Checks and copies the source's tokens: those three kinds through `decode`, all others as they are
 * spelled. ERR_INVALID for no tokens, two of one spelling or an unknown kind; ERR_LIMIT above the
 * limits or without memory. */
enum err tokenizer_vocab_open(struct tokenizer_vocab *vocab, const struct tokenizer_source *source,
                              tokenizer_vocab_decode_fn decode, struct error *error) MUST_CHECK;
void tokenizer_vocab_close(struct tokenizer_vocab *vocab);

/* True for a token that is matched as a whole text before the model sees the text: always, or when
 * special tokens are parsed. */
static inline bool tokenizer_vocab_is_special(const struct tokenizer_vocab *vocab, size_t id) {
    uint8_t kind = vocab->kinds[id];
    return kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN || kind == TOKEN_USER_DEFINED;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bpe: byte-level byte pair encoding (tokenizer.ggml.model "gpt2"): one piece of text to ids.
 *
 * A piece starts as the tokens of its bytes; the adjacent pair of lowest rank is merged, the
 * leftmost of equals, until no pair has a rank (Sennrich et al. 2016, over bytes as in GPT-2).
 * Short pieces scan for the lowest pair; long ones keep a heap over a linked list, so that the time
 * is n log n for every text.
 *
 * Thread: immutable once open; a struct bpe_scratch belongs to one call.
 * Memory: owns its tables, borrows the vocab, which must stay where it is. */

#include "tokenizer/vocab.h"

struct merge_slot;

struct bpe {
    const struct vocab *vocab;
    int32_t byte_ids[256]; /* the token of each byte; `missing` where there is none */
    int32_t missing;       /* TOKEN_NONE, or the token that stands for bytes without one */
    bool fuse_missing;     /* a run of such bytes is one token */
    /* The tokens that merges and whole pieces reach: those spelled in the byte-level alphabet, by
     * the bytes that spelling stands for. Those are the token's own bytes unless it is special. */
    struct table pieces;
    struct str *piece_texts; /* (token_count) keys of `pieces`; empty for the others */
    char *special_texts;     /* memory for the keys that are not the token's own bytes */
    uint8_t *whole;          /* (token_count) 1: a piece of exactly this text is this token */
    struct merge_slot *merges;
    size_t merge_mask;
    uint64_t merge_key;
};

/* Memory for long pieces, kept from one to the next. Zero is a valid start. */
struct bpe_scratch {
    void *memory;
    size_t bytes;
};
void bpe_scratch_release(struct bpe_scratch *scratch);

/* Bytes of a token spelled in GPT-2's byte-level alphabet; a spelling with other characters stands
 * for itself. A vocab_decode_fn. */
size_t bpe_decode_spelling(struct str spelled, char *ret_bytes);

/* `vocab` must have been opened from `source` with bpe_decode_spelling. A merge that names
 * something that is no token is skipped, unless the source says strict_merges: then it is
 * ERR_INVALID, as is a merge that is not two parts. */
enum err bpe_open(struct bpe *bpe, const struct vocab *vocab, const struct tokenizer_source *source,
                  bool ignore_merges, struct error *error) MUST_CHECK;
void bpe_close(struct bpe *bpe);

/* Appends the ids of a piece; piece.bytes > 0. */
void bpe_encode(const struct bpe *bpe, struct str piece, struct bpe_scratch *scratch,
                struct ids *ids);

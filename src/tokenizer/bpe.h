/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bpe: byte pair encoding: one piece of text to ids.
 *
 * A piece starts as the tokens of its bytes (GPT-2's byte-level alphabet) or of its characters
 * (SentencePiece; a character that is no token as those of its bytes); the adjacent pair of lowest
 * rank is merged, the leftmost of equals, until no pair has a rank (Sennrich et al. 2016). Short
 * pieces scan for the lowest pair; long ones keep a heap over a linked list, so that the time is n
 * log n for every text.
 *
 * Thread: any, once open: nothing changes but `whole`; a struct bpe_scratch belongs to one call.
 * Memory: owns its tables, borrows the vocab, which must stay where it is. */

#include "tokenizer/vocab.h"

#include <stdatomic.h>

struct merge_slot;

enum bpe_is_whole { IS_NOT_WHOLE, IS_WHOLE, IS_WHOLE_UNKNOWN };

/* Which tokens a piece that is one becomes at once. */
enum bpe_whole {
    BPE_WHOLE_MERGED,   /* those that its merges make of it anyway */
    BPE_WHOLE_ALL,      /* all of them, whatever the merges say */
    BPE_WHOLE_UNMARKED, /* none: pieces are not words, finding out would be in vain */
};

enum bpe_alphabet { BPE_BYTES, BPE_CHARACTERS };

struct bpe {
    const struct tokenizer_vocab *vocab;
    enum bpe_alphabet alphabet;
    int32_t byte_ids[256];  /* the token of each byte, TOKEN_NONE where there is none */
    int32_t ascii_ids[128]; /* of each ASCII character */
    int32_t missing;        /* TOKEN_NONE, or the token that stands for bytes without one */
    bool fuse_missing;      /* a run of such bytes is one token */
    /* The tokens that merges and whole pieces reach. BPE_BYTES: those spelled in the byte-level
     * alphabet, by the bytes that spelling stands for, which are the token's own unless it is
     * special. BPE_CHARACTERS: all but the byte tokens, as they are spelled. */
    struct table pieces;
    struct str *piece_texts; /* (token_count) keys of `pieces`; empty for the others */
    char *own_texts;         /* memory for the keys that are not the token's own bytes */
    /* (token_count) enum bpe_is_whole: whether a piece of exactly this text is this token. What is
     * not known is found out, by whoever first meets it, when the text is encoded: to do it for all
     * tokens takes as long as all the rest of opening. */
    atomic_uchar *whole;
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
 * for itself. A tokenizer_vocab_decode_fn. */
size_t bpe_decode_spelling(struct str spelled, char *ret_bytes);

/* `vocab` must have been opened from `source`, for bytes with bpe_decode_spelling. Without merges
 * but with scores, the pairs are all that make a token, by falling score. A merge that names
 * something that is no token is skipped, unless the source says strict_merges: then it is
 * ERR_INVALID, as is a merge that is not two parts. */
enum err bpe_open(struct bpe *bpe, const struct tokenizer_vocab *vocab,
                  const struct tokenizer_source *source, enum bpe_alphabet alphabet,
                  enum bpe_whole whole, struct error *error) MUST_CHECK;
void bpe_close(struct bpe *bpe);

/* Appends the ids of a piece; piece.bytes > 0. */
void bpe_encode(const struct bpe *bpe, struct str piece, struct bpe_scratch *scratch,
                struct ids *ids);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bpe: byte pair encoding of one piece of text.
 *
 * A piece starts as the tokens of its bytes (GPT-2's byte-level alphabet), or of its characters
 * (SentencePiece; a character that is no token starts as the tokens of its bytes). The adjacent
 * pair of lowest rank, the leftmost of equals, is merged until no pair has a rank (Sennrich et al.
 * 2016). Short pieces scan for the lowest pair. Long ones keep a heap over a linked list, so that
 * the time is n log n for every text.
 *
 * Thread: any, once open: only `whole` changes. A struct bpe_scratch belongs to one call.
 * Memory: owns its tables; borrows the vocab, which must not move. */

#include "tokenizer/vocab.h"

#include <stdatomic.h>

struct merge_slot;

enum bpe_is_whole { IS_NOT_WHOLE, IS_WHOLE, IS_WHOLE_UNKNOWN };

/* Which tokens are taken at once for a piece of exactly their text. */
enum bpe_whole {
    BPE_WHOLE_MERGED,   /* tokens that the merges of the piece make anyway */
    BPE_WHOLE_ALL,      /* all tokens, also against the merges */
    BPE_WHOLE_UNMARKED, /* none: pieces are not words, so a look-up would rarely hit */
};

enum bpe_alphabet { BPE_BYTES, BPE_CHARACTERS };

struct bpe {
    const struct tokenizer_vocab *vocab;
    enum bpe_alphabet alphabet;
    int32_t byte_ids[256];  /* the token of each byte; TOKEN_NONE without one */
    int32_t ascii_ids[128]; /* the token of each ASCII character; TOKEN_NONE without one */
    int32_t missing;        /* the token for bytes that have none; TOKEN_NONE: they are dropped */
    bool fuse_missing;      /* a run of such bytes becomes one token */
    /* The tokens that merges and whole pieces reach. BPE_BYTES: tokens spelled in the byte-level
     * alphabet, by the bytes of that spelling, which are the token's own unless it is special.
     * BPE_CHARACTERS: all except the byte tokens, as they are spelled. */
    struct table pieces;
    struct str *piece_texts; /* (token_count) keys of `pieces`; empty for tokens outside it */
    char *own_texts;         /* memory for keys that are not the token's own bytes */
    /* (token_count) enum bpe_is_whole: whether a piece of exactly this text is this token. The
     * first encoding that meets such a piece finds it out. Doing so for all tokens would double the
     * time of opening. */
    atomic_uchar *whole;
    struct merge_slot *merges;
    size_t merge_mask;
    uint64_t merge_key;
};

/* Memory for long pieces, kept from one piece to the next. All zero is empty and without a bound.
 */
struct bpe_scratch {
    void *memory;
    size_t bytes;
    size_t bytes_max;      /* 0: no bound */
    size_t too_long_bytes; /* the length of a piece that passed the bound; 0: none has */
};
void bpe_scratch_release(struct bpe_scratch *scratch);

/* The bytes of a token spelled in GPT-2's byte-level alphabet. A spelling with other characters is
 * its own bytes. A tokenizer_vocab_decode_fn. */
size_t bpe_decode_spelling(struct str spelled, char *ret_bytes);

/* Writes the bytes in that alphabet, at most twice as many, and returns their number. */
size_t bpe_spell(struct str bytes, char *ret_spelled);

/* `vocab` must have been opened from `source`, for bytes with bpe_decode_spelling. A source with
 * scores and no merges gets all pairs that make a token, by falling score. A merge of texts that
 * are no tokens is skipped, or ERR_INVALID with strict_merges. A merge without two parts is
 * ERR_INVALID. */
enum err bpe_open(struct bpe *bpe, const struct tokenizer_vocab *vocab,
                  const struct tokenizer_source *source, enum bpe_alphabet alphabet,
                  enum bpe_whole whole, struct error *error) MUST_CHECK;
void bpe_close(struct bpe *bpe);

/* Appends the ids of a piece; piece.bytes > 0. A piece that needs more than the scratch may have is
 * left out and noted there. */
void bpe_encode(const struct bpe *bpe, struct str piece, struct bpe_scratch *scratch,
                struct ids *ids);

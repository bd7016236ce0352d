/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* unigram: the tokens of a text with the highest sum of scores (Kudo 2018), as Hugging Face's
 * Unigram and SentencePiece find them, by Viterbi's algorithm over the characters.
 *
 * Thread: any, once open. A struct unigram_scratch belongs to one call.
 * Memory: owns the scores; borrows the vocabulary.
 * Invariant: a character that no token begins costs the lowest score less ten. */

#include "tokenizer/vocab.h"

/* All zero is closed. */
struct unigram {
    const struct tokenizer_vocab *vocab;
    float *scores; /* (vocab->count) */
    double unknown_score;
    int32_t unknown;
    size_t longest_bytes; /* bytes of the longest token */
    struct unigram_rules rules;
};

/* The best way to each end of a text. */
struct unigram_node {
    double score;
    uint32_t from; /* UINT32_MAX: no way */
    int32_t id;
};

struct unigram_scratch {
    struct unigram_node *nodes; /* (capacity) */
    size_t capacity;
    struct ids back;
    size_t bytes_max;      /* bound of `nodes`; 0: none */
    size_t too_long_bytes; /* longest text that did not fit; 0: none */
};

/* ERR_INVALID for a source without scores or without an unknown token. */
enum err unigram_open(struct unigram *unigram, const struct tokenizer_vocab *vocab,
                      const struct tokenizer_source *source, struct error *error) MUST_CHECK;
void unigram_close(struct unigram *unigram);
void unigram_scratch_release(struct unigram_scratch *scratch);

/* Appends the ids of a text whose spaces are spaces; neighbours of no token are one unknown. */
void unigram_encode(const struct unigram *unigram, struct str text, struct unigram_scratch *scratch,
                    struct ids *ids);

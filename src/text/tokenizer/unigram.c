/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/unigram.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0 /* as SentencePiece has it */

/* Only ordinary tokens are pieces of a text. */
static bool is_piece(const struct tokenizer_vocab *vocab, int32_t id) {
    return vocab->kinds[id] == TOKEN_NORMAL || vocab->kinds[id] == TOKEN_USER_DEFINED;
}

enum err unigram_open(struct unigram *unigram, const struct tokenizer_vocab *vocab,
                      const struct tokenizer_source *source, struct error *error) {
    if (!source->scores) return err_set(error, ERR_INVALID, "the vocabulary has no scores");
    if (source->unknown == TOKEN_NONE)
        return err_set(error, ERR_INVALID, "the vocabulary has no unknown token");
    double lowest = 0;
    unigram->vocab = vocab;
    unigram->unknown = source->unknown;
    unigram->rules = source->unigram;
    unigram->rules.charsmap = (struct str){NULL, 0}; /* the opener has made a map of it */
    unigram->scores = mem_new(vocab->count, sizeof *unigram->scores);
    for (size_t i = 0; i < vocab->count; i++) {
        if (!isfinite(source->scores[i]))
            return err_set(error, ERR_INVALID, "the score of token %zu is no finite number", i);
        unigram->scores[i] = source->scores[i];
        if ((double)source->scores[i] < lowest) lowest = (double)source->scores[i];
        if (is_piece(vocab, (int32_t)i) && vocab->tokens[i].bytes > unigram->longest_bytes)
            unigram->longest_bytes = vocab->tokens[i].bytes;
    }
    unigram->unknown_score = lowest - UNKNOWN_PENALTY;
    return OK;
}

void unigram_close(struct unigram *unigram) {
    free(unigram->scores);
    *unigram = (struct unigram){.scores = NULL};
}

void unigram_scratch_release(struct unigram_scratch *scratch) {
    free(scratch->nodes);
    ids_release(&scratch->back);
    *scratch = (struct unigram_scratch){.nodes = NULL};
}

static bool reserve(struct unigram_scratch *scratch, size_t text_bytes) {
    const size_t count = text_bytes + 1;
    if (scratch->bytes_max > 0 && count > scratch->bytes_max / sizeof *scratch->nodes) {
        if (text_bytes > scratch->too_long_bytes) scratch->too_long_bytes = text_bytes;
        return false;
    }
    if (count > scratch->capacity) {
        scratch->nodes = mem_resize(scratch->nodes, count, sizeof *scratch->nodes);
        scratch->capacity = count;
    }
    for (size_t i = 0; i < count; i++) scratch->nodes[i].from = UINT32_MAX;
    return true;
}

static void offer(struct unigram_node *node, size_t from, double score, int32_t id) {
    if (node->from != UINT32_MAX && score <= node->score) return;
    *node = (struct unigram_node){.score = score, .from = (uint32_t)from, .id = id};
}

/* Offers all tokens that begin at `at`. */
static void reach(const struct unigram *unigram, struct str text, size_t at,
                  struct unigram_node *nodes) {
    const struct tokenizer_vocab *vocab = unigram->vocab;
    const double score = nodes[at].score;
    uint32_t code_point;
    const size_t first = utf8_decode(text, at, &code_point);
    bool has_character = false;
    for (size_t bytes = first; at + bytes <= text.bytes && bytes <= unigram->longest_bytes;) {
        const int32_t id =
            table_find(&vocab->by_bytes, vocab->tokens, (struct str){text.at + at, bytes});
        if (id >= 0 && is_piece(vocab, id)) {
            offer(&nodes[at + bytes], at, score + (double)unigram->scores[id], id);
            has_character = has_character || bytes == first;
        }
        if (at + bytes == text.bytes) break;
        bytes += utf8_decode(text, at + bytes, &code_point);
    }
    if (!has_character)
        offer(&nodes[at + first], at, score + unigram->unknown_score, unigram->unknown);
}

void unigram_encode(const struct unigram *unigram, struct str text, struct unigram_scratch *scratch,
                    struct ids *ids) {
    if (text.bytes == 0 || !reserve(scratch, text.bytes)) return;
    struct unigram_node *nodes = scratch->nodes;
    uint32_t code_point;
    nodes[0] = (struct unigram_node){.score = 0, .from = 0, .id = TOKEN_NONE};
    for (size_t at = 0; at < text.bytes; at += utf8_decode(text, at, &code_point))
        if (nodes[at].from != UINT32_MAX) reach(unigram, text, at, nodes);
    scratch->back.count = 0;
    for (size_t at = text.bytes; at > 0; at = nodes[at].from) {
        const size_t count = scratch->back.count;
        const bool continues = nodes[at].id == unigram->unknown && count > 0 &&
                               scratch->back.at[count - 1] == unigram->unknown;
        if (!continues) ids_add(&scratch->back, nodes[at].id);
    }
    for (size_t i = scratch->back.count; i > 0; i--) ids_add(ids, scratch->back.at[i - 1]);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_edits.h"

#include "base/mem.h"
#include "kernels/draw.h"
#include "scheduler/sampling.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Bad words of a row that are edits; more become a mask. */
#define FORBIDDEN_EDITS_MAX 256u

/* The marks of one token. */
struct mark {
    uint32_t count; /* in the generated tokens */
    float bias;
    uint32_t how;      /* MARK_… */
    uint32_t reserved; /* makes 16 bytes: no mark lies in two cache lines */
};

enum { MARK_FORBID = 1, MARK_BIAS = 2, MARK_HOLD = 4, MARK_REPEAT = 8 };

struct gpu_edits {
    uint32_t vocab;
    uint32_t words; /* words in a mask */
    uint32_t rows_max;
    uint32_t edits_max;
    struct draw_edit *all; /* (edits_max) edits in the call */
    uint32_t count;        /* above edits_max: the row that is being added does not fit */
    uint32_t *masks;       /* (rows_max, words) */
    uint32_t mask_count;
    /* For the row that is being added: zero between rows. */
    bool is_marked;     /* some token is */
    uint64_t *marked;   /* (vocab) bits */
    struct mark *marks; /* (vocab) */
    uint32_t forbidden;
};

uint32_t gpu_edits_of_row(uint32_t vocab, uint32_t context_max) {
    const uint32_t seen = context_max < vocab ? context_max : vocab; /* different tokens */
    return FORBIDDEN_EDITS_MAX + SAMPLING_BIASES_MAX + 2 * SAMPLING_STOP_TOKENS_MAX + 2 * seen;
}

enum err gpu_edits_open(struct gpu_edits **ret_edits, uint32_t vocab, uint32_t rows_max,
                        uint32_t edits_max, struct error *error) {
    struct gpu_edits *edits = mem_new(1, sizeof *edits);
    edits->vocab = vocab;
    edits->words = (vocab + 31) / 32;
    edits->rows_max = rows_max;
    edits->edits_max = edits_max;
    edits->all = calloc(edits_max, sizeof *edits->all);
    edits->masks = calloc((size_t)rows_max * edits->words, sizeof *edits->masks);
    edits->marked = calloc((vocab + 63) / 64, sizeof *edits->marked);
    edits->marks = calloc(vocab, sizeof *edits->marks);
    *ret_edits = edits;
    if (edits->all && edits->masks && edits->marked && edits->marks) return OK;
    gpu_edits_close(edits);
    *ret_edits = NULL;
    return err_set(error, ERR_LIMIT, "no memory for %u changes of logits", edits_max);
}

void gpu_edits_close(struct gpu_edits *edits) {
    if (!edits) return;
    free(edits->all);
    free(edits->masks);
    free(edits->marked);
    free(edits->marks);
    free(edits);
}

void gpu_edits_begin(struct gpu_edits *edits) {
    edits->count = edits->mask_count = 0;
}

void gpu_edits_end(const struct gpu_edits *edits, struct gpu_samples *samples) {
    samples->edits = edits->all;
    samples->edit_count = edits->count;
    samples->masks = edits->masks;
    samples->mask_count = edits->mask_count;
    samples->mask_words = edits->words;
}

/* ---- marks ---- */

static void mark(struct gpu_edits *edits, int32_t token, uint8_t how) {
    assert(token >= 0 && (uint32_t)token < edits->vocab);
    edits->marked[token / 64] |= (uint64_t)1 << token % 64;
    edits->marks[token].how |= how;
    edits->is_marked = true;
}

static void mark_all(struct gpu_edits *edits, const int32_t *tokens, uint32_t count, uint8_t how) {
    for (uint32_t i = 0; i < count; i++) mark(edits, tokens[i], how);
}

/* The last tokens of the runs with whose beginning the generated tokens end. */
static void mark_bad_words(struct gpu_edits *edits, const struct logit_row *row) {
    const struct sampling *sampling = row->sampling;
    for (uint32_t at = 0; at < sampling->bad_word_ints;) {
        uint32_t before = (uint32_t)sampling->bad_words[at] - 1;
        const int32_t *word = &sampling->bad_words[at + 1];
        at += before + 2;
        if (before > row->counter) continue;
        if (before > 0 &&
            memcmp(row->generated + (row->counter - before), word, before * sizeof *word) != 0)
            continue;
        edits->forbidden += !(edits->marks[word[before]].how & MARK_FORBID);
        mark(edits, word[before], MARK_FORBID);
    }
}

static void mark_row(struct gpu_edits *edits, const struct logit_row *row) {
    const struct sampling *sampling = row->sampling;
    edits->forbidden = 0;
    if (sampling->bad_word_ints > 0) mark_bad_words(edits, row);
    for (uint32_t i = 0; i < sampling->bias_count; i++) {
        mark(edits, sampling->biases[i].token, MARK_BIAS);
        edits->marks[sampling->biases[i].token].bias = sampling->biases[i].bias;
    }
    if (row->counter < sampling->min_tokens) {
        mark_all(edits, sampling->stop_tokens, sampling->stop_token_count, MARK_HOLD);
        mark_all(edits, sampling->end_tokens, sampling->end_token_count, MARK_HOLD);
    }
    if (sampling_has_repetition(sampling)) {
        mark_all(edits, row->prompt, row->prompt_count, MARK_REPEAT);
        mark_all(edits, row->generated, row->counter, MARK_REPEAT);
    }
    for (uint32_t i = 0; sampling_has_frequency(sampling) && i < row->counter; i++) {
        mark(edits, row->generated[i], 0);
        edits->marks[row->generated[i]].count++;
    }
}

/* ---- masks ---- */

static bool is_allowed(const uint32_t *allowed, uint32_t token) {
    return allowed[token / 32] >> (token % 32) & 1;
}

/* The lowest id that the mask allows; UINT32_MAX when it allows none. */
static uint32_t first_allowed(const struct gpu_edits *edits, const uint32_t *allowed) {
    for (uint32_t i = 0; i < edits->words; i++) {
        uint32_t token = i * 32 + (allowed[i] ? (uint32_t)__builtin_ctz(allowed[i]) : 0);
        if (allowed[i]) return token < edits->vocab ? token : UINT32_MAX;
    }
    return UINT32_MAX;
}

/* The token taken when no token is left: the lowest id that mask and list allow, else that the mask
 * allows. `allowed` is NULL when it allows all, or none. */
static uint32_t fallback_of(const struct gpu_edits *edits, const struct logit_row *row,
                            const uint32_t *allowed) {
    const struct sampling *sampling = row->sampling;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < sampling->allowed_token_count; i++) {
        uint32_t token = (uint32_t)sampling->allowed_tokens[i];
        if (token < least && (!row->allowed || is_allowed(row->allowed, token))) least = token;
    }
    if (least < edits->vocab) return least;
    return allowed ? first_allowed(edits, allowed) : 0;
}

/* Makes the row's mask: what mask and list allow, without bad words that are no edits. A mask that
 * would allow nothing allows the fallback. */
static void add_mask(struct gpu_edits *edits, const struct logit_row *row, struct gpu_draw *draw) {
    const struct sampling *sampling = row->sampling;
    const uint32_t *allowed = row->allowed;
    if (allowed && first_allowed(edits, allowed) == UINT32_MAX) allowed = NULL;
    draw->fallback = (int32_t)fallback_of(edits, row, allowed);
    bool has_many = edits->forbidden > FORBIDDEN_EDITS_MAX;
    draw->mask = -1;
    if (!allowed && sampling->allowed_token_count == 0 && !has_many) return;

    uint32_t *mask = edits->masks + (size_t)edits->mask_count * edits->words;
    assert(edits->mask_count < edits->rows_max);
    draw->mask = (int32_t)edits->mask_count++;
    if (sampling->allowed_token_count > 0) {
        memset(mask, 0, edits->words * sizeof *mask);
        for (uint32_t i = 0; i < sampling->allowed_token_count; i++) {
            uint32_t token = (uint32_t)sampling->allowed_tokens[i];
            if (!allowed || is_allowed(allowed, token)) mask[token / 32] |= 1u << token % 32;
        }
    } else if (allowed) {
        memcpy(mask, allowed, edits->words * sizeof *mask);
    } else {
        memset(mask, 0xff, edits->words * sizeof *mask);
    }
    for (uint32_t i = 0; has_many && i < edits->vocab; i++)
        if (edits->marks[i].how & MARK_FORBID) mask[i / 32] &= ~(1u << i % 32);
    assert(draw->fallback >= 0);
    if (first_allowed(edits, mask) == UINT32_MAX)
        mask[draw->fallback / 32] |= 1u << draw->fallback % 32;
}

/* ---- edits ---- */

static void add_edit(struct gpu_edits *edits, uint32_t row, int32_t token, enum draw_edit_kind kind,
                     float value) {
    if (edits->count < edits->edits_max)
        edits->all[edits->count] =
            (struct draw_edit){.row = row, .token = token, .kind = kind, .value = value};
    edits->count++;
}

/* Adds the edits of a marked token, and clears its marks. */
static void add_token(struct gpu_edits *edits, const struct sampling *sampling, uint32_t row,
                      int32_t token) {
    const struct mark mark = edits->marks[token];
    const uint32_t marks = mark.how, count = mark.count;
    if (marks & MARK_FORBID && edits->forbidden <= FORBIDDEN_EDITS_MAX)
        add_edit(edits, row, token, DRAW_FORBID, 0.0f);
    if (marks & MARK_BIAS) add_edit(edits, row, token, DRAW_BIAS, mark.bias);
    if (marks & MARK_HOLD) add_edit(edits, row, token, DRAW_HOLD, 0.0f);
    if (marks & MARK_REPEAT) add_edit(edits, row, token, DRAW_REPEAT, sampling->repetition_penalty);
    if (count > 0)
        add_edit(edits, row, token, DRAW_SUBTRACT,
                 draw_subtrahend(sampling->presence_penalty, sampling->frequency_penalty, count));
    edits->marks[token] = (struct mark){0};
}

bool gpu_edits_add(struct gpu_edits *edits, const struct logit_row *row, uint32_t index,
                   struct gpu_draw *draw) {
    const uint32_t begin = edits->count, mask_begin = edits->mask_count;
    mark_row(edits, row);
    add_mask(edits, row, draw);
    for (uint32_t i = 0; edits->is_marked && i < (edits->vocab + 63) / 64; i++) {
        for (uint64_t bits = edits->marked[i]; bits != 0; bits &= bits - 1)
            add_token(edits, row->sampling, index, (int32_t)(i * 64) + __builtin_ctzll(bits));
        edits->marked[i] = 0;
    }
    edits->is_marked = false;
    if (edits->count > edits->edits_max) {
        assert(begin > 0); /* edits_max is at least gpu_edits_of_row */
        edits->count = begin;
        edits->mask_count = mask_begin;
        return false;
    }
    draw->edit_begin = begin;
    draw->edit_count = edits->count - begin;
    return true;
}

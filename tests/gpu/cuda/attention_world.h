/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_world: sequences with a paged cache, queries, and what attention over them should be.
 *
 * Pages are dealt at random. Page 0 belongs to nobody and holds NaN, and so does every byte of the
 * others that no token has; page tables name page 0 wherever an item must not look. */

#include "harness.h"

#include "gpu/cuda/attention.h"

struct attention_shape {
    enum cuda_kv_type type;
    uint32_t head_dim;
    uint32_t kv_heads;
    uint32_t group;
    uint32_t window;
    float softcap;
    bool has_sinks;
    uint32_t spare_heads; /* a page has room for so many heads more */
    uint32_t turned_dim;  /* not 0: entries, whose first head_dim numbers are the value as well */
};

struct attention_row {
    uint32_t sequence;
    uint32_t position;
};

struct attention_world {
    struct attention_shape shape;
    std::vector<attention_row> rows;
    std::vector<uint32_t> tables; /* where each sequence's page table begins in `pages` */
    std::vector<uint32_t> pages;
    std::vector<uint32_t> positions;
    std::vector<std::vector<uint32_t>> tokens; /* for each sequence: slots, page · 16 + offset */
    /* (slots, kv_heads, head_dim + turned_dim), dequantised; entries have no v */
    std::vector<float> k, v;
    std::vector<float> q;       /* (rows, heads, head_dim + turned_dim) */
    std::vector<float> sinks;   /* (heads) or none */
    struct cuda_attention call; /* the GPU's copies; y poisoned */
    float *partial_o, *partial_ml;
    uint32_t partial_room;
};

/* Sequences of `lengths` tokens, of which all have the first `shared` (a multiple of 16) in common;
 * each row is a query of a sequence. Entries of page tables that no row of the sequence sees are
 * page 0's. `partials` is the room for partials. */
struct attention_world attention_world_of(struct rng *rng, const struct attention_shape *shape,
                                          const std::vector<uint32_t> &lengths, uint32_t shared,
                                          const std::vector<attention_row> &rows,
                                          uint32_t partials);

/* softmax(q k) v of a row and head over the keys begin..end-1 that it sees, in double and without
 * sinks; and log2 Σ 2^score. Zeros and -inf when it sees none. */
double attention_reference(const struct attention_world *world, uint32_t row, uint32_t head,
                           uint32_t begin, uint32_t end, std::vector<double> *ret_y);

/* Compares y of rows first..first+count-1 with the reference over all keys. `ret_worst` is the
 * largest |got - want| / |want| of a row and head; infinite when anything is NaN. */
double attention_error(const struct attention_world *world, uint32_t first, uint32_t count,
                       double *ret_worst);

/* The same for the partial of a row over begin..end-1: of o / l, and of m + log2 l, absolute. */
double attention_partial_error(const struct attention_world *world, uint32_t partial, uint32_t row,
                               uint32_t begin, uint32_t end, double *ret_log_error);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bpe_internal: the merge table, which bpe_open.c fills and bpe.c reads. Only these two include it.
 *
 * Thread: as bpe.h.
 * Memory: as bpe.h. */

#include "tokenizer/bpe.h"

#define NO_PAIR UINT64_MAX
/* Pieces longer than this are not looked up as a whole: they go through their merges. */
#define WHOLE_BYTES_MAX 256

struct merge_slot {
    uint64_t pair; /* left id << 32 | right id; NO_PAIR is a free slot */
    uint32_t rank; /* lower is merged first */
    int32_t result;
};

/* The slot of the pair, or the free slot where it belongs. */
static inline struct merge_slot *merge_slot(const struct bpe *bpe, uint64_t pair) {
    size_t at = hash_mix(pair ^ bpe->merge_key, 0x9E3779B97F4A7C15u) & bpe->merge_mask;
    while (bpe->merges[at].pair != pair && bpe->merges[at].pair != NO_PAIR)
        at = (at + 1) & bpe->merge_mask;
    return &bpe->merges[at];
}

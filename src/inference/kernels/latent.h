/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* latent: attention over one entry per token that all heads share (MLA, DeepSeek-AI 2024), a part
 * of the table of kernels.h.
 *
 * An entry is a key of `dim` elements, and its first `rank` elements are the value as well. So the
 * cache is one plane, and each entry is read once for its score and once for the sum. All heads of
 * a token read the same entries: a step has heads times as much work per byte as with keys of
 * heads.
 *
 * Thread: any. Calls that write different rows, or different heads of one, may run at once.
 * Memory: the caller's; nothing is allocated.
 * Invariant: a row of y is bitwise the same for any cut of an item into items and for any range of
 *     heads. */

#include "kernels/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LATENT_RANK_MAX 512
#define LATENT_TURNED_MAX 128
#define LATENT_DIM_MAX (LATENT_RANK_MAX + LATENT_TURNED_MAX)

struct attention_item;

/* One layer's entries: (blocks, 16, dim). Token `position` of a sequence lies in block
 * table[position / 16] at offset position % 16. */
struct latent_cache {
    void *entries;
    enum tensor_type type; /* kernels->latent_type */
    uint32_t dim;          /* a multiple of 16, at most LATENT_DIM_MAX */
    uint32_t rank;         /* a multiple of 16, at most dim and LATENT_RANK_MAX */
};

struct latent_store {
    const struct latent_cache *cache;
    const float *entries; /* (rows, dim) */
    size_t stride;
    const uint32_t *slots; /* (rows): block * 16 + offset; all different */
    size_t rows;
};

struct latent_attention {
    const struct latent_cache *cache;
    const float *q; /* (rows, head_count, dim) */
    size_t q_stride;
    float *y; /* (rows, head_count, rank) */
    size_t y_stride;
    uint32_t head_count;
    float scale;
    bool causal; /* false: every query of an item sees keys 0 <= j < key_count */
};

typedef void (*latent_store_fn)(const struct latent_store *call);
typedef void (*latent_attend_fn)(const struct latent_attention *call,
                                 const struct attention_item *item, uint32_t head_begin,
                                 uint32_t head_end);

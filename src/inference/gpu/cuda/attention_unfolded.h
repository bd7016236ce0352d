/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_unfolded: prompts of latent layers by keys and values of heads, instead of by entries.
 *
 * The entries of a prompt's tokens become keys and values of all heads once per step, by one
 * product with `kv_b` (for each head the rows of K, then those of V, as folders have it). Then a
 * query meets 128 + 64 numbers of a key and 128 of a value, where the absorbed form
 * (attention_latent.cuh) has 576 and 512. The sizes are those of DeepSeek V2 and V3 alone.
 *
 * In the plugin nothing calls it yet: `cuda-kernels --bench unfolded` runs both forms, and
 * docs/internals/inference/latent.md says what has to be measured first.
 *
 * Every pointer is to GPU memory; every call only enqueues, and allocates nothing.
 *
 * Thread: any, one at a time per stream.
 * Memory: the caller's.
 * Invariant: a row's result depends on its own query and on the keys up to its position. Page
 *     entries and unfolded rows of tokens outside an item's begin..end are not used, whatever they
 *     hold. */

#include "gpu/cuda/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_UNFOLDED_STILL 128 /* numbers of a head's key that do not turn */
#define CUDA_UNFOLDED_TURNED 64 /* those that turn, which all heads share */
#define CUDA_UNFOLDED_VALUE 128 /* numbers of a head's value */
#define CUDA_UNFOLDED_HEAD (CUDA_UNFOLDED_STILL + CUDA_UNFOLDED_VALUE)

/* y (page_count · 16, rank) = the first numbers of the entries of pages, page after page. */
struct cuda_entry_rows {
    const void *entries;   /* (pages, 16, rank + turned_dim) bf16 */
    const uint32_t *pages; /* (page_count) */
    uint32_t page_count;
    uint32_t rank; /* a multiple of 8 */
    uint32_t turned_dim;
    void *y;
};
enum err cuda_entry_rows(const struct cuda_entry_rows *call, cuda_stream stream,
                         struct error *error) MUST_CHECK;

struct cuda_unfolded {
    uint32_t heads;
    float scale;        /* > 0 */
    const void *still;  /* (rows, heads, CUDA_UNFOLDED_STILL) bf16 */
    const void *turned; /* CUDA_UNFOLDED_TURNED numbers of each row and head, turned_stride
                         * elements apart: the last ones of queries of the absorbed form */
    size_t turned_stride;
    const void *unfolded;   /* (tokens, heads, CUDA_UNFOLDED_HEAD) bf16: keys, then values */
    const uint32_t *firsts; /* (item_count): the row of `unfolded` that token 0 has; the item's
                             * other tokens stand behind it */
    const void *entries;    /* (pages, 16, entry_dim) bf16, the turned part at the end of each */
    uint32_t entry_dim;
    const uint32_t *positions; /* (rows) */
    const uint32_t *pages;     /* page tables of all sequences */
    void *y;                   /* (rows, heads, CUDA_UNFOLDED_VALUE) bf16 */
    size_t y_stride;           /* elements */
};

/* The shapes of blocks, of which a card will say the fastest. */
enum cuda_unfolded_form {
    CUDA_UNFOLDED_2X128, /* two blocks of 128 rows per multiprocessor, stages of 32 tokens */
    CUDA_UNFOLDED_192,   /* one of 192, stages of 64 */
    CUDA_UNFOLDED_256,   /* one of 256, stages of 32 */
    CUDA_UNFOLDED_FORMS,
};

/* The most rows of an item. */
uint32_t cuda_unfolded_rows(enum cuda_unfolded_form form);

/* Whether the GPU has what the kernels need. */
bool cuda_has_unfolded(void);

/* Items as those of cuda_attention_tiles without partials: each leaves the results of its rows.
 * ERR_INVALID where cuda_has_unfolded() is false, or an address is odd. */
enum err cuda_attention_unfolded(const struct cuda_unfolded *call, enum cuda_unfolded_form form,
                                 const struct cuda_tile_items *items, cuda_stream stream,
                                 struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

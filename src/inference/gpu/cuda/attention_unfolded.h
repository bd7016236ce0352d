/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_unfolded: prompts of latent layers by keys and values of heads, instead of by entries.
 *
 * The entries of a prompt's tokens become keys and values of all heads once per layer and step, by
 * one product with `kv_b` (for each head the rows of K, then those of V). Then a query meets
 * 128 + 64 numbers of a key and 128 of a value, where the absorbed form (attention_latent.cuh) has
 * 576 and 512. The sizes are those of DeepSeek V2 and V3 alone. plugin_unfold.c says which rows of
 * a step take this form.
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

/* kv_b (heads, CUDA_UNFOLDED_HEAD, rank) = K of each head, turned, then its V. */
struct cuda_unfold_heads {
    const void *k_b; /* (heads, rank, CUDA_UNFOLDED_STILL) bf16 */
    const void *v_b; /* (heads, CUDA_UNFOLDED_VALUE, rank) bf16 */
    void *kv_b;
    uint32_t heads;
    uint32_t rank; /* a multiple of 64 */
};
enum err cuda_unfold_heads(const struct cuda_unfold_heads *call, cuda_stream stream,
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

#define CUDA_UNFOLDED_ROWS 128u /* the most of an item */

/* Whether the GPU has what the kernels need. */
bool cuda_has_unfolded(void);

/* Items as those of cuda_attention_tiles without partials: each leaves the results of its rows.
 * ERR_INVALID where cuda_has_unfolded() is false, or an address is odd. */
enum err cuda_attention_unfolded(const struct cuda_unfolded *call,
                                 const struct cuda_tile_items *items, cuda_stream stream,
                                 struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

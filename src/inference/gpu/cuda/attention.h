/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention: decode, prefill and shared-prefix attention of a CUDA GPU over a paged KV cache.
 *
 * Up to four launches make the attention of one layer: tiles that leave partials (shared prefixes),
 * tiles that finish (prefill), decode items that continue from partials, and a merge of decode
 * items that were cut. The host makes the items (gpu/plan_decode.h cuts them); nothing here knows
 * sequences, and no item waits for another of the same launch.
 *
 * On sm_90 and later a launch with `is_next` starts when all blocks of the launch before have
 * started, and takes the room that those leave. It reads keys and queries at once, for they are
 * complete since the first launch began, and waits for the launch before where it needs partials.
 *
 * Every pointer is to GPU memory and every launch is put into `stream`; nothing is allocated
 * and nothing is waited for.
 *
 * A page holds CUDA_PAGE_TOKENS tokens of one layer. The elements of page `p` and KV head `h` begin
 * at element (p · page_heads + h) · 16 · head_dim of `k` and of `v` and are [16][head_dim] there, so
 * that one head of one page is one run of memory. E4M3 elements are multiplied by a float16 for
 * each token and head; those of page p and head h lie in `scales` at (p · scale_heads + h) · 32: 16
 * of the keys, then 16 of the values. (Behind the runs they would cost 9 % of the bandwidth, there
 * they cost 2 %: docs/internals/inference/gpu-kernels.md.)
 *
 * Latent layers (kernels/latent.h) have one entry per token for all heads instead, in bf16: its
 * head_dim + turned_dim numbers are the key, the first head_dim the value as well. An entry is a
 * row, and a page 16 of them; `v` is not looked at.
 *
 * A partial is what attention over some of a row's keys has gathered, in float32: for each head the
 * largest score m (in powers of two), l = Σ 2^(score - m) and o = Σ 2^(score - m) · value, of which
 * several can be added up in a fixed order. m may stay under the true maximum by a few powers.
 *
 * Thread: any, one at a time per stream.
 * Memory: the caller's.
 * Invariant: the keys that an item sees depend on its positions alone. Page entries outside
 *     [begin, end) and outside the window of an item are not read, and the bytes of tokens outside
 *     are not used, whatever they hold. The order of an item's sums depends on its own fields
 *     only. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"
#include "gpu/table.h"

#define CUDA_PAGE_TOKENS ((int)GPU_PAGE_TOKENS) /* signed, for bounds below zero */
#define CUDA_SPLIT_TOKENS 256 /* decode items are cut at absolute multiples of it */
/* A launch of prefixes takes 8 us per layer at 8 rows of 288 shared keys, and wins nothing up to 64
 * rows (Llama-3.2-1B and Qwen3-4B in E4M3 on an H200). */
#define CUDA_PREFIX_READS_MIN 16384
#define CUDA_HEAD_WIDE 512 /* the one larger head size: in bf16, by kernels of its own */
#define CUDA_GROUP_MAX 16  /* query heads that read one KV head */
/* In latent layers: the most numbers of a value, and of the rest of a key, and heads. */
#define CUDA_LATENT_RANK 512
#define CUDA_LATENT_TURNED 64
#define CUDA_LATENT_HEADS 128

typedef struct CUstream_st *cuda_stream;

enum cuda_kv_type { CUDA_KV_BF16, CUDA_KV_E4M3 };

struct cuda_attention {
    const void *k; /* (pages, page_heads, 16, head_dim) in `type`, at a multiple of 16 bytes */
    const void *v;
    const void *scales; /* (pages, scale_heads, 2, 16) float16; BF16: not looked at */
    enum cuda_kv_type type;
    uint32_t kv_heads;
    uint32_t page_heads;  /* heads that a page has room for, at least kv_heads */
    uint32_t scale_heads; /* heads that its scales have room for, at least page_heads: layers with
                           * heads of other sizes have the same pages */
    uint32_t head_dim;    /* one that cuda_has_head_size() knows, or CUDA_HEAD_WIDE with BF16 */
    uint32_t turned_dim;  /* 0; of entries the rest of a key: then there is one KV head */
    uint32_t head_count;  /* a multiple of kv_heads, at most CUDA_GROUP_MAX times it; of entries
                           * at most CUDA_LATENT_HEADS */
    float scale;          /* > 0 */
    float softcap;        /* 0: none; else scores become softcap · tanh(score / softcap) */
    uint32_t window;      /* 0: none; else a query at p sees keys p - window < j <= p */
    const float *sinks;   /* (head_count) or NULL: one more score of each head, without a value */
    const void *q;        /* (rows, head_count, head_dim + turned_dim) bf16, rows at multiples of
                           * 16 bytes */
    size_t q_stride;      /* elements */
    void *y;              /* (rows, head_count, head_dim) bf16 */
    size_t y_stride;
    const uint32_t *positions; /* (rows) for tiles: the position of each row's query */
    const uint32_t *pages;     /* page tables of all sequences, one after another */
    float *partial_o;          /* (partials, head_count, head_dim) */
    float *partial_ml;         /* (partials, head_count, 2): m, l */
    bool is_next; /* the launch before is of the same attention: they may run side by side */
};

/* Items of one launch, the costly ones first. Without items it is no launch. */
struct cuda_decode_items {
    const struct gpu_decode_item *items; /* (item_count), at a multiple of 16 bytes */
    uint32_t item_count;
};
struct cuda_tile_items {
    const struct gpu_tile_item *items;
    uint32_t item_count;
    const uint32_t *rows; /* row i of an item is rows[item.row + i]; NULL: item.row + i */
};
struct cuda_merge_items {
    const struct gpu_merge_item *items;
    uint32_t item_count;
};

/* Whether the kernels have a head size. 64, 128 and 256 have kernels of their own. The other sizes
 * below 128 use those of 128, which fill the rest with zeros: the cache is read once either way,
 * but heads of 32 take as many instructions as heads of 128. A row is whole copies of 16 B in E4M3
 * as well, hence the multiple of 16. */
static inline bool cuda_has_head_size(uint32_t head_dim) {
    return head_dim == 256 || (head_dim > 0 && head_dim <= 128 && head_dim % 16 == 0);
}

/* Whether the kernels have entries of such sizes for so many heads. */
static inline bool cuda_has_latent(uint32_t rank, uint32_t turned_dim, uint32_t heads) {
    return rank > 0 && rank <= CUDA_LATENT_RANK && rank % 16 == 0 && turned_dim > 0 &&
           turned_dim <= CUDA_LATENT_TURNED && turned_dim % 16 == 0 && heads > 0 &&
           heads <= CUDA_LATENT_HEADS;
}

/* How many rows a tile takes: it has room for 128 query heads. */
uint32_t cuda_tile_rows(uint32_t group);

/* ERR_INVALID when no kernel has that head size or group; ERR_IO when the launch is refused. */
enum err cuda_attention_decode(const struct cuda_attention *call,
                               const struct cuda_decode_items *items, cuda_stream stream,
                               struct error *error) MUST_CHECK;
enum err cuda_attention_tiles(const struct cuda_attention *call,
                              const struct cuda_tile_items *items, cuda_stream stream,
                              struct error *error) MUST_CHECK;
enum err cuda_attention_merge(const struct cuda_attention *call,
                              const struct cuda_merge_items *items, cuda_stream stream,
                              struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

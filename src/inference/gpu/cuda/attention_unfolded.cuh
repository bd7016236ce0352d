/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_unfolded: the tiles of attention_group.cuh for heads whose keys have 192 numbers and
 * whose values 128, each head with keys of its own.
 *
 * What differs is where a stage comes from. Of a key 128 numbers are a head's own, in the unfolded
 * rows; 64 are the entry's, in its page. Queries and keys lie in three parts of 64 numbers, values
 * in two. Scores, softmax and sums are those of a head of 128 with a third part in the scores.
 *
 * A product of 64 rows by N tokens reads 2 KiB of queries and 32 · N bytes of keys from shared
 * memory, at 128 bytes per cycle, and takes N / 2 cycles: at 32 tokens reading is the limit (24 to
 * 16 cycles), at 64 both are equal. A stage's 640 bytes per token are written once for all rows of
 * a block. So more rows and longer stages read less, and blocks of fewer rows overlap better.
 */

#include "gpu/cuda/attention_of.cuh"

#include "gpu/cuda/attention_group.cuh"
#include "gpu/cuda/attention_tile_kernel.cuh"
#include "gpu/cuda/attention_unfolded.h"

/* Rows of 128 and stages of 32 tokens: of the shapes that were tried, the fastest on an H200
 * (docs/internals/inference/latent.md). */
struct unfolded_shape {
    using PAGE = cuda_page<CUDA_KV_BF16, CUDA_UNFOLDED_VALUE, true>;
    using SCORES = PAGE;
    static constexpr int TILES = 1, WARPS = 8, KEYS = 32, BLOCKS = 2, TOGETHER = 4;
    static constexpr int D = CUDA_UNFOLDED_VALUE, THREADS = 32 * WARPS, ROWS = 16 * WARPS;
    static constexpr int PARTS = D / 64, STEPS = D / 16, COLUMNS = KEYS / 8;
    static constexpr int KEY_DIM = CUDA_UNFOLDED_STILL + CUDA_UNFOLDED_TURNED;
    static constexpr int KEY_PARTS = KEY_DIM / 64, KEY_STEPS = KEY_DIM / 16;
    static constexpr int PIECES = 1, PIECE = KEYS, PIECE_COLUMNS = PIECE / 8;
    static constexpr int PART_BYTES = KEYS * 128; /* 64 numbers of each token of a stage */
    static constexpr int STAGE_BYTES = (KEY_PARTS + PARTS) * PART_BYTES;
    static constexpr int KEYS_AT = KEY_PARTS * ROWS * 128;
    static constexpr int SCALE_BYTES = 0, SCALE_STAGES = 1, KEY_SCALES_AT = 0; /* has none */
    static constexpr int BOUNDS_AT = KEYS_AT + 2 * STAGE_BYTES;
    static constexpr int SEEN_AT = BOUNDS_AT + WARPS * 16;
    static constexpr int SHARED_BYTES = SEEN_AT + ROWS * 8;
    static constexpr int CHUNKS = KEY_DIM / 8; /* chunks of a query, 16 bytes each */

    /* Where chunk c of row r of a matrix of `rows` is. */
    __device__ static constexpr uint32_t wide_at(uint32_t rows, uint32_t r, uint32_t c) {
        return (c >> 3) * (rows * 128) + r * 128 + (((c ^ r) & 7) << 4);
    }
};

/* Where a block reads keys and values from. */
struct unfolded_source {
    const char *still;  /* a head's keys of token 0; its values stand behind them */
    const char *turned; /* what turns of the entries of page 0 */
    const uint32_t *pages;
    uint32_t row_bytes; /* from token to token of `still` */
    uint32_t entry_bytes;
};

/* Asks for a stage; what no row sees becomes zero, unread. */
__device__ static inline void unfolded_fetch(const cuda_tiler<unfolded_shape> *d,
                                             const struct unfolded_source *from, int s) {
    using S = unfolded_shape;
    constexpr int OWN = CUDA_UNFOLDED_HEAD / 8, TURNED = CUDA_UNFOLDED_TURNED / 8;
    static_assert(S::KEYS * OWN % S::THREADS == 0 && S::KEYS * TURNED % S::THREADS == 0,
                  "each thread has as many chunks of a stage");
    const uint32_t to = d->memory + S::KEYS_AT + (s & 1) * S::STAGE_BYTES;
    if (s * S::KEYS < d->end) {
#pragma unroll
        for (int i = 0; i < S::KEYS * OWN; i += S::THREADS) {
            const uint32_t index = i + threadIdx.x, row = index / OWN, c = index % OWN;
            const int token = s * S::KEYS + (int)row;
            const bool is_wanted = token >= d->begin && token < d->end;
            const uint32_t chunk = c < OWN / 2 ? c : c + TURNED; /* what turns is in between */
            cuda_copy16_if(to + S::wide_at(S::KEYS, row, chunk),
                           from->still + (is_wanted ? (size_t)token * from->row_bytes : 0) + c * 16,
                           is_wanted);
        }
#pragma unroll
        for (int i = 0; i < S::KEYS * TURNED; i += S::THREADS) {
            const uint32_t index = i + threadIdx.x, row = index / TURNED, c = index % TURNED;
            const int token = s * S::KEYS + (int)row;
            const bool is_wanted = token >= d->begin && token < d->end;
            const uint32_t page =
                is_wanted ? __ldg(from->pages + (uint32_t)token / CUDA_PAGE_TOKENS) : 0;
            const size_t entry = (size_t)page * CUDA_PAGE_TOKENS + token % CUDA_PAGE_TOKENS;
            cuda_copy16_if(to + S::wide_at(S::KEYS, row, CUDA_UNFOLDED_STILL / 8 + c),
                           from->turned + (is_wanted ? entry * from->entry_bytes : 0) + c * 16,
                           is_wanted);
        }
    }
    cuda_copy_commit();
}

/* The queries of the block's rows; beyond the last row its queries again. */
__device__ static inline void unfolded_queries(const struct cuda_unfolded *call,
                                               const struct cuda_tile_items *items,
                                               const struct gpu_tile_item *item, uint32_t head,
                                               char *memory) {
    using S = unfolded_shape;
    constexpr int STILL = CUDA_UNFOLDED_STILL / 8;
#pragma unroll 4
    for (int i = 0; i < S::ROWS * S::CHUNKS; i += S::THREADS) {
        const uint32_t index = i + threadIdx.x, r = index / S::CHUNKS, c = index % S::CHUNKS;
        const size_t at = (size_t)cuda_tile_row(items, item, r, 1) * call->heads + head;
        const char *q = c < STILL ? (const char *)call->still + at * (CUDA_UNFOLDED_STILL * 2)
                                  : (const char *)call->turned + at * call->turned_stride * 2 -
                                        CUDA_UNFOLDED_STILL * 2;
        *(uint4 *)(memory + S::wide_at(S::ROWS, r, c)) = __ldcg((const uint4 *)q + c);
    }
}

__device__ static inline void unfolded_begin(cuda_tiler<unfolded_shape> *d,
                                             const struct cuda_unfolded *call,
                                             const struct gpu_tile_item *item, uint32_t index,
                                             uint32_t head, char *memory,
                                             struct unfolded_source *ret_from) {
    d->lane = threadIdx.x % 32;
    d->memory = cuda_shared_address(memory);
    d->m[0][0] = d->m[0][1] = CUDA_UNSEEN;
    d->l[0][0] = d->l[0][1] = 0;
#pragma unroll
    for (int n = 0; n < 2 * unfolded_shape::STEPS; n++)
        d->o[0][n][0] = d->o[0][n][1] = d->o[0][n][2] = d->o[0][n][3] = 0;
    ret_from->row_bytes = call->heads * CUDA_UNFOLDED_HEAD * 2;
    ret_from->entry_bytes = call->entry_dim * 2;
    ret_from->still = (const char *)call->unfolded +
                      (size_t)__ldg(call->firsts + index) * ret_from->row_bytes +
                      head * (CUDA_UNFOLDED_HEAD * 2);
    ret_from->turned =
        (const char *)call->entries + ret_from->entry_bytes - CUDA_UNFOLDED_TURNED * 2;
    ret_from->pages = call->pages + item->pages;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_group: the tiles of attention_tile.cuh with products of warpgroups, which sm_90a has
 * and which give 1.35 times what mma.sync can.
 *
 * A block has two warpgroups of 64 query rows, a warp 16 of them. Queries, keys and values lie in
 * halves (or quarters) of 64 elements of a head, each as wgmma.cuh asks for. E4M3 arrives in a ring
 * of its own and is unpacked once for the block, keys and values of a stage at a time:
 *   wait for stage s, meet | unpack s, meet | ask for s + 2 | scores, softmax, sums
 * bf16 is copied to where products read it:
 *   wait for stage s, meet | ask for s + 1 | scores, softmax, sums
 * A head of 128 in bf16 has two pieces per stage, which overlap: 32 tokens' scores take 16
 * registers, so that two pieces and the sums fit into 128 registers. Elsewhere a piece is a whole
 * stage, whose scores read the queries half as often, and that is 2 to 10 % faster. */

#include "gpu/cuda/attention_tile.cuh"
#include "gpu/cuda/wgmma.cuh"

/* KEYS: tokens of a stage, two pieces of 32 or one. BLOCKS: of a multiprocessor at once. */
template <class PAGE_, int KEYS_, int BLOCKS_> struct cuda_group_shape {
    using PAGE = PAGE_;
    using SCORES = cuda_page<CUDA_KV_BF16, PAGE_::D, PAGE_::EXACT>; /* E4M3 is scaled by then */
    static constexpr int TILES = 1, WARPS = 8, KEYS = KEYS_, BLOCKS = BLOCKS_, TOGETHER = 4;
    static constexpr int D = PAGE_::D, THREADS = 256, ROWS = 128, PARTS = D / 64;
    static constexpr int STEPS = D / 16, KEY_STEPS = STEPS, COLUMNS = KEYS / 8;
    static constexpr int PIECES = PAGE_::IS_E4M3 || D != 128 ? 1 : 2; /* pieces of a stage */
    static constexpr int PIECE = KEYS / PIECES, PIECE_COLUMNS = PIECE / 8;
    static constexpr int QUERY_TURNS = ROWS * STEPS / THREADS; /* 16 elements per turn */
    static constexpr int STAGE_BYTES = KEYS * PAGE_::ROW_BYTES;
    static constexpr int WIDE_BYTES = PAGE_::IS_E4M3 ? KEYS * D * 2 : 0;
    static constexpr int SCALE_BYTES = PAGE_::IS_E4M3 ? KEYS * 2 : 0;
    static constexpr int SCALE_STAGES = 3; /* s is read while those of s + 2 arrive */
    /* True if queries are loaded before bounds and pages are known. In E4M3 this saves 11 % of the
     * time of short prompts and 10 % of prefixes. In bf16 it saves 2 % at a head size of 128, and
     * costs 2 % at 256. */
    static constexpr bool IS_EARLY = PAGE_::IS_E4M3 || PAGE_::D < 256;
    static constexpr int WIDE_KEYS_AT = ROWS * D * 2;
    static constexpr int WIDE_VALUES_AT = WIDE_KEYS_AT + WIDE_BYTES;
    static constexpr int KEYS_AT = WIDE_VALUES_AT + WIDE_BYTES;
    static constexpr int VALUES_AT = KEYS_AT + 2 * STAGE_BYTES;
    static constexpr int KEY_SCALES_AT = VALUES_AT + 2 * STAGE_BYTES;
    static constexpr int VALUE_SCALES_AT = KEY_SCALES_AT + SCALE_STAGES * SCALE_BYTES;
    static constexpr int BOUNDS_AT = VALUE_SCALES_AT + SCALE_STAGES * SCALE_BYTES;
    static constexpr int SEEN_AT = BOUNDS_AT + WARPS * 16;
    static constexpr int SHARED_BYTES = SEEN_AT + ROWS * 8;
    static constexpr int TOKEN_STEP = PAGE_::IS_E4M3 ? PAGE_::ROW_BYTES : 128;

    __device__ static constexpr uint32_t chunk_at(uint32_t mixed) {
        return PAGE_::IS_E4M3 ? mixed << 4 : (mixed >> 3) * (KEYS * 128) + ((mixed & 7) << 4);
    }
    /* Where chunk c of row r of a matrix of `rows` is. */
    __device__ static constexpr uint32_t wide_at(uint32_t rows, uint32_t r, uint32_t c) {
        return (c >> 3) * (rows * 128) + r * 128 + (((c ^ r) & 7) << 4);
    }
    __device__ static constexpr uint32_t query_at(uint32_t row, uint32_t chunk) {
        return wide_at(ROWS, row, chunk);
    }
};

/* Four words of unpacked e4m3, 2^100 · scale times as large. */
__device__ static inline uint4 cuda_scaled(uint4 words, uint32_t scale) {
    return make_uint4(cuda_times_bf16(words.x, scale), cuda_times_bf16(words.y, scale),
                      cuda_times_bf16(words.z, scale), cuda_times_bf16(words.w, scale));
}

/* Even and odd elements of 16 as two chunks: attention_page.cuh tells the order. A thread has
 * chunks of one token, whose scale it multiplies in: once per element for all rows of the block,
 * where scores and weights would have it once per row. Rounding it to bf16 is off by 2^-9 at most,
 * as any element of a cache in bf16. */
template <class S>
__device__ static inline void cuda_group_unpack(const char *from, const char *scales, char *to) {
    using P = typename S::PAGE;
    static_assert(S::THREADS % S::KEYS == 0, "a thread has chunks of one token");
    const uint32_t half = ((const uint16_t *)scales)[threadIdx.x % S::KEYS];
    const float by = cuda_finite(cuda_low_f16(half)) * CUDA_RAISED;
    const uint32_t scale = cuda_pack_bf16(by, by);
#pragma unroll
    for (int i = 0; i < S::KEYS * P::CHUNKS; i += S::THREADS) {
        uint32_t row = (i + threadIdx.x) % S::KEYS, chunk = (i + threadIdx.x) / S::KEYS;
        uint4 w = *(const uint4 *)(from + P::place(row, chunk));
        const uint4 even = make_uint4(cuda_even_e4m3(w.x), cuda_even_e4m3(w.y), cuda_even_e4m3(w.z),
                                      cuda_even_e4m3(w.w));
        const uint4 odd = make_uint4(cuda_odd_e4m3(w.x), cuda_odd_e4m3(w.y), cuda_odd_e4m3(w.z),
                                     cuda_odd_e4m3(w.w));
        *(uint4 *)(to + S::wide_at(S::KEYS, row, 2 * chunk)) = cuda_scaled(even, scale);
        *(uint4 *)(to + S::wide_at(S::KEYS, row, 2 * chunk + 1)) = cuda_scaled(odd, scale);
    }
}

/* Begins the scores of piece N of a stage: queries times its keys. */
template <class S, int N>
__device__ static inline void cuda_group_scores(cuda_tiler<S> *d, uint64_t queries, uint64_t keys) {
    cuda_products_begin();
#pragma unroll
    for (int k = 0; k < S::KEY_STEPS; k++)
        cuda_product<S::PIECE>(
            &d->s[0][N * S::PIECE_COLUMNS],
            cuda_matrix_after(queries, k / 4 * (S::ROWS * 128) + k % 4 * 32),
            cuda_matrix_after(keys, k / 4 * (S::KEYS * 128) + N * (S::PIECE * 128) + k % 4 * 32),
            k > 0);
    cuda_products_commit();
}

/* Makes weights of the scores of piece N, and begins o += weights times its values. The sums of a
 * first piece are under way while scores of the second are looked at. Then all four warps wait for
 * these sums, also those that need not lower them: warps of a group must come to the same waits. */
template <class S, int N>
__device__ static inline void cuda_group_sums(cuda_tiler<S> *d, const struct cuda_scoring *scoring,
                                              int s, uint64_t values, char *memory) {
    constexpr int FROM = N * S::PIECE_COLUMNS, STEPS = S::PIECE_COLUMNS / 2;
    float largest[1][2];
    uint32_t weights[STEPS][4];
    cuda_products_pin<S::PIECE_COLUMNS>(&d->s[0][FROM]);
    cuda_tile_score<S, FROM, S::PIECE_COLUMNS>(d, scoring, s, memory);
    const bool is_over = cuda_tile_is_over<S, FROM, S::PIECE_COLUMNS>(d, scoring, largest);
    if constexpr (N > 0) {
        cuda_products_wait<0>();
        cuda_products_pin<2 * S::STEPS>(d->o[0]);
    }
    if (is_over) cuda_tile_raise(d, largest);
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        cuda_tile_weigh(d, scoring, 0, FROM / 2 + k, NULL, weights[k]);
        cuda_products_begin();
#pragma unroll
        for (int p = 0; p < S::PARTS; p++)
            cuda_product_from(
                &d->o[0][8 * p], weights[k],
                cuda_matrix_after(values, p * (S::KEYS * 128) + (FROM / 2 + k) * (16 * 128)));
    }
    cuda_products_commit();
}

/* Attention over a stage that has come. With two pieces the scores of the second are computed
 * during the softmax of the first, and the sums of the first during that of the second. */
template <class S>
__device__ static inline void
cuda_group_attend(cuda_tiler<S> *d, const struct cuda_scoring *scoring, int s, uint32_t keys_at,
                  uint32_t values_at, char *memory) {
    const uint64_t queries = cuda_matrix_at(d->memory + threadIdx.x / 128 * (64 * 128));
    const uint64_t keys = cuda_matrix_at(d->memory + keys_at);
    cuda_group_scores<S, 0>(d, queries, keys);
    if constexpr (S::PIECES == 2) cuda_group_scores<S, 1>(d, queries, keys);
    const uint64_t values = cuda_matrix_at(d->memory + values_at);
    cuda_products_wait<S::PIECES - 1>();
    cuda_group_sums<S, 0>(d, scoring, s, values, memory);
    if constexpr (S::PIECES == 2) {
        cuda_products_wait<1>();
        cuda_group_sums<S, 1>(d, scoring, s, values, memory);
    }
    cuda_products_wait<0>();
    cuda_products_pin<2 * S::STEPS>(d->o[0]);
}

/* Chunks of keys and values lie alike in their pools, so a page is looked up once for both. */
template <class S> __device__ static inline void cuda_group_chunks(const cuda_tiler<S> *d, int s) {
    const uint32_t *pages = cuda_stage_pages(d, s);
    const uint32_t to = d->place + (s & 1) * S::STAGE_BYTES;
    if (!cuda_copies(d)) return;
    size_t at = 0;
#pragma unroll
    for (int i = 0; i < S::KEYS; i += cuda_rows_at_once<S>()) {
        if (i % CUDA_PAGE_TOKENS == 0)
            at = (size_t)__ldg(pages + i / CUDA_PAGE_TOKENS) * d->page_bytes;
        const size_t from = at + i % CUDA_PAGE_TOKENS * d->row_bytes;
        const uint32_t place = to + cuda_place_after<S>(cuda_mixed_chunk<S>(), i);
        cuda_copy16(place + S::KEYS_AT, d->keys + from);
        cuda_copy16(place + S::VALUES_AT, d->values + from);
    }
}

/* Scales of keys and values of stage s. A page has those of 16 keys, then those of 16 values. */
template <class S> __device__ static inline void cuda_group_scales(const cuda_tiler<S> *d, int s) {
    constexpr uint32_t PARTS = 4; /* parts of a page's scales, 16 B each */
    const uint32_t page = threadIdx.x / PARTS, part = threadIdx.x % PARTS, half = part % 2;
    if (page >= S::KEYS / CUDA_PAGE_TOKENS) return;
    const int at = s * S::KEYS + (int)(page * CUDA_PAGE_TOKENS + half * 8);
    const bool is_wanted = at + 8 > d->begin && at < d->end;
    const uint32_t from = is_wanted ? __ldg(cuda_stage_pages(d, s) + page) : 0;
    cuda_copy16_if(d->memory + (part < 2 ? S::KEY_SCALES_AT : S::VALUE_SCALES_AT) +
                       (uint32_t)s % S::SCALE_STAGES * S::SCALE_BYTES + (page * 2 + half) * 16,
                   d->scales + (size_t)from * d->page_scale_bytes + part * 16, is_wanted);
}

template <class S> __device__ static inline void cuda_group_fetch(const cuda_tiler<S> *d, int s) {
    if (s * S::KEYS < d->end) {
        if (cuda_is_whole(d, s)) {
            cuda_group_chunks(d, s);
        } else {
            cuda_fetch_chunks<S, true>(d, s);
            cuda_fetch_chunks<S, false>(d, s);
        }
        if constexpr (S::PAGE::IS_E4M3) cuda_group_scales(d, s);
    }
    cuda_copy_commit();
}

template <class S>
__device__ static inline void
cuda_group_step_e4m3(cuda_tiler<S> *d, const struct cuda_scoring *scoring, int s, char *memory) {
    cuda_copy_wait<1>();
    __syncthreads();
    const uint32_t scales = (uint32_t)s % S::SCALE_STAGES * S::SCALE_BYTES;
    cuda_group_unpack<S>(memory + S::KEYS_AT + (s & 1) * S::STAGE_BYTES,
                         memory + S::KEY_SCALES_AT + scales, memory + S::WIDE_KEYS_AT);
    cuda_group_unpack<S>(memory + S::VALUES_AT + (s & 1) * S::STAGE_BYTES,
                         memory + S::VALUE_SCALES_AT + scales, memory + S::WIDE_VALUES_AT);
    cuda_show_products();
    __syncthreads();
    cuda_group_fetch(d, s + 2);
    if (cuda_tile_sees<S>(memory, s))
        cuda_group_attend(d, scoring, s, S::WIDE_KEYS_AT, S::WIDE_VALUES_AT, memory);
}

template <class S>
__device__ static inline void
cuda_group_step_bf16(cuda_tiler<S> *d, const struct cuda_scoring *scoring, int s, char *memory) {
    cuda_copy_wait<0>();
    cuda_show_products();
    __syncthreads();
    cuda_group_fetch(d, s + 1);
    if (cuda_tile_sees<S>(memory, s))
        cuda_group_attend(d, scoring, s, S::KEYS_AT + (s & 1) * S::STAGE_BYTES,
                          S::VALUES_AT + (s & 1) * S::STAGE_BYTES, memory);
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_decode: one query row of a sequence against its pages.
 *
 * A block is one item and KV head. Each of its warps walks through pages of its own, WARPS apart,
 * with softmax, sums and a ring of stages of its own, so that nothing in the loop waits for another
 * warp; at the end the warps' sums are added in their order. Keys stand on the M side of the mma
 * (scores are K Qᵀ, sums are Vᵀ Pᵀ): then 8 columns hold the query heads of a group, where queries
 * on the M side would fill 16 rows with at most 8.
 *
 * Keys and values of a step are groups of copies of their own: keys of step s + STAGES are asked
 * for as soon as those of step s are multiplied, before its values are waited for. */

#include "gpu/cuda/attention_page.cuh"

/* TILES: of 8 query heads. PAGES: of one warp and step. */
template <class PAGE_, int TILES_, int WARPS_, int PAGES_, int STAGES_> struct cuda_decode_shape {
    using PAGE = PAGE_;
    static constexpr int TILES = TILES_, WARPS = WARPS_, PAGES = PAGES_, STAGES = STAGES_;
    static constexpr int THREADS = 32 * WARPS_;
    static constexpr int HEADS = 8 * TILES_;
    static constexpr int STEPS = PAGE_::D / 16;                   /* steps of an mma along a head */
    static constexpr int VALUES = PAGES_ * PAGE_::BYTES;          /* in a stage */
    static constexpr int SCALES = VALUES + PAGES_ * PAGE_::BYTES; /* in a stage */
    static constexpr int STAGE_BYTES = SCALES + PAGES_ * 2 * PAGE_::SCALE_BYTES;
    static constexpr int RING_BYTES = STAGES_ * STAGE_BYTES;
    static constexpr int PITCH = PAGE_::D + 4; /* floats of a head's sums when warps meet */
    static constexpr int SUM_BYTES = HEADS * (PITCH + 2) * 4;
    static constexpr int WARP_BYTES =
        ((RING_BYTES > SUM_BYTES ? RING_BYTES : SUM_BYTES) + 127) / 128 * 128;
    static constexpr int SHARED_BYTES = WARPS_ * WARP_BYTES;
};

/* What a warp is at. Lane 4g + t holds of a tile of heads the columns 2t and 2t + 1. */
template <class S> struct cuda_decoder {
    const char *keys; /* keys of the KV head in page 0 */
    const char *values;
    const char *scales;
    const uint32_t *pages;
    uint32_t page_bytes;       /* from page to page, of keys or of values */
    uint32_t page_scale_bytes; /* likewise of scales */
    uint32_t row_bytes;
    uint32_t ring;   /* in shared memory */
    int begin, end;  /* tokens to be seen */
    int first, last; /* pages of all warps; last is not one of them */
    uint32_t lane;
    uint32_t q[S::TILES][S::STEPS][2];
    float o[S::TILES][S::STEPS][4];
    float m[S::TILES][2];
    float l[S::TILES][2]; /* sums over this lane's tokens alone */
};

/* Number of page p of step `step` of this warp. */
template <class S>
__device__ static inline int cuda_page_of(const cuda_decoder<S> *d, int step, int p) {
    return d->first + (step * S::WARPS + (int)threadIdx.x / 32) * S::PAGES + p;
}

/* Entries of the page table for a step; 0 for what is not there. */
template <class S>
__device__ static inline void cuda_look_up(const cuda_decoder<S> *d, int step,
                                           uint32_t ret[S::PAGES]) {
#pragma unroll
    for (int p = 0; p < S::PAGES; p++) {
        int page = cuda_page_of(d, step, p);
        ret[p] = page < d->last ? __ldg(d->pages + page) : 0;
    }
}

/* Asks for the rows of a page that are seen; the others become zero. */
template <class S>
__device__ static inline void cuda_fetch_run(const cuda_decoder<S> *d, uint32_t to,
                                             const char *from, int page) {
    using P = typename S::PAGE;
    constexpr int AT_ONCE = 32 / P::CHUNKS; /* rows */
    uint32_t row = d->lane / P::CHUNKS, chunk = d->lane % P::CHUNKS;
    if (!P::EXACT && chunk * 16 >= d->row_bytes) return;
    int begin = d->begin - page * CUDA_PAGE_TOKENS, end = d->end - page * CUDA_PAGE_TOKENS;
    uint32_t place = row * P::ROW_BYTES, mixed = chunk ^ P::swizzle(row);
    from += row * d->row_bytes + chunk * 16;
    if (begin <= 0 && end >= CUDA_PAGE_TOKENS) {
#pragma unroll
        for (int i = 0; i < CUDA_PAGE_TOKENS; i += AT_ONCE)
            cuda_copy16(to + place + i * P::ROW_BYTES + ((mixed ^ P::swizzle(i)) << 4),
                        from + i * d->row_bytes);
        return;
    }
#pragma unroll
    for (int i = 0; i < CUDA_PAGE_TOKENS; i += AT_ONCE)
        cuda_copy16_if(to + place + i * P::ROW_BYTES + ((mixed ^ P::swizzle(i)) << 4),
                       from + i * d->row_bytes, (int)row + i >= begin && (int)row + i < end);
}

/* Asks for the keys (or values) of a step, into its stage. */
template <class S, bool IS_KEYS>
__device__ static inline void cuda_fetch(const cuda_decoder<S> *d, int step,
                                         const uint32_t numbers[S::PAGES]) {
    using P = typename S::PAGE;
    if (cuda_page_of(d, step, 0) < d->last) {
        uint32_t stage = d->ring + step % S::STAGES * S::STAGE_BYTES;
#pragma unroll
        for (int p = 0; p < S::PAGES; p++) {
            const char *from = (IS_KEYS ? d->keys : d->values) + (size_t)numbers[p] * d->page_bytes;
            int page = cuda_page_of(d, step, p);
            cuda_fetch_run(d, stage + (IS_KEYS ? 0 : S::VALUES) + p * P::BYTES, from, page);
            if (P::IS_E4M3 && d->lane < P::SCALE_BYTES / 16)
                cuda_copy16_if(stage + S::SCALES + (2 * p + !IS_KEYS) * P::SCALE_BYTES +
                                   d->lane * 16,
                               d->scales + (size_t)numbers[p] * d->page_scale_bytes +
                                   (IS_KEYS ? 0 : P::SCALE_BYTES) + d->lane * 16,
                               page < d->last);
        }
    }
    cuda_copy_commit();
}

/* sums (16 tokens, 8 heads of each tile) = keys at `at` times the queries. Two sums take turns, so
 * that an mma need not wait for the one before. */
template <class S>
__device__ static inline void cuda_multiply_keys(const cuda_decoder<S> *d, uint32_t at,
                                                 float ret[S::TILES][4]) {
    using P = typename S::PAGE;
    struct cuda_reader reader = cuda_read_by_token<P>(d->lane);
    float sums[2][S::TILES][4] = {};
#pragma unroll
    for (int c = 0; c < P::CHUNKS / 2; c++) {
        uint32_t w[4];
        cuda_load_matrices(w, cuda_row_at(reader, at, 2 * c));
        if constexpr (!P::IS_E4M3) {
#pragma unroll
            for (int t = 0; t < S::TILES; t++)
                cuda_mma(sums[c % 2][t], w, d->q[t][c][0], d->q[t][c][1]);
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t low = w[2 * i], high = w[2 * i + 1];
                uint32_t a[4] = {cuda_even_e4m3(low), cuda_even_e4m3(high), cuda_odd_e4m3(low),
                                 cuda_odd_e4m3(high)};
#pragma unroll
                for (int t = 0; t < S::TILES; t++)
                    cuda_mma(sums[i][t], a, d->q[t][2 * c + i][0], d->q[t][2 * c + i][1]);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < S::TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) ret[t][i] = sums[0][t][i] + sums[1][t][i];
}

/* o += values at `at` times weights (16 tokens, 8 heads of each tile). */
template <class S>
__device__ static inline void cuda_multiply_values(cuda_decoder<S> *d, uint32_t at,
                                                   const uint32_t weights[S::TILES][2]) {
    using P = typename S::PAGE;
    struct cuda_reader reader = cuda_read_by_chunk<P>(d->lane);
#pragma unroll
    for (int c = 0; c < P::CHUNKS / 2; c++) {
        uint32_t w[4];
        cuda_load_transposed(w, cuda_row_at(reader, at, 2 * c));
        if constexpr (!P::IS_E4M3) {
#pragma unroll
            for (int t = 0; t < S::TILES; t++)
                cuda_mma(d->o[t][c], w, weights[t][0], weights[t][1]);
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) { /* rows g are elements 2g, rows g + 8 are 2g + 1 */
                uint32_t low = w[i], high = w[2 + i];
                uint32_t a[4] = {cuda_even_e4m3(low), cuda_odd_e4m3(low), cuda_even_e4m3(high),
                                 cuda_odd_e4m3(high)};
#pragma unroll
                for (int t = 0; t < S::TILES; t++)
                    cuda_mma(d->o[t][2 * c + i], a, weights[t][0], weights[t][1]);
            }
        }
    }
}

/* Scores of a page from sums; -inf for tokens that are not seen. Lane 4g + t has tokens g, g + 8.
 */
template <class S>
__device__ static inline void
cuda_score_page(const cuda_decoder<S> *d, const struct cuda_scoring *scoring, int page,
                const float key_scales[2], float scores[S::TILES][4]) {
    int begin = d->begin - page * CUDA_PAGE_TOKENS, end = d->end - page * CUDA_PAGE_TOKENS;
    bool is_whole = begin <= 0 && end >= CUDA_PAGE_TOKENS;
    if constexpr (S::PAGE::IS_E4M3) {
        float sums[2] = {scoring->sum * key_scales[0], scoring->sum * key_scales[1]};
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) scores[t][i] *= sums[i / 2];
    }
    if (scoring->out > 0) {
        float sum = S::PAGE::IS_E4M3 ? 1 : scoring->sum;
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                scores[t][i] = cuda_capped(scores[t][i] * sum, scoring->in, scoring->out);
    }
    if (is_whole) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int token = (int)(d->lane / 4) + (i / 2) * 8;
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
            if (token < begin || token >= end) scores[t][i] = -INFINITY;
    }
}

/* Raises m where a score exceeds it by more than CUDA_SLACK, and scales the sums down to it. */
template <class S>
__device__ static inline void cuda_raise_largest(cuda_decoder<S> *d,
                                                 const struct cuda_scoring *scoring,
                                                 const float scores[S::PAGES][S::TILES][4]) {
    float largest[S::TILES][2];
    bool is_over = false;
#pragma unroll
    for (int t = 0; t < S::TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float all = fmaxf(scores[0][t][i], scores[0][t][i + 2]);
#pragma unroll
            for (int p = 1; p < S::PAGES; p++)
                all = fmaxf(all, fmaxf(scores[p][t][i], scores[p][t][i + 2]));
            largest[t][i] = all * cuda_factor<typename S::PAGE>(scoring);
            is_over |= largest[t][i] > d->m[t][i] + CUDA_SLACK;
        }
    if (!__any_sync(CUDA_ALL_LANES, is_over)) return;
#pragma unroll
    for (int t = 0; t < S::TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float m = fmaxf(d->m[t][i], largest[t][i]);
#pragma unroll
            for (int apart = 4; apart < 32; apart *= 2)
                m = fmaxf(m, __shfl_xor_sync(CUDA_ALL_LANES, m, apart));
            float factor = cuda_exp2(d->m[t][i] - m);
            d->m[t][i] = m;
            d->l[t][i] *= factor;
#pragma unroll
            for (int s = 0; s < S::STEPS; s++) {
                d->o[t][s][i] *= factor;
                d->o[t][s][i + 2] *= factor;
            }
        }
}

/* Weights of a page's tokens as the B operand of values times weights. The scores' tokens run down
 * the rows of an 8 x 8 matrix and have to run along them: hence the transposition. */
template <class S>
__device__ static inline void cuda_weigh(cuda_decoder<S> *d, const struct cuda_scoring *scoring,
                                         const float scores[S::TILES][4],
                                         const float value_scales[2], uint32_t ret[S::TILES][2]) {
#pragma unroll
    for (int t = 0; t < S::TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float a = cuda_weight<typename S::PAGE>(scoring, scores[t][2 * half], d->m[t][0]);
            float b = cuda_weight<typename S::PAGE>(scoring, scores[t][2 * half + 1], d->m[t][1]);
            d->l[t][0] += a;
            d->l[t][1] += b;
            if (S::PAGE::IS_E4M3) a *= value_scales[half], b *= value_scales[half];
            ret[t][half] = cuda_transpose(cuda_pack_bf16(a, b));
        }
}

/* The two scales of this lane's tokens of a page; what is not seen has 0, whatever lies there. */
template <class S, bool IS_KEYS>
__device__ static inline void cuda_scales_of(const cuda_decoder<S> *d, const char *stage, int page,
                                             int p, float ret[2]) {
    using P = typename S::PAGE;
    ret[0] = ret[1] = 1;
    if (!P::IS_E4M3) return;
    const char *at = stage + S::SCALES + (2 * p + !IS_KEYS) * P::SCALE_BYTES;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int token = (int)(d->lane / 4) + half * 8;
        float scale = cuda_low_f16(*(const uint16_t *)(at + token * 2));
        token += page * CUDA_PAGE_TOKENS;
        bool is_seen = token >= d->begin && token < d->end;
        ret[half] = !is_seen ? 0 : IS_KEYS ? scale : scale * CUDA_RAISED;
    }
}

/* One step: keys, softmax, values. `upcoming` are the page numbers of step + STAGES. */
template <class S>
__device__ static inline void cuda_decode_step(cuda_decoder<S> *d,
                                               const struct cuda_scoring *scoring, int step,
                                               const uint32_t upcoming[S::PAGES], char *ring) {
    using P = typename S::PAGE;
    const uint32_t offset = step % S::STAGES * S::STAGE_BYTES;
    const uint32_t stage = d->ring + offset;
    float scores[S::PAGES][S::TILES][4], scales[2];
    uint32_t weights[S::TILES][2];
    cuda_copy_wait<2 * S::STAGES - 1>();
    __syncwarp();
#pragma unroll
    for (int p = 0; p < S::PAGES; p++) {
        int page = cuda_page_of(d, step, p);
        cuda_multiply_keys(d, stage + p * P::BYTES, scores[p]);
        cuda_scales_of<S, true>(d, ring + offset, page, p, scales);
        cuda_score_page(d, scoring, page, scales, scores[p]);
    }
    __syncwarp();
    cuda_fetch<S, true>(d, step + S::STAGES, upcoming);
    cuda_raise_largest(d, scoring, scores);
    cuda_copy_wait<2 * S::STAGES - 1>();
    __syncwarp();
#pragma unroll
    for (int p = 0; p < S::PAGES; p++) {
        cuda_scales_of<S, false>(d, ring + offset, cuda_page_of(d, step, p), p, scales);
        cuda_weigh(d, scoring, scores[p], scales, weights);
        cuda_multiply_values(d, stage + S::VALUES + p * P::BYTES, weights);
    }
    __syncwarp();
    cuda_fetch<S, false>(d, step + S::STAGES, upcoming);
}

/* The queries of a KV head as B operands; zero beyond the group and beyond the head's size. */
template <class S>
__device__ static inline void cuda_load_queries(cuda_decoder<S> *d,
                                                const struct cuda_attention *call, uint32_t row,
                                                uint32_t head) {
    uint32_t group = call->head_count / call->kv_heads, g = d->lane / 4, t = d->lane % 4;
    const char *q = (const char *)call->q + (row * call->q_stride) * 2;
#pragma unroll
    for (int tile = 0; tile < S::TILES; tile++) {
        uint32_t n = tile * 8 + g;
        const char *at = q + (size_t)(head * group + n) * call->head_dim * 2;
#pragma unroll
        for (int s = 0; s < S::STEPS; s++) {
            uint32_t x = 0, y = 0;
            if (n < group && (S::PAGE::EXACT || s * 16 < (int)call->head_dim)) {
                int first = s * 16 + (S::PAGE::IS_E4M3 ? 4 * t : 2 * t);
                x = __ldcg((const uint32_t *)(at + first * 2));
                y = __ldcg((const uint32_t *)(at + (first + (S::PAGE::IS_E4M3 ? 2 : 8)) * 2));
            }
            d->q[tile][s][0] = S::PAGE::IS_E4M3 ? cuda_raise(cuda_lows(x, y)) : x;
            d->q[tile][s][1] = S::PAGE::IS_E4M3 ? cuda_raise(cuda_highs(x, y)) : y;
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_tile: many query rows against the same pages: pieces of prompts, and rows of many
 * sequences with a prefix in common.
 *
 * A block is one item and KV head. Its rows are packed: row r is query head r % group of the item's
 * row r / group, so that a key read once serves all heads of the group. Each warp has 16 · TILES of
 * the rows, in registers from scores to sums; all share stages of KEYS tokens that begin at
 * absolute multiples of KEYS.
 *
 * Copies, step s of a ring of two stages each for keys and values:
 *   wait for keys s, meet | ask for values s + 1 | scores, softmax |
 *   wait for values s, meet | ask for keys s + 2 | sums
 * so each wait leaves two younger groups under way, and nothing is asked for into a stage before
 * the meeting that follows its last reader. */

#include "gpu/cuda/attention_page.cuh"

/* TILES: of 16 rows a warp. KEYS: tokens of a stage, a multiple of 16. */
template <class PAGE_, int TILES_, int WARPS_, int KEYS_> struct cuda_tile_shape {
    using PAGE = PAGE_;
    using QUERIES = cuda_page<CUDA_KV_BF16, PAGE_::D, true>; /* how they lie in shared memory */
    using SCORES = PAGE_; /* what the products read: scores of E4M3 have yet to be scaled */
    static constexpr int TILES = TILES_, WARPS = WARPS_, KEYS = KEYS_;
    static constexpr int THREADS = 32 * WARPS_;
    static constexpr int ROWS = 16 * TILES_ * WARPS_;
    static constexpr int STEPS = PAGE_::D / 16;                /* steps of an mma along a head */
    static constexpr int COLUMNS = KEYS_ / 8;                  /* columns of an mma along tokens */
    static constexpr int QUERY_TURNS = ROWS * STEPS / THREADS; /* 16 elements per turn */
    static constexpr int STAGE_BYTES = KEYS_ * PAGE_::ROW_BYTES;
    static constexpr int SCALE_BYTES = PAGE_::IS_E4M3 ? KEYS_ * 2 : 0;
    static constexpr int KEYS_AT = ROWS * PAGE_::D * 2;
    static constexpr int VALUES_AT = KEYS_AT + 2 * STAGE_BYTES;
    static constexpr int KEY_SCALES_AT = VALUES_AT + 2 * STAGE_BYTES;
    static constexpr int VALUE_SCALES_AT = KEY_SCALES_AT + 2 * SCALE_BYTES;
    static constexpr int BOUNDS_AT = VALUE_SCALES_AT + 2 * SCALE_BYTES;
    static constexpr int SEEN_AT = BOUNDS_AT + WARPS_ * 16;
    static constexpr int SHARED_BYTES = SEEN_AT + ROWS * 8;
    static constexpr int SCALE_STAGES = 2;
    static constexpr int TOGETHER = 1; /* warps that leave a stage out only if all of them can */
    static constexpr int TOKEN_STEP = PAGE_::ROW_BYTES; /* from token to token of a stage */
    /* Where a chunk of a token lies, from the token's first one. */
    __device__ static constexpr uint32_t chunk_at(uint32_t mixed) {
        return mixed << 4;
    }
    __device__ static constexpr uint32_t query_at(uint32_t row, uint32_t chunk) {
        return QUERIES::place(row, chunk);
    }
};

/* What the rows of a warp see: none anything outside some_first..some_last, all of them all inside
 * all_first..all_last. In shared memory, for registers are few. */
struct cuda_bounds {
    int some_first, some_last, all_first, all_last;
};

template <class S> __device__ static inline struct cuda_bounds *cuda_bounds_of(char *memory) {
    return (struct cuda_bounds *)(memory + S::BOUNDS_AT) + threadIdx.x / 32;
}

/* What a warp is at. Lane 4g + t holds rows g and g + 8 of each 16, columns 2t and 2t + 1 of each
 * 8 of a result. */
template <class S> struct cuda_tiler {
    const char *keys; /* this thread's chunk of the KV head in page 0 */
    const char *values;
    const char *scales;    /* scales of the KV head in page 0 */
    const uint32_t *pages; /* pages of the item, from the page of this thread's row on */
    uint32_t page_bytes;
    uint32_t page_scale_bytes;
    uint32_t row_bytes;
    uint32_t memory; /* the block's, in shared memory */
    uint32_t place;  /* place of this thread's chunk in a stage at the beginning of that */
    int begin, end;  /* tokens that some row of the block sees */
    uint32_t lane;
    float s[S::TILES][S::COLUMNS][4];
    float o[S::TILES][2 * S::STEPS][4];
    float m[S::TILES][2];
    float l[S::TILES][2]; /* sums over this lane's columns alone */
};

/* Scales of keys or values of stage s, those of 8 tokens a copy. */
template <class S, bool IS_KEYS>
__device__ static inline void cuda_fetch_scales(const cuda_tiler<S> *d, int s) {
    int at = s * S::KEYS + (int)threadIdx.x * 8;
    if (threadIdx.x >= S::KEYS / 8) return;
    bool is_wanted = at + 8 > d->begin && at < d->end;
    uint32_t page = is_wanted ? __ldg(d->pages + at / CUDA_PAGE_TOKENS) : 0;
    cuda_copy16_if(d->memory + (IS_KEYS ? S::KEY_SCALES_AT : S::VALUE_SCALES_AT) +
                       (uint32_t)s % S::SCALE_STAGES * S::SCALE_BYTES + threadIdx.x * 16,
                   d->scales + (size_t)page * d->page_scale_bytes +
                       (IS_KEYS ? 0 : S::PAGE::SCALE_BYTES) + threadIdx.x % 2 * 16,
                   is_wanted);
}

/* Rows of a stage that the block's threads copy at once; it divides 16 or is a multiple of it. */
template <class S> __device__ constexpr int cuda_rows_at_once(void) {
    return S::THREADS / S::PAGE::CHUNKS;
}

/* From the place of a thread's chunk to that of its chunk `row` rows further. */
template <class S> __device__ static inline uint32_t cuda_place_after(uint32_t mixed, int row) {
    return row * S::TOKEN_STEP + S::chunk_at(mixed ^ S::PAGE::swizzle(row)) - S::chunk_at(mixed);
}

/* For a thread: its row among those that are copied at once, its chunk, and where that lies. */
template <class S> __device__ static inline uint32_t cuda_copied_row(void) {
    return threadIdx.x / S::PAGE::CHUNKS;
}
template <class S> __device__ static inline uint32_t cuda_mixed_chunk(void) {
    return threadIdx.x % S::PAGE::CHUNKS ^ S::PAGE::swizzle(cuda_copied_row<S>());
}

/* Whether this thread has chunks of a stage at all. */
template <class S> __device__ static inline bool cuda_copies(const cuda_tiler<S> *d) {
    using P = typename S::PAGE;
    if (cuda_rows_at_once<S>() > S::KEYS && cuda_copied_row<S>() >= S::KEYS) return false;
    return P::EXACT || threadIdx.x % P::CHUNKS * 16 < d->row_bytes;
}

template <class S> __device__ static inline bool cuda_is_whole(const cuda_tiler<S> *d, int s) {
    return s * S::KEYS >= d->begin && (s + 1) * S::KEYS <= d->end;
}

/* The pages of stage s, from that of this thread's row on. */
template <class S>
__device__ static inline const uint32_t *cuda_stage_pages(const cuda_tiler<S> *d, int s) {
    return d->pages + (uint32_t)s * (uint32_t)(S::KEYS / CUDA_PAGE_TOKENS);
}

/* This thread's chunks of keys or values of stage s; what no row sees becomes zero, unread. */
template <class S, bool IS_KEYS>
__device__ static inline void cuda_fetch_chunks(const cuda_tiler<S> *d, int s) {
    constexpr int AT_ONCE = cuda_rows_at_once<S>();
    const char *pool = IS_KEYS ? d->keys : d->values;
    const uint32_t *pages = cuda_stage_pages(d, s);
    const uint32_t mixed = cuda_mixed_chunk<S>();
    const uint32_t to = d->place + (IS_KEYS ? S::KEYS_AT : S::VALUES_AT) + (s & 1) * S::STAGE_BYTES;
    if (!cuda_copies(d)) return;
    if (cuda_is_whole(d, s)) {
        const char *from = pool;
#pragma unroll
        for (int i = 0; i < S::KEYS; i += AT_ONCE) {
            if (i % CUDA_PAGE_TOKENS == 0)
                from = pool + (size_t)__ldg(pages + i / CUDA_PAGE_TOKENS) * d->page_bytes;
            cuda_copy16(to + cuda_place_after<S>(mixed, i),
                        from + i % CUDA_PAGE_TOKENS * d->row_bytes);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < S::KEYS; i += AT_ONCE) {
        int at = s * S::KEYS + i + (int)cuda_copied_row<S>();
        bool is_wanted = at >= d->begin && at < d->end;
        uint32_t page = is_wanted ? __ldg(pages + i / CUDA_PAGE_TOKENS) : 0;
        const char *from = pool + (size_t)page * d->page_bytes;
        cuda_copy16_if(to + cuda_place_after<S>(mixed, i),
                       from + i % CUDA_PAGE_TOKENS * d->row_bytes, is_wanted);
    }
}

template <class S, bool IS_KEYS>
__device__ static inline void cuda_fetch_stage(const cuda_tiler<S> *d, int s) {
    if (s * S::KEYS < d->end) {
        cuda_fetch_chunks<S, IS_KEYS>(d, s);
        if constexpr (S::PAGE::IS_E4M3) cuda_fetch_scales<S, IS_KEYS>(d, s);
    }
    cuda_copy_commit();
}

/* s = queries times the keys of a stage. */
template <class S>
__device__ static inline void cuda_tile_scores(cuda_tiler<S> *d, uint32_t stage) {
    using P = typename S::PAGE;
    using Q = typename S::QUERIES;
    const struct cuda_reader query = cuda_read_by_token<Q>(d->lane);
    const struct cuda_reader reader = cuda_read_by_chunk<P>(d->lane);
    const uint32_t queries = d->memory + threadIdx.x / 32 * (16 * S::TILES * Q::ROW_BYTES);
    constexpr int HALVES = P::IS_E4M3 ? 2 : 1; /* steps of an mma in a pair of chunks */
#pragma unroll
    for (int r = 0; r < S::TILES; r++)
#pragma unroll
        for (int c = 0; c < S::COLUMNS; c++)
            d->s[r][c][0] = d->s[r][c][1] = d->s[r][c][2] = d->s[r][c][3] = 0;
#pragma unroll
    for (int c = 0; c < P::CHUNKS / 2; c++) {
        uint32_t q[HALVES][S::TILES][4];
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int r = 0; r < S::TILES; r++)
                cuda_load_matrices(
                    q[h][r], cuda_row_at(query, queries + r * Q::BYTES, 2 * (HALVES * c + h)));
#pragma unroll
        for (int k = 0; k < S::KEYS / 16; k++) {
            uint32_t w[4];
            cuda_load_matrices(w, cuda_row_at(reader, stage + k * P::BYTES, 2 * c));
#pragma unroll
            for (int h = 0; h < HALVES; h++)
#pragma unroll
                for (int n = 0; n < 2; n++) { /* tokens 0..7 and 8..15 */
                    uint32_t b0 = w[2 * n], b1 = w[2 * n + 1];
                    if constexpr (P::IS_E4M3) {
                        uint32_t both = w[2 * n + h];
                        b0 = cuda_even_e4m3(both), b1 = cuda_odd_e4m3(both);
                    }
#pragma unroll
                    for (int r = 0; r < S::TILES; r++)
                        cuda_mma(d->s[r][2 * k + n], q[h][r], b0, b1);
                }
        }
    }
}

/* Scales of columns 2t and 2t + 1 of tokens 8c.. of a stage. */
__device__ static inline float2 cuda_column_scales(const char *scales, int c, uint32_t lane) {
    uint32_t pair = *(const uint32_t *)(scales + (c * 8 + lane % 4 * 2) * 2);
    return make_float2(cuda_low_f16(pair), cuda_high_f16(pair));
}

/* The tokens that row g (or g + 8) of a row tile sees: from x on, y is not one. */
template <class S>
__device__ static inline int2 cuda_seen(const cuda_tiler<S> *d, const char *memory, int r, int i) {
    uint32_t packed = (threadIdx.x / 32 * S::TILES + r) * 16 + d->lane / 4 + 8 * i;
    return ((const int2 *)(memory + S::SEEN_AT))[packed];
}

/* Whether some row of the warp sees a token of stage s. */
template <class S> __device__ static inline bool cuda_tile_sees(char *memory, int s) {
    const int2 some = *(const int2 *)cuda_bounds_of<S>(memory);
    return s * S::KEYS < some.y && (s + 1) * S::KEYS > some.x;
}

/* Makes scores of sums, and -inf of those that a row does not see; of COUNT columns from FROM on.
 */
template <class S, int FROM = 0, int COUNT = S::COLUMNS>
__device__ static inline void cuda_tile_score(cuda_tiler<S> *d, const struct cuda_scoring *scoring,
                                              int stage, char *memory) {
    const char *key_scales =
        memory + S::KEY_SCALES_AT + (uint32_t)stage % S::SCALE_STAGES * S::SCALE_BYTES;
    const int2 all = *(const int2 *)&cuda_bounds_of<S>(memory)->all_first;
    const int token = stage * S::KEYS + FROM * 8;
    if constexpr (S::SCORES::IS_E4M3) {
#pragma unroll
        for (int c = FROM; c < FROM + COUNT; c++) {
            float2 scales = cuda_column_scales(key_scales, c, d->lane);
            scales.x *= scoring->sum, scales.y *= scoring->sum;
#pragma unroll
            for (int r = 0; r < S::TILES; r++)
#pragma unroll
                for (int i = 0; i < 4; i++) d->s[r][c][i] *= i % 2 ? scales.y : scales.x;
        }
    }
    if (scoring->out > 0) {
        float sum = S::SCORES::IS_E4M3 ? 1 : scoring->sum;
#pragma unroll
        for (int c = FROM; c < FROM + COUNT; c++)
#pragma unroll
            for (int r = 0; r < S::TILES; r++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    d->s[r][c][i] = cuda_capped(d->s[r][c][i] * sum, scoring->in, scoring->out);
    }
    if (token >= all.x && token + COUNT * 8 <= all.y) return;
#pragma unroll
    for (int r = 0; r < S::TILES; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int2 seen = cuda_seen<S>(d, memory, r, i);
            int at = token + (int)(d->lane % 4) * 2;
#pragma unroll
            for (int c = 0; c < 2 * COUNT; c++)
                if (at + c / 2 * 8 + c % 2 < seen.x || at + c / 2 * 8 + c % 2 >= seen.y)
                    d->s[r][FROM + c / 2][2 * i + c % 2] = -INFINITY;
        }
}

/* The largest score of each row in these columns, and whether m must be raised: a score of some row
 * of the warp exceeds it by more than CUDA_SLACK. */
template <class S, int FROM = 0, int COUNT = S::COLUMNS>
__device__ static inline bool cuda_tile_is_over(const cuda_tiler<S> *d,
                                                const struct cuda_scoring *scoring,
                                                float (&largest)[S::TILES][2]) {
    bool is_over = false;
#pragma unroll
    for (int r = 0; r < S::TILES; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float all = -INFINITY;
#pragma unroll
            for (int c = FROM; c < FROM + COUNT; c++)
                all = fmaxf(all, fmaxf(d->s[r][c][2 * i], d->s[r][c][2 * i + 1]));
            largest[r][i] = all * cuda_factor<typename S::SCORES>(scoring);
            is_over |= largest[r][i] > d->m[r][i] + CUDA_SLACK;
        }
    return __any_sync(CUDA_ALL_LANES, is_over);
}

/* Raises m to the largest scores, and scales the sums down to it. */
template <class S>
__device__ static inline void cuda_tile_raise(cuda_tiler<S> *d,
                                              const float (&largest)[S::TILES][2]) {
#pragma unroll
    for (int r = 0; r < S::TILES; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float m = fmaxf(d->m[r][i], largest[r][i]);
            m = fmaxf(m, __shfl_xor_sync(CUDA_ALL_LANES, m, 1));
            m = fmaxf(m, __shfl_xor_sync(CUDA_ALL_LANES, m, 2));
            float factor = cuda_exp2(d->m[r][i] - m);
            d->m[r][i] = m;
            d->l[r][i] *= factor;
#pragma unroll
            for (int n = 0; n < 2 * S::STEPS; n++) {
                d->o[r][n][2 * i] *= factor;
                d->o[r][n][2 * i + 1] *= factor;
            }
        }
}

/* A float16 scale that 0 can be multiplied by: what lies there for a token that no row sees may be
 * anything. */
__device__ static inline float cuda_finite(float scale) {
    return fminf(fmaxf(scale, 0), 65504.0f);
}

/* Weights of 16 tokens from the scores of columns 2k and 2k + 1, as the A operand of a row tile. */
template <class S>
__device__ static inline void cuda_tile_weigh(cuda_tiler<S> *d, const struct cuda_scoring *scoring,
                                              int r, int k, const char *value_scales,
                                              uint32_t ret[4]) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float2 scales = make_float2(1, 1);
        if (S::SCORES::IS_E4M3) {
            scales = cuda_column_scales(value_scales, 2 * k + n, d->lane);
            scales.x = cuda_finite(scales.x) * CUDA_RAISED;
            scales.y = cuda_finite(scales.y) * CUDA_RAISED;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *sums = &d->s[r][2 * k + n][2 * i];
            float a = cuda_weight<typename S::SCORES>(scoring, sums[0], d->m[r][i]);
            float b = cuda_weight<typename S::SCORES>(scoring, sums[1], d->m[r][i]);
            d->l[r][i] += a + b;
            if (S::SCORES::IS_E4M3) a *= scales.x, b *= scales.y;
            ret[2 * n + i] = cuda_pack_bf16(a, b);
        }
    }
}

/* o += weights times the values of a stage. */
template <class S>
__device__ static inline void cuda_tile_sums(cuda_tiler<S> *d, const struct cuda_scoring *scoring,
                                             uint32_t stage, const char *value_scales) {
    using P = typename S::PAGE;
    const struct cuda_reader reader = cuda_read_by_token<P>(d->lane);
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++) {
        uint32_t weights[S::TILES][4];
#pragma unroll
        for (int r = 0; r < S::TILES; r++)
            cuda_tile_weigh(d, scoring, r, k, value_scales, weights[r]);
#pragma unroll
        for (int c = 0; c < P::CHUNKS / 2; c++) {
            uint32_t w[4];
            cuda_load_transposed(w, cuda_row_at(reader, stage + k * P::BYTES, 2 * c));
            if constexpr (!P::IS_E4M3) {
#pragma unroll
                for (int n = 0; n < 2; n++)
#pragma unroll
                    for (int r = 0; r < S::TILES; r++)
                        cuda_mma(d->o[r][2 * c + n], weights[r], w[2 * n], w[2 * n + 1]);
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) /* 16 elements: the even ones, then the odd ones */
#pragma unroll
                    for (int r = 0; r < S::TILES; r++) {
                        float(*o)[4] = &d->o[r][2 * (2 * c + h)];
                        cuda_mma(o[0], weights[r], cuda_even_e4m3(w[2 * h]),
                                 cuda_even_e4m3(w[2 * h + 1]));
                        cuda_mma(o[1], weights[r], cuda_odd_e4m3(w[2 * h]),
                                 cuda_odd_e4m3(w[2 * h + 1]));
                    }
            }
        }
    }
}

/* One stage. A warp none of whose rows sees it only meets the others. */
template <class S>
__device__ static inline void cuda_tile_step(cuda_tiler<S> *d, const struct cuda_scoring *scoring,
                                             int s, char *memory) {
    const bool is_seen = cuda_tile_sees<S>(memory, s);
    cuda_copy_wait<2>();
    __syncthreads();
    cuda_fetch_stage<S, false>(d, s + 1);
    if (is_seen) {
        cuda_tile_scores(d, d->memory + S::KEYS_AT + s % 2 * S::STAGE_BYTES);
        float largest[S::TILES][2];
        cuda_tile_score(d, scoring, s, memory);
        if (cuda_tile_is_over(d, scoring, largest)) cuda_tile_raise(d, largest);
    }
    cuda_copy_wait<2>();
    __syncthreads();
    cuda_fetch_stage<S, true>(d, s + 2);
    if (is_seen)
        cuda_tile_sums(d, scoring, d->memory + S::VALUES_AT + s % 2 * S::STAGE_BYTES,
                       memory + S::VALUE_SCALES_AT + s % 2 * S::SCALE_BYTES);
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_wide: attention over heads of 512 numbers in bf16, decode and tiles alike.
 *
 * A block has up to 16 queries that read one KV head: the heads of a decode item's group, or 16 of
 * the packed rows of a tile item. A head is too wide for one warp's registers, so each of the four
 * warps has 128 of its numbers: of the scores it computes what these add, and all four add up the
 * parts from shared memory, in the order of the warps; of the sums it has its own columns. So all
 * warps have the same scores, maxima and weights, bit by bit.
 *
 * Copies, page p of a ring of two for keys and for values:
 *   wait for keys p, meet | ask for values p + 1 | parts of the scores, meet | ask for keys p + 2 |
 *   softmax | wait for values p, meet | sums
 * so nothing is asked for into a page before the meeting that follows its last reader.
 *
 * What does not depend on where keys lie is shared with attention_latent.cuh.
 *
 * Layers with such heads are a sixth of a model's, or fewer: blocks of 16 queries read keys from
 * the L2 as often as there are blocks, which is the price of one kernel for both kinds of items. */

#include "gpu/cuda/attention_page.cuh"
#include "gpu/cuda/attention_share.cuh"
#include "gpu/cuda/attention_turn.cuh"

#define WIDE_ROWS 16
#define WIDE_WARPS 4
#define WIDE_THREADS (32 * WIDE_WARPS)
#define WIDE_SHARE (CUDA_HEAD_WIDE / WIDE_WARPS) /* numbers of a head that a warp has */
#define WIDE_PAIRS (WIDE_SHARE / 16)             /* pairs of chunks of 8 numbers */
#define WIDE_BLOCKS (128 / WIDE_ROWS)            /* blocks of a tile item and KV head */

using wide_page = cuda_page<CUDA_KV_BF16, CUDA_HEAD_WIDE, true>;

/* A query of a block. */
struct wide_query {
    uint32_t row, head;
    int first, last;                    /* tokens that it sees: first..last-1 */
    uint32_t partial_in, partial_count; /* partials to continue from, one behind another */
    uint32_t partial_out;               /* or GPU_NONE */
};

struct wide_memory {
    char queries[WIDE_ROWS * wide_page::ROW_BYTES];
    char keys[2][wide_page::BYTES];
    char values[2][wide_page::BYTES];
    float parts[WIDE_WARPS][WIDE_ROWS][CUDA_PAGE_TOKENS]; /* parts of scores */
    struct wide_query rows[WIDE_ROWS];
};

/* What a warp is at. Lane 4g + t holds rows g and g + 8, columns 2t and 2t + 1 of each 8. */
struct wide_work {
    const char *keys; /* those of the KV head in page 0 */
    const char *values;
    const uint32_t *pages;
    uint32_t page_bytes;
    int begin, end; /* tokens that some row of the block sees */
    uint32_t lane, warp;
    float o[2 * WIDE_PAIRS][4];
    float m[2], l[2]; /* l: over this lane's columns alone */
};

__device__ static inline struct wide_query wide_nobody(void) {
    return {0, 0, INT32_MAX, 0, 0, 0, GPU_NONE};
}

/* Sets what a query at `position` sees of the keys begin..end-1. */
__device__ static inline void wide_see(const struct cuda_attention *call, uint32_t position,
                                       uint32_t begin, uint32_t end, struct wide_query *query) {
    const int seen = (int)position + 1;
    query->first = (int)begin;
    if (call->window && seen > (int)call->window)
        query->first = max(query->first, seen - (int)call->window);
    query->last = min((int)end, seen);
}

/* The query of a decode item's head. */
__device__ static inline struct wide_query wide_decoded(const struct cuda_attention *call,
                                                        const struct gpu_decode_item *item,
                                                        uint32_t head) {
    struct wide_query query = wide_nobody();
    query.row = item->row, query.head = head;
    wide_see(call, item->position, item->begin, item->end, &query);
    query.partial_in = item->partial_in, query.partial_count = item->partial_count;
    query.partial_out = item->partial_out;
    return query;
}

/* The query of a packed row of a tile item: head first + packed % group of the item's row packed /
 * group, or nobody behind the last row. */
__device__ static inline struct wide_query wide_packed(const struct cuda_attention *call,
                                                       const struct gpu_tile_item *item,
                                                       const uint32_t *rows, uint32_t packed,
                                                       uint32_t first, uint32_t group) {
    struct wide_query query = wide_nobody();
    const uint32_t i = packed / group;
    if (i >= item->row_count) return query;
    query.row = rows ? __ldg(rows + item->row + i) : item->row + i;
    query.head = first + packed % group;
    wide_see(call, __ldg(call->positions + query.row), item->begin, item->end, &query);
    query.partial_in = item->partial_in + i * item->partial_step;
    query.partial_count = item->partial_in != GPU_NONE;
    if (item->partial_out != GPU_NONE)
        query.partial_out = item->partial_out + i * item->partial_step;
    return query;
}

/* Asks for a page of keys or values; what no row of the block sees becomes zero, unread. */
__device__ static inline void wide_fetch(const struct wide_work *work, const char *pool, int page,
                                         char *to) {
    const uint32_t chunk = threadIdx.x % wide_page::CHUNKS;
    const int begin = work->begin - page * CUDA_PAGE_TOKENS;
    const int end = work->end - page * CUDA_PAGE_TOKENS;
    if (end > 0) {
        const char *from = pool + (size_t)__ldg(work->pages + page) * work->page_bytes;
        const uint32_t at = cuda_shared_address(to);
#pragma unroll
        for (int i = 0; i < CUDA_PAGE_TOKENS; i += WIDE_THREADS / wide_page::CHUNKS) {
            const int row = i + (int)(threadIdx.x / wide_page::CHUNKS);
            cuda_copy16_if(at + wide_page::place(row, chunk),
                           from + row * wide_page::ROW_BYTES + chunk * 16,
                           row >= begin && row < end);
        }
    }
    cuda_copy_commit();
}

/* The queries of the block's rows; zero where there is none. */
__device__ static inline void wide_queries(const struct cuda_attention *call,
                                           struct wide_memory *memory) {
    for (uint32_t i = threadIdx.x; i < WIDE_ROWS * wide_page::CHUNKS; i += WIDE_THREADS) {
        const uint32_t row = i / wide_page::CHUNKS, chunk = i % wide_page::CHUNKS;
        const struct wide_query *query = &memory->rows[row];
        uint4 x = make_uint4(0, 0, 0, 0);
        if (query->first != INT32_MAX)
            x = __ldcg(
                (const uint4 *)((const char *)call->q + (query->row * call->q_stride +
                                                         (size_t)query->head * CUDA_HEAD_WIDE) *
                                                            2) +
                chunk);
        *(uint4 *)(memory->queries + wide_page::place(row, chunk)) = x;
    }
}

/* What this warp's numbers add to the scores of a page of keys: of `memory` the queries and parts.
 */
template <class P, class M>
__device__ static inline void wide_parts(const struct wide_work *work, M *memory,
                                         const char *page_of_keys) {
    constexpr int PAIRS = P::CHUNKS / (2 * WIDE_WARPS);
    static_assert(P::CHUNKS % (2 * WIDE_WARPS) == 0, "all warps have as many");
    const struct cuda_reader query = cuda_read_by_token<P>(work->lane);
    const struct cuda_reader reader = cuda_read_by_chunk<P>(work->lane);
    const uint32_t queries = cuda_shared_address(memory->queries);
    const uint32_t keys = cuda_shared_address(page_of_keys);
    const uint32_t g = work->lane / 4, t = work->lane % 4;
    float s[2][4] = {};
#pragma unroll
    for (int c = 0; c < PAIRS; c++) {
        const uint32_t chunk = 2 * (work->warp * PAIRS + c);
        uint32_t q[4], w[4];
        cuda_load_matrices(q, cuda_row_at(query, queries, chunk));
        cuda_load_matrices(w, cuda_row_at(reader, keys, chunk));
        cuda_mma(s[0], q, w[0], w[1]);
        cuda_mma(s[1], q, w[2], w[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(float2 *)&memory->parts[work->warp][g + 8 * i][n * 8 + 2 * t] =
                make_float2(s[n][2 * i], s[n][2 * i + 1]);
}

/* The scores of a page, of all parts; -inf for tokens that a row does not see. */
template <class M>
__device__ static inline void wide_scores(const struct wide_work *work,
                                          const struct cuda_scoring *scoring, const M *memory,
                                          int page, float s[2][4]) {
    const uint32_t g = work->lane / 4, t = work->lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const struct wide_query *query = &memory->rows[g + 8 * i];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int w = 0; w < WIDE_WARPS; w++) {
                const float2 part = *(const float2 *)&memory->parts[w][g + 8 * i][n * 8 + 2 * t];
                sum.x += part.x, sum.y += part.y;
            }
            if (scoring->out > 0) {
                sum.x = cuda_capped(sum.x * scoring->sum, scoring->in, scoring->out);
                sum.y = cuda_capped(sum.y * scoring->sum, scoring->in, scoring->out);
            }
            const int token = page * CUDA_PAGE_TOKENS + n * 8 + 2 * (int)t;
            s[n][2 * i] = token >= query->first && token < query->last ? sum.x : -INFINITY;
            s[n][2 * i + 1] =
                token + 1 >= query->first && token + 1 < query->last ? sum.y : -INFINITY;
        }
    }
}

/* Raises m where a score exceeds it by more than CUDA_SLACK, and scales the sums down to it. */
__device__ static inline void wide_raise(struct wide_work *work, const struct cuda_scoring *scoring,
                                         const float s[2][4]) {
    float largest[2];
    bool is_over = false;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        largest[i] =
            fmaxf(fmaxf(s[0][2 * i], s[0][2 * i + 1]), fmaxf(s[1][2 * i], s[1][2 * i + 1]));
        largest[i] *= scoring->factor;
        is_over |= largest[i] > work->m[i] + CUDA_SLACK;
    }
    if (!__any_sync(CUDA_ALL_LANES, is_over)) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = fmaxf(work->m[i], largest[i]);
        m = fmaxf(m, __shfl_xor_sync(CUDA_ALL_LANES, m, 1));
        m = fmaxf(m, __shfl_xor_sync(CUDA_ALL_LANES, m, 2));
        const float factor = cuda_exp2(work->m[i] - m);
        work->m[i] = m;
        work->l[i] *= factor;
#pragma unroll
        for (int n = 0; n < 2 * WIDE_PAIRS; n++)
            work->o[n][2 * i] *= factor, work->o[n][2 * i + 1] *= factor;
    }
}

/* Weights of a page's tokens as the A operand, rows by tokens. */
__device__ static inline void wide_weigh(struct wide_work *work, const struct cuda_scoring *scoring,
                                         const float s[2][4], uint32_t ret[4]) {
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float a = cuda_weight<wide_page>(scoring, s[n][2 * i], work->m[i]);
            const float b = cuda_weight<wide_page>(scoring, s[n][2 * i + 1], work->m[i]);
            work->l[i] += a + b;
            ret[2 * n + i] = cuda_pack_bf16(a, b);
        }
}

/* o += weights times this warp's columns of a page of values. */
template <class P>
__device__ static inline void wide_sums(struct wide_work *work, const char *page_of_values,
                                        const uint32_t weights[4]) {
    const struct cuda_reader reader = cuda_read_by_token<P>(work->lane);
    const uint32_t values = cuda_shared_address(page_of_values);
#pragma unroll
    for (int c = 0; c < WIDE_PAIRS; c++) {
        uint32_t w[4];
        cuda_load_transposed(w, cuda_row_at(reader, values, 2 * (work->warp * WIDE_PAIRS + c)));
        cuda_mma(work->o[2 * c], weights, w[0], w[1]);
        cuda_mma(work->o[2 * c + 1], weights, w[2], w[3]);
    }
}

__device__ static inline void wide_step(struct wide_work *work, const struct cuda_scoring *scoring,
                                        struct wide_memory *memory, int page) {
    float s[2][4];
    uint32_t weights[4];
    cuda_copy_wait<2>();
    __syncthreads();
    wide_fetch(work, work->values, page + 1, memory->values[(page + 1) & 1]);
    wide_parts<wide_page>(work, memory, memory->keys[page & 1]);
    __syncthreads();
    wide_fetch(work, work->keys, page + 2, memory->keys[page & 1]);
    wide_scores(work, scoring, memory, page, s);
    wide_raise(work, scoring, s);
    wide_weigh(work, scoring, s, weights);
    cuda_copy_wait<3>();
    __syncthreads();
    wide_sums<wide_page>(work, memory->values[page & 1], weights);
}

/* Leaves what row g (i = 0) or g + 8 has gathered, behind the partials that it continues from; the
 * m and l of all of it are returned. Values of entries may be narrower than the kernel's. */
template <bool IS_LATENT>
__device__ static inline float2 wide_leave(const struct wide_work *work,
                                           const struct cuda_attention *call,
                                           const struct wide_query *query, int i) {
    const uint32_t column = work->warp * WIDE_SHARE + 2 * (work->lane % 4);
    const uint32_t dim = IS_LATENT ? call->head_dim : CUDA_HEAD_WIDE;
    const float *mls =
        call->partial_ml + ((size_t)query->partial_in * call->head_count + query->head) * 2;
    const float *os =
        call->partial_o + ((size_t)query->partial_in * call->head_count + query->head) * dim;
    const size_t next = call->head_count;
    float l = work->l[i], m = work->m[i];
    l += __shfl_xor_sync(CUDA_ALL_LANES, l, 1);
    l += __shfl_xor_sync(CUDA_ALL_LANES, l, 2);
    if (query->first == INT32_MAX) return make_float2(0, 0);
    for (uint32_t p = 0; p < query->partial_count; p++) m = fmaxf(m, __ldcg(mls + p * next * 2));
    const float mine = cuda_exp2(work->m[i] - m);
    float all = 0;
    for (uint32_t p = 0; p < query->partial_count; p++)
        all += __ldcg(mls + p * next * 2 + 1) * cuda_exp2(__ldcg(mls + p * next * 2) - m);
    all += l * mine;
    const bool is_partial = query->partial_out != GPU_NONE;
    const size_t out = (size_t)query->partial_out * call->head_count + query->head;
    const float share = is_partial ? 1 : cuda_share(call, query->head, m, all);
    char *y = (char *)call->y + (query->row * call->y_stride + (size_t)query->head * dim) * 2;
#pragma unroll
    for (int n = 0; n < 2 * WIDE_PAIRS; n++) {
        const uint32_t at = column + n * 8;
        if (IS_LATENT && at >= dim) continue;
        float2 x = make_float2(0, 0);
        for (uint32_t p = 0; p < query->partial_count; p++) {
            const float factor = cuda_exp2(__ldcg(mls + p * next * 2) - m);
            const float2 was = __ldcg((const float2 *)(os + p * next * dim + at));
            x.x += was.x * factor, x.y += was.y * factor;
        }
        x.x += work->o[n][2 * i] * mine, x.y += work->o[n][2 * i + 1] * mine;
        if (is_partial)
            *(float2 *)(call->partial_o + out * dim + at) = x;
        else
            *(uint32_t *)(y + at * 2) = cuda_pack_bf16(x.x * share, x.y * share);
    }
    return make_float2(m, all);
}

/* A partial may be the one that its row continued from, which all warps have read by now. */
__device__ static inline void wide_leave_ml(const struct wide_work *work,
                                            const struct cuda_attention *call,
                                            const struct wide_query *query, float2 ml) {
    if (work->warp != 0 || work->lane % 4 != 0 || query->partial_out == GPU_NONE) return;
    *(float2 *)(call->partial_ml +
                ((size_t)query->partial_out * call->head_count + query->head) * 2) = ml;
}

/* Nothing gathered yet, and the tokens that some row of the block sees. */
template <class M>
__device__ static inline void wide_begin(struct wide_work *work, const M *memory) {
    work->begin = INT32_MAX, work->end = 0;
    work->m[0] = work->m[1] = CUDA_UNSEEN;
    for (int r = 0; r < WIDE_ROWS; r++) {
        if (memory->rows[r].first >= memory->rows[r].last) continue;
        work->begin = min(work->begin, memory->rows[r].first);
        work->end = max(work->end, memory->rows[r].last);
    }
}

/* Leaves what the block has gathered. */
template <bool IS_LATENT, class M>
__device__ static inline void wide_end(const struct wide_work *work,
                                       const struct cuda_attention *call, const M *memory) {
    cuda_copy_wait<0>();
    cuda_attention_meet(call);
    const struct wide_query *low = &memory->rows[work->lane / 4], *high = low + 8;
    const float2 low_ml = wide_leave<IS_LATENT>(work, call, low, 0);
    const float2 high_ml = wide_leave<IS_LATENT>(work, call, high, 1);
    __syncthreads();
    wide_leave_ml(work, call, low, low_ml);
    wide_leave_ml(work, call, high, high_ml);
}

/* The block's rows stand in memory->rows, and all threads have met behind that. */
__device__ static inline void wide_run(const struct cuda_attention *call, const uint32_t *pages,
                                       uint32_t kv_head, struct wide_memory *memory) {
    const struct cuda_scoring scoring = cuda_scoring_of<wide_page>(call);
    struct wide_work work = {};
    work.lane = threadIdx.x % 32, work.warp = threadIdx.x / 32;
    work.keys = (const char *)call->k + (size_t)kv_head * wide_page::BYTES;
    work.values = (const char *)call->v + (size_t)kv_head * wide_page::BYTES;
    work.page_bytes = call->page_heads * (uint32_t)wide_page::BYTES;
    work.pages = pages;
    wide_begin(&work, memory);
    cuda_attention_begin(call);
    wide_queries(call, memory);
    if (work.begin < work.end) {
        int page = work.begin / CUDA_PAGE_TOKENS;
        wide_fetch(&work, work.keys, page, memory->keys[page & 1]);
        wide_fetch(&work, work.values, page, memory->values[page & 1]);
        wide_fetch(&work, work.keys, page + 1, memory->keys[(page + 1) & 1]);
        for (; page * CUDA_PAGE_TOKENS < work.end; page++) wide_step(&work, &scoring, memory, page);
    }
    wide_end<false>(&work, call, memory);
}

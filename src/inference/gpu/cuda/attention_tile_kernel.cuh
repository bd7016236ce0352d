/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_tile_kernel: the kernel around attention_tile.cuh: which rows a block has and what they
 * see, its loop, and what is left behind. */

#include "gpu/cuda/attention_share.cuh"
#include "gpu/cuda/attention_tile.cuh"
#include "gpu/cuda/attention_turn.cuh"

/* The item's row that packed row r belongs to; beyond the last one, the last. */
__device__ static inline uint32_t cuda_tile_row(const struct cuda_tile_items *items,
                                                const struct gpu_tile_item *item, uint32_t r,
                                                uint32_t group) {
    uint32_t i = min(r / group, item->row_count - 1);
    return items->rows ? __ldg(items->rows + item->row + i) : item->row + i;
}

/* 16 elements of a query on their way from global to shared memory. */
struct cuda_query_part {
    uint4 x[2];
};

/* Reads the elements of this thread's turn `turn`; those beyond the head's size are zero. */
template <class S>
__device__ static inline struct cuda_query_part
cuda_query_read(const struct cuda_attention *call, const struct cuda_tile_items *items,
                const struct gpu_tile_item *item, uint32_t head, uint32_t turn) {
    const uint32_t group = call->head_count / call->kv_heads;
    const uint32_t i = threadIdx.x + turn * S::THREADS, r = i / S::STEPS, s = i % S::STEPS;
    struct cuda_query_part part = {};
    if (S::PAGE::EXACT || s * 16 < call->head_dim) {
        const char *q =
            (const char *)call->q + (cuda_tile_row(items, item, r, group) * call->q_stride +
                                     (size_t)(head * group + r % group) * call->head_dim + s * 16) *
                                        2;
        part.x[0] = __ldcg((const uint4 *)q), part.x[1] = __ldcg((const uint4 *)q + 1);
    }
    return part;
}

/* Writes a part to shared memory. For e4m3 the order is that of attention_page.cuh. The scale is,
 * too, unless keys are scaled before the products. */
template <class S>
__device__ static inline void cuda_query_write(struct cuda_query_part part, uint32_t turn,
                                               char *memory) {
    const uint32_t i = threadIdx.x + turn * S::THREADS, r = i / S::STEPS, s = i % S::STEPS;
    if (S::PAGE::IS_E4M3) {
        uint4 a = part.x[0], b = part.x[1];
        part.x[0] = make_uint4(cuda_lows(a.x, a.y), cuda_lows(a.z, a.w), cuda_lows(b.x, b.y),
                               cuda_lows(b.z, b.w));
        part.x[1] = make_uint4(cuda_highs(a.x, a.y), cuda_highs(a.z, a.w), cuda_highs(b.x, b.y),
                               cuda_highs(b.z, b.w));
#pragma unroll
        for (int half = 0; half < 2 && S::SCORES::IS_E4M3; half++)
            part.x[half] = make_uint4(cuda_raise(part.x[half].x), cuda_raise(part.x[half].y),
                                      cuda_raise(part.x[half].z), cuda_raise(part.x[half].w));
    }
    *(uint4 *)(memory + S::query_at(r, 2 * s)) = part.x[0];
    *(uint4 *)(memory + S::query_at(r, 2 * s + 1)) = part.x[1];
}

template <class S>
__device__ static inline void
cuda_tile_queries(const struct cuda_attention *call, const struct cuda_tile_items *items,
                  const struct gpu_tile_item *item, uint32_t head, char *memory) {
    for (int turn = 0; turn < S::QUERY_TURNS; turn++)
        cuda_query_write<S>(cuda_query_read<S>(call, items, item, head, turn), turn, memory);
}

/* What this lane's rows see, what some and all rows of the warp see, and what the block needs. */
template <class S>
__device__ static inline void cuda_tile_bounds(cuda_tiler<S> *d, const struct cuda_attention *call,
                                               const struct cuda_tile_items *items,
                                               const struct gpu_tile_item *item, char *memory) {
    const uint32_t group = call->head_count / call->kv_heads, warp = threadIdx.x / 32;
    struct cuda_bounds *bounds = cuda_bounds_of<S>(memory);
    struct cuda_bounds is = {INT32_MAX, 0, 0, INT32_MAX};
#pragma unroll
    for (int r = 0; r < S::TILES; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t packed = (warp * S::TILES + r) * 16 + d->lane / 4 + 8 * i;
            uint32_t row = cuda_tile_row(items, item, packed, group);
            int seen = (int)__ldg(call->positions + row) + 1, first = (int)item->begin;
            if (call->window && seen > (int)call->window)
                first = max(first, seen - (int)call->window);
            int last = min((int)item->end, seen);
            ((int2 *)(memory + S::SEEN_AT))[packed] = make_int2(first, last);
            is.some_first = min(is.some_first, first), is.all_first = max(is.all_first, first);
            is.some_last = max(is.some_last, last), is.all_last = min(is.all_last, last);
        }
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) {
        is.some_first = min(is.some_first, __shfl_xor_sync(CUDA_ALL_LANES, is.some_first, apart));
        is.all_first = max(is.all_first, __shfl_xor_sync(CUDA_ALL_LANES, is.all_first, apart));
        is.some_last = max(is.some_last, __shfl_xor_sync(CUDA_ALL_LANES, is.some_last, apart));
        is.all_last = min(is.all_last, __shfl_xor_sync(CUDA_ALL_LANES, is.all_last, apart));
    }
    if (d->lane == 0) *bounds = is;
    __syncthreads();
    d->begin = INT32_MAX, d->end = 0;
#pragma unroll
    for (int w = 0; w < S::WARPS; w++) {
        const struct cuda_bounds *other = bounds - warp + w;
        d->begin = min(d->begin, other->some_first), d->end = max(d->end, other->some_last);
    }
    if constexpr (S::TOGETHER > 1) {
#pragma unroll
        for (int w = 1; w < S::TOGETHER; w++) {
            const struct cuda_bounds *other = bounds - warp + (warp ^ w);
            is.some_first = min(is.some_first, other->some_first);
            is.some_last = max(is.some_last, other->some_last);
        }
        __syncthreads(); /* all have read what they are about to change */
        if (d->lane == 0) bounds->some_first = is.some_first, bounds->some_last = is.some_last;
        __syncwarp();
    }
}

template <class S>
__device__ static inline void cuda_tiler_begin(cuda_tiler<S> *d, const struct cuda_attention *call,
                                               const struct gpu_tile_item *item, uint32_t head,
                                               char *memory) {
    using P = typename S::PAGE;
    d->lane = threadIdx.x % 32;
    d->memory = cuda_shared_address(memory);
    d->row_bytes = P::row_bytes(call);
    size_t run = (size_t)CUDA_PAGE_TOKENS * d->row_bytes;
    size_t mine = head * run + threadIdx.x / P::CHUNKS % CUDA_PAGE_TOKENS * d->row_bytes +
                  threadIdx.x % P::CHUNKS * 16;
    d->keys = (const char *)call->k + mine;
    d->values = (const char *)call->v + mine;
    d->page_bytes = call->page_heads * (uint32_t)run;
    d->scales = (const char *)call->scales + head * 2 * P::SCALE_BYTES;
    d->page_scale_bytes = call->scale_heads * 2 * P::SCALE_BYTES;
    d->pages = call->pages + item->pages + threadIdx.x / P::CHUNKS / CUDA_PAGE_TOKENS;
    d->place =
        d->memory + threadIdx.x / P::CHUNKS * S::TOKEN_STEP + S::chunk_at(cuda_mixed_chunk<S>());
    asm volatile("" : "+r"(d->place)); /* kept, not made again for each copy */
#pragma unroll
    for (int r = 0; r < S::TILES; r++) {
        d->m[r][0] = d->m[r][1] = CUDA_UNSEEN;
        d->l[r][0] = d->l[r][1] = 0;
#pragma unroll
        for (int n = 0; n < 2 * S::STEPS; n++)
            d->o[r][n][0] = d->o[r][n][1] = d->o[r][n][2] = d->o[r][n][3] = 0;
    }
    if constexpr (!P::EXACT) { /* what lies behind short rows stays zero: copies never write there
                                */
        for (int i = (int)threadIdx.x * 16; i < 4 * S::STAGE_BYTES; i += S::THREADS * 16)
            *(uint4 *)(memory + S::KEYS_AT + i) = make_uint4(0, 0, 0, 0);
    }
}

/* Stores the result of one head of a row after this item: a partial, or its part of y. Lane 4g + t
 * holds two pairs of neighbours of each 16 elements. In E4M3 the pairs are neighbours, too. */
template <class S>
__device__ static inline void
cuda_tile_leave(const cuda_tiler<S> *d, const struct cuda_attention *call,
                const struct gpu_tile_item *item, size_t row, uint32_t index, uint32_t head,
                int r, int i, bool is_there) {
    constexpr bool IS_E4M3 = S::PAGE::IS_E4M3;
    const size_t step = (size_t)index * item->partial_step;
    const size_t before = (item->partial_in + step) * call->head_count + head;
    const size_t after = (item->partial_out + step) * call->head_count + head;
    const bool goes_on = is_there && item->partial_in != GPU_NONE;
    const bool is_partial = item->partial_out != GPU_NONE;
    const uint32_t t = d->lane % 4;
    float m = d->m[r][i], l = d->l[r][i], old_m = CUDA_UNSEEN, old_l = 0;
    l += __shfl_xor_sync(CUDA_ALL_LANES, l, 1);
    l += __shfl_xor_sync(CUDA_ALL_LANES, l, 2);
    if (goes_on) {
        float2 ml = __ldcg((const float2 *)call->partial_ml + before);
        old_m = ml.x, old_l = ml.y;
    }
    __syncwarp(); /* all four lanes of a row have read m and l */
    if (!is_there) return;
    float together = fmaxf(m, old_m);
    float a = cuda_exp2(old_m - together), b = cuda_exp2(m - together);
    l = old_l * a + l * b;
    const float share = is_partial ? 1 : cuda_share(call, head, together, l);
    float mine = b * share * (IS_E4M3 ? CUDA_LOWERED : 1.0f), old = a * share;
    char *y = (char *)call->y + (row * call->y_stride + (size_t)head * call->head_dim) * 2;
    if (is_partial && t == 0)
        call->partial_ml[after * 2] = together, call->partial_ml[after * 2 + 1] = l;
#pragma unroll
    for (int s = 0; s < S::STEPS; s++) {
        if (!S::PAGE::EXACT && s * 16 >= (int)call->head_dim) break;
        const float(*o)[4] = &d->o[r][2 * s];
        if constexpr (IS_E4M3) { /* one store of four neighbours; two of 8 B would leave gaps */
            const size_t at = s * 16 + 4 * t;
            float4 x = {o[0][2 * i], o[1][2 * i], o[0][2 * i + 1], o[1][2 * i + 1]};
            float4 was = {0, 0, 0, 0};
            if (goes_on)
                was = __ldcg((const float4 *)(call->partial_o + before * call->head_dim + at));
            x.x = x.x * mine + was.x * old, x.y = x.y * mine + was.y * old;
            x.z = x.z * mine + was.z * old, x.w = x.w * mine + was.w * old;
            if (is_partial)
                *(float4 *)(call->partial_o + after * call->head_dim + at) = x;
            else
                *(uint2 *)(y + at * 2) = {cuda_pack_bf16(x.x, x.y), cuda_pack_bf16(x.z, x.w)};
        } else {
#pragma unroll
            for (int pair = 0; pair < 2; pair++) {
                const size_t at = s * 16 + 8 * pair + 2 * t;
                float2 x = make_float2(o[pair][2 * i], o[pair][2 * i + 1]);
                float2 was = make_float2(0, 0);
                if (goes_on)
                    was = __ldcg((const float2 *)(call->partial_o + before * call->head_dim + at));
                x.x = x.x * mine + was.x * old, x.y = x.y * mine + was.y * old;
                if (is_partial)
                    *(float2 *)(call->partial_o + after * call->head_dim + at) = x;
                else
                    *(uint32_t *)(y + at * 2) = cuda_pack_bf16(x.x, x.y);
            }
        }
    }
}

/* What all rows of this thread have. */
template <class S>
__device__ static inline void
cuda_tile_leave_all(const cuda_tiler<S> *d, const struct cuda_attention *call,
                    const struct cuda_tile_items *items, const struct gpu_tile_item *item,
                    uint32_t head) {
    const uint32_t group = call->head_count / call->kv_heads;
#pragma unroll
    for (int r = 0; r < S::TILES; r++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t packed = (threadIdx.x / 32 * S::TILES + r) * 16 + d->lane / 4 + 8 * i;
            bool is_there = packed < item->row_count * group;
            uint32_t row = cuda_tile_row(items, item, packed, group);
            cuda_tile_leave(d, call, item, row, packed / group, head * group + packed % group, r, i,
                            is_there);
        }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS)
    cuda_tiles(struct cuda_attention call, struct cuda_tile_items items) {
    extern __shared__ __align__(128) char cuda_memory[];
    const uint32_t index = blockIdx.x / call.kv_heads, head = blockIdx.x % call.kv_heads;
    const struct gpu_tile_item item = items.items[index];
    if (item.row_count == 0) return cuda_attention_pass(&call);
    const struct cuda_scoring scoring = cuda_scoring_of<typename S::PAGE>(&call);
    cuda_tiler<S> d;
    cuda_tiler_begin(&d, &call, &item, head, cuda_memory);
    cuda_tile_bounds(&d, &call, &items, &item, cuda_memory);
    int s = d.begin / S::KEYS;
    cuda_attention_begin(&call);
    cuda_fetch_stage<S, true>(&d, s);
    cuda_fetch_stage<S, false>(&d, s);
    cuda_fetch_stage<S, true>(&d, s + 1);
    cuda_tile_queries<S>(&call, &items, &item, head, cuda_memory);
    if (d.begin < d.end)
        for (; s * S::KEYS < d.end; s++) cuda_tile_step(&d, &scoring, s, cuda_memory);
    cuda_copy_wait<0>();
    cuda_attention_meet(&call);
    cuda_tile_leave_all(&d, &call, &items, &item, head);
}

template <enum cuda_kv_type TYPE, int D, bool EXACT, int TILES, int WARPS, int KEYS>
static enum err cuda_launch_tiles(const struct cuda_attention *call,
                                  const struct cuda_tile_items *items, cuda_stream stream,
                                  struct error *error) {
    using SHAPE = cuda_tile_shape<cuda_page<TYPE, D, EXACT>, TILES, WARPS, KEYS>;
    static_assert(SHAPE::ROWS == CUDA_TILE_ROWS, "what cuda_tile_rows says");
    return cuda_launch<cuda_tiles<SHAPE>>("attention tiles", items->item_count * call->kv_heads,
                                          SHAPE::THREADS, SHAPE::SHARED_BYTES, stream, error, *call,
                                          *items);
}

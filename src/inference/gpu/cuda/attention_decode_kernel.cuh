/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_decode_kernel: the kernel around attention_decode.cuh: what a warp begins with, its
 * loop, how the warps of a block meet, and what is left behind. */

#include "gpu/cuda/attention_decode.cuh"
#include "gpu/cuda/attention_share.cuh"
#include "gpu/cuda/attention_turn.cuh"

/* Zeroes what lies behind short rows, once: copies never write there. */
template <class S> __device__ static inline void cuda_clear_ring(char *ring, uint32_t lane) {
    if constexpr (!S::PAGE::EXACT) {
        for (int i = (int)lane * 16; i < S::RING_BYTES; i += 32 * 16)
            *(uint4 *)(ring + i) = make_uint4(0, 0, 0, 0);
        __syncwarp();
    }
}

template <class S>
__device__ static inline void
cuda_decoder_begin(cuda_decoder<S> *d, const struct cuda_attention *call,
                   const struct gpu_decode_item *item, uint32_t head, char *ring) {
    using P = typename S::PAGE;
    d->lane = threadIdx.x % 32;
    d->ring = cuda_shared_address(ring);
    d->row_bytes = P::row_bytes(call);
    size_t run = (size_t)CUDA_PAGE_TOKENS * d->row_bytes;
    d->keys = (const char *)call->k + head * run;
    d->values = (const char *)call->v + head * run;
    d->page_bytes = call->page_heads * (uint32_t)run;
    d->scales = (const char *)call->scales + head * 2 * P::SCALE_BYTES;
    d->page_scale_bytes = call->scale_heads * 2 * P::SCALE_BYTES;
    d->pages = call->pages + item->pages;
    int seen = (int)item->position + 1;
    d->begin = (int)item->begin;
    if (call->window && seen > (int)call->window)
        d->begin = max(d->begin, seen - (int)call->window);
    d->end = min((int)item->end, seen);
    d->first = d->begin / CUDA_PAGE_TOKENS;
    d->last = d->begin < d->end ? (d->end + CUDA_PAGE_TOKENS - 1) / CUDA_PAGE_TOKENS : d->first;
#pragma unroll
    for (int t = 0; t < S::TILES; t++) {
        d->m[t][0] = d->m[t][1] = CUDA_UNSEEN;
        d->l[t][0] = d->l[t][1] = 0;
#pragma unroll
        for (int s = 0; s < S::STEPS; s++)
            d->o[t][s][0] = d->o[t][s][1] = d->o[t][s][2] = d->o[t][s][3] = 0;
    }
}

/* Puts a warp's sums where its ring was: (heads, PITCH) of o, then (heads, 2) of m and l. */
template <class S> __device__ static inline void cuda_leave_sums(cuda_decoder<S> *d, char *ring) {
    constexpr bool IS_E4M3 = S::PAGE::IS_E4M3;
    constexpr float FACTOR = IS_E4M3 ? CUDA_LOWERED : 1.0f;
    uint32_t g = d->lane / 4, t = d->lane % 4;
    float *o = (float *)ring, *ml = o + S::HEADS * S::PITCH;
#pragma unroll
    for (int tile = 0; tile < S::TILES; tile++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int head = tile * 8 + 2 * t + i;
            float l = d->l[tile][i];
#pragma unroll
            for (int apart = 4; apart < 32; apart *= 2)
                l += __shfl_xor_sync(CUDA_ALL_LANES, l, apart);
            if (g == 0) ml[head * 2] = d->m[tile][i], ml[head * 2 + 1] = l;
#pragma unroll
            for (int s = 0; s < S::STEPS; s++) {
                int low = s * 16 + (IS_E4M3 ? 2 * g : g), high = low + (IS_E4M3 ? 1 : 8);
                o[head * S::PITCH + low] = d->o[tile][s][i] * FACTOR;
                o[head * S::PITCH + high] = d->o[tile][s][i + 2] * FACTOR;
            }
        }
}

/* What some sums have gathered for two neighbours of a head. */
struct cuda_gathered {
    float m, l;
    float2 o;
};

__device__ static inline void cuda_add_up(struct cuda_gathered *all, float m, float l, float2 o) {
    float together = fmaxf(all->m, m);
    float a = cuda_exp2(all->m - together), b = cuda_exp2(m - together);
    all->m = together, all->l = all->l * a + l * b;
    all->o.x = all->o.x * a + o.x * b, all->o.y = all->o.y * a + o.y * b;
}

/* Elements 2e and 2e + 1 of a head: the partials first, then the warps in their order. */
template <class S>
__device__ static inline void
cuda_meet_pair(const struct cuda_attention *call, const struct gpu_decode_item *item,
               const char *memory, uint32_t head, uint32_t n, uint32_t e) {
    struct cuda_gathered all = {CUDA_UNSEEN, 0, make_float2(0, 0)};
    for (uint32_t i = 0; i < item->partial_count; i++) {
        const size_t at = (size_t)(item->partial_in + i) * call->head_count + head;
        float2 ml = __ldcg((const float2 *)call->partial_ml + at);
        cuda_add_up(&all, ml.x, ml.y,
                    __ldcg((const float2 *)(call->partial_o + at * call->head_dim + 2 * e)));
    }
#pragma unroll
    for (int w = 0; w < S::WARPS; w++) {
        const float *sums = (const float *)(memory + w * S::WARP_BYTES);
        const float *ml = sums + S::HEADS * S::PITCH + 2 * n;
        cuda_add_up(&all, ml[0], ml[1], *(const float2 *)(sums + n * S::PITCH + 2 * e));
    }
    if (item->partial_out != GPU_NONE) {
        const size_t at = (size_t)item->partial_out * call->head_count + head;
        *(float2 *)(call->partial_o + at * call->head_dim + 2 * e) = all.o;
        if (e == 0) call->partial_ml[at * 2] = all.m, call->partial_ml[at * 2 + 1] = all.l;
        return;
    }
    const float share = cuda_share(call, head, all.m, all.l);
    char *y = (char *)call->y + (item->row * call->y_stride + (size_t)head * call->head_dim) * 2;
    *(uint32_t *)(y + e * 4) = cuda_pack_bf16(all.o.x * share, all.o.y * share);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS)
    cuda_decode(struct cuda_attention call, struct cuda_decode_items items) {
    extern __shared__ __align__(128) char cuda_memory[];
    const uint32_t index = blockIdx.x / call.kv_heads, head = blockIdx.x % call.kv_heads;
    char *ring = cuda_memory + threadIdx.x / 32 * S::WARP_BYTES;
    const struct gpu_decode_item item = items.items[index];
    const struct cuda_scoring scoring = cuda_scoring_of<typename S::PAGE>(&call);
    cuda_decoder<S> d;
    cuda_decoder_begin(&d, &call, &item, head, ring);
    cuda_clear_ring<S>(ring, d.lane);
    uint32_t numbers[S::PAGES], early[S::STAGES][S::PAGES];
#pragma unroll
    for (int s = 0; s < S::STAGES; s++) cuda_look_up(&d, s, early[s]);
    cuda_look_up(&d, S::STAGES, numbers);
    cuda_attention_begin(&call);
#pragma unroll
    for (int s = 0; s < S::STAGES; s++) {
        cuda_fetch<S, true>(&d, s, early[s]);
        cuda_fetch<S, false>(&d, s, early[s]);
    }
    cuda_load_queries(&d, &call, item.row, head);
    for (int step = 0; cuda_page_of(&d, step, 0) < d.last; step++) {
        uint32_t next[S::PAGES];
        cuda_look_up(&d, step + S::STAGES + 1, next);
        cuda_decode_step(&d, &scoring, step, numbers, ring);
#pragma unroll
        for (int p = 0; p < S::PAGES; p++) numbers[p] = next[p];
    }
    cuda_copy_wait<0>();
    __syncwarp();
    cuda_leave_sums(&d, ring);
    __syncthreads();
    cuda_attention_meet(&call);
    const uint32_t group = call.head_count / call.kv_heads;
    for (uint32_t i = threadIdx.x; i < group * (S::PAGE::D / 2); i += S::THREADS) {
        uint32_t n = i / (S::PAGE::D / 2), e = i % (S::PAGE::D / 2);
        if (S::PAGE::EXACT || 2 * e < call.head_dim)
            cuda_meet_pair<S>(&call, &item, cuda_memory, head * group + n, n, e);
    }
}

template <class S>
static enum err cuda_launch_decode_shape(const struct cuda_attention *call,
                                         const struct cuda_decode_items *items, cuda_stream stream,
                                         struct error *error) {
    return cuda_launch<cuda_decode<S>>("decode attention", items->item_count * call->kv_heads,
                                       S::THREADS, S::SHARED_BYTES, stream, error, *call, *items);
}

/* The heads of a group are columns: eight or, of larger groups, two times eight. */
template <enum cuda_kv_type TYPE, int D, bool EXACT, int WARPS, int PAGES>
static enum err cuda_launch_decode(const struct cuda_attention *call,
                                   const struct cuda_decode_items *items, cuda_stream stream,
                                   struct error *error) {
    using PAGE = cuda_page<TYPE, D, EXACT>;
    using ONE = cuda_decode_shape<PAGE, 1, WARPS, PAGES, 2>;
    using TWO = cuda_decode_shape<PAGE, 2, WARPS, PAGES, 2>;
    if (call->head_count / call->kv_heads <= 8)
        return cuda_launch_decode_shape<ONE>(call, items, stream, error);
    return cuda_launch_decode_shape<TWO>(call, items, stream, error);
}

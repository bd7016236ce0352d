/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample: what choosing a token and listing likely ones have in common: a block that walks a row,
 * and sums over the block. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/ptx.cuh"
#include "gpu/cuda/sample.h"

#include <stdint.h>

#define THREADS 512 /* two blocks a multiprocessor: one reads while one selects */
#define WARPS (THREADS / 32)

/* A row of logits under a mask. */
struct view {
    const float *logits;
    const uint32_t *mask; /* or NULL */
    uint32_t vocab;
    uint32_t begin; /* the ids that walk() walks: begin..end-1, end past the vocabulary or a
                       multiple of 128 from begin */
    uint32_t end;
    uint32_t segment; /* ids of it that a warp walks: a multiple of 128 */
};

struct four {
    float at[4];
};

__device__ static inline void walk_part(struct view *view, uint32_t begin, uint32_t end) {
    view->begin = begin, view->end = end;
    view->segment = (end - begin + 128 * WARPS - 1) / (128 * WARPS) * 128;
}

__device__ static inline struct view view_of(const struct cuda_logits &logits, size_t row,
                                             const uint32_t *mask) {
    struct view view = {logits.logits + row * logits.stride, mask, logits.vocab, 0, 0, 0};
    walk_part(&view, 0, view.vocab);
    return view;
}

/* draw_clean in two instructions: a comparison with NaN takes the other. */
__device__ static inline float cleaned(float logit) {
    return fminf(fmaxf(logit, -INFINITY), FLT_MAX);
}

/* The logits of ids at..at+3 as they are, -inf where the mask or the end of the vocabulary hides
 * them. Past the L1, which does not see what other threads of the block changed. */
__device__ static inline struct four read_four(const struct view &view, uint32_t at) {
    struct four v = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    if (at >= view.vocab) return v;
    float4 raw = __ldcg((const float4 *)(view.logits + at));
    uint32_t allowed = view.mask ? view.mask[at / 32] >> at % 32 & 15u : 15u;
    if (at + 4 > view.vocab) allowed &= (1u << (view.vocab - at)) - 1u;
    const float values[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (allowed >> i & 1u) v.at[i] = values[i];
    return v;
}

#define FOURS 4 /* fours that a lane reads at once: 64 B in flight */

/* Calls visit(id, fours, count) for all ids, each warp over a part of its own, in order of ids or,
 * with IS_BACKWARD, the last 512 first: they are what the L2 still has of a walk before. The lanes
 * of a warp come together. fours[i] has the logits of ids id + 128 i to id + 128 i + 3 as they are.
 * Logits that the mask or the end of the vocabulary hides are -inf. So are those of fours[count]
 * and on, whose ids belong to another warp. Most reads are of a row without a mask, far from its
 * end: a third of all instructions of a walk asked whether they are. */
template <bool IS_BACKWARD = false, class Visit>
__device__ static inline void walk_fours(const struct view &view, Visit visit) {
    const uint32_t lane = threadIdx.x % 32, first = view.begin + threadIdx.x / 32 * view.segment;
    const uint32_t end = min(first + view.segment, view.end);
    const uint32_t turns = first < end ? (end - first + 128 * FOURS - 1) / (128 * FOURS) : 0;
    for (uint32_t turn = 0; turn < turns; turn++) {
        const uint32_t begin = first + (IS_BACKWARD ? turns - 1 - turn : turn) * 128 * FOURS;
        struct four fours[FOURS];
        const uint32_t left = (end - begin + 127) / 128;
        if (!view.mask && left >= FOURS && begin + 128 * FOURS <= view.vocab) {
#pragma unroll
            for (uint32_t i = 0; i < FOURS; i++) {
                float4 raw = __ldcg((const float4 *)(view.logits + begin + i * 128 + lane * 4));
                fours[i] = {{raw.x, raw.y, raw.z, raw.w}};
            }
        } else {
#pragma unroll
            for (uint32_t i = 0; i < FOURS; i++)
                fours[i] = read_four(view, i < left ? begin + i * 128 + lane * 4 : view.vocab);
        }
        visit(begin + lane * 4, fours, left);
    }
}

/* Calls visit(id, logit) with cleaned logits, in the order of walk_fours. */
template <class Visit> __device__ static inline void walk(const struct view &view, Visit visit) {
    walk_fours(view, [&](uint32_t id, const struct four(&fours)[FOURS], uint32_t count) {
#pragma unroll
        for (uint32_t i = 0; i < FOURS; i++)
            if (i < count)
#pragma unroll
                for (uint32_t k = 0; k < 4; k++) visit(id + i * 128 + k, cleaned(fours[i].at[k]));
    });
}

/* ---- sums over the block ---- */

template <class T> __device__ static inline T warp_sum(T value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        value += __shfl_xor_sync(CUDA_ALL_LANES, value, apart);
    return value;
}

/* The sum over lanes 0..own. */
template <class T> __device__ static inline T warp_prefix(T value) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        T before = __shfl_up_sync(CUDA_ALL_LANES, value, apart);
        if (lane >= (uint32_t)apart) value += before;
    }
    return value;
}

/* Known to all threads; `parts` (WARPS). */
template <class T> __device__ static inline T block_sum(T value, T *parts) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < WARPS ? parts[threadIdx.x % 32] : T());
}

/* The sums of all threads before this one, and of all; `parts` (WARPS). */
template <class T> struct before { T mine, all; };

template <class T> __device__ static inline struct before<T> block_before(T value, T *parts) {
    T upto = warp_prefix(value), mine = 0, all = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 31) parts[threadIdx.x / 32] = upto;
    __syncthreads();
    for (uint32_t w = 0; w < WARPS; w++) {
        if (w < threadIdx.x / 32) mine += parts[w];
        all += parts[w];
    }
    return {mine + upto - value, all};
}

/* The most of all threads, known to all; `parts` (WARPS). */
__device__ static inline uint32_t
block_max(uint32_t own, uint32_t *parts) {
    own = __reduce_max_sync(CUDA_ALL_LANES, own);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    return __reduce_max_sync(CUDA_ALL_LANES, parts[threadIdx.x % WARPS]);
}

/* ---- keys ---- */

/* Key and id in one number: more for the more likely. */
__device__ static inline uint64_t ranked(uint32_t key, uint32_t id) {
    return (uint64_t)key << 32 | (0xffffffffu - id);
}

__device__ static inline float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ static inline uint64_t block_most(uint64_t value, uint64_t *parts) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        uint64_t other = __shfl_xor_sync(CUDA_ALL_LANES, value, apart);
        value = other > value ? other : value;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < WARPS ? parts[threadIdx.x % 32] : 0;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        uint64_t other = __shfl_xor_sync(CUDA_ALL_LANES, value, apart);
        value = other > value ? other : value;
    }
    return value;
}

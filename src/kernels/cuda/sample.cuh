/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample: what choosing a token and listing likely ones have in common: a block that walks a row,
 * a short list of its best tokens, and the selection of the least key to keep. */

#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/sample.h"

#include <stdint.h>

#define THREADS 512 /* two blocks a multiprocessor: one reads while one selects */
#define WARPS (THREADS / 32)
#define LIST_MAX 3072 /* candidates that fit in shared memory */

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

/* The cleaned logits of ids at..at+3, -inf where the mask or the vocabulary ends them. Past
 * the L1, which does not see what other threads of the block changed. */
__device__ static inline struct four read_four(const struct view &view, uint32_t at) {
    struct four v = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    if (at >= view.vocab) return v;
    float4 raw = __ldcg((const float4 *)(view.logits + at));
    uint32_t allowed = view.mask ? view.mask[at / 32] >> at % 32 & 15u : 15u;
    if (at + 4 > view.vocab) allowed &= (1u << (view.vocab - at)) - 1u;
    const float values[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (allowed >> i & 1u) v.at[i] = cleaned(values[i]);
    return v;
}

#define FOURS 4 /* of a lane at once: 64 B in flight */

/* Calls visit(id, fours, count) for all ids, each warp in order of ids over a part of its own; the
 * lanes of a warp come together. fours[i] has the logits of ids id + 128 i to id + 128 i + 3, cleaned
 * or as they are. Logits that the mask or the end of the vocabulary hides are -inf. So are those of
 * fours[count] and on, whose ids belong to another warp. Most reads are of a row without a mask, far
 * from its end: a third of all instructions of a walk asked whether they are. */
template <class Visit>
__device__ static inline void walk_fours(const struct view &view, Visit visit) {
    uint32_t lane = threadIdx.x % 32, begin = view.begin + threadIdx.x / 32 * view.segment;
    uint32_t end = min(begin + view.segment, view.end);
    for (; begin < end; begin += 128 * FOURS) {
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

/* Three at once. */
__device__ static inline void block_sums(uint64_t values[3], uint64_t (*parts)[WARPS]) {
#pragma unroll
    for (int i = 0; i < 3; i++) values[i] = warp_sum(values[i]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (threadIdx.x % 32 == 0) parts[i][threadIdx.x / 32] = values[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 3; i++)
        values[i] = warp_sum(threadIdx.x % 32 < WARPS ? parts[i][threadIdx.x % 32] : (uint64_t)0);
}

/* Key and id in one number: more for the more likely. */
__device__ static inline uint64_t ranked(uint32_t key, uint32_t id) {
    return (uint64_t)key << 32 | (0xffffffffu - id);
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

/* ---- selection ---- */

struct entry {
    uint32_t key;
    uint32_t id;
};

/* Everything above `key` is kept, and `equals` of those that equal it. */
struct cut {
    uint32_t key;
    uint32_t equals;
    uint64_t above_sum; /* what those above weigh (or count) */
};

struct select_memory {
    uint64_t parts[3][WARPS];
    uint32_t local[THREADS]; /* the best key each thread met */
    struct entry list[LIST_MAX];
    uint32_t list_count;
    int32_t token;
};

/* The weights of keys, for a selection by weight. */
struct scale {
    float max;
    float factor;
};

__device__ static inline float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The x of draw_weight_at. `logit` is at most the highest. */
__device__ static inline float distance(float logit, const struct scale &scale) {
    return draw_times(scale.max - logit, scale.factor);
}

/* The weight at x if is_in, which only an x below DRAW_NEAR may be, else 0. The empty assembly keeps the
 * compiler from a branch around the weight, which costs more than it saves. */
__device__ static inline uint32_t weight_if(bool is_in, float x) {
    uint32_t weight = draw_weight_at(x);
    asm volatile("" : "+r"(weight));
    return is_in ? weight : 0;
}

__device__ static inline uint64_t key_weight(uint32_t key, const struct scale &scale) {
    return draw_weight(logit_of(key), scale.max, scale.factor);
}

/* The least key to keep so that as many tokens (or so much weight) as `goal` are kept, of those
 * that source(visit) gives to visit(key): two bits of the key a round, from the highest, by how
 * much lies from each of three keys on. The whole block calls it; all get the answer, whose key is
 * DRAW_KEY_NONE when there is less than `goal` and all is kept. */
template <bool BY_WEIGHT, class Source>
__device__ static inline struct cut select_cut(struct select_memory *memory, uint64_t goal,
                                               const struct scale &scale, Source source) {
    struct cut cut = {0, 0, 0};
    for (int shift = 30; shift >= 0; shift -= 2) {
        uint64_t sums[3] = {0, 0, 0};
        source([&](uint32_t key) {
            uint64_t worth = BY_WEIGHT ? key_weight(key, scale) : 1;
#pragma unroll
            for (uint32_t i = 0; i < 3; i++)
                if (key >= (cut.key | (i + 1) << shift)) sums[i] += worth;
        });
        block_sums(sums, memory->parts);
        uint32_t digit = sums[2] >= goal ? 3 : sums[1] >= goal ? 2 : sums[0] >= goal ? 1 : 0;
        if (digit < 3) /* what is from there on can only be above now */
            cut.above_sum = digit == 2 ? sums[2] : digit == 1 ? sums[1] : sums[0];
        cut.key |= digit << shift;
    }
    uint64_t each = BY_WEIGHT ? key_weight(cut.key, scale) : 1;
    if (cut.key <= DRAW_KEY_NONE || each == 0) return {DRAW_KEY_NONE, 0, 0};
    cut.equals = (uint32_t)((goal - cut.above_sum + each - 1) / each);
    return cut;
}

/* Lists what reaches `least`. False when it is too long; list_count then says nothing. */
__device__ static inline bool list_above(const struct view &view, struct select_memory *memory,
                                         uint32_t least) {
    float floor = logit_of(max(least, DRAW_KEY_NONE + 1));
    if (threadIdx.x == 0) memory->list_count = 0;
    __syncthreads();
    walk(view, [&](uint32_t id, float logit) {
        if (!(logit >= floor)) return;
        uint32_t at = atomicAdd(&memory->list_count, 1u);
        if (at < LIST_MAX) memory->list[at] = {draw_key(logit), id};
    });
    __syncthreads();
    return memory->list_count <= LIST_MAX;
}

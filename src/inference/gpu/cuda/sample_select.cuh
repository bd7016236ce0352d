/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample_select: a short list of a row's best tokens, and the least key to keep of them. */

#include "gpu/cuda/sample.cuh"

#define LIST_MAX 3072 /* candidates that fit in shared memory */
#define DIGIT_BITS 8  /* bits of a key that a round looks at */
#define DIGITS (1u << DIGIT_BITS)
/* Shared memory adds 32 bits at once. A worth is added in three pieces of 11 bits, which
 * CUDA_VOCAB_MAX tokens do not overflow. */
#define PIECES 3
#define PIECE_BITS 11
static_assert((uint64_t)CUDA_VOCAB_MAX << PIECE_BITS <= UINT64_C(1) << 32, "a sum of pieces");

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

/* Keys, both included. */
struct range {
    uint32_t least, most;
};

struct select_memory {
    uint64_t parts[WARPS];
    struct range ranges[WARPS];
    uint32_t local[THREADS];         /* the best key each thread met */
    uint32_t digits[PIECES][DIGITS]; /* what the keys with a digit are worth */
    struct cut cut;
    struct entry list[LIST_MAX];
    uint32_t list_count;
    int32_t token;
};

/* The weights of keys, for a selection by weight. */
struct scale {
    float max;
    float factor;
};

/* The x of draw_weight_at. `logit` is at most the highest. */
__device__ static inline float distance(float logit, const struct scale &scale) {
    return draw_times(scale.max - logit, scale.factor);
}

/* The weight at x if is_in, which only an x below DRAW_NEAR may be, else 0. The empty assembly
 * keeps the compiler from a branch around the weight, which costs more than it saves. */
__device__ static inline uint32_t weight_if(bool is_in, float x) {
    uint32_t weight = draw_weight_at(x);
    asm volatile("" : "+r"(weight));
    return is_in ? weight : 0;
}

template <bool BY_WEIGHT>
__device__ static inline uint32_t key_worth(uint32_t key, const struct scale &scale) {
    return BY_WEIGHT ? draw_weight(logit_of(key), scale.max, scale.factor) : 1;
}

__device__ static inline uint64_t key_weight(uint32_t key, const struct scale &scale) {
    return key_worth<true>(key, scale);
}

/* Adds a worth to a sum in shared memory; `at` is its first piece, the others are `stride` apart.
 */
template <bool BY_WEIGHT>
__device__ static inline void add_worth(uint32_t *at, uint32_t stride, uint32_t worth) {
#pragma unroll
    for (uint32_t i = 0; i < (BY_WEIGHT ? PIECES : 1); i++)
        atomicAdd(at + i * stride, worth >> i * PIECE_BITS & ((1u << PIECE_BITS) - 1));
}

__device__ static inline uint64_t worth_at(const uint32_t *at, uint32_t stride) {
    uint64_t worth = 0;
#pragma unroll
    for (int i = PIECES - 1; i >= 0; i--) worth = (worth << PIECE_BITS) + at[i * stride];
    return worth;
}

/* Finds the highest digit from which on the keys are worth `wanted`, adds it to the cut, and
 * empties the digits. The cut is none when all are worth less. One warp. */
__device__ static inline void take_digit(uint32_t *digits, uint64_t wanted, uint32_t shift,
                                         struct cut *cut) {
    constexpr uint32_t EACH = DIGITS / 32;
    const uint32_t from = DIGITS - 1 - threadIdx.x % 32 * EACH; /* and EACH - 1 below it */
    uint64_t worths[EACH], sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        worths[i] = worth_at(&digits[from - i], DIGITS);
        sum += worths[i];
    }
    const uint64_t upto = warp_prefix(sum);
    uint64_t above = upto - sum;
    if (above < wanted && upto >= wanted) {
        uint32_t digit = from;
#pragma unroll
        for (uint32_t i = 0; i < EACH - 1; i++)
            if (above + worths[i] < wanted && digit == from - i) above += worths[i], digit--;
        cut->key |= digit << shift, cut->above_sum += above;
    }
    if (threadIdx.x % 32 == 31 && upto < wanted) *cut = {DRAW_KEY_NONE, 0, 0};
    __syncwarp();
    for (uint32_t i = threadIdx.x % 32; i < PIECES * DIGITS; i += 32) digits[i] = 0;
}

#define ALL_KEYS (range{0, 0xffffffffu})

/* The least key to keep so that as many tokens (or so much weight) as `goal` are kept, of those
 * from `keys.least` to `keys.most` that source(visit) gives to visit(key). The whole block calls
 * it; all get the answer, whose key is DRAW_KEY_NONE when there is less than `goal` and all is
 * kept. A radix select: each round adds up what the keys are worth by their next bits, of those
 * whose bits before are the answer's. It begins at the first bit in which the keys can differ. */
template <bool BY_WEIGHT, class Source>
__device__ static inline struct cut select_cut(struct select_memory *memory, uint64_t goal,
                                               const struct scale &scale, struct range keys,
                                               Source source) {
    uint32_t *digits = &memory->digits[0][0];
    /* Bits that are not known yet; at least one, so that there is a round. */
    uint32_t open = 32 - (uint32_t)__clz((int)((keys.least ^ keys.most) | 1u));
    struct cut cut = {keys.most & ~(0xffffffffu >> (32 - open)), 0, 0};
    __syncthreads();
    if (threadIdx.x == 0) memory->cut = cut;
    for (uint32_t i = threadIdx.x; i < PIECES * DIGITS; i += THREADS) digits[i] = 0;
    __syncthreads();
    while (open > 0) {
        const uint32_t shift = open > DIGIT_BITS ? open - DIGIT_BITS : 0, known = open - 1;
        source([&](uint32_t key) {
            if ((key ^ cut.key) >> known > 1) return;
            add_worth<BY_WEIGHT>(&digits[(key - cut.key) >> shift], DIGITS,
                                 key_worth<BY_WEIGHT>(key, scale));
        });
        __syncthreads();
        if (threadIdx.x < 32) take_digit(digits, goal - cut.above_sum, shift, &memory->cut);
        __syncthreads();
        cut = memory->cut;
        if (cut.key == DRAW_KEY_NONE) return cut; /* in the first round */
        open = shift;
    }
    const uint64_t each = key_worth<BY_WEIGHT>(cut.key, scale);
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

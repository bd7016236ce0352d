/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_page: how keys and values of one KV head lie in shared memory, and how the fragments of
 * mma.sync are read from there. Knows neither softmax nor who works on which page.
 *
 * Shared memory holds tokens in rows of D elements, chunk (16 bytes) c of row r at place c ^ (r's
 * swizzle), so that the eight rows an ldmatrix reads at once are in different banks. Head sizes
 * that are no kernel's own have rows padded with zero chunks, there and not in the cache.
 *
 * E4M3 takes the same loads: they move 16 bits at a time, which are two neighbours along a head,
 * and the even and the odd bytes of a register are unpacked into two bf16 fragments. What that does
 * to the order of the elements along a head is undone in the queries (CUDA_KV_E4M3 keys: slots
 * 0..7 of 16 are the even elements, 8..15 the odd) and where results are written. Unpacked numbers
 * are 2^-120 times as large; queries and weights are 2^100 times as large, and what is left, 2^20,
 * is in the scale and the result. Nothing on the way leaves the range of bf16 or float32. */

#include "gpu/cuda/attention.h"
#include "gpu/cuda/ptx.cuh"

#define CUDA_RAISED 0x1p100f /* queries and weights for unpacked e4m3 */
#define CUDA_LOWERED 0x1p20f /* what products with them still need */
#define CUDA_UNSEEN                                                                                \
    (-1e30f) /* the largest score of no keys: finite, so that no NaN can come of it */
#define CUDA_SLACK                                                                                 \
    8.0f /* a score may exceed m by so many powers of two before sums are                          \
            scaled again: bf16 weights lose nothing by it, float32 sums have                       \
            room, and most steps need no shuffles */
#define CUDA_LOG2_E 1.44269504088896341f

/* Rows of D elements, D a power of two; EXACT when head_dim is D. */
template <enum cuda_kv_type TYPE_, int D_, bool EXACT_> struct cuda_page {
    static constexpr enum cuda_kv_type TYPE = TYPE_;
    static constexpr int D = D_;
    static constexpr bool EXACT = EXACT_;
    static constexpr bool IS_E4M3 = TYPE_ == CUDA_KV_E4M3;
    static constexpr int ELEMENT_BYTES = IS_E4M3 ? 1 : 2;
    static constexpr int ROW_BYTES = D_ * ELEMENT_BYTES;
    static constexpr int CHUNKS = ROW_BYTES / 16;
    static constexpr int BYTES = CUDA_PAGE_TOKENS * ROW_BYTES;
    static constexpr int SCALE_BYTES = IS_E4M3 ? 2 * CUDA_PAGE_TOKENS : 0; /* scales of K or of V */

    /* Linear: swizzle(a ^ b) = swizzle(a) ^ swizzle(b). */
    __device__ static constexpr uint32_t swizzle(uint32_t row) {
        return CHUNKS >= 8 ? row & 7 : row >> 1 & 3;
    }
    __device__ static constexpr uint32_t place(uint32_t row, uint32_t chunk) {
        return row * ROW_BYTES + ((chunk ^ swizzle(row)) << 4);
    }
    /* Bytes of a row in the cache. */
    __device__ static uint32_t row_bytes(const struct cuda_attention *call) {
        return EXACT ? (uint32_t)ROW_BYTES : call->head_dim * ELEMENT_BYTES;
    }
};

/* Where this lane's row begins for ldmatrix over 16 tokens and two chunks, and what to xor chunk
 * numbers with. By token: matrices 0, 1 are tokens 0..7 and 8..15 of the first chunk; by chunk:
 * tokens 0..7 of the first and second chunk. */
struct cuda_reader {
    uint32_t row;
    uint32_t chunk;
};

template <class P> __device__ static inline struct cuda_reader cuda_read_by_token(uint32_t lane) {
    uint32_t row = lane & 15;
    return {row * P::ROW_BYTES, lane >> 4 ^ P::swizzle(row)};
}

template <class P> __device__ static inline struct cuda_reader cuda_read_by_chunk(uint32_t lane) {
    uint32_t row = (lane & 7) | (lane >> 4) << 3;
    return {row * P::ROW_BYTES, (lane >> 3 & 1) ^ P::swizzle(row)};
}

/* The address of this lane's row for chunks `chunk` (even) and chunk + 1 of the tokens at `at`. */
__device__ static inline uint32_t cuda_row_at(struct cuda_reader reader, uint32_t at,
                                              uint32_t chunk) {
    return at + reader.row + ((chunk ^ reader.chunk) << 4);
}

/* One bf16 pair of a query, 2^100 times as large. */
__device__ static inline uint32_t cuda_raise(uint32_t pair) {
    return cuda_pack_bf16(cuda_low_bf16(pair) * CUDA_RAISED, cuda_high_bf16(pair) * CUDA_RAISED);
}

/* {low half of a, low half of b} and {high half of a, high half of b}. */
__device__ static inline uint32_t cuda_lows(uint32_t a, uint32_t b) {
    return (a & 0xffffu) | b << 16;
}
__device__ static inline uint32_t cuda_highs(uint32_t a, uint32_t b) {
    return a >> 16 | (b & 0xffff0000u);
}

/* softcap · tanh(x / softcap) in powers of two: `in` = 2 · log2(e) / softcap on the score,
 * `out` = softcap · log2(e). Exact enough for scores of some hundred: 1e-6 of the cap. */
__device__ static inline float cuda_capped(float score, float in, float out) {
    return out - 2 * out * cuda_reciprocal(1 + cuda_exp2(score * in));
}

/* How sums of products become base-2 scores: those of keys with a scale are multiplied by `sum` and
 * the scale at once, those without stay sums until exp2, which multiplies by `factor` for nothing.
 */
struct cuda_scoring {
    float sum;
    float factor;
    float in, out; /* factors of the softcap; out 0: none */
};

template <class P, bool IS_LOWERED = P::IS_E4M3>
__device__ static inline struct cuda_scoring cuda_scoring_of(const struct cuda_attention *call) {
    float sum = call->scale * (IS_LOWERED ? CUDA_LOWERED : 1.0f);
    if (call->softcap > 0)
        return {sum, 1, 2 * CUDA_LOG2_E / call->softcap, call->softcap * CUDA_LOG2_E};
    if (P::IS_E4M3) return {sum * CUDA_LOG2_E, 1, 0, 0};
    return {1, sum * CUDA_LOG2_E, 0, 0};
}

template <class P> __device__ static inline float cuda_factor(const struct cuda_scoring *scoring) {
    return P::IS_E4M3 ? 1.0f : scoring->factor;
}

/* 2^(score - m) of what a sum has become. */
template <class P>
__device__ static inline float cuda_weight(const struct cuda_scoring *scoring, float sum, float m) {
    return cuda_exp2(fmaf(sum, cuda_factor<P>(scoring), -m));
}

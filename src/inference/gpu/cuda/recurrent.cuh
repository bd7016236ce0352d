/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent: the common parts of the kernels of recurrent.h: activations, sums whatever their form,
 * and rows of a state as a warp holds them.
 *
 * A row of a state has K elements. NUMBERS of them, 8 or 16, are in a lane, so K / NUMBERS lanes
 * hold a row and a warp several rows. A lane's accesses have 16 bytes, and those of a row's lanes stand side by side. */

#include "recurrent.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#include <math.h>

#define LANE_NUMBERS 16 /* a lane has them of a row, unless a kernel says otherwise */
/* Bytes of the states of a launch from which on they are many: an H200 has 60 MiB of L2. */
#define STATES_OF_MANY (128ull << 20)

/* ---- numbers ---- */

__device__ static inline float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}
__device__ static inline float silu(float x) {
    return x / (1.0f + expf(-x));
}
__device__ static inline float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

/* Four neighbouring sums of a row, a multiple of four at `at`. */
__device__ static inline struct numbers<4> four_sums(const struct cuda_product &product, size_t row,
                                                     uint32_t at) {
    if (product.type == CUDA_SUMS_INT32)
        return sums_of<IN_INT32, 4>(product, product.row_scale[row], at,
                                    read_sums<IN_INT32, 4>(product, row, at));
    if (product.row_scale)
        return sums_of<IN_BF16_SCALED, 4>(product, product.row_scale[row], at,
                                          read_sums<IN_BF16_SCALED, 4>(product, row, at));
    return sums_of<IN_BF16, 4>(product, 1.0f, at, read_sums<IN_BF16, 4>(product, row, at));
}

/* The same as the convolution takes them. */
__device__ static inline struct numbers<4>
rounded_sums(const struct cuda_product &product, struct numbers<4> v) {
    if (product.type == CUDA_SUMS_BF16 && !product.row_scale && !product.bias) return v;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t pair = cuda_pack_bf16(v.at[i], v.at[i + 1]);
        v.at[i] = cuda_low_bf16(pair), v.at[i + 1] = cuda_high_bf16(pair);
    }
    return v;
}

__device__ static inline struct numbers<4>
four_bf16(const struct cuda_product &product, size_t row, uint32_t at) {
    return rounded_sums(product, four_sums(product, row, at));
}

/* Sum over each LANES neighbouring lanes, known to all of them. */
template <int LANES>
__device__ static inline float sum_lanes(float value) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        value += __shfl_xor_sync(CUDA_ALL_LANES, value, apart);
    return value;
}

/* exp(g) of Gated DeltaNet, as an exponent of e. */
__device__ static inline float delta_gate(const struct cuda_delta &call, uint32_t head, float a) {
    return -expf(call.a_log[head]) * softplus(a + call.dt_bias[head]);
}

/* ---- sums, past the L1 ----
 *
 * Beside the chunks of other sequences nothing promises that this multiprocessor's L1 knows what
 * was written before those began. The L2 does. */

template <int IN>
__device__ static inline struct numbers<4> fresh_sums_of(const struct cuda_product &product,
                                                         size_t row, uint32_t at) {
    const size_t offset = row * product.stride + at;
    struct raw_sums<IN, 4> raw;
    if constexpr (IN == IN_INT32) {
        const uint4 four = __ldcg((const uint4 *)((const int32_t *)product.sums + offset));
        raw.words.at[0] = four.x, raw.words.at[1] = four.y;
        raw.words.at[2] = four.z, raw.words.at[3] = four.w;
    } else {
        const uint2 two = __ldcg((const uint2 *)((const uint16_t *)product.sums + offset));
        raw.words.at[0] = two.x, raw.words.at[1] = two.y;
    }
    return sums_of<IN, 4>(product, IN == IN_BF16 ? 1.0f : __ldcg(product.row_scale + row), at, raw);
}

__device__ static inline struct numbers<4>
fresh_sums(const struct cuda_product &product, size_t row, uint32_t at) {
    if (product.type == CUDA_SUMS_INT32) return fresh_sums_of<IN_INT32>(product, row, at);
    if (product.row_scale) return fresh_sums_of<IN_BF16_SCALED>(product, row, at);
    return fresh_sums_of<IN_BF16>(product, row, at);
}

/* The same as the convolution takes them. */
__device__ static inline struct numbers<4>
fresh_inputs(const struct cuda_product &product, size_t row, uint32_t at) {
    return rounded_sums(product, fresh_sums(product, row, at));
}

__device__ static inline float
fresh_sum(const struct cuda_product &product, size_t row, uint32_t at) {
    const size_t offset = row * product.stride + at;
    float value = product.type == CUDA_SUMS_INT32
                      ? (float)__ldcg((const int *)product.sums + offset)
                      : bf16_float(__ldcg((const unsigned short *)product.sums + offset));
    if (product.row_scale)
        value *= __ldcg(product.row_scale + row) * bf16_float(product.column_scale[at]);
    return product.bias ? value + product.bias[at] : value;
}

/* ---- slots ---- */

__device__ static inline char *slot_at(const struct cuda_states &states, uint32_t slot) {
    return (char *)states.at + (size_t)slot * states.stride;
}

/* ---- rows of a state ---- */

/* What a lane holds of a row, as it lies in memory. */
template <bool IS_BF16, int NUMBERS = LANE_NUMBERS> struct lane_words {
    struct words<IS_BF16 ? NUMBERS / 2 : NUMBERS> raw;
};

/* Which element of a row of K is number `i` of this lane. */
template <bool IS_BF16, int K, int NUMBERS = LANE_NUMBERS>
__device__ static inline uint32_t lane_place(int i) {
    constexpr int LANES = K / NUMBERS, AT_ONCE = IS_BF16 ? 8 : 4;
    return (uint32_t)(i / AT_ONCE * LANES * AT_ONCE) + threadIdx.x % LANES * AT_ONCE +
           (uint32_t)(i % AT_ONCE);
}

/* Reads this lane's part of a row. Nothing reads a state twice in a step. Where the states are
 * several times the L2, it is nevertheless faster not to say so (STATES_OF_MANY). */
template <bool IS_BF16, int K, bool ARE_MANY = false, int NUMBERS = LANE_NUMBERS>
__device__ static inline void read_lane(lane_words<IS_BF16, NUMBERS> *ret, const char *row,
                                        bool is_there) {
    constexpr int AT_ONCE = IS_BF16 ? 8 : 4, BYTES = IS_BF16 ? 2 : 4;
#pragma unroll
    for (int i = 0; i < NUMBERS; i += AT_ONCE) {
        uint4 four = make_uint4(0, 0, 0, 0);
        const uint4 *at = (const uint4 *)(row + lane_place<IS_BF16, K, NUMBERS>(i) * BYTES);
        if (is_there) four = ARE_MANY ? __ldcg(at) : __ldcs(at);
        uint32_t *to = ret->raw.at + i / AT_ONCE * 4;
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }
}

template <bool IS_BF16, int NUMBERS>
__device__ static inline struct numbers<NUMBERS>
lane_numbers(const lane_words<IS_BF16, NUMBERS> &words) {
    if constexpr (IS_BF16) {
        return bf16_numbers<NUMBERS>(words.raw.at);
    } else {
        struct numbers<NUMBERS> v;
#pragma unroll
        for (int i = 0; i < NUMBERS; i++) v.at[i] = __uint_as_float(words.raw.at[i]);
        return v;
    }
}

template <bool IS_BF16, int K, bool ARE_MANY = false, int NUMBERS = LANE_NUMBERS>
__device__ static inline void write_lane(const struct numbers<NUMBERS> &v, char *row) {
    constexpr int AT_ONCE = IS_BF16 ? 8 : 4, BYTES = IS_BF16 ? 2 : 4;
#pragma unroll
    for (int i = 0; i < NUMBERS; i += AT_ONCE) {
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = IS_BF16 ? cuda_pack_bf16(v.at[i + (2 * j) % AT_ONCE],
                                            v.at[i + (2 * j + 1) % AT_ONCE])
                           : __float_as_uint(v.at[i + j]);
        uint4 *at = (uint4 *)(row + lane_place<IS_BF16, K, NUMBERS>(i) * BYTES);
        if (ARE_MANY)
            __stcg(at, make_uint4(w[0], w[1], w[2], w[3]));
        else
            __stcs(at, make_uint4(w[0], w[1], w[2], w[3]));
    }
}

/* A vector of K floats in shared memory, at the places that this lane has of a row. */
template <bool IS_BF16, int K, int NUMBERS = LANE_NUMBERS>
__device__ static inline struct numbers<NUMBERS> lane_vector(const float *shared) {
    struct numbers<NUMBERS> v;
#pragma unroll
    for (int i = 0; i < NUMBERS; i += 4) {
        const float4 four = *(const float4 *)(shared + lane_place<IS_BF16, K, NUMBERS>(i));
        v.at[i] = four.x, v.at[i + 1] = four.y, v.at[i + 2] = four.z, v.at[i + 3] = four.w;
    }
    return v;
}

/* The same of memory that a kernel wrote, past the L1. */
template <bool IS_BF16, int K>
__device__ static inline struct numbers<LANE_NUMBERS> fresh_vector(const float *global) {
    struct numbers<LANE_NUMBERS> v;
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i += 4) {
        const float4 four = __ldcg((const float4 *)(global + lane_place<IS_BF16, K>(i)));
        v.at[i] = four.x, v.at[i + 1] = four.y, v.at[i + 2] = four.z, v.at[i + 3] = four.w;
    }
    return v;
}

/* ---- the host ---- */

static inline bool
is_states_well(const struct cuda_states *states) {
    return states->at && is_at_16(states->at) && states->stride % 16 == 0;
}

/* Whether four sums can be read at once. */
static inline bool is_product_by_fours(const struct cuda_product *product) {
    return product->sums && product->stride % 4 == 0 && is_at_16(product->sums) &&
           is_at_16(product->column_scale) && is_at_16(product->bias);
}

static inline enum err cuda_delta_check_heads(uint32_t k_heads, uint32_t v_heads, uint32_t k_dim,
                                              uint32_t v_dim, struct error *error) {
    const uint32_t group = k_heads > 0 ? v_heads / k_heads : 0;
    if ((k_dim != 128 && k_dim != 64) || v_dim != k_dim)
        return err_set(error, ERR_INVALID, "delta: heads of %u and %u, not of 64 or 128", k_dim,
                       v_dim);
    if (group < 1 || group > 8 || group * k_heads != v_heads)
        return err_set(error, ERR_INVALID, "delta: %u value heads of %u key heads", v_heads,
                       k_heads);
    return OK;
}

static inline enum err cuda_delta_check(const struct cuda_delta *call, struct error *error) {
    const enum err code =
        cuda_delta_check_heads(call->k_heads, call->v_heads, call->k_dim, call->v_dim, error);
    if (code != OK) return code;
    if (!is_product_by_fours(&call->qkv) || !is_product_by_fours(&call->z) || !call->a.sums ||
        !call->b.sums || !is_states_well(&call->states) || !is_states_well(&call->tails) ||
        !is_at_16(call->conv) || !is_at_16(call->norm) || !is_at_16(call->y) ||
        call->y_stride % 4 != 0)
        return err_set(error, ERR_INVALID, "delta: an address or a distance");
    return OK;
}

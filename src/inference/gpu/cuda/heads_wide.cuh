/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* heads_wide: the kernel of heads.cu for heads of 512, which the layers of Gemma 4 without a window
 * have, one in five or six: they turn whole, by halves, or not at all, and go into pages of bf16.
 *
 * A block a row and a warp a head, whose lanes have eight numbers and their eight partners, half a
 * head away. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/heads_parts.cuh"

#define WIDE_DIM 512
#define WIDE_HALF (WIDE_DIM / 2)
#define WIDE_THREADS 256

/* What the kernel does with heads of WIDE_DIM. */
static inline bool wide_is_known(const struct cuda_heads *call) {
    return !call->kv_scales && !call->interleaved &&
           (!call->cosines || call->rotary_dim == WIDE_DIM);
}

struct wide_head {
    eight low, high;
};

/* RMSNorm, times the weights unless they are NULL. */
__device__ static inline void wide_norm(const float *weight, uint32_t at, float epsilon,
                                        struct wide_head *v) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) squares = fmaf(v->low.at[i], v->low.at[i], squares);
#pragma unroll
    for (int i = 0; i < EACH; i++) squares = fmaf(v->high.at[i], v->high.at[i], squares);
    const float mean = lanes_sum<32>(CUDA_ALL_LANES, squares) * (1.0f / WIDE_DIM);
    const float factor = cuda_rsqrt(mean + epsilon);
#pragma unroll
    for (int i = 0; i < EACH; i++) v->low.at[i] *= factor, v->high.at[i] *= factor;
    if (!weight) return;
    const eight low = read_f32(weight + at), high = read_f32(weight + at + WIDE_HALF);
#pragma unroll
    for (int i = 0; i < EACH; i++) v->low.at[i] *= low.at[i], v->high.at[i] *= high.at[i];
}

__device__ static inline void wide_turn(const float *cosines, const float *sines,
                                        struct wide_head *v) {
    const eight cosine = read_f32(cosines), sine = read_f32(sines);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const float low = v->low.at[i], high = v->high.at[i];
        v->low.at[i] = low * cosine.at[i] - high * sine.at[i];
        v->high.at[i] = high * cosine.at[i] + low * sine.at[i];
    }
}

template <int IN>
__global__ void __launch_bounds__(WIDE_THREADS) heads_wide(struct cuda_heads call) {
    const size_t row = blockIdx.x;
    const uint32_t at = threadIdx.x % 32 * EACH, count = call.heads + 2 * call.kv_heads;
    wait_for_before();
    let_next_start();
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    const uint32_t slot = call.kv_heads > 0 ? call.slots[row] : 0;
    const size_t turn = call.cosines ? (size_t)call.positions[row] * WIDE_HALF + at : 0;
    for (uint32_t head = threadIdx.x / 32; head < count; head += WIDE_THREADS / 32) {
        const uint32_t column = head * WIDE_DIM + at;
        const struct raw_sums<IN> low = read_sums<IN>(call.in, row, column);
        const struct raw_sums<IN> high = read_sums<IN>(call.in, row, column + WIDE_HALF);
        const bool is_q = head < call.heads, is_value = head >= call.heads + call.kv_heads;
        const float *weight = is_value ? NULL : is_q ? call.q_norm : call.k_norm;
        struct wide_head v = {sums_of<IN>(call.in, row_scale, column, low),
                              sums_of<IN>(call.in, row_scale, column + WIDE_HALF, high)};
        if (weight || (is_value && call.norms_v)) wide_norm(weight, at, call.epsilon, &v);
        if (call.cosines && !is_value) wide_turn(call.cosines + turn, call.sines + turn, &v);
        uint16_t *to = call.q + row * call.q_stride + column;
        if (!is_q) {
            const uint32_t kv_head = head - call.heads - (is_value ? call.kv_heads : 0);
            const size_t page_head = (size_t)(slot / PAGE_TOKENS) * call.page_heads + kv_head;
            to = (uint16_t *)(is_value ? call.v : call.k) +
                 (page_head * PAGE_TOKENS + slot % PAGE_TOKENS) * WIDE_DIM + at;
        }
        write_bf16(v.low, to), write_bf16(v.high, to + WIDE_HALF);
    }
}

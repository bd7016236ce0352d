/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* delta_decode: the common parts of the kernels that take one token of each sequence through a
 * Gated DeltaNet layer: what a block shares, a row's update, and the output. */

#include "gpu/cuda/recurrent.cuh"

#define GROUP_MAX 8 /* value heads per key head */
#define TAIL 3      /* columns */

/* One of the value heads of the block. */
struct delta_head {
    float decay, beta;
};

/* What the warps of a block share. */
template <int K, int V> struct delta_shared {
    float qkv[2 * K + GROUP_MAX * V]; /* after the convolution; v becomes the output */
    float gate[GROUP_MAX * V];        /* norm · silu(z) */
    struct delta_head heads[GROUP_MAX];
};

/* Convolves four channels, moves their tail on, and leaves them in `to`. */
__device__ static inline void convolve_four(const struct cuda_delta &call,
                                            const struct cuda_state_item &item, uint32_t channel,
                                            uint32_t channels, float *to) {
    const struct numbers<4> own = four_bf16(call.qkv, item.row, channel);
    struct numbers<4> tail[TAIL];
#pragma unroll
    for (int i = 0; i < TAIL; i++) {
        tail[i] = {};
        if (item.from != CUDA_STATE_NONE)
            tail[i] = read_bf16<4>((const uint16_t *)slot_at(call.tails, item.from) +
                                   (size_t)i * channels + channel);
    }
    uint16_t *left = (uint16_t *)slot_at(call.tails, item.to) + channel;
    write_bf16(tail[1], left);
    write_bf16(tail[2], left + channels);
    write_bf16(own, left + 2 * (size_t)channels);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const struct numbers<4> taps = read_f32<4>(call.conv + ((size_t)channel + i) * 4);
        to[i] = silu(taps.at[0] * tail[0].at[i] + taps.at[1] * tail[1].at[i] +
                     taps.at[2] * tail[2].at[i] + taps.at[3] * own.at[i]);
    }
}

/* Fills the shared part of the block. */
template <int K, int V>
__device__ static inline void prepare(const struct cuda_delta &call,
                                      const struct cuda_state_item &item, uint32_t key_head,
                                      uint32_t group, delta_shared<K, V> *shared) {
    const uint32_t keys = call.k_heads * K, channels = 2 * keys + call.v_heads * V;
    const uint32_t width = 2 * K + group * V, first = key_head * group;
    for (uint32_t at = threadIdx.x * 4; at < width; at += blockDim.x * 4) {
        uint32_t channel = key_head * K + at;
        if (at >= K) channel = keys + key_head * K + at - K;
        if (at >= 2 * K) channel = 2 * keys + first * V + at - 2 * K;
        convolve_four(call, item, channel, channels, shared->qkv + at);
    }
    for (uint32_t at = threadIdx.x * 4; at < group * V; at += blockDim.x * 4) {
        const struct numbers<4> z = four_sums(call.z, item.row, first * V + at);
        const struct numbers<4> norm = read_f32<4>(call.norm + at % V);
#pragma unroll
        for (int i = 0; i < 4; i++) shared->gate[at + i] = norm.at[i] * silu(z.at[i]);
    }
    const uint32_t head = blockDim.x - 1 - threadIdx.x; /* the last threads have less to convolve */
    if (head < group)
        shared->heads[head] = {expf(delta_gate(call, item.row, first + head)),
                               sigmoid(sum_at(call.b, item.row, first + head))};
}

/* The norm of the outputs, V / 4 lanes per head. */
template <int V>
__device__ static inline void leave_output(const struct cuda_delta &call,
                                           const struct cuda_state_item &item, uint32_t first,
                                           uint32_t group, const float *o, const float *gate) {
    const uint32_t lane = threadIdx.x % 32;
    uint16_t *y = call.y + item.row * call.y_stride + (size_t)first * V;
    for (uint32_t base = (threadIdx.x - lane) * 4; base < group * V; base += blockDim.x * 4) {
        const uint32_t at = base + lane * 4;
        const bool is_there = at < group * V;
        struct numbers<4> v = {};
        if (is_there) v = read_f32<4>(o + at);
        float squares = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) squares += v.at[i] * v.at[i];
        squares = sum_lanes<V / 4>(squares);
        const float factor = 1.0f / sqrtf(squares / (float)V + call.epsilon);
        if (!is_there) continue;
        const struct numbers<4> scale = read_f32<4>(gate + at);
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] *= factor * scale.at[i];
        write_bf16(v, y + at);
    }
}

/* q and k of this lane's places, both of length 1 and q scaled, and their product. */
struct delta_keys {
    struct numbers<LANE_NUMBERS> q, k;
    float product;
};
template <bool IS_BF16, int K>
__device__ static inline struct delta_keys keys_of(const float *shared) {
    struct delta_keys keys;
    keys.q = lane_vector<IS_BF16, K>(shared);
    keys.k = lane_vector<IS_BF16, K>(shared + K);
    float of_q = 0, of_k = 0;
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i++) {
        of_q += keys.q.at[i] * keys.q.at[i];
        of_k += keys.k.at[i] * keys.k.at[i];
    }
    const float q = 1.0f / sqrtf((sum_lanes<K / LANE_NUMBERS>(of_q) + 1e-6f) * (float)K);
    const float k = 1.0f / sqrtf(sum_lanes<K / LANE_NUMBERS>(of_k) + 1e-6f);
    keys.product = 0;
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i++) {
        keys.q.at[i] *= q, keys.k.at[i] *= k;
        keys.product += keys.q.at[i] * keys.k.at[i];
    }
    keys.product = sum_lanes<K / LANE_NUMBERS>(keys.product);
    return keys;
}

/* Updates a row in place and returns its output. */
__device__ static inline float update_row(const struct delta_keys &keys,
                                          const struct delta_head &head, float v, int lanes,
                                          struct numbers<LANE_NUMBERS> *row) {
    float told = 0, asked = 0; /* S k and S q, before the decay */
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i++) {
        told = fmaf(row->at[i], keys.k.at[i], told);
        asked = fmaf(row->at[i], keys.q.at[i], asked);
    }
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
        told += __shfl_xor_sync(CUDA_ALL_LANES, told, apart);
        asked += __shfl_xor_sync(CUDA_ALL_LANES, asked, apart);
    }
    const float change = head.beta * (v - head.decay * told);
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i++)
        row->at[i] = fmaf(change, keys.k.at[i], head.decay * row->at[i]);
    return fmaf(change, keys.product, head.decay * asked);
}

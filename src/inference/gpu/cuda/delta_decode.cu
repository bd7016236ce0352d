/* SPDX-License-Identifier: Apache-2.0 */

/* delta_decode: one token of each sequence through a Gated DeltaNet layer.
 *
 * The states are the work: 2 MiB per sequence and layer are read and written, and all else is 3 %
 * of that. A block has a key head of a sequence and its value heads, for they share q, k and the
 * tail that it writes. It asks for its first rows of the state before it needs them, and a warp
 * goes through its rows on its own: a row is the state of one element of v, and all that it needs
 * of other rows is q and k, which every lane keeps. The output needs no second look at the state:
 *
 *   S' q = exp(g) S q + beta (v - exp(g) S k) (k q)
 */

#include "gpu/cuda/recurrent.cuh"

#define GROUP_MAX 8 /* value heads per key head */
#define TAIL 3      /* columns */

/* One of the value heads of the block. */
struct delta_head {
    float decay, beta;
};

/* Which value heads the block has: `count` of them, `step` heads apart. */
struct delta_group {
    uint32_t first, step, count;
};
__device__ static inline struct delta_group group_of(const struct cuda_delta &call,
                                                     uint32_t key_head) {
    const uint32_t count = call.v_heads / call.k_heads;
    if (call.heads_are_tiled) return {key_head, call.k_heads, count};
    return {key_head * count, 1, count};
}
/* Number `at` of the group's heads, V numbers each, as a number of all heads. */
template <int V>
__device__ static inline uint32_t place_of(const struct delta_group &group, uint32_t at) {
    return (group.first + at / V * group.step) * V + at % V;
}

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
    const struct numbers<4> own = fresh_inputs(call.qkv, item.row, channel);
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
                                      const struct delta_group &group, delta_shared<K, V> *shared) {
    const uint32_t keys = call.k_heads * K, channels = 2 * keys + call.v_heads * V;
    const uint32_t width = 2 * K + group.count * V;
    for (uint32_t at = threadIdx.x * 4; at < width; at += blockDim.x * 4) {
        uint32_t channel = key_head * K + at;
        if (at >= K) channel = keys + key_head * K + at - K;
        if (at >= 2 * K) channel = 2 * keys + place_of<V>(group, at - 2 * K);
        convolve_four(call, item, channel, channels, shared->qkv + at);
    }
    for (uint32_t at = threadIdx.x * 4; at < group.count * V; at += blockDim.x * 4) {
        const struct numbers<4> z = fresh_sums(call.z, item.row, place_of<V>(group, at));
        const struct numbers<4> norm = read_f32<4>(call.norm + at % V);
#pragma unroll
        for (int i = 0; i < 4; i++) shared->gate[at + i] = norm.at[i] * silu(z.at[i]);
    }
    const uint32_t head = blockDim.x - 1 - threadIdx.x; /* the last threads have less to convolve */
    const uint32_t own = group.first + head * group.step;
    if (head < group.count)
        shared->heads[head] = {expf(delta_gate(call, own, fresh_sum(call.a, item.row, own))),
                               sigmoid(fresh_sum(call.b, item.row, own))};
}

/* The norm of the outputs, V / 4 lanes per head. */
template <int V>
__device__ static inline void
leave_output(const struct cuda_delta &call, const struct cuda_state_item &item,
             const struct delta_group &group, const float *o, const float *gate) {
    const uint32_t lane = threadIdx.x % 32;
    uint16_t *y = call.y + item.row * call.y_stride;
    for (uint32_t base = (threadIdx.x - lane) * 4; base < group.count * V; base += blockDim.x * 4) {
        const uint32_t at = base + lane * 4;
        const bool is_there = at < group.count * V;
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
        write_bf16(v, y + place_of<V>(group, at));
    }
}

/* q and k of this lane's places, both of length 1 and q scaled, and their product. */
template <int NUMBERS> struct delta_keys {
    struct numbers<NUMBERS> q, k;
    float product;
};
template <bool IS_BF16, int K, int NUMBERS>
__device__ static inline delta_keys<NUMBERS> keys_of(const float *shared) {
    delta_keys<NUMBERS> keys;
    keys.q = lane_vector<IS_BF16, K, NUMBERS>(shared);
    keys.k = lane_vector<IS_BF16, K, NUMBERS>(shared + K);
    float of_q = 0, of_k = 0;
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) {
        of_q += keys.q.at[i] * keys.q.at[i];
        of_k += keys.k.at[i] * keys.k.at[i];
    }
    const float q = 1.0f / sqrtf((sum_lanes<K / NUMBERS>(of_q) + 1e-6f) * (float)K);
    const float k = 1.0f / sqrtf(sum_lanes<K / NUMBERS>(of_k) + 1e-6f);
    keys.product = 0;
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) {
        keys.q.at[i] *= q, keys.k.at[i] *= k;
        keys.product += keys.q.at[i] * keys.k.at[i];
    }
    keys.product = sum_lanes<K / NUMBERS>(keys.product);
    return keys;
}

/* Updates a row in place and returns its output. */
template <int NUMBERS>
__device__ static inline float update_row(const delta_keys<NUMBERS> &keys,
                                          const struct delta_head &head, float v, int lanes,
                                          struct numbers<NUMBERS> *row) {
    float told = 0, asked = 0; /* S k and S q, before the decay */
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) {
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
    for (int i = 0; i < NUMBERS; i++)
        row->at[i] = fmaf(change, keys.k.at[i], head.decay * row->at[i]);
    return fmaf(change, keys.product, head.decay * asked);
}

/* A block has WARPS warps; each has DEPTH turns of rows under way. A lane has NUMBERS of a row.
 * BLOCKS are on a multiprocessor. */
template <bool IS_BF16, int K, int V, int WARPS, int NUMBERS, int DEPTH, int BLOCKS, bool ARE_MANY>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) delta_decode(struct cuda_delta call) {
    constexpr int LANES = K / NUMBERS, ROWS = 32 / LANES * WARPS, TURNS = V / ROWS;
    constexpr uint32_t ROW_BYTES = K * (IS_BF16 ? 2 : 4);
    static_assert(V % ROWS == 0 && TURNS % DEPTH == 0, "whole turns");
    CUDA_SHARED __align__(16) delta_shared<K, V> shared;
    const uint32_t key_head = blockIdx.x % call.k_heads, own_row = threadIdx.x / LANES;
    const struct delta_group group = group_of(call, key_head);
    if (!call.is_next) wait_for_before();
    let_next_start();
    const struct cuda_state_item item = call.items[blockIdx.x / call.k_heads];
    const bool is_old = item.from != CUDA_STATE_NONE;
    const size_t begin = ((size_t)key_head * group.count * V + own_row) * ROW_BYTES;
    const char *from = slot_at(call.states, is_old ? item.from : item.to) + begin;
    char *to = slot_at(call.states, item.to) + begin;
    lane_words<IS_BF16, NUMBERS> words[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        read_lane<IS_BF16, K, ARE_MANY, NUMBERS>(&words[d], from + (size_t)d * ROWS * ROW_BYTES,
                                                 is_old);
    prepare<K, V>(call, item, key_head, group, &shared);
    __syncthreads();
    const delta_keys<NUMBERS> keys = keys_of<IS_BF16, K, NUMBERS>(shared.qkv);
    const uint32_t turns = group.count * TURNS;
    for (uint32_t turn = 0; turn < turns; turn += DEPTH) {
        const struct delta_head head = shared.heads[turn / TURNS];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const uint32_t at = (turn + d) * ROWS;
            float *place = shared.qkv + 2 * K + at + own_row; /* place of v, then of the output */
            struct numbers<NUMBERS> row = lane_numbers<IS_BF16, NUMBERS>(words[d]);
            const float o = update_row(keys, head, *place, LANES, &row);
            write_lane<IS_BF16, K, ARE_MANY, NUMBERS>(row, to + (size_t)at * ROW_BYTES);
            __syncwarp(); /* every lane has read v */
            if (threadIdx.x % LANES == 0) *place = o;
            if (turn + d + DEPTH < turns)
                read_lane<IS_BF16, K, ARE_MANY, NUMBERS>(
                    &words[d], from + (size_t)(at + DEPTH * ROWS) * ROW_BYTES, is_old);
        }
    }
    __syncthreads();
    leave_output<V>(call, item, group, shared.qkv + 2 * K, shared.gate);
    /* One block is enough: this launch then ends after the chunks. */
    if (call.is_next && blockIdx.x == gridDim.x - 1) wait_for_before();
}

/* ---- the choice ---- */

#define FEW_BLOCKS 264 /* two per multiprocessor of an H100 or H200: below, blocks are wide */

template <bool IS_BF16, int D>
static enum err launch(const struct cuda_delta *call, cudaStream_t stream, struct error *error) {
    constexpr int WIDE = D == 128 ? 16 : 8; /* warps */
    /* Measured on an H200, the share of a copy's rate: float32 91 %, with 16 numbers, 2 turns and 6
     * blocks 85 %; bf16 81 %, with 16 numbers, 8 turns and 4 blocks 75 %. */
    constexpr int NUMBERS = D == 128 ? 8 : LANE_NUMBERS;
    constexpr int DEPTH = D != 128 ? 2 : IS_BF16 ? 8 : 4;
    constexpr int BLOCKS = D == 128 ? 6 : 4;
    const uint32_t blocks = call->item_count * call->k_heads;
    if (blocks <= FEW_BLOCKS)
        return launch_dependent("delta_decode", error, stream, blocks, WIDE * 32, 0,
                                delta_decode < IS_BF16, D, D, WIDE, LANE_NUMBERS, D == 128 ? 2 : 1,
                                1, false >, *call);
    const bool are_many =
        (uint64_t)call->item_count * call->v_heads * D * D * (IS_BF16 ? 2 : 4) >= STATES_OF_MANY;
    return launch_dependent("delta_decode", error, stream, blocks, 128, 0,
                            are_many
                                ? delta_decode<IS_BF16, D, D, 4, NUMBERS, DEPTH, BLOCKS, true>
                                : delta_decode<IS_BF16, D, D, 4, NUMBERS, DEPTH, BLOCKS, false>,
                            *call);
}

enum err cuda_delta_decode(const struct cuda_delta *call, struct CUstream_st *stream,
                           struct error *error) {
    const enum err code = cuda_delta_check(call, error);
    if (code != OK) return code;
    if (call->k_dim == 128)
        return call->states.is_bf16 ? launch<true, 128>(call, stream, error)
                                    : launch<false, 128>(call, stream, error);
    return call->states.is_bf16 ? launch<true, 64>(call, stream, error)
                                : launch<false, 64>(call, stream, error);
}

CUDA_MODULE(delta_decode, delta_decode<false, 128, 128, 4, 8, 4, 6, false>)

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

#include "gpu/cuda/delta_decode.cuh"
#include "gpu/cuda/delta_ways.h"

/* A block has WARPS warps; each has DEPTH turns of rows under way. BLOCKS are on a multiprocessor.
 */
template <bool IS_BF16, int K, int V, int WARPS, int DEPTH, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) delta_decode(struct cuda_delta call) {
    constexpr int LANES = K / LANE_NUMBERS, ROWS = 32 / LANES * WARPS, TURNS = V / ROWS;
    constexpr uint32_t ROW_BYTES = K * (IS_BF16 ? 2 : 4);
    static_assert(V % ROWS == 0 && TURNS % DEPTH == 0, "whole turns");
    CUDA_SHARED __align__(16) delta_shared<K, V> shared;
    const uint32_t key_head = blockIdx.x % call.k_heads, group = call.v_heads / call.k_heads;
    const uint32_t own_row = threadIdx.x / LANES, first = key_head * group;
    wait_for_before();
    let_next_start();
    const struct cuda_state_item item = call.items[blockIdx.x / call.k_heads];
    const bool is_old = item.from != CUDA_STATE_NONE;
    const size_t begin = ((size_t)first * V + own_row) * ROW_BYTES;
    const char *from = slot_at(call.states, is_old ? item.from : item.to) + begin;
    char *to = slot_at(call.states, item.to) + begin;
    lane_words<IS_BF16> words[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        read_lane<IS_BF16, K>(&words[d], from + (size_t)d * ROWS * ROW_BYTES, is_old);
    prepare<K, V>(call, item, key_head, group, &shared);
    __syncthreads();
    const struct delta_keys keys = keys_of<IS_BF16, K>(shared.qkv);
    const uint32_t turns = group * TURNS;
    for (uint32_t turn = 0; turn < turns; turn += DEPTH) {
        const struct delta_head head = shared.heads[turn / TURNS];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const uint32_t at = (turn + d) * ROWS;
            float *place = shared.qkv + 2 * K + at + own_row; /* place of v, then of the output */
            struct numbers<LANE_NUMBERS> row = lane_numbers<IS_BF16>(words[d]);
            const float o = update_row(keys, head, *place, LANES, &row);
            write_lane<IS_BF16, K>(row, to + (size_t)at * ROW_BYTES);
            __syncwarp(); /* every lane has read v */
            if (threadIdx.x % LANES == 0) *place = o;
            if (turn + d + DEPTH < turns)
                read_lane<IS_BF16, K>(&words[d], from + (size_t)(at + DEPTH * ROWS) * ROW_BYTES,
                                      is_old);
        }
    }
    __syncthreads();
    leave_output<V>(call, item, first, group, shared.qkv + 2 * K, shared.gate);
}

/* ---- the choice ---- */

#define FEW_BLOCKS 264 /* two per multiprocessor of an H100 or H200: below, blocks are wide */

template <bool IS_BF16, int D>
static enum err launch(const struct cuda_delta *call, cudaStream_t stream, struct error *error) {
    constexpr int WIDE = D == 128 ? 16 : 8; /* warps */
    /* Measured on an H200: 4 turns and 4 blocks have 74 % of a copy's rate in float32, these 80-83
     * %. */
    constexpr int DEPTH = D == 128 && IS_BF16 ? 8 : 2;
    constexpr int BLOCKS = D == 128 && !IS_BF16 ? 6 : 4;
    const uint32_t blocks = call->item_count * call->k_heads;
    if (blocks <= FEW_BLOCKS)
        return launch_dependent("delta_decode", error, stream, blocks, WIDE * 32, 0,
                                delta_decode < IS_BF16, D, D, WIDE, D == 128 ? 2 : 1, 1 >, *call);
    return launch_dependent("delta_decode", error, stream, blocks, 128, 0,
                            delta_decode<IS_BF16, D, D, 4, DEPTH, BLOCKS>, *call);
}

enum err cuda_delta_registers(const struct cuda_delta *call, struct CUstream_st *stream,
                              struct error *error) {
    if (call->k_dim == 128)
        return call->states.is_bf16 ? launch<true, 128>(call, stream, error)
                                    : launch<false, 128>(call, stream, error);
    return call->states.is_bf16 ? launch<true, 64>(call, stream, error)
                                : launch<false, 64>(call, stream, error);
}

enum err cuda_delta_decode_by(const struct cuda_delta *call, enum cuda_delta_way way,
                              struct CUstream_st *stream, struct error *error) {
    const uint32_t blocks = call->item_count * call->k_heads;
    if (call->item_count == 0) return OK;
    const enum err code = cuda_delta_check(call, error);
    if (code != OK) return code;
    return way != CUDA_DELTA_REGISTERS && blocks > FEW_BLOCKS && cuda_delta_has(call, way)
               ? cuda_delta_bulk(call, way, stream, error)
               : cuda_delta_registers(call, stream, error);
}

enum err cuda_delta_decode(const struct cuda_delta *call, struct CUstream_st *stream,
                           struct error *error) {
    return cuda_delta_decode_by(call, CUDA_DELTA_REGISTERS, stream, error);
}

CUDA_MODULE(delta_decode, delta_decode<false, 128, 128, 4, 2, 6>)

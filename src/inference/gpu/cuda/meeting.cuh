/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* meeting: how the ranks of a call meet, and the sums of what they brought (gpu/cuda/reduce.h). All
 * kernels that add parts do it by these functions, in the order of the ranks, so a sum has the same
 * bits everywhere. */

#include "gpu/cuda/peer.cuh"
#include "gpu/cuda/reduce.h"
#include "gpu/cuda/vec.cuh"

/* Tells every other rank that this rank's part is there: all kernels before this one are done. */
__device__ static inline void say_there(const struct cuda_meeting &call) {
    const uint32_t to = threadIdx.x;
    if (blockIdx.x == 0 && to < call.ranks && to != call.rank && call.words[to])
        cuda_peer_say(call.words[to] + call.rank, call.number);
}

/* Waits until every other rank has told this one. False: the host has given up. */
__device__ static inline bool await_all(const struct cuda_meeting &call) {
    const uint32_t from = threadIdx.x;
    bool is_there = true;
    if (from < call.ranks && from != call.rank && call.words[call.rank])
        is_there = cuda_peer_await(call.words[call.rank] + from, call.number, call.given_up);
    return !__syncthreads_or(!is_there);
}

template <int RANKS> struct raw_parts { uint4 of[RANKS]; };

template <int RANKS>
__device__ static inline struct raw_parts<RANKS> read_parts(const struct cuda_meeting &call,
                                                            size_t at) {
    struct raw_parts<RANKS> raw;
#pragma unroll
    for (int i = 0; i < RANKS; i++)
        if (i < (int)call.ranks) raw.of[i] = cuda_peer_read(call.parts[i] + at);
    return raw;
}

/* The sum of the parts, in the order of the ranks, and the bias. */
template <int RANKS>
__device__ static inline eight sum_of_parts(const struct cuda_meeting &call, const float *bias,
                                            uint32_t at, const struct raw_parts<RANKS> &raw) {
    eight sum = {};
#pragma unroll
    for (int k = 0; k < RANKS; k++) {
        if (k >= (int)call.ranks) continue;
        const uint32_t words[] = {raw.of[k].x, raw.of[k].y, raw.of[k].z, raw.of[k].w};
        const eight part = bf16_numbers<EACH>(words);
#pragma unroll
        for (int i = 0; i < EACH; i++) sum.at[i] = __fadd_rn(sum.at[i], part.at[i]);
    }
    if (bias) {
        const eight more = read_f32<EACH>(bias + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) sum.at[i] = __fadd_rn(sum.at[i], more.at[i]);
    }
    return sum;
}

static inline bool is_meeting_fit(const struct cuda_meeting *meeting) {
    bool is_well =
        meeting->ranks >= 2 && meeting->ranks <= CUDA_RANKS_MAX && meeting->rank < meeting->ranks;
    for (uint32_t i = 0; is_well && i < meeting->ranks; i++)
        is_well = meeting->parts[i] && is_at_16(meeting->parts[i]);
    return is_well;
}

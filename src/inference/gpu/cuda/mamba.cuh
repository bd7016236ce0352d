/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mamba: the launches of a call of Mamba-2 (recurrent.h), and what they share. mamba.cu has their
 * order. A row of `room` is x | B | C behind the convolution, in float32; what a head leaves takes
 * the place of its x. */

#include "gpu/cuda/recurrent.cuh"

/* What the numbers of a head are for one row. */
struct mamba_rate {
    float step, decay;
};
__device__ static inline struct mamba_rate mamba_rate_of(const struct cuda_mamba &call,
                                                         uint32_t head, float dt) {
    float step = softplus(fmaf(dt, call.dt_factor, call.dt_bias[head]));
    step = fminf(fmaxf(step, call.dt_min), call.dt_max);
    return {step, expf(-step * expf(call.a_log[head]))};
}

/* s = decay s + in b; returns this lane's part of s c. */
__device__ static inline float mamba_advance(struct numbers<LANE_NUMBERS> *s, float decay, float in,
                                             const struct numbers<LANE_NUMBERS> &b,
                                             const struct numbers<LANE_NUMBERS> &c) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i++) {
        s->at[i] = fmaf(in, b.at[i], decay * s->at[i]);
        sum = fmaf(s->at[i], c.at[i], sum);
    }
    return sum;
}

static inline uint32_t mamba_channels(const struct cuda_mamba *call) {
    return call->heads * call->head_dim + 2 * call->groups * call->state_dim;
}

/* The items of several rows, and the decoded ones. */
enum err mamba_launch_prompts(const struct cuda_mamba *call, cudaStream_t stream,
                              struct error *error);
enum err mamba_launch_decode(const struct cuda_mamba *call, cudaStream_t stream,
                             struct error *error);

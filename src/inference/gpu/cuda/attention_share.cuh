/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_share: by what the sums of a row and head are multiplied when they become its result.
 * With sinks (gpt-oss) a head has one more score, which has no value: it takes its share of the
 * weights once, where the result is left, and partials know nothing of it. */

#include "gpu/cuda/attention.h"
#include "gpu/cuda/ptx.cuh"

/* 1 / Σ weights, of what was gathered with the largest score m (in powers of two) and the sum l. */
__device__ static inline float cuda_share(const struct cuda_attention *call, uint32_t head, float m,
                                          float l) {
    if (!call->sinks) return l > 0 ? 1 / l : 0;
    const float sink = __ldg(call->sinks + head) * 1.44269504f; /* log2 e */
    const float most = fmaxf(m, sink), mine = cuda_exp2(m - most);
    return mine / (l * mine + cuda_exp2(sink - most));
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_turn: where a kernel of attention waits for the launch before it. Every thread waits
 * once, also in a block that has no work: so a launch ends after the one before, and whoever waits
 * for the last launch of an attention has waited for all of them. */

#include "gpu/cuda/attention.h"
#include "gpu/cuda/launch.cuh"

/* Before the first key or query is read. Keys and queries are written before the first launch of an
 * attention begins, so a block of a later launch finds them complete. Its multiprocessor may hold
 * older bytes of them in its L1: they are read by cp.async.cg and __ldcg. */
__device__ static inline void cuda_attention_begin(const struct cuda_attention *call) {
    if (!call->is_next) wait_for_before();
    let_next_start();
}

/* Before the first partial is read, and before anything is written. */
__device__ static inline void cuda_attention_meet(const struct cuda_attention *call) {
    if (call->is_next) wait_for_before();
}

/* In a block that has no work. */
__device__ static inline void cuda_attention_pass(const struct cuda_attention *call) {
    cuda_attention_begin(call);
    cuda_attention_meet(call);
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* meet, emulated: what src/inference/gpu/cuda/meet.cuh promises, in plain C. Blocks run one after
 * another, so a count is in order as it is. */

#include <cuda_runtime.h>

void emulated_meet_some(uint32_t id, uint32_t threads, bool is_waiting);
static inline void cuda_meet_at(uint32_t id, uint32_t threads) {
    emulated_meet_some(id, threads, true);
}
static inline void cuda_pass_at(uint32_t id, uint32_t threads) {
    emulated_meet_some(id, threads, false);
}
static inline uint32_t cuda_add_in_order(uint32_t *at, uint32_t value) {
    const uint32_t before = *at;
    *at = before + value;
    return before;
}
static inline uint32_t cuda_read_in_order(const uint32_t *at) {
    return *at;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reduce_world: the GPUs of this machine that reach each other's memory, for the checks and the
 * bench of gpu/cuda/reduce.h. */

#include "harness.h"

extern "C" {
#include "gpu/cuda/reduce.h"
}

struct ranks {
    uint32_t count;                       /* 1: there is nothing to check */
    cudaStream_t streams[CUDA_RANKS_MAX]; /* rank i is GPU i */
    uint32_t *words[CUDA_RANKS_MAX];
};
struct ranks *all_ranks(void); /* found at the first call */
/* Words of the first ranks, all of that value, until gpu_release(). */
void take_words(struct ranks *ranks, uint32_t count, uint32_t value);
/* Waits for the first ranks; any error ends the program. GPU 0 is the current one again. */
void ranks_settle(const struct ranks *ranks, uint32_t count);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dependent, emulated: one block after another, from the first or from the last, one launch after
 * another. As a GPU does, it refuses a launch without blocks. */

extern "C" {
#include "base/err.h"
}

#include <cuda_runtime.h>

#include <string.h>

static inline void wait_for_before(void) {
}
static inline void let_next_start(void) {
}

template <class... Parameters, class... Arguments>
static enum err launch_dependent(const char *name, struct error *error, cudaStream_t, dim3 grid,
                                 dim3 block, size_t, void (*kernel)(Parameters...),
                                 Arguments... arguments) {
    auto body = [&] { kernel(arguments...); };
    if (grid.x == 0) return OK; /* as launches.h has it */
    if (grid.y == 0 || grid.z == 0) return err_set(error, ERR_IO, "%s: no blocks", name);
    /* Bits of a number, so that each of several launches by turns has both. Not where blocks wait
     * for the first one of another GPU. */
    static thread_local uint32_t launches;
    const bool is_backwards =
        !strcmp(name, "grouped product") && __builtin_popcount(launches++) % 2;
    gridDim = grid;
    for (uint32_t row = 0; row < grid.y * grid.z; row++)
        for (uint32_t i = 0; i < grid.x; i++) {
            blockIdx.y = row % grid.y, blockIdx.z = row / grid.y;
            emulated_block(
                is_backwards ? grid.x - 1 - i : i, block.x,
                [](void *context) { (*(decltype(body) *)context)(); }, &body);
        }
    return OK;
}

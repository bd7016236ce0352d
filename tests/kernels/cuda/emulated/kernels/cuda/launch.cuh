/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* launch, emulated: one block after another, one launch after another. */

extern "C" {
#include "base/err.h"
}

#include <cuda_runtime.h>

/* By turns, so that the shapes for small cards are checked too. */
static inline bool cuda_has_shared(size_t) {
    static unsigned turn;
    return turn++ % 2 == 0;
}

static inline void wait_for_before(void) {
}
static inline void let_next_start(void) {
}

template <auto KERNEL, class... GIVES>
static inline enum err cuda_launch(const char *, uint32_t blocks, uint32_t threads, size_t,
                                   cudaStream_t, struct error *, const GIVES &...arguments) {
    auto body = [&] { KERNEL(arguments...); };
    for (uint32_t i = 0; i < blocks; i++)
        emulated_block(
            i, threads, [](void *context) { (*(decltype(body) *)context)(); }, &body);
    return OK;
}

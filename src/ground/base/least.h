/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* least: the smaller and the larger of two numbers.
 *
 * Thread: any; pure.
 * Memory: none. */

#include <stddef.h>
#include <stdint.h>

static inline uint32_t least_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static inline uint32_t most_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static inline uint64_t least_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t most_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static inline size_t least_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t most_size(size_t a, size_t b) {
    return a > b ? a : b;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* min_max: the smaller and the larger of two numbers.
 *
 * Thread: any; pure.
 * Memory: none. */

#include <stddef.h>
#include <stdint.h>

static inline uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

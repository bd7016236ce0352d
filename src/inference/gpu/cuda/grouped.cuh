/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grouped: where codes and scales of grouped.h stand, and what their bits mean. */

#include "gpu/cuda/grouped.h"
#include "gpu/cuda/ptx.cuh"

#include <cuda_runtime.h>

/* A scale and what is to be added to the sum of codes: value = scale · code + minimum. */
struct grouped_factors {
    float scale, minimum;
};

__device__ static inline struct grouped_factors grouped_factors(enum grouping kind, uint32_t word) {
    const float low = cuda_low_f16(word), high = cuda_high_f16(word);
    return {low, kind == GROUPED_ZEROS ? __fmul_rn(low, high) : high};
}

/* The factors for codes as grouped_wide has them; `part`: 1 for the second half of the group. */
template <int KIND>
__device__ static inline struct grouped_factors grouped_wide_factors(uint32_t word, int part) {
    if (KIND == GROUPED_E2M1) return {__uint_as_float(word << 16), 0};
    struct grouped_factors by = grouped_factors((enum grouping)KIND, word);
    if (KIND == GROUPED_BYTES) {
        by.scale = part ? by.minimum : by.scale;
        by.minimum = -160.0f * by.scale;
    } else {
        by.minimum = __fmaf_rn(-128.0f, by.scale, by.minimum);
    }
    return by;
}

/* Eight codes of a line as bf16, neighbours in a word. A code q becomes 128 + q by one logical
 * instruction, since that number has q in its last bits. A number of e2m1 has the bits of a bf16
 * that is 2^-126 times as large, also where it is subnormal, and is multiplied back. */
template <int KIND>
__device__ static inline void grouped_wide(uint32_t (&ret)[4], const uint4 *raw, int component) {
    const uint32_t first[4] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w};
    if constexpr (KIND == GROUPED_BYTES) {
        const uint32_t second[4] = {raw[1].x, raw[1].y, raw[1].z, raw[1].w};
        ret[0] = __byte_perm(first[component], 0x43434343u, 0x4140);
        ret[1] = __byte_perm(first[component], 0x43434343u, 0x4342);
        ret[2] = __byte_perm(second[component], 0x43434343u, 0x4140);
        ret[3] = __byte_perm(second[component], 0x43434343u, 0x4342);
        return;
    }
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const uint32_t pair = first[component] >> (4 * p);
        ret[p] = KIND == GROUPED_E2M1
                     ? cuda_times_bf16((pair << 12 & 0x80008000u) | (pair << 6 & 0x01c001c0u),
                                       0x7e807e80u)
                     : cuda_and_or(pair, 0x000f000fu, 0x43004300u);
    }
}

/* Bytes of a block of lines. */
template <int KIND> __device__ static inline size_t grouped_block_bytes(uint32_t groups) {
    return (size_t)groups * ((KIND == GROUPED_BYTES ? 1024 : 512) + GROUPED_SCALE_BYTES);
}

/* Codes of a group for a lane, behind which the next 512 B have the second half's. */
template <int KIND>
__device__ static inline const uint4 *grouped_codes(const char *block, uint32_t group) {
    return (const uint4 *)(block + (size_t)group * (KIND == GROUPED_BYTES ? 1024 : 512)) +
           threadIdx.x % 32;
}

template <int KIND>
__device__ static inline const uint4 *grouped_scales(const char *block, uint32_t groups,
                                                     uint32_t group) {
    return (const uint4 *)(block + (size_t)groups * (KIND == GROUPED_BYTES ? 1024 : 512) +
                           (size_t)group * GROUPED_SCALE_BYTES) +
           threadIdx.x % 32 / 4;
}

/* Code i of a word of eight: those of even places first, so that words shifted by four bits have
 * neighbours 16 bits apart. */
__device__ static inline uint32_t grouped_shift(uint32_t i) {
    return (i / 2 + i % 2 * 4) * 4;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cuda_fp16, emulated: the conversions that kernels use. */

#include <cuda_runtime.h>

extern "C" {
#include "kernels/quant.h"
}

struct __half {
    uint16_t bits;
};
static inline __half __ushort_as_half(uint16_t bits) {
    return {bits};
}
static inline float __half2float(__half half) {
    return half_to_f32(half.bits);
}

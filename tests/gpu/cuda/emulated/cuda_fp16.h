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
static inline uint16_t __half_as_ushort(__half half) {
    return half.bits;
}
static inline __half __float2half_rn(float value) {
    return {half_from_f32(value)};
}
/* The least half that is no less; for numbers above 0, whose bits have their order. */
static inline __half __float2half_ru(float value) {
    uint16_t bits = 0x7c00;
    for (uint16_t step = 0x4000; step > 0; step /= 2) /* the greatest that is less, plus one */
        if (bits > step && half_to_f32((uint16_t)(bits - step)) >= value) bits -= step;
    return {bits};
}
static inline float __half2float(__half half) {
    return half_to_f32(half.bits);
}

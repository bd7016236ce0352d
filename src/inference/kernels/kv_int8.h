/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_int8: how a token's key or value of one head becomes bytes: whole steps, nearest even, of its
 * largest element / 127. It knows no cache; kernels.h has the order of the bytes.
 *
 * Thread: any.
 * Memory: none. */

#include <stdint.h>

#define KV_INT8_MOST 127        /* steps of the largest element */
#define KV_INT8_ZERO 128        /* what is added to the steps of a key: vpdpbusd wants no signs */
#define KV_INT8_LARGEST 0x1p48f /* larger elements are held to it: products of two are finite */
#define KV_INT8_LEAST 0x1p-96f  /* a smaller largest element counts as zero */
#define KV_INT8_STEPS_BYTES 64  /* steps of the 16 tokens of a block, before their bytes */

/* The step of a row whose elements are at most `largest`, and steps per 1. NaN stays NaN: it
 * reaches every score and sum that it takes part in. */
static inline float kv_int8_step(float largest, float *ret_per_one) {
    if (largest > KV_INT8_LARGEST) largest = KV_INT8_LARGEST;
    *ret_per_one = largest < KV_INT8_LEAST ? 0 : KV_INT8_MOST / largest;
    return largest < KV_INT8_LEAST ? 0 : largest / KV_INT8_MOST;
}

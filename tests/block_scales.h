/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* block_scales: where the scales of each type of quantised block lie. Tests make random blocks, and
 * random scales would make absurd weights.
 *
 * A scale is an IEEE half. MXFP4 (both orders) and INT4 have other scales; the tests treat them by
 * name.
 *
 * Thread: any.
 * Memory: constant. */

#include "kernels/quant.h"

#include <stddef.h>

struct block_scales {
    enum tensor_type type;
    unsigned char at;    /* offset of the first half */
    unsigned char count; /* number of adjacent halves */
    unsigned char high;  /* high byte of a half with which the weights are below 1 */
};

static const struct block_scales block_scales[] = {
    {TENSOR_Q4_0, 0, 1, 0x20},   {TENSOR_Q4_1, 0, 2, 0x20},   {TENSOR_Q5_0, 0, 1, 0x20},
    {TENSOR_Q5_1, 0, 2, 0x20},   {TENSOR_Q8_0, 0, 1, 0x20},   {TENSOR_Q2_K, 80, 2, 0x1C},
    {TENSOR_Q3_K, 108, 1, 0x1C}, {TENSOR_Q4_K, 0, 2, 0x14},   {TENSOR_Q5_K, 0, 2, 0x10},
    {TENSOR_Q6_K, 208, 1, 0x0C}, {TENSOR_IQ4_NL, 0, 1, 0x18}, {TENSOR_IQ4_XS, 0, 1, 0x08},
};

/* NULL for a type without a row. */
static inline const struct block_scales *block_scales_find(uint32_t type) {
    for (size_t i = 0; i < sizeof block_scales / sizeof *block_scales; i++)
        if ((uint32_t)block_scales[i].type == type) return &block_scales[i];
    return NULL;
}

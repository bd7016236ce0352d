/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* unpack: weights that a file stores in another form than kernels/ reads, as bf16 rows.
 *
 * It knows the layouts, no names and no files: whoever fills a struct packed_weight has checked
 * that its runs of bytes are as long as the shapes say and that `groups` are in range.
 *
 * Thread: any; pure.  Memory: the caller's.
 * Sources: the FP8 E4M3 format of the Open Compute Project (OFP8); the public descriptions of
 * compressed-tensors; AutoAWQ's "gemm" and AutoGPTQ's layouts. */

#include "kernels/pool.h"
#include "kernels/quant.h"

enum packing {
    PACKING_FP8, /* value = e4m3 · scale of the element's block */
    PACKING_AWQ, /* value = (q - zero) · scale, eight outputs a word in the order 0 2 4 6 1 3 5 7 */
    PACKING_GPTQ,  /* value = (q - zero) · scale, neighbouring inputs in a word */
    PACKING_DUMMY, /* no bytes: centre ± spread, the same on every run */
};

/* A weight of `rows` outputs and `cols` inputs. All bytes are borrowed and unaligned. */
struct packed_weight {
    enum packing packing;
    uint32_t rows;
    uint32_t cols;
    const unsigned char *values; /* FP8: u8 (rows, cols). AWQ: u32 (cols, rows / 8). GPTQ: u32
                                    (cols / (32 / bits), rows) */
    const unsigned char *scales; /* FP8: (scale_rows, scale_cols). AWQ, GPTQ: (groups, rows) */
    enum tensor_type scale_type; /* F32, F16 or BF16 */
    uint32_t block_rows;         /* FP8: outputs that share a scale */
    uint32_t block_cols;         /* FP8: inputs that do; AWQ, GPTQ: the group */
    uint32_t scale_cols;         /* FP8 */
    const unsigned char *zeros;  /* AWQ, GPTQ: u32 (groups, rows / (32 / bits)), as the values */
    const unsigned char *groups; /* GPTQ: u32 (cols), each input's group; NULL: in order */
    uint32_t bits;               /* AWQ: 4. GPTQ: 4 or 8 */
    uint32_t zero_add;           /* added to each zero point */
    float centre, spread;        /* DUMMY */
    uint64_t seed;               /* DUMMY */
};

float unpack_e4m3(uint8_t byte);

/* Writes all values, rounded to bf16 from (float) q, zero and scale: ret_values (rows, cols). */
void unpack_weight(const struct packed_weight *weight, struct pool *pool, uint16_t *ret_values);

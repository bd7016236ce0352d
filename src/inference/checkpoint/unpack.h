/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* unpack: turns weights that a file stores in a form which kernels/ cannot read into rows of bf16,
 * or of INT4, which keeps the integers of AWQ and GPTQ exactly.
 *
 * It knows the layouts, no names and no files. The code that fills a struct packed_weight has
 * checked that its runs of bytes are as long as the shapes say, and that `groups` are in range.
 *
 * Sources: the FP8 E4M3 format of the Open Compute Project (OFP8); the public descriptions of
 * compressed-tensors; AutoAWQ's "gemm" and AutoGPTQ's layouts.
 *
 * Thread: any; pure.
 * Memory: the caller's. */

#include "kernels/pool.h"
#include "kernels/quant.h"

#define NVFP4_GROUP 16u

enum packing {
    PACKING_FP8,    /* value = e4m3 · scale of the element's block */
    PACKING_AWQ,    /* (q - zero) · scale; a word has 8 outputs in the order 0 2 4 6 1 3 5 7 */
    PACKING_GPTQ,   /* value = (q - zero) · scale; a word has neighbouring inputs */
    PACKING_ROWS,   /* (q - zero) · scale; a word has neighbouring inputs of one output */
    PACKING_INT8,   /* value = q · scale of the element's block */
    PACKING_NVFP4,  /* 4-bit floats, neighbours in a byte, times an e4m3 for 16 of them · factor */
    PACKING_MXFP4,  /* 4-bit floats, neighbours in a byte, times a power of two for 32 of them */
    PACKING_TURNED, /* numbers of 16 or 32 bits, the outputs of an input next to each other */
    PACKING_DUMMY,  /* no bytes: values in centre ± spread, the same on every run */
};

/* A weight of `rows` outputs and `cols` inputs. All bytes are borrowed and unaligned. */
struct packed_weight {
    enum packing packing;
    enum tensor_type
        type;      /* type of the unpacked rows: BF16, of MXFP4 that type, of TURNED its own,
                              or INT4 for AWQ and GPTQ of 4 bits
                              with cols and block_cols multiples of 32 and without `groups` */
    uint32_t rows; /* in each matrix */
    uint32_t cols;
    const unsigned char *values; /* FP8: u8 (rows, cols). AWQ: u32 (cols, rows / 8). GPTQ: u32
                                    (cols / (32 / bits), rows). MXFP4: u8 (matrices, rows, cols
                                    / 2). ROWS: u32 (rows, cols / (32 / bits), rounded up). INT8:
                                    i8 (rows, cols). NVFP4: u8 (rows, cols / 2). TURNED: (matrices,
                                    cols, rows) */
    const unsigned char *scales; /* FP8: (scale_rows, scale_cols). AWQ, GPTQ: (groups, rows).
                                    MXFP4: u8 (matrices, rows, cols / 32). ROWS, INT8: (rows or
                                    1, scale_cols). NVFP4: e4m3 (rows, cols / 16) */
    enum tensor_type scale_type; /* F32, F16 or BF16 */
    uint32_t block_rows;         /* FP8: outputs that share a scale */
    uint32_t block_cols;         /* FP8, AWQ, GPTQ: inputs that share a scale */
    uint32_t scale_cols;         /* FP8 */
    const unsigned char *zeros;  /* AWQ, GPTQ: u32 (groups, rows / (32 / bits)), as `values`. ROWS:
                                    u32 (rows / (32 / bits), groups), or NULL: half of the range */
    float factor;                /* NVFP4 */
    const unsigned char *groups; /* GPTQ, ROWS: u32 (cols), each input's group; NULL: in order */
    uint32_t bits;               /* AWQ: 4. GPTQ, ROWS: 4 or 8 */
    uint32_t zero_add;           /* added to each zero point */
    float centre, spread;        /* DUMMY */
    uint64_t seed;               /* DUMMY */
};

/* Writes all rows of matrix `slice` (MXFP4 and TURNED; 0 for the others) in the weight's type. A
 * BF16 value is computed in float32 and rounded once. ret_rows: (rows,
 * tensor_type_row_bytes), aligned to 2. */
void unpack_weight(const struct packed_weight *weight, uint32_t slice, struct pool *pool,
                   void *ret_rows);

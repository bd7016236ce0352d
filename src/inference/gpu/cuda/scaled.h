/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scaled: products of INT8 that leave scaled bf16, and those of gate and up with the activation in
 * them, in kernels of our own.
 *
 * cuBLASLt leaves int32 sums in memory, four bytes per number, which the next kernel reads again.
 * Here a thread has its sums in registers when the product ends: it scales them, makes one number
 * of gate and up, and writes bf16. Where tiles would leave much of the GPU idle, products.h and
 * rows.h do the same in two steps. scaled_tile.cuh is for sm_90a, scaled_mma.cuh for other GPUs.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; nothing is allocated.
 * Invariant: a row's result is bitwise the same for any other rows of the call. */

#include "gpu/cuda/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is left of a row of sums s, scaled: all of them, or act(s[i]) · s[i + outputs / 2]. */
enum cuda_ending { CUDA_END_SCALED, CUDA_END_SILU, CUDA_END_GELU_TANH };

/* y = ending(rows · weightsᵀ). Rows and weights are INT8, both mixed (rows.h) or neither. */
struct cuda_scaled {
    enum cuda_ending ending;
    uint32_t outputs; /* a multiple of 8; of 16 with a gate */
    uint32_t inputs;  /* a multiple of 16 */
    uint32_t rows;
    const void *weights;          /* (outputs, inputs); gate, then up */
    const void *in;               /* (rows, inputs) */
    const float *row_scale;       /* (rows) */
    const uint16_t *column_scale; /* (outputs) bf16 */
    void *y;                      /* (rows, outputs) bf16; with a gate (rows, outputs / 2) */
};

/* Whether it is faster than a product and the scaling behind it. */
bool cuda_scaled_pays(enum cuda_ending ending, uint32_t outputs, uint32_t rows);

/* Enqueues it. ERR_INVALID when it cannot be computed here. */
enum err cuda_scaled(const struct cuda_scaled *call, struct CUstream_st *stream,
                     struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* texts: what a step of whole texts does to its rows beside rows.h: the norms and the activation
 * of encoders, and the sums of the rows of a text. rows.h says how numbers lie and who waits.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; nothing is allocated.
 * Invariant: a row's result, and a text's sum, is bitwise the same for any other rows of the call.
 */

#ifdef __cplusplus
extern "C" {
#endif

#include "gpu/cuda/rows.h"
#include "gpu/table.h"

/* x += h; y = (x - mean) / √(variance + epsilon) · weight + bias; x may become y. */
struct cuda_layer_norm {
    float *x; /* (rows, x_stride), changed when there is an h or when it is replaced */
    size_t x_stride;
    struct cuda_product h; /* sums NULL: nothing to add */
    const float *weight;   /* (width) */
    const float *bias;     /* (width) or NULL */
    bool replaces;         /* x = y */
    struct cuda_rows y;
    uint32_t width; /* a multiple of 8, as the strides; at most 8,192 */
    uint32_t rows;
    float epsilon;
};
enum err cuda_layer_norm(const struct cuda_layer_norm *call, struct CUstream_st *stream,
                         struct error *error) MUST_CHECK;

/* y = gelu(in), with the error function; or gelu(gate) · up, where a row of `in` is gate (width),
 * then up (width). Off by 2e-7 · |in| at most. */
struct cuda_gelu {
    struct cuda_product in;
    bool is_gated;
    struct cuda_rows y;
    uint32_t width; /* a multiple of 8, as the strides */
    uint32_t rows;
};
enum err cuda_gelu(const struct cuda_gelu *call, struct CUstream_st *stream,
                   struct error *error) MUST_CHECK;

/* Row i of y is the sum of the rows of pool i. */
struct cuda_pool {
    const uint16_t *from; /* (rows, from_stride) bf16 */
    size_t from_stride;
    const struct gpu_pool *pools; /* (count) */
    uint32_t count;
    float *y; /* (count, y_stride) */
    size_t y_stride;
    uint32_t width; /* a multiple of 8, as the strides */
};
enum err cuda_pool(const struct cuda_pool *call, struct CUstream_st *stream,
                   struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

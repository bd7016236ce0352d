/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* unpack: rows of a file's tensor types as what products read: bf16, or e4m3 or int8 with a scale
 * a row.
 *
 * To bf16 it is quant_row_to_f32 of kernels/quant.h rounded to bf16, bit for bit (but for which NaN
 * a NaN becomes). The scale of a row of 8-bit codes is a bf16 number, rounded up, so that whoever
 * reads a product reads two bytes of it; it is made first, so the codes are exact for it. Rows of
 * int8 are mixed and divided by 4 (struct cuda_rows). A row whose numbers are e4m3 times any one
 * number keeps them in e4m3, but for a power of two: the rows of a file in FP8, which would else be
 * rounded a second time. Its scale is the nearest bf16 number.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; every call only enqueues. */

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"
#include "gpu/cuda/rows.h"
#include "kernels/quant.h"

struct cuda_unpack {
    const void *blocks; /* (…, tensor_type_row_bytes) file rows without gaps, at a multiple of 16 */
    enum tensor_type type;
    const uint32_t *row_order; /* (rows) or NULL: row i becomes file row row_order[i] */
    uint32_t rows;
    uint32_t cols; /* a multiple of the type's block */
    enum cuda_code code;
    void *codes;      /* (rows, stride), at a multiple of 16 */
    size_t stride;    /* a multiple of 8 */
    uint16_t *scales; /* (rows) bf16, written unless the code is BF16 */
};
enum err cuda_unpack(const struct cuda_unpack *call, struct CUstream_st *stream,
                     struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* products: rows times the transpose of a weight matrix, by cuBLASLt.
 *
 * The library (541 MB) is found at run time and not linked. For each format, matrix shape and
 * bucket of rows its algorithms are timed once on the GPU, for its own first choice is 3 % slower
 * on average and up to 68 % (docs/internals/inference/gpu-kernels.md); the best are kept and can be
 * written to a file. Rows are rounded up to a bucket (gpu/row_bucket.h): whoever calls gives memory
 * for that many, and what stands in the rows past the last is computed and ignored.
 *
 * 8-bit products leave raw sums: gpu/cuda/rows.h says who scales them.
 *
 * Thread: one.
 * Memory: one workspace of GPU memory, owned; the rest is the caller's. Nothing is allocated
 *     after open and tune.
 * Invariant: a shape's algorithm never changes once chosen, so equal inputs give equal bits. */

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"
#include "gpu/row_bucket.h"

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct cuda_products;

#define CUDA_ALGORITHMS 8 /* most algorithms for a shape; cuBLASLt 13.1 never returns more */

enum cuda_format {
    CUDA_FORMAT_BF16,     /* bf16 · bf16 → bf16 */
    CUDA_FORMAT_BF16_F32, /* bf16 · bf16 → float32, for logits */
    CUDA_FORMAT_E4M3,     /* e4m3 · e4m3 → bf16 */
    CUDA_FORMAT_E4M3_F32, /* e4m3 · e4m3 → float32 */
    CUDA_FORMAT_INT8,     /* int8 · int8 → int32 */
    CUDA_FORMAT_COUNT,
};
size_t cuda_format_in_bytes(enum cuda_format format);
size_t cuda_format_out_bytes(enum cuda_format format);

/* Opens the library at `path`; NULL: where the loader looks, next to this code, or where CUDA
 * installs itself. ERR_UNAVAILABLE without it; ERR_LIMIT without GPU memory.
 * `workspace_bytes` of GPU memory are taken; 8 MiB was the most any algorithm wanted of 32. */
enum err cuda_products_open(struct cuda_products **ret_products, const char *path,
                            size_t workspace_bytes, struct error *error) MUST_CHECK;
void cuda_products_close(struct cuda_products *products); /* NULL is allowed */

/* sums (bucket, outputs) = rows (bucket, inputs) · weightsᵀ (outputs, inputs). All pointers at
 * multiples of 16; inputs a multiple of 16, outputs of 8. */
struct cuda_multiply {
    enum cuda_format format;
    uint32_t outputs;
    uint32_t inputs;
    uint32_t rows; /* memory is there for row_bucket(rows) */
    const void *weights;
    const void *in;
    void *sums;
    /* So many products side by side, one for each head, if it is not 0: a row of `in` is
     * (batch, inputs), a row of sums (batch, outputs + gap), and the weights are one behind
     * another. What stands in the gaps stays. */
    uint32_t batch;
    uint32_t gap; /* a multiple of 8 */
};

/* Times up to eight algorithms for the shape of `call` and keeps the best; about 20 ms. `copies`
 * weights of the same shape, `copy_bytes` apart from call->weights on, are taken in turn so that
 * they come from memory, as in a step. The algorithm of a recalled shape runs once, so that its
 * code is loaded; nothing is done when the shape was timed. Waits for the stream. ERR_INVALID when
 * the library has no algorithm for it. */
enum err cuda_products_tune(struct cuda_products *products, const struct cuda_multiply *call,
                            uint32_t copies, size_t copy_bytes, struct CUstream_st *stream,
                            struct error *error) MUST_CHECK;

/* Enqueues the product. ERR_NOT_FOUND when its shape was neither timed nor recalled. */
enum err cuda_multiply(struct cuda_products *products, const struct cuda_multiply *call,
                       struct CUstream_st *stream, struct error *error) MUST_CHECK;

/* Takes the choices of notes (products_notes.h) that a process with the same library, driver, GPU
 * and build left; how many they are. Algorithms that the library refuses now are left out. */
uint32_t cuda_products_recall(struct cuda_products *products, const char *notes, size_t bytes);
/* All choices as notes, which live until the next call or close. False: no shape was timed, so that
 * recalled notes have them all. */
bool cuda_products_tell(struct cuda_products *products, const char **ret_notes, size_t *ret_bytes);

/* For reports: which algorithm of a shape was chosen, and how long each took; all were timed by
 * turns. */
struct cuda_chosen {
    uint32_t found;            /* algorithms timed; 0 when it was recalled */
    uint32_t which;            /* index of the chosen one */
    float us[CUDA_ALGORITHMS]; /* per launch; [0]: the library's first choice; negative: refused */
    size_t workspace_bytes;
};
bool cuda_products_chosen(const struct cuda_products *products, const struct cuda_multiply *call,
                          struct cuda_chosen *ret_chosen);

#ifdef __cplusplus
}
#endif

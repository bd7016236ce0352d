/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* products_library: cuBLASLt's functions, found at run time; private to products*.cu. */

#include "products.h"

#include <cublasLt.h>

#define LT_FUNCTIONS(X)                                                                            \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)

struct lt_library {
#define X(name) decltype(&::name) name;
    LT_FUNCTIONS(X)
#undef X
    void *handle; /* handle from dlopen */
};

#define SHAPES_MAX 1024

/* One shape: its descriptors and the algorithm chosen for it. */
struct lt_shape {
    enum cuda_format format;
    uint32_t outputs;
    uint32_t inputs;
    uint32_t bucket;
    uint32_t batch;
    uint32_t gap;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t weights;
    cublasLtMatrixLayout_t in;
    cublasLtMatrixLayout_t sums;
    cublasLtMatmulAlgo_t algorithm;
    struct cuda_chosen chosen;
    bool has_run; /* so its code is on the GPU */
};

struct cuda_products {
    struct lt_library library;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    size_t workspace_bytes;
    cudaEvent_t begin;
    cudaEvent_t end;
    char *notes;    /* that were told last */
    bool has_timed; /* a shape that no recalled notes had */
    uint32_t shape_count;
    struct lt_shape shapes[SHAPES_MAX];
};

/* Makes the descriptors of a shape without an algorithm; lt_shape_drop undoes it. */
enum err lt_shape_make(const struct cuda_products *products, const struct cuda_multiply *call,
                       struct lt_shape *ret_shape, struct error *error) MUST_CHECK;
void lt_shape_drop(const struct cuda_products *products, struct lt_shape *shape);
const struct lt_shape *lt_shape_find(const struct cuda_products *products,
                                     const struct cuda_multiply *call);
cublasStatus_t lt_multiply(const struct cuda_products *products, const struct lt_shape *shape,
                           const cublasLtMatmulAlgo_t *algorithm, const void *weights,
                           const void *in, void *sums, cudaStream_t stream);

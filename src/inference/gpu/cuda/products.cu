/* SPDX-License-Identifier: Apache-2.0 */
#include "products_library.cuh"
#include "products_load.h"
#include "products_places.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct format_facts {
    cudaDataType_t in;
    cudaDataType_t out;
    cudaDataType_t scale;
    cublasComputeType_t compute;
    size_t in_bytes;
    size_t out_bytes;
    bool is_fast; /* sums of e4m3 stay in 14 bits of the tensor cores for longer: 9–13 % faster, an
                     error of 0.003 where quantising costs 0.026 */
};
static const struct format_facts formats[CUDA_FORMAT_COUNT] = {
    {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, 2, false},
    {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, 4, false},
    {CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1, 2, true},
    {CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1, 4, true},
    {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 1, 4, false},
};

size_t cuda_format_in_bytes(enum cuda_format format) {
    return formats[format].in_bytes;
}

size_t cuda_format_out_bytes(enum cuda_format format) {
    return formats[format].out_bytes;
}

/* ---- the library ---- */

static enum err open_library(struct lt_library *ret, const char *path, struct error *error) {
    Dl_info plugin;
    char own[PATH_MAX] = "";
    if (dladdr(formats, &plugin) != 0 && strchr(plugin.dli_fname, '/') &&
        strlen(plugin.dli_fname) < sizeof own) {
        memcpy(own, plugin.dli_fname, strlen(plugin.dli_fname) + 1);
        strrchr(own, '/')[1] = '\0';
    }
    const char *const folders[] = {"", own, PRODUCTS_FOLDERS};
    enum err err =
        products_load(&ret->handle, path, folders, sizeof folders / sizeof *folders, error);
    if (err != OK) return err;
#define X(name)                                                                                    \
    ret->name = (decltype(ret->name))dlsym(ret->handle, #name);                                    \
    if (!ret->name)                                                                                \
        return err_set(error, ERR_UNAVAILABLE,                                                     \
                       "cuBLASLt has no %s: install cuBLAS of CUDA 12 or 13", #name);
    LT_FUNCTIONS(X)
#undef X
    return OK;
}

/* ERR_LIMIT: the GPU has no memory for it, so that the caller may ask again. */
static enum err make_handle(struct cuda_products *products, struct error *error) {
    cublasStatus_t status = products->library.cublasLtCreate(&products->handle);
    if (status == CUBLAS_STATUS_SUCCESS) return OK;
    if (status == CUBLAS_STATUS_ALLOC_FAILED || cudaGetLastError() == cudaErrorMemoryAllocation)
        return err_set(error, ERR_LIMIT, "no device memory for cuBLASLt");
    return err_set(error, ERR_UNAVAILABLE,
                   "cuBLASLt refuses this GPU with status %d: install cuBLAS of a CUDA that the "
                   "driver runs (see nvidia-smi), or run with --device cpu",
                   (int)status);
}

enum err cuda_products_open(struct cuda_products **ret_products, const char *path,
                            size_t workspace_bytes, struct error *error) {
    struct cuda_products *products = (struct cuda_products *)calloc(1, sizeof *products);
    if (!products) return err_set(error, ERR_LIMIT, "no memory for products");
    enum err err = open_library(&products->library, path, error);
    products->workspace_bytes = workspace_bytes;
    if (err == OK) err = make_handle(products, error);
    if (err == OK && (products->library.cublasLtMatmulPreferenceCreate(&products->preference) !=
                          CUBLAS_STATUS_SUCCESS ||
                      products->library.cublasLtMatmulPreferenceSetAttribute(
                          products->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                          &workspace_bytes, sizeof workspace_bytes) != CUBLAS_STATUS_SUCCESS))
        err = err_set(error, ERR_IO, "cuBLASLt refuses a preference");
    if (err == OK && (cudaMalloc(&products->workspace, workspace_bytes) != cudaSuccess ||
                      cudaEventCreate(&products->begin) != cudaSuccess ||
                      cudaEventCreate(&products->end) != cudaSuccess))
        err = err_set(error, ERR_LIMIT, "no device memory for products");
    if (err == OK)
        *ret_products = products;
    else
        cuda_products_close(products);
    return err;
}

void cuda_products_close(struct cuda_products *products) {
    if (!products) return;
    for (uint32_t i = 0; i < products->shape_count; i++)
        lt_shape_drop(products, &products->shapes[i]);
    if (products->preference)
        products->library.cublasLtMatmulPreferenceDestroy(products->preference);
    if (products->handle) products->library.cublasLtDestroy(products->handle);
    if (products->begin) (void)cudaEventDestroy(products->begin);
    if (products->end) (void)cudaEventDestroy(products->end);
    if (products->workspace) (void)cudaFree(products->workspace);
    if (products->library.handle) dlclose(products->library.handle);
    free(products->notes);
    free(products);
}

/* ---- shapes ---- */

void lt_shape_drop(const struct cuda_products *products, struct lt_shape *shape) {
    const struct lt_library *library = &products->library;
    if (shape->product) library->cublasLtMatmulDescDestroy(shape->product);
    if (shape->weights) library->cublasLtMatrixLayoutDestroy(shape->weights);
    if (shape->in) library->cublasLtMatrixLayoutDestroy(shape->in);
    if (shape->sums) library->cublasLtMatrixLayoutDestroy(shape->sums);
}

/* A matrix of the library, whose columns are `stride` numbers apart, or `batch` of them, each
 * `apart` numbers behind the one before. */
static bool layout_make(const struct lt_library *library, cudaDataType_t type, uint64_t rows,
                        uint64_t columns, int64_t stride, int32_t batch, int64_t apart,
                        cublasLtMatrixLayout_t *ret_layout) {
    if (library->cublasLtMatrixLayoutCreate(ret_layout, type, rows, columns, stride) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    return batch == 0 ||
           (library->cublasLtMatrixLayoutSetAttribute(*ret_layout,
                                                      CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                      sizeof batch) == CUBLAS_STATUS_SUCCESS &&
            library->cublasLtMatrixLayoutSetAttribute(
                *ret_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart) ==
                CUBLAS_STATUS_SUCCESS);
}

/* cuBLASLt counts columns first: its A is the weights, its B the rows, its D the sums. */
static bool layouts_make(const struct lt_library *library, const struct format_facts *facts,
                         struct lt_shape *shape) {
    const int64_t inputs = shape->inputs, outputs = shape->outputs, apart = outputs + shape->gap;
    const int32_t batch = (int32_t)shape->batch;
    const int64_t side = batch > 0 ? batch : 1;
    return layout_make(library, facts->in, shape->inputs, shape->outputs, inputs, batch,
                       inputs * outputs, &shape->weights) &&
           layout_make(library, facts->in, shape->inputs, shape->bucket, side * inputs, batch,
                       inputs, &shape->in) &&
           layout_make(library, facts->out, shape->outputs, shape->bucket, side * apart, batch,
                       apart, &shape->sums);
}

enum err lt_shape_make(const struct cuda_products *products, const struct cuda_multiply *call,
                       struct lt_shape *ret_shape, struct error *error) {
    const struct lt_library *library = &products->library;
    const struct format_facts *facts = &formats[call->format];
    struct lt_shape shape = {call->format,           call->outputs, call->inputs,
                             row_bucket(call->rows), call->batch,   call->gap};
    cublasOperation_t transposed = CUBLAS_OP_T;
    int8_t fast = 1;
    bool is_made =
        library->cublasLtMatmulDescCreate(&shape.product, facts->compute, facts->scale) ==
            CUBLAS_STATUS_SUCCESS &&
        library->cublasLtMatmulDescSetAttribute(shape.product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                &transposed,
                                                sizeof transposed) == CUBLAS_STATUS_SUCCESS &&
        (!facts->is_fast ||
         library->cublasLtMatmulDescSetAttribute(shape.product, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                                 &fast, sizeof fast) == CUBLAS_STATUS_SUCCESS) &&
        layouts_make(library, facts, &shape);
    if (is_made) {
        *ret_shape = shape;
        return OK;
    }
    lt_shape_drop(products, &shape);
    return err_set(error, ERR_INVALID, "cuBLASLt refuses a product of %u x %u", shape.outputs,
                   shape.inputs);
}

const struct lt_shape *lt_shape_find(const struct cuda_products *products,
                                     const struct cuda_multiply *call) {
    uint32_t bucket = row_bucket(call->rows);
    for (uint32_t i = 0; i < products->shape_count; i++) {
        const struct lt_shape *shape = &products->shapes[i];
        if (shape->outputs == call->outputs && shape->inputs == call->inputs &&
            shape->bucket == bucket && shape->format == call->format &&
            shape->batch == call->batch && shape->gap == call->gap)
            return shape;
    }
    return NULL;
}

bool cuda_products_chosen(const struct cuda_products *products, const struct cuda_multiply *call,
                          struct cuda_chosen *ret_chosen) {
    const struct lt_shape *shape = lt_shape_find(products, call);
    if (!shape) return false;
    *ret_chosen = shape->chosen;
    return true;
}

/* ---- the product ---- */

cublasStatus_t lt_multiply(const struct cuda_products *products, const struct lt_shape *shape,
                           const cublasLtMatmulAlgo_t *algorithm, const void *weights,
                           const void *in, void *sums, cudaStream_t stream) {
    const float one = 1, zero = 0;
    const int32_t one_int = 1, zero_int = 0;
    bool is_int = formats[shape->format].scale == CUDA_R_32I;
    const void *alpha = is_int ? (const void *)&one_int : &one;
    const void *beta = is_int ? (const void *)&zero_int : &zero;
    return products->library.cublasLtMatmul(products->handle, shape->product, alpha, weights,
                                            shape->weights, in, shape->in, beta, sums, shape->sums,
                                            sums, shape->sums, algorithm, products->workspace,
                                            products->workspace_bytes, stream);
}

enum err cuda_multiply(struct cuda_products *products, const struct cuda_multiply *call,
                       struct CUstream_st *stream, struct error *error) {
    if (call->rows == 0) return OK;
    const struct lt_shape *shape = lt_shape_find(products, call);
    if (!shape)
        return err_set(error, ERR_NOT_FOUND, "no algorithm for %u rows of %u x %u", call->rows,
                       call->outputs, call->inputs);
    cublasStatus_t status = lt_multiply(products, shape, &shape->algorithm, call->weights, call->in,
                                        call->sums, stream);
    if (status == CUBLAS_STATUS_SUCCESS) return OK;
    return err_set(error, ERR_IO, "cuBLASLt: status %d for %u rows of %u x %u", (int)status,
                   call->rows, call->outputs, call->inputs);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* products_tune: which algorithm is best for a shape, by trying; and the file that remembers. */

#include "products_library.cuh"

#include <stdio.h>
#include <string.h>

#define ALGORITHMS 8 /* cuBLASLt 13.1 never returns more */
#define ROUNDS 3
#define ROUND_US 600.0f
#define LAUNCHES_MAX 40

struct timing {
    const struct cuda_products *products;
    const struct lt_shape *shape;
    const struct cuda_multiply *call;
    uint32_t copies;
    size_t copy_bytes;
    cudaStream_t stream;
    uint32_t next; /* copy */
};

/* Microseconds a launch over `count` of them, or a negative number when one is refused. */
static float round_us(struct timing *timing, const cublasLtMatmulAlgo_t *algorithm, int count) {
    const struct cuda_products *products = timing->products;
    bool is_well = cudaEventRecord(products->begin, timing->stream) == cudaSuccess;
    for (int i = 0; i < count && is_well; i++) {
        const char *weights = (const char *)timing->call->weights +
                              (timing->next++ % timing->copies) * timing->copy_bytes;
        is_well = lt_multiply(products, timing->shape, algorithm, weights, timing->call->in,
                              timing->call->sums, timing->stream) == CUBLAS_STATUS_SUCCESS;
    }
    float ms;
    is_well = is_well && cudaEventRecord(products->end, timing->stream) == cudaSuccess &&
              cudaEventSynchronize(products->end) == cudaSuccess &&
              cudaEventElapsedTime(&ms, products->begin, products->end) == cudaSuccess;
    (void)cudaGetLastError();
    return is_well ? ms * 1000 / (float)count : -1;
}

/* The median round of one algorithm; the first launch loads its kernel and does not count. */
static float algorithm_us(struct timing *timing, const cublasLtMatmulAlgo_t *algorithm) {
    float rounds[ROUNDS];
    if (round_us(timing, algorithm, 1) < 0) return -1;
    float once = round_us(timing, algorithm, 3);
    if (once < 0) return -1;
    float wanted = ROUND_US / (once > 1 ? once : 1);
    int count = wanted < 3 ? 3 : wanted > LAUNCHES_MAX ? LAUNCHES_MAX : (int)wanted;
    for (int i = 0; i < ROUNDS; i++) {
        rounds[i] = round_us(timing, algorithm, count);
        if (rounds[i] < 0) return -1;
        for (int k = i; k > 0 && rounds[k] < rounds[k - 1]; k--) {
            float later = rounds[k];
            rounds[k] = rounds[k - 1];
            rounds[k - 1] = later;
        }
    }
    return rounds[ROUNDS / 2];
}

enum err cuda_products_tune(struct cuda_products *products, const struct cuda_multiply *call,
                            uint32_t copies, size_t copy_bytes, struct CUstream_st *stream,
                            struct error *error) {
    if (lt_shape_find(products, call)) return OK;
    if (products->shape_count == SHAPES_MAX)
        return err_set(error, ERR_LIMIT, "more than %d shapes of products", SHAPES_MAX);
    struct lt_shape *shape = &products->shapes[products->shape_count];
    enum err err = lt_shape_make(products, call, shape, error);
    if (err != OK) return err;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    int count = 0;
    cublasStatus_t status = products->library.cublasLtMatmulAlgoGetHeuristic(
        products->handle, shape->product, shape->weights, shape->in, shape->sums, shape->sums,
        products->preference, ALGORITHMS, found, &count);
    struct timing timing = {products, shape, call, copies ? copies : 1, copy_bytes, stream, 0};
    struct cuda_chosen chosen = {(uint32_t)count, 0, -1, -1, 0};
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++) {
        float us = algorithm_us(&timing, &found[i].algo);
        if (i == 0) chosen.first_us = us;
        if (us < 0 || (chosen.chosen_us >= 0 && us >= chosen.chosen_us)) continue;
        chosen.chosen_us = us, chosen.which = (uint32_t)i;
        chosen.workspace_bytes = found[i].workspaceSize;
        shape->algorithm = found[i].algo;
    }
    if (chosen.chosen_us < 0) {
        lt_shape_drop(products, shape);
        return err_set(error, ERR_INVALID, "cuBLASLt has no algorithm for %u rows of %u x %u",
                       call->rows, call->outputs, call->inputs);
    }
    shape->chosen = chosen;
    products->shape_count++;
    return OK;
}

/* ---- the file ---- */

#define FILE_VERSION 1
#define LINE_BYTES 512
#define WORDS (sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t))

/* Names what the choices hold for: file version, library, card. */
static void name_of(const struct cuda_products *products, char ret[LINE_BYTES]) {
    cudaDeviceProp card;
    int device = 0;
    memset(&card, 0, sizeof card);
    (void)cudaGetDevice(&device);
    (void)cudaGetDeviceProperties(&card, device);
    (void)snprintf(ret, LINE_BYTES, "products %d cublasLt %zu %s sm_%d%d %d\n", FILE_VERSION,
                   products->library.cublasLtGetVersion(), card.name, card.major, card.minor,
                   card.multiProcessorCount);
}

enum err cuda_products_write(const struct cuda_products *products, const char *path,
                             struct error *error) {
    char name[LINE_BYTES];
    name_of(products, name);
    FILE *file = fopen(path, "we");
    if (!file) return err_set(error, ERR_IO, "%s: cannot be written", path);
    bool is_well = fputs(name, file) >= 0;
    for (uint32_t i = 0; i < products->shape_count; i++) {
        const struct lt_shape *shape = &products->shapes[i];
        uint64_t words[WORDS];
        memcpy(words, &shape->algorithm, sizeof words);
        is_well &= fprintf(file, "%d %u %u %u %zu", (int)shape->format, shape->outputs,
                           shape->inputs, shape->bucket, shape->chosen.workspace_bytes) > 0;
        for (uint64_t word : words) is_well &= fprintf(file, " %llx", (unsigned long long)word) > 0;
        is_well &= fputc('\n', file) != EOF;
    }
    if (fclose(file) != 0 || !is_well) return err_set(error, ERR_IO, "%s: cannot be written", path);
    return OK;
}

/* One line into the next free shape. False when it is no such line. */
static bool read_line(struct cuda_products *products, const char *line) {
    int format, used;
    struct cuda_multiply call = {};
    uint64_t words[WORDS];
    size_t workspace_bytes;
    if (sscanf(line, "%d %u %u %u %zu%n", &format, &call.outputs, &call.inputs, &call.rows,
               &workspace_bytes, &used) != 5)
        return false;
    for (size_t i = 0; i < WORDS; i++) {
        unsigned long long word;
        int length;
        if (sscanf(line + used, " %llx%n", &word, &length) != 1) return false;
        words[i] = word, used += length;
    }
    if (format < 0 || format >= CUDA_FORMAT_COUNT || call.rows == 0 || call.outputs == 0 ||
        call.inputs == 0 || cuda_bucket(call.rows) != call.rows)
        return false;
    call.format = (enum cuda_format)format;
    if (lt_shape_find(products, &call) || products->shape_count == SHAPES_MAX) return true;
    struct lt_shape *shape = &products->shapes[products->shape_count];
    struct error ignored;
    if (lt_shape_make(products, &call, shape, &ignored) != OK) return true;
    memcpy(&shape->algorithm, words, sizeof words);
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t status = products->library.cublasLtMatmulAlgoCheck(
        products->handle, shape->product, shape->weights, shape->in, shape->sums, shape->sums,
        &shape->algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > products->workspace_bytes) {
        lt_shape_drop(products, shape);
        return true;
    }
    shape->chosen = {0, 0, -1, -1, workspace_bytes};
    products->shape_count++;
    return true;
}

enum err cuda_products_read(struct cuda_products *products, const char *path, struct error *error) {
    char name[LINE_BYTES], line[LINE_BYTES];
    name_of(products, name);
    FILE *file = fopen(path, "re");
    if (!file) return err_set(error, ERR_NOT_FOUND, "%s: cannot be read", path);
    enum err err = OK;
    if (!fgets(line, sizeof line, file) || strncmp(line, "products ", 9) != 0)
        err = err_set(error, ERR_CORRUPT, "%s: no choices of products", path);
    else if (strcmp(line, name) != 0)
        err = err_set(error, ERR_CONFLICT, "%s: of another library or card", path);
    while (err == OK && fgets(line, sizeof line, file))
        if (!read_line(products, line))
            err = err_set(error, ERR_CORRUPT, "%s: a line is broken", path);
    (void)fclose(file);
    return err;
}

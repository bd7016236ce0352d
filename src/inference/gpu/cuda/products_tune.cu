/* SPDX-License-Identifier: Apache-2.0 */

/* products_tune: which algorithm is best for a shape, by trying; and the notes of the choices.
 *
 * The launches of a round are recorded as a graph. A host that starts them one by one is slower
 * than the GPU at times, and then all algorithms seem alike: 4 or 5 of 84 shapes got one with less
 * than 95 % of the best one's speed (docs/internals/inference/gpu-kernels.md). */

#include "products_library.cuh"
#include "products_notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* An algorithm that is tried. */
struct candidate {
    const cublasLtMatmulAlgo_t *algorithm;
    int launches;          /* launches in a round; 0: it is refused */
    cudaGraphExec_t round; /* these launches; NULL: the host starts each */
    float us;              /* time of a launch in the shortest round; negative: it is refused */
};

static bool launch_all(struct timing *timing, const struct candidate *candidate) {
    bool is_well = true;
    for (int i = 0; i < candidate->launches && is_well; i++) {
        const char *weights = (const char *)timing->call->weights +
                              (timing->next++ % timing->copies) * timing->copy_bytes;
        is_well = lt_multiply(timing->products, timing->shape, candidate->algorithm, weights,
                              timing->call->in, timing->call->sums,
                              timing->stream) == CUBLAS_STATUS_SUCCESS;
    }
    return is_well;
}

/* Microseconds per launch over a round, or a negative number when one is refused. */
static float round_us(struct timing *timing, const struct candidate *candidate) {
    const struct cuda_products *products = timing->products;
    float ms;
    bool is_well =
        cudaEventRecord(products->begin, timing->stream) == cudaSuccess &&
        (candidate->round ? cudaGraphLaunch(candidate->round, timing->stream) == cudaSuccess
                          : launch_all(timing, candidate)) &&
        cudaEventRecord(products->end, timing->stream) == cudaSuccess &&
        cudaEventSynchronize(products->end) == cudaSuccess &&
        cudaEventElapsedTime(&ms, products->begin, products->end) == cudaSuccess;
    (void)cudaGetLastError();
    return is_well ? ms * 1000 / (float)candidate->launches : -1;
}

/* How many launches a round has; 0: the algorithm is refused. The first launch loads its kernel and
 * does not count. */
static int launches_of_round(struct timing *timing, const cublasLtMatmulAlgo_t *algorithm) {
    struct candidate few = {algorithm, 1, NULL, 0};
    if (round_us(timing, &few) < 0) return 0;
    few.launches = 3;
    float once = round_us(timing, &few);
    if (once < 0) return 0;
    float wanted = ROUND_US / (once > 1 ? once : 1);
    return wanted < 3 ? 3 : wanted > LAUNCHES_MAX ? LAUNCHES_MAX : (int)wanted;
}

/* The launches of a round as a graph on the GPU; NULL when the driver refuses. */
static cudaGraphExec_t record_round(struct timing *timing, const struct candidate *candidate) {
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t round = NULL;
    if (cudaStreamBeginCapture(timing->stream, cudaStreamCaptureModeRelaxed) != cudaSuccess)
        return NULL;
    bool is_well = launch_all(timing, candidate);
    is_well = cudaStreamEndCapture(timing->stream, &recorded) == cudaSuccess && is_well;
    if (is_well && cudaGraphInstantiate(&round, recorded, 0) == cudaSuccess)
        (void)cudaGraphUpload(round, timing->stream);
    if (recorded) (void)cudaGraphDestroy(recorded);
    return round;
}

/* Times each algorithm by its shortest round: what else happens on host and GPU only makes a round
 * longer. All by turns, so that the GPU is as warm for the last as for the first. */
static void time_all(struct timing *timing, const cublasLtMatmulHeuristicResult_t *found, int count,
                     float ret_us[CUDA_ALGORITHMS]) {
    struct candidate candidates[CUDA_ALGORITHMS];
    for (int i = 0; i < count; i++) {
        candidates[i] = {&found[i].algo, launches_of_round(timing, &found[i].algo), NULL, -1};
        if (candidates[i].launches > 0) candidates[i].round = record_round(timing, &candidates[i]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            struct candidate *candidate = &candidates[i];
            if (candidate->launches == 0) continue;
            float us = round_us(timing, candidate);
            if (us < 0) candidate->launches = 0;
            if (us < candidate->us || round == 0) candidate->us = us;
        }
    for (int i = 0; i < count; i++) {
        ret_us[i] = candidates[i].us;
        if (candidates[i].round) (void)cudaGraphExecDestroy(candidates[i].round);
    }
}

/* Runs the algorithm of a recalled shape once; a shape whose algorithm fails is forgotten. */
static bool run_recalled(struct cuda_products *products, const struct cuda_multiply *call,
                         cudaStream_t stream) {
    struct lt_shape *shape = (struct lt_shape *)lt_shape_find(products, call);
    if (!shape || shape->has_run) return shape != NULL;
    struct timing timing = {products, shape, call, 1, 0, stream, 0};
    const struct candidate once = {&shape->algorithm, 1, NULL, 0};
    shape->has_run = round_us(&timing, &once) >= 0;
    if (shape->has_run) return true;
    lt_shape_drop(products, shape);
    *shape = products->shapes[--products->shape_count];
    return false;
}

enum err cuda_products_tune(struct cuda_products *products, const struct cuda_multiply *call,
                            uint32_t copies, size_t copy_bytes, struct CUstream_st *stream,
                            struct error *error) {
    if (run_recalled(products, call, stream)) return OK;
    if (products->shape_count == SHAPES_MAX)
        return err_set(error, ERR_LIMIT, "more than %d shapes of products", SHAPES_MAX);
    struct lt_shape *shape = &products->shapes[products->shape_count];
    enum err err = lt_shape_make(products, call, shape, error);
    if (err != OK) return err;
    cublasLtMatmulHeuristicResult_t found[CUDA_ALGORITHMS];
    int count = 0;
    cublasStatus_t status = products->library.cublasLtMatmulAlgoGetHeuristic(
        products->handle, shape->product, shape->weights, shape->in, shape->sums, shape->sums,
        products->preference, CUDA_ALGORITHMS, found, &count);
    struct timing timing = {products, shape, call, copies ? copies : 1, copy_bytes, stream, 0};
    if (status != CUBLAS_STATUS_SUCCESS) count = 0;
    struct cuda_chosen chosen = {};
    chosen.found = (uint32_t)count;
    time_all(&timing, found, count, chosen.us);
    int best = -1;
    for (int i = 0; i < count; i++)
        if (chosen.us[i] >= 0 && (best < 0 || chosen.us[i] < chosen.us[best])) best = i;
    if (best < 0) {
        lt_shape_drop(products, shape);
        return err_set(error, ERR_INVALID, "cuBLASLt has no algorithm for %u rows of %u x %u",
                       call->rows, call->outputs, call->inputs);
    }
    chosen.which = (uint32_t)best, chosen.workspace_bytes = found[best].workspaceSize;
    shape->algorithm = found[best].algo;
    shape->chosen = chosen;
    shape->has_run = products->has_timed = true;
    products->shape_count++;
    return OK;
}

/* ---- notes ---- */

#define NOTES_VERSION 3 /* 2: chosen by graphs; 3: products side by side */
#define NAME_BYTES 320

static_assert(sizeof(cublasLtMatmulAlgo_t) == PRODUCTS_NOTE_WORDS * sizeof(uint64_t),
              "an algorithm is what notes have room for");

/* Names what the choices hold for: their version, build, library, driver and GPU. */
static void name_of(const struct cuda_products *products, char ret[NAME_BYTES]) {
    cudaDeviceProp card = {};
    int gpu = 0, driver = 0;
    char uuid[2 * sizeof card.uuid.bytes + 1] = "";
    (void)cudaGetDevice(&gpu);
    (void)cudaGetDeviceProperties(&card, gpu);
    (void)cudaDriverGetVersion(&driver);
    for (size_t i = 0; i < sizeof card.uuid.bytes; i++)
        (void)snprintf(uuid + 2 * i, 3, "%02x", (unsigned)(uint8_t)card.uuid.bytes[i]);
    (void)snprintf(ret, NAME_BYTES, "products %d quern %s cublasLt %zu driver %d %s sm_%d%d %d %s",
                   NOTES_VERSION, QUERN_VERSION, products->library.cublasLtGetVersion(), driver,
                   uuid, card.major, card.minor, card.multiProcessorCount, card.name);
}

/* A choice into the next free shape, unless the shape is known or the library refuses it. */
static bool recall(struct cuda_products *products, const struct products_note *note) {
    const struct cuda_multiply call = {.format = (enum cuda_format)note->format,
                                       .outputs = note->outputs,
                                       .inputs = note->inputs,
                                       .rows = note->bucket,
                                       .batch = note->batch,
                                       .gap = note->gap};
    struct lt_shape *shape = &products->shapes[products->shape_count];
    struct error ignored;
    if (note->format >= CUDA_FORMAT_COUNT || note->outputs == 0 || note->inputs == 0 ||
        note->bucket == 0 || row_bucket(note->bucket) != note->bucket ||
        lt_shape_find(products, &call) || products->shape_count == SHAPES_MAX ||
        lt_shape_make(products, &call, shape, &ignored) != OK)
        return false;
    memcpy(&shape->algorithm, note->words, sizeof shape->algorithm);
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t status = products->library.cublasLtMatmulAlgoCheck(
        products->handle, shape->product, shape->weights, shape->in, shape->sums, shape->sums,
        &shape->algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > products->workspace_bytes) {
        lt_shape_drop(products, shape);
        return false;
    }
    shape->chosen = {};
    shape->chosen.workspace_bytes = (size_t)note->workspace_bytes;
    shape->has_run = false;
    products->shape_count++;
    return true;
}

uint32_t cuda_products_recall(struct cuda_products *products, const char *notes, size_t bytes) {
    char name[NAME_BYTES];
    struct products_note *all = (struct products_note *)calloc(SHAPES_MAX, sizeof *all);
    uint32_t recalled = 0;
    if (!all) return 0;
    name_of(products, name);
    const uint32_t count = products_notes_read(notes, bytes, name, all, SHAPES_MAX);
    for (uint32_t i = 0; i < count; i++) recalled += recall(products, &all[i]);
    free(all);
    return recalled;
}

bool cuda_products_tell(struct cuda_products *products, const char **ret_notes, size_t *ret_bytes) {
    char name[NAME_BYTES];
    struct products_note *all = (struct products_note *)calloc(SHAPES_MAX, sizeof *all);
    free(products->notes);
    products->notes = NULL;
    for (uint32_t i = 0; all && i < products->shape_count; i++) {
        const struct lt_shape *shape = &products->shapes[i];
        all[i] = {(uint32_t)shape->format,
                  shape->outputs,
                  shape->inputs,
                  shape->bucket,
                  shape->batch,
                  shape->gap,
                  shape->chosen.workspace_bytes};
        memcpy(all[i].words, &shape->algorithm, sizeof all[i].words);
    }
    name_of(products, name);
    if (all && products->has_timed)
        products->notes = products_notes_write(name, all, products->shape_count, ret_bytes);
    free(all);
    *ret_notes = products->notes;
    return products->notes != NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/modules.h"
#include "gpu/cuda/scaled_mma.cuh"
#include "gpu/cuda/scaled_tile.cuh"

/* Weights per tile of sm_90a. Fewer of them read rows more often, and are taken where they leave
 * less of the GPU idle in the last turn: 2,560 outputs of 2,048 rows are 80 tiles of 256 for 66
 * clusters, and 128 of 160. */
typedef tile_shape<CUDA_END_SCALED, 256> scaled_256;
typedef tile_shape<CUDA_END_SCALED, 192> scaled_192;
typedef tile_shape<CUDA_END_SCALED, 160> scaled_160;
typedef tile_shape<CUDA_END_SILU, 256> silu_256;
typedef tile_shape<CUDA_END_GELU_TANH, 256> gelu_256;
static const uint32_t widths[] = {256, 192, 160};

template <class S> static uint32_t held(void) {
    return cuda_clusters_held<scaled_tiles<S>>(THREADS, S::SHARED_BYTES);
}

/* How many clusters of any of the kernels the GPU holds; 0 where scaled_mma.cuh is taken. Asking
 * loads them all, before a step. */
static uint32_t clusters_held(void) {
    const uint32_t all[] = {held<scaled_256>(), held<scaled_192>(), held<scaled_160>(),
                            held<silu_256>(), held<gelu_256>()};
    uint32_t least = all[0];
    for (uint32_t one : all)
        if (one < least) least = one;
    return least;
}

/* ---- tiles and turns ---- */

/* What computes tiles side by side: clusters, or blocks of scaled_mma.cuh. */
struct workers {
    uint32_t count;
    uint32_t rows; /* rows in a tile */
    bool are_clusters;
};

static struct workers workers_of_card(void) {
    int card = 0, multiprocessors = 0;
    const uint32_t clusters = clusters_held();
    if (clusters > 0) return {clusters, TILE_ROWS * CUDA_CLUSTER, true};
    if (cudaGetDevice(&card) != cudaSuccess ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, card) !=
            cudaSuccess)
        return {0, MMA_ROWS, false};
    return {(uint32_t)multiprocessors, MMA_ROWS, false};
}

static uint32_t tiles_of(uint32_t outputs, uint32_t rows, uint32_t columns,
                         const struct workers *workers) {
    return (rows + workers->rows - 1) / workers->rows * ((outputs + columns - 1) / columns);
}

static uint32_t turns_of(uint32_t outputs, uint32_t rows, uint32_t columns,
                         const struct workers *workers) {
    return (tiles_of(outputs, rows, columns, workers) + workers->count - 1) / workers->count;
}

/* The weights per tile with which the GPU has least to do. */
static uint32_t columns_of(enum cuda_ending ending, uint32_t outputs, uint32_t rows,
                           const struct workers *workers) {
    uint32_t best = widths[0];
    if (ending != CUDA_END_SCALED || !workers->are_clusters) return best;
    for (uint32_t columns : widths)
        if (turns_of(outputs, rows, columns, workers) * columns <
            turns_of(outputs, rows, best, workers) * best)
            best = columns;
    return best;
}

/* Shares of the GPU's time that must be of use, in percent. A gate of int32 sums takes a third of
 * the time of its product, other readers of them a tenth. */
#define USE_WITH_GATE 62
#define USE_ALONE 80

bool cuda_scaled_pays(enum cuda_ending ending, uint32_t outputs, uint32_t rows) {
    const struct workers workers = workers_of_card();
    if (workers.count == 0 || rows <= TILE_ROWS) return false;
    const uint32_t columns = columns_of(ending, outputs, rows, &workers);
    const uint64_t done = (uint64_t)turns_of(outputs, rows, columns, &workers) * columns *
                          workers.count * workers.rows;
    return (uint64_t)rows * outputs * 100 >=
           done * (ending == CUDA_END_SCALED ? USE_ALONE : USE_WITH_GATE);
}

/* ---- launches ---- */

template <class S>
static enum err launch_tiles(const struct cuda_scaled *call, const struct workers *workers,
                             cudaStream_t stream, struct error *error) {
    struct scaled_work work;
    const uint64_t bytes = call->inputs;
    const uint64_t in_sizes[] = {bytes, call->rows};
    const uint32_t in_box[] = {STEP, TILE_ROWS};
    const uint64_t sizes[] = {bytes, 8, S::PARTS, call->outputs / 8 / S::PARTS};
    const uint64_t strides[] = {bytes, call->outputs / S::PARTS * bytes, 8 * bytes};
    const uint32_t box[] = {STEP, 8, S::PARTS, S::Y_COLUMNS / 8 / CUDA_CLUSTER};
    enum err err = cuda_tiles_make(&work.in, call->in, 2, in_sizes, &bytes, in_box, error);
    if (err == OK)
        err = cuda_tiles_make(&work.weights, call->weights, 4, sizes, strides, box, error);
    if (err != OK) return err;
    work.call = *call;
    work.row_tiles = tiles_of(1, call->rows, 1, workers);
    work.tiles = tiles_of(call->outputs, call->rows, S::COLUMNS, workers);
    work.steps = (call->inputs + STEP - 1) / STEP;
    return cuda_launch_clusters<scaled_tiles<S>>(
        "scaled product", work.tiles < workers->count ? work.tiles : workers->count, THREADS,
        S::SHARED_BYTES, stream, error, work);
}

template <int ENDING>
static enum err launch_mma(const struct cuda_scaled *call, const struct workers *workers,
                           cudaStream_t stream, struct error *error) {
    return cuda_launch<scaled_by_mma<ENDING>>(
        "scaled product", tiles_of(call->outputs, call->rows, MMA_COLUMNS, workers), MMA_THREADS,
        MMA_SHARED_BYTES, stream, error, *call, tiles_of(1, call->rows, 1, workers));
}

enum err cuda_scaled(const struct cuda_scaled *call, struct CUstream_st *stream,
                     struct error *error) {
    const struct workers workers = workers_of_card();
    if (call->rows == 0 || call->outputs == 0) return OK;
    if (workers.count == 0 || call->inputs % 16 != 0 ||
        call->outputs % (call->ending == CUDA_END_SCALED ? 8 : 16) != 0)
        return err_set(error, ERR_INVALID, "no scaled product of %u rows of %u x %u here",
                       call->rows, call->outputs, call->inputs);
    if (!workers.are_clusters) {
        switch (call->ending) {
        case CUDA_END_SILU: return launch_mma<CUDA_END_SILU>(call, &workers, stream, error);
        case CUDA_END_GELU_TANH:
            return launch_mma<CUDA_END_GELU_TANH>(call, &workers, stream, error);
        default: return launch_mma<CUDA_END_SCALED>(call, &workers, stream, error);
        }
    }
    if (call->ending == CUDA_END_SILU) return launch_tiles<silu_256>(call, &workers, stream, error);
    if (call->ending == CUDA_END_GELU_TANH)
        return launch_tiles<gelu_256>(call, &workers, stream, error);
    switch (columns_of(call->ending, call->outputs, call->rows, &workers)) {
    case 160: return launch_tiles<scaled_160>(call, &workers, stream, error);
    case 192: return launch_tiles<scaled_192>(call, &workers, stream, error);
    default: return launch_tiles<scaled_256>(call, &workers, stream, error);
    }
}

CUDA_MODULE(scaled, scaled_by_mma<CUDA_END_SILU>)

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/scaled_tile.cuh"

/* Weights per tile. Fewer of them read rows more often, and are taken where they leave less of the
 * card idle in the last turn: 2,560 outputs of 2,048 rows are 80 tiles of 256 for 66 clusters, and
 * 128 of 160. */
typedef tile_shape<CUDA_END_SCALED, 256> scaled_256;
typedef tile_shape<CUDA_END_SCALED, 192> scaled_192;
typedef tile_shape<CUDA_END_SCALED, 160> scaled_160;
typedef tile_shape<CUDA_END_SILU, 256> silu_256;
typedef tile_shape<CUDA_END_GELU_TANH, 256> gelu_256;
static const uint32_t widths[] = {256, 192, 160};

template <class S> static uint32_t held(void) {
    return cuda_clusters_held<scaled_tiles<S>>(THREADS, S::SHARED_BYTES);
}

static uint32_t row_tiles_of(uint32_t rows) {
    return (rows + TILE_ROWS * CUDA_CLUSTER - 1) / (TILE_ROWS * CUDA_CLUSTER);
}

static uint32_t turns_of(uint32_t outputs, uint32_t rows, uint32_t columns, uint32_t clusters) {
    const uint32_t tiles = row_tiles_of(rows) * ((outputs + columns - 1) / columns);
    return (tiles + clusters - 1) / clusters;
}

/* The weights per tile with which the clusters have least to do. */
static uint32_t columns_of(enum cuda_ending ending, uint32_t outputs, uint32_t rows,
                           uint32_t clusters) {
    uint32_t best = widths[0];
    if (ending != CUDA_END_SCALED) return best;
    for (uint32_t columns : widths)
        if (turns_of(outputs, rows, columns, clusters) * columns <
            turns_of(outputs, rows, best, clusters) * best)
            best = columns;
    return best;
}

/* How many clusters of any of the kernels the card holds. Asking loads them all, before a step. */
static uint32_t clusters_held(void) {
    const uint32_t all[] = {held<scaled_256>(), held<scaled_192>(), held<scaled_160>(),
                            held<silu_256>(), held<gelu_256>()};
    uint32_t least = all[0];
    for (uint32_t one : all)
        if (one < least) least = one;
    return least;
}

bool cuda_scaled_can(void) {
    return clusters_held() > 0;
}

/* Shares of the clusters' time that must be of use, in percent. A gate of int32 sums takes a third
 * of the time of its product, other readers of them a tenth. */
#define USE_WITH_GATE 62
#define USE_ALONE 80

bool cuda_scaled_pays(enum cuda_ending ending, uint32_t outputs, uint32_t rows) {
    const uint32_t clusters = clusters_held();
    if (clusters == 0 || rows <= TILE_ROWS) return false;
    const uint32_t columns = columns_of(ending, outputs, rows, clusters);
    const uint64_t done = (uint64_t)turns_of(outputs, rows, columns, clusters) * columns *
                          clusters * TILE_ROWS * CUDA_CLUSTER;
    return (uint64_t)rows * outputs * 100 >=
           done * (ending == CUDA_END_SCALED ? USE_ALONE : USE_WITH_GATE);
}

template <class S>
static enum err launch(const struct cuda_scaled *call, cudaStream_t stream, struct error *error) {
    struct scaled_work work;
    const uint64_t bytes = call->inputs;
    const uint64_t in_sizes[] = {bytes, call->rows};
    const uint32_t in_box[] = {STEP, TILE_ROWS};
    const uint64_t sizes[] = {bytes, 8, S::PARTS, call->outputs / 8 / S::PARTS};
    const uint64_t strides[] = {bytes, call->outputs / S::PARTS * bytes, 8 * bytes};
    const uint32_t box[] = {STEP, 8, S::PARTS, S::Y_COLUMNS / 8 / CUDA_CLUSTER};
    const uint32_t clusters = held<S>();
    enum err err = cuda_tiles_make(&work.in, call->in, 2, in_sizes, &bytes, in_box, error);
    if (err == OK)
        err = cuda_tiles_make(&work.weights, call->weights, 4, sizes, strides, box, error);
    if (err != OK) return err;
    work.call = *call;
    work.y_width = call->outputs / S::PARTS;
    work.row_tiles = row_tiles_of(call->rows);
    work.tiles = work.row_tiles * ((call->outputs + S::COLUMNS - 1) / S::COLUMNS);
    work.steps = (call->inputs + STEP - 1) / STEP;
    return cuda_launch_clusters<scaled_tiles<S>>("scaled product",
                                                 work.tiles < clusters ? work.tiles : clusters,
                                                 THREADS, S::SHARED_BYTES, stream, error, work);
}

enum err cuda_scaled(const struct cuda_scaled *call, struct CUstream_st *stream,
                     struct error *error) {
    if (call->rows == 0 || call->outputs == 0) return OK;
    if (!cuda_scaled_can() || call->inputs % 16 != 0 ||
        call->outputs % (call->ending == CUDA_END_SCALED ? 8 : 16) != 0)
        return err_set(error, ERR_INVALID, "no scaled product of %u rows of %u x %u here",
                       call->rows, call->outputs, call->inputs);
    if (call->ending == CUDA_END_SILU) return launch<silu_256>(call, stream, error);
    if (call->ending == CUDA_END_GELU_TANH) return launch<gelu_256>(call, stream, error);
    switch (columns_of(call->ending, call->outputs, call->rows, clusters_held())) {
    case 160: return launch<scaled_160>(call, stream, error);
    case 192: return launch<scaled_192>(call, stream, error);
    default: return launch<scaled_256>(call, stream, error);
    }
}

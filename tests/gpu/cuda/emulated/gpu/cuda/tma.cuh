/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tma, emulated: what src/inference/gpu/cuda/tma.cuh promises, in plain C, for clusters of one
 * block. A tile comes at once, or not before somebody waits for it: by turns of the runs. */

#include "gpu/cuda/barrier.cuh"
#include "gpu/cuda/launch.cuh"

#define CUDA_GRID_CONSTANT const
#define CUDA_CLUSTER 1
#define CUDA_TILE_RANK_MAX 5

static inline uint32_t cuda_block_of_cluster(void) {
    return 0;
}
static inline void cuda_cluster_meet(void) {
    __syncthreads();
}
void emulated_meet_some(uint32_t id, uint32_t threads, bool is_waiting);
template <int ID> static inline void cuda_meet_some(uint32_t threads) {
    emulated_meet_some(ID, threads, true);
}
template <int ID> static inline void cuda_pass_some(uint32_t threads) {
    emulated_meet_some(ID, threads, false);
}
template <int COUNT> static inline void cuda_registers_give(void) {
}
template <int COUNT> static inline void cuda_registers_take(void) {
}

struct cuda_tiles {
    const char *at;
    uint64_t sizes[CUDA_TILE_RANK_MAX], strides[CUDA_TILE_RANK_MAX];
    uint32_t box[CUDA_TILE_RANK_MAX];
};
void emulated_tile(uint32_t to, const struct cuda_tiles *tiles, uint32_t barrier,
                   const uint32_t first[CUDA_TILE_RANK_MAX]);
static inline void cuda_tile_read(uint32_t to, const struct cuda_tiles *tiles, uint32_t barrier,
                                  uint32_t x, uint32_t y) {
    const uint32_t first[] = {x, y, 0, 0, 0};
    emulated_tile(to, tiles, barrier, first);
}
static inline void cuda_tile_read_5(uint32_t to, const struct cuda_tiles *tiles, uint32_t barrier,
                                    uint32_t x, uint32_t z) {
    const uint32_t first[] = {x, 0, 0, z, 0};
    emulated_tile(to, tiles, barrier, first);
}
static inline void cuda_tile_read_for(uint32_t, uint32_t to, const struct cuda_tiles *tiles,
                                      uint32_t barrier, uint32_t x, uint32_t y, uint32_t z,
                                      uint32_t w) {
    const uint32_t first[] = {x, y, z, w, 0};
    emulated_tile(to, tiles, barrier, first);
}

static inline enum err cuda_tiles_make(struct cuda_tiles *ret, const void *at, uint32_t rank,
                                       const uint64_t *sizes, const uint64_t *strides,
                                       const uint32_t *box, struct error *error) {
    *ret = {(const char *)at, {1, 1, 1, 1, 1}, {1}, {1, 1, 1, 1, 1}};
    for (uint32_t i = 0; i < rank; i++) {
        ret->sizes[i] = sizes[i], ret->box[i] = box[i];
        if (i > 0) ret->strides[i] = strides[i - 1];
        if (i > 0 && (strides[i - 1] % 16 != 0 || box[i] == 0 || box[i] > 256))
            return err_set(error, ERR_INVALID, "dimension %u of a tile", i);
    }
    if ((uintptr_t)at % 16 != 0 || box[0] != 128)
        return err_set(error, ERR_INVALID, "a tile of rows of 128 B");
    return OK;
}

/* 0, as on GPUs without them, below major 9. */
template <auto KERNEL> static inline uint32_t cuda_clusters_held(uint32_t, uint32_t) {
    return emulated_major >= 9 ? 3 : 0;
}
template <auto KERNEL, class... GIVES>
static inline enum err cuda_launch_clusters(const char *name, uint32_t clusters, uint32_t threads,
                                            size_t shared_bytes, cudaStream_t stream,
                                            struct error *error, const GIVES &...arguments) {
    return launch_dependent(name, error, stream, clusters, threads, shared_bytes, KERNEL,
                            arguments...);
}

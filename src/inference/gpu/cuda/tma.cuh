/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tma: tiles of a matrix that the copy engine brings into shared memory, where barriers
 * (barrier.cuh) tell that they are there. sm_90a; code for other GPUs is empty, and nothing
 * launches it.
 *
 * A tile lies in shared memory as wgmma.cuh asks for: rows of 128 B, chunk c of row r at c ^ (r &
 * 7). What of a tile lies beyond the matrix is zero.
 *
 * Blocks of a cluster have the same shared memory layout; one of them may bring a tile into all.
 *
 * tests/gpu/cuda/emulated/ has the same functions for a machine without a GPU. */

#include "gpu/cuda/barrier.cuh"
#include "gpu/cuda/launch.cuh"

#include <cuda.h>
#include <cudaTypedefs.h>

#define CUDA_GRID_CONSTANT const __grid_constant__
#define CUDA_TILE_RANK_MAX 5
#define CUDA_CLUSTER 2 /* blocks */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CUDA_TMA(code) code
#else
#define CUDA_TMA(code)
#endif

/* ---- clusters ---- */

__device__ static inline uint32_t cuda_block_of_cluster(void) {
    uint32_t rank = 0;
    CUDA_TMA(asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)));
    return rank;
}

/* Arrives at the barrier of a block of the cluster that has this address there. It orders nothing
 * but what this block's barriers order: with `.release.cluster` each arrival waits for all memory.
 */
__device__ static inline void cuda_barrier_arrive(uint32_t barrier, uint32_t block) {
    CUDA_TMA(asm volatile("{ .reg .b32 there;\n"
                          "mapa.shared::cluster.u32 there, %0, %1;\n"
                          "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
                          "r"(block)
                          : "memory"));
}

/* All threads of all blocks. */
__device__ static inline void cuda_cluster_meet(void) {
    CUDA_TMA(asm volatile("barrier.cluster.arrive.release.aligned;\n"
                          "barrier.cluster.wait.acquire.aligned;" ::
                              : "memory"));
}

/* ---- meetings of some warps ---- */

/* Waits until `threads` threads of the block have come to meeting ID, those that pass it included.
 */
template <int ID> __device__ static inline void cuda_meet_some(uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "r"(threads) : "memory");
}
/* Counts as one that came, and goes on. */
template <int ID> __device__ static inline void cuda_pass_some(uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"n"(ID), "r"(threads) : "memory");
}

/* ---- registers ---- */

/* A warpgroup gives registers back, or takes more, until its threads have COUNT. */
template <int COUNT> __device__ static inline void cuda_registers_give(void) {
    CUDA_TMA(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)));
}
template <int COUNT> __device__ static inline void cuda_registers_take(void) {
    CUDA_TMA(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)));
}

/* ---- tiles ---- */

/* A matrix, and the size of the tiles that are read from it. */
struct cuda_tiles {
    CUtensorMap map;
};

/* One thread; the barrier gets the tile's bytes. (x, y, …): its first element, x innermost. */
__device__ static inline void cuda_tile_read(uint32_t to, const struct cuda_tiles *tiles,
                                             uint32_t barrier, uint32_t x, uint32_t y) {
    CUDA_TMA(
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                     "l"(&tiles->map), "r"(barrier), "r"(x), "r"(y)
                     : "memory"));
}

/* The same of a matrix of five dimensions, from its element (x, 0, 0, z, 0). */
__device__ static inline void cuda_tile_read_5(uint32_t to, const struct cuda_tiles *tiles,
                                               uint32_t barrier, uint32_t x, uint32_t z) {
    CUDA_TMA(
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %5, %5, %4, %5}], [%2];" ::"r"(to),
                     "l"(&tiles->map), "r"(barrier), "r"(x), "r"(z), "r"(0)
                     : "memory"));
}

/* The same of four into the blocks of the cluster whose bits are set, each with a barrier of its
 * own. */
__device__ static inline void cuda_tile_read_for(uint32_t blocks, uint32_t to,
                                                 const struct cuda_tiles *tiles, uint32_t barrier,
                                                 uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    CUDA_TMA(asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
        "bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
        "l"(&tiles->map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"((uint16_t)blocks)
        : "memory"));
}

/* ---- the host ---- */

/* A matrix of bytes. sizes: bytes of a row, then elements of further dimensions; strides: bytes of
 * these, multiples of 16; box: a tile, innermost 128. */
static inline enum err cuda_tiles_make(struct cuda_tiles *ret, const void *at, uint32_t rank,
                                       const uint64_t *sizes, const uint64_t *strides,
                                       const uint32_t *box, struct error *error) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode; /* racing threads write the same */
    const uint32_t steps[CUDA_TILE_RANK_MAX] = {1, 1, 1, 1, 1};
    if (!encode) {
        void *found = NULL;
        cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
        cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                              12000, cudaEnableDefault, &result);
#else
        cudaError_t status =
            cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
        if (status != cudaSuccess || result != cudaDriverEntryPointSuccess)
            return err_set(error, ERR_UNAVAILABLE, "the driver has no cuTensorMapEncodeTiled");
        encode = (PFN_cuTensorMapEncodeTiled_v12000)found;
    }
    const CUresult code =
        encode(&ret->map, CU_TENSOR_MAP_DATA_TYPE_UINT8, rank, (void *)at, sizes, strides, box,
               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code == CUDA_SUCCESS) return OK;
    return err_set(error, ERR_IO, "the driver refuses tiles of a matrix: %d", (int)code);
}

static inline cudaLaunchAttribute cuda_cluster_attribute(void) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CUDA_CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    return cluster;
}

/* How many clusters of a kernel the GPU holds at once; 0 if it was compiled for another GPU. A
 * kernel always comes with the same threads and shared_bytes, so its answer is kept. */
template <auto KERNEL>
static inline uint32_t cuda_clusters_held(uint32_t threads, uint32_t shared_bytes) {
    static int clusters[CUDA_GPUS_MAX]; /* plus 1; racing threads write the same */
    int *known = &clusters[cuda_gpu_here()];
    if (*known > 0) return (uint32_t)*known - 1;
    cudaFuncAttributes kernel = {};
    int card = 0, major = 0, held = 0;
    cudaLaunchAttribute cluster = cuda_cluster_attribute();
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(CUDA_CLUSTER), config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &cluster, config.numAttrs = 1;
    const bool is_well =
        cudaGetDevice(&card) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card) == cudaSuccess &&
        major == 9 && cudaFuncGetAttributes(&kernel, KERNEL) == cudaSuccess &&
        kernel.ptxVersion >= 90 && /* what the driver makes of older PTX has no code */
        cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared_bytes) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&held, KERNEL, &config) == cudaSuccess;
    if (!is_well) (void)cudaGetLastError(); /* or the next launch would report it */
    *known = 1 + (is_well ? held : 0);
    return (uint32_t)*known - 1;
}

/* A dependent launch of clusters. */
template <auto KERNEL, class... GIVES>
static inline enum err cuda_launch_clusters(const char *name, uint32_t clusters, uint32_t threads,
                                            size_t shared_bytes, cudaStream_t stream,
                                            struct error *error, const GIVES &...arguments) {
    cudaLaunchAttribute attributes[2] = {cuda_cluster_attribute(), {}};
    cudaLaunchConfig_t config = {};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(clusters * CUDA_CLUSTER), config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes, config.numAttrs = 2;
    return launch_with(name, error, &config, KERNEL, arguments...);
}

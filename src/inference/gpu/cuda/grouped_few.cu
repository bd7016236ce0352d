/* SPDX-License-Identifier: Apache-2.0 */

/* grouped_few: the product of few rows with codes in groups (grouped.h), bound by the read of the
 * codes.
 *
 * Weights are the long side of mma.sync: a block has 64 lines (32 with more than 16 rows), and each
 * of its 8 or 16 warps every 8th or 16th group of their inputs; their sums are added in a fixed
 * order at the end. A warp has a ring in shared memory of its own, so that enough codes are on
 * their way: for a whole H200 some 35 KB per multiprocessor. Nothing in the loop waits for another
 * warp. The rows of a group come to registers, a group ahead. Large matrices have pieces
 * (grouped_pieces.cu). */

#include "gpu/cuda/grouped_few.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

#define ALL_WARPS 16          /* warps of a multiprocessor */
#define ALL_RING_BYTES 81920u /* the same: what every GPU has room for */

template <int KIND_, int WARPS_, int BLOCKS_, int EIGHTS_> struct few_shape {
    static constexpr int KIND = KIND_, WARPS = WARPS_, THREADS = WARPS * 32;
    static constexpr uint32_t RING_BYTES_MAX = ALL_RING_BYTES / ALL_WARPS * WARPS;
    static constexpr int BLOCKS = BLOCKS_, EIGHTS = EIGHTS_;    /* a warp's, of lines and rows */
    static constexpr int PARTS = KIND == GROUPED_BYTES ? 2 : 1; /* scales of a line in a group */
    static constexpr int LINES = BLOCKS * (int)GROUPED_LINES, ROWS = EIGHTS * 8;
    static constexpr uint32_t BLOCK_BYTES = PARTS * 512 + GROUPED_SCALE_BYTES; /* a group's */
    static constexpr uint32_t GROUP_BYTES = BLOCKS * BLOCK_BYTES;
    static constexpr uint32_t DEPTH = WARPS * GROUP_BYTES * 8 <= RING_BYTES_MAX   ? 8
                                      : WARPS * GROUP_BYTES * 4 <= RING_BYTES_MAX ? 4
                                                                                  : 2;
    static constexpr uint32_t RING_BYTES = WARPS * DEPTH * GROUP_BYTES;
    static constexpr uint32_t SUM_BYTES = WARPS * LINES * ROWS * sizeof(float);
    static constexpr uint32_t SHARED_BYTES = RING_BYTES > SUM_BYTES ? RING_BYTES : SUM_BYTES;
};

/* Where a lane's numbers begin. */
template <class S> struct few_places {
    const char *blocks[S::BLOCKS]; /* beyond the last: the last, whose results are not left */
    struct few_rows<S> rows;
    uint32_t groups;
};

template <class S>
__device__ static inline struct few_places<S> places_of(const struct cuda_grouped_few &call) {
    struct few_places<S> ret;
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    ret.groups = call.weights.inputs / GROUPED_INPUTS;
    const uint32_t last = (call.weights.lines - 1) / GROUPED_LINES;
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++)
        ret.blocks[b] =
            (const char *)call.weights.at +
            min(blockIdx.x * S::BLOCKS + b, last) * grouped_block_bytes<S::KIND>(ret.groups);
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++)
        ret.rows.at[e] = call.in +
                         min(blockIdx.y * S::ROWS + e * 8 + g, call.rows - 1) * call.in_stride +
                         t * (S::PARTS == 2 ? 4 : 8);
    return ret;
}

/* A group's codes and scales on their way into a place of the ring; nothing behind the last. */
template <class S>
__device__ static inline void fetch(const struct few_places<S> &from, uint32_t group,
                                    uint32_t ring) {
    const uint32_t lane = threadIdx.x % 32;
    if (group < from.groups)
#pragma unroll
        for (int b = 0; b < S::BLOCKS; b++) {
            const uint32_t to = ring + b * S::BLOCK_BYTES;
#pragma unroll
            for (int p = 0; p < S::PARTS; p++)
                cuda_copy16(to + p * 512 + lane * 16,
                            grouped_codes<S::KIND>(from.blocks[b], group) + p * 32);
            if (lane % 4 == 0)
                cuda_copy16(to + S::PARTS * 512 + lane * 4,
                            grouped_scales<S::KIND>(from.blocks[b], from.groups, group));
        }
    cuda_copy_commit();
}

/* The sums of all warps of the block. */
template <class S>
__device__ static inline void leave(const struct cuda_grouped_few &call,
                                    const struct few_sums<S> &sums, float *shared) {
    constexpr int COUNT = S::LINES * S::ROWS;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < COUNT / 128; i++) {
        const float(&four)[4] = sums.at[i / S::EIGHTS][i % S::EIGHTS];
        *(float4 *)(shared + warp * COUNT + i * 128 + lane * 4) =
            make_float4(four[0], four[1], four[2], four[3]);
    }
    __syncthreads();
    for (uint32_t n = threadIdx.x; n < COUNT; n += S::THREADS) {
        const uint32_t line = n % S::LINES, row = n / S::LINES;
        const uint32_t tile = line / 16 * S::EIGHTS + row / 8;
        const uint32_t at =
            tile * 128 + (line % 8 * 4 + row % 8 / 2) * 4 + line % 16 / 8 * 2 + row % 2;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < S::WARPS; w++) sum += shared[w * COUNT + at];
        const uint32_t to_row = blockIdx.y * S::ROWS + row, to_line = blockIdx.x * S::LINES + line;
        if (to_row < call.rows && to_line < call.weights.lines)
            call.y[to_row * call.y_stride + to_line] = (uint16_t)cuda_pack_bf16(sum, 0.0f);
    }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, ALL_WARPS / S::WARPS)
    grouped_few(struct cuda_grouped_few call) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const struct few_places<S> from = places_of<S>(call);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    char *ring = cuda_memory + warp * S::DEPTH * S::GROUP_BYTES;
    const uint32_t memory = cuda_shared_address(ring);
    uint4 rows[S::EIGHTS] = {};
    struct few_group<S> group = {};
    struct few_sums<S> sums = {};
    for (uint32_t i = 0; i + 1 < S::DEPTH; i++)
        fetch<S>(from, warp + i * S::WARPS, memory + i * S::GROUP_BYTES);
    wait_for_before(); /* which wrote the rows */
    let_next_start();
    bring_rows<S>(rows, from.rows, min(warp, from.groups - 1));
    for (uint32_t at = warp, i = 0; at < from.groups; at += S::WARPS, i++) {
        cuda_copy_wait<S::DEPTH - 2>();
        __syncwarp(); /* the group is there, and nobody reads the one before any more */
        fetch<S>(from, at + (S::DEPTH - 1) * S::WARPS,
                 memory + (i + S::DEPTH - 1) % S::DEPTH * S::GROUP_BYTES);
#pragma unroll
        for (int e = 0; e < S::EIGHTS; e++) group.rows[e] = rows[e];
        bring_rows<S>(rows, from.rows, min(at + S::WARPS, from.groups - 1));
        const char *codes = ring + i % S::DEPTH * S::GROUP_BYTES;
        read_codes<S>(&group, codes + lane * 16, codes + lane / 4 * 16);
        use_group<S>(&sums, group);
    }
    cuda_copy_wait<0>();
    __syncthreads(); /* sums take the place of the rings */
    leave<S>(call, sums, (float *)cuda_memory);
}

template <class S>
static enum err launch_few(const struct cuda_grouped_few *call, cudaStream_t stream,
                           struct error *error) {
    const uint32_t columns = (call->weights.lines + S::LINES - 1) / S::LINES;
    const dim3 blocks(columns, (call->rows + S::ROWS - 1) / S::ROWS);
    return cuda_launch<grouped_few<S>>("grouped product", blocks, S::THREADS, S::SHARED_BYTES,
                                       stream, error, *call);
}

template <int KIND, int WARPS>
static enum err launch_warps(const struct cuda_grouped_few *call, cudaStream_t stream,
                             struct error *error) {
    if (call->rows > 16) return launch_few<few_shape<KIND, WARPS, 1, 4>>(call, stream, error);
    if (call->rows > 8) return launch_few<few_shape<KIND, WARPS, 2, 2>>(call, stream, error);
    return launch_few<few_shape<KIND, WARPS, 2, 1>>(call, stream, error);
}

/* Two blocks of a multiprocessor, one of which begins or ends while the other reads, or, where
 * there are not as many, one of twice as many warps. */
template <int KIND>
static enum err launch_kind(const struct cuda_grouped_few *call, cudaStream_t stream,
                            struct error *error) {
    int card = 0, processors = 0;
    if (cudaGetDevice(&card) != cudaSuccess ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, card) != cudaSuccess)
        return err_set(error, ERR_IO, "grouped product: no GPU");
    if (call->weights.lines >= 64u * 2u * (uint32_t)processors)
        return launch_warps<KIND, ALL_WARPS / 2>(call, stream, error);
    return launch_warps<KIND, ALL_WARPS>(call, stream, error);
}

enum err cuda_grouped_few(const struct cuda_grouped_few *call, struct CUstream_st *stream,
                          struct error *error) {
    if (call->rows == 0 || call->weights.lines == 0) return OK;
    if (grouped_has_pieces(call->weights.lines, call->weights.inputs, call->room.blocks))
        return cuda_grouped_pieces(call, stream, error);
    if (call->weights.kind == GROUPED_NOT || call->weights.inputs % GROUPED_INPUTS != 0 ||
        call->in_stride % 8 != 0 || ((uintptr_t)call->in & 15u) != 0)
        return err_set(error, ERR_INVALID, "no product of %u rows with %u x %u codes here",
                       call->rows, call->weights.lines, call->weights.inputs);
    switch (call->weights.kind) {
    case GROUPED_MINIMA: return launch_kind<GROUPED_MINIMA>(call, stream, error);
    case GROUPED_ZEROS: return launch_kind<GROUPED_ZEROS>(call, stream, error);
    case GROUPED_E2M1: return launch_kind<GROUPED_E2M1>(call, stream, error);
    default: return launch_kind<GROUPED_BYTES>(call, stream, error);
    }
}

CUDA_MODULE(grouped_few, grouped_few<few_shape<GROUPED_MINIMA, ALL_WARPS, 2, 1>>)

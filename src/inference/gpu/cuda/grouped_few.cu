/* SPDX-License-Identifier: Apache-2.0 */

/* grouped_few: the product of few rows with codes in groups (grouped.h), bound by the read of the
 * codes.
 *
 * Weights are the long side of mma.sync: a block has 64 lines (32 with more than 16 rows), and each
 * of its 8 or 16 warps every 8th or 16th group of their inputs; their sums are added in a fixed
 * order at the end. A warp has a ring in shared memory of its own, so that enough codes are on
 * their way: for a whole H200 some 35 KB per multiprocessor. Nothing in the loop waits for another
 * warp. The rows of a group come to registers, a group ahead.
 *
 * A product of ones beside the codes' gives the sum of a row's numbers, by which the 128 (in
 * grouped.cuh) and the minima are taken off. So a group of 32 inputs costs two multiplications per
 * sum, and no weight is rounded. */

#include "gpu/cuda/grouped.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

#define ONES 0x3f803f80u
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

/* Codes, scales and rows of a group, as a lane has them. */
template <class S> struct few_group {
    uint4 codes[S::BLOCKS][S::PARTS], scales[S::BLOCKS], rows[S::EIGHTS];
};

/* Where a lane's numbers begin. */
template <class S> struct few_places {
    const char *blocks[S::BLOCKS];   /* beyond the last: the last, whose results are not left */
    const uint16_t *rows[S::EIGHTS]; /* likewise */
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
        ret.rows[e] = call.in +
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

template <class S>
__device__ static inline void read_codes(struct few_group<S> *to, const char *ring) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++) {
        const char *from = ring + b * S::BLOCK_BYTES;
#pragma unroll
        for (int p = 0; p < S::PARTS; p++)
            to->codes[b][p] = *(const uint4 *)(from + p * 512 + lane * 16);
        to->scales[b] = *(const uint4 *)(from + S::PARTS * 512 + lane / 4 * 16);
    }
}

template <class S>
__device__ static inline void bring_rows(uint4 (&ret)[S::EIGHTS], const struct few_places<S> &from,
                                         uint32_t group) {
    group = min(group, from.groups - 1);
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        const uint16_t *at = from.rows[e] + group * GROUPED_INPUTS;
        if (S::PARTS == 1) {
            ret[e] = *(const uint4 *)at;
            continue;
        }
        const uint2 low = *(const uint2 *)at, high = *(const uint2 *)(at + 16);
        ret[e] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

template <class S> struct few_sums {
    float at[S::BLOCKS][2][S::EIGHTS][4]; /* by block and sixteen of its lines */
};

/* The sums of each row's numbers, of a part of the group each. */
template <class S>
__device__ static inline void sum_rows(float (&ret)[S::PARTS][S::EIGHTS][2],
                                       const struct few_group<S> &group) {
    const uint32_t ones[4] = {ONES, ONES, ONES, ONES};
    if (S::KIND == GROUPED_E2M1) return; /* nothing to take off */
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) {
        float c[4];
        cuda_mma_anew(c, ones, group.rows[e].x, group.rows[e].y);
        if constexpr (S::PARTS == 2) {
            ret[0][e][0] = c[0], ret[0][e][1] = c[1];
            cuda_mma_anew(c, ones, group.rows[e].z, group.rows[e].w);
        } else {
            cuda_mma(c, ones, group.rows[e].z, group.rows[e].w);
        }
        ret[S::PARTS - 1][e][0] = c[0], ret[S::PARTS - 1][e][1] = c[1];
    }
}

template <int KIND>
__device__ static inline void add_scaled(float (&sums)[4], const float (&c)[4],
                                         const struct grouped_factors (&by)[2],
                                         const float (&row)[2]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (KIND == GROUPED_E2M1)
            sums[i] = __fmaf_rn(by[i / 2].scale, c[i], sums[i]);
        else
            sums[i] =
                __fmaf_rn(by[i / 2].scale, c[i], __fmaf_rn(by[i / 2].minimum, row[i % 2], sums[i]));
}

template <class S>
__device__ static inline void use_group(struct few_sums<S> *sums,
                                        const struct few_group<S> &group) {
    float rows[S::PARTS][S::EIGHTS][2] = {};
    sum_rows<S>(rows, group);
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++) {
        const uint32_t words[4] = {group.scales[b].x, group.scales[b].y, group.scales[b].z,
                                   group.scales[b].w};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t one[4], other[4];
            struct grouped_factors by[S::PARTS][2];
            grouped_wide<S::KIND>(one, group.codes[b], 2 * half);
            grouped_wide<S::KIND>(other, group.codes[b], 2 * half + 1);
#pragma unroll
            for (int p = 0; p < S::PARTS; p++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    by[p][i] = grouped_wide_factors<S::KIND>(words[2 * half + i], p);
            const uint32_t low[4] = {one[0], other[0], one[1], other[1]};
            const uint32_t high[4] = {one[2], other[2], one[3], other[3]};
#pragma unroll
            for (int e = 0; e < S::EIGHTS; e++) {
                float c[4];
                cuda_mma_anew(c, low, group.rows[e].x, group.rows[e].y);
                if constexpr (S::PARTS == 2) {
                    add_scaled<S::KIND>(sums->at[b][half][e], c, by[0], rows[0][e]);
                    cuda_mma_anew(c, high, group.rows[e].z, group.rows[e].w);
                } else {
                    cuda_mma(c, high, group.rows[e].z, group.rows[e].w);
                }
                add_scaled<S::KIND>(sums->at[b][half][e], c, by[S::PARTS - 1],
                                    rows[S::PARTS - 1][e]);
            }
        }
    }
}

/* The sums of all warps of the block. */
template <class S>
__device__ static inline void leave(const struct cuda_grouped_few &call,
                                    const struct few_sums<S> &sums, float *shared) {
    constexpr int COUNT = S::LINES * S::ROWS;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < COUNT / 128; i++) {
        const float(&four)[4] = sums.at[i / (2 * S::EIGHTS)][i / S::EIGHTS % 2][i % S::EIGHTS];
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
    const uint32_t warp = threadIdx.x / 32;
    char *ring = cuda_memory + warp * S::DEPTH * S::GROUP_BYTES;
    const uint32_t memory = cuda_shared_address(ring);
    uint4 rows[S::EIGHTS] = {};
    struct few_group<S> group = {};
    struct few_sums<S> sums = {};
    for (uint32_t i = 0; i + 1 < S::DEPTH; i++)
        fetch<S>(from, warp + i * S::WARPS, memory + i * S::GROUP_BYTES);
    wait_for_before(); /* which wrote the rows */
    let_next_start();
    bring_rows<S>(rows, from, warp);
    for (uint32_t at = warp, i = 0; at < from.groups; at += S::WARPS, i++) {
        cuda_copy_wait<S::DEPTH - 2>();
        __syncwarp(); /* the group is there, and nobody reads the one before any more */
        fetch<S>(from, at + (S::DEPTH - 1) * S::WARPS,
                 memory + (i + S::DEPTH - 1) % S::DEPTH * S::GROUP_BYTES);
#pragma unroll
        for (int e = 0; e < S::EIGHTS; e++) group.rows[e] = rows[e];
        bring_rows<S>(rows, from, at + S::WARPS);
        read_codes<S>(&group, ring + i % S::DEPTH * S::GROUP_BYTES);
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

/* SPDX-License-Identifier: Apache-2.0 */

/* experts_grouped: experts whose weights are codes in groups (grouped.h), with rows of bf16, by
 * mma.sync, on sm_80 and later.
 *
 * A tile is 256 lines, a block of 32 for each of eight warps, by up to 64 rows of an expert at a
 * time. Codes and rows, from wherever they are, come by cp.async into a ring of four stages of two
 * groups. */

#include "gpu/cuda/experts_end.cuh"
#include "gpu/cuda/grouped.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

#define THREADS (UNITS * 32)
#define ROWS EXPERT_MMA_ROWS
#define EIGHTS (ROWS / 8)
#define STAGE_GROUPS 2
#define STAGES 4
#define ROW_BYTES (GROUPED_INPUTS * 2) /* bytes of a row in a group */
#define GROUP_BYTES (ROWS * ROW_BYTES)
#define CODE_BYTES (512 + GROUPED_SCALE_BYTES) /* a warp's codes and scales of a group */
#define STAGE_BYTES (STAGE_GROUPS * (GROUP_BYTES + UNITS * CODE_BYTES))
#define SHARED_BYTES (STAGES * STAGE_BYTES)
#define ONES 0x3f803f80u
static_assert(THREADS == ROWS * ROW_BYTES / 16, "a thread copies 16 B of a row for each group");

template <int KIND_, int ENDING> struct grouped_experts {
    static constexpr int KIND = KIND_;
    typedef expert_shape<CUDA_BF16, ENDING> end;
};

/* A stage of a warp's codes and scales on its way; zeros behind the last group. */
template <int KIND>
__device__ static inline void bring_codes(const char *block, uint32_t memory, uint32_t stage,
                                          uint32_t groups) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t to = memory + stage % STAGES * STAGE_BYTES + STAGE_GROUPS * GROUP_BYTES +
                        threadIdx.x / 32 * STAGE_GROUPS * CODE_BYTES;
#pragma unroll
    for (int i = 0; i < STAGE_GROUPS; i++) {
        const uint32_t group = stage * STAGE_GROUPS + i;
        const bool is_there = group < groups;
        const uint32_t from = is_there ? group : 0;
        cuda_copy16_if(to + i * CODE_BYTES + lane * 16, grouped_codes<KIND>(block, from), is_there);
        if (lane % 4 == 0)
            cuda_copy16_if(to + i * CODE_BYTES + 512 + lane * 4,
                           grouped_scales<KIND>(block, groups, from), is_there);
    }
}

/* A stage of rows on its way: zeros behind the last group and the last row. `row` is what this
 * thread copies, or NULL. */
__device__ static inline void bring_rows(const struct cuda_experts &call, const uint16_t *row,
                                         uint32_t memory, uint32_t stage, uint32_t groups) {
    const uint32_t to = memory + stage % STAGES * STAGE_BYTES + threadIdx.x * 16;
#pragma unroll
    for (int i = 0; i < STAGE_GROUPS; i++) {
        const uint32_t group = stage * STAGE_GROUPS + i;
        const bool is_there = row && group < groups;
        cuda_copy16_if(to + i * GROUP_BYTES,
                       is_there ? row + group * GROUPED_INPUTS : (const uint16_t *)call.in,
                       is_there);
    }
    cuda_copy_commit();
}

/* A group of a warp's 32 lines with all rows. */
template <int KIND>
__device__ static inline void multiply(float (&sums)[2][EIGHTS][4], const uint4 &codes,
                                       const uint4 &scales, const char *rows, uint32_t count) {
    const uint32_t words[4] = {scales.x, scales.y, scales.z, scales.w};
    const uint32_t ones[4] = {ONES, ONES, ONES, ONES};
    uint32_t wide[4][4];
    struct grouped_factors by[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        grouped_wide<KIND>(wide[i], &codes, i);
        by[i] = grouped_wide_factors<KIND>(words[i], 0);
    }
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        if ((uint32_t)e * 8 >= count) continue;
        const uint4 row = *(const uint4 *)(rows + e * 8 * ROW_BYTES + threadIdx.x % 32 * 16);
        float sum[4];
        if (KIND != GROUPED_E2M1) {
            cuda_mma_anew(sum, ones, row.x, row.y);
            cuda_mma(sum, ones, row.z, row.w);
        }
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint32_t(&one)[4] = wide[2 * m], (&other)[4] = wide[2 * m + 1];
            const uint32_t low[4] = {one[0], other[0], one[1], other[1]};
            const uint32_t high[4] = {one[2], other[2], one[3], other[3]};
            float c[4];
            cuda_mma_anew(c, low, row.x, row.y);
            cuda_mma(c, high, row.z, row.w);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const struct grouped_factors &line = by[2 * m + i / 2];
                float *to = &sums[m][e][i];
                if (KIND != GROUPED_E2M1) *to = __fmaf_rn(line.minimum, sum[i % 2], *to);
                *to = __fmaf_rn(line.scale, c[i], *to);
            }
        }
    }
}

/* Up to ROWS rows of a tile. */
template <class S>
__device__ static inline void grouped_item(const struct cuda_experts &call,
                                           const struct expert_item &item, uint32_t memory) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const uint32_t groups = call.inputs / GROUPED_INPUTS, warp = threadIdx.x / 32;
    const uint32_t stages = (groups + STAGE_GROUPS - 1) / STAGE_GROUPS;
    const uint32_t blocks = call.outputs / GROUPED_LINES;
    const uint32_t unit = min(item.unit + warp, blocks - 1); /* whose results are not left */
    const char *block = (const char *)call.weights + (item.expert * (size_t)blocks + unit) *
                                                         grouped_block_bytes<S::KIND>(groups);
    const uint32_t place = threadIdx.x / 4;
    const uint16_t *row =
        place < item.count
            ? (const uint16_t *)call.in +
                  (size_t)source_row<typename S::end>(call, item.first + place) * call.inputs +
                  threadIdx.x % 4 * 8
            : NULL;
    float sums[2][EIGHTS][4] = {};
    for (uint32_t s = 0; s < STAGES - 1; s++) {
        bring_codes<S::KIND>(block, memory, s, groups);
        bring_rows(call, row, memory, s, groups);
    }
    for (uint32_t s = 0; s < stages; s++) {
        cuda_copy_wait<STAGES - 2>();
        __syncthreads(); /* the stage is there, and nobody reads the one before any more */
        bring_codes<S::KIND>(block, memory, s + STAGES - 1, groups);
        bring_rows(call, row, memory, s + STAGES - 1, groups);
        const char *stage = cuda_memory + s % STAGES * STAGE_BYTES;
        const char *codes = stage + STAGE_GROUPS * GROUP_BYTES + warp * STAGE_GROUPS * CODE_BYTES;
#pragma unroll
        for (int i = 0; i < STAGE_GROUPS; i++, codes += CODE_BYTES)
            multiply<S::KIND>(sums, *(const uint4 *)(codes + threadIdx.x % 32 * 16),
                              *(const uint4 *)(codes + 512 + threadIdx.x % 32 / 4 * 16),
                              stage + i * GROUP_BYTES, item.count);
    }
    cuda_copy_wait<0>();
    const struct expert_end<EIGHTS> end = end_of<typename S::end, EIGHTS>(call, item, warp, UNITS);
    leave_unit<typename S::end, EIGHTS>(call, item, end, sums);
    __syncthreads(); /* nobody reads a stage any more */
}

/* Tiles may have more rows than a turn has, since those of sm_90 have. */
template <class S, int TILE_ROWS>
__global__ void __launch_bounds__(THREADS, 2)
    grouped_by_mma(struct cuda_experts call, uint32_t columns) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const uint32_t memory = cuda_shared_address(cuda_memory);
    wait_for_before();
    let_next_start();
    const uint32_t items = items_of(call, columns);
    for (uint32_t index = blockIdx.x; index < items; index += gridDim.x) {
        struct expert_item item = item_of<TILE_ROWS>(call, index, columns, UNITS);
        const uint32_t end = item.first + item.count;
        for (; item.first < end; item.first += ROWS) {
            item.count = min(end - item.first, (uint32_t)ROWS);
            grouped_item<S>(call, item, memory);
        }
    }
}

template <class S, int TILE_ROWS>
static enum err launch_tiles(const struct cuda_experts *call, cudaStream_t stream,
                             struct error *error) {
    int card = 0, processors = 0;
    if (cudaGetDevice(&card) != cudaSuccess ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, card) != cudaSuccess)
        return err_set(error, ERR_IO, "experts: no GPU");
    const uint32_t columns = (call->outputs / UNIT_LINES + UNITS - 1) / UNITS;
    const uint64_t most = (uint64_t)cuda_expert_tiles_most(&call->by) * columns;
    const uint32_t blocks = 2 * (uint32_t)processors;
    return cuda_launch<grouped_by_mma<S, TILE_ROWS>>(
        "experts", most < blocks ? (uint32_t)most : blocks, THREADS, SHARED_BYTES, stream, error,
        *call, columns);
}

template <int KIND, int ENDING>
static enum err launch_ending(const struct cuda_experts *call, cudaStream_t stream,
                              struct error *error) {
    typedef grouped_experts<KIND, ENDING> shape;
    return cuda_expert_tile_rows() == EXPERT_GROUP_ROWS
               ? launch_tiles<shape, EXPERT_GROUP_ROWS>(call, stream, error)
               : launch_tiles<shape, EXPERT_MMA_ROWS>(call, stream, error);
}

template <int KIND>
static enum err launch_kind(const struct cuda_experts *call, cudaStream_t stream,
                            struct error *error) {
    switch (call->ending) {
    case CUDA_EXPERTS_DOWN: return launch_ending<KIND, CUDA_EXPERTS_DOWN>(call, stream, error);
    case CUDA_EXPERTS_SILU: return launch_ending<KIND, CUDA_EXPERTS_SILU>(call, stream, error);
    case CUDA_EXPERTS_GELU_TANH:
        return launch_ending<KIND, CUDA_EXPERTS_GELU_TANH>(call, stream, error);
    case CUDA_EXPERTS_CLAMPED: break;
    }
    return launch_ending<KIND, CUDA_EXPERTS_CLAMPED>(call, stream, error);
}

enum err cuda_experts_grouped(const struct cuda_experts *call, struct CUstream_st *stream,
                              struct error *error) {
    if (call->inputs % GROUPED_INPUTS != 0 || call->code != CUDA_BF16)
        return err_set(error, ERR_INVALID, "no experts of %u x %u codes in groups here",
                       call->outputs, call->inputs);
    switch (call->grouping) {
    case GROUPED_MINIMA: return launch_kind<GROUPED_MINIMA>(call, stream, error);
    case GROUPED_ZEROS: return launch_kind<GROUPED_ZEROS>(call, stream, error);
    case GROUPED_E2M1: return launch_kind<GROUPED_E2M1>(call, stream, error);
    default: break;
    }
    return err_set(error, ERR_INVALID, "experts have codes of four bits, or no groups");
}

CUDA_MODULE(experts_grouped,
            grouped_by_mma<grouped_experts<GROUPED_E2M1, CUDA_EXPERTS_DOWN>, EXPERT_MMA_ROWS>)

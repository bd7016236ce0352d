/* SPDX-License-Identifier: Apache-2.0 */

/* pool: the sums of the rows of texts. A block has eight columns per thread of a warp and a text;
 * its warps take the rows by turns and add up their sums in their order. */

#include "gpu/cuda/texts.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define WARPS 8
#define COLUMNS (32 * EACH)

__global__ void __launch_bounds__(WARPS * 32) pool_rows(struct cuda_pool call) {
    CUDA_SHARED float parts[WARPS][COLUMNS];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t at = blockIdx.y * COLUMNS + lane * EACH;
    eight sum = {};
    wait_for_before();
    const struct gpu_pool pool = call.pools[blockIdx.x];
    for (uint32_t i = warp; i < pool.rows && at < call.width; i += WARPS) {
        const eight v = read_bf16<EACH>(call.from + (pool.row + i) * call.from_stride + at);
#pragma unroll
        for (int k = 0; k < EACH; k++) sum.at[k] = __fadd_rn(sum.at[k], v.at[k]);
    }
    let_next_start();
#pragma unroll
    for (int k = 0; k < EACH; k++) parts[warp][lane * EACH + k] = sum.at[k];
    __syncthreads();
    const uint32_t column = blockIdx.y * COLUMNS + threadIdx.x;
    if (column >= call.width) return;
    float all = 0;
    for (uint32_t i = 0; i < WARPS; i++) all = __fadd_rn(all, parts[i][threadIdx.x]);
    call.y[blockIdx.x * call.y_stride + column] = all;
}

enum err cuda_pool(const struct cuda_pool *call, struct CUstream_st *stream, struct error *error) {
    if (call->count == 0) return OK;
    if (call->width == 0 || call->width % EACH != 0 || call->from_stride % EACH != 0 ||
        !is_at_16(call->from))
        return err_set(error, ERR_INVALID, "pool: rows of %u numbers, or an address", call->width);
    const dim3 blocks(call->count, (call->width + COLUMNS - 1) / COLUMNS);
    return launch_dependent("pool", error, stream, blocks, WARPS * 32, 0, pool_rows, *call);
}

CUDA_MODULE(pool, pool_rows)

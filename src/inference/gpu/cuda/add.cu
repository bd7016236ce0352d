/* SPDX-License-Identifier: Apache-2.0 */

/* add: a product that the residual stream gets apart from a norm. A thread has four numbers. */

#include "gpu/cuda/recurrent.cuh"

#define THREADS 256
#define GRID_ROWS_MAX 65535u /* limit of a grid's second dimension */

__global__ void __launch_bounds__(THREADS) add_rows(struct cuda_add call) {
    const size_t row = blockIdx.y;
    const uint32_t at = (blockIdx.x * THREADS + threadIdx.x) * 4;
    wait_for_before();
    let_next_start();
    if (at >= call.width) return;
    float *to = call.x + row * call.x_stride + at;
    const struct numbers<4> h = four_sums(call.h, row, at);
    struct numbers<4> v = read_f32<4>(to);
#pragma unroll
    for (int i = 0; i < 4; i++) v.at[i] = fmaf(call.factor, h.at[i], v.at[i]);
    write_f32(v, to);
}

enum err cuda_add(const struct cuda_add *call, struct CUstream_st *stream, struct error *error) {
    const dim3 blocks((call->width / 4 + THREADS - 1) / THREADS, call->rows);
    if (call->width % 4 != 0 || call->x_stride % 4 != 0 || !is_at_16(call->x) ||
        call->rows > GRID_ROWS_MAX || !is_product_by_fours(&call->h))
        return err_set(error, ERR_INVALID, "add: %u rows of %u, or an address", call->rows,
                       call->width);
    return launch_dependent("add", error, stream, call->rows > 0 ? blocks : dim3(0), THREADS, 0,
                            add_rows, *call);
}

CUDA_MODULE(add, add_rows)

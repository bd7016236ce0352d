/* SPDX-License-Identifier: Apache-2.0 */

/* part: sums with scales become bf16, so that other ranks read two bytes of each and no scale. Or
 * plain ones go to memory of the host. A thread has eight numbers. */

#include "gpu/cuda/reduce.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define GRID_ROWS_MAX 65535u /* limit of a grid's second dimension */

template <int IN> __global__ void __launch_bounds__(THREADS) part_rows(struct cuda_part call) {
    const size_t row = blockIdx.y;
    const uint32_t at = (blockIdx.x * THREADS + threadIdx.x) * EACH;
    wait_for_before();
    let_next_start();
    if (at >= call.width) return;
    const float row_scale = IN == IN_BF16 ? 1.0f : call.from.row_scale[row];
    const struct raw_sums<IN> raw = read_sums<IN>(call.from, row, at);
    write_bf16(sums_of<IN, EACH>(call.from, row_scale, at, raw),
               call.to + row * call.from.stride + at);
}

typedef void (*part_kernel)(struct cuda_part call);

static part_kernel kernel_for(const struct cuda_product *from) {
    switch (in_kind_of(from)) {
    case IN_INT32: return part_rows<IN_INT32>;
    case IN_BF16_SCALED: return part_rows<IN_BF16_SCALED>;
    default: return part_rows<IN_BF16>;
    }
}

enum err cuda_part(const struct cuda_part *call, struct CUstream_st *stream, struct error *error) {
    const struct cuda_product *from = &call->from;
    const uint32_t blocks = (call->width / EACH + THREADS - 1) / THREADS;
    if (call->width % EACH != 0 || !from->sums || from->bias || !is_product_wide(from) ||
        (from->type == CUDA_SUMS_INT32 && !from->row_scale) || !is_at_16(call->to) ||
        call->rows > GRID_ROWS_MAX)
        return err_set(error, ERR_INVALID, "part: %u rows of %u, or an address", call->rows,
                       call->width);
    return launch_dependent("part", error, stream,
                            call->rows > 0 && blocks > 0 ? dim3(blocks, call->rows) : dim3(0),
                            THREADS, 0, kernel_for(from), *call);
}

CUDA_MODULE(part, part_rows<IN_INT32>)

/* SPDX-License-Identifier: Apache-2.0 */

/* output_gate: rows of attention times the sigmoid of their gates. A thread has eight numbers; the
 * gates are columns of the product that has q, k and v, too. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define GRID_ROWS_MAX 65535u /* limit of a grid's second dimension */

template <int IN>
__global__ void __launch_bounds__(THREADS) output_gate(struct cuda_output_gate call) {
    const size_t row = blockIdx.y;
    const uint32_t at = (blockIdx.x * THREADS + threadIdx.x) * EACH;
    wait_for_before();
    let_next_start();
    if (at >= call.width) return;
    const size_t from = call.gate_rows ? call.gate_rows[row] : row;
    const float row_scale = IN >= IN_BF16_SCALED ? call.gate.row_scale[from] : 1.0f;
    const eight gate = sums_of<IN>(call.gate, row_scale, at, read_sums<IN>(call.gate, from, at));
    uint16_t *to = call.y + row * call.y_stride + at;
    eight v = read_bf16<EACH>(to);
#pragma unroll
    for (int i = 0; i < EACH; i++) v.at[i] = v.at[i] / (1.0f + __expf(-gate.at[i]));
    write_bf16(v, to);
}

enum err cuda_output_gate(const struct cuda_output_gate *call, struct CUstream_st *stream,
                          struct error *error) {
    const struct cuda_product *gate = &call->gate;
    const dim3 blocks((call->width / EACH + THREADS - 1) / THREADS, call->rows);
    if (call->width % EACH != 0 || call->rows > GRID_ROWS_MAX || !is_product_wide(gate) ||
        call->y_stride % EACH != 0 || !is_at_16(call->y))
        return err_set(error, ERR_INVALID, "output_gate: %u rows of %u, or an address", call->rows,
                       call->width);
    return launch_dependent("output_gate", error, stream, call->rows > 0 ? blocks : dim3(0),
                            THREADS, 0,
                            gate->type == CUDA_SUMS_INT32 ? output_gate<IN_INT32>
                            : gate->row_scale             ? output_gate<IN_BF16_SCALED>
                                                          : output_gate<IN_BF16>,
                            *call);
}

CUDA_MODULE(output_gate, output_gate<IN_BF16>)

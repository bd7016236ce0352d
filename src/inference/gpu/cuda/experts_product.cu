/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/experts_launch.cuh"
#include "gpu/cuda/modules.h"

uint32_t cuda_expert_tile_rows(void) {
    return expert_blocks<expert_shape<CUDA_BF16, CUDA_EXPERTS_DOWN>>() > 0 ? EXPERT_GROUP_ROWS
                                                                           : EXPERT_MMA_ROWS;
}

uint32_t cuda_expert_tiles_most(const struct cuda_expert_order *order) {
    const uint32_t pairs = order->rows * order->each;
    const uint32_t most =
        (pairs < order->experts ? pairs : order->experts) + pairs / cuda_expert_tile_rows();
    return most > 0 ? most : 1;
}

enum err cuda_experts_bf16(const struct cuda_experts *call, struct CUstream_st *stream,
                           struct error *error) {
    return launch_of_code<CUDA_BF16>(call, stream, error);
}

static inline bool is_at_16(const void *at) {
    return ((uintptr_t)at & 15u) == 0;
}

enum err cuda_experts(const struct cuda_experts *call, struct CUstream_st *stream,
                      struct error *error) {
    const uint32_t bits = call->code == CUDA_BF16 ? 16 : 8;
    if (call->by.rows == 0 || call->outputs == 0) return OK;
    if (call->outputs % UNIT_LINES != 0 || call->inputs == 0 || call->inputs % (128 / bits) != 0 ||
        !is_at_16(call->weights) || !is_at_16(call->in) || !is_at_16(call->y) ||
        !is_at_16(call->by.tiles) || !is_at_16(call->column_scale) || !is_at_16(call->bias))
        return err_set(error, ERR_INVALID, "no experts of %u x %u numbers here", call->outputs,
                       call->inputs);
    if (call->grouping != GROUPED_NOT) return cuda_experts_grouped(call, stream, error);
    if (call->code == CUDA_E4M3) return cuda_experts_e4m3(call, stream, error);
    if (call->code == CUDA_INT8) return cuda_experts_int8(call, stream, error);
    return cuda_experts_bf16(call, stream, error);
}

CUDA_MODULE(experts_product, experts_by_mma<expert_shape<CUDA_BF16, CUDA_EXPERTS_DOWN>>)

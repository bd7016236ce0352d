/* SPDX-License-Identifier: Apache-2.0 */

/* experts_sum: what a row's experts left, weighted and summed in the order of its choice. A thread
 * has eight numbers of a row, and asks for those of four experts at once. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/experts.h"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define AHEAD 4

__global__ void __launch_bounds__(THREADS) sum_experts(struct cuda_experts_sum call) {
    const uint32_t eights = call.width / EACH, each = call.by.each;
    const size_t index = blockIdx.x * (size_t)THREADS + threadIdx.x;
    const size_t row = index / eights, pair = row * each;
    const uint32_t at = (uint32_t)(index % eights) * EACH;
    eight sum = {};
    wait_for_before();
    let_next_start();
    if (row >= call.by.rows) return;
    for (uint32_t first = 0; first < each; first += AHEAD) {
        struct words<EACH / 2> raw[AHEAD];
        float weight[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (first + i < each) {
                raw[i] = read_words<EACH / 2>(call.h + (pair + first + i) * call.width + at);
                weight[i] = call.by.weights[pair + first + i];
            }
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            if (first + i >= each) continue;
            const eight h = bf16_numbers<EACH>(raw[i].at);
#pragma unroll
            for (int j = 0; j < EACH; j++) sum.at[j] = __fmaf_rn(weight[i], h.at[j], sum.at[j]);
        }
    }
    if (call.shared) {
        const eight shared = read_bf16<EACH>(call.shared + row * call.width + at);
        const float gate =
            call.shared_gate ? 1.0f / (1.0f + expf(-bf16_float(call.shared_gate[row]))) : 1.0f;
#pragma unroll
        for (int j = 0; j < EACH; j++) sum.at[j] = __fmaf_rn(gate, shared.at[j], sum.at[j]);
    }
    write_bf16(sum, call.y + row * call.width + at);
}

enum err cuda_experts_sum(const struct cuda_experts_sum *call, struct CUstream_st *stream,
                          struct error *error) {
    const uint64_t eights = (uint64_t)call->by.rows * (call->width / EACH);
    if (eights == 0) return OK;
    if (call->width % EACH != 0 || !is_at_16(call->h) || !is_at_16(call->y) ||
        !is_at_16(call->shared) || eights / THREADS > INT32_MAX - 1)
        return err_set(error, ERR_INVALID, "rows of %u numbers of experts cannot be summed",
                       call->width);
    return launch_dependent("sum of experts", error, stream,
                            (uint32_t)((eights + THREADS - 1) / THREADS), THREADS, 0, sum_experts,
                            *call);
}

CUDA_MODULE(experts_sum, sum_experts)

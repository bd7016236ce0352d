/* SPDX-License-Identifier: Apache-2.0 */

/* experts_sum: what a row's experts left, weighted and summed in the order of its choice. A thread
 * has eight numbers of a row, and asks for those of four experts at once. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/experts.h"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define AHEAD 4

/* IN: how the shared expert's row is read. */
template <int IN>
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
    if constexpr (IN != IN_NONE) {
        const float scale = IN >= IN_BF16_SCALED ? call.shared.row_scale[row] : 1.0f;
        const struct raw_sums<IN> raw = read_sums<IN>(call.shared, row, at);
        const eight shared = sums_of<IN>(call.shared, scale, at, raw);
        float gate = 1.0f;
        if (call.shared_gate)
            gate /= 1.0f + expf(-bf16_float(call.shared_gate[row * call.gate_stride]));
#pragma unroll
        for (int j = 0; j < EACH; j++) sum.at[j] = __fmaf_rn(gate, shared.at[j], sum.at[j]);
    }
    write_bf16(sum, call.y + row * call.width + at);
}

typedef void (*sum_kernel)(struct cuda_experts_sum call);

static sum_kernel kernel_for(const struct cuda_product *shared) {
    switch (in_kind_of(shared)) {
    case IN_NONE: return sum_experts<IN_NONE>;
    case IN_BF16_SCALED: return sum_experts<IN_BF16_SCALED>;
    case IN_INT32: return sum_experts<IN_INT32>;
    default: return sum_experts<IN_BF16>;
    }
}

enum err cuda_experts_sum(const struct cuda_experts_sum *call, struct CUstream_st *stream,
                          struct error *error) {
    const uint64_t eights = (uint64_t)call->by.rows * (call->width / EACH);
    if (eights == 0) return OK;
    if (call->width % EACH != 0 || !is_at_16(call->h) || !is_at_16(call->y) ||
        !is_product_wide(&call->shared) || eights / THREADS > INT32_MAX - 1)
        return err_set(error, ERR_INVALID, "rows of %u numbers of experts cannot be summed",
                       call->width);
    return launch_dependent("sum of experts", error, stream,
                            (uint32_t)((eights + THREADS - 1) / THREADS), THREADS, 0,
                            kernel_for(&call->shared), *call);
}

CUDA_MODULE(experts_sum, sum_experts<IN_NONE>)

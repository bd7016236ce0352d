/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>

/* Σ exp(x - max) in the order of the experts. */
static float sum_of(const float *x, uint32_t count, float max) {
    float sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += expf(x[i] - max);
    return sum;
}

void ref_route(const struct route *call) {
    struct scored top[EXPERTS_MAX];
    assert(call->experts <= EXPERTS_MAX && call->used >= 1 && call->used <= call->experts);
    for (size_t row = 0; row < call->rows; row++) {
        const float *logits = call->logits + row * call->stride;
        uint32_t *experts = call->ret_experts + row * call->used;
        float *weights = call->ret_weights + row * call->used;
        const size_t count = ref_top_k(logits, call->experts, call->used, top);
        assert(count == call->used);
        const float max = top[0].value, all = sum_of(logits, call->experts, max);
        float chosen = 0;
        for (size_t i = 0; i < count; i++) {
            experts[i] = top[i].index;
            weights[i] = expf(top[i].value - max) / all;
            chosen += weights[i];
        }
        for (size_t i = 0; call->sums_to_one && i < count; i++) weights[i] /= chosen;
    }
}

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

/* The probability of each expert. */
static void weigh_all(const struct route *call, const float *logits, float *ret_weights) {
    float max = logits[0];
    for (uint32_t i = 1; i < call->experts; i++) max = fmaxf(max, logits[i]);
    const float all = call->is_sigmoid ? 1.0f : sum_of(logits, call->experts, max);
    for (uint32_t i = 0; i < call->experts; i++)
        ret_weights[i] =
            call->is_sigmoid ? 1.0f / (1.0f + expf(-logits[i])) : expf(logits[i] - max) / all;
}

/* Takes the experts outside the best groups out of the choice. */
static void keep_groups(const struct route *call, float *choice) {
    const uint32_t each = call->experts / call->groups;
    float counts[EXPERTS_MAX];
    struct scored best[EXPERTS_MAX];
    bool is_kept[EXPERTS_MAX] = {false};
    assert(each >= 2 && call->groups_used >= 1 && call->groups_used <= call->groups);
    for (uint32_t i = 0; i < call->groups; i++) {
        ref_top_k(choice + i * each, each, 2, best);
        counts[i] = call->groups_by_best ? best[0].value : best[0].value + best[1].value;
    }
    const size_t count = ref_top_k(counts, call->groups, call->groups_used, best);
    for (size_t i = 0; i < count; i++) is_kept[best[i].index] = true;
    for (uint32_t i = 0; i < call->experts; i++)
        if (!is_kept[i / each]) choice[i] = -INFINITY;
}

static void route_row(const struct route *call, const float *logits, uint32_t *ret_experts,
                      float *ret_weights) {
    float weights[EXPERTS_MAX], choice[EXPERTS_MAX], chosen = 0;
    struct scored top[EXPERTS_MAX];
    weigh_all(call, logits, weights);
    /* Logits order as probabilities do, and tell apart those that round to one number. */
    const bool is_plain = !call->bias && call->groups == 0;
    for (uint32_t i = 0; i < call->experts && !is_plain; i++)
        choice[i] = weights[i] + (call->bias ? call->bias[i] : 0.0f);
    if (call->groups > 0) keep_groups(call, choice);
    const size_t count = ref_top_k(is_plain ? logits : choice, call->experts, call->used, top);
    assert(count == call->used);
    for (size_t i = 0; i < count; i++) {
        ret_experts[i] = top[i].index;
        ret_weights[i] = weights[top[i].index];
        chosen += ret_weights[i];
    }
    for (size_t i = 0; call->sums_to_one && i < count; i++) ret_weights[i] /= chosen;
    for (size_t i = 0; call->scale > 0 && i < count; i++) ret_weights[i] *= call->scale;
}

void ref_route(const struct route *call) {
    assert(call->experts <= EXPERTS_MAX && call->used >= 1 && call->used <= call->experts);
    for (size_t row = 0; row < call->rows; row++)
        route_row(call, call->logits + row * call->stride, call->ret_experts + row * call->used,
                  call->ret_weights + row * call->used);
}

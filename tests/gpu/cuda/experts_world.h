/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts_world: orders of experts on the device, for the checks and benches of
 * gpu/cuda/experts.h. */

#include "harness.h"

extern "C" {
#include "gpu/cuda/experts.h"
}

/* Room for an order, poisoned. */
static inline struct cuda_expert_order take_order(uint32_t experts, uint32_t each, uint32_t rows) {
    struct cuda_expert_order order = {experts, each, rows, NULL, NULL, NULL, NULL};
    const size_t pairs = (size_t)rows * each;
    order.chosen = gpu_take<uint16_t>(pairs);
    order.weights = gpu_take<float>(pairs);
    order.order = gpu_take<uint32_t>(pairs);
    order.tiles = gpu_take<struct cuda_expert_tiles>(cuda_expert_tiles_most(&order) + 1);
    return order;
}

static inline struct cuda_route route_of(const float *logits, const struct cuda_expert_order &to) {
    struct cuda_route call = {};
    call.logits = logits, call.is_f32 = true, call.stride = to.experts;
    call.is_renormalised = true, call.scale = 1, call.to = to;
    return call;
}

void check_route(void);

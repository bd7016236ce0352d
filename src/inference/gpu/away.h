/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* away: the layers whose experts lie in the host's memory, because a GPU has no room for all of
 * them. A step reads the weights of each such layer over the bus, into one of two places on the
 * GPU, while layers before it are computed. So these layers are spread evenly over the model.
 *
 * It knows no memory and no step.
 *
 * Thread: any.
 * Memory: none of its own.
 * Invariant: the GPU and the prediction of its memory choose the same layers. */

#include "gpu/table.h"

#define AWAY_PLACES 2u               /* on the GPU, each for the experts of a layer */
#define AWAY_LEAST (AWAY_PLACES + 1) /* fewer layers save nothing */

/* Layers with experts. */
static inline uint32_t away_layers(const struct gpu_program *program) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->op_count; i++) count += program->ops[i].kind == OP_EXPERTS;
    return count;
}

/* Whether the nth of `layers` layers with experts is one of `away`. */
static inline bool away_has(uint32_t nth, uint32_t layers, uint32_t away) {
    return (uint64_t)(nth + 1) * away / layers > (uint64_t)nth * away / layers;
}

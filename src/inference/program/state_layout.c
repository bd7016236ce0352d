/* SPDX-License-Identifier: Apache-2.0 */
#include "program/state_layout.h"

#include <assert.h>

#define ALIGNMENT 16u /* floats of a cache line */

static uint64_t aligned(uint64_t floats) {
    return (floats + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

struct state_layout state_layout_of(const struct model_config *config) {
    struct state_layout layout = {.floats = 0};
    const struct recurrent_sizes *sizes = &config->recurrent;
    if (!config_is_recurrent(config)) return layout;
    const uint64_t tail = aligned((uint64_t)(sizes->taps - 1) * config_state_channels(config));
    const uint64_t matrix =
        aligned((uint64_t)sizes->value_heads * sizes->key_dim * sizes->value_dim);
    for (uint32_t i = 0; i < config->layers; i++) {
        if (!config_layer_is_recurrent(config, i)) continue;
        layout.tail[i] = (uint32_t)layout.floats;
        layout.matrix[i] = (uint32_t)(layout.floats + tail);
        layout.floats += tail + matrix;
    }
    assert(layout.floats <= UINT32_MAX); /* the config's bound */
    return layout;
}

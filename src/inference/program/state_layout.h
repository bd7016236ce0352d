/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state_layout: where the states of recurrent layers lie in the memory of a sequence.
 *
 * A sequence has one block of float32, whatever its length: per recurrent layer the last inputs of
 * the convolution, (taps - 1, channels), and the state, (value_heads, key_dim, value_dim), which a
 * convolution alone has none of. The blocks of all places (scheduler/backend.h) lie one after
 * another.
 *
 * Thread: any.
 * Memory: the struct. */

#include "checkpoint/config.h"

struct state_layout {
    uint64_t floats; /* size of a block, a multiple of 16; 0: no layer is recurrent */
    uint32_t tail[CONFIG_LAYERS_MAX];   /* where a layer's last inputs begin */
    uint32_t matrix[CONFIG_LAYERS_MAX]; /* where its state begins */
};

struct state_layout state_layout_of(const struct model_config *config);

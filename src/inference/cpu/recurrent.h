/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent: the operations CONV, DELTA and GATED_NORM of a forward pass on the CPU.
 *
 * Each sequence of a step goes on in the state of its slot, cut by channels or heads into tasks. A
 * state begins with zeros where the slot was another sequence's. It knows no architecture.
 *
 * Thread: as forward.h.
 * Memory: the states of the forward that owns the KV cache.
 * Invariant: a row's result and the state behind it are bitwise the same for any other rows and any
 *     cut of a sequence into steps (kernels/recurrent.h). */

#include "cpu/forward_state.h"

void recurrent_conv(struct forward *forward, const struct op *op);
void recurrent_delta(struct forward *forward, const struct op *op);
void recurrent_gated_norm(struct forward *forward, const struct op *op);

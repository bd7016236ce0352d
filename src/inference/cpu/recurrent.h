/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent: the operations CONV, DELTA and GATED_NORM of a forward pass on the CPU.
 *
 * Each sequence of a step goes on in the place of its state (scheduler/backend.h), cut by channels
 * or heads into tasks. A task fetches its part of the state from another place, or zeros it, and
 * saves it after some rows, where the step says so: nothing waits for a copy. It knows no
 * architecture.
 *
 * Thread: as forward.h.
 * Memory: the states of the forward that owns the KV cache.
 * Invariant: a row's result and the state behind it are bitwise the same for any other rows and any
 *     cut of a sequence into steps (kernels/recurrent.h). */

#include "cpu/forward_state.h"

void recurrent_conv(struct forward *forward, const struct op *op);
void recurrent_delta(struct forward *forward, const struct op *op);
void recurrent_mamba(struct forward *forward, const struct op *op);
void recurrent_gated_norm(struct forward *forward, const struct op *op);

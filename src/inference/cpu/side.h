/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* side: the operations INPUTS, ASIDE and JOIN of a forward pass on the CPU, which keep rows next to
 * the residual stream.
 *
 * Thread: as forward.h.
 * Memory: inputs and side of the forward's workspace.
 * Invariant: a row's result is bitwise the same for any other rows. */

#include "cpu/forward_state.h"

/* Makes each layer's part of the tokens, from their rows in a table and from products of x. */
void side_inputs(struct forward *forward, const struct op *op);
/* Keeps the norm of h, or adds it to what was kept and leaves the sum in h. */
void side_run(struct forward *forward, const struct op *op);

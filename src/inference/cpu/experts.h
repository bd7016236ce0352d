/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts: the operations ROUTE and EXPERTS of a forward pass on the CPU.
 *
 * The rows of an expert are gathered and multiplied as one product, so that its weights are read
 * once for all of them. It knows no architecture.
 *
 * Thread: as forward.h.
 * Memory: the routing of the forward's workspace.
 * Invariant: a row's result is bitwise the same for any other rows: products keep it (kernels.h),
 *     and a row's experts are summed in the order of its own choice. */

#include "cpu/forward_state.h"

/* Chooses the experts of the rows of h by the logits in wide, and gives each expert its places. */
void experts_route(struct forward *forward, const struct op *op);
/* Adds what the experts leave to x, or leaves it in h. */
void experts_run(struct forward *forward, const struct op *op);

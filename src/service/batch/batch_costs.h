/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batch_costs: what a batch that has run cost: its job as costs/costs.h prices it.
 *
 * The time without sharing is the measured time per computed token, for all tokens that were asked:
 * an estimate. A reused answer has the cached tokens of its first run in its usage, so the share of
 * cached tokens counts for computed prompts only.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "costs/costs.h"
#include "store/batches.h"

/* A run of this usage in `seconds`, after `load_seconds` for the model; seconds of 0 or less: the
 * time is not known. */
struct cost_job batch_cost_job(const struct usage *usage, double seconds, double load_seconds);
/* Appends the costs of a batch that has ended and told its usage, else null. */
void batch_costs_write(struct buf *buf, const struct store_batch *batch,
                       const struct prices *prices);

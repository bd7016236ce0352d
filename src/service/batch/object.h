/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* object: the batch object that clients see.
 *
 * Thread: any; pure.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "costs/prices.h"
#include "store/batches.h"

/* Appends the batch object with every key. Its counters are the row's; runner_batch_get refreshes
 * them. */
/* With the costs of a batch that has ended: its time from its first request to its last, and its
 * tokens, at these prices (NULL: none is given). */
void batch_write_json(struct buf *buf, const struct store_batch *batch,
                      const struct prices *prices);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* object: the batch object that clients see.
 *
 * Thread: any; pure.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "store/batches.h"

/* Appends the batch object with every key. Its counters are the row's; runner_batch_get refreshes
 * them. */
void batch_write_json(struct buf *buf, const struct store_batch *batch);

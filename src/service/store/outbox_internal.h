/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* outbox_internal: the outbox's part in the transaction that ends a batch. Only store/ includes it.
 *
 * Thread: any; the caller holds the store's lock.
 * Memory: none. */

#include "store/outbox.h"
#include "store/store_internal.h"

/* Adds the rows for the end of a batch in a terminal state. Runs inside a transaction. */
enum err outbox_add_end(struct store *store, const struct store_batch *batch,
                        struct error *error) MUST_CHECK;

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* outbox_internal: what a transaction on batches asks of the outbox. Only store/ includes it. */

#include "store/outbox.h"
#include "store/store_internal.h"

/* Inside a transaction: the rows for the end of a batch, which is in a terminal state. */
enum err outbox_add_end(struct store *store, const struct store_batch *batch,
                        struct error *error) MUST_CHECK;

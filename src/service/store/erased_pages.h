/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erased_pages: removes erased text from the bytes of the database's files
 * (docs/adr/0033-erasure-of-a-batch.md). An erasure deletes it from the rows, and SQLite overwrites
 * what it deletes in meta.db (secure_delete). A copy stays in the write-ahead log until the log is
 * moved into meta.db and cut.
 *
 * Thread: any.
 * Memory: none. */

#include "store/store.h"

/* Empties the write-ahead log. It is called after each erasure. ERR_UNAVAILABLE: another process
 * reads the database; erased_pages_retry tries again. */
enum err erased_pages_clear(struct store *store, struct error *error) MUST_CHECK;
/* Called by each store_batch_sweep: does once more what could not be done. */
void erased_pages_retry(struct store *store);
/* Called at start: does what a kill may have kept erased_pages_clear from. */
enum err erased_pages_open(struct store *store, struct error *error) MUST_CHECK;

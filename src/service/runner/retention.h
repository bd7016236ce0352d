/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* retention: the end of ended batches. A client deletes them, or they grow older than keep_days.
 *
 * It marks batches as deleted and removes what marked ones have (store/batches_remove.h), a bounded
 * number per call, and counts and logs it. It knows no runner: the caller says that a batch has
 * ended, and what the time is.
 *
 * Thread: any; the counters are atomic.
 * Memory: the caller's struct; borrows the store. */

#include "store/batches_remove.h"

#include <stdatomic.h>

/* Why a batch was deleted. */
enum retention_why { DELETED_BY_REQUEST, DELETED_BY_AGE, DELETED_COUNT };

struct retention {
    struct store *store;
    uint32_t keep_days; /* ended batches are deleted after them; 0: never */
    atomic_ullong deleted[DELETED_COUNT];
    atomic_ullong bytes;
};

/* Deletes what is too old, and ends deletions that have begun. True if more is left than one call
 * does. */
bool retention_sweep(struct retention *retention, int64_t now_unix_s);
/* Deletes an ended batch. *ret_has_more: a part of it is left for retention_sweep. The errors are
 * those of store_batch_delete. */
enum err retention_delete(struct retention *retention, struct str batch_id, int64_t now_unix_s,
                          struct store_freed *ret_freed, bool *ret_has_more,
                          struct error *error) MUST_CHECK;
/* Notes in the row of an ended batch when it will be deleted. */
void retention_note(const struct retention *retention, struct store_batch *row);

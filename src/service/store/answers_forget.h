/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answers_forget: the answers that the result cache has of a batch end with the results of that
 * batch: with its output file, if that is deleted or expires alone, or with the batch.
 *
 * They are forgotten durably before the row of the file goes, so that a kill in between leaves a
 * row that the next sweep finds again.
 *
 * Thread: any, but for store_use_cache.
 * Memory: the store borrows the cache.
 * Invariant: each answer in the cache is of a batch whose output file has a row, or is not yet
 *     there (I16). */

#include "store/result_cache.h"

/* Names the cache in which answers are forgotten from now on, and forgets there what earlier
 * versions have left. NULL: there is none. No other thread uses the store meanwhile. */
void store_use_cache(struct store *store, struct result_cache *cache);
/* Forgets the answers of a batch. Without a cache it does nothing. */
enum err store_forget_answers(struct store *store, const char *batch_id,
                              struct error *error) MUST_CHECK;
/* Forgets the answers of the batch whose output file this is. Another file changes nothing. */
enum err store_forget_answers_of_file(struct store *store, const char *file_id,
                                      struct error *error) MUST_CHECK;
/* Whether answers of the batch may be in the cache. */
enum err store_keeps_answers(struct store *store, const char *batch_id, bool *ret_keeps,
                             struct error *error) MUST_CHECK;

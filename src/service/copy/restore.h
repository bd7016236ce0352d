/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* restore: makes a state directory of a copy.
 *
 * The base is applied, then the log, in their order. What the database does not name afterwards was
 * never acknowledged, and is removed. Until the end the directory has the mark `restoring`.
 *
 * Thread: one.
 * Memory: one entry at a time. */

#include "copy/chain.h"

struct copy_restored {
    uint64_t entries; /* entries of the log that were applied */
    uint64_t batches, unfinished, files;
    char host[ENTRY_HOST_BYTES]; /* whose copy it is */
    int64_t unix_ms;             /* time of its last entry, by that machine's clock */
};

/* Makes the directory and its mark, or empties one in which a restore of a copy broke off. */
enum err copy_restore_begin(const char *state_dir, struct error *error) MUST_CHECK;
/* Fills the new or empty directory, or one in which a restore of a copy broke off. ERR_NOT_FOUND
 * without a whole copy, ERR_CONFLICT for a directory with anything else in it, ERR_CORRUPT. */
enum err copy_restore(struct bucket *bucket, const struct chain_end *end, const char *state_dir,
                      const volatile bool *stop, struct copy_restored *ret_restored,
                      struct error *error) MUST_CHECK;
/* Finds the end of the copy at `place`, and restores. */
enum err copy_restore_from(const char *place, const char *state_dir, const volatile bool *stop,
                           struct copy_restored *ret_restored, struct error *error) MUST_CHECK;

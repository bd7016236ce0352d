/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lost: what a state directory has and no row of meta.db names.
 *
 * Bytes come before their row, so that a kill in between leaves bytes that nobody was told of. They
 * have mode 0600 until their row is committed, and 0400 from then on until their row is about to be
 * removed. So a file of mode 0400 without a row was acknowledged, and its row was lost: the start
 * moves it to lost/, where nothing is ever removed, and fsck names it. A folder of a run comes
 * after its row, so that one without a row has lost it.
 *
 * Thread: the opener's; lost_mark_known and lost_mark_leaving any.
 * Memory: none. */

#include "store/store_internal.h"

/* Its row is committed. A failure is no error: the file is found by its row. */
void lost_mark_known(const char *path);
/* Its row is about to be removed. Durable, because a power cut may leave the removal of the row and
 * not the mode. */
enum err lost_mark_leaving(struct store *store, const char *path, struct error *error) MUST_CHECK;
/* Whether a file without a row was acknowledged once; false if it cannot be looked at. */
bool lost_was_known(const char *path);
/* Moves "<dir>/<from>" to lost/ and logs it. */
enum err lost_move(struct store *store, const char *from, struct error *error) MUST_CHECK;
/* Copies meta.db-wal to lost/ and logs why, if a part of it that was whole once would be dropped.
 */
enum err lost_keep_log(struct store *store, struct error *error) MUST_CHECK;

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* whole_file: a file that a command makes for its user, and that appears whole or not at all.
 *
 * The bytes are written to a file of another name in the same file system and synced; then that
 * file gets its name. A crash or a full disk leaves the file that existed before. A file that
 * exists is replaced only with `may_replace`. The caller tells its user how to replace a file.
 *
 * Thread: any.
 * Memory: none.
 * Invariant: a reader of the path finds the old file or the new one, never a part. */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* Checks, before the work begins, whether a file of this name exists. ERR_INVALID for an empty
 * name, "-", a link without a target, or anything else that is no plain file. */
enum err whole_file_check(const char *path, bool *ret_exists, struct error *error) MUST_CHECK;
/* Gives the synced file `made` the name `path`, durably. `made` may keep its own name; the caller
 * unlinks it. ERR_CONFLICT ("PATH exists") if a file has the name and `may_replace` is false. Where
 * the file system has no links, a file that another program makes at the same moment is
 * replaced. */
enum err whole_file_place(const char *made, const char *path, bool may_replace,
                          struct error *error) MUST_CHECK;
/* Makes a small file of a text, through PATH.PID.tmp, which is locked (flock) as long as its
 * process needs it. What killed processes left under such names is removed: a file of this PID, for
 * that one was of another container, and each one that nobody has locked. Without `may_replace`, a file that
 * already has this text is left alone, and the return value is OK. ERR_INVALID as of
 * whole_file_check, ERR_CONFLICT as of whole_file_place. */
enum err whole_file_write(const char *path, struct str text, bool may_replace,
                          struct error *error) MUST_CHECK;
/* Removes what killed processes left of `path`, each PATH.PID.tmp, for a caller who knows that
 * nobody writes the file now. The folder's own name is no link. */
enum err whole_file_remove_rests(const char *path, struct error *error) MUST_CHECK;

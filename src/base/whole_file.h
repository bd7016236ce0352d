/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* whole_file: a file that a command makes for its user, and that appears whole or not at all.
 *
 * The bytes are written to a file of another name in the same file system and synced; then that file
 * gets its name. A crash or a full disk leaves the file that existed before. A file that exists is
 * replaced only with `may_replace`. The module knows no option: a caller has the sentence that tells
 * its user how to replace a file.
 *
 * Thread: any.
 * Memory: none. */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* Whether a file of this name exists; for the time before the work begins. ERR_INVALID for an empty
 * name, for a link that leads nowhere, and for all else that is no plain file. */
enum err whole_file_check(const char *path, bool *ret_exists, struct error *error) MUST_CHECK;
/* Gives the synced file `made` the name `path`, durably. `made` may keep its own name; the caller
 * unlinks that. ERR_CONFLICT ("PATH exists") if a file has the name and `may_replace` is false; where
 * the file system has no links, another program's file that comes at the same moment is replaced. */
enum err whole_file_place(const char *made, const char *path, bool may_replace,
                          struct error *error) MUST_CHECK;
/* Makes a small file of a text, by way of PATH.PID.tmp. A file with this very text is left alone.
 * ERR_INVALID as of whole_file_check, ERR_CONFLICT as of whole_file_place. */
enum err whole_file_write(const char *path, struct str text, bool may_replace,
                          struct error *error) MUST_CHECK;

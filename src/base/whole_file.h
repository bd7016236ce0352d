/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* whole_file: a small file that a command makes, which is there as a whole or not at all.
 *
 * The text is written to a file NAME.PID.tmp in the same folder, synced, and then gets its name. So a
 * crash or a full disk leaves what was there before. A file with another text is replaced only if the
 * user says so, as by `quern run`.
 *
 * Thread: main.
 * Memory: none. */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* ERR_INVALID if something exists at `path` that is no plain file; for the time before the work
 * begins. */
enum err whole_file_check(const char *path, struct error *error) MUST_CHECK;
/* ERR_CONFLICT if the file exists with another text and `may_replace` is false. */
enum err whole_file_write(const char *path, struct str text, bool may_replace,
                          struct error *error) MUST_CHECK;

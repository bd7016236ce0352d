/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state_marks: what keeps a state directory closed: its lock, and two marks.
 *
 *   LOCK        held with flock by the process that has the directory open
 *   moved       its batches went to another directory with `quern backup --move`, and must not run
 *               here as well: no line runs twice, none is published twice
 *   restoring   `quern restore` began to fill it and did not end
 *
 * A mark is a file with one line for people. A directory with a mark is not opened for writing;
 * `quern fsck` and a backup read it.
 *
 * Thread: any.
 * Memory: none. */

#include "base/err.h"

#define STATE_LOCK_NAME "LOCK"

enum state_mark { STATE_MOVED, STATE_RESTORING, STATE_MARK_COUNT };

/* ERR_CONFLICT: another process has removed the directory, which was there a moment ago. */
enum err state_removed(const char *dir, struct error *error) MUST_CHECK;
/* Locks the directory until the descriptor is closed. ERR_CONFLICT if another process has it open,
 * or removes it at this moment. `read_only` creates no lock file: ERR_NOT_FOUND if the directory is
 * none of a state. */
enum err state_lock(const char *dir, bool read_only, int *ret_fd, struct error *error) MUST_CHECK;
/* Makes the mark, or removes it; durable when it returns OK. */
enum err state_mark_set(const char *dir, enum state_mark mark, const char *line,
                        struct error *error) MUST_CHECK;
/* Reads the mark's line, without its LF; the caller frees it with free(). ERR_NOT_FOUND if the
 * directory has no such mark. */
enum err state_mark_read(const char *dir, enum state_mark mark, char **ret_line,
                         struct error *error) MUST_CHECK;
enum err state_mark_clear(const char *dir, enum state_mark mark, struct error *error) MUST_CHECK;
/* ERR_CONFLICT, with the ways out, if the directory has a mark. */
enum err state_marks_check(const char *dir, struct error *error) MUST_CHECK;

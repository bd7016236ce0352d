/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* file_lock: one program at a time behind an open file (flock).
 *
 * A program that was killed keeps its locks until the kernel has given its memory back, which takes
 * a second or more with gigabytes. Who starts it again at once should not be told that it still
 * runs, so a lock that another holds is waited for.
 *
 * It knows no file: who locks says in a sentence what is in use.
 *
 * Thread: any. It sleeps for up to FILE_LOCK_WAIT_MS.
 * Memory: none.
 * Invariant: the lock is that of the open file, so it ends with os_close or the process. */

#include "base/err.h"

#define FILE_LOCK_WAIT_MS 3000

/* Takes the lock alone (`is_shared`: beside others that share it). ERR_CONFLICT, with no sentence,
 * if another had it all the time; else the sentence says why `name` cannot be locked. */
enum err file_lock(int fd, const char *name, bool is_shared, struct error *error) MUST_CHECK;

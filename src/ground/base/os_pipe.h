/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* os_pipe: files that a user names and that may be pipes, as `<(zcat requests.jsonl.gz)` is.
 *
 * A FIFO without a writer makes open(2) wait, and one whose writer is slow makes read(2) wait.
 * Calls that repeat EINTR would wait on after Ctrl-C. So os_open and os_read wait here instead, in
 * slices, and end with ERR_CANCELLED once the stop flag of the command is set. A regular file never
 * comes here.
 *
 * Thread: any; the flag is set once, before threads start.
 * Memory: none but for os_pipe_read_all. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The flag that ends a wait; without one only the end of the process does. */
void os_pipe_stop_with(const volatile bool *stop);
/* After a call that a signal has ended: ERR_CANCELLED if it is not to be repeated. That of a
 * regular file always is, also while a server drains. */
enum err os_pipe_interrupted(int fd, struct error *error) MUST_CHECK;
/* Whether open(2) of this path for reading may wait. */
bool os_pipe_may_wait(int dir_fd, const char *path);
/* Waits until a read returns at once: with bytes, or at the end, once all writers have gone. A pipe
 * that has had no writer yet has not ended. */
enum err os_pipe_wait(int fd, struct error *error) MUST_CHECK;
/* Reads a pipe to its end and puts a NUL behind it; the caller frees it with free(). `path` is for
 * sentences only. ERR_LIMIT over `bytes_max`. */
enum err os_pipe_read_all(int fd, const char *path, size_t bytes_max, char **ret_bytes,
                          size_t *ret_count, struct error *error) MUST_CHECK;

/* Opens a file that is read more than once, or by position. ERR_INVALID for a pipe or anything else
 * that is no plain file; it never waits for one. */
enum err os_open_plain(int *ret_fd, const char *path, struct error *error) MUST_CHECK;

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* spawn: a process that starts with nothing of this one but what it is given: descriptors by
 * number, no blocked signals, and of the environment only what a C program needs to run, so that no
 * key and no secret comes along.
 *
 * Thread: any; a child that asks for a signal at the end of its parent gets it when the thread that
 * started it ends.  Memory: none. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SPAWN_FDS_MAX 8
#define SPAWN_NULL (-1) /* in the place of a descriptor: /dev/null */

struct spawn_options {
    const char *program;
    const char *const *arguments; /* argv, its name first, ending in NULL */
    int fds[SPAWN_FDS_MAX]; /* what the child has as descriptor 0, 1, …; SPAWN_NULL allowed */
    size_t fd_count;        /* of them, 3 at least; it has no others */
};

/* The caller's descriptors stay open here. */
enum err spawn_start(pid_t *ret_pid, const struct spawn_options *options,
                     struct error *error) MUST_CHECK;

/* Waits up to `patience_ms` for the child to end, then kills it. Writes how it ended as a phrase:
 * "exited with status 3", "was killed by signal 9 (Killed)". Returns its exit status, or -1 when it
 * did not exit by itself. */
int spawn_wait(pid_t pid, int64_t patience_ms, char *ret_text, size_t text_bytes);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_child: a process of our own program behind one end of a socket pair.
 *
 * The child inherits the other end as descriptor 3, a file in memory for its stacks as 4 (dump.h),
 * and standard error. It gets no other descriptor, no blocked signal, and only those variables of
 * the environment that a C program needs.
 *
 * Thread: the thread that starts a child must live as long as the child (see worker_engine.h).
 * Memory: none. */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <sys/types.h>

#define ENGINE_CHILD_FD 3
#define ENGINE_CHILD_DUMP_FD 4
#define ENGINE_CHILD_ARGUMENTS_MAX 16

struct engine_child {
    pid_t pid;   /* 0: none */
    int fd;      /* our end of the socket; -1: none */
    int dump_fd; /* -1: none; the owner closes it after engine_child_end */
};

/* Runs `program` with `arguments` (ending in NULL) and "--fd 3 --dump-fd 4" after them. */
enum err engine_child_start(struct engine_child *ret_child, const char *program,
                            const char *const *arguments, struct error *error) MUST_CHECK;

/* Closes the socket, waits up to `patience_ms` for the child to end, then kills it and waits up to
 * `kill_ms` more. *ret_text is how it ended, as a phrase: "exited with status 3", "was killed by
 * signal 9 (Killed)". False if it has not ended: its pid stays for engine_child_has_ended. */
bool engine_child_end(struct engine_child *child, int64_t patience_ms, int64_t kill_ms,
                      char *ret_text, size_t text_bytes);
/* Whether a child that engine_child_end could not end has ended since, or none is left. */
bool engine_child_has_ended(struct engine_child *child);

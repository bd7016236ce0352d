/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_child: a process of our own program behind one end of a socket pair.
 *
 * The child inherits that socket as descriptor 3, a file in memory for its stacks as 4 (see
 * engine_dump.h), standard error, and nothing else: no other descriptor, no blocked signals, and of
 * the environment only what a C program needs to run.
 *
 * Thread: the one that starts a child must live as long as it (see worker_engine.h).
 * Memory: none. */

#include "base/err.h"
#include "base/str.h"

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

/* Closes the socket, waits up to `patience_ms` for the child to end, then kills it. Writes how it
 * ended as a phrase: "exited with status 3", "was killed by signal 9 (Killed)". */
void engine_child_end(struct engine_child *child, int64_t patience_ms, char *ret_text,
                      size_t text_bytes);

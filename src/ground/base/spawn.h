/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* spawn: starts a process that inherits only the named descriptors and the few environment
 * variables that a C program or a card's driver needs, or that name places of models. No signal is
 * blocked in it. No key or secret reaches it.
 *
 * Thread: any. A child that asked for a signal at its parent's end gets it when the starting thread
 * ends.
 * Memory: none. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SPAWN_FDS_MAX 8
#define SPAWN_NULL (-1) /* stands for /dev/null in a list of descriptors */

struct spawn_options {
    const char *program;
    const char *const *arguments; /* argv, its name first, ending in NULL */
    int fds[SPAWN_FDS_MAX]; /* become the child's descriptors 0, 1, …; SPAWN_NULL is allowed */
    size_t fd_count;        /* at least 3; the child has no other descriptors */
};

/* The caller's descriptors stay open in the caller. */
enum err spawn_start(pid_t *ret_pid, const struct spawn_options *options,
                     struct error *error) MUST_CHECK;

/* Waits up to `patience_ms` for the child to end; false if it has not. Else writes a phrase about
 * its end, such as "exited with status 3" or "was killed by signal 9 (Killed)". *ret_status is its
 * exit status, or -1 if a signal ended it; NULL is allowed. */
bool spawn_await(pid_t pid, int64_t patience_ms, int *ret_status, char *ret_text,
                 size_t text_bytes);

/* As spawn_await, and then kills the child and waits up to `kill_ms` more. False if the kernel does
 * not let it end: a driver holds one of its calls. */
bool spawn_end(pid_t pid, int64_t patience_ms, int64_t kill_ms, int *ret_status, char *ret_text,
               size_t text_bytes);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_dump: the stacks of an engine that hung or crashed, kept as a file for a person to read.
 *
 * The engine writes them (base/stacks.h) to a file in memory that both processes have open. So the
 * engine never opens the state directory, and the stacks outlive it.
 *
 * Thread: any.
 * Memory: none kept.
 * Invariant: the directory has at most ENGINE_DUMPS_MAX files. */

#include "base/err.h"

#include <sys/types.h>

#define ENGINE_DUMPS_MAX 16

/* The file in memory; -1 if it cannot be made. */
int engine_dump_make(void);
/* Asks the engine for its stacks and waits until they are written, at most 2 s. */
void engine_dump_ask(int fd, pid_t pid);
/* Keeps the stacks in a new file in `dir`, which is made if it does not exist. False if the engine
 * wrote none. */
bool engine_dump_keep(int fd, pid_t pid, const char *dir, char *ret_path, size_t path_bytes);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_dump: the stacks of an engine that hung or crashed, kept as a file for a person to read.
 * The engine writes them (base/stacks.h) to a file in memory that both processes have open: it
 * never opens the state directory, and this side still has it when the engine is gone.
 *
 * Thread: any.  Memory: none kept.  Invariant: the directory has at most ENGINE_DUMPS_MAX files. */

#include "base/err.h"

#include <sys/types.h>

#define ENGINE_DUMPS_MAX 16

/* The file in memory, or -1 when there can be none. */
int engine_dump_make(void);
/* Asks the engine for its stacks and waits until they are there, two seconds at most. */
void engine_dump_ask(int fd, pid_t pid);
/* Keeps what was written in a new file in `dir`, which is made when it is not there. False when
 * nothing was written. */
bool engine_dump_keep(int fd, pid_t pid, const char *dir, char *ret_path, size_t path_bytes);

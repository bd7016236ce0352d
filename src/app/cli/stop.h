/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stop: SIGINT and SIGTERM as a flag, SIGHUP as a number.
 *
 * The first signal asks for an orderly end; the second one ends the process at once with
 * EXIT_INTERRUPTED, which loses nothing, because results are on the disk.
 *
 * Thread: main installs the handlers before other threads start; any thread may read the flag.
 * Memory: static. */

#include <signal.h>
#include <stdbool.h>

/* Installs the handlers and returns the flag. Signals that mean nothing here are ignored. */
const volatile bool *stop_on_signals(void);
/* Sets the same flag when the process that started this one ends. */
void stop_with_parent(void);
/* Has the kernel kill this process when the thread that started it ends: for a parent that hands
 * out its work anew at once. */
void die_with_parent(void);
/* Counts each SIGHUP from now on. One that comes because the terminal of this process has gone sets
 * the flag of stop_on_signals instead, unless the process was started to ignore SIGHUP (nohup). */
const volatile sig_atomic_t *count_hangups(void);

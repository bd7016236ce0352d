/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* signals: those that mean nothing to quern and would end it all the same.
 *
 * By default a process ends by SIGUSR1, SIGALRM, a signal of real time and others of which no user
 * thinks as an end: a script that rotates logs sends one to the wrong process. SIGXFSZ is among
 * them, so that a write over a limit of file size fails and is told.
 *
 * Thread: main, before other threads.
 * Memory: none. */

/* Ignores them, except those that have a handler already. */
void signals_ignore_strays(void);

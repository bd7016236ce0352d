/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* life: one process of the server, from its start on what the disk has to its end, and the client
 * that speaks to it. Runs in a child of the rig.
 *
 * Thread: the simulated threads of this life. */

/* Ends the process with an enum life_end, or dies as the plan says. */
void life_run(void) __attribute__((noreturn));
/* The threads, clocks and the disk of a process, for nodes.c. */
void life_begin(void);
/* A life, in a process that has had others. */
void life_main(void);
/* Restores the newest backup beside the state directory, and checks it: all that the client knew
 * when it began is there. */
void life_restore(void) __attribute__((noreturn));
/* Makes a state directory on the empty disk and ends the process. */
void life_format(void) __attribute__((noreturn));

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* threads: the threads of a life, one at a time, in an order that the seed chooses, on a clock that
 * moves only when they do.
 *
 * threads.c takes the place of pthread_create, mutexes, conditions, the clocks and the generator
 * of random bytes in the rig's program (linked with --wrap). A thread is a stack here. It goes on
 * until it waits; at a lock, an unlock, a signal or a call to the disk the seed may let another one
 * go on. If all wait, the clock moves to the next deadline. If none has one, the life is stuck,
 * which is a violation.
 *
 * Thread: one of the kernel's.
 * Memory: stacks of a fixed size and number. */

#include <stdint.h>

/* The life begins, on the stack of the caller. */
void threads_begin(void);
/* A place at which another thread may go on. */
void threads_may_switch(void);
/* Time passes while the caller works. */
void threads_pass_ns(int64_t ns);
/* The caller sleeps. */
void threads_sleep_ns(int64_t ns);
/* Switches so far. */
uint64_t threads_switches(void);

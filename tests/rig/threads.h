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

#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define UNIX_S 1800000000 /* where the wall clock begins */

/* What the threads live in. */
struct threads_world {
    int64_t *now_ns;         /* the monotonic clock */
    const int64_t *wall_ms;  /* what the wall clock is ahead of it */
    uint32_t preempt;        /* a thread gives way at one of so many places; 0: at none */
    struct rng draws, bytes; /* who goes on; random bytes */
    void (*fail)(const char *format, ...) /* notes a violation and ends the process */
        __attribute__((format(printf, 1, 2), noreturn));
};

/* The life begins, on the stack of the caller. */
void threads_begin(const struct threads_world *world);
/* A place at which another thread may go on. */
void threads_may_switch(void);
/* Time passes while the caller works. */
void threads_pass_ns(int64_t ns);
/* The caller sleeps. */
void threads_sleep_ns(int64_t ns);
/* The caller waits until something wakes `what`, or the deadline. False if that came first. */
bool threads_wait_until(const void *what, int64_t due_ns);
/* All that wait for `what` go on. */
void threads_wake(const void *what);
/* Switches so far. */
uint64_t threads_switches(void);

/* --- groups of threads, for several processes in one world --- */

/* The caller belongs to the group from now on, and so do the threads that it makes. All begin in
 * group 0. */
void threads_enter(uint32_t group);
/* That of the caller. */
uint32_t threads_group(void);
/* The threads of another group are gone, wherever they were, with what they held. */
void threads_end(uint32_t group);
/* The group goes on after `ns` only; with `also_clock` its monotonic clock stands still meanwhile,
 * as that of a machine that sleeps. */
void threads_hold(uint32_t group, int64_t ns, bool also_clock);
/* The group's wall clock is ahead of the world's by so much. */
void threads_set_wall(uint32_t group, int64_t wall_ms);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* clock: the two clocks of quern: Unix time and the monotonic clock. Domain code takes times as
 * arguments, and only thread mains read a clock, so that tests need no sleeps.
 *
 * A test can move both clocks of a process forward, so that hours of back-off pass at once. A
 * process that has not called clock_make_movable or clock_follow has clocks that nobody can move.
 * The kernel and libcurl do not see a move: a wait in them is cut into pieces by clock_wait_ms.
 *
 * Thread: any, but clock_make_movable and clock_follow belong to main, before other threads.
 * Memory: none.
 * Invariant: a move goes forward only, so that the monotonic clock never goes back. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The highest Unix time that clock_unix_s gives: the end of 9998, so that a year can be added. */
#define CLOCK_UNIX_S_MAX INT64_C(253370764799)

/* For every time on the wire and on disk: 1 to CLOCK_UNIX_S_MAX, whatever the machine's clock
 * shows. */
int64_t clock_unix_s(void);
int64_t clock_unix_ms(void);      /* for schedules that outlive the process */
int64_t clock_monotonic_ns(void); /* for intervals and deadlines; never goes back */
void clock_sleep_ms(int64_t milliseconds);

/* --- for tests --- */

/* A movable process looks at its clocks again after this time, in whatever it waits. */
#define CLOCK_LOOK_MS 10

/* Lets clock_move_ms move the clocks of this process. */
void clock_make_movable(void);
/* Moves the clocks forward. A wait whose deadline comes by it ends within CLOCK_LOOK_MS. */
void clock_move_ms(int64_t milliseconds);
/* Moves the clocks of this process forward by the number in a file, always by the newest. The file
 * has 8 or 16 bytes, int64_t in the byte order of the machine:
 *
 *   0  8  milliseconds; a writer only makes it larger
 *   8  8  seconds, of either sign, that Unix time alone is moved by; read once
 *
 * ERR_INVALID if it is no such file, or if another user owns it or can write it. */
enum err clock_follow(const char *path, struct error *error) MUST_CHECK;
bool clock_is_movable(void);
/* The sum of the moves. */
int64_t clock_moved_ns(void);
/* A timeout for poll and similar calls: `timeout_ms` (negative: none), at most CLOCK_LOOK_MS in a
 * movable process. */
int clock_wait_ms(int timeout_ms);

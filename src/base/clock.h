/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* clock: the two clocks of quern: Unix time and the monotonic clock. Domain code takes times as
 * arguments, and only thread mains read a clock, so that tests need no sleeps.
 *
 * Thread: any. */

#include <stdint.h>

int64_t clock_unix_s(void);       /* for every time on the wire and on disk */
int64_t clock_unix_ms(void);      /* for schedules that outlive the process */
int64_t clock_monotonic_ns(void); /* for intervals and deadlines; never goes back */
void clock_sleep_ms(int64_t milliseconds);

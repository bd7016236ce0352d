/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* clock: the two times of day quern uses. Domain code takes times as arguments; only thread mains
 * call these, so that tests need no sleeps.  Thread: any. */

#include <stdint.h>

int64_t clock_unix_s(void);       /* Unix seconds, for everything on the wire and on disk */
int64_t clock_unix_ms(void);      /* the same clock, for schedules that outlive the process */
int64_t clock_monotonic_ns(void); /* for intervals and deadlines; never goes back */
void clock_sleep_ms(int64_t milliseconds);

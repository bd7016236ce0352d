/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* retry: how long to wait before a request is sent again.
 *
 * Pure: knows no clock, and adds no randomness. Callers spread their waits themselves.
 *
 * Thread: any.
 * Memory: none. */

#include "base/str.h"

/* A `retry-after` value (seconds or an HTTP date), or a `retry-after-ms` value if `is_ms`, as
 * milliseconds from now; negative if it is neither. Fractions count, rounded up. */
int64_t net_retry_after_ms(bool is_ms, struct str value, int64_t now_unix_s);
/* A time as servers write it in rate limits and in sentences: "20s", "1m0.5s", "250ms", "2
 * minutes"; a number alone is seconds. The text may go on after it. Milliseconds; negative if
 * `text` does not begin with a time. */
int64_t net_duration_ms(struct str text);
/* The value of an `x-ratelimit-reset` header: seconds from now, a Unix time in seconds or in
 * milliseconds, or a duration. As milliseconds from now; negative if it is none of these. */
int64_t net_reset_ms(struct str value, int64_t now_unix_s);
/* `first_ms`, doubled `times` times, but at most `ms_max`. */
int64_t net_backoff_ms(int64_t first_ms, int64_t ms_max, uint32_t times);

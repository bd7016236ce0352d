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
 * milliseconds from now; negative if it is neither. */
int64_t net_retry_after_ms(bool is_ms, struct str value, int64_t now_unix_s);
/* `first_ms`, doubled `times` times, but at most `ms_max`. */
int64_t net_backoff_ms(int64_t first_ms, int64_t ms_max, uint32_t times);

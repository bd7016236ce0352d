/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tap: the lines of a check that is no cmocka program (Test Anything Protocol).
 *
 * Thread: one. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prints one line, "ok N - " or "not ok N - " and the sentence. */
void report(bool is_ok, const char *format, ...) PRINTF_LIKE(2, 3);
/* Prints a "# …" line, which stands before the report that it explains. */
void note(const char *format, ...) PRINTF_LIKE(1, 2);
/* The share of its drawn cases that a slow check runs: QUERN_SHARE, above 0 (default 1: all, with
 * the caller's seed). A smaller one replaces the seed by a drawn one (draws.h); a note names
 * both. */
double report_share(uint64_t *seed);
/* Prints the plan. Returns the exit status of the program. */
int report_end(void);

#ifdef __cplusplus
}
#endif

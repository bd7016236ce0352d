/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tap: the lines of a check that is no cmocka program (Test Anything Protocol).
 *
 * Thread: one. */

#include "base/err.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prints one line, "ok N - " or "not ok N - " and the sentence. */
void report(bool is_ok, const char *format, ...) PRINTF_LIKE(2, 3);
/* Prints a "# …" line, which stands before the report that it explains. */
void note(const char *format, ...) PRINTF_LIKE(1, 2);
/* Prints the plan. Returns the exit status of the program. */
int report_end(void);

#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_summary: the end of `quern run`: how many requests were answered, in what time, at what cost.
 *
 * Thread: main, after the engine has ended.
 * Memory: none. */

#include "costs/prices.h"
#include "server/offline.h"

/* Prints sentences on standard error, or one JSON object on standard output. `name`: the output as
 * the user named it; `table`: the one next to which the results are that a table does not show. */
void run_summary_print(const struct offline_summary *is, bool json, const char *name,
                       const char *table, const struct prices *prices);

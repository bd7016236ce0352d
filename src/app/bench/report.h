/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* report: a benchmark as one HTML page that needs nothing else: no script, no font, no address of
 * another server. Light or dark is the reader's choice, by CSS.
 *
 * It has the charts and tables of each workload, what failed, how tokens were counted, the machine,
 * and the command that repeats it.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "bench/benchmark.h"

void report_write(struct buf *out, const struct benchmark *benchmark);

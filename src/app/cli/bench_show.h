/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bench_show: a benchmark's progress on a terminal, and its figures as a table or as JSON.
 *
 * Thread: main.
 * Memory: borrows the benchmark. */

#include "bench/benchmark.h"
#include "cli/terminal.h"

/* A benchmark's `show`; `context` is a struct terminal. */
void bench_show_run(void *context, const struct bench_run *run, size_t number, size_t count);
/* Print to standard output. */
void bench_show_table(const struct benchmark *benchmark);
void bench_show_json(const struct benchmark *benchmark);

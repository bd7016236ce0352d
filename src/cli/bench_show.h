/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bench_show: a benchmark's progress on a terminal, and its figures as a table or as JSON.
 *
 * Thread: main.
 * Memory: borrows the session. */

#include "bench/session.h"
#include "cli/terminal.h"

/* A session's `show`; `context` is a struct terminal. */
void bench_show_run(void *context, const struct bench_run *run, size_t number, size_t count);
/* Print to standard output. */
void bench_show_table(const struct session *session);
void bench_show_json(const struct session *session);

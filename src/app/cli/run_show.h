/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run_show: the progress of `quern run` on standard error: a bar on a terminal, elsewhere a line
 * every ten seconds; and the lines of the input that are refused.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "cli/terminal.h"
#include "server/offline.h"

struct run_show {
    bool quiet;
    bool has_rows; /* the requests were made of the rows of a table */
    struct terminal terminal;
    double line_at_s; /* time of the last printed line */
    uint64_t bad_lines;
};

/* The callbacks `progress` and `bad_line` of offline_options; `context` is a struct run_show. */
void run_show_progress(void *context, const struct offline_progress *progress);
void run_show_bad_line(void *context, uint64_t number, const char *code, const char *message);
/* Ends the bar's line, and tells how many refused lines were not shown. */
void run_show_end(struct run_show *show);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_show: the progress of a model's transfer on standard error: a bar on a terminal, elsewhere a
 * line every ten seconds.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "cli/terminal.h"
#include "hub/pull.h"

/* "93.2 MB" or "4.71 GB". */
struct shown_bytes {
    char text[32];
};
struct shown_bytes pull_show_bytes(uint64_t bytes);

struct pull_show {
    const char *command; /* the prefix of notes: "pull" */
    bool quiet;
    struct terminal terminal;
    double line_at_s; /* time of the last printed line */
};

/* The callbacks `progress` and `note` of pull_options; `context` is a struct pull_show. */
void pull_show_progress(void *context, const struct pull_progress *progress);
void pull_show_note(void *context, const char *sentence);
/* Ends the bar's line. */
void pull_show_end(struct pull_show *show);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_show: how a model's transfer is shown to people: a bar on a terminal, else a line every ten
 * seconds, on standard error.
 *
 * Thread: main.  Memory: the caller's struct. */

#include "hub/pull.h"

/* "93.2 MB" or "4.71 GB". */
struct shown_bytes {
    char text[32];
};
struct shown_bytes pull_show_bytes(uint64_t bytes);

/* Zero is a valid start. */
struct pull_show {
    const char *command; /* "pull": in front of notes */
    bool quiet, terminal, drawn;
    double line_at_s;
};

/* What pull_options takes as progress and note, with the struct as their context. */
void pull_show_progress(void *context, const struct pull_progress *progress);
void pull_show_note(void *context, const char *sentence);
/* Ends the bar's line. */
void pull_show_end(struct pull_show *show);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batch_show: a batch of a server as text: a row of a list, a page, a line of progress, an end.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/exit_status.h"
#include "cli/session.h"

/* Print on standard output. */
void batch_show_heads(void);
void batch_show_row(const struct batch_object *batch);
void batch_show_page(const struct batch_object *batch);

/* What has been seen of a batch that is watched. Zero is a valid start. */
#define BATCH_SAMPLES 32
struct batch_progress {
    struct {
        int64_t at_ns; /* monotonic */
        uint64_t done;
    } samples[BATCH_SAMPLES]; /* the latest ones, in turns */
    size_t sample_count;
    int64_t line_at_ns; /* the latest line of a log, where nothing is drawn again */
    char status[32];    /* the latest status told there */
    char waiting_for[OBJECT_WAITING_BYTES]; /* the latest reason told there */
};

/* Draws or prints how far the batch is, with rate and remaining time. */
void batch_show_progress(struct session *session, struct batch_progress *progress,
                         const struct batch_object *batch, int64_t now_ns);
/* Tells on standard error how the batch ended, and the command that comes next. */
void batch_show_end(struct session *session, const struct batch_object *batch);
/* The status of a command whose batch has ended so: as of `quern run`, EXIT_FAILED if lines failed
 * or were not run, EXIT_UNUSABLE if the file was refused. */
enum exit_status batch_show_status(const struct batch_object *batch);

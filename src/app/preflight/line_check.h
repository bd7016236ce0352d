/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line_check: the lines for which a batch refuses its whole file, found by the validation of
 * batches itself (batch/validate.h), so that a preflight and a run cannot disagree.
 *
 * Which models are served follows from the options of the node, without a worker. An upstream whose
 * models are not on the command line may serve every name.
 *
 * Thread: one.
 * Memory: 8 bytes per refused line. The validation's index lies in ${TMPDIR:-/tmp} meanwhile. */

#include "batch/parameters.h"
#include "grammar/shape_check.h"
#include "node/node.h"

#define LINE_CHECK_FAULTS_MAX 5

struct line_check_options {
    const char *path;
    const struct node_options *node;
    struct batch_rules rules;
    enum endpoint endpoint; /* the batch's; ENDPOINT_COUNT: that of the first line */
    bool any_model;         /* take lines whatever model they name */
    bool needs_model;       /* no line may leave out its model */
    const volatile bool *stop;
};

/* Why a line, or the whole file, is not run. */
struct line_fault {
    uint64_t number; /* the line's, from 1 */
    char code[48];
    char message[400];
};

/* Zero is a valid start. */
struct line_check {
    uint64_t *numbers; /* (count) refused lines, ascending */
    size_t count, capacity;
    struct line_fault faults[LINE_CHECK_FAULTS_MAX]; /* the first refused lines */
    struct shape_check_stats shapes; /* figures of the lines' shapes; asked 0: not checked */
    struct line_fault
        file; /* a fault of the whole file, such as no request in it; code empty: none */
};

/* ERR_NOT_FOUND, ERR_UNAVAILABLE or ERR_IO if the file cannot be read; ERR_CANCELLED if *stop
 * became true. */
enum err line_check_file(const struct line_check_options *options, struct line_check *ret_check,
                         struct error *error) MUST_CHECK;
bool line_check_refuses(const struct line_check *check, uint64_t number);
void line_check_release(struct line_check *check);

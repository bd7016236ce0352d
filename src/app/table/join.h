/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* join: a file of requests and files of their results, in any order, as one table.
 *
 * A server may give results in any order and in two files. The table has a row per request, in the
 * order of the requests; one without a result has the error `no_result`, and one whose result
 * cannot be read the error `unreadable_result`, with its file and line. Results that the table does
 * not show in whole go to a second file, line by line as they came: those that have more than a row
 * shows, that cannot be read, or that no request asked for.
 *
 * Thread: one.
 * Memory: each custom_id of the results and 40 bytes, and one line of each file. */

#include "table/answers.h"

#define TABLE_JOIN_FILES_MAX 2

struct table_join {
    const char *requests;
    const char *results[TABLE_JOIN_FILES_MAX];
    size_t result_count;
    const char *name; /* name for the results, in sentences; NULL: their paths */
    struct table_answers_form form;
};

/* What the table does not show. */
struct table_join_report {
    uint64_t missing;        /* requests without a result */
    uint64_t unreadable;     /* lines that are no result */
    uint64_t foreign;        /* results of no request */
    uint64_t partial;        /* results that have more than their row */
    char unreadable_at[300]; /* the first such line: file, number, reason */
    char foreign_at[300];    /* the first such result: file, number, custom_id */
};

/* Writes the table to `out_fd`, and the results that it does not show in whole to `rest_fd` (-1:
 * nowhere). ERR_INVALID, with file and line, for a line that is no request, for two lines of the
 * requests or of the results with one custom_id, and for a file of results that has none; errors of
 * os_open. */
enum err table_join_write(const struct table_join *wish, int out_fd, int rest_fd,
                          struct table_join_report *ret_report, struct error *error) MUST_CHECK;

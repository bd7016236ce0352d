/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* join: a file of requests and files of their results, in any order, as one table.
 *
 * A server may give results in any order and in two files. The table has a row per request, in the
 * order of the requests; one without a result has the error `no_result`.
 *
 * Thread: one.
 * Memory: each custom_id of the results and 24 bytes, and one line of each file. */

#include "table/answers.h"

#define TABLE_JOIN_FILES_MAX 2

/* Writes the table to `out_fd`; *ret_missing is the count of requests without a result.
 * ERR_INVALID, with file and line, for a line that is no result, and for two results with one
 * custom_id; errors of os_open. */
enum err table_join_write(const char *requests, const char *const *results, size_t result_count,
                          const struct table_answers_form *form, int out_fd, uint64_t *ret_missing,
                          struct error *error) MUST_CHECK;

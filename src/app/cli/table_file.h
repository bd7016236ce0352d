/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* table_file: a file that a command makes whole, by rename: requests of a table, or a table of
 * results.
 *
 * The results that a table does not show in whole stand in a second file, OUT.rest.jsonl.
 *
 * Thread: main.
 * Memory: none. */

#include "table/join.h"

#include <stdbool.h>

struct table_file {
    const char *path; /* NULL: standard output, for CSV and TSV */
    bool overwrite;
    struct table_answers_form form;
    const char *schema; /* file of a JSON schema whose properties are columns; NULL: none */
};

/* ERR_CONFLICT if the file exists and is not to be replaced; ERR_INVALID for a schema that names no
 * columns. */
enum err table_file_check(const struct table_file *file, struct error *error) MUST_CHECK;
/* Makes the file of what `write` writes to a descriptor. */
enum err table_file_make(const struct table_file *file,
                         enum err (*write)(void *context, int fd, struct error *error),
                         void *context, struct error *error) MUST_CHECK;
/* Makes the table of requests and results, and next to it TABLE_REST if the table does not show all
 * results in whole. Errors as of table_join_write. */
enum err table_file_join(const struct table_file *file, const struct table_join *join,
                         struct table_join_report *ret_report, struct error *error) MUST_CHECK;
typedef void (*table_say_fn)(void *context, const char *sentence);
/* Says what the table does not show. True if results are missing, or belong to no row. */
bool table_file_say(const struct table_file *file, const struct table_join_report *report,
                    table_say_fn say, void *context);

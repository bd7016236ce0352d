/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* requests: the rows of a table as lines of a batch, in one pass and in bounded memory.
 *
 * Each row becomes one line: the prompt rendered with the row's columns as the user's message, with
 * a custom_id of a column or of the row's number. The line also has the row itself, as its member
 * `row`: the store keeps lines as they are, so that the table may change or go while its batch
 * runs, and the results still stand next to the cells that they belong to.
 *
 * Equal files make equal lines, byte for byte, on every call: their hash tells whether a run that
 * goes on has the table, templates and options with which it began. For this reason a template of a
 * table has no clock.
 *
 * Thread: one.
 * Memory: templates and options; one row and one line while lines are made. */

#include "table/rows.h"

struct table_options {
    enum table_kind kind;
    const char *prompt; /* template files; `system` may be NULL */
    const char *system;
    const char *schema;                   /* file of the JSON schema of answers; NULL: any text */
    const char *body;                     /* a JSON object, or the name of its file; NULL: none */
    const char *id_column;                /* NULL: row numbers */
    const char *delimiter;                /* delimiter in both tables; NULL: of their kinds */
    const char *max_tokens, *temperature; /* numbers for the body; NULL: not in it */
};

struct table_plan;

/* Reads the files of the options, which it borrows. ERR_INVALID, with the name of the option, for
 * one that cannot be used; errors of os_read_file. */
enum err table_plan_open(struct table_plan **ret_plan, const struct table_options *options,
                         struct error *error) MUST_CHECK;
void table_plan_close(struct table_plan *plan); /* NULL is allowed */
/* The options that it was opened with. */
const struct table_options *table_plan_options(const struct table_plan *plan);
/* Takes the next bytes of the lines. */
struct table_sink {
    void *context;
    enum err (*take)(void *context, const void *bytes, size_t count, struct error *error);
};

/* Makes the lines of the first `limit` rows (0: all) of a table. ERR_INVALID, with the table's
 * line, for a row that cannot become one; errors of the sink. */
enum err table_requests_write(const struct table_plan *plan, const char *path, uint64_t limit,
                              const struct table_sink *sink, struct error *error) MUST_CHECK;

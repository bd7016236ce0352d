/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_table: the results of a run as a table, and the results that the table does not show in
 * whole as lines of a second file, TABLE_REST next to it.
 *
 * Thread: main.
 * Memory: one row; a piece of the second file. */

#include "server/offline_input.h"

struct offline_table {
    struct table_answers *answers;
    int rest_fd;
    struct buf rest;
    uint64_t rest_lines;
};

/* The rest is written to the new file `rest_path`. */
enum err offline_table_open(struct offline_table *ret_table, const struct table_answers_form *form,
                            const char *rest_path, struct error *error) MUST_CHECK;
/* A `write` of struct merge_form, whose context is the table. */
enum err offline_table_write(void *context, struct str request, struct str result, struct buf *out,
                             struct error *error) MUST_CHECK;
/* Syncs the rest. */
enum err offline_table_finish(struct offline_table *table, struct error *error) MUST_CHECK;
void offline_table_close(struct offline_table *table);

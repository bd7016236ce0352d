/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* results_show: the results of a batch brought to a file or to standard output, as lines or as a
 * table: the work of `quern results`, `quern submit -o` and `quern retry -o`.
 *
 * Thread: main.
 * Memory: see client/results.h. */

#include "cli/session.h"
#include "table/rows.h"

struct results_wish {
    const char *output; /* NULL or "-": standard output */
    const char *folder; /* for an OUT in object storage, until it is sent; NULL: the current one */
    bool overwrite;
    bool csv, tsv; /* a table whatever the name of the output ends in */
    bool has_tokens, is_excel_safe;
    const char *schema; /* file of a schema whose properties are columns of a table; NULL: none */
};

/* The kind of the table that is wanted, or TABLE_NONE for result lines. */
enum table_kind results_show_table(const struct results_wish *wish);
/* Refuses an output that may not be written, before anything is asked of the server. */
enum err results_show_check(struct session *session, const struct results_wish *wish,
                            const char *batch_id, bool *ret_is_finished,
                            struct error *error) MUST_CHECK;
/* Brings the results that exist. Sentences say what is missing of an ended batch, and *ret_is_whole
 * is false then. */
enum err results_show(struct session *session, const struct results_wish *wish,
                      const struct batch_object *batch, bool *ret_is_whole,
                      struct error *error) MUST_CHECK;

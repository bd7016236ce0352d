/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* results_table: the results of an ended batch as a table, for `quern results`.
 *
 * The rows are in the batch's input file, and so are the schemas of the answers: the command
 * fetches it next to the results, and joins them. Both lie next to the table meanwhile, in
 * OUT.quern-results and OUT.quern-requests; without OUT they have a folder of their own in TMPDIR
 * (default /tmp).
 *
 * Thread: main.
 * Memory: see table/join.h. */

#include "cli/session.h"
#include "cli/table_file.h"

/* *ret_is_whole is false, and sentences say why, if results are missing or belong to no request.
 * ERR_CONFLICT for a batch that has not ended; errors of results_read and table_join_write. */
enum err results_table(struct session *session, const struct table_file *file,
                       const struct batch_object *batch, bool *ret_is_whole,
                       struct error *error) MUST_CHECK;

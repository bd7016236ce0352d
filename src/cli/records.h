/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* records: standard input for the tools, as one text or as a line a record.
 *
 * Thread: main.  Memory: the caller's buf. */

#include "base/buf.h"

#define RECORDS_INPUT_BYTES_MAX ((size_t)1 << 30)

/* All of standard input. ERR_LIMIT over RECORDS_INPUT_BYTES_MAX. */
enum err records_read_all(struct buf *ret_text, struct error *error) MUST_CHECK;

/* Answers one record. An error is about this record alone. */
typedef enum err (*record_fn)(void *context, struct str record, struct buf *answer,
                              struct error *error);

/* Calls `answer` for standard input as a whole and prints what it gives; with `batch` for every
 * line, and prints one line for each: the answer, or {"error": "…"}. Returns the exit status:
 * without `batch` an error goes to standard error and gives EXIT_WRONG_INPUT. */
int records_answer(bool batch, record_fn answer, void *context);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stdin_records: standard input for the tools, as one text or as one record per line.
 *
 * Thread: main.
 * Memory: a buffer for the input and one for the answer, freed before the return. */

#include "base/buf.h"

#define RECORDS_INPUT_BYTES_MAX ((size_t)1 << 30)

/* Answers one record. An error is about this record alone. */
typedef enum err (*record_fn)(void *context, struct str record, struct buf *answer,
                              struct error *error);

/* Prints the answer to standard input as a whole. With `batch` prints one line per line of input:
 * the answer, or {"error": "…"}. ERR_LIMIT over RECORDS_INPUT_BYTES_MAX; without `batch` also the
 * record's error. */
enum err stdin_records_answer(bool batch, record_fn answer, void *context,
                              struct error *error) MUST_CHECK;

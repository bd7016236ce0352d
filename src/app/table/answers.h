/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answers: the results of a batch as a table: one row per request.
 *
 * The columns are those of the request's `row` (requests.h), or `custom_id` where it has none; then
 * those of the answer, `error`, `finish_reason`, and tokens if wanted. The answers to rows have a
 * column per property of their schema, that of the first request; other answers have one column. An
 * answer column whose name an input column has is called answer_NAME. A schema of the form takes
 * the place of the requests'. An answer that is not the object that its schema asks for stands in
 * `error` whole, so that no answer is lost. No row has an empty answer without a word: a result
 * without an answer has an `error` that says so.
 *
 * A row has one choice of its result, and the columns of its schema. table_answers_showed_all says
 * whether the result has more; the caller keeps such results (TABLE_REST).
 *
 * Thread: one.
 * Memory: the names of the columns, and a few texts of one row. */

#include "csv/csv_writer.h"
#include "table/requests.h"

struct table_answers_form {
    enum table_kind kind; /* a Parquet table is first written as JSONL */
    struct csv_form csv;
    bool has_tokens;
    struct str schema; /* raw JSON, borrowed; `at` NULL: that of the first request with a row */
};

/* The file of the results that a table does not show in whole, for printf: the table's name. */
#define TABLE_REST "%s.rest.jsonl"

struct table_answers;

struct table_answers *table_answers_open(const struct table_answers_form *form);
void table_answers_close(struct table_answers *answers);
/* Appends the row of a request and its result, both raw lines; the first call appends the header
 * before it. ERR_CORRUPT for lines that are no request and no result; ERR_INVALID for a request
 * whose row has other columns than the first. */
enum err table_answers_write(struct table_answers *answers, struct str request, struct str result,
                             struct buf *out, struct error *error) MUST_CHECK;
/* True if the latest row shows all that its result says: no second choice, no calls next to a text,
 * no log probabilities or thoughts, no member that is no column; and if it has an answer or an
 * error at all. */
bool table_answers_showed_all(const struct table_answers *answers);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cells: the values of chosen fields of one result line, as texts for a row of a table.
 *
 * Fields have the names of docs/internals/service/answers.md. A number is as the answer has it, an
 * array is its JSON. ".answer" is what no field shows: the text of an answer that is no JSON object,
 * or the reason of an error.
 *
 * Thread: one.
 * Memory: a buffer per field, kept until cells_release. Names are borrowed. */

#include "answers/record.h"

#define CELLS_MAX 72 /* the columns of an index (answers/table.h) and a few of the line's own */

struct cells {
    size_t count;
    struct str names[CELLS_MAX];
    struct buf texts[CELLS_MAX];
    bool has[CELLS_MAX];
    struct record record;
    bool has_fields; /* the latest line has some */
};

/* `count`: at most CELLS_MAX. */
void cells_init(struct cells *cells, const struct str *names, size_t count);
void cells_release(struct cells *cells);
/* Fills the texts from a result line; a field that it lacks has none. False for a line that quern
 * did not write: then no field has a text. */
bool cells_read(struct cells *cells, struct str result);

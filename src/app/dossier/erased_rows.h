/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erased_rows: where the rows of some ids, or of some numbers, lie in a table of a run.
 *
 * A row's number is that which it had when the run was made, from 1: rows that were erased since
 * keep theirs, so that row 17 stays row 17. A row's id is what the run took as custom_id: the cell
 * of a column, or the number.
 *
 * Thread: one.
 * Memory: the numbers, 16 bytes for each row that is found, and the text of the first. */

#include "dossier/line_ids.h"
#include "table/rows.h"

/* Numbers of rows, in ascending order. */
struct row_numbers {
    uint64_t *list; /* (count) */
    size_t count, capacity;
};
void row_numbers_release(struct row_numbers *numbers);
bool row_numbers_have(const struct row_numbers *numbers, uint64_t number);
/* How many are at most `most`. */
size_t row_numbers_up_to(const struct row_numbers *numbers, uint64_t most);
/* Adds those of the erasures in the salts of a run. ERR_CORRUPT: they are no numbers, or one occurs
 * twice. */
enum err row_numbers_read(struct row_numbers *ret_numbers, const json_t *erasures,
                          struct error *error) MUST_CHECK;
json_t *row_numbers_json(const struct row_numbers *numbers);

/* How a file of a run is read. */
struct run_table {
    enum table_kind kind; /* TABLE_NONE: it has no rows but requests or results */
    char separator;       /* 0: the kind's, or that which the file names */
    const char *id;       /* the column; NULL: the ids are the numbers */
};
/* The form of an entry of a manifest, which is borrowed. ERR_INVALID for one that this program does
 * not know. */
enum err run_table_read(struct run_table *ret_table, const json_t *entry,
                        struct error *error) MUST_CHECK;

struct erased_span {
    uint64_t from, end; /* bytes in the file */
};

struct erased_rows {
    struct erased_span *spans; /* (count) in the order of the file */
    size_t count, capacity;
    uint64_t rows;              /* that the file has now */
    struct row_numbers numbers; /* those of the rows that were found */
    struct buf first;           /* the first of them, as a JSON object */
};

/* What is looked for: the rows of `ids`, which are noted as found, or those of `numbers`. */
struct erased_rows_wish {
    const struct run_table *table;
    struct line_ids *ids;
    const struct row_numbers *numbers;
    const struct row_numbers *gone; /* erased before */
    const volatile bool *stop;
};

/* Reads the whole table. ERR_INVALID, with its line, for a file that is no such table;
 * ERR_CANCELLED if *stop became true. After OK the caller releases it. */
enum err erased_rows_find(struct erased_rows *ret_rows, const char *path,
                          const struct erased_rows_wish *wish, struct error *error) MUST_CHECK;
void erased_rows_release(struct erased_rows *rows);

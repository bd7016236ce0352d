/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rows: the rows of a table file, each as a JSON object of its columns: one shape for CSV, TSV and
 * JSONL, and for Parquet by way of JSONL.
 *
 * A CSV cell is a text; an empty one without quotes is null. A member of a JSONL row keeps its
 * type.
 * The columns of a JSONL table are the members of all its rows; those that a row leaves out are
 * null. A pipe, as of Parquet, is read once: its columns are those of its first row, and no later
 * row may have another one.
 *
 * Thread: one.
 * Memory: the columns, and one row. */

#include "json/lines.h"
#include "table/csv_reader.h"
#include "table/parquet.h"

#include <jansson.h>

#define TABLE_COLUMNS_MAX 10000u

enum table_kind { TABLE_NONE, TABLE_CSV, TABLE_TSV, TABLE_JSONL, TABLE_PARQUET };

/* The kind that a name ends in, in letters of any case: .csv, .tsv, .tab, .jsonl, .ndjson,
 * .parquet; a URL may have a query. */
enum table_kind table_kind_of(const char *name);
/* "csv", "tsv", "jsonl" or "parquet"; NULL for no kind. */
const char *table_kind_name(enum table_kind kind);
/* The kind of such a name; TABLE_NONE for another. */
enum table_kind table_kind_named(const char *name);
/* The separator of a kind; ',' where it has none. */
char table_separator(enum table_kind kind);

struct table_rows {
    int fd;
    enum table_kind kind;
    struct parquet_reading parquet; /* whose pipe `fd` is; or nothing */
    struct csv_reader csv;
    struct lines lines;
    char **columns;
    size_t column_count;
    uint64_t number;    /* number of the latest row, from 1 */
    uint64_t line;      /* in which it begins */
    uint64_t from, end; /* its bytes in the file; not of a Parquet file */
    json_t *row; /* for a template: columns without a value are "" in a CSV, and None in JSONL */
    struct buf mended; /* a line whose large numbers are texts */
    struct buf json;   /* the row as a JSON object, with null for a column without a value */
};

/* Opens the file and reads its columns; `separator` 0: the kind's. Errors of os_open; ERR_INVALID,
 * with line and column, for a header with an empty or repeated name. */
enum err table_rows_open(struct table_rows *ret_rows, const char *path, enum table_kind kind,
                         char separator, struct error *error) MUST_CHECK;
void table_rows_close(struct table_rows *rows);
/* Moves to the next row; *ret_found is false at the end. ERR_INVALID, with line and column, for a
 * row that does not have the columns of the header. */
enum err table_rows_next(struct table_rows *rows, bool *ret_found, struct error *error) MUST_CHECK;

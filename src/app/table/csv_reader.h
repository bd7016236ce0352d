/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* csv_reader: the rows of a CSV file one after another, as RFC 4180 has them, in bounded memory.
 *
 * It is strict where readers differ: a table that one program reads otherwise than another is
 * refused with its line and column, and never guessed. It takes any separator, rows that end in
 * CRLF, LF or CR, one byte-order mark, and a first line `sep=;`, as Excel writes it, which names
 * the separator. It skips empty lines. It knows no header: the caller
 * compares the counts of cells.
 *
 * Thread: one.
 * Memory: a piece of the file and one row of at most CSV_ROW_BYTES_MAX; cells are views of the row,
 *     valid until the next call. The caller owns `fd`.
 * Invariant: cells are valid UTF-8 without NUL. */

#include "base/buf.h"
#include "base/err.h"

#define CSV_ROW_BYTES_MAX ((size_t)16 << 20)

struct csv_cell {
    struct str text;
    bool is_quoted; /* `""` is an empty text; an empty cell without quotes has no value */
};

/* A cell as it lies in the file. */
struct csv_place {
    size_t from, end; /* in the row; without the quotes around it */
    bool is_quoted, has_doubled;
};

struct csv_reader {
    int fd; /* negative: `raw` has the whole text */
    char separator;
    bool has_usual;             /* the caller did not choose the separator: a line `sep=;` does */
    bool has_ended;             /* `raw` has the rest of the file */
    struct buf raw;             /* from some row on */
    size_t at;                  /* in raw: the next row */
    uint64_t base;              /* offset of `raw` in the file, counted from where it was begun */
    uint64_t row_from, row_end; /* offsets of the latest row, with the end of its line */
    uint64_t row_line;          /* number of the line in which the latest row begins, from 1 */
    uint64_t next_line;         /* number of the line in which the next row begins */
    struct csv_cell *cells;
    struct csv_place *places;
    size_t count; /* cells of the latest row */
    size_t cell_capacity, place_capacity;
};

/* `separator`: any byte of ASCII but a quote, CR or LF. */
void csv_reader_init(struct csv_reader *reader, int fd, char separator);
void csv_reader_release(struct csv_reader *reader);
/* Reads the next row into `cells` and `count`; *ret_found is false at the end. ERR_INVALID, with
 * line and column or byte, for bytes that are no table in UTF-8. ERR_LIMIT for a row that is too
 * long. */
enum err csv_reader_next(struct csv_reader *reader, bool *ret_found,
                         struct error *error) MUST_CHECK;

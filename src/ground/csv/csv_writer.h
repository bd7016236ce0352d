/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* csv_writer: cells and rows of a CSV file, in the form that csv_reader and other readers take back
 * unchanged.
 *
 * Rows end in LF. A cell is in quotes where it must be. An empty text is in quotes, too, which
 * tells it from a cell without a value. NUL, which no reader takes, becomes U+FFFD. For
 * spreadsheets that compute what they find (`is_excel_safe`), a text that may be a formula gets an
 * apostrophe before it; a plain number does not.
 *
 * Thread: one.
 * Memory: the caller's buf. */

#include "base/buf.h"

struct csv_form {
    char separator;
    bool is_excel_safe;
};

/* Appends a cell; `is_first` of its row, or behind a separator. */
void csv_write_text(struct buf *out, const struct csv_form *form, bool is_first, struct str text);
/* Appends a cell without a value. */
void csv_write_nothing(struct buf *out, const struct csv_form *form, bool is_first);
/* Ends a row that begins at `from` in the buf. */
void csv_end_row(struct buf *out, size_t from);

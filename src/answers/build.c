/* SPDX-License-Identifier: Apache-2.0 */

/* From results to rows. Results are read in pieces of 1 MiB, in the order in which they became
 * durable; the same order comes from a log and from published files (runner_results_read). */

#include "answers/answers_internal.h"

#include "base/mem.h"

#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define ROWS_AT_A_TIME 64
#define LONG_BYTES ((size_t)16 << 20) /* a longer result gets a row without fields */

/* --- rows --- */

struct filling {
    struct table *table;
    uint32_t row;
    uint32_t hint; /* the column behind the last one: answers are alike */
};

static void fill_cell(struct filling *filling, uint32_t column, const struct record_value *value) {
    switch (value->kind) {
    case RECORD_NUMBER:
        table_set_number(filling->table, filling->row, column, value->number);
        break;
    case RECORD_BOOL:
        table_set_bool(filling->table, filling->row, column, value->number != 0);
        break;
    case RECORD_TEXT: table_set_text(filling->table, filling->row, column, value->text); break;
    }
}

static void fill_fixed(void *context, unsigned field, const struct record_value *value) {
    fill_cell(context, field, value);
}

static void fill_field(void *context, struct str name, const struct record_value *value) {
    struct filling *filling = context;
    uint32_t column = table_column_of(filling->table, name, filling->hint);
    if (column == ANSWERS_NO_COLUMN) return;
    filling->hint = column + 1;
    fill_cell(filling, column, value);
}

/* Makes the row of one result line. A line that quern did not write is left out. */
static void add_row(struct answers_index *index, struct str text, uint64_t sequence) {
    struct record *record = &index->record;
    struct table *table = &index->table;
    if (!record_read(record, text) || record->line >= table->row_count || sequence > UINT32_MAX)
        return;
    uint32_t row = (uint32_t)record->line;
    if (table->sequences[row])
        table_clear_row(table, row); /* its record was damaged, and it ran again */
    else
        table->indexed++;
    table->sequences[row] = (uint32_t)sequence;
    struct filling filling = {table, row, TABLE_FIXED_COUNT};
    struct record_walk walk = {&filling, fill_fixed, fill_field};
    record_each(record, &walk);
}

/* --- pieces --- */

static size_t count_lines(struct str text) {
    size_t count = 0;
    for (size_t at = 0; (at = str_find_byte(text, '\n', at)) != SIZE_MAX; at++) count++;
    return count;
}

/* The text up to its last LF. */
static struct str whole_lines(struct str text) {
    while (text.bytes > 0 && text.at[text.bytes - 1] != '\n') text.bytes--;
    return text;
}

/* Adds the rows of lines whose sequence numbers begin at `sequence` and have no gap. The lock is held
 * for a few rows at a time: this thread has a low priority, and a reader must not wait for long. */
static void add_rows(struct answers_index *index, struct str text, uint64_t sequence) {
    for (size_t at = 0; at < text.bytes;) {
        pthread_rwlock_wrlock(&index->rows);
        for (unsigned i = 0; i < ROWS_AT_A_TIME && at < text.bytes; i++) {
            size_t end = str_find_byte(text, '\n', at);
            if (end == SIZE_MAX) end = text.bytes;
            add_row(index, (struct str){text.at + at, end - at}, sequence++);
            at = end + 1;
        }
        pthread_rwlock_unlock(&index->rows);
    }
}

/* Reads the next line alone: its sequence number is not the one behind the last, or it is long. */
static enum err add_one(struct answers_index *index, bool *ret_more, struct error *error) {
    struct buf buf;
    struct page_read read;
    struct page page = {.from = {.after = index->after},
                        .lines_max = 1,
                        .bytes_max = UINT64_MAX,
                        .room = LONG_BYTES,
                        .counts = true};
    buf_init(&buf, LONG_BYTES);
    enum err err = runner_results_read(index->results, &page, &buf, &read, error);
    if (err == OK) {
        /* A longer line is cut: its beginning has the custom_id, and the row has no more. */
        if (read.lines == 1) add_rows(index, buf_str(&buf), read.last);
        index->after = read.last;
        *ret_more = read.lines == 1;
    }
    buf_release(&buf);
    return err;
}

static enum err add_piece(struct answers_index *index, bool *ret_more, bool *ret_ended,
                          struct error *error) {
    struct buf buf;
    struct page_read read;
    struct page page = {.from = {.after = index->after},
                        .lines_max = UINT64_MAX,
                        .bytes_max = UINT64_MAX,
                        .room = PIECE_BYTES};
    buf_init(&buf, PIECE_BYTES);
    enum err err = runner_results_read(index->results, &page, &buf, &read, error);
    if (err != OK) {
        buf_release(&buf);
        return err;
    }
    struct str whole = whole_lines(buf_str(&buf));
    size_t lines = count_lines(whole);
    *ret_ended = !read.more;
    *ret_more = buf.bytes > 0;
    if (lines > 0 && read.next.after - index->after == lines) {
        add_rows(index, whole, index->after + 1);
        index->after = read.next.after;
    } else if (buf.bytes > 0) {
        *ret_ended = false;
        err = add_one(index, ret_more, error);
    } else if (!read.more) {
        index->after = read.next.after;
    }
    buf_release(&buf);
    return err;
}

/* Makes the table once the batch was validated: then its number of lines is known. */
static enum err make_table(struct answers_index *index, struct error *error) {
    struct store_batch batch;
    enum err err =
        runner_batch_get(index->answers->runner, str_from(index->batch_id), &batch, error);
    if (err != OK) return err;
    if (batch.total > 0 && batch.total < ANSWERS_NO_LINE) {
        pthread_rwlock_wrlock(&index->rows);
        table_init(&index->table, (uint32_t)batch.total, index->answers->key);
        index->has_table = true;
        pthread_rwlock_unlock(&index->rows);
    }
    store_batch_release(&batch);
    return OK;
}

enum err index_build(struct answers_index *index, bool *ret_more, bool *ret_ended,
                     struct error *error) {
    enum err err = OK;
    *ret_more = *ret_ended = false;
    if (!index->results)
        runner_results_open(&index->results, index->answers->runner, str_from(index->batch_id));
    if (!index->has_table) err = make_table(index, error);
    if (err == OK && index->has_table) err = add_piece(index, ret_more, ret_ended, error);
    return err;
}

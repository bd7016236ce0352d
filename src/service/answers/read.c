/* SPDX-License-Identifier: Apache-2.0 */

/* Rows and results of single lines. */

#include "answers/answers_internal.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 1024 /* limit for a field's text */

/* --- rows --- */

bool answers_is_name(struct str name) {
    if (name.bytes == 0) return false;
    if (*name.at != '.' || name.bytes == 1 || name.at[1] == '.') return true;
    for (size_t i = 0; i < TABLE_FIXED_COUNT; i++)
        if (str_is(name, table_fixed_names[i])) return true;
    return str_is(name, ".line");
}

/* The caller holds the lock of the rows. */
static bool has_row(const struct answers_index *index, uint32_t line) {
    return index->has_table && line < index->table.row_count && index->table.sequences[line] != 0;
}

/* The caller holds the lock of the rows. */
static struct cell_value cell_of(const struct answers_index *index, uint32_t line,
                                 uint32_t column) {
    if (!has_row(index, line)) return (struct cell_value){.kind = CELL_ABSENT};
    return table_cell(&index->table, index->table.columns[column].cells[line]);
}

bool answers_entropy(struct answers_index *index, uint32_t line, double *ret_entropy) {
    pthread_rwlock_rdlock(&index->rows);
    struct cell_value cell = cell_of(index, line, TABLE_ENTROPY);
    pthread_rwlock_unlock(&index->rows);
    *ret_entropy = cell.number;
    return cell.kind == CELL_NUMBER;
}

/* --- results --- */

struct answers_reader {
    struct answers_index *index;
    struct runner_results *results;
};

void answers_reader_open(struct answers_reader **ret_reader, struct answers_index *index) {
    struct answers_reader *reader = mem_new(1, sizeof *reader);
    reader->index = index;
    runner_results_open(&reader->results, index->answers->runner, str_from(index->batch_id));
    *ret_reader = reader;
}

void answers_reader_close(struct answers_reader *reader) {
    if (!reader) return;
    runner_results_close(reader->results);
    free(reader);
}

enum err answers_read_result(struct answers_reader *reader, uint32_t line, size_t bytes_max,
                             struct buf *buf, uint64_t *ret_bytes, struct error *error) {
    struct answers_index *index = reader->index;
    struct page_read read;
    size_t before = buf->bytes;
    pthread_rwlock_rdlock(&index->rows);
    uint64_t sequence = has_row(index, line) ? index->table.sequences[line] : 0;
    pthread_rwlock_unlock(&index->rows);
    if (sequence == 0)
        return err_set(error, ERR_NOT_FOUND, "Line %u has no result yet.", (unsigned)line + 1);
    struct page page = {
        .from = {.after = sequence - 1}, .lines_max = 1, .bytes_max = UINT64_MAX, .counts = true};
    enum err err = runner_results_read(reader->results, &page, buf, &read, error);
    if (err != OK) return err;
    *ret_bytes = read.bytes > 0 ? read.bytes - 1 : 0;
    if (read.lines == 1 && read.bytes > (uint64_t)bytes_max + 1) return OK;
    page.room = bytes_max + 1;
    err = runner_results_read(reader->results, &page, buf, &read, error);
    if (err != OK) return err;
    if (read.lines == 1 && read.last == sequence && buf->bytes > before) {
        buf_truncate(buf, buf->bytes - 1); /* the LF */
        return OK;
    }
    buf_truncate(buf, before);
    return err_set(error, ERR_CORRUPT, "the result of line %u is damaged", (unsigned)line + 1);
}

/* --- JSON of one line --- */

struct writing {
    struct buf *buf;
    bool has_any;
};

static void write_value(struct writing *writing, struct str name,
                        const struct record_value *value) {
    struct str text = value->text;
    if (writing->has_any) buf_add_byte(writing->buf, ',');
    writing->has_any = true;
    json_write_string(writing->buf, name);
    buf_add_byte(writing->buf, ':');
    switch (value->kind) {
    case RECORD_NUMBER: number_write(writing->buf, value->number); break;
    case RECORD_BOOL: buf_add_text(writing->buf, value->number != 0 ? "true" : "false"); break;
    case RECORD_TEXT:
        if (text.bytes > SHOWN_BYTES) {
            text.bytes = SHOWN_BYTES;
            text.bytes -= utf8_incomplete_tail(text);
        }
        json_write_string(writing->buf, text);
        break;
    }
}

static void write_fixed(void *context, unsigned field, const struct record_value *value) {
    if (field != TABLE_CUSTOM_ID) write_value(context, str_from(table_fixed_names[field]), value);
}

static void write_field(void *context, struct str name, const struct record_value *value) {
    write_value(context, name, value);
}

void answers_write_fields(struct buf *buf, struct str result) {
    struct record record;
    struct writing writing = {.buf = buf};
    struct record_walk walk = {&writing, write_fixed, write_field, NULL};
    record_init(&record);
    bool is_read = record_read(&record, result);
    buf_add_text(buf, "\"custom_id\":");
    if (is_read)
        buf_add_str(buf, record.custom_id);
    else
        buf_add_text(buf, "null");
    buf_add_text(buf, ",\"fields\":{");
    if (is_read) record_each(&record, &walk);
    buf_add_byte(buf, '}');
    record_release(&record);
}

void answers_write_row(struct buf *buf, struct answers_index *index, uint32_t line) {
    struct writing writing = {.buf = buf};
    pthread_rwlock_rdlock(&index->rows);
    struct cell_value id = cell_of(index, line, TABLE_CUSTOM_ID);
    buf_add_text(buf, "\"custom_id\":");
    if (id.kind == CELL_TEXT)
        json_write_string(buf, id.text);
    else
        buf_add_text(buf, "null");
    buf_add_text(buf, ",\"fields\":{");
    uint32_t count = index->has_table ? index->table.column_count : 0;
    for (uint32_t i = TABLE_CUSTOM_ID + 1; i < count; i++) {
        struct cell_value cell = cell_of(index, line, i);
        struct record_value value = {.number = cell.number, .text = cell.text};
        if (cell.kind == CELL_ABSENT || cell.kind == CELL_LONG || cell.kind == CELL_LIST) continue;
        if (cell.kind == CELL_TEXT) value.kind = RECORD_TEXT;
        if (cell.kind == CELL_BOOL) value.kind = RECORD_BOOL;
        write_value(&writing, index->table.columns[i].name, &value);
    }
    pthread_rwlock_unlock(&index->rows);
    buf_add_byte(buf, '}');
}

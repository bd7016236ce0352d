/* SPDX-License-Identifier: Apache-2.0 */

/* Single rows, results and requests of lines. */

#include "answers/answers_internal.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "batch/jsonl_file.h"
#include "json/json.h"
#include "store/files.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 1024 /* of a field's text */

/* --- rows --- */

bool answers_is_name(struct str name) {
    if (name.bytes == 0) return false;
    if (*name.at != '.' || name.bytes == 1 || name.at[1] == '.') return true;
    for (size_t i = 0; i < TABLE_FIXED_COUNT; i++)
        if (str_is(name, table_fixed_names[i])) return true;
    return str_is(name, ".line");
}

uint32_t answers_column(struct answers_index *index, struct str name) {
    pthread_rwlock_rdlock(&index->rows);
    uint32_t column = index->has_table ? table_find_column(&index->table, name) : ANSWERS_NO_COLUMN;
    pthread_rwlock_unlock(&index->rows);
    return column;
}

uint32_t answers_column_count(struct answers_index *index) {
    pthread_rwlock_rdlock(&index->rows);
    uint32_t count = index->has_table ? index->table.column_count : 0;
    pthread_rwlock_unlock(&index->rows);
    return count;
}

struct str answers_column_name(struct answers_index *index, uint32_t column) {
    struct str name = {NULL, 0};
    pthread_rwlock_rdlock(&index->rows);
    if (index->has_table && column < index->table.column_count)
        name = index->table.columns[column].name;
    pthread_rwlock_unlock(&index->rows);
    return name;
}

/* The caller holds the lock of the rows. */
static bool has_row(const struct answers_index *index, uint32_t line) {
    return index->has_table && line < index->table.row_count && index->table.sequences[line] != 0;
}

struct answers_cell answers_cell(struct answers_index *index, uint32_t line, uint32_t column) {
    struct answers_cell cell = {.kind = ANSWERS_ABSENT};
    pthread_rwlock_rdlock(&index->rows);
    if (has_row(index, line) && column < index->table.column_count)
        cell = table_cell(&index->table, index->table.columns[column].cells[line]);
    pthread_rwlock_unlock(&index->rows);
    return cell;
}

bool answers_has_line(struct answers_index *index, uint32_t line) {
    pthread_rwlock_rdlock(&index->rows);
    bool has = has_row(index, line);
    pthread_rwlock_unlock(&index->rows);
    return has;
}

/* The row whose custom_id has only a hash: long ones, and those behind a full dictionary. */
static uint32_t line_of_hash(const struct table *table, struct str custom_id) {
    uint64_t hash = table_hash(table, custom_id);
    const uint64_t *cells = table->columns[TABLE_CUSTOM_ID].cells;
    for (uint32_t row = 0; row < table->row_count; row++)
        if (table_kind(cells[row]) == ANSWERS_LONG && table_payload(cells[row]) == hash) return row;
    return ANSWERS_NO_LINE;
}

uint32_t answers_line_of(struct answers_index *index, struct str custom_id) {
    uint32_t line = ANSWERS_NO_LINE;
    pthread_rwlock_rdlock(&index->rows);
    if (index->has_table) {
        uint32_t text = table_find_text(&index->table, custom_id);
        if (text && index->table.texts[text].line)
            line = index->table.texts[text].line - 1;
        else
            line = line_of_hash(&index->table, custom_id);
    }
    pthread_rwlock_unlock(&index->rows);
    return line;
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

/* --- requests --- */

/* Notes where the line with this number begins. The lock of the requests is held. */
static void note_offset(struct answers_index *index, uint64_t line, uint64_t offset) {
    if (line % REQUESTS_STEP != 0 || line / REQUESTS_STEP != index->offset_count) return;
    index->offsets = vec_grow(index->offsets, index->offset_count, &index->offset_capacity,
                              sizeof *index->offsets);
    index->offsets[index->offset_count++] = offset;
}

/* Reads on from the last known place at or before the line. The lock is held. */
static enum err find_request(struct answers_index *index, struct jsonl_file *file, uint32_t line,
                             size_t bytes_max, struct buf *buf, struct error *error) {
    size_t step = line / REQUESTS_STEP;
    if (step >= index->offset_count) step = index->offset_count ? index->offset_count - 1 : 0;
    uint64_t number = (uint64_t)step * REQUESTS_STEP;
    if (index->offset_count > 0) file->offset = index->offsets[step];
    struct str text;
    for (; jsonl_file_next(file, &text); number++) {
        note_offset(index, number, jsonl_file_line_at(file, text));
        if (number < line) continue;
        if (text.bytes > bytes_max)
            return err_set(error, ERR_LIMIT, "The request of line %u has %zu bytes.",
                           (unsigned)line + 1, text.bytes);
        buf_add_str(buf, text);
        return OK;
    }
    if (file->failed) {
        *error = file->why;
        return error->code;
    }
    return err_set(error, ERR_NOT_FOUND, "The batch has no line %u.", (unsigned)line + 1);
}

enum err answers_read_request(struct answers_index *index, uint32_t line, size_t bytes_max,
                              struct buf *buf, struct error *error) {
    struct answers *answers = index->answers;
    struct store_batch batch;
    struct store_file input;
    struct jsonl_file file;
    enum err err = store_batch_get(answers->store, str_from(index->batch_id), &batch, error);
    if (err != OK) return err;
    jsonl_file_init(&file);
    err = store_input_open(answers->store, str_from(batch.input_file_id), batch.created_unix_s,
                           &file.fd, &input, error);
    if (err == OK) {
        file.bytes = input.bytes;
        pthread_mutex_lock(&index->requests);
        err = find_request(index, &file, line, bytes_max, buf, error);
        pthread_mutex_unlock(&index->requests);
    } else {
        file.fd = -1;
    }
    jsonl_file_close(&file);
    store_batch_release(&batch);
    return err;
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
    struct record_walk walk = {&writing, write_fixed, write_field};
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
    struct answers_cell id = answers_cell(index, line, TABLE_CUSTOM_ID);
    buf_add_text(buf, "\"custom_id\":");
    if (id.kind == ANSWERS_TEXT)
        json_write_string(buf, id.text);
    else
        buf_add_text(buf, "null");
    buf_add_text(buf, ",\"fields\":{");
    for (uint32_t i = TABLE_CUSTOM_ID + 1; i < answers_column_count(index); i++) {
        struct answers_cell cell = answers_cell(index, line, i);
        struct record_value value = {.number = cell.number, .text = cell.text};
        if (cell.kind == ANSWERS_ABSENT || cell.kind == ANSWERS_LONG) continue;
        if (cell.kind == ANSWERS_TEXT) value.kind = RECORD_TEXT;
        if (cell.kind == ANSWERS_BOOL) value.kind = RECORD_BOOL;
        write_value(&writing, answers_column_name(index, i), &value);
    }
    buf_add_byte(buf, '}');
}

void answers_write_text(struct buf *buf, struct str result) {
    struct record record;
    record_init(&record);
    if (record_read(&record, result)) buf_add_str(buf, record_answer(&record));
    record_release(&record);
}

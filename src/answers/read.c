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

#define REQUESTS_STEP 256 /* lines between two noted places of the input */
#define SHOWN_BYTES 1024  /* of a field's text */

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
        if (cell.kind == CELL_ABSENT || cell.kind == CELL_LONG) continue;
        if (cell.kind == CELL_TEXT) value.kind = RECORD_TEXT;
        if (cell.kind == CELL_BOOL) value.kind = RECORD_BOOL;
        write_value(&writing, index->table.columns[i].name, &value);
    }
    pthread_rwlock_unlock(&index->rows);
    buf_add_byte(buf, '}');
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "table/rows.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/os.h"
#include "json/json.h"
#include "json/span.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 60 /* of a column's name in a sentence */

enum table_kind table_kind_of(const char *name) {
    static const struct {
        const char *end;
        enum table_kind kind;
    } ends[] = {{".csv", TABLE_CSV},     {".tsv", TABLE_TSV},      {".tab", TABLE_TSV},
                {".jsonl", TABLE_JSONL}, {".ndjson", TABLE_JSONL}, {".parquet", TABLE_PARQUET}};
    bool is_url = strstr(name, "://") != NULL;
    struct str path = {name, is_url ? strcspn(name, "?#") : strlen(name)};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (str_ends_with(path, str_from(ends[i].end))) return ends[i].kind;
    return TABLE_NONE;
}

char table_separator(enum table_kind kind) {
    return kind == TABLE_TSV ? '\t' : ',';
}

/* Takes the names of the columns: none is empty, none occurs twice. */
static enum err take_columns(struct table_rows *rows, const struct str *names, size_t count,
                             struct error *error) {
    struct map seen;
    uint64_t first;
    enum err err = OK;
    if (count > TABLE_COLUMNS_MAX)
        return err_set(error, ERR_LIMIT, "line %" PRIu64 ": the table has more than %u columns",
                       rows->line, TABLE_COLUMNS_MAX);
    map_init(&seen);
    rows->columns = mem_new(count + 1, sizeof *rows->columns);
    for (size_t i = 0; i < count && err == OK; i++) {
        if (names[i].bytes == 0)
            err = err_set(error, ERR_INVALID, "line %" PRIu64 ", column %zu has no name",
                          rows->line, i + 1);
        else if (!map_put_new(&seen, names[i], i, &first))
            err = err_set(error, ERR_INVALID,
                          "line %" PRIu64 ", column %zu: '%.*s' is the name of column %" PRIu64
                          " already",
                          rows->line, i + 1,
                          (int)(names[i].bytes < SHOWN_BYTES ? names[i].bytes : SHOWN_BYTES),
                          names[i].at, first + 1);
        else
            rows->columns[rows->column_count++] = mem_str(names[i]);
    }
    map_release(&seen);
    return err;
}

static enum err read_header(struct table_rows *rows, struct error *error) {
    bool found;
    enum err err = csv_reader_next(&rows->csv, &found, error);
    if (err != OK) return err;
    if (!found) return err_set(error, ERR_INVALID, "the table is empty: it has no header");
    rows->line = rows->csv.row_line;
    struct str *names = mem_new(rows->csv.count, sizeof *names);
    for (size_t i = 0; i < rows->csv.count; i++) names[i] = rows->csv.cells[i].text;
    err = take_columns(rows, names, rows->csv.count, error);
    free(names);
    return err;
}

/* True for kinds whose rows are objects of JSON. */
static bool has_objects(enum table_kind kind) {
    return kind == TABLE_JSONL || kind == TABLE_PARQUET;
}

enum err table_rows_open(struct table_rows *ret_rows, const char *path, enum table_kind kind,
                         char separator, struct error *error) {
    *ret_rows = (struct table_rows){.kind = kind};
    enum err err = kind == TABLE_PARQUET ? parquet_read(&ret_rows->parquet, path, error)
                                         : os_open(&ret_rows->fd, path, O_RDONLY, 0, error);
    if (kind == TABLE_PARQUET) ret_rows->fd = ret_rows->parquet.fd;
    if (err != OK) ret_rows->fd = -1;
    buf_init(&ret_rows->json, BUF_UNLIMITED);
    lines_init(&ret_rows->lines, ret_rows->fd);
    csv_reader_init(&ret_rows->csv, ret_rows->fd, separator ? separator : table_separator(kind));
    if (err == OK && !has_objects(kind)) err = read_header(ret_rows, error);
    if (err != OK) table_rows_close(ret_rows);
    return err;
}

void table_rows_close(struct table_rows *rows) {
    if (rows->kind != TABLE_PARQUET) os_close(rows->fd);
    (void)parquet_read_end(&rows->parquet, NULL);
    csv_reader_release(&rows->csv);
    lines_release(&rows->lines);
    for (size_t i = 0; i < rows->column_count; i++) free(rows->columns[i]);
    free((void *)rows->columns);
    buf_release(&rows->json);
    json_decref(rows->row);
    *rows = (struct table_rows){.fd = -1};
}

/* --- CSV and TSV --- */

static enum err check_width(const struct table_rows *rows, struct error *error) {
    size_t count = rows->csv.count, wanted = rows->column_count;
    if (count == wanted) return OK;
    if (count > wanted)
        return err_set(error, ERR_INVALID,
                       "line %" PRIu64 ", column %zu: the row has %zu cells, the header %zu",
                       rows->line, wanted + 1, count, wanted);
    return err_set(error, ERR_INVALID,
                   "line %" PRIu64 ", column %zu ('%.*s'): the row has %zu cells, the header %zu",
                   rows->line, count + 1, SHOWN_BYTES, rows->columns[count], count, wanted);
}

static enum err next_cells(struct table_rows *rows, bool *ret_found, struct error *error) {
    enum err err = csv_reader_next(&rows->csv, ret_found, error);
    if (err != OK || !*ret_found) return err;
    rows->line = rows->csv.row_line;
    err = check_width(rows, error);
    if (err != OK) return err;
    rows->row = json_object();
    for (size_t i = 0; i < rows->column_count; i++) {
        const struct csv_cell *cell = &rows->csv.cells[i];
        bool has_value = cell->is_quoted || cell->text.bytes > 0;
        buf_add_byte(&rows->json, i > 0 ? ',' : '{');
        json_write_utf8_string(&rows->json, str_from(rows->columns[i]));
        buf_add_byte(&rows->json, ':');
        if (has_value)
            json_write_utf8_string(&rows->json, cell->text);
        else
            buf_add_text(&rows->json, "null");
        json_object_set_new_nocheck(rows->row, rows->columns[i],
                                    json_stringn_nocheck(cell->text.at, cell->text.bytes));
    }
    buf_add_byte(&rows->json, '}');
    return OK;
}

/* --- JSONL --- */

static enum err take_keys(struct table_rows *rows, struct error *error) {
    size_t count = 0;
    const char *key;
    json_t *value;
    struct str *names = mem_new(json_object_size(rows->row) + 1, sizeof *names);
    json_object_foreach(rows->row, key, value) names[count++] = str_from(key);
    enum err err =
        count ? take_columns(rows, names, count, error)
              : err_set(error, ERR_INVALID, "line %" PRIu64 ": the row has no columns", rows->line);
    free(names);
    return err;
}

/* Writes the row with all columns in their order. A number keeps its digits. */
static enum err write_members(struct table_rows *rows, struct error *error) {
    for (size_t i = 0; i < rows->column_count; i++) {
        json_t *value = json_object_get(rows->row, rows->columns[i]);
        struct str raw = value ? json_span_get(rows->lines.line, rows->columns[i]) : STR("null");
        if (!value) json_object_set_new_nocheck(rows->row, rows->columns[i], json_null());
        buf_add_byte(&rows->json, i > 0 ? ',' : '{');
        json_write_utf8_string(&rows->json, str_from(rows->columns[i]));
        buf_add_byte(&rows->json, ':');
        buf_add_str(&rows->json, raw);
    }
    buf_add_byte(&rows->json, '}');
    size_t others = json_object_size(rows->row) - rows->column_count;
    if (others == 0) return OK;
    return err_set(error, ERR_INVALID,
                   "line %" PRIu64 ": the row has a member that the first row does not have",
                   rows->line);
}

static enum err next_object(struct table_rows *rows, bool *ret_found, struct error *error) {
    enum err err = lines_next(&rows->lines, error);
    *ret_found = err == OK && rows->lines.line.at;
    if (err == OK && !*ret_found) err = parquet_read_end(&rows->parquet, error);
    if (!*ret_found) return err;
    rows->line = rows->lines.number;
    size_t room = SIZE_MAX;
    err = json_read_once(&rows->row, rows->lines.line, &room, error);
    if (err != OK) rows->row = NULL;
    if (err != OK) return err_prefix(error, "line %" PRIu64, rows->line);
    if (!json_is_object(rows->row))
        return err_set(error, ERR_INVALID,
                       "line %" PRIu64 ": a row is a JSON object with a member for each column",
                       rows->line);
    if (!rows->columns) err = take_keys(rows, error);
    return err == OK ? write_members(rows, error) : err;
}

enum err table_rows_next(struct table_rows *rows, bool *ret_found, struct error *error) {
    json_decref(rows->row);
    rows->row = NULL;
    buf_clear(&rows->json);
    enum err err = has_objects(rows->kind) ? next_object(rows, ret_found, error)
                                           : next_cells(rows, ret_found, error);
    if (err == OK && *ret_found) rows->number++;
    return err;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "table/rows.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/os.h"
#include "json/json.h"
#include "json/span.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN_BYTES 60 /* limit for a column's name in a sentence */

enum table_kind table_kind_of(const char *name) {
    static const struct {
        const char *end;
        enum table_kind kind;
    } ends[] = {{".csv", TABLE_CSV},     {".tsv", TABLE_TSV},      {".tab", TABLE_TSV},
                {".jsonl", TABLE_JSONL}, {".ndjson", TABLE_JSONL}, {".parquet", TABLE_PARQUET}};
    bool is_url = strstr(name, "://") != NULL;
    struct str path = {name, is_url ? strcspn(name, "?#") : strlen(name)};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t bytes = strlen(ends[i].end);
        if (path.bytes >= bytes &&
            strncasecmp(path.at + path.bytes - bytes, ends[i].end, bytes) == 0)
            return ends[i].kind;
    }
    return TABLE_NONE;
}

static const char *const kind_names[] = {NULL, "csv", "tsv", "jsonl", "parquet"};

const char *table_kind_name(enum table_kind kind) {
    return kind_names[kind];
}

enum table_kind table_kind_named(const char *name) {
    for (int kind = TABLE_CSV; kind <= TABLE_PARQUET; kind++)
        if (strcmp(name, kind_names[kind]) == 0) return (enum table_kind)kind;
    return TABLE_NONE;
}

char table_separator(enum table_kind kind) {
    return kind == TABLE_TSV ? '\t' : ',';
}

/* Takes the names of the columns: none occurs twice, and none but the first is empty, as that of
 * the index which pandas and R write. */
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
        if (names[i].bytes == 0 && i > 0)
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

/* A separator as --delimiter takes it. */
static const char *option_text(char separator, char ret_text[2]) {
    if (separator == '\t') return "\\t";
    ret_text[0] = separator;
    ret_text[1] = '\0';
    return ret_text;
}

/* Refuses a header of one cell that another separator would part: hardly anyone means that. */
static enum err check_separator(const struct table_rows *rows, struct error *error) {
    static const char others[] = ";\t|,";
    const struct csv_cell *cell = rows->csv.cells;
    char text[2], own[2];
    if (rows->csv.count != 1 || cell->is_quoted || !rows->csv.has_usual) return OK;
    for (const char *other = others; *other; other++) {
        if (str_find_byte(cell->text, *other, 0) == SIZE_MAX) continue;
        const char *shown = option_text(*other, text);
        return err_set(error, ERR_INVALID,
                       "line %" PRIu64 ": the header is one cell, with '%s' in it: --delimiter "
                       "'%s' parts its cells (--delimiter '%s' takes it as it is)",
                       rows->line, shown, shown, option_text(rows->csv.separator, own));
    }
    return OK;
}

static enum err read_header(struct table_rows *rows, struct error *error) {
    bool found;
    enum err err = csv_reader_next(&rows->csv, &found, error);
    if (err != OK) return err;
    if (!found) return err_set(error, ERR_INVALID, "the table is empty: it has no header");
    rows->line = rows->csv.row_line;
    err = check_separator(rows, error);
    if (err != OK) return err;
    struct str *names = mem_new(rows->csv.count, sizeof *names);
    for (size_t i = 0; i < rows->csv.count; i++) names[i] = rows->csv.cells[i].text;
    err = take_columns(rows, names, rows->csv.count, error);
    free(names);
    return err;
}

/* --- the keys of JSONL --- */

/* Adds the keys of an object that no earlier row has. */
static void add_keys(struct str object, struct map *seen, struct buf *names) {
    struct json_span_iter iter;
    struct str key, value;
    struct buf name;
    if (!json_span_is_object(object) || !json_span_enter(&iter, object)) return;
    buf_init(&name, BUF_UNLIMITED);
    while (json_span_member(&iter, &key, &value)) {
        buf_clear(&name);
        json_span_decode(&name, key);
        if (str_find_byte(buf_str(&name), '\0', 0) != SIZE_MAX ||
            !map_put_new(seen, buf_str(&name), seen->count, NULL))
            continue;
        buf_add_str(names, buf_str(&name));
        buf_add_byte(names, '\0');
    }
    buf_release(&name);
}

/* The columns of a JSONL table are the members of all its rows, in the order in which they occur
 * first. A stream that cannot be read twice has those of its first row. */
static enum err find_keys(struct table_rows *rows, struct error *error) {
    struct stat status;
    struct map seen;
    struct buf names;
    if (fstat(rows->fd, &status) != 0 || !S_ISREG(status.st_mode)) return OK;
    map_init(&seen);
    buf_init(&names, BUF_UNLIMITED);
    enum err err = lines_next(&rows->lines, error);
    while (err == OK && rows->lines.line.at && seen.count <= TABLE_COLUMNS_MAX) {
        add_keys(rows->lines.line, &seen, &names);
        err = lines_next(&rows->lines, error);
    }
    struct str *list = mem_new(seen.count + 1, sizeof *list);
    size_t count = 0;
    for (size_t at = 0; at < names.bytes; at += list[count++].bytes + 1)
        list[count] = str_from(names.at + at);
    rows->line = 1;
    if (err == OK && count > 0) err = take_columns(rows, list, count, error);
    free(list);
    buf_release(&names);
    map_release(&seen);
    lines_release(&rows->lines);
    lines_init(&rows->lines, rows->fd);
    if (err == OK && lseek(rows->fd, 0, SEEK_SET) < 0)
        err = err_from_errno(error, errno, "cannot read the table again");
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
    ret_rows->csv.has_usual = separator == 0;
    buf_init(&ret_rows->mended, LINES_BYTES_MAX);
    if (err == OK && !has_objects(kind)) err = read_header(ret_rows, error);
    if (err == OK && kind == TABLE_JSONL) err = find_keys(ret_rows, error);
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
    buf_release(&rows->mended);
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
    rows->from = rows->csv.row_from;
    rows->end = rows->csv.row_end;
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

static enum err refuse_member(const struct table_rows *rows, struct error *error) {
    const char *key = "";
    json_t *value;
    json_object_foreach(rows->row, key, value) {
        bool is_column = false;
        for (size_t i = 0; i < rows->column_count && !is_column; i++)
            is_column = strcmp(key, rows->columns[i]) == 0;
        if (!is_column) break;
    }
    return err_set(error, ERR_INVALID,
                   "line %" PRIu64 ": the row has the member '%.*s', which the first row does not "
                   "have; a stream is read once: give the table as a file",
                   rows->line, SHOWN_BYTES, key ? key : "");
}

/* True for a number that a template cannot compute with: an integer outside 64 bits with a sign, or
 * a number outside a double. */
static bool is_too_large(struct str number) {
    int64_t integer;
    char text[512];
    bool is_integer = str_find_byte(number, '.', 0) == SIZE_MAX &&
                      str_find_byte(number, 'e', 0) == SIZE_MAX &&
                      str_find_byte(number, 'E', 0) == SIZE_MAX;
    if (is_integer) return !str_to_i64(number, &integer);
    if (number.bytes >= sizeof text) return true;
    memcpy(text, number.at, number.bytes);
    text[number.bytes] = '\0';
    return !isfinite(strtod(text, NULL));
}

/* Writes valid JSON with the numbers that are too large as texts of their digits. */
static void quote_numbers(struct buf *out, struct str json) {
    for (size_t at = 0; at < json.bytes;) {
        char first = json.at[at];
        bool is_number = first == '-' || (first >= '0' && first <= '9');
        size_t end = is_number || first == '"' ? json_span_end(json, at) : at + 1;
        struct str part = {json.at + at, end - at};
        bool is_quoted = is_number && is_too_large(part);
        if (is_quoted) buf_add_byte(out, '"');
        buf_add_str(out, part);
        if (is_quoted) buf_add_byte(out, '"');
        at = end;
    }
}

/* Reads the current line as the row. A number that is too large is a text for a template, and in
 * the row as it stands. */
static enum err read_row(struct table_rows *rows, struct error *error) {
    size_t room = SIZE_MAX;
    struct error ignored;
    enum err err = json_read_once(&rows->row, rows->lines.line, &room, error);
    if (err == OK) return OK;
    rows->row = NULL;
    if (!json_span_read(rows->lines.line, NULL)) return err;
    buf_clear(&rows->mended);
    quote_numbers(&rows->mended, rows->lines.line);
    if (json_read_once(&rows->row, buf_str(&rows->mended), &room, &ignored) == OK) return OK;
    rows->row = NULL;
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
    return refuse_member(rows, error);
}

static enum err next_object(struct table_rows *rows, bool *ret_found, struct error *error) {
    enum err err = lines_next(&rows->lines, error);
    *ret_found = err == OK && rows->lines.line.at;
    if (err == OK && !*ret_found) err = parquet_read_end(&rows->parquet, error);
    if (!*ret_found) return err;
    rows->line = rows->lines.number;
    rows->from = rows->lines.offset;
    rows->end = rows->from + rows->lines.line.bytes;
    err = read_row(rows, error);
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

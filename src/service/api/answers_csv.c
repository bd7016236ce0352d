/* SPDX-License-Identifier: Apache-2.0 */

/* Answers as a table for spreadsheets: GET /v1/batches/{id}/answers?format=csv. Like the list, it
 * comes in pages: a page ends after a thousand rows or a mebibyte, and its headers say whether and
 * where the next one begins. The first page has the header of the table. */

#include "answers/answers.h"
#include "answers/cells.h"
#include "answers/large.h"
#include "api/api_internal.h"
#include "base/mem.h"
#include "csv/csv_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_BYTES ((size_t)1 << 20)        /* after which no row begins */
#define RESULT_BYTES_MAX ((size_t)16 << 20) /* a longer result is named, and not shown */
#define COLUMNS_MAX (CELLS_MAX - 4)
#define MARK "\xEF\xBB\xBF" /* by which spreadsheets know UTF-8 */

static const struct csv_form form = {.separator = ',', .is_excel_safe = true};

static bool refuse_columns(struct http_request *request) {
    api_fail_param(request, "invalid_value", "columns",
                   "Invalid value for 'columns': expected at most %d names of fields of at most %d "
                   "bytes, each percent-encoded, with commas between them.",
                   COLUMNS_MAX, ANSWERS_TEXT_MAX);
    return false;
}

/* Reads the names that a client wants, behind the first of `names`. False if they are wrong. */
static bool read_names(struct http_request *request, struct str text, struct str *names,
                       size_t *count) {
    for (size_t at = 0, end; at <= text.bytes; at = end + 1) {
        struct str name;
        end = str_find_byte(text, ',', at);
        if (end == SIZE_MAX) end = text.bytes;
        if (!answers_decode(http_request_arena(request), (struct str){text.at + at, end - at},
                            &name) ||
            name.bytes == 0 || name.bytes > ANSWERS_TEXT_MAX || *count == COLUMNS_MAX)
            return false;
        if (!str_is(name, ".custom_id")) names[(*count)++] = name;
    }
    return true;
}

/* Reads the names of the columns: the custom_id, those that are asked for or else all, and what no
 * column shows. */
static bool read_columns(struct http_request *request, struct answers_index *index,
                         struct str ret_names[CELLS_MAX], size_t *ret_count) {
    struct str text = http_request_query(request, "columns");
    size_t count = 0;
    ret_names[count++] = STR(".custom_id");
    if (text.bytes > 0) {
        if (!read_names(request, text, ret_names, &count)) return refuse_columns(request);
    } else {
        ret_names[count++] = STR(".line");
        ret_names[count++] = STR(".outcome");
        count += answers_names(index, http_request_arena(request), &ret_names[count],
                               COLUMNS_MAX - count);
    }
    ret_names[count++] = STR(".answer");
    *ret_count = count;
    return true;
}

static void write_header(struct buf *out, const struct cells *cells) {
    buf_add_text(out, MARK);
    size_t from = out->bytes;
    for (size_t i = 0; i < cells->count; i++) {
        struct str name = cells->names[i];
        bool is_own = str_is(name, ".custom_id") || str_is(name, ".answer");
        csv_write_text(out, &form, i == 0, is_own ? str_skip(name, 1) : name);
    }
    csv_end_row(out, from);
}

/* Reads a result, a long one in its turn. ERR_LIMIT for one that is too long in any case. */
static enum err read_result(struct answers_reader *reader, struct large_turn *turn, uint32_t line,
                            struct buf *result, uint64_t *ret_bytes, struct error *error) {
    size_t most = turn->is_held ? RESULT_BYTES_MAX : LARGE_SMALL_BYTES;
    buf_clear(result);
    enum err err = answers_read_result(reader, line, most, result, ret_bytes, error);
    if (err != OK || *ret_bytes <= most || *ret_bytes > RESULT_BYTES_MAX) return err;
    err = large_take(turn, error);
    if (err != OK) return err;
    return answers_read_result(reader, line, RESULT_BYTES_MAX, result, ret_bytes, error);
}

static enum err write_row(struct buf *out, struct cells *cells, struct answers_reader *reader,
                          struct large_turn *turn, uint32_t line, struct error *error) {
    struct buf result;
    uint64_t bytes = 0;
    char reason[160] = "";
    size_t from = out->bytes;
    buf_init(&result, RESULT_BYTES_MAX + 1);
    enum err err = read_result(reader, turn, line, &result, &bytes, error);
    bool is_damaged = err == ERR_CORRUPT; /* the line runs again */
    if (is_damaged) err = OK;
    if (err == OK &&
        (bytes > RESULT_BYTES_MAX || is_damaged || !cells_read(cells, buf_str(&result))))
        snprintf(reason, sizeof reason,
                 bytes > RESULT_BYTES_MAX ? "The result of line %" PRIu32 " has %" PRIu64
                                            " bytes: it is in the file of results alone."
                                          : "The result of line %" PRIu32 " cannot be read.",
                 line + 1, bytes);
    for (size_t i = 0; err == OK && i < cells->count; i++) {
        bool is_last = i + 1 == cells->count;
        if (*reason && is_last)
            csv_write_text(out, &form, i == 0, str_from(reason));
        else if (!*reason && cells->has[i])
            csv_write_text(out, &form, i == 0, buf_str(&cells->texts[i]));
        else
            csv_write_nothing(out, &form, i == 0);
    }
    if (err == OK) csv_end_row(out, from);
    buf_release(&result);
    if (turn->is_held) large_give(turn);
    return err;
}

/* Writes the rows of a page until it is long enough. *ret_written is the number of rows. */
static enum err write_rows(struct buf *out, struct cells *cells, struct answers_index *index,
                           const struct answers_query *query, const struct answers_page *page,
                           size_t *ret_written, struct error *error) {
    struct answers_reader *reader;
    enum err err = OK;
    size_t at = 0;
    answers_reader_open(&reader, index);
    while (err == OK && at < page->count && out->bytes < PAGE_BYTES) {
        if (query->is_gone(query->context))
            err = err_set(error, ERR_CANCELLED, "The client has gone.");
        else
            err = write_row(out, cells, reader, query->turn, page->lines[at++], error);
    }
    answers_reader_close(reader);
    *ret_written = at;
    return err;
}

static void answer(struct http_request *request, const struct buf *out, struct buf *after) {
    buf_add_byte(after, '\0');
    const struct http_header headers[] = {
        {"X-Incomplete", after->bytes > 1 ? "true" : "false"},
        {"Content-Disposition", "attachment; filename=\"answers.csv\""},
        {"X-After", after->at},
    };
    http_answer(request, &(struct http_answer){.status = 200,
                                               .content_type = "text/csv; charset=utf-8",
                                               .body = buf_str(out),
                                               .headers = headers,
                                               .header_count = after->bytes > 1 ? 3 : 2});
}

/* The page's rows, and in `after` where the next page begins; it stays empty at the end. */
static enum err make_page(struct answers_index *index, const struct answers_query *query,
                          struct cells *cells, struct buf *out, struct buf *after,
                          struct error *error) {
    struct answers_page *page = mem_new(1, sizeof *page);
    size_t written = 0;
    enum err err = answers_find(index, query, page, error);
    bool is_found = err == OK;
    if (is_found) err = write_rows(out, cells, index, query, page, &written, error);
    if (err == OK && written < page->count)
        answers_write_cursor(after, index, query, page->lines[written - 1]);
    else if (err == OK && page->has_more)
        buf_add_str(after, buf_str(&page->after));
    if (is_found) answers_page_release(page);
    free(page);
    return err;
}

void answers_csv(struct http_request *request, struct answers_index *index,
                 struct answers_query *query) {
    struct str names[CELLS_MAX];
    struct error error;
    struct buf out, after;
    size_t count;
    if (!read_columns(request, index, names, &count)) return;
    struct cells *cells = mem_new(1, sizeof *cells);
    cells_init(cells, names, count);
    buf_init(&out, BUF_UNLIMITED);
    buf_init(&after, 1024);
    if (query->after.bytes == 0) write_header(&out, cells);
    enum err err = make_page(index, query, cells, &out, &after, &error);
    if (err == OK)
        answer(request, &out, &after);
    else if (err == ERR_INVALID)
        api_fail_param(request, "invalid_value", "after", "Invalid value for 'after': %s.",
                       error.text);
    else
        api_fail_err(request, err, &error, NULL);
    cells_release(cells);
    free(cells);
    buf_release(&out);
    buf_release(&after);
}

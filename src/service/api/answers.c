/* SPDX-License-Identifier: Apache-2.0 */

/* The answers of a batch by their fields (extensions): GET /v1/batches/{id}/answers/fields,
 * GET /v1/batches/{id}/answers and GET /v1/batches/{id}/lines/{line}. */

#include "answers/answers.h"
#include "answers/large.h"
#include "api/api_internal.h"
#include "base/mem.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_LINES_DEFAULT 50
#define PAGE_RESULT_BYTES ((size_t)4 << 20) /* limit of a page's results; others are null */
#define LINE_BYTES ((size_t)16 << 20)       /* limit of a line's request, and of its result */
#define TEXT_BYTES ANSWERS_TEXT_MAX         /* limit of `q`, and of names and values of filters */

/* --- the index of a batch --- */

/* Takes the index of the batch. False, with an answer sent, if the results cannot be read. */
static bool take(struct api *api, struct http_request *request, struct store_batch *ret_batch,
                 struct answers_index **ret_index, struct answers_state *ret_state) {
    if (!batches_find(api, request, ret_batch)) return false;
    *ret_index = answers_take(api->answers, ret_batch);
    answers_state(*ret_index, ret_state);
    if (ret_state->err == OK) return true;
    api_fail_err(request, ret_state->err, &ret_state->error, NULL);
    answers_drop(*ret_index);
    store_batch_release(ret_batch);
    return false;
}

void answers_write_counts(struct buf *buf, const struct answers_state *state,
                          const struct store_batch *batch) {
    uint64_t lines = batch->completed + batch->failed;
    if (lines < state->indexed) lines = state->indexed; /* the index grew after the row was read */
    buf_printf(buf, "\"indexed\":%" PRIu64 ",\"lines\":%" PRIu64, state->indexed, lines);
}

/* --- fields --- */

void answers_fields(void *context, struct http_request *request) {
    struct store_batch batch;
    struct answers_index *index;
    struct answers_state state;
    struct buf buf;
    if (!take(context, request, &batch, &index, &state)) return;
    buf_init(&buf, BUF_UNLIMITED);
    buf_add_text(&buf, "{\"object\":\"list\",");
    answers_write_counts(&buf, &state, &batch);
    buf_printf(&buf, ",\"left_out\":%" PRIu64 ",\"data\":", answers_left_out(index));
    answers_write_summary(&buf, index);
    buf_add_byte(&buf, '}');
    answers_drop(index);
    store_batch_release(&batch);
    api_answer_json(request, &buf);
}

/* --- the query --- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
    return -1;
}

bool answers_decode(struct arena *arena, struct str text, struct str *ret_text) {
    char *out = arena_alloc(arena, text.bytes + 1);
    size_t used = 0;
    if (!out) return false;
    for (size_t i = 0; i < text.bytes; i++) {
        char c = text.at[i];
        if (c == '%') {
            int high = i + 2 < text.bytes ? hex_value(text.at[i + 1]) : -1;
            int low = i + 2 < text.bytes ? hex_value(text.at[i + 2]) : -1;
            if (high < 0 || low < 0) return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        out[used++] = c;
    }
    *ret_text = (struct str){out, used};
    return true;
}

static bool refuse_filter(struct http_request *request, struct str text, const char *why) {
    api_fail_param(request, "invalid_value", "filter",
                   "Invalid value for 'filter': '%.200s': %s. Expected NAME:OP:VALUE, with NAME "
                   "and VALUE percent-encoded.",
                   api_text(request, text), why);
    return false;
}

static bool read_op(struct str text, enum answers_op *ret_op) {
    static const char *const names[] = {
        [ANSWERS_EQ] = "eq", [ANSWERS_NE] = "ne", [ANSWERS_LT] = "lt",   [ANSWERS_LE] = "le",
        [ANSWERS_GT] = "gt", [ANSWERS_GE] = "ge", [ANSWERS_HAS] = "has", [ANSWERS_IS_NULL] = "is"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!str_is(text, names[i])) continue;
        *ret_op = (enum answers_op)i;
        return true;
    }
    return false;
}

static bool read_filter(struct http_request *request, struct str text,
                        struct answers_filter *ret_filter) {
    struct arena *arena = http_request_arena(request);
    size_t first = str_find_byte(text, ':', 0);
    size_t second = first == SIZE_MAX ? SIZE_MAX : str_find_byte(text, ':', first + 1);
    if (second == SIZE_MAX) return refuse_filter(request, text, "it has fewer than two colons");
    struct str name = {text.at, first}, op = {text.at + first + 1, second - first - 1};
    if (!answers_decode(arena, name, &ret_filter->name) ||
        !answers_decode(arena, str_skip(text, second + 1), &ret_filter->value))
        return refuse_filter(request, text, "its percent-encoding is broken");
    if (!read_op(op, &ret_filter->op))
        return refuse_filter(request, text, "OP is one of eq, ne, lt, le, gt, ge, has and is");
    if (!answers_is_name(ret_filter->name))
        return refuse_filter(request, text, "no line has a field of this name");
    if (ret_filter->value.bytes > TEXT_BYTES || ret_filter->name.bytes > TEXT_BYTES)
        return refuse_filter(request, text, "a name or a value has more than 1,024 bytes");
    if (ret_filter->op == ANSWERS_IS_NULL && !str_is(ret_filter->value, "null"))
        return refuse_filter(request, text, "the value of 'is' is null");
    return true;
}

static bool read_filters(struct http_request *request, struct answers_filter *filters,
                         size_t *ret_count) {
    struct str text;
    for (*ret_count = 0; (text = http_request_query_nth(request, "filter", *ret_count)).at;
         ++*ret_count) {
        if (*ret_count == ANSWERS_FILTERS_MAX) {
            api_fail_param(request, "array_above_max_length", "filter",
                           "Too many filters: at most %d are allowed.", ANSWERS_FILTERS_MAX);
            return false;
        }
        if (!read_filter(request, text, &filters[*ret_count])) return false;
    }
    return true;
}

static bool read_sort(struct http_request *request, struct answers_query *query) {
    struct str text = http_request_query(request, "sort"), name = text;
    query->descending = str_starts_with(text, STR("-"));
    if (query->descending) name = str_skip(text, 1);
    if (answers_decode(http_request_arena(request), name, &query->sort) &&
        (!text.at || answers_is_name(query->sort)))
        return true;
    api_fail_param(request, "invalid_value", "sort",
                   "Invalid value for 'sort': '%.200s'. Expected a field's name, percent-encoded, "
                   "with '-' in front for descending order.",
                   api_text(request, text));
    return false;
}

static bool read_text(struct http_request *request, struct answers_query *query) {
    query->text = http_request_query(request, "q");
    if (query->text.bytes <= TEXT_BYTES) return true;
    api_fail_param(request, "string_above_max_length", "q",
                   "Invalid 'q': it has %zu bytes, and at most %d are allowed.", query->text.bytes,
                   TEXT_BYTES);
    return false;
}

/* --- a page --- */

/* True if a text from a file is a JSON object, which may become part of an answer. */
static bool is_object(const struct buf *text) {
    struct str value;
    return json_span_read(buf_str(text), &value) && json_span_is_object(value) &&
           json_span_is_utf8(value);
}

/* Appends a line's object. Its result is null if it does not fit into the page, or if its record is
 * damaged and the line runs again. */
static enum err write_line(struct buf *buf, struct answers_index *index,
                           struct answers_reader *reader, uint32_t line, size_t *room,
                           struct error *error) {
    struct buf result;
    uint64_t bytes = 0;
    size_t before = buf->bytes;
    buf_init(&result, PAGE_RESULT_BYTES + 1);
    enum err err = answers_read_result(reader, line, *room, &result, &bytes, error);
    if (err == OK || err == ERR_CORRUPT) {
        buf_printf(buf, "{\"line\":%" PRIu32 ",", line + 1);
        if (is_object(&result)) {
            answers_write_fields(buf, buf_str(&result));
            buf_add_text(buf, ",\"result\":");
            buf_add_str(buf, buf_str(&result));
        } else {
            answers_write_row(buf, index, line);
            buf_printf(buf, ",\"result\":null,\"result_bytes\":%" PRIu64, bytes);
        }
        buf_add_byte(buf, '}');
        /* Fields have the names of all objects around them, and may be longer than the result. */
        size_t taken = buf->bytes - before;
        *room -= taken < *room ? taken : *room;
        err = OK;
    }
    buf_release(&result);
    return err;
}

/* Appends the objects of a page's lines. */
static enum err write_lines(struct buf *buf, struct answers_index *index,
                            const struct answers_page *page, struct error *error) {
    struct answers_reader *reader;
    size_t room = PAGE_RESULT_BYTES;
    enum err err = OK;
    answers_reader_open(&reader, index);
    for (size_t i = 0; i < page->count && err == OK; i++) {
        if (i > 0) buf_add_byte(buf, ',');
        err = write_line(buf, index, reader, page->lines[i], &room, error);
    }
    answers_reader_close(reader);
    return err;
}

/* How far a search is. */
static void write_search(struct buf *buf, const struct answers_page *page) {
    buf_add_text(buf, ",\"searched\":");
    if (page->was_read)
        buf_printf(buf, "%" PRIu64, page->searched);
    else
        buf_add_text(buf, "null");
    buf_printf(buf, ",\"left\":%" PRIu64, page->left);
}

static void answer_page(struct http_request *request, struct answers_index *index,
                        const struct answers_state *state, const struct store_batch *batch,
                        const struct answers_query *query) {
    struct answers_page *page = mem_new(1, sizeof *page);
    struct error error;
    struct buf buf;
    buf_init(&buf, BUF_UNLIMITED);
    buf_add_text(&buf, "{\"object\":\"list\",\"data\":[");
    enum err err = answers_find(index, query, page, &error);
    bool is_found = err == OK;
    if (is_found) err = write_lines(&buf, index, page, &error);
    if (err == OK) {
        buf_add_text(&buf, "],\"matched\":");
        if (page->is_matched_known)
            buf_printf(&buf, "%" PRIu64, page->matched);
        else
            buf_add_text(&buf, "null");
        write_search(&buf, page);
        buf_printf(&buf, ",\"has_more\":%s,\"after\":", page->has_more ? "true" : "false");
        if (page->after.bytes > 0)
            json_write_string(&buf, buf_str(&page->after));
        else
            buf_add_text(&buf, "null");
        buf_add_byte(&buf, ',');
        answers_write_counts(&buf, state, batch);
        buf_add_byte(&buf, '}');
        api_answer_json(request, &buf);
    } else {
        buf_release(&buf);
        if (err == ERR_INVALID)
            api_fail_param(request, "invalid_value", "after",
                           "Invalid value for 'after': '%.200s': %s.",
                           api_text(request, query->after), error.text);
        else
            api_fail_err(request, err, &error, NULL);
    }
    if (is_found) answers_page_release(page);
    free(page);
}

/* Reads the form of a page. False, and answered with 400, for an unknown one. */
static bool read_format(struct http_request *request, bool *ret_is_csv) {
    struct str text = http_request_query(request, "format");
    *ret_is_csv = str_is(text, "csv");
    struct str columns = http_request_query(request, "columns");
    if (columns.at && (columns.bytes == 0 || !*ret_is_csv)) {
        api_fail_param(
            request, "invalid_value", "columns",
            "Invalid value for 'columns': expected names of fields, next to format=csv.");
        return false;
    }
    if (!text.at || *ret_is_csv || str_is(text, "json")) return true;
    api_fail_param(request, "invalid_value", "format",
                   "Invalid value for 'format': '%.100s'. Supported values are: 'json' and 'csv'.",
                   api_text(request, text));
    return false;
}

void answers_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct answers_filter filters[ANSWERS_FILTERS_MAX];
    struct large_turn turn = {.large = &api->large};
    struct answers_query query = {.turn = &turn,
                                  .filters = filters,
                                  .after = http_request_query(request, "after"),
                                  .is_gone = api_is_gone,
                                  .context = request};
    struct store_batch batch;
    struct answers_index *index;
    struct answers_state state;
    bool is_csv;
    if (!read_format(request, &is_csv) || !read_filters(request, filters, &query.filter_count) ||
        !read_sort(request, &query) || !read_text(request, &query) ||
        !api_read_limit(request, is_csv ? ANSWERS_LIMIT_MAX : PAGE_LINES_DEFAULT, ANSWERS_LIMIT_MAX,
                        &query.limit) ||
        !take(api, request, &batch, &index, &state))
        return;
    if (is_csv)
        answers_csv(request, index, &query);
    else
        answer_page(request, index, &state, &batch, &query);
    answers_drop(index);
    store_batch_release(&batch);
}

/* --- one line --- */

static bool read_line(struct http_request *request, const struct store_batch *batch,
                      uint32_t *ret_line) {
    struct str text = http_request_param(request, 1);
    uint64_t line;
    if (!str_to_u64(text, &line) || line < 1) {
        api_fail_param(request, "invalid_type", "line",
                       "Invalid value for 'line': expected a number from 1 on, got '%.100s'.",
                       api_text(request, text));
        return false;
    }
    if (line > batch->total || line >= ANSWERS_NO_LINE) {
        api_fail(request, 404, NULL, "line",
                 "No line %" PRIu64 " in this batch; it has %" PRIu64 ".", line, batch->total);
        return false;
    }
    *ret_line = (uint32_t)line - 1;
    return true;
}

/* Appends the custom_id of the request, or else of the result. */
static void write_custom_id(struct buf *buf, const struct buf *input, const struct buf *result) {
    struct str id = json_span_get(buf_str(input), "custom_id");
    if (!json_span_is_string(id)) id = json_span_get(buf_str(result), "custom_id");
    buf_add_text(buf, "\"custom_id\":");
    buf_add_str(buf, json_span_is_string(id) ? id : STR("null"));
}

/* Appends a JSON value that was read, or null and its size. */
static void write_part(struct buf *buf, const char *name, const struct buf *part, uint64_t bytes) {
    buf_printf(buf, ",\"%s\":", name);
    if (part->bytes > 0)
        buf_add_str(buf, buf_str(part));
    else
        buf_add_text(buf, "null");
    if (part->bytes == 0 && bytes > 0) buf_printf(buf, ",\"%s_bytes\":%" PRIu64, name, bytes);
}

/* The texts of a line. */
struct whole_line {
    struct buf request, result;
    uint64_t result_bytes;
};

/* Reads the texts that have at most `bytes_max` bytes. False if there is a longer one. */
static bool read_texts(struct whole_line *whole, struct answers_index *index, uint32_t line,
                       size_t bytes_max) {
    struct answers_reader *reader;
    struct error error;
    buf_clear(&whole->request);
    buf_clear(&whole->result);
    answers_reader_open(&reader, index);
    enum err has_request = answers_read_request(index, line, bytes_max, &whole->request, &error);
    enum err has_result =
        answers_read_result(reader, line, bytes_max, &whole->result, &whole->result_bytes, &error);
    answers_reader_close(reader);
    if (has_request != OK || !is_object(&whole->request)) buf_clear(&whole->request);
    if (has_result != OK || !is_object(&whole->result)) buf_clear(&whole->result);
    return has_request != ERR_LIMIT && whole->result_bytes <= bytes_max;
}

static void write_whole_line(struct buf *buf, const struct whole_line *whole, uint32_t line) {
    buf_printf(buf, "{\"object\":\"batch.line\",\"line\":%" PRIu32 ",", line + 1);
    write_custom_id(buf, &whole->request, &whole->result);
    write_part(buf, "request", &whole->request, 0);
    write_part(buf, "result", &whole->result, whole->result_bytes);
    buf_add_byte(buf, '}');
}

static void answer_line(struct api *api, struct http_request *request, struct answers_index *index,
                        uint32_t line) {
    struct large_turn turn = {.large = &api->large};
    struct whole_line whole = {.result_bytes = 0};
    struct error error;
    struct buf body;
    enum err err = OK;
    buf_init(&whole.request, LINE_BYTES + 1);
    buf_init(&whole.result, LINE_BYTES + 1);
    buf_init(&body, BUF_UNLIMITED);
    if (!read_texts(&whole, index, line, LARGE_SMALL_BYTES)) {
        err = large_take(&turn, &error);
        if (err == OK) read_texts(&whole, index, line, LINE_BYTES);
    }
    if (err == OK) write_whole_line(&body, &whole, line);
    buf_release(&whole.request);
    buf_release(&whole.result);
    if (err == OK) {
        api_answer_json(request, &body);
    } else {
        buf_release(&body);
        api_fail_err(request, err, &error, NULL);
    }
    large_give(&turn);
}

void answers_line(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    uint32_t line;
    if (!batches_find(api, request, &batch)) return;
    if (read_line(request, &batch, &line)) {
        struct answers_index *index = answers_take(api->answers, &batch);
        answer_line(api, request, index, line);
        answers_drop(index);
    }
    store_batch_release(&batch);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "table/answers.h"

#include "base/map.h"
#include "base/mem.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <string.h>

/* The columns behind those of the answer. */
static const char *const last_columns[] = {"error", "finish_reason", "prompt_tokens",
                                           "completion_tokens"};
enum { LAST_ALWAYS = 2, LAST_COUNT = 4 };

struct table_answers {
    struct table_answers_form form;
    char **names;  /* of the columns behind those of the row; NULL until the first row */
    char **fields; /* of the answer's object; NULL: the answer is one text */
    size_t field_count, last_count;
    struct buf keys;        /* the names of the row's columns, as the first request has them */
    struct buf text, other; /* decoded texts */
    size_t row_from;        /* in the output: where the row begins */
    bool has_objects;       /* rows are objects of JSON */
    bool is_first;          /* the next cell is the first of its row */
};

struct table_answers *table_answers_open(const struct table_answers_form *form) {
    struct table_answers *answers = mem_new(1, sizeof *answers);
    answers->form = *form;
    answers->has_objects = form->kind == TABLE_JSONL || form->kind == TABLE_PARQUET;
    answers->field_count = 1;
    answers->last_count = form->has_tokens ? LAST_COUNT : LAST_ALWAYS;
    buf_init(&answers->text, BUF_UNLIMITED);
    buf_init(&answers->other, BUF_UNLIMITED);
    buf_init(&answers->keys, BUF_UNLIMITED);
    return answers;
}

void table_answers_close(struct table_answers *answers) {
    if (!answers) return;
    for (size_t i = 0; answers->names && i < answers->field_count + answers->last_count; i++)
        free(answers->names[i]);
    free((void *)answers->names);
    for (size_t i = 0; answers->fields && i < answers->field_count; i++) free(answers->fields[i]);
    free((void *)answers->fields);
    buf_release(&answers->keys);
    buf_release(&answers->text);
    buf_release(&answers->other);
    free(answers);
}

/* --- cells --- */

static void begin_row(struct table_answers *is, const struct buf *out) {
    is->row_from = out->bytes;
    is->is_first = true;
}

/* Begins the member of a JSONL row. */
static void add_key(struct table_answers *is, struct buf *out, struct str name) {
    buf_add_byte(out, is->is_first ? '{' : ',');
    json_write_utf8_string(out, name);
    buf_add_byte(out, ':');
}

/* Appends a cell of raw JSON; `at` NULL is no value. */
static void add_json(struct table_answers *is, struct buf *out, struct str name, struct str raw) {
    bool has_value = raw.at && !str_is(raw, "null");
    if (is->has_objects) {
        add_key(is, out, name);
        size_t from = out->bytes;
        buf_add_str(out, has_value ? raw : STR("null"));
        /* An answer may have ends of lines between its values. */
        for (size_t i = from; i < out->bytes; i++)
            if (out->at[i] == '\n' || out->at[i] == '\r') out->at[i] = ' ';
    } else if (!has_value) {
        csv_write_nothing(out, &is->form.csv, is->is_first);
    } else {
        buf_clear(&is->text);
        struct str text = json_span_is_string(raw) ? json_span_text(raw, &is->text) : raw;
        csv_write_text(out, &is->form.csv, is->is_first, text);
    }
    is->is_first = false;
}

static void add_text(struct table_answers *is, struct buf *out, struct str name, struct str text) {
    if (is->has_objects) {
        add_key(is, out, name);
        json_write_utf8_string(out, text);
    } else {
        csv_write_text(out, &is->form.csv, is->is_first, text);
    }
    is->is_first = false;
}

static void end_row(struct table_answers *is, struct buf *out) {
    if (is->has_objects)
        buf_add_text(out, "}\n");
    else
        csv_end_row(out, is->row_from);
}

/* --- columns --- */

static struct str member(struct str object, const char *name) {
    if (!json_span_is_object(object)) return (struct str){NULL, 0};
    struct str value = json_span_get(object, name);
    return str_is(value, "null") ? (struct str){NULL, 0} : value;
}

/* Takes the properties of the schema that a request asks for. */
static void take_fields(struct table_answers *is, struct str request) {
    static const char *const path[] = {"body", "response_format", "json_schema", "schema",
                                       "properties"};
    struct json_span_iter iter;
    struct str key, value, at = request;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) at = member(at, path[i]);
    if (!json_span_is_object(at) || !json_span_enter(&iter, at)) return;
    while (json_span_member(&iter, &key, &value)) {
        buf_clear(&is->text);
        is->fields = vec_grow((void *)is->fields, count, &capacity, sizeof *is->fields);
        is->fields[count++] = mem_str(json_span_text(key, &is->text));
    }
    if (count > 0) is->field_count = count;
}

/* `wanted`, behind as many "answer_" as make it the name of no other column. */
static char *free_name(struct map *seen, const char *wanted) {
    struct buf name;
    buf_init(&name, BUF_UNLIMITED);
    buf_add_text(&name, wanted);
    while (!map_put_new(seen, buf_str(&name), 0, NULL)) {
        char *longer = mem_str(buf_str(&name));
        buf_clear(&name);
        buf_printf(&name, "answer_%s", longer);
        free(longer);
    }
    char *copy = mem_str(buf_str(&name));
    buf_release(&name);
    return copy;
}

static void name_columns(struct table_answers *is, struct str row) {
    struct map seen;
    struct json_span_iter iter;
    struct str key, value;
    map_init(&seen);
    if (row.at && json_span_enter(&iter, row)) {
        while (json_span_member(&iter, &key, &value)) {
            buf_clear(&is->text);
            map_put(&seen, json_span_text(key, &is->text), 0);
            buf_add_str(&is->keys, key);
        }
    } else {
        map_put(&seen, STR("custom_id"), 0);
    }
    is->names = mem_new(is->field_count + is->last_count, sizeof *is->names);
    for (size_t i = 0; i < is->field_count; i++)
        is->names[i] = free_name(&seen, is->fields ? is->fields[i] : "answer");
    for (size_t i = 0; i < is->last_count; i++)
        is->names[is->field_count + i] = free_name(&seen, last_columns[i]);
    map_release(&seen);
}

static void write_header(struct table_answers *is, struct str row, struct buf *out) {
    struct json_span_iter iter;
    struct str key, value;
    begin_row(is, out);
    if (row.at && json_span_enter(&iter, row))
        while (json_span_member(&iter, &key, &value)) add_json(is, out, key, key);
    else
        add_text(is, out, STR(""), STR("custom_id"));
    for (size_t i = 0; i < is->field_count + is->last_count; i++)
        add_text(is, out, STR(""), str_from(is->names[i]));
    end_row(is, out);
}

/* --- rows --- */

/* The parts of a result that its row has. `at` is NULL for those that it does not have. */
struct parts {
    struct str error, answer, finish_reason, usage;
};

static struct str first_of(struct str array) {
    struct json_span_iter iter;
    struct str value;
    if (!array.at || array.at[0] != '[' || !json_span_enter(&iter, array) ||
        !json_span_element(&iter, &value))
        return (struct str){NULL, 0};
    return value;
}

/* The answer of an endpoint: the text of the first choice, its calls of tools, or the members of
 * the other endpoints. */
static struct str find_answer(struct str body, struct str choice) {
    struct str message = member(choice, "message");
    struct str found = member(message, "content");
    if (!found.at) found = member(message, "tool_calls");
    if (!found.at) found = member(message, "refusal");
    if (!found.at) found = member(choice, "text");
    if (!found.at) found = member(first_of(member(body, "data")), "embedding");
    if (!found.at) found = member(body, "answers");
    return found.at || choice.at ? found : member(body, "data");
}

static void find_parts(struct str result, struct parts *ret_parts) {
    struct str response = member(result, "response"), body = member(response, "body");
    struct str choice = first_of(member(body, "choices"));
    *ret_parts = (struct parts){.error = member(result, "error"),
                                .answer = find_answer(body, choice),
                                .finish_reason = member(choice, "finish_reason"),
                                .usage = member(body, "usage")};
    if (!ret_parts->error.at) ret_parts->error = member(body, "error");
}

/* Adds the cells of the row. False if it has other columns than the first. */
static bool add_row_cells(struct table_answers *is, struct buf *out, struct str request,
                          struct str row) {
    struct json_span_iter iter;
    struct str key, value, keys = buf_str(&is->keys);
    if (!row.at || !json_span_enter(&iter, row)) {
        add_json(is, out, STR("custom_id"), json_span_get(request, "custom_id"));
        return keys.bytes == 0;
    }
    while (json_span_member(&iter, &key, &value)) {
        struct str name = key;
        if (!str_starts_with(keys, key)) return false;
        keys = str_skip(keys, key.bytes);
        buf_clear(&is->other);
        if (is->has_objects) name = json_span_text(key, &is->other);
        add_json(is, out, name, value);
    }
    return keys.bytes == 0;
}

/* Adds the fields of an answer to a schema. False, with no value in them, if it is no object. */
static bool add_fields(struct table_answers *is, struct buf *out, struct str answer) {
    struct str object = {NULL, 0};
    buf_clear(&is->other);
    bool is_object = json_span_is_string(answer) &&
                     json_span_read(json_span_text(answer, &is->other), &object) &&
                     json_span_is_object(object);
    for (size_t i = 0; i < is->field_count; i++) {
        struct str none = {NULL, 0};
        add_json(is, out, str_from(is->names[i]), is_object ? member(object, is->fields[i]) : none);
    }
    return is_object;
}

/* "code: message" of an error, or the answer that is not what its schema asks for. */
static void add_error(struct table_answers *is, struct buf *out, const struct parts *parts,
                      bool is_fitting) {
    struct str name = str_from(is->names[is->field_count]);
    struct str code = member(parts->error, "code"), message = member(parts->error, "message");
    if (!parts->error.at && is_fitting) {
        add_json(is, out, name, (struct str){NULL, 0});
        return;
    }
    struct buf sentence;
    buf_init(&sentence, BUF_UNLIMITED);
    if (parts->error.at) {
        buf_clear(&is->text);
        buf_add_str(&sentence, json_span_is_string(code) ? json_span_text(code, &is->text) : code);
        if (code.at && message.at) buf_add_text(&sentence, ": ");
        buf_clear(&is->text);
        buf_add_str(&sentence,
                    json_span_is_string(message) ? json_span_text(message, &is->text) : message);
        if (!code.at && !message.at) buf_add_str(&sentence, parts->error);
    } else {
        buf_clear(&is->text);
        buf_add_text(&sentence, "invalid_answer: ");
        buf_add_str(&sentence, json_span_is_string(parts->answer)
                                   ? json_span_text(parts->answer, &is->text)
                                   : parts->answer);
    }
    add_text(is, out, name, buf_str(&sentence));
    buf_release(&sentence);
}

enum err table_answers_write(struct table_answers *answers, struct str request, struct str result,
                             struct buf *out, struct error *error) {
    struct parts parts;
    bool is_fitting = true;
    if (!json_span_is_object(request) || !json_span_is_object(result))
        return err_set(error, ERR_CORRUPT, "a line of the batch is no request, or no result");
    struct str row = member(request, "row");
    if (!json_span_is_object(row)) row = (struct str){NULL, 0};
    if (!answers->names) {
        if (row.at) take_fields(answers, request);
        name_columns(answers, row);
        if (!answers->has_objects) write_header(answers, row, out);
    }
    find_parts(result, &parts);
    begin_row(answers, out);
    if (!add_row_cells(answers, out, request, row))
        return err_set(error, ERR_INVALID,
                       "a request's row has other columns than that of the first request");
    if (answers->fields)
        is_fitting = add_fields(answers, out, parts.answer) || !parts.answer.at;
    else
        add_json(answers, out, str_from(answers->names[0]), parts.answer);
    add_error(answers, out, &parts, is_fitting);
    add_json(answers, out, str_from(answers->names[answers->field_count + 1]), parts.finish_reason);
    for (size_t i = LAST_ALWAYS; i < answers->last_count && i < LAST_COUNT; i++)
        add_json(answers, out, str_from(answers->names[answers->field_count + i]),
                 member(parts.usage, last_columns[i]));
    end_row(answers, out);
    return OK;
}

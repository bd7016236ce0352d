/* SPDX-License-Identifier: Apache-2.0 */
#include "table/answers.h"

#include "base/map.h"
#include "base/mem.h"
#include "json/json.h"
#include "json/span.h"
#include "table/answer_schema.h"
#include "table/result_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The columns behind those of the answer. */
static const char *const last_columns[] = {"error", "finish_reason", "prompt_tokens",
                                           "completion_tokens"};
enum { LAST_ALWAYS = 2, LAST_COUNT = 4 };

struct table_answers {
    struct table_answers_form form;
    char **names; /* names of the columns behind those of the row; NULL until the first row */
    struct answer_schema *schema; /* NULL: the answer is one text */
    size_t field_count, last_count;
    struct buf keys;        /* the names of the row's columns, as the first request has them */
    struct buf text, other; /* decoded texts */
    struct buf why;         /* an object does not fit its schema */
    size_t row_from;        /* in the output: where the row begins */
    bool has_objects;       /* rows are objects of JSON */
    bool is_first;          /* the next cell is the first of its row */
    bool is_whole;          /* the latest row shows all that its result says */
};

struct table_answers *table_answers_open(const struct table_answers_form *form) {
    struct table_answers *answers = mem_new(1, sizeof *answers);
    answers->form = *form;
    answers->has_objects = form->kind == TABLE_JSONL || form->kind == TABLE_PARQUET;
    answers->field_count = 1;
    answers->last_count = form->has_tokens ? LAST_COUNT : LAST_ALWAYS;
    buf_init(&answers->text, BUF_UNLIMITED);
    buf_init(&answers->other, BUF_UNLIMITED);
    buf_init(&answers->why, BUF_UNLIMITED);
    buf_init(&answers->keys, BUF_UNLIMITED);
    return answers;
}

void table_answers_close(struct table_answers *answers) {
    if (!answers) return;
    for (size_t i = 0; answers->names && i < answers->field_count + answers->last_count; i++)
        free(answers->names[i]);
    free((void *)answers->names);
    answer_schema_close(answers->schema);
    buf_release(&answers->keys);
    buf_release(&answers->why);
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
        is->names[i] = free_name(&seen, is->schema ? answer_schema_name(is->schema, i) : "answer");
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

/* Adds the fields of an answer to a schema. False, with no value in them, and for an object a
 * reason in `why`, if it does not fit. */
static bool add_fields(struct table_answers *is, struct buf *out, struct str answer) {
    struct str object = {NULL, 0};
    buf_clear(&is->other);
    bool is_object = json_span_is_string(answer) &&
                     json_span_read(json_span_text(answer, &is->other), &object) &&
                     json_span_is_object(object);
    if (is_object) {
        enum answer_fit fit = answer_schema_compare(is->schema, object, &is->why);
        is_object = fit != ANSWER_FITS_NOT;
        is->is_whole = is->is_whole && fit != ANSWER_HAS_MORE;
    }
    for (size_t i = 0; i < is->field_count; i++) {
        struct str none = {NULL, 0};
        add_json(is, out, str_from(is->names[i]),
                 is_object ? member(object, answer_schema_name(is->schema, i)) : none);
    }
    return is_object;
}

/* The error of the result, and the answer that is not what its schema asks for. */
static void add_error(struct table_answers *is, struct buf *out, const struct result_parts *parts,
                      bool is_fitting) {
    struct str name = str_from(is->names[is->field_count]);
    struct buf sentence;
    buf_init(&sentence, BUF_UNLIMITED);
    result_parts_write_error(&sentence, parts);
    if (!is_fitting && parts->answer.at) {
        if (sentence.bytes > 0) buf_add_byte(&sentence, ' ');
        buf_add_text(&sentence, parts->is_refusal ? "refusal: " : "invalid_answer: ");
        if (is->why.bytes > 0) buf_printf(&sentence, "%s: ", is->why.at);
        result_parts_write_text(&sentence, parts->answer);
    }
    if (sentence.bytes > 0)
        add_text(is, out, name, buf_str(&sentence));
    else
        add_json(is, out, name, (struct str){NULL, 0});
    buf_release(&sentence);
}

bool table_answers_showed_all(const struct table_answers *answers) {
    return answers->is_whole;
}

enum err table_answers_write(struct table_answers *answers, struct str request, struct str result,
                             struct buf *out, struct error *error) {
    struct result_parts parts;
    bool is_fitting = true;
    if (!json_span_is_object(request) || !json_span_read(request, NULL))
        return err_set(error, ERR_INVALID, "it is no request: no JSON object");
    if (!result_parts_read(result, &parts))
        return err_set(error, ERR_CORRUPT, "its result is no JSON object");
    struct str row = member(request, "row");
    if (!json_span_is_object(row)) row = (struct str){NULL, 0};
    if (!answers->names) {
        if (answers->form.schema.at)
            answers->schema = answer_schema_read(answers->form.schema);
        else if (row.at)
            answers->schema = answer_schema_open(request);
        if (answers->schema) answers->field_count = answer_schema_count(answers->schema);
        name_columns(answers, row);
        if (!answers->has_objects) write_header(answers, row, out);
    }
    begin_row(answers, out);
    if (!add_row_cells(answers, out, request, row))
        return err_set(error, ERR_INVALID,
                       "a request's row has other columns than that of the first request");
    answers->is_whole = parts.is_whole;
    buf_clear(&answers->why);
    if (answers->schema)
        is_fitting = add_fields(answers, out, parts.answer);
    else
        add_json(answers, out, str_from(answers->names[0]), parts.answer);
    add_error(answers, out, &parts, is_fitting);
    add_json(answers, out, str_from(answers->names[answers->field_count + 1]), parts.finish_reason);
    char prompt[24];
    snprintf(prompt, sizeof prompt, "%" PRIu64, answer_usage_prompt(&parts.usage));
    const struct str counts[] = {parts.usage.prompt_more ? str_from(prompt) : parts.usage.prompt,
                                 parts.usage.completion};
    for (size_t i = LAST_ALWAYS; i < answers->last_count && i < LAST_COUNT; i++)
        add_json(answers, out, str_from(answers->names[answers->field_count + i]),
                 counts[i - LAST_ALWAYS]);
    end_row(answers, out);
    return OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/review_item.h"

#include "curation/answer.h"
#include "curation/judged.h"
#include "json/json.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- texts --- */

static enum err read_request(const struct review_lines *lines, uint32_t line, size_t bytes_max,
                             struct buf *buf, struct error *error) {
    return answers_read_request(lines->index, line, bytes_max, buf, error);
}

static enum err read_result(const struct review_lines *lines, uint32_t line, size_t bytes_max,
                            struct buf *buf, struct error *error) {
    uint64_t bytes;
    enum err err = answers_read_result(lines->reader, line, bytes_max, buf, &bytes, error);
    if (err == OK && bytes > bytes_max)
        return err_set(error, ERR_LIMIT, "The result of line %u has too many bytes to be shown.",
                       line + 1);
    return err;
}

typedef enum err (*read_fn)(const struct review_lines *lines, uint32_t line, size_t bytes_max,
                            struct buf *buf, struct error *error);

static enum err read_in_turn(read_fn read, const struct review_lines *lines, uint32_t line,
                             struct large_turn *turn, struct buf *buf, struct error *error) {
    size_t before = buf->bytes;
    enum err err = ERR_LIMIT;
    if (!turn->is_held) err = read(lines, line, LARGE_SMALL_BYTES, buf, error);
    if (err != ERR_LIMIT) return err;
    buf_truncate(buf, before);
    err = large_take(turn, error);
    return err == OK ? read(lines, line, REVIEW_TEXT_BYTES_MAX, buf, error) : err;
}

enum err review_item_read_request(const struct review_lines *lines, uint32_t line,
                                  struct large_turn *turn, struct buf *buf, struct error *error) {
    return read_in_turn(read_request, lines, line, turn, buf, error);
}

enum err review_item_read_result(const struct review_lines *lines, uint32_t line,
                                 struct large_turn *turn, struct buf *buf, struct error *error) {
    return read_in_turn(read_result, lines, line, turn, buf, error);
}

/* --- cards --- */

/* Appends ,"NAME": and the text of a line. */
static void write_line(struct buf *buf, const char *name, struct str text) {
    buf_printf(buf, ",\"%s\":", name);
    json_span_add_ascii(buf, text);
}

static void write_answer(struct buf *buf, const struct review_source *source, uint32_t line,
                         const struct answer *answer) {
    double uncertainty;
    buf_add_text(buf, ",\"answer\":");
    answer_write_object(buf, answer);
    buf_add_text(buf, ",\"text\":");
    json_write_string(buf, answer->text);
    if (answers_entropy(source->lines->index, line, &uncertainty))
        buf_printf(buf, ",\"uncertainty\":%.6g", uncertainty);
    else
        buf_add_text(buf, ",\"uncertainty\":null");
}

/* Appends the answer of the other batch to the same custom_id. */
static enum err write_other(struct buf *buf, const struct review_source *source, uint32_t line,
                            struct buf *text, struct error *error) {
    struct answer answer;
    uint32_t other = ANSWERS_NO_LINE;
    if (source->with) other = answers_match(source->lines->index, line, source->with->index);
    if (other == ANSWERS_NO_LINE) {
        buf_add_text(buf, ",\"other\":null");
        return OK;
    }
    buf_clear(text);
    enum err err = review_item_read_result(source->with, other, source->turn, text, error);
    if (err != OK) return err;
    answer_read(&answer, buf_str(text));
    buf_printf(buf, ",\"other\":{\"batch_id\":\"%s\",\"line\":%" PRIu32 ",\"answer\":",
               source->with->batch_id, other + 1);
    answer_write_object(buf, &answer);
    buf_add_text(buf, ",\"text\":");
    json_write_string(buf, answer.text);
    buf_add_byte(buf, '}');
    answer_release(&answer);
    return OK;
}

/* The judgements of a card while they are written. */
struct judgements {
    struct buf *buf;
    size_t begun; /* bytes of the buffer before them */
    bool has_any;
};

static enum err write_judgement(void *context, const struct store_judgement *row,
                                struct error *error) {
    struct judgements *judgements = context;
    if (judgements->has_any) buf_add_byte(judgements->buf, ',');
    judgements->has_any = true;
    judged_write(judgements->buf, row);
    if (judgements->buf->bytes - judgements->begun <= REVIEW_JUDGEMENT_BYTES_MAX) return OK;
    return err_set(error, ERR_LIMIT,
                   "The judgements of line %" PRIu64 " have too many bytes to be shown.",
                   row->line);
}

static enum err write_judgements(struct buf *buf, const struct review_source *source, uint32_t line,
                                 struct error *error) {
    struct judged *judged;
    struct judged_line found;
    buf_add_text(buf, ",\"judgements\":[");
    struct judgements judgements = {.buf = buf, .begun = buf->bytes};
    judged_open(&judged, source->store, source->lines->batch_id, (uint64_t)line + 1,
                (uint64_t)line + 1);
    enum err err = judged_next(judged, write_judgement, &judgements, &found, error);
    buf_add_byte(buf, ']');
    judged_close(judged);
    return err;
}

static enum err write_parts(struct buf *buf, const struct review_source *source, uint32_t line,
                            struct buf *text, struct error *error) {
    struct answer answer;
    enum err err = review_item_read_request(source->lines, line, source->turn, text, error);
    if (err != OK) return err;
    struct str id = json_span_get(buf_str(text), "custom_id");
    buf_printf(buf, "{\"line\":%" PRIu32 ",\"custom_id\":", line + 1);
    json_span_add_ascii(buf, id.at ? id : STR("null"));
    write_line(buf, "request", buf_str(text));
    buf_clear(text);
    err = review_item_read_result(source->lines, line, source->turn, text, error);
    if (err != OK) return err;
    answer_read(&answer, buf_str(text));
    write_line(buf, "result", buf_str(text));
    write_answer(buf, source, line, &answer);
    answer_release(&answer);
    err = write_other(buf, source, line, text, error);
    if (err == OK) err = write_judgements(buf, source, line, error);
    buf_add_byte(buf, '}');
    return err;
}

enum err review_item_write(struct buf *buf, const struct review_source *source, uint32_t line,
                           struct error *error) {
    struct buf text;
    size_t before = buf->bytes;
    buf_init(&text, REVIEW_TEXT_BYTES_MAX);
    enum err err = write_parts(buf, source, line, &text, error);
    if (err != OK) buf_truncate(buf, before);
    buf_release(&text);
    return err;
}

/* --- schemas --- */

/* The member `name` if it is a schema, else NULL. */
static const json_t *schema_at(const json_t *object, const char *name) {
    const json_t *schema = json_member(object, name);
    return json_is_object(schema) || json_is_boolean(schema) ? schema : NULL;
}

/* The parameters of the tool that a request must call: the named tool, or its only one. */
static const json_t *tool_schema(const json_t *body) {
    const json_t *tools = json_member(body, "tools"), *choice = json_member(body, "tool_choice");
    const json_t *named = json_member(json_member(choice, "function"), "name");
    size_t index;
    json_t *tool;
    json_array_foreach(tools, index, tool) {
        const json_t *function = json_member(tool, "function");
        bool is_named = json_is_string(named) && json_equal(named, json_member(function, "name"));
        if (is_named || (!named && json_array_size(tools) == 1))
            return schema_at(function, "parameters");
    }
    return NULL;
}

static const json_t *asked_schema(const json_t *body) {
    const json_t *format = json_member(body, "response_format");
    const json_t *schema = schema_at(json_member(format, "json_schema"), "schema");
    if (!schema) schema = schema_at(format, "schema");
    if (!schema) schema = schema_at(json_member(body, "structured_outputs"), "json");
    if (!schema) schema = schema_at(body, "guided_json");
    if (!schema) schema = schema_at(body, "json_schema");
    return schema ? schema : tool_schema(body);
}

/* The values that a choice has, as a list. */
static json_t *options_of(const json_t *question) {
    json_t *options = json_array(), *option;
    size_t index;
    const char *name;
    json_array_foreach(json_member(question, "choices"), index, option)
        json_array_append(options, json_is_object(option) ? json_member(option, "value") : option);
    json_object_foreach(json_member(question, "criteria"), name, option)
        json_array_append_new(options, json_string(name));
    return options;
}

static void add_question(json_t *properties, const char *name, const json_t *question) {
    struct str type = json_member_str(question, "type");
    const json_t *levels = json_member(question, "levels");
    json_t *schema = json_object();
    if (!levels) levels = json_member(question, "criteria");
    if (str_is(type, "choice")) {
        json_object_set_new(schema, "enum", options_of(question));
    } else if (str_is(type, "score")) {
        json_object_set_new(schema, "type", json_string("integer"));
        json_object_set_new(schema, "minimum", json_integer(0));
        if (json_array_size(levels) > 0)
            json_object_set_new(schema, "maximum",
                                json_integer((json_int_t)json_array_size(levels) - 1));
    } else {
        json_object_set_new(schema, "type", json_string("boolean"));
    }
    json_t *text = json_member(question, "instructions");
    if (json_is_string(text)) json_object_set(schema, "description", text);
    json_object_set_new_nocheck(properties, name, schema);
}

/* The schema of the answer to a decision; NULL if the body has no questions. The caller owns it. */
static json_t *decision_schema(const json_t *body) {
    const json_t *questions = json_member(body, "questions");
    json_t *question, *properties = json_object();
    size_t index;
    const char *key;
    char number[24];
    json_array_foreach(questions, index, question) {
        const char *name = json_string_value(json_member(question, "name"));
        snprintf(number, sizeof number, "%zu", index);
        add_question(properties, name ? name : number, question);
    }
    json_object_foreach((json_t *)(uintptr_t)questions, key, question)
        add_question(properties, key, question);
    if (json_object_size(properties) > 0)
        return json_pack("{s:s,s:o}", "type", "object", "properties", properties);
    json_decref(properties);
    return NULL;
}

enum err review_item_write_schema(struct buf *buf, const struct review_lines *lines,
                                  struct large_turn *turn, struct error *error) {
    json_t *line = NULL;
    struct buf text;
    buf_init(&text, REVIEW_TEXT_BYTES_MAX);
    enum err err = review_item_read_request(lines, 0, turn, &text, error);
    size_t room = answer_tree_room(text.bytes);
    if (err == OK) err = json_read_within(&line, buf_str(&text), &room, error);
    buf_release(&text);
    if (err != OK) return err;
    const json_t *body = json_member(line, "body"), *schema = asked_schema(body);
    json_t *made = schema ? NULL : decision_schema(body);
    if (schema || made)
        json_write(buf, schema ? schema : made);
    else
        buf_add_text(buf, "null");
    json_decref(made);
    json_decref(line);
    return OK;
}

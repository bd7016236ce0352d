/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/record.h"

#include "answer/answer_text.h"
#include "answer/answer_usage.h"
#include "answers/question.h"
#include "answers/table.h"
#include "json/span.h"
#include "store/seglog.h"

#include <math.h>
#include <sodium/crypto_shorthash.h>
#include <string.h>

#define GOOD_STATUS 200
#define PREDICATE_IS_TRUE 0.5
#define LABEL_DEPTH_MAX 8 /* objects and arrays inside each other whose values are labels */
#define LABEL_BYTES_MAX 64
#define ID_DIGITS 32 /* digits of a batch; the digits of the line follow them */

void record_init(struct record *record) {
    *record = (struct record){0};
    buf_init(&record->answer, SEGLOG_TEXT_BYTES_MAX);
    buf_init(&record->name, (size_t)LABEL_DEPTH_MAX * (TABLE_NAME_BYTES + 24) + LABEL_BYTES_MAX);
    buf_init(&record->scratch, SEGLOG_TEXT_BYTES_MAX);
}

void record_release(struct record *record) {
    buf_release(&record->answer);
    buf_release(&record->name);
    buf_release(&record->scratch);
}

/* --- the parts of a line --- */

/* Reads the line's number out of "batch_req_", the batch's digits and the number in hexadecimal. */
static bool read_line(struct str id, uint64_t *ret_line) {
    struct str start = STR("\"batch_req_");
    uint64_t line = 0;
    if (!str_starts_with(id, start) || id.bytes < start.bytes + ID_DIGITS + 2) return false;
    for (size_t i = start.bytes + ID_DIGITS; i + 1 < id.bytes; i++) {
        char c = id.at[i];
        if (c >= '0' && c <= '9')
            line = line << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            line = line << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    *ret_line = line;
    return true;
}

/* Steps over the text `wanted`, which must stand at *at. */
static bool step(struct str text, size_t *at, struct str wanted) {
    if (!str_starts_with(str_skip(text, *at), wanted)) return false;
    *at += wanted.bytes;
    return true;
}

/* Steps over a value. */
static bool step_value(struct str text, size_t *at, struct str *ret_value) {
    size_t end = *at < text.bytes ? json_span_end(text, *at) : SIZE_MAX;
    if (end == SIZE_MAX) return false;
    *ret_value = (struct str){text.at + *at, end - *at};
    *at = end;
    return true;
}

/* Reads a line in the form that batch_result_write gives to a response, without a pass over its
 * body, because bodies are long. */
static bool read_usual(struct record *record, struct str text, struct str *ret_id) {
    struct str end = STR("},\"error\":null}"), request_id;
    size_t at = 0;
    if (!step(text, &at, STR("{\"id\":")) || !step_value(text, &at, ret_id) ||
        !step(text, &at, STR(",\"custom_id\":")) || !step_value(text, &at, &record->custom_id) ||
        !step(text, &at, STR(",\"response\":{\"status_code\":")) ||
        !step_value(text, &at, &record->status) || !step(text, &at, STR(",\"request_id\":")) ||
        !step_value(text, &at, &request_id) || !step(text, &at, STR(",\"body\":")) ||
        !str_ends_with(text, end) || at + end.bytes > text.bytes)
        return false;
    record->body = (struct str){text.at + at, text.bytes - end.bytes - at};
    return true;
}

/* Reads a line in any form. */
static bool read_members(struct record *record, struct str text, struct str *ret_id) {
    struct json_span_iter iter;
    struct str key, value, response = {NULL, 0};
    if (!json_span_is_object(text) || !json_span_enter(&iter, text)) return false;
    while (json_span_member(&iter, &key, &value)) {
        if (json_span_string_is(key, "id")) *ret_id = value;
        if (json_span_string_is(key, "custom_id")) record->custom_id = value;
        if (json_span_string_is(key, "response")) response = value;
        if (json_span_string_is(key, "error")) record->error = value;
    }
    record->status = json_span_get(response, "status_code");
    record->body = json_span_get(response, "body");
    return true;
}

bool record_read(struct record *record, struct str text) {
    const struct str none = {NULL, 0};
    struct str id = none;
    record->custom_id = record->status = record->body = record->error = none;
    buf_clear(&record->answer);
    if (!read_usual(record, text, &id)) {
        record->custom_id = record->status = id = none;
        if (!read_members(record, text, &id)) return false;
    }
    return json_span_is_string(record->custom_id) && read_line(id, &record->line);
}

/* --- values --- */

static bool is_array(struct str span) {
    return span.bytes > 0 && *span.at == '[';
}

/* Reads a scalar; false for null, objects, arrays and numbers outside the range of a double. */
static bool read_value(struct record *record, struct str span, struct record_value *ret_value) {
    *ret_value = (struct record_value){.kind = RECORD_NUMBER, .raw = span};
    if (json_span_is_string(span)) {
        ret_value->kind = RECORD_TEXT;
        ret_value->text = json_span_text(span, &record->scratch);
        return true;
    }
    if (str_is(span, "true") || str_is(span, "false")) {
        ret_value->kind = RECORD_BOOL;
        ret_value->number = *span.at == 't' ? 1 : 0;
        return true;
    }
    return question_number(span, &ret_value->number);
}

static void put_fixed(struct record *record, unsigned field, const struct record_value *value) {
    record->walk->fixed(record->walk->context, field, value);
}

static void put_fixed_number(struct record *record, unsigned field, double number) {
    put_fixed(record, field, &(struct record_value){.kind = RECORD_NUMBER, .number = number});
}

static void put_fixed_text(struct record *record, unsigned field, struct str text) {
    put_fixed(record, field, &(struct record_value){.kind = RECORD_TEXT, .text = text});
}

static void put_field(struct record *record, const struct record_value *value) {
    record->walk->field(record->walk->context, buf_str(&record->name), value);
}

/* --- labels --- */

static uint64_t hash_of(struct str text) {
    static const unsigned char key[crypto_shorthash_KEYBYTES] = "answers' labels";
    unsigned char sum[crypto_shorthash_BYTES];
    uint64_t hash;
    crypto_shorthash(sum, (const unsigned char *)(text.bytes ? text.at : ""), text.bytes, key);
    memcpy(&hash, sum, sizeof hash);
    return hash;
}

/* Adds a value as a label, unless it is a long text; its name stands in record->name. The hashes of
 * labels are added up, so that the order of labels does not count. */
static void add_label(struct record *record, const struct record_value *value) {
    static const char kinds[] = {[RECORD_NUMBER] = 'n', [RECORD_BOOL] = 'b', [RECORD_TEXT] = 't'};
    size_t before = record->name.bytes;
    double number = value->number == 0 ? 0 : value->number; /* -0 equals 0 */
    if (value->kind == RECORD_TEXT && value->text.bytes > LABEL_BYTES_MAX) return;
    buf_add_byte(&record->name, '\0');
    buf_add_byte(&record->name, kinds[value->kind]);
    if (value->kind == RECORD_TEXT)
        buf_add_str(&record->name, value->text);
    else
        buf_add(&record->name, (const char *)&number, sizeof number);
    record->labels += hash_of(buf_str(&record->name));
    buf_truncate(&record->name, before);
}

/* --- the answer's object --- */

/* The object that the text is, also inside a Markdown code block; empty if it is none. */
static struct str object_in(struct str text) {
    text = json_span_unfenced(text);
    return json_span_is_object(text) ? text : (struct str){NULL, 0};
}

/* Appends a key to the name; false if it is too long for a field. */
static bool add_name(struct record *record, struct str key) {
    struct str text = json_span_text(key, &record->scratch);
    if (text.bytes > TABLE_NAME_BYTES) return false;
    if (record->name.bytes > 0 || (text.bytes > 0 && *text.at == '.') || text.bytes == 0)
        buf_add_byte(&record->name, '.');
    buf_add_str(&record->name, text);
    return true;
}

static void add_labels(struct record *record, struct str value, unsigned depth);

/* Adds the labels of the elements of an array, whose name stands in record->name, and counts
 * them. The depth is bounded. */
static double add_elements(struct record *record, struct str array, unsigned depth) {
    struct json_span_iter iter;
    struct str element;
    size_t count = 0, before = record->name.bytes;
    if (!json_span_enter(&iter, array)) return 0;
    for (; json_span_element(&iter, &element); count++) {
        if (record->elements == RECORD_FIELDS_MAX) continue;
        record->elements++;
        buf_printf(&record->name, "[%zu]", count);
        add_labels(record, element, depth); /* NOLINT(misc-no-recursion): bounded */
        buf_truncate(&record->name, before);
    }
    return (double)count;
}

/* Adds the labels of a value that has no field of its own. The depth is bounded. */
static void add_labels(struct record *record, struct str value, unsigned depth) {
    struct json_span_iter iter;
    struct str key, member;
    struct record_value scalar;
    if (read_value(record, value, &scalar)) add_label(record, &scalar);
    if (depth == LABEL_DEPTH_MAX) return;
    if (is_array(value)) add_elements(record, value, depth + 1); /* NOLINT(misc-no-recursion) */
    if (!json_span_is_object(value) || !json_span_enter(&iter, value)) return;
    while (record->elements < RECORD_FIELDS_MAX && json_span_member(&iter, &key, &member)) {
        size_t before = record->name.bytes;
        record->elements++;
        if (add_name(record, key))
            add_labels(record, member, depth + 1); /* NOLINT(misc-no-recursion): bounded */
        buf_truncate(&record->name, before);
    }
}

static void put_scalar(struct record *record, const struct record_value *value) {
    add_label(record, value);
    put_field(record, value);
}

static void put_array(struct record *record, struct str array, unsigned depth) {
    double count = add_elements(record, array, depth);
    if (record->walk->array)
        record->walk->array(record->walk->context, buf_str(&record->name), array);
    buf_add_text(&record->name, ".length");
    put_field(record, &(struct record_value){.kind = RECORD_NUMBER, .number = count});
}

/* Puts all scalars of an object, whose own name stands in record->name. The depth is bounded.
 * False if the text is no JSON; the fields before the fault are put. */
static bool put_object(struct record *record, struct str object, unsigned depth) {
    struct json_span_iter iter;
    struct str key, value;
    struct record_value scalar;
    if (!json_span_enter(&iter, object)) return false;
    while (record->fields < RECORD_FIELDS_MAX && json_span_member(&iter, &key, &value)) {
        size_t before = record->name.bytes;
        record->fields++;
        if (!add_name(record, key)) {
            buf_truncate(&record->name, before);
            continue;
        }
        if (json_span_is_object(value) && depth + 1 < RECORD_DEPTH_MAX)
            put_object(record, value, depth + 1); /* NOLINT(misc-no-recursion): bounded */
        else if (json_span_is_object(value))
            add_labels(record, value, depth + 1);
        else if (is_array(value))
            put_array(record, value, depth + 1);
        else if (read_value(record, value, &scalar))
            put_scalar(record, &scalar);
        buf_truncate(&record->name, before);
    }
    return !iter.is_bad;
}

/* --- chats and completions --- */

/* Decodes the answer of a choice into record->answer. */
static struct str read_answer(struct record *record, const struct answer_text *found) {
    buf_clear(&record->answer);
    answer_text_add(&record->answer, found);
    return buf_str(&record->answer);
}

struct str record_answer(struct record *record) {
    struct answer_text found;
    answer_text_of_body(&found, record->body, NULL);
    return read_answer(record, &found);
}

static double characters_of(struct str text) {
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) count += (text.at[i] & 0xC0) != 0x80;
    return (double)count;
}

/* Adds -logprob of every token of a choice: {"content":[{"logprob":…},…]} or
 * {"token_logprobs":[…]}. */
static void add_logprobs(struct record *record, struct str logprobs) {
    struct json_span_iter iter;
    struct str list = json_span_get(logprobs, "content"), token;
    double number;
    bool is_plain = !is_array(list);
    if (is_plain) list = json_span_get(logprobs, "token_logprobs");
    if (!is_array(list) || !json_span_enter(&iter, list)) return;
    while (json_span_element(&iter, &token)) {
        if (!question_number(is_plain ? token : json_span_get(token, "logprob"), &number)) continue;
        record->entropy_sum -= number;
        record->entropy_count++;
    }
}

static void walk_choice(struct record *record, const struct answer_text *found) {
    struct str text = read_answer(record, found);
    put_fixed_text(record, TABLE_OUTCOME,
                   json_span_is_string(found->finish_reason)
                       ? json_span_text(found->finish_reason, &record->scratch)
                       : STR("ok"));
    put_fixed_number(record, TABLE_CHARACTERS, characters_of(text));
    if (json_span_is_object(found->logprobs)) add_logprobs(record, found->logprobs);
    struct str object = object_in(text);
    buf_clear(&record->name);
    record->has_answer = true;
    /* A text that is no whole object is one label. */
    if (!object.at || !put_object(record, object, 0)) record->labels = hash_of(str_trim(text));
}

/* --- decisions --- */

/* Adds the entropy of one question, and its answer as a label; its name stands in record->name. */
static void add_question(struct record *record, const struct question *question) {
    struct record_value label = {.kind = RECORD_BOOL};
    double number;
    if (question_entropy(question, &number)) {
        record->entropy_sum += number;
        record->entropy_count++;
    }
    if (question_number(question->truth, &number)) {
        label.number = number >= PREDICATE_IS_TRUE;
    } else if (question->choice.at) {
        if (!read_value(record, question->choice, &label)) return;
    } else {
        label.kind = RECORD_NUMBER;
        if (!question_level(question, &label.number)) return;
    }
    add_label(record, &label);
}

/* Puts the scalars of one question's answer; its name stands in record->name. */
static void put_question(struct record *record, struct str answer) {
    struct json_span_iter iter;
    struct str key, value;
    struct record_value scalar;
    if (!json_span_enter(&iter, answer)) return;
    while (record->fields < RECORD_FIELDS_MAX && json_span_member(&iter, &key, &value)) {
        size_t before = record->name.bytes;
        record->fields++;
        if (!json_span_string_is(key, "name") && !json_span_string_is(key, "type") &&
            add_name(record, key) && read_value(record, value, &scalar))
            put_field(record, &scalar);
        buf_truncate(&record->name, before);
    }
}

/* Walks the questions: `answers` is an array of objects that have a name, or an object by name. */
static void walk_decisions(struct record *record, struct str answers) {
    struct json_span_iter iter;
    struct str key = {NULL, 0}, answer;
    struct question question;
    size_t number = 0;
    bool is_object = json_span_is_object(answers);
    if (!json_span_enter(&iter, answers)) return;
    record->has_answer = true;
    while (record->fields < RECORD_FIELDS_MAX && (is_object ? json_span_member(&iter, &key, &answer)
                                                            : json_span_element(&iter, &answer))) {
        number++;
        if (!json_span_is_object(answer)) continue;
        buf_clear(&record->name);
        question_read(&question, answer);
        if (!is_object) key = question.name;
        if (!json_span_is_string(key))
            buf_printf(&record->name, "%zu", number);
        else if (!add_name(record, key))
            continue;
        add_question(record, &question);
        put_question(record, answer);
    }
}

/* --- a line --- */

static void walk_usage(struct record *record, struct str usage) {
    struct answer_usage told;
    double number;
    answer_usage_read(&told, usage);
    if (question_number(told.prompt, &number))
        put_fixed_number(record, TABLE_PROMPT_TOKENS, number + (double)told.prompt_more);
    if (question_number(told.completion, &number))
        put_fixed_number(record, TABLE_COMPLETION_TOKENS, number);
}

/* The code of an error object, or else its type. */
static void put_error(struct record *record, struct str error) {
    struct str code = json_span_get(error, "code");
    if (!json_span_is_string(code)) code = json_span_get(error, "type");
    put_fixed_text(record, TABLE_OUTCOME,
                   json_span_is_string(code) ? json_span_text(code, &record->scratch)
                                             : STR("error"));
}

static void walk_body(struct record *record) {
    struct json_span_iter iter;
    struct str key, value, error = {NULL, 0};
    struct answer_text found;
    bool has_outcome = false;
    if (!json_span_is_object(record->body) || !json_span_enter(&iter, record->body)) return;
    while (json_span_member(&iter, &key, &value)) {
        if (json_span_string_is(key, "choices") && is_array(value)) {
            has_outcome = answer_text_first(&found, value, NULL);
            if (has_outcome) walk_choice(record, &found);
        } else if (json_span_string_is(key, "usage")) {
            walk_usage(record, value);
        } else if (json_span_string_is(key, "answers")) {
            walk_decisions(record, value);
        } else if (json_span_string_is(key, "error")) {
            error = value;
        }
    }
    if (!has_outcome && !error.at && answer_text_of_body(&found, record->body, NULL)) {
        has_outcome = true; /* a body without choices */
        walk_choice(record, &found);
    }
    if (json_span_is_object(error))
        put_error(record, error);
    else if (!has_outcome)
        put_fixed_text(record, TABLE_OUTCOME, STR("ok"));
}

void record_each(struct record *record, struct record_walk *walk) {
    double status = 0;
    record->walk = walk;
    record->fields = record->elements = 0;
    record->labels = 0;
    record->has_answer = false;
    record->entropy_sum = 0;
    record->entropy_count = 0;
    put_fixed_text(record, TABLE_CUSTOM_ID, json_span_text(record->custom_id, &record->scratch));
    if (question_number(record->status, &status)) put_fixed_number(record, TABLE_STATUS, status);
    if (json_span_is_object(record->error))
        put_error(record, record->error);
    else
        walk_body(record);
    if (record->entropy_count > 0)
        put_fixed_number(record, TABLE_ENTROPY,
                         fmax(record->entropy_sum / (double)record->entropy_count, 0));
    if (!record->has_answer || status != GOOD_STATUS)
        record->labels = 0;
    else if (record->labels == 0)
        record->labels = 1;
    record->walk = NULL;
}

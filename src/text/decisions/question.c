/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/question.h"

#include "base/mem.h"
#include "decisions/parts.h"
#include "json/json.h"

#include <stdlib.h>

/* What the options of a type are called on the wire. */
static const struct form {
    const char *type, *list, *value;
    bool may_be_boolean;
} forms[] = {
    [QUESTION_PREDICATE] = {"predicate", NULL, NULL, false},
    [QUESTION_CHOICE] = {"choice", "choices", "value", true},
    [QUESTION_SCORE] = {"score", "levels", "label", false},
};
#define FORMS (sizeof forms / sizeof *forms)

static bool read_type(struct question *question, const json_t *object, const char *param,
                      struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    struct str type;
    if (!parts_read_string(object, param, "type", &type, refusal)) return false;
    for (size_t i = 0; i < FORMS; i++) {
        question->type = (enum question_type)i;
        if (str_is(type, forms[i].type)) return true;
    }
    return refuse_value(refusal, parts_path(path, param, "type"), json_member(object, "type"),
                        "'predicate', 'choice', 'score'");
}

static bool read_name(struct question *question, const json_t *object, const char *param,
                      struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    question->name = json_member(object, "name");
    return !question->name || json_is_string(question->name) ||
           refuse_type(refusal, parts_path(path, param, "name"), "a string", question->name);
}

static bool read_instructions(struct question *question, const json_t *object, const char *param,
                              struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    parts_path(path, param, "instructions");
    if (!parts_read(json_member(object, "instructions"), path, PARTS_INPUT_TEXT | PARTS_INPUT_JSON,
                    &question->instructions, refusal))
        return false;
    return !question->instructions.overflowed ||
           refuse(refusal, "string_above_max_length", path,
                  "Invalid '%s': it is longer than %zu bytes.", path,
                  QUESTION_INSTRUCTIONS_BYTES_MAX);
}

/* --- options --- */

static bool read_option(const struct form *form, struct option *option, const json_t *object,
                        const char *param, struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    if (!json_is_object(object)) return refuse_type(refusal, param, "an object", object);
    option->value = json_member(object, form->value);
    parts_path(path, param, form->value);
    if (!option->value) return refuse_missing(refusal, path);
    bool is_boolean = form->may_be_boolean && json_is_boolean(option->value);
    if (!json_is_string(option->value) && !is_boolean)
        return refuse_type(refusal, path,
                           form->may_be_boolean ? "a string or a boolean" : "a string",
                           option->value);
    const json_t *description = json_member(object, "description");
    if (description && !json_is_string(description))
        return refuse_type(refusal, parts_path(path, param, "description"), "a string",
                           description);
    option->description = json_str(description);
    return true;
}

/* Checks that a value is not one of those before it. True and "true" are different values. */
static bool check_new(const struct question *question, uint32_t index, const char *param,
                      struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES], text[VALUE_TEXT_BYTES];
    const json_t *value = question->options[index].value;
    for (uint32_t i = 0; i < index; i++) {
        const json_t *other = question->options[i].value;
        bool is_equal = json_is_string(value) && json_is_string(other)
                            ? str_equals(json_str(value), json_str(other))
                            : json_typeof(value) == json_typeof(other);
        if (!is_equal) continue;
        parts_path(path, param, "value");
        return refuse(refusal, "invalid_value", path,
                      "Invalid '%s': %s is the value of choice %u too; values must differ.", path,
                      value_text(value, text), i);
    }
    return true;
}

static bool refuse_count(struct refusal *refusal, const char *path, bool is_above, size_t most,
                         size_t least, size_t count) {
    return refuse(refusal, is_above ? "array_above_max_length" : "array_below_min_length", path,
                  "Invalid '%s': array too %s. Expected %s %zu elements, but got %zu.", path,
                  is_above ? "long" : "short", is_above ? "at most" : "at least",
                  is_above ? most : least, count);
}

static bool read_options(struct question *question, const json_t *object, const char *param,
                         struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES], inner[REFUSAL_PARAM_BYTES];
    const struct form *form = &forms[question->type];
    question->option_count = 2;
    if (!form->list) {
        question->options = mem_new(2, sizeof *question->options);
        return true;
    }
    const json_t *list = json_member(object, form->list);
    parts_path(path, param, form->list);
    if (!list) return refuse_missing(refusal, path);
    if (!json_is_array(list)) return refuse_type(refusal, path, "an array of objects", list);
    size_t count = json_array_size(list);
    if (count < 2 || count > QUESTION_OPTIONS_MAX)
        return refuse_count(refusal, path, count > 2, QUESTION_OPTIONS_MAX, 2, count);
    question->option_count = (uint32_t)count;
    question->options = mem_new(count, sizeof *question->options);
    for (uint32_t i = 0; i < question->option_count; i++) {
        parts_index(inner, path, i);
        if (!read_option(form, &question->options[i], json_array_get(list, i), inner, refusal))
            return false;
        if (question->type == QUESTION_CHOICE && !check_new(question, i, inner, refusal))
            return false;
    }
    return true;
}

static bool read_question(struct question *question, const json_t *object, const char *param,
                          struct refusal *refusal) {
    if (!json_is_object(object)) return refuse_type(refusal, param, "an object", object);
    buf_init(&question->instructions, QUESTION_INSTRUCTIONS_BYTES_MAX);
    question->temperature = 1;
    return read_type(question, object, param, refusal) &&
           read_name(question, object, param, refusal) &&
           read_instructions(question, object, param, refusal) &&
           read_options(question, object, param, refusal);
}

bool questions_read(struct questions *ret_questions, const json_t *body,
                    struct refusal *ret_refusal) {
    struct questions questions = {.count = 0};
    const json_t *list = json_member(body, "questions");
    if (!list) return refuse_missing(ret_refusal, "questions");
    if (!json_is_array(list))
        return refuse_type(ret_refusal, "questions", "an array of objects", list);
    size_t count = json_array_size(list);
    if (count < 1 || count > QUESTIONS_MAX)
        return refuse_count(ret_refusal, "questions", count > 1, QUESTIONS_MAX, 1, count);
    questions.at = mem_new(count, sizeof *questions.at);
    for (; questions.count < count; questions.count++) {
        char param[REFUSAL_PARAM_BYTES];
        uint32_t index = questions.count;
        if (read_question(&questions.at[index], json_array_get(list, index),
                          parts_index(param, "questions", index), ret_refusal))
            continue;
        questions.count++;
        questions_release(&questions);
        return false;
    }
    *ret_questions = questions;
    return true;
}

void questions_release(struct questions *questions) {
    for (uint32_t i = 0; i < questions->count; i++) {
        buf_release(&questions->at[i].instructions);
        free(questions->at[i].options);
    }
    free(questions->at);
    *questions = (struct questions){.count = 0};
}

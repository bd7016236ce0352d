/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/systemone.h"

#include "base/mem.h"
#include "decisions/json_text.h"
#include "decisions/parts.h"
#include "decisions/wording.h"
#include "json/json.h"

/* --- the text --- */

static bool read_state(struct decision_input *input, const json_t *body, struct refusal *refusal) {
    const json_t *state = json_member(body, "state");
    if (!state) return refuse_missing(refusal, "state");
    if (json_is_string(state))
        buf_add_str(&input->state, json_str(state));
    else if (json_is_object(state) || json_is_array(state))
        json_text_write_spaced(&input->state, state);
    else
        return refuse_type(refusal, "state", "a string, an object or an array", state);
    return !input->state.overflowed ||
           refuse(refusal, "string_above_max_length", "state",
                  "Invalid 'state': it is longer than %zu bytes.", DECISION_INPUT_BYTES_MAX);
}

static bool read_system(struct decision_input *input, const json_t *body, struct refusal *refusal) {
    const json_t *instructions = json_member(body, "instructions");
    if (!instructions) return true;
    if (!json_is_string(instructions))
        return refuse_type(refusal, "instructions", "a string", instructions);
    input->has_system = json_string_length(instructions) > 0;
    buf_add_str(&input->system, json_str(instructions));
    return true;
}

bool systemone_input_read(struct decision_input *ret_input, const json_t *body,
                          struct refusal *ret_refusal) {
    struct decision_input input = {.has_system = false};
    buf_init(&input.state, DECISION_INPUT_BYTES_MAX);
    buf_init(&input.system, DECISION_INPUT_BYTES_MAX);
    if (read_state(&input, body, ret_refusal) && read_system(&input, body, ret_refusal)) {
        *ret_input = input;
        return true;
    }
    decision_input_release(&input);
    return false;
}

/* --- questions --- */

static bool read_type(struct question *question, const json_t *object, const char *param,
                      struct refusal *refusal) {
    static const char *const types[] = {"noul", "choice", "score"};
    char path[REFUSAL_PARAM_BYTES];
    struct str type;
    if (!parts_read_string(object, param, "type", &type, refusal)) return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        question->type = (enum question_type)i;
        if (str_is(type, types[i])) return true;
    }
    return refuse_value(refusal, parts_path(path, param, "type"), json_member(object, "type"),
                        "'noul', 'choice', 'score'");
}

static bool read_instructions(struct question *question, const json_t *object, const char *param,
                              struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    const json_t *instructions = json_member(object, "instructions");
    parts_path(path, param, "instructions");
    if (!instructions) return true;
    if (!parts_read(instructions, path, PARTS_INPUT_TEXT | PARTS_INPUT_JSON,
                    &question->instructions, refusal))
        return false;
    return !question->instructions.overflowed ||
           refuse(refusal, "string_above_max_length", path,
                  "Invalid '%s': it is longer than %zu bytes.", path,
                  QUESTION_INSTRUCTIONS_BYTES_MAX);
}

/* Reads a text that may be null. */
static bool read_text(const json_t *value, const char *param, const char *key, struct str *ret_text,
                      struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    if (!json_is_string(value) && !json_is_null(value))
        return refuse_type(refusal, parts_path(path, param, key), "a string or null", value);
    *ret_text = json_str(value);
    return true;
}

/* The descriptions of true and false. */
static bool read_sides(struct question *question, const json_t *criteria, const char *param,
                       struct refusal *refusal) {
    const char *key;
    json_t *value;
    question->labels = LABELS_WORDS;
    question->option_count = 2;
    question->options = mem_new(2, sizeof *question->options);
    if (!criteria) return true;
    if (!json_is_object(criteria)) return refuse_type(refusal, param, "an object", criteria);
    json_object_foreach((json_t *)(uintptr_t)criteria, key, value) {
        bool is_true = str_is(str_from(key), "true");
        if (!is_true && !str_is(str_from(key), "false"))
            return refuse(refusal, "invalid_value", param,
                          "Invalid '%s': a question of type 'noul' has the criteria 'true' and "
                          "'false' only.",
                          param);
        if (!read_text(value, param, key, &question->options[is_true].description, refusal))
            return false;
    }
    return true;
}

/* Makes room for the options of a question. */
static bool open_options(struct question *question, size_t count, const char *param,
                         struct refusal *refusal) {
    if (count < 1 || count > QUESTION_OPTIONS_MAX)
        return refuse(refusal, count ? "array_above_max_length" : "array_below_min_length", param,
                      "Invalid '%s': expected 1 to %d criteria, but got %zu.", param,
                      QUESTION_OPTIONS_MAX, count);
    question->option_count = (uint32_t)count;
    question->options = mem_new(count, sizeof *question->options);
    return true;
}

static bool read_choices(struct question *question, const json_t *criteria, const char *param,
                         struct refusal *refusal) {
    struct option *option;
    const char *key;
    json_t *value;
    if (!criteria) return refuse_missing(refusal, param);
    if (!json_is_object(criteria)) return refuse_type(refusal, param, "an object", criteria);
    if (!open_options(question, json_object_size(criteria), param, refusal)) return false;
    option = question->options;
    json_object_foreach((json_t *)(uintptr_t)criteria, key, value) {
        option->text = str_from(key);
        if (!read_text(value, param, key, &option->description, refusal)) return false;
        option++;
    }
    return true;
}

static bool read_levels(struct question *question, const json_t *criteria, const char *param,
                        struct refusal *refusal) {
    if (!criteria) return refuse_missing(refusal, param);
    if (!json_is_array(criteria))
        return refuse_type(refusal, param, "an array of strings", criteria);
    if (!open_options(question, json_array_size(criteria), param, refusal)) return false;
    if (question->option_count <= WORDING_DIGITS) question->labels = LABELS_DIGITS;
    for (uint32_t i = 0; i < question->option_count; i++) {
        char path[REFUSAL_PARAM_BYTES];
        const json_t *level = json_array_get(criteria, i);
        if (!json_is_string(level))
            return refuse_type(refusal, parts_index(path, param, i), "a string", level);
        question->options[i].text = json_str(level);
    }
    return true;
}

static bool read_question(struct question *question, const char *id, const json_t *object,
                          struct refusal *refusal) {
    char param[REFUSAL_PARAM_BYTES], path[REFUSAL_PARAM_BYTES];
    parts_path(param, "questions", id);
    if (!json_is_object(object)) return refuse_type(refusal, param, "an object", object);
    buf_init(&question->instructions, QUESTION_INSTRUCTIONS_BYTES_MAX);
    question->id = str_from(id);
    question->temperature = 1;
    if (!read_type(question, object, param, refusal) ||
        !read_instructions(question, object, param, refusal))
        return false;
    const json_t *criteria = json_member(object, "criteria");
    parts_path(path, param, "criteria");
    switch (question->type) {
    case QUESTION_PREDICATE: return read_sides(question, criteria, path, refusal);
    case QUESTION_CHOICE: return read_choices(question, criteria, path, refusal);
    case QUESTION_SCORE: return read_levels(question, criteria, path, refusal);
    }
    return false;
}

bool systemone_questions_read(struct questions *ret_questions, const json_t *body,
                              struct refusal *ret_refusal) {
    struct questions questions = {.is_systemone = true};
    const json_t *object = json_member(body, "questions");
    if (!object) return refuse_missing(ret_refusal, "questions");
    if (!json_is_object(object))
        return refuse_type(ret_refusal, "questions", "an object of questions by their ids", object);
    size_t count = json_object_size(object);
    if (count < 1 || count > QUESTIONS_MAX)
        return refuse(ret_refusal, count ? "array_above_max_length" : "array_below_min_length",
                      "questions", "Invalid 'questions': expected 1 to %d, but got %zu.",
                      QUESTIONS_MAX, count);
    const char *id;
    json_t *value;
    questions.at = mem_new(count, sizeof *questions.at);
    json_object_foreach((json_t *)(uintptr_t)object, id, value) {
        if (read_question(&questions.at[questions.count++], id, value, ret_refusal)) continue;
        questions_release(&questions);
        return false;
    }
    *ret_questions = questions;
    return true;
}

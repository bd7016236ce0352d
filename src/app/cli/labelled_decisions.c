/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/labelled_decisions.h"

#include "base/map.h"
#include "base/mem.h"
#include "batch/jsonl_file.h"
#include "decisions/systemone.h"
#include "decisions/temperature.h"
#include "json/json.h"
#include "protocol/request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least probabilities that are told from 0. A predicate's answer has the probability of true
 * alone, and that of false is the rest to 1, which a double knows to 2^-53. */
#define LEAST_SHARE 1e-300
#define LEAST_REST 1e-17

struct reading {
    struct labelled_decisions *labelled;
    struct map answer_of; /* custom_id → place in `answers` */
    json_t **answers;     /* (answer_count) owned: the `answers` of a body; NULL: there is none */
    size_t answer_count, answer_capacity;
    struct map question_of; /* name → place in labelled->at */
    const char *path;
    uint64_t number; /* number of the line */
    struct error *error;
};

static enum err wrong(struct reading *is, const char *what) {
    return err_set(is->error, ERR_INVALID, "%s, line %" PRIu64 ": %s", is->path, is->number, what);
}

typedef enum err (*line_fn)(struct reading *is, const json_t *line);

/* Calls `read` for each line of a file, which must be an object. */
static enum err read_lines(struct reading *is, const char *path, line_fn read) {
    struct jsonl_file file;
    struct str text;
    enum err err = jsonl_file_open(&file, path, is->error);
    is->path = path;
    while (err == OK && jsonl_file_next(&file, &text)) {
        struct error why;
        json_t *line;
        is->number = file.lines.number;
        err = json_read(&line, text, &why);
        if (err != OK) {
            err = wrong(is, why.text);
            break;
        }
        err = json_is_object(line) ? read(is, line) : wrong(is, "not a JSON object");
        json_decref(line);
    }
    return jsonl_file_end(&file, path, err, is->error);
}

/* --- answers --- */

static enum err read_answer(struct reading *is, const json_t *line) {
    const json_t *id = json_member(line, "custom_id"), *response = json_member(line, "response");
    const json_t *body = json_member(response, "body");
    bool is_good = json_integer_value(json_member(response, "status_code")) == 200;
    if (!json_is_string(id)) return wrong(is, "it has no custom_id");
    is->answers =
        vec_grow(is->answers, is->answer_count, &is->answer_capacity, sizeof *is->answers);
    is->answers[is->answer_count] =
        is_good ? json_incref((json_t *)(uintptr_t)json_member(body, "answers")) : NULL;
    if (!map_put_new(&is->answer_of, json_str(id), is->answer_count++, NULL))
        return wrong(is, "an earlier line has its custom_id");
    return OK;
}

/* The log probabilities of a question's options. False if the answer is not one of it. */
static bool read_logs(const struct question *question, const json_t *answer, double *ret_logs) {
    if (question->type == QUESTION_PREDICATE) {
        const json_t *share = json_member(answer, "probability");
        if (!share) share = json_member(answer, "noul");
        double value = json_number_value(share);
        ret_logs[0] = log(fmax(1 - value, LEAST_REST));
        ret_logs[1] = log(fmax(value, LEAST_SHARE));
        return json_is_number(share);
    }
    const json_t *all = json_member(answer, "probabilities");
    size_t count = json_is_object(all) ? json_object_size(all) : json_array_size(all);
    if (count != question->option_count) return false;
    for (uint32_t i = 0; i < question->option_count; i++) {
        char number[12];
        struct str key = question->options[i].text;
        if (question->type == QUESTION_SCORE) {
            snprintf(number, sizeof number, "%" PRIu32, i);
            key = str_from(number);
        }
        const json_t *share = json_is_object(all)
                                  ? json_object_getn(all, key.at ? key.at : "", key.bytes)
                                  : json_member(json_array_get(all, i), "probability");
        if (!json_is_number(share)) return false;
        ret_logs[i] = log(fmax(json_number_value(share), LEAST_SHARE));
    }
    return true;
}

/* --- labelled lines --- */

/* The option that a line expects, or UINT32_MAX. */
static uint32_t find_option(const struct question *question, const json_t *expected) {
    if (question->type == QUESTION_PREDICATE)
        return json_is_boolean(expected) ? json_is_true(expected) : UINT32_MAX;
    if (question->type == QUESTION_SCORE && json_is_integer(expected)) {
        json_int_t level = json_integer_value(expected);
        return level >= 0 && level < question->option_count ? (uint32_t)level : UINT32_MAX;
    }
    for (uint32_t i = 0; i < question->option_count; i++) {
        const struct option *option = &question->options[i];
        bool is_equal = option->value ? json_equal(option->value, expected)
                                      : json_is_string(expected) &&
                                            str_equals(option->text, json_str(expected));
        if (is_equal) return i;
    }
    return UINT32_MAX;
}

static struct calibration_set *find_set(struct reading *is, struct str name) {
    struct labelled_decisions *labelled = is->labelled;
    uint64_t place = labelled->count;
    if (map_put_new(&is->question_of, name, place, &place)) {
        labelled->at =
            vec_grow(labelled->at, labelled->count, &labelled->capacity, sizeof *labelled->at);
        labelled->at[labelled->count++] = (struct labelled_question){.name = mem_str(name)};
    }
    return &labelled->at[place].set;
}

/* Adds the cases of one line. A line without an answer, whose `answers` are NULL, is only
 * checked. */
static enum err add_cases(struct reading *is, const struct questions *questions,
                          const json_t *expected, const json_t *answers) {
    double logs[QUESTION_OPTIONS_MAX];
    char text[160];
    size_t known = 0;
    for (uint32_t i = 0; i < questions->count; i++) {
        const struct question *question = &questions->at[i];
        struct question_place place;
        struct str name = question_name(questions, i, &place);
        const json_t *truth = json_object_getn(expected, name.at ? name.at : "", name.bytes);
        known += truth != NULL;
        if (!truth || json_is_null(truth)) continue;
        uint32_t option = find_option(question, truth);
        snprintf(text, sizeof text, "what it expects of '%.*s' is none of its options",
                 (int)(name.bytes < 80 ? name.bytes : 80), name.at ? name.at : "");
        if (option == UINT32_MAX) return wrong(is, text);
        if (!answers) continue;
        const json_t *answer = json_is_array(answers)
                                   ? json_array_get(answers, i)
                                   : json_object_getn(answers, name.at ? name.at : "", name.bytes);
        if (!read_logs(question, answer, logs))
            return wrong(is, "its answer is one to other questions");
        /* The request's own temperature is taken back. */
        for (uint32_t k = 0; k < question->option_count; k++) logs[k] *= question->temperature;
        calibration_add(find_set(is, name), logs, question->option_count, option);
    }
    return known == json_object_size(expected) ? OK
                                               : wrong(is, "it expects an answer to no question");
}

static enum err read_labelled(struct reading *is, const json_t *line) {
    const json_t *body = json_member(line, "body"), *expected = json_member(line, "expected");
    const json_t *id = json_member(line, "custom_id");
    enum endpoint endpoint;
    struct questions questions;
    struct refusal refusal;
    uint64_t place;
    if (!json_is_string(id)) return wrong(is, "it has no custom_id");
    if (!endpoint_find(json_member_str(line, "url"), &endpoint) || !endpoint_is_decision(endpoint))
        return wrong(is, "its url is neither /v1/decisions nor /v1/systemone");
    if (!json_is_object(expected))
        return wrong(is, "it has no object 'expected' of true answers by question");
    bool is_good = endpoint == ENDPOINT_SYSTEMONE
                       ? systemone_questions_read(&questions, body, &refusal)
                       : questions_read(&questions, body, &refusal);
    if (!is_good) return wrong(is, refusal.message);
    const json_t *answers = NULL;
    if (map_get(&is->answer_of, json_str(id), &place)) answers = is->answers[place];
    enum err err = temperatures_read(&questions, body, &refusal) ? OK : wrong(is, refusal.message);
    if (err == OK) err = add_cases(is, &questions, expected, answers);
    is->labelled->lines++;
    is->labelled->unanswered += !answers;
    questions_release(&questions);
    return err;
}

enum err labelled_decisions_read(struct labelled_decisions *labelled, const char *labelled_path,
                                 const char *answers_path, struct error *error) {
    struct reading is = {.labelled = labelled, .error = error};
    map_init(&is.answer_of);
    map_init(&is.question_of);
    enum err err = read_lines(&is, answers_path, read_answer);
    if (err == OK) err = read_lines(&is, labelled_path, read_labelled);
    for (size_t i = 0; i < is.answer_count; i++) json_decref(is.answers[i]);
    free(is.answers);
    map_release(&is.answer_of);
    map_release(&is.question_of);
    return err;
}

void labelled_decisions_release(struct labelled_decisions *labelled) {
    for (size_t i = 0; i < labelled->count; i++) {
        free(labelled->at[i].name);
        calibration_release(&labelled->at[i].set);
    }
    free(labelled->at);
    *labelled = (struct labelled_decisions){.at = NULL};
}

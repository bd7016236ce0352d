/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/confidence.h"

#include "answer/answer_tree.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "json/json.h"
#include "json/span.h"

#include <math.h>
#include <stdlib.h>

#define GOOD_STATUS 200
#define CHOICES_MAX 1024 /* each is compared with each; no request asks for more */

/* --- decisions --- */

static double of_question(const json_t *answer) {
    const json_t *confidence = json_member(answer, "confidence");
    const json_t *probability = json_member(answer, "probability");
    if (!probability) probability = json_member(answer, "noul");
    if (json_is_number(confidence)) return json_number_value(confidence);
    if (json_is_number(probability)) return fabs(2 * json_number_value(probability) - 1);
    return NAN;
}

/* Without a figure of one question nothing is known of the line. */
static double least(double a, double b) {
    return isnan(a) || isnan(b) ? (double)NAN : fmin(a, b);
}

/* `answers`: a list, or an object of them by name. */
static double of_decisions(json_t *answers) {
    double confidence = 1;
    json_t *answer;
    const char *name;
    size_t i;
    if (json_array_size(answers) + json_object_size(answers) == 0) return NAN;
    json_array_foreach(answers, i, answer) confidence = least(confidence, of_question(answer));
    json_object_foreach(answers, name, answer) confidence = least(confidence, of_question(answer));
    return confidence;
}

/* --- several answers --- */

static void add_call(struct buf *out, const json_t *function) {
    json_t *arguments = NULL;
    struct error ignored;
    buf_add_str(out, json_member_str(function, "name"));
    buf_add_byte(out, '(');
    if (json_read(&arguments, json_member_str(function, "arguments"), &ignored) == OK)
        json_write_canonical(out, arguments);
    else
        buf_add_str(out, json_member_str(function, "arguments"));
    buf_add_byte(out, ')');
    json_decref(arguments);
}

/* Appends what a choice says, so that equal texts mean equal answers. */
static void add_said(struct buf *out, json_t *choice) {
    struct answer_tree found;
    struct buf text;
    struct error ignored;
    json_t *body = json_pack("{s:[O]}", "choices", choice), *value = NULL, *call;
    size_t i;
    if (!body) no_memory();
    answer_tree_find(&found, body);
    json_array_foreach(found.calls, i, call) add_call(out, json_member(call, "function"));
    if (json_is_object(found.calls)) add_call(out, found.calls);
    buf_init(&text, BUF_UNLIMITED);
    answer_tree_add_text(&text, &found);
    if (json_read(&value, json_span_unfenced(buf_str(&text)), &ignored) == OK)
        json_write_canonical(out, value);
    else
        buf_add_str(out, buf_str(&text));
    json_decref(value);
    buf_release(&text);
    json_decref(body);
}

/* Also of a body without choices, which has no confidence. */
static double of_choices(const json_t *choices) {
    size_t count = json_array_size(choices), most = 0;
    if (count < 2 || count > CHOICES_MAX) return NAN;
    struct buf *said = mem_new(count, sizeof *said);
    for (size_t i = 0; i < count; i++) {
        buf_init(&said[i], BUF_UNLIMITED);
        add_said(&said[i], json_array_get(choices, i));
    }
    for (size_t i = 0; i < count; i++) {
        size_t equal = 0;
        for (size_t k = 0; k < count; k++)
            equal += str_equals(buf_str(&said[i]), buf_str(&said[k]));
        if (equal > most) most = equal;
    }
    for (size_t i = 0; i < count; i++) buf_release(&said[i]);
    free(said);
    return (double)most / (double)count;
}

enum err confidence_of(struct str result, bool *ret_is_answered, double *ret_confidence,
                       struct error *error) {
    json_t *whole;
    enum err err = json_read(&whole, result, error);
    if (err != OK) return err;
    if (!json_is_object(whole)) {
        json_decref(whole);
        return err_set(error, ERR_INVALID, "not a JSON object");
    }
    json_t *response = json_member(whole, "response"), *body = json_member(response, "body");
    json_t *answers = json_member(body, "answers"), *failure = json_member(whole, "error");
    bool is_answered = !failure && json_is_object(body) &&
                       json_integer_value(json_member(response, "status_code")) == GOOD_STATUS;
    *ret_confidence = !is_answered ? (double)NAN
                      : answers    ? of_decisions(answers)
                                   : of_choices(json_member(body, "choices"));
    *ret_is_answered = is_answered;
    json_decref(whole);
    return OK;
}

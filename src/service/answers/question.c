/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/question.h"

#include "json/span.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 64

bool question_number(struct str span, double *ret_number) {
    char text[NUMBER_BYTES + 1], *end;
    if (span.bytes == 0 || span.bytes > NUMBER_BYTES) return false;
    if (*span.at != '-' && (*span.at < '0' || *span.at > '9')) return false;
    memcpy(text, span.at, span.bytes);
    text[span.bytes] = '\0';
    *ret_number = strtod(text, &end);
    return isfinite(*ret_number);
}

void question_read(struct question *ret_question, struct str answer) {
    struct question question = {.name = {NULL, 0}};
    struct json_span_iter iter;
    struct str key, value, noul = {NULL, 0};
    if (json_span_is_object(answer) && json_span_enter(&iter, answer)) {
        while (json_span_member(&iter, &key, &value)) {
            if (json_span_string_is(key, "name")) question.name = value;
            if (json_span_string_is(key, "probability")) question.truth = value;
            if (json_span_string_is(key, "noul")) noul = value;
            if (json_span_string_is(key, "choice")) question.choice = value;
            if (json_span_string_is(key, "score")) question.score = value;
            if (json_span_string_is(key, "probabilities")) question.shares = value;
        }
    }
    if (!question.truth.at) question.truth = noul;
    *ret_question = question;
}

/* --- probabilities --- */

struct shares {
    struct json_span_iter iter;
    bool is_object;
};

static bool shares_enter(struct shares *shares, struct str span) {
    shares->is_object = json_span_is_object(span);
    return json_span_enter(&shares->iter, span);
}

/* The next probability, and its option as a raw value. False at the end. */
static bool shares_next(struct shares *shares, struct str *ret_option, double *ret_share) {
    struct str value;
    *ret_share = 0;
    if (shares->is_object) {
        if (!json_span_member(&shares->iter, ret_option, &value)) return false;
    } else {
        if (!json_span_element(&shares->iter, &value)) return false;
        *ret_option = json_span_get(value, "value");
        value = json_span_get(value, "probability");
    }
    if (!question_number(value, ret_share)) *ret_share = 0;
    return true;
}

static double entropy_part(double share) {
    return share > 0 ? -share * log(share) : 0;
}

bool question_entropy(const struct question *question, double *ret_entropy) {
    struct shares shares;
    struct str option;
    double share, entropy = 0;
    if (shares_enter(&shares, question->shares)) {
        while (shares_next(&shares, &option, &share)) entropy += entropy_part(share);
    } else {
        if (!question_number(question->truth, &share)) return false;
        entropy = entropy_part(share) + entropy_part(1 - share);
    }
    *ret_entropy = entropy;
    return true;
}

/* The level that an option names: a number, or a string with the number's digits. */
static double level_of(struct str option) {
    double level = 0;
    if (json_span_is_string(option)) option = (struct str){option.at + 1, option.bytes - 2};
    return question_number(option, &level) ? level : 0;
}

bool question_level(const struct question *question, double *ret_level) {
    struct shares shares;
    struct str option;
    double score, share, most = -1;
    if (!question_number(question->score, &score)) return false;
    *ret_level = round(score);
    if (!shares_enter(&shares, question->shares)) return true;
    while (shares_next(&shares, &option, &share)) {
        if (share <= most) continue;
        most = share;
        *ret_level = level_of(option);
    }
    return true;
}

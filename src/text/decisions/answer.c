/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/answer.h"

#include "decisions/json_text.h"
#include "json/json.h"

#include <assert.h>
#include <math.h>

/* Clients refuse a probability outside 0..1, which the rounding of a sum could give. */
static double clamp(double value) {
    if (value < 0) return 0;
    return value > 1 ? 1 : value;
}

struct shares shares_of(const double *logprobs, uint32_t count, double temperature) {
    struct shares shares = {.count = count};
    double sum = 0;
    assert(count >= 1 && count <= QUESTION_OPTIONS_MAX);
    for (uint32_t i = 1; i < count; i++)
        if (logprobs[i] > logprobs[shares.top]) shares.top = i;
    for (uint32_t i = 0; i < count; i++) {
        shares.at[i] = exp((logprobs[i] - logprobs[shares.top]) / temperature);
        shares.label_mass += exp(logprobs[i]);
        sum += shares.at[i];
    }
    for (uint32_t i = 0; i < count; i++) shares.at[i] = clamp(shares.at[i] / sum);
    shares.label_mass = clamp(shares.label_mass);
    return shares;
}

double shares_choice_confidence(const struct shares *shares) {
    double count = shares->count;
    if (shares->count == 1) return 1;
    return clamp((count * shares->at[shares->top] - 1) / (count - 1));
}

double shares_score_confidence(const struct shares *shares) {
    double distance = 0, uniform = 0, count = shares->count, middle = (count - 1) / 2;
    for (uint32_t i = 0; i < shares->count; i++) {
        distance += shares->at[i] * fabs((double)i - (double)shares->top);
        uniform += fabs((double)i - middle);
    }
    uniform /= count;
    return uniform > 0 ? clamp(1 - distance / uniform) : 1;
}

double shares_score(const struct shares *shares) {
    double score = 0;
    for (uint32_t i = 0; i < shares->count; i++) score += (double)i * shares->at[i];
    return score;
}

/* --- JSON --- */

static void write_member(struct buf *out, const char *key, double number) {
    buf_printf(out, ",\"%s\":", key);
    json_text_write_number(out, number);
}

static void write_probabilities(struct buf *out, const struct question *question,
                                const struct shares *shares) {
    buf_add_text(out, ",\"probabilities\":[");
    for (uint32_t i = 0; i < shares->count; i++) {
        buf_add_text(out, i > 0 ? ",{\"value\":" : "{\"value\":");
        if (question->type == QUESTION_SCORE) buf_printf(out, "%u,\"label\":", i);
        json_write(out, question->options[i].value);
        write_member(out, "probability", shares->at[i]);
        buf_add_byte(out, '}');
    }
    buf_add_byte(out, ']');
}

void answer_write_question(struct buf *out, const struct question *question,
                           const struct shares *shares) {
    static const char *const types[] = {"predicate", "choice", "score"};
    assert(shares->count == question->option_count);
    buf_printf(out, "{\"type\":\"%s\",\"name\":", types[question->type]);
    if (question->name)
        json_write(out, question->name);
    else
        buf_add_text(out, "null");
    switch (question->type) {
    case QUESTION_PREDICATE: write_member(out, "probability", shares->at[1]); break;
    case QUESTION_CHOICE:
        buf_add_text(out, ",\"choice\":");
        json_write(out, question->options[shares->top].value);
        write_member(out, "confidence", shares_choice_confidence(shares));
        write_probabilities(out, question, shares);
        break;
    case QUESTION_SCORE:
        write_member(out, "score", shares_score(shares));
        write_member(out, "confidence", shares_score_confidence(shares));
        write_probabilities(out, question, shares);
        break;
    }
    write_member(out, "label_mass", shares->label_mass);
    buf_add_byte(out, '}');
}

/* --- JSON of System One --- */

/* Appends a member whose value is an object: an option's text or its number to its share, or to its
 * text. */
static void write_options(struct buf *out, const char *key, const struct question *question,
                          const struct shares *shares) {
    buf_printf(out, ",\"%s\":{", key);
    for (uint32_t i = 0; i < question->option_count; i++) {
        if (i > 0) buf_add_byte(out, ',');
        if (question->type == QUESTION_SCORE)
            buf_printf(out, "\"%u\"", i);
        else
            json_write_string(out, question->options[i].text);
        buf_add_byte(out, ':');
        if (shares)
            json_text_write_number(out, shares->at[i]);
        else
            json_write_string(out, question->options[i].text);
    }
    buf_add_byte(out, '}');
}

void answer_write_systemone(struct buf *out, const struct question *question,
                            const struct shares *shares) {
    assert(shares->count == question->option_count);
    switch (question->type) {
    case QUESTION_PREDICATE:
        buf_add_text(out, "{\"type\":\"noul\"");
        write_member(out, "noul", shares->at[1]);
        break;
    case QUESTION_CHOICE:
        buf_add_text(out, "{\"type\":\"choice\",\"choice\":");
        json_write_string(out, question->options[shares->top].text);
        write_member(out, "confidence", shares_choice_confidence(shares));
        write_options(out, "probabilities", question, shares);
        break;
    case QUESTION_SCORE:
        buf_add_text(out, "{\"type\":\"score\"");
        write_member(out, "score", shares_score(shares));
        write_member(out, "confidence", shares_score_confidence(shares));
        write_options(out, "legend", question, NULL);
        write_options(out, "probabilities", question, shares);
        break;
    }
    write_member(out, "label_mass", shares->label_mass);
    buf_add_byte(out, '}');
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The input and the questions of a hostile decision request. */

#include "decisions/answer.h"
#include "decisions/input.h"
#include "decisions/systemone.h"
#include "decisions/temperature.h"
#include "decisions/wording.h"
#include "json/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TREE_BYTES_MAX ((size_t)16 << 20)

static void check_json(const struct buf *text) {
    json_t *value;
    enum err err = json_read(&value, buf_str(text), NULL);
    assert(err == OK);
    json_decref(value);
}

static void check_refusal(const struct refusal *refusal) {
    struct buf text;
    assert(refusal->status == 400 && refusal->code && *refusal->param && *refusal->message);
    buf_init(&text, 1 << 20);
    refusal_write(&text, refusal);
    check_json(&text);
    buf_release(&text);
}

/* The promises of question.h, wording.h and answer.h for an accepted question. */
static void check_question(const struct question *question, bool is_systemone) {
    struct label_text labels[QUESTION_OPTIONS_MAX];
    double logprobs[QUESTION_OPTIONS_MAX];
    struct buf text;
    assert(question->option_count >= (is_systemone ? 1 : 2) &&
           question->option_count <= QUESTION_OPTIONS_MAX);
    for (uint32_t i = 0; i < question->option_count; i++) {
        labels[i] = label_pair(i);
        logprobs[i] = -(double)(i % 7);
    }
    buf_init(&text, (size_t)64 << 20);
    wording_write_question(&text, question, labels);
    assert(str_ends_with(buf_str(&text), str_from(wording_last_lines[question->labels])) &&
           !text.overflowed);
    buf_clear(&text);
    struct shares shares = shares_of(logprobs, question->option_count, question->temperature);
    if (is_systemone)
        answer_write_systemone(&text, question, &shares);
    else
        answer_write_question(&text, question, &shares);
    check_json(&text);
    buf_release(&text);
}

/* Reads the body as one of /v1/systemone or of /v1/decisions. */
static void check_body(const json_t *body, bool is_systemone) {
    struct decision_input input;
    struct questions questions;
    struct refusal refusal;
    bool is_good = is_systemone ? systemone_input_read(&input, body, &refusal)
                                : decision_input_read(&input, body, &refusal);
    if (is_good) {
        assert(!input.state.overflowed && !input.system.overflowed);
        decision_input_release(&input);
    } else {
        check_refusal(&refusal);
    }
    is_good = is_systemone ? systemone_questions_read(&questions, body, &refusal)
                           : questions_read(&questions, body, &refusal);
    if (!is_good) {
        check_refusal(&refusal);
        return;
    }
    assert(questions.count >= 1 && questions.count <= QUESTIONS_MAX);
    if (!temperatures_read(&questions, body, &refusal)) check_refusal(&refusal);
    for (uint32_t i = 0; i < questions.count; i++) check_question(&questions.at[i], is_systemone);
    questions_release(&questions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t room = TREE_BYTES_MAX;
    json_t *body;
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    enum err err = json_read_once(&body, (struct str){copy, size}, &room, NULL);
    free(copy);
    if (err != OK) return 0;
    for (int is_systemone = 0; is_systemone < 2; is_systemone++) check_body(body, is_systemone);
    json_decref(body);
    return 0;
}

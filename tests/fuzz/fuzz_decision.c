/* SPDX-License-Identifier: Apache-2.0 */

/* The input and the questions of a hostile decision request. */

#include "decisions/answer.h"
#include "decisions/input.h"
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
static void check_question(const struct question *question) {
    struct label_text labels[QUESTION_OPTIONS_MAX];
    double logprobs[QUESTION_OPTIONS_MAX];
    struct buf text;
    assert(question->option_count >= 2 && question->option_count <= QUESTION_OPTIONS_MAX);
    for (uint32_t i = 0; i < question->option_count; i++) {
        labels[i] = label_pair(i);
        logprobs[i] = -(double)(i % 7);
    }
    buf_init(&text, (size_t)64 << 20);
    wording_write_question(&text, question, labels);
    assert(str_ends_with(buf_str(&text), STR("\n" WORDING_LAST_LINE)) && !text.overflowed);
    buf_clear(&text);
    struct shares shares = shares_of(logprobs, question->option_count);
    answer_write_question(&text, question, &shares);
    check_json(&text);
    buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct decision_input input;
    struct questions questions;
    struct refusal refusal;
    size_t room = TREE_BYTES_MAX;
    json_t *body;
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    enum err err = json_read_once(&body, (struct str){copy, size}, &room, NULL);
    free(copy);
    if (err != OK) return 0;
    if (decision_input_read(&input, body, &refusal)) {
        assert(!input.state.overflowed && !input.system.overflowed);
        decision_input_release(&input);
    } else {
        check_refusal(&refusal);
    }
    if (questions_read(&questions, body, &refusal)) {
        assert(questions.count >= 1 && questions.count <= QUESTIONS_MAX);
        for (uint32_t i = 0; i < questions.count; i++) check_question(&questions.at[i]);
        questions_release(&questions);
    } else {
        check_refusal(&refusal);
    }
    json_decref(body);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* question: the typed questions of a decision request.
 *
 * A predicate asks whether a statement is true. A choice has options, of which one is the answer. A
 * score has levels, the lowest first. Each question has options here: a predicate has false and
 * true. The reader knows no prompt (wording.h) and no model. This is the reader of /v1/decisions;
 * that of /v1/systemone is systemone.h.
 *
 * Thread: any.
 * Memory: questions_release frees; names, values and descriptions are borrowed from the body.
 * Invariant: a question has 2..QUESTION_OPTIONS_MAX options, and of /v1/systemone 1 or more; values
 * of a choice differ. */

#include "base/buf.h"
#include "json/refusal.h"

#define QUESTIONS_MAX 400 /* this limit and the next are OpenAI's */
#define QUESTION_OPTIONS_MAX 255
#define QUESTION_INSTRUCTIONS_BYTES_MAX ((size_t)16 * 1024 * 1024)

enum question_type { QUESTION_PREDICATE, QUESTION_CHOICE, QUESTION_SCORE };

/* The labels of a question's options in its prompt: A, B, …; 0, 1, …; no and yes. */
enum label_set { LABELS_LETTERS, LABELS_DIGITS, LABELS_WORDS, LABEL_SETS };

struct option {
    const json_t *value;    /* string or boolean of a choice, label of a level; NULL: a predicate's,
                            and all of /v1/systemone */
    struct str text;        /* in /v1/systemone: the name of a choice, the text of a level */
    struct str description; /* empty: none */
};

struct question {
    enum question_type type;
    enum label_set labels;
    double temperature; /* by which its log probabilities are divided (temperature.h) */
    const json_t *name; /* NULL: none */
    struct str id;      /* id in /v1/systemone, whose questions have no name */
    struct buf instructions;
    struct option *options; /* (option_count) */
    uint32_t option_count;
};

/* Zero is a valid start. */
struct questions {
    struct question *at; /* (count) */
    uint32_t count;      /* 1..QUESTIONS_MAX */
    bool is_systemone;   /* asked, worded and answered as /v1/systemone has it */
};

/* Reads the member `questions` of a body. False, with *ret_refusal, if it is wrong; then nothing is
 * to be released. */
bool questions_read(struct questions *ret_questions, const json_t *body,
                    struct refusal *ret_refusal) MUST_CHECK;
void questions_release(struct questions *questions);

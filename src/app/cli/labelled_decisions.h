/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* labelled_decisions: a file of decisions whose true answers are known, read together with the
 * answers that a model gave.
 *
 * Each line of the first file is a line of a batch with one more member, `expected`: an object of
 * true answers by question. A question is called by its name, by its id on /v1/systemone, or by its
 * place from "0". A predicate expects true or false, a choice one of its values, a score the number
 * or the text of a level. The second file has the results of these lines, in any order, as `quern
 * run` or a batch's output file has them. Cases of equal names make one set.
 *
 * Thread: main.
 * Memory: owns names and sets; labelled_decisions_release frees. */

#include "base/err.h"
#include "decisions/calibration.h"

struct labelled_question {
    char *name;
    struct calibration_set set;
};

/* Zero is a valid start. */
struct labelled_decisions {
    struct labelled_question *at; /* (count) in the order of their first case */
    size_t count, capacity;
    uint64_t lines;      /* lines in the first file */
    uint64_t unanswered; /* lines of the first file without an answer of status 200 */
};

/* ERR_INVALID, with path and line, for a line that is no labelled decision, and for an answer that
 * is not of its questions; ERR_NOT_FOUND for a file that is not there. The caller releases in
 * either case. */
enum err labelled_decisions_read(struct labelled_decisions *labelled, const char *labelled_path,
                                 const char *answers_path, struct error *error) MUST_CHECK;
void labelled_decisions_release(struct labelled_decisions *labelled);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* systemone: the request of /v1/systemone, read into the same text and questions as that of
 * /v1/decisions.
 *
 *     {"model": …, "state": "text, or an object or array", "instructions": "for the system role",
 *      "questions": {"remote": {"type": "noul", "instructions": …, "criteria": {"true": …}},
 *                    "team": {"type": "choice", …, "criteria": {"ops": "a description", "hr":
 * null}}, "fit": {"type": "score", …, "criteria": ["weak", "fair", "strong"]}}}
 *
 * A state that is no string is shown to the model as JSON with spaces, as Python writes it.
 *
 * Thread: any.
 * Memory: as decision_input_read and questions_read. */

#include "decisions/input.h"
#include "decisions/question.h"

/* Reads the members `state` and `instructions` of a body. False, with *ret_refusal, if one is
 * wrong; then nothing is to be released. */
bool systemone_input_read(struct decision_input *ret_input, const json_t *body,
                          struct refusal *ret_refusal) MUST_CHECK;
/* Reads the member `questions`. False, with *ret_refusal, if it is wrong; then nothing is to be
 * released. */
bool systemone_questions_read(struct questions *ret_questions, const json_t *body,
                              struct refusal *ret_refusal) MUST_CHECK;

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* temperature: the temperatures by which a request wants its questions' log probabilities divided.
 *
 * A model's probabilities are often too sure. A temperature above 1 makes them less so, and one
 * below 1 surer; the order of the options stays. `temperature` is that of all questions.
 * `temperatures` is an object of names (ids of /v1/systemone; a question without a name is called
 * by its place, from 0) and overrides it. It is what `quern calibrate` writes. A name that no
 * question has is no error, so that one object serves requests of fewer questions.
 *
 * Thread: any; pure. */

#include "decisions/question.h"

#define TEMPERATURE_LEAST 0.01
#define TEMPERATURE_MOST 100.0

/* Sets the temperatures of the questions from the body. False and *ret_refusal if one is wrong. */
bool temperatures_read(struct questions *questions, const json_t *body,
                       struct refusal *ret_refusal) MUST_CHECK;

/* The text of a place, with its NUL. */
struct question_place {
    char at[12];
};
/* The name of a question in `temperatures`; `place` holds its text if it has no name. */
struct str question_name(const struct questions *questions, uint32_t index,
                         struct question_place *place);

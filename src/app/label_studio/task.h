/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* task: one result of a batch as a task of Label Studio.
 *
 *     data         text: the request; answer: the answer as it was given
 *     meta         batch_id and custom_id, which identify the task;
 *                  answer: the fields that have a control, to compare an annotation with
 *     predictions  one, of the answer: a value per control, the model, and the mean probability of
 *                  the answer's tokens as its score, if the result has log probabilities
 *
 * A NUL in a text becomes U+FFFD, since PostgreSQL stores none.
 *
 * Thread: any.
 * Memory: the caller owns the task. */

#include "base/buf.h"
#include "label_studio/form.h"
#include "label_studio/pairs.h"

struct task_wish {
    const char *batch_id;
    const struct form *form;
};

/* OK with *ret_task NULL for a pair without an answer. ERR_INVALID for a result that is no JSON
 * object. */
enum err task_make(json_t **ret_task, const struct task_wish *wish, const struct pair *pair,
                   struct error *error) MUST_CHECK;
/* Appends a result per control that can show the value of its field in `object`. */
void task_add_results(json_t *results, const struct form *form, const json_t *object);
/* Adds the fields of the answer to the form; none for a pair without an answer. */
enum err task_add_fields(struct form *form, const struct pair *pair,
                         struct error *error) MUST_CHECK;
/* Takes the lengths of the arrays of objects in the answer (form.h). */
enum err task_add_lengths(json_t *lengths, const struct pair *pair, struct error *error) MUST_CHECK;

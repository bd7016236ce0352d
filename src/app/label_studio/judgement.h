/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judgement: an annotation of Label Studio as a judgement of quern.
 *
 *     annotation                         judgement
 *     cancelled (skipped)                skipped
 *     rejected in a review (review.h)    skipped and flagged; the comment says so
 *     every value as the answer has it   accepted
 *     another value in a field           corrected, with these fields
 *     the rating, the comment            rating, comment
 *
 * The id is made from the server, the annotation's id, its time of change and its review. So a
 * second pull of the same state adds no judgement.
 *
 * Thread: any.
 * Memory: the caller owns the judgement.
 * Invariant: the same state of an annotation gives the same judgement. */

#include "label_studio/form.h"

#define JUDGEMENT_ID_BYTES 40

struct annotation {
    const char *studio;   /* the server's URL */
    const json_t *object; /* the annotation as Label Studio has it */
    const json_t *meta;   /* meta of its task (task.h) */
    const char *curator;
};

/* Writes the key of an annotation's state: "ID UPDATED_AT", with the word of a review. False if the
 * object is no annotation with a result. */
bool annotation_key(const json_t *object, char *ret_key, size_t bytes);
/* Makes the body of a judgement without its version; annotation_key has accepted the object. */
json_t *judgement_make(const struct form *form, const struct annotation *annotation);
/* True if two judgements give a field different values. A skipped judgement gives no values. */
bool judgement_differs(const json_t *a, const json_t *b);

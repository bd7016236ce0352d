/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* judgement: an annotation of Label Studio as a judgement of quern.
 *
 *     annotation                         judgement
 *     cancelled (skipped)                skipped
 *     every value as the answer has it   accepted
 *     another value in a field           corrected, with these fields
 *     the rating, the comment            rating, comment
 *
 * The id is made of the server, the annotation's id and its time of change: the same state of an
 * annotation always gives the same judgement, so that a second pull adds none.
 *
 * Thread: any.
 * Memory: the caller owns the judgement. */

#include "label_studio/form.h"

#define JUDGEMENT_ID_BYTES 40

struct annotation {
    const char *studio;   /* the server's URL */
    const json_t *object; /* the annotation as Label Studio has it */
    const json_t *meta;   /* of its task (task.h) */
    const char *curator;
};

/* Writes the key of an annotation's state: "ID UPDATED_AT". False if the object is no
 * annotation with its result. */
bool annotation_key(const json_t *object, char *ret_key, size_t bytes);
/* Makes the body of a judgement without its version; annotation_key is true of the object. */
json_t *judgement_make(const struct form *form, const struct annotation *annotation);
/* Whether two judgements give a field different values. A skipped one differs from none. */
bool judgement_differs(const json_t *a, const json_t *b);

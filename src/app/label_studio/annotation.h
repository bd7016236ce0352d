/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* annotation: a judgement of quern as an annotation of Label Studio.
 *
 *     accepted, corrected   the answer's values with the corrections, a value per control
 *     skipped               was_cancelled
 *     rating                the value of the rating's control
 *     curator, comment      the value of the comment's control: "Ana on quern: the comment"
 *     accepted, corrected,  its review (review.h): accepted, fixed_and_accepted, rejected
 *     flagged
 *
 * Label Studio's annotator is the user of the token, since a curator of quern has no account there.
 * The unique_id is a hash of batch, project and judgement.
 *
 * Each result has an id that begins with a hash of all values and of the review. By it a pull knows
 * an annotation that was made of a judgement and that nobody has changed or reviewed since.
 *
 * Thread: any; pure.
 * Memory: the caller owns the annotation. */

#include "label_studio/form.h"

#include <stdbool.h>
#include <stdint.h>

struct annotation_wish {
    const char *batch;
    int64_t project;
    const struct form *form;
    const json_t *config; /* parsed_label_config of the project */
    const json_t *answer; /* the fields of the answer (reply.h) */
    const json_t *judgement;
};

/* NULL if the project has no control that can show anything of the judgement. */
json_t *annotation_make(const struct annotation_wish *wish);
/* True for an annotation that annotation_make made and that nobody has changed or reviewed. */
bool annotation_is_own(const json_t *annotation);

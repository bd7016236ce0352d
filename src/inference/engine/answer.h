/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer: the response bodies and stream chunks of the OpenAI API, written from a job.
 *
 * All of it is pure ASCII JSON on one line, without NaN and infinity. The chunks of a job, joined,
 * give the text of its body: both are written from the same bytes.
 *
 * Thread: the stage that owns the job.
 * Memory: appends to the caller's buf. */

#include "engine/job.h"

struct answer_source {
    const struct tokenizer *tokenizer;
    struct str model_name;
    const char *fingerprint;
};

/* Appends the body of a job whose choices are all done. Returns how they keep the job's shape. */
enum shape_end answer_write_body(struct buf *out, const struct answer_source *source,
                                 const struct job *job);

/* Appends the next chunk of one choice: its role first, then the text that may be shown, then its
 * finish_reason. Marks that text as shown. False, with nothing appended, if the choice has no
 * further chunk now: call it until then. */
bool answer_write_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                        uint32_t choice_index);
/* Appends the last chunk, which has the usage; only for a request that asked for it. */
void answer_write_usage_chunk(struct buf *out, const struct answer_source *source,
                              const struct job *job);

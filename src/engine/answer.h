/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer: the response bodies and stream chunks of the OpenAI API, written from a job.
 *
 * Pure ASCII JSON on one line, never NaN or infinity. The chunks of a job joined give the text of
 * its body: both are written from the same bytes.
 *
 * Thread: the stage that owns the job.  Memory: appends to the caller's buf. */

#include "engine/job.h"

struct answer_source {
    const struct tokenizer *tokenizer;
    struct str model_name;
    const char *fingerprint;
};

/* The whole body of a job whose choices are all done. */
void answer_write_body(struct buf *out, const struct answer_source *source, const struct job *job);

/* The next chunk of one choice: its role first, then what may be shown of it, then its reason to
 * finish. False, and nothing written, when there is nothing to send now. Marks as shown what it
 * wrote; call again until it answers false. */
bool answer_write_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                        uint32_t choice_index);
/* The last chunk, with the usage; only when the request asked for it. */
void answer_write_usage_chunk(struct buf *out, const struct answer_source *source,
                              const struct job *job);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer_event: what a measurement needs to know of an event of a streamed answer, or of a whole
 * answer, of any server that speaks the OpenAI API.
 *
 * Thread: any; pure.
 * Memory: views of the bytes. */

#include "base/str.h"

#include <stdint.h>

struct answer_event {
    bool is_end;                /* the event [DONE] */
    bool is_error;              /* an error object instead of an answer */
    bool has_text;              /* text, a thought or a piece of a call: a token at least */
    bool is_finished;           /* a choice has its finish_reason */
    bool has_usage, has_cached; /* has_cached: the usage tells the cached tokens */
    uint64_t prompt_tokens, cached_tokens, completion_tokens; /* with usage */
};

/* Reads the data of an event, or the body of an answer. False if it is no JSON object and no
 * [DONE]. */
bool answer_event_read(struct answer_event *ret_event, struct str data);

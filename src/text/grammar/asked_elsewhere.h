/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* asked_elsewhere: refuses the constraints of a request of another API's form that this API does
 * not have, so that none is ignored in silence.
 *
 * A request of Ollama's or Anthropic's API has few members. Clients write those of OpenAI's API, of
 * vLLM or of another spelling into it, and get free text with status 200 from servers that pass
 * over what they do not know. A member that this API reads is left alone; of the others, each that
 * constrains an answer by its name (asked_names.h), or that bounds its tokens, is refused unless
 * its value asks for nothing. Members that are only unknown are passed over, as by those servers.
 *
 * Thread: any; pure.
 * Memory: one member's tree at a time, 64 KiB of text at most; none is kept. */

#include "json/refusal.h"

struct asked_api {
    const char *const *members; /* those that the API reads; NULL at the end */
    const char *open;           /* a member that is an object, whose inside is looked at, too */
    const char *const *inside;  /* the members of that object that are read; NULL at the end */
    const char *reason;         /* why another member is refused; a sentence without full stop */
};

/* False, with *ret_refusal, which names the member. `object` is the span of a valid JSON object. */
bool asked_elsewhere_check(const struct asked_api *api, struct str object,
                           struct refusal *ret_refusal);

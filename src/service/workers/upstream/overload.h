/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_overload: whether an answer says that its upstream takes no requests now, in one of the
 * many ways in which servers say it.
 *
 *     status 429, 498 (Groq), 503, 529 (Anthropic)
 *     any status but those of the request itself, with a body that names one of these as its `code`
 *     or `status`, or a word for it as `code`, `type` or `status`: rate_limit_exceeded,
 *     overloaded_error, insufficient_quota, RESOURCE_EXHAUSTED, ThrottlingException, …
 *
 * A request that is refused so was not run. The same holds for a quota that is used up: it is
 * filled up again, or paid for, and the lines wait until then.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "base/str.h"

#include <stdint.h>

struct upstream_overload {
    int32_t status; /* 402, 429, 503 or another status of an overload: for the client and the log */
    int64_t wait_ms; /* the wait that the body asks for; negative: none */
};

/* `body` is a JSON object that holds no answer, or empty. False: the upstream is not overloaded. */
bool upstream_overload_find(int status, struct str body, struct upstream_overload *ret_overload);

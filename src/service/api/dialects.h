/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dialects: requests in other APIs' forms (dialects/dialect.h): read, run, and answered in theirs.
 *
 * Thread: a worker thread of http.
 * Memory: the call lives until its answer is complete. */

#include "api/api_internal.h"
#include "dialects/dialect.h"

/* Answers the request, whose body is one of `dialect`. */
void api_answer_in(struct api *api, struct http_request *request, const struct dialect *dialect);

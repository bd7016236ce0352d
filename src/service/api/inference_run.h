/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* inference_run: single requests that the runner has, from their submission to their answer: as
 * OpenAI's API writes it, or in the dialect of the call that asked.
 *
 * It reads no request: the body is what the worker gets.
 *
 * Thread: submission on a worker thread of http; deltas and the result on threads of the runner,
 *     one at a time for each request.
 * Memory: one struct per request, until its answer is complete.
 * Invariant: each request gets exactly one answer, or one stream with an end. */

#include "api/api_internal.h"
#include "dialects/dialect.h"

/* Submits the job and answers the request later, or at once if the runner does not take it. `call`
 * is taken over; NULL: the answer is passed on as the worker wrote it. */
void inference_submit(struct api *api, struct http_request *request,
                      const struct runner_request *job, struct dialect_call *call);

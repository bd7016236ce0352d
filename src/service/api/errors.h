/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* errors: the one map from a failure to the client's answer: status, error object, and the headers
 * that tell clients whether to try again (contract: error envelope).
 *
 * The sentence names the parameter and the value, because an exception's text shows nothing else.
 * The sentences of the machine's own failures are logged and not sent, because they may hold paths.
 *
 * Thread: any.
 * Memory: none is kept. */

#include "http/http.h"
#include "json/envelope.h"

/* Answer with a status and the error object; `code` and `param` may be NULL. */
void api_refuse(struct http_request *request, const struct refusal *refusal);
void api_fail(struct http_request *request, int status, const char *code, const char *param,
              const char *format, ...) PRINTF_LIKE(5, 6);
/* As api_fail with status 400, for a wrong or missing parameter. */
void api_fail_param(struct http_request *request, const char *code, const char *param,
                    const char *format, ...) PRINTF_LIKE(4, 5);
/* Answers with the status of an operating error; `param` counts for statuses below 500. */
void api_fail_err(struct http_request *request, enum err err, const struct error *error,
                  const char *param);
/* Answers with a status, a body and the headers that go with the status. */
void api_pass(struct http_request *request, int status, struct str body);
/* As api_pass, with the body of a worker: an error object in it is noted for the log. */
void api_pass_worker(struct http_request *request, int status, struct str body);

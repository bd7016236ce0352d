/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* errors: the one map from what went wrong to what a client sees: status, envelope, and the headers
 * that tell clients whether to try again (contract: error envelope).
 *
 * The sentence names the parameter and the value, because it is all that an exception's text shows.
 * Sentences of the machine's own failures are logged and not sent: they may hold paths.
 *
 * Thread: any.  Memory: none. */

#include "http/http.h"

/* Zero is a valid start but for status and message; NULL texts are null in the envelope. */
struct api_error {
    int status;
    const char *message;
    const char *param;
    const char *code;
};

void api_fail(struct http_request *request, const struct api_error *error);
/* A wrong or missing parameter: 400. The sentence may be formatted. */
void api_fail_param(struct http_request *request, const char *code, const char *param,
                    const char *format, ...) PRINTF_LIKE(4, 5);
/* An operating error; `param` for ERR_NOT_FOUND and ERR_INVALID (NULL allowed). */
void api_fail_err(struct http_request *request, enum err err, const struct error *error,
                  const char *param);
/* Answers with the status and body a worker gave, and the headers that go with the status. */
void api_pass(struct http_request *request, int status, struct str body);
/* "invalid_request_error", "rate_limit_exceeded" or "server_error". */
const char *api_error_type(int status);

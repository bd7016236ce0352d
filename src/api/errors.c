/* SPDX-License-Identifier: Apache-2.0 */
#include "api/errors.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES 1024
#define RETRY_AFTER_S "2"

const char *api_error_type(int status) {
    if (status == 429) return "rate_limit_exceeded";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void api_pass(struct http_request *request, int status, struct str body) {
    struct http_header headers[1];
    size_t count = 0;
    /* The clients repeat 409 by themselves, which cannot help (contract: retries by clients). */
    if (status == 409) headers[count++] = (struct http_header){"x-should-retry", "false"};
    if (status == 429 || status == 503)
        headers[count++] = (struct http_header){"retry-after", RETRY_AFTER_S};
    http_answer(request,
                &(struct http_answer){
                    .status = status, .body = body, .headers = headers, .header_count = count});
}

void api_fail(struct http_request *request, const struct api_error *error) {
    struct buf body;
    buf_init(&body, 65536);
    http_error_body(&body, api_error_type(error->status), error->message, error->param,
                    error->code);
    api_pass(request, error->status, buf_str(&body));
    buf_release(&body);
}

void api_fail_param(struct http_request *request, const char *code, const char *param,
                    const char *format, ...) {
    char message[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    api_fail(request, &(struct api_error){400, message, param, code});
}

static int status_of(enum err err) {
    switch (err) {
    case OK: break;
    case ERR_INVALID: return 400;
    case ERR_NOT_FOUND: return 404;
    case ERR_CONFLICT: return 409;
    case ERR_LIMIT: return 429;
    case ERR_CANCELLED: return 499;
    case ERR_UNAVAILABLE: return 503;
    case ERR_IO:
    case ERR_CORRUPT: return 500;
    }
    return 500;
}

void api_fail_err(struct http_request *request, enum err err, const struct error *error,
                  const char *param) {
    struct api_error answer = {.status = status_of(err), .message = error->text};
    if (answer.status < 500) {
        answer.param = param;
        if (err == ERR_LIMIT) answer.code = "rate_limit_exceeded";
        api_fail(request, &answer);
        return;
    }
    log_error("request=%s operation=%s err=%s %s", http_request_id(request),
              http_request_route(request)->operation, err_name(err), error->text);
    answer.message = answer.status == 503
                         ? "The server cannot take this now; try again later"
                         : "The server failed; its log has the reason under this request's id";
    api_fail(request, &answer);
}

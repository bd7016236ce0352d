/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* envelope: why a request is not answered (struct refusal), and the one writer of the error object
 * that clients read: {"error":{"message":…,"type":…,"param":…,"code":…}}.
 *
 * A refusal is a result and no enum err: the machine did nothing wrong. The message names the
 * parameter and the offending value, because most clients show nothing else.
 *
 * Thread: any.
 * Memory: plain structs; longer texts are cut at a character. */

#include "base/buf.h"

#include <jansson.h>
#include <stdarg.h>

#define REFUSAL_PARAM_BYTES 96
#define REFUSAL_MESSAGE_BYTES 1024

struct refusal {
    int32_t status;                  /* HTTP status: 400 to 599 */
    const char *code;                /* static, or NULL for null */
    char param[REFUSAL_PARAM_BYTES]; /* "" is null */
    char message[REFUSAL_MESSAGE_BYTES];
};

/* Fill *refusal and return false, so that a failed check is one line. `param` NULL is null. */
bool refuse(struct refusal *refusal, const char *code, const char *param, const char *format, ...)
    PRINTF_LIKE(4, 5); /* status 400 */
bool refuse_status(struct refusal *refusal, int32_t status, const char *code, const char *param,
                   const char *format, ...) PRINTF_LIKE(5, 6);
bool refuse_args(struct refusal *refusal, int32_t status, const char *code, const char *param,
                 const char *format, va_list args) PRINTF_LIKE(5, 0);
bool refuse_missing(struct refusal *refusal, const char *param); /* status 400 */

/* The kind of a value as a sentence names it: "an object", "a decimal", "nothing" for NULL. */
const char *json_kind_name(const json_t *value);

/* Appends the error object in ASCII; NULL and "" become null. Its type follows from the status:
 * "invalid_request_error", "rate_limit_exceeded" (429) or "server_error" (500 and above). */
void envelope_write(struct buf *buf, int32_t status, const char *code, const char *param,
                    struct str message);
void refusal_write(struct buf *buf, const struct refusal *refusal);

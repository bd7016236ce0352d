/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* refusal: why a request is not answered, as the client will read it: an HTTP status and the error
 * object of the OpenAI API. A refusal is a result, not an enum err: the machine did nothing wrong.
 *
 * The message names the parameter and the offending value, since clients show little else.
 *
 * Thread: any.  Memory: plain struct; long values are cut to fit. */

#include "base/buf.h"

#include <jansson.h>

#define REFUSAL_PARAM_BYTES 128
#define REFUSAL_MESSAGE_BYTES 1024

struct refusal {
    int32_t status; /* 400, 404, 499, 500, 503 */
    bool retryable; /* trouble of the machine: another try may work */
    const char *type;
    const char *code;                /* NULL is null */
    char param[REFUSAL_PARAM_BYTES]; /* "" is null */
    char message[REFUSAL_MESSAGE_BYTES];
};

/* All of these fill *refusal and return false, so that a failure is one line. */
bool refuse(struct refusal *refusal, const char *code, const char *param, const char *format, ...)
    PRINTF_LIKE(4, 5); /* 400 */
bool refuse_missing(struct refusal *refusal, const char *param);
bool refuse_type(struct refusal *refusal, const char *param, const char *expected,
                 const json_t *got);
/* `supported` is a list for the reader: "'a', 'b'". */
bool refuse_value(struct refusal *refusal, const char *param, const json_t *got,
                  const char *supported);
/* `reason` is a sentence without its full stop. */
bool refuse_unsupported(struct refusal *refusal, const char *param, const char *reason);
bool refuse_cancelled(struct refusal *refusal);                                        /* 499 */
bool refuse_fault(struct refusal *refusal, const char *format, ...) PRINTF_LIKE(2, 3); /* 500 */

/* Appends {"error":{…}} in ASCII. */
void refusal_write(struct buf *out, const struct refusal *refusal);

#define VALUE_TEXT_BYTES 96
/* A JSON value as text for a message, cut with "…" when it is long. Returns `text`. */
const char *value_text(const json_t *value, char text[VALUE_TEXT_BYTES]);

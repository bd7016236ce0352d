/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* http_call: one request as bytes over a simulated socket, and the bytes of its answer.
 *
 * The seed draws the pieces in which a request is sent, how fast an answer is read, whether the
 * connection is used again, and whether the client leaves it half-way.
 *
 * Thread: the client's, in a life.
 * Memory: an answer belongs to the caller. */

#include "base/buf.h"
#include "base/str.h"

struct http_call {
    const char *method, *target;
    const char *type; /* what the body is; NULL: there is none */
    const char *key;  /* Idempotency-Key; NULL: none */
    struct str body;
};

struct http_told {
    bool is_whole; /* false: the client knows nothing of what became of the request */
    int status;
    struct buf body; /* ends with a zero byte that is not counted */
};

void http_call_begin(void);
void http_call_end(void);
void http_call(const struct http_call *call, struct http_told *ret_told);
void http_told_release(struct http_told *told);

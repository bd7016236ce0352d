/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result: the one line of the output or error file that a request ends in.
 *
 * Thread: any; pure.
 * Memory: the caller's.
 * Invariant: a line is pure ASCII with one LF, at its end. */

#include "base/buf.h"
#include "store/seglog.h"

enum batch_outcome {
    BATCH_RAN,            /* a worker answered */
    BATCH_NOT_IN_WINDOW,  /* batch_expired */
    BATCH_WAS_CANCELLED,  /* batch_cancelled */
    BATCH_TIMED_OUT,      /* request_timeout */
    BATCH_SERVER_FAULTED, /* batch_failed */
};

struct batch_result {
    const char *batch_id;
    uint64_t line;        /* index of the request in the file, from 0 */
    struct str custom_id; /* as JSON, with quotes, pure ASCII */
    enum batch_outcome outcome;
    /* Only with BATCH_RAN. */
    int32_t status;
    struct str request_id;
    struct str body; /* a JSON object, pure ASCII, on one line */
};

void batch_result_write(struct buf *buf, const struct batch_result *result);
/* The kind of record for a request that ran: success for a 2xx status. */
enum seglog_kind batch_result_kind(int32_t status);
/* Appends a raw JSON string, valid UTF-8, in the form of `custom_id` above. */
void batch_custom_id_write(struct buf *buf, struct str string);
/* Makes a worker's body fit for a result: *ret_body is the text itself, or a copy in `scratch`.
 * False if it is not a JSON object. */
bool batch_body_read(struct str text, struct buf *scratch, struct str *ret_body);

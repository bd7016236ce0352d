/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result: the one line of the output or error file that a request ends in.
 *
 * Thread: any; pure.  Memory: the caller's.  Invariant: a line is pure ASCII with one LF at its
 * end. */

#include "batch/batch.h"
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
    uint64_t line;        /* index of the request */
    struct str custom_id; /* as JSON, with quotes, pure ASCII */
    enum batch_outcome outcome;
    /* when it ran */
    int32_t status;
    struct str request_id;
    struct str body; /* a JSON object, pure ASCII, on one line */
};

void batch_result_write(struct buf *buf, const struct batch_result *result);
/* How a request that ran counts: success for a 2xx status. */
enum seglog_kind batch_result_kind(int32_t status);
/* A raw JSON string, valid UTF-8, as `custom_id` above. */
void batch_custom_id_write(struct buf *buf, struct str string);
/* A worker's body made fit for a result: the text itself, or a copy in `scratch`. False when it is
 * not a JSON object. */
bool batch_body_read(struct str text, struct buf *scratch, struct str *ret_body);

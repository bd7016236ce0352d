/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_reader: what an upstream's bytes mean. Bodies and events of any OpenAI-compatible server
 * in, OpenAI's own shapes out: pure ASCII JSON on one line, usage with its cached tokens, errors in
 * the one envelope, whatever shape they came in (vLLM, Ollama, llama-server, LiteLLM, FastAPI).
 *
 * Knows no socket.  Thread: any; pure but for the caller's buffers. */

#include "base/buf.h"
#include "protocol/worker.h"

/* What an answer says. */
struct upstream_reading {
    /* As far as this answer alone tells:
     *   DONE       a 2xx with a JSON object, or a 4xx
     *   NOT_RUN    429, 503
     *   TRY_AGAIN  408, 409, 425, and everything else */
    enum outcome outcome;
    int32_t status;  /* of the result */
    struct str body; /* in the buf that was passed */
    struct usage usage;
};

/* Reads a whole answer. `model`, when not NULL, is what the client calls the model and stands in
 * the place of the upstream's word. `name` is the upstream's, for sentences. */
void upstream_read_answer(struct buf *buf, int status, struct str body, const char *model,
                          const char *name, struct upstream_reading *ret_reading);

/* --- streams --- */

enum upstream_event {
    UPSTREAM_EVENT_CHUNK, /* to be passed on: in the buf */
    UPSTREAM_EVENT_USAGE, /* the last chunk, which only tells usage */
    UPSTREAM_EVENT_DONE,  /* [DONE] */
    UPSTREAM_EVENT_ERROR, /* an error envelope: in the buf */
    UPSTREAM_EVENT_BAD,   /* not a JSON object */
};
/* Reads the data of one event. Usage, when it tells some, is put into *usage; *is_finished becomes
 * true when a choice has its finish_reason. */
enum upstream_event upstream_read_event(struct buf *buf, struct str data, const char *model,
                                        struct usage *usage, bool *is_finished);

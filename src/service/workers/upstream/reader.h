/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_reader: what an upstream's bytes mean.
 *
 * Bodies and events of any OpenAI-compatible server (vLLM, Ollama, llama-server, LiteLLM, FastAPI)
 * come in. OpenAI's own shapes go out: pure ASCII JSON on one line, usage with its cached tokens,
 * errors in the one envelope. The reader knows no socket and no key.
 *
 * Thread: any.
 * Memory: the caller's buffers. */

#include "base/buf.h"
#include "protocol/worker.h"

/* What an answer says. */
struct upstream_reading {
    /* As far as this answer alone tells:
     *   DONE       a 2xx with a JSON object, or a 4xx
     *   NOT_RUN    429, 503
     *   TRY_AGAIN  408, 409, 425, and everything else */
    enum outcome outcome;
    int32_t status;  /* status of the result */
    struct str body; /* in the buf that was passed */
    struct usage usage;
};

/* Reads a whole answer. `model`, if not NULL, is the client's name for the model and replaces the
 * upstream's. `name` is the name of the upstream, for sentences. */
void upstream_read_answer(struct buf *buf, int status, struct str body, const char *model,
                          const char *name, struct upstream_reading *ret_reading);

/* --- streams --- */

enum upstream_event {
    UPSTREAM_EVENT_CHUNK, /* a chunk for the client, in the buf */
    UPSTREAM_EVENT_USAGE, /* the last chunk, with usage only, in the buf */
    UPSTREAM_EVENT_DONE,  /* [DONE] */
    UPSTREAM_EVENT_ERROR, /* an error envelope: in the buf */
    UPSTREAM_EVENT_BAD,   /* not a JSON object */
};
/* Reads the data of one event. *usage is set if the event has usage; *is_finished becomes true if a
 * choice has its finish_reason. */
enum upstream_event upstream_read_event(struct buf *buf, struct str data, const char *model,
                                        struct usage *usage, bool *is_finished);

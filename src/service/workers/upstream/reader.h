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

/* The request that an answer is to. */
struct upstream_asked {
    enum endpoint endpoint;
    struct str request; /* its body */
    const char *model; /* the client's name for the model, in place of the upstream's; NULL: none */
    const char *name;  /* the upstream's, for sentences */
};

/* What an answer says. */
struct upstream_reading {
    /* As far as this answer alone tells:
     *   DONE       a 2xx with what was asked for (whole.h), or a 4xx
     *   NOT_RUN    the upstream is overloaded (overload.h)
     *   TRY_AGAIN  408, 409, 425, and everything else */
    enum outcome outcome;
    bool is_overload;
    int32_t status;  /* status of the result */
    int64_t wait_ms; /* the wait that the body of an overload asks for; negative: none */
    struct str body; /* in the buf that was passed */
    struct usage usage;
};

/* Reads a whole answer, repaired where only lax readers can read it (repair.h). */
void upstream_read_answer(struct buf *buf, int status, struct str body,
                          const struct upstream_asked *asked, struct upstream_reading *ret_reading);

/* --- streams --- */

enum upstream_event {
    UPSTREAM_EVENT_CHUNK, /* a chunk for the client, in the buf */
    UPSTREAM_EVENT_USAGE, /* the last chunk, with usage only, in the buf */
    UPSTREAM_EVENT_DONE,  /* [DONE] */
    UPSTREAM_EVENT_ERROR, /* an error envelope: in the buf */
    UPSTREAM_EVENT_BAD,   /* not a JSON object */
};

/* What the events of a stream have said so far. Zero is a valid start. */
struct upstream_stream_end {
    struct usage usage;
    bool has_choice;  /* an event had a choice */
    bool is_finished; /* a choice had its finish_reason */
    /* After an error event: */
    bool is_overload;
    int32_t status;
    int64_t wait_ms; /* negative: none */
};

/* Reads the data of one event, and notes in *end what it says. */
enum upstream_event upstream_read_event(struct buf *buf, struct str data, const char *model,
                                        struct upstream_stream_end *end);

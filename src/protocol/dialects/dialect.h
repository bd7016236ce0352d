/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dialect: another API's way to ask for an answer, translated at the door: its request becomes the
 * body of a chat (or completion, or embedding) request, and what the worker answers becomes its
 * events or its body. Workers, batches and records know nothing of it.
 *
 * It knows no socket, no thread and no model. A call is made by `read` of its dialect and lives
 * until its answer is written.
 *
 * Thread: one at a time for each call.
 * Memory: dialect_call_free frees a call. `read` takes memory in proportion to the body, at most
 *     two times its bytes, and builds no tree of it.
 * Invariant: the events of a stream, joined, say what the body would have said. */

#include "dialects/chat_reply.h"
#include "dialects/own_words.h"
#include "json/refusal.h"
#include "protocol/worker.h"

/* What the caller of a call is to do. */
enum dialect_wish {
    DIALECT_RUN,    /* run the body */
    DIALECT_LOAD,   /* load the model, and answer without a run */
    DIALECT_UNLOAD, /* let the model leave, and answer at once */
};

struct dialect;

struct dialect_call {
    const struct dialect *dialect;
    enum dialect_wish wish;
    enum endpoint endpoint;  /* the one that `body` is for */
    enum tier tier;          /* how urgent the client says it is */
    struct buf body;         /* the request inside */
    struct buf model;        /* the model as the client wrote it, decoded */
    int64_t keep_ms;         /* how long the model stays after it (duration.h) */
    bool stream;             /* the client wants events */
    struct chat_reply reply; /* what a stream has said up to now */
    size_t calls_shown;      /* calls of tools that are in the stream */
    bool wants_logprobs;     /* the answer shows them */
    bool is_bare;            /* no template: the answer is a text completion */
    bool wants_tools;        /* the model must take tools */
    bool wants_thought;      /* the model must think */
    bool has_begun;          /* the stream's first event was written */
    unsigned block;          /* the kind of the block that is open; 0: none */
    size_t block_index;      /* blocks before it */
    void *own;               /* what the dialect keeps besides; its `release` frees it */
};

/* How long an answer took, in nanoseconds; 0 is not known. */
struct dialect_times {
    int64_t unix_ns; /* now */
    int64_t total_ns, load_ns, prefill_ns, decode_ns;
};

/* How a call ended well. */
struct dialect_end {
    struct usage usage;
    struct dialect_times times;
};

struct dialect {
    const char *stream_type;       /* Content-Type of a stream */
    const struct own_words *words; /* for what a worker refuses */
    /* Reads the request `object`, the span of a valid JSON object, into a call with `dialect` set
     * and its buffers empty. False, with *ret_refusal, for a request that is refused. */
    bool (*read)(struct dialect_call *call, struct str object, struct refusal *ret_refusal);
    /* False, with *ret_refusal, if the model is known not to do what the call asks for, and this
     * API refuses it in words of its own. NULL: the worker refuses. */
    bool (*fits)(const struct dialect_call *call, const struct worker_model *model,
                 struct refusal *ret_refusal);
    /* Appends the events of one chunk of the worker's stream. */
    void (*take)(struct dialect_call *call, const struct piece *piece, int64_t unix_ns,
                 struct buf *events);
    /* Appends the events that end a good stream. */
    void (*end)(struct dialect_call *call, const struct dialect_end *end, struct buf *events);
    /* Appends the event of a failure in the middle of a stream. `error` is the error object of
     * OpenAI's API, as {"error":{…}}. */
    void (*fail)(struct dialect_call *call, int32_t status, struct str error, struct buf *events);
    /* Appends an event that keeps a silent stream open. */
    void (*quiet)(struct dialect_call *call, int64_t unix_ns, struct buf *events);
    /* Appends the whole answer, from the worker's body. False if that body is no answer. */
    bool (*body)(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                 struct buf *body);
    /* Appends the answer of a load or an unload. */
    void (*idle)(struct dialect_call *call, const struct dialect_times *times, struct buf *body);
    /* Frees call->own; NULL: there is nothing. */
    void (*release)(struct dialect_call *call);
};

/* Reads a request of `dialect`. The caller frees the call with dialect_call_free, also after a
 * refusal (NULL, with *ret_refusal, is freed already). */
struct dialect_call *dialect_read(const struct dialect *dialect, struct str object,
                                  struct refusal *ret_refusal);
void dialect_call_free(struct dialect_call *call);

/* The form of errors that the clients of a request's target read. */
enum dialect_errors { ERRORS_OPENAI, ERRORS_OLLAMA, ERRORS_ANTHROPIC };
enum dialect_errors dialect_errors_of(struct str target);
/* Appends an error body in that form, from one of OpenAI's form; any other body as it stands. */
void dialect_write_error(enum dialect_errors form, int32_t status, struct str error,
                         struct buf *body);

/* The sentence of an error body of OpenAI's form, as a raw string; `at` is NULL if it has none. */
struct str dialect_error_message(struct str error);

/* Appends `,"name":` and a value as it stands. */
void dialect_add_member(struct buf *body, const char *name, struct str value);
/* Appends the error body of a worker in the words of the call's dialect, still in OpenAI's form. */
void dialect_own_error(const struct dialect_call *call, struct str error, struct buf *body);

/* Appends a time as RFC 3339 in UTC with a fraction, in quotes. */
void dialect_add_time(struct buf *body, int64_t unix_ns);

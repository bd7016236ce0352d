/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine: one model that answers OpenAI requests, as an object: requests in, chunks and response
 * bodies out. engine_process.h puts it behind a socket; tests drive it in their own process.
 *
 *     submit ─▶ prep ×N ─▶ loop ×1 ─▶ finish ×1 ─▶ result
 *               JSON, template, tokens   steps, text, chunks   body
 *
 * It speaks the messages of wire_messages.h, without the wire. It knows no socket, no file but the
 * model's, no batch. A job that cannot be served is a result with its status, never an error.
 *
 * Thread: submit, cancel and ping from any thread, not from inside an event; open, drain and close
 * from one.  Memory: copies what it is given; what an event hands out is borrowed until it returns.
 * Invariant: every accepted job brings exactly one `result` event, and no `delta` after it. */

#include "engine/served_model.h"

struct engine;

/* An event must not block for long: `delta` and `stats` hold up the loop. NULL: not wanted. */
struct engine_events {
    void *context;
    void (*delta)(void *context, uint64_t id, struct str chunk);              /* loop */
    void (*result)(void *context, uint64_t id, const struct wire_result *it); /* finish */
    /* About once a second with ping 0, and once for every ping with its number. */
    void (*stats)(void *context, uint64_t ping, const struct wire_stats *stats); /* loop */
    /* The model failed; every job ends with a result of status 500, and none is accepted after. */
    void (*fatal)(void *context, const char *sentence); /* loop */
};

#define ENGINE_JOBS_MAX 16384

/* Opens an engine over `model`, which it borrows until engine_close. Of the options it reads the
 * names, prep_threads, max_num_seqs, max_num_batched_tokens, max_model_len and prefix_caching. */
enum err engine_open(struct engine **ret_engine, const struct served_model *model,
                     const struct wire_hello *options, const struct engine_events *events,
                     struct error *error) MUST_CHECK;

/* What the engine serves; strings are borrowed from it. */
void engine_ready(const struct engine *engine, struct wire_ready *ret_ready);

/* False when it takes nothing now: ENGINE_JOBS_MAX are inside, it is draining, or it has failed.
 * The id must not be in use. */
bool engine_submit(struct engine *engine, uint64_t id, const struct wire_job *job) MUST_CHECK;
/* Ends the job soon, with a result of status 499 unless it was done already. Unknown: nothing. */
void engine_cancel(struct engine *engine, uint64_t id);
/* The loop answers with a `stats` event of this number, so a loop that hangs is seen. */
void engine_ping(struct engine *engine, uint64_t ping);

/* Takes no more jobs; waits until all that are inside have their result, at most `timeout_ms`
 * (negative: for ever). False when some are left. */
bool engine_drain(struct engine *engine, int64_t timeout_ms);
/* Cancels what is left, waits for its results, frees. NULL is allowed. */
void engine_close(struct engine *engine);

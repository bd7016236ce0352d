/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine: one model that answers OpenAI requests, as an object: requests in, chunks and response
 * bodies out.
 *
 *     submit ─▶ prep ×N ─▶ loop ×1 ─▶ finish ×1 ─▶ result
 *               JSON, template, tokens   steps, text, chunks   body
 *
 * It takes and gives the messages of wire_messages.h as structs. engine_process.h puts it behind a
 * socket; tests drive it in their own process. It knows no socket, no file except the model's, and
 * no batch. A job that cannot be served gets a result with a status, never an error.
 *
 * Thread: any thread may call submit, cancel and ping, but not from inside an event; one thread
 * calls open, drain and close.
 * Memory: copies its arguments; the arguments of an event are borrowed until it returns.
 * Invariant: every accepted job brings exactly one `result` event, and no `delta` after it. */

#include "engine/served_model.h"

struct engine;

/* An event must return soon: `delta` and `stats` hold up the loop. NULL: not wanted. The comment at
 * the end of a line names the calling thread. */
struct engine_events {
    void *context;
    void (*delta)(void *context, uint64_t id, struct str chunk);              /* loop */
    void (*result)(void *context, uint64_t id, const struct wire_result *it); /* finish */
    /* About once per second with ping 0, and once per ping with its number. */
    void (*stats)(void *context, uint64_t ping, const struct wire_stats *stats); /* loop */
    /* The model failed; every job ends with a result of status 500, and none is accepted after. */
    void (*fatal)(void *context, const char *sentence); /* loop */
};

#define ENGINE_JOBS_MAX 16384

/* Opens an engine over `model`, which it borrows until engine_close. Of the options it reads only
 * the names, prep_threads, max_num_seqs, max_num_batched_tokens, max_model_len, prefix_caching,
 * num_speculative_tokens and trust_request_chat_template. */
enum err engine_open(struct engine **ret_engine, const struct served_model *model,
                     const struct wire_hello *options, const struct engine_events *events,
                     struct error *error) MUST_CHECK;

/* Fills in the READY message: what the engine serves. Its strings are borrowed from the engine. */
void engine_ready(const struct engine *engine, struct wire_ready *ret_ready);

/* False if the engine takes no job now: it has ENGINE_JOBS_MAX, is draining, or has failed. The id
 * must not be in use. */
bool engine_submit(struct engine *engine, uint64_t id, const struct wire_job *job) MUST_CHECK;
/* Ends the job soon, with a result of status 499 unless it was done before. Ignores unknown ids. */
void engine_cancel(struct engine *engine, uint64_t id);
/* Asks the loop for a `stats` event with this number, so that a loop that hangs is noticed. */
void engine_ping(struct engine *engine, uint64_t ping);

/* Takes no more jobs, and waits at most `timeout_ms` (negative: without a limit) until all jobs
 * have their result. False if some have none. */
bool engine_drain(struct engine *engine, int64_t timeout_ms);
/* Cancels the jobs that are left, waits for their results, frees. NULL is allowed. */
void engine_close(struct engine *engine);

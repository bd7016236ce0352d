/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker_echo: a worker that answers every request with the text of its last user message (or its
 * prompt or input), in the shape of the endpoint, counting bytes as tokens. It measures the server
 * alone, and with its faults switched on it tests what the runner promises. A body may ask for a
 * fault of its own in its member "echo":
 *
 *   {"delay_ms": N}   its answer, and all answers after it, come N ms later
 *   {"hang": true}    it is never answered; later requests are
 *   {"down": true}    it takes the worker down
 *   {"each_ms": N}    it takes N ms, one after the other with all that ask for this
 *   {"status": N}     it ends with this error, 400 to 599, a stream after its text; 503 is
 *                     OUTCOME_TRY_AGAIN
 *   {"finish_reason": "length"}  the finish_reason of a chat's answer
 *   {"logprobs": {…}}            the logprobs of a chat's answer, any object
 *
 * Thread: one of its own.
 * Memory: a copy of each waiting body; at most `waiting_max` of them.
 * Invariant: the same request gives the same answer. */

#include "json/envelope.h"
#include "protocol/worker.h"

/* Whether an answer, a whole 200, has the form that its request asks for, as a worker_result says;
 * *ret_param is the field that asks. */
typedef enum shape_end (*echo_look_fn)(struct str request, struct str answer,
                                       const char **ret_param);
/* False, and *ret_refusal, if the request has a constraint that nobody reads. */
typedef bool (*echo_check_fn)(struct str request, struct refusal *ret_refusal);

/* Zero is a valid start. */
struct worker_echo_options {
    const char *const *models; /* names it serves, NULL at the end; NULL: every name */
    uint32_t waiting_max;      /* jobs (default 65536) */
    int64_t latency_ms;        /* from submit to result */
    uint64_t fail_every;       /* every n-th job ends with status 500 */
    uint64_t retryable_every;  /* every n-th job ends with 503 and OUTCOME_TRY_AGAIN */
    uint64_t down_every;       /* every n-th job takes the worker down */
    int64_t down_ms;           /* the time it takes no job then */
    const char *poison;        /* a body that contains this takes the worker down */
    const char *weights;       /* a text that stands for weights; NULL: none */
    bool loading;              /* not ready until worker_echo_set_ready */
    /* The worker holds no answer to a form: one of another form becomes an error of its request.
     * NULL: nothing is compared. */
    echo_check_fn check;
    echo_look_fn look;
};

enum err worker_echo_open(struct worker **ret_worker, const struct worker_echo_options *options,
                          const struct worker_events *events, struct error *error) MUST_CHECK;
void worker_echo_set_ready(struct worker *worker);

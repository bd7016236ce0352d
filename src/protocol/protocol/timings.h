/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* timings: how long requests took, part by part, and how large they were, as histograms.
 *
 * An engine process fills them with its own clock, the worker of an upstream with the server's. The
 * bounds are vLLM's, so that its boards can be used. A request counts
 * once, when it ends, but for the time between tokens, which counts per token. Requests of clients
 * and lines of batches are counted apart, because a line may wait for hours.
 *
 * A request's time is divided so:
 *
 *   taken by the worker ─ queue ─ first sequence starts ─ prefill ─ first token ─ decode ─ last
 * token
 *
 * A line is taken when the runner hands it to the worker, not when its batch was created.
 *
 * Thread: one, or the lock of their owner.
 * Memory: none of their own.
 * Invariant: counts never fall. */

#include "base/histogram.h"

#include <stdbool.h>

enum timing {
    TIMING_FIRST_TOKEN,    /* from the taking to the first sampled token */
    TIMING_BETWEEN_TOKENS, /* between two sampled tokens of a sequence, or two events of a stream */
    TIMING_PER_TOKEN,      /* decode time by the tokens after the first */
    TIMING_WHOLE,          /* from the taking to the end */
    TIMING_QUEUE,
    TIMING_INFERENCE, /* prefill and decode */
    TIMING_PREFILL,
    TIMING_DECODE,
    TIMING_PROMPT_TOKENS,
    TIMING_GENERATED_TOKENS,
    TIMING_MAX_TOKENS, /* the most tokens that a sequence might have */
    TIMING_CHOICES,    /* n */
    TIMING_COUNT
};

/* Where a request comes from: a single client, or a batch. Its label in /metrics is `source`. */
enum timing_origin { TIMING_CLIENT, TIMING_LINE, TIMING_ORIGINS };

/* How requests ended. */
enum timing_end { ENDED_STOP, ENDED_LENGTH, ENDED_CANCELLED, ENDED_ERROR, TIMING_ENDS };

/* Zero is empty. */
struct timings {
    struct histogram of[TIMING_ORIGINS][TIMING_COUNT];
    uint64_t ends[TIMING_ORIGINS][TIMING_ENDS];
    struct histogram step_tokens; /* rows per step */
};

extern const struct histogram_bounds timing_bounds[TIMING_COUNT];
extern const struct histogram_bounds timing_step_bounds;

void timings_add(struct timings *timings, enum timing_origin origin, enum timing timing,
                 double value);
/* Adds a time in seconds, given in nanoseconds; a negative one counts as 0. */
void timings_add_ns(struct timings *timings, enum timing_origin origin, enum timing timing,
                    int64_t ns);
void timings_merge(struct timings *timings, const struct timings *more);

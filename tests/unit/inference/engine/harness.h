/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* harness: an engine over a toy (or another model), with its events collected for a test.
 *
 * Thread: the test's; the events come from others, behind a lock.
 * Memory: harness_close frees. */

#include "engine/engine.h"
#include "toy.h"

#include <pthread.h>

#define HARNESS_JOBS_MAX 512

struct harness_job {
    struct buf deltas; /* each chunk and a newline */
    uint32_t delta_count;
    bool is_done;
    uint32_t done_rank;        /* 0 for the first result of all */
    struct wire_result result; /* without its body */
    json_t *body;              /* owned */
    struct buf text;           /* the body as it came */
};

struct harness {
    struct toy toy;
    const struct served_model *model;
    struct engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct harness_job jobs[HARNESS_JOBS_MAX]; /* by id */
    uint32_t done_count;
    uint32_t stats_count;
    uint64_t last_ping;
    struct wire_stats stats;
    char fatal[ERROR_TEXT_BYTES];
};

void harness_open(struct harness *harness, const struct toy_options *toy,
                  const struct wire_hello *hello);
/* Over another model, which outlives it. */
void harness_open_model(struct harness *harness, const struct served_model *model,
                        const struct wire_hello *hello);
void harness_close(struct harness *harness);

/* Submits body number `id`, which the engine must take. */
void harness_submit(struct harness *harness, uint64_t id, enum endpoint endpoint, bool stream,
                    const char *body);
/* Waits for the result and returns its status. The test fails after a minute. */
int harness_wait(struct harness *harness, uint64_t id);
/* Both at once; not streamed. */
int harness_ask(struct harness *harness, uint64_t id, enum endpoint endpoint, const char *body);
/* The text of a choice of a result, of either kind; NULL when there is none. */
const char *harness_text(const struct harness *harness, uint64_t id, size_t choice);
const char *harness_reason(const struct harness *harness, uint64_t id, size_t choice);
/* The text of a choice out of its chunks, in a string the caller frees. Checks on the way that
 * every chunk keeps the rules of contract.md §3.3. */
char *harness_streamed(const struct harness *harness, uint64_t id, uint32_t choice);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state: the inside of an engine, shared by engine.c and its stages. Internal to engine/.
 *
 * No stage ever waits for the next one: a job is in one ring at a time, the table bounds the number
 * of jobs, and every ring has room for all of them. Only cancels and pings can fill the loop's
 * ring; their callers wait.
 *
 * Thread: see the members.
 * Memory: the engine owns all but the model. */

#include "base/ring.h"
#include "engine/answer.h"
#include "engine/embed_queue.h"
#include "engine/engine.h"
#include "engine/shapes.h"
#include "engine/step_clock.h"

#include <pthread.h>

#define ENGINE_PREP_THREADS_MAX 16
#define ENGINE_PROBES_MAX 256 /* cancels and pings under way */
#define ENGINE_FINGERPRINT_BYTES 24

/* A message to the loop: a job that is ready to run, the number of a job to cancel, a ping, or only
 * a wake-up. */
struct loop_message {
    enum { LOOP_JOB, LOOP_CANCEL, LOOP_PING, LOOP_WAKE } kind;
    struct job *job;
    uint32_t slot;
    uint64_t id;
};

struct engine {
    /* Constant after engine_open. */
    const struct served_model *model;
    struct engine_events events;
    char *names[WIRE_NAMES_MAX];
    size_t name_count;
    char fingerprint[ENGINE_FINGERPRINT_BYTES];
    struct answer_source source;
    struct prep_options limits; /* without its clock members */
    uint64_t kv_tokens;
    uint32_t text_tokens_max; /* most tokens of one text to embed */
    int32_t end_tokens[SERVED_END_TOKENS_MAX];
    uint32_t end_token_count;
    uint64_t salt_key[2]; /* random */

    /* One token per job in the two queues: prep waits for tokens, and then takes an interactive job
     * before a line of a batch. */
    struct ring *prep_ring;      /* char */
    struct ring *prep_queues[2]; /* struct job *: interactive tiers, other tiers */
    struct shapes *shapes;       /* NULL: the model generates nothing */
    struct ring *loop_ring;      /* struct loop_message */
    struct ring *finish_ring;    /* struct job * */
    pthread_t prep_threads[ENGINE_PREP_THREADS_MAX];
    size_t prep_thread_count;
    pthread_t loop_thread, finish_thread;
    bool has_loop_thread, has_finish_thread;

    /* The jobs of the engine; under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t emptied;
    struct job **jobs;    /* (ENGINE_JOBS_MAX) by slot; NULL: free */
    uint32_t *free_slots; /* (ENGINE_JOBS_MAX) used as a stack */
    uint32_t job_count;
    bool is_refusing; /* draining, closing or failed */

    pthread_mutex_t large; /* held while a large body is prepared, so that no two cost at a time */

    atomic_size_t vector_bytes; /* bytes of the vectors of all jobs */

    /* Only the loop touches these. */
    struct scheduler *scheduler;     /* NULL: the model generates nothing */
    struct embed_queue *embed_queue; /* NULL: the model makes no embeddings */
    struct job **running;            /* (ENGINE_JOBS_MAX) by slot: jobs in one of these two */
    struct buf chunk;
    int64_t stats_due_ns;
    int64_t step_begun_ns;
    int64_t step_ended_ns; /* end of the last step */
    int64_t step_ns_max;
    struct step_clock step_clock;
    int64_t urgent_ns;   /* arrival of the newest interactive job; 0: none has come */
    int64_t event_ns;    /* the time of the events being reported; 0: the clock was not read yet */
    uint64_t timed_rows; /* rows of the steps in timings.step_tokens */
    struct timings timings;
    struct wire_stats stats; /* as last read */
    bool has_failed;
};

/* The main functions of the threads; `user` is the engine. */
void *prep_main(void *user);
void *loop_main(void *user);
void *finish_main(void *user);

/* Events of the scheduler and of the embed_queue, on the loop; `user` is the engine. */
struct scheduler_event;
const uint32_t *loop_allowed(void *user, uint64_t id, uint32_t sequence);
uint32_t loop_given(void *user, uint64_t id, uint32_t sequence, uint32_t room, int32_t *ret_tokens);
uint32_t loop_ahead(void *user, uint64_t id, uint32_t sequence, const int32_t *tokens,
                    uint32_t count, const uint32_t **ret_allowed);
void loop_on_event(void *user, const struct scheduler_event *event);
void loop_on_embedded(void *user, struct job *job);

/* loop_sampling.c: the sampling of every choice of a job, except its seed. */
struct sampling loop_sampling(const struct engine *engine, const struct job *job);

/* loop_stats.c */
bool loop_has_work(const struct engine *engine);
/* Sends the statistics; `ping` is the number of the question, 0 for none. */
void loop_report_stats(struct engine *engine, uint64_t ping);

/* loop_timings.c */
/* The time of the scheduler's events that are being reported. */
int64_t loop_event_ns(struct engine *engine);
/* A sequence of the job starts. */
void loop_time_start(struct engine *engine, struct job *job);
/* A token of the job was sampled. `sequence_ns` is the time of the last one of its sequence, 0
 * before the first, and is set; NULL: the time between tokens is not of interest. */
void loop_time_token(struct engine *engine, struct job *job, int64_t *sequence_ns);
/* The job leaves the loop. */
void loop_time_end(struct engine *engine, const struct job *job);
/* A step has ended. */
void loop_time_step(struct engine *engine);

/* Takes the job out of the table; on the finish thread. */
void engine_forget(struct engine *engine, struct job *job);

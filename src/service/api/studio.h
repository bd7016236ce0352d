/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio: batches on their way to the Label Studio of this server and back, each a
 * `quern label-studio` in a process of its own (label_studio/studio_child.h).
 *
 * The process gets requests, results and judgements of its batch as files, and never calls this
 * server: no key of a client leaves the server. Its events (cli/label_studio_events.h) become the
 * state of the job, and the judgements that it pulled become rows under the key of the client that
 * started it.
 *
 *   label_studio/<batch>.json     the newest job of the batch, as GET shows it
 *   label_studio/<batch>-X.jsonl  the link (label_studio/link.h); X is of the URL
 *
 * Both may be lost, and no backup has them. Label Studio itself tells which tasks exist, and the id
 * of a judgement tells whether it is a row already. The link saves time. It also keeps a chunk that
 * was on its way from being sent twice.
 *
 * Thread: one per job; `lock` guards the list and the states.
 * Memory: one json_t per job; a job holds the index of its batch (answers/answers.h).
 * Invariant: at most one job per batch, and STUDIO_JOBS_MAX in all. */

#include "base/err.h"
#include "store/batches.h"

#include <jansson.h>
#include <pthread.h>

struct api;

#define STUDIO_JOBS_MAX 4
#define STUDIO_CONFLICTS_SHOWN 50

struct studio_job {
    struct studio_job *next;
    struct api *api;
    char batch_id[STORE_ID_BYTES];
    char key_id[STORE_ID_BYTES]; /* key of the client that started it; empty: none */
    char owner[OWNER_BYTES];
    uint64_t owner_bytes_max; /* limit for that client's key; 0: no bound */
    size_t action;            /* index of studio_actions */
    pthread_t thread;
    bool is_over;  /* guarded by the lock of the jobs, like `state` */
    json_t *state; /* the members that GET shows */
};

extern const char *const studio_actions[]; /* NULL at the end */

/* The whole work of a job, on its own thread. */
enum err studio_job_run(struct studio_job *job, struct error *error) MUST_CHECK;
/* Whether a job of the batch is under way. Any thread. */
bool studio_is_running(struct api *api, const char *batch_id);
/* studio_tasks.c: how many of these requests have a task, as far as the links of the batch tell. */
uint64_t studio_count_tasks(struct api *api, const char *batch_id, const struct str *custom_ids,
                            size_t count);
/* True if the job is to end. Any thread. */
bool studio_job_is_stopped(struct studio_job *job);
/* Calls `change` with the state, under the lock. */
void studio_job_change(struct studio_job *job, void (*change)(json_t *state, const json_t *event),
                       const json_t *event);

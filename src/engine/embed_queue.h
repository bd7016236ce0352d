/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embed_queue: the embeddings requests inside an engine, computed step by step. What the scheduler
 * is for requests that generate, without a cache and without state between steps.
 *
 * A step is one call of the model with whole texts of one or many requests, as many as fill the
 * machine; a text that is longer than that goes alone. Requests go by tier and priority. Where
 * people wait, those of one level take turns: one that has had a part of a step and is not done
 * stands behind the others, so that 2048 texts hold nobody up for longer than a step. Lines of
 * batches are finished one after the other, so that their results are there as soon as can be.
 *
 * Thread: the engine's loop.  Memory: the jobs are lent to it from embed_queue_add until `on_done`
 * or embed_queue_remove. It allocates the vectors of a job when its turn comes, and none while
 * others that are not yet written out hold EMBED_QUEUE_HELD_BYTES_MAX (one job is always allowed).
 */

#include "engine/job.h"

#define EMBED_QUEUE_HELD_BYTES_MAX ((size_t)256 * 1024 * 1024)

struct embed_queue;

struct embed_queue_options {
    const struct served_embedder *model;
    uint32_t step_tokens; /* at least 1 */
    /* Vectors of all jobs: added to here, taken from by whoever frees them. */
    atomic_size_t *held_bytes;
    void (*on_done)(void *user, struct job *job); /* the job is no longer the queue's */
    void *user;
};

/* Since it was opened, and now. */
struct embed_queue_stats {
    uint64_t steps;
    uint64_t tokens;
    uint32_t running, waiting; /* jobs whose turn has come, or not */
};

struct embed_queue *embed_queue_open(const struct embed_queue_options *options);
/* Does not touch jobs. NULL is allowed. */
void embed_queue_close(struct embed_queue *queue);

void embed_queue_add(struct embed_queue *queue, struct job *job, int64_t level);
/* The job must be inside. */
void embed_queue_remove(struct embed_queue *queue, struct job *job);
/* False also while there is no room for the vectors of the next job. */
bool embed_queue_has_work(const struct embed_queue *queue);
/* One step; there must be work. Calls on_done for every job that is done with it. An error is the
 * model's, and the queue is not to be used any more. */
enum err embed_queue_step(struct embed_queue *queue, struct error *error) MUST_CHECK;
void embed_queue_stats(const struct embed_queue *queue, struct embed_queue_stats *ret_stats);

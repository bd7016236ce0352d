/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embed_queue: the embeddings requests inside an engine, computed step by step. It is to them what
 * the scheduler is to requests that generate, without a cache and without state between steps.
 *
 * A step is one call of the model with whole texts of one or many requests, as many as step_tokens
 * allows; a longer text goes alone. Requests go by tier and priority. Interactive requests of one
 * level take turns: a request that had a part of a step and is not done goes behind the others, so
 * that 2048 texts delay no other client by more than a step. Lines of batches are finished one
 * after the other, so that each result comes as early as possible.
 *
 * Thread: the engine's loop.
 * Memory: borrows a job from embed_queue_add until `on_done` or embed_queue_remove. It allocates
 * the vectors of a job when its turn comes, and only if all vectors that are not yet written out
 * then take at most EMBED_QUEUE_HELD_BYTES_MAX (one job is always allowed). */

#include "engine/job.h"

#define EMBED_QUEUE_HELD_BYTES_MAX ((size_t)256 * 1024 * 1024)

struct embed_queue;

struct embed_queue_options {
    const struct served_embedder *model;
    uint32_t step_tokens; /* at least 1 */
    /* Bytes of the vectors of all jobs: the queue adds, the code that frees vectors subtracts. */
    atomic_size_t *held_bytes;
    void (*on_done)(void *user, struct job *job); /* the queue gives the job back */
    void *user;
};

/* Totals since the queue was opened, and counts of now. */
struct embed_queue_stats {
    uint64_t steps;
    uint64_t tokens;
    uint32_t running, waiting; /* jobs whose turn has come, and the others */
};

struct embed_queue *embed_queue_open(const struct embed_queue_options *options);
/* Frees the queue and no job. NULL is allowed. */
void embed_queue_close(struct embed_queue *queue);

void embed_queue_add(struct embed_queue *queue, struct job *job, int64_t level);
/* Takes out a job, which must be in the queue. */
void embed_queue_remove(struct embed_queue *queue, struct job *job);
/* True if a step can run; false also while the vectors of the next job have no room. */
bool embed_queue_has_work(const struct embed_queue *queue);
/* Runs one step; embed_queue_has_work must be true. Calls on_done for every job that the step
 * completes. After an error, which is the model's, the queue must not be used any more. */
enum err embed_queue_step(struct embed_queue *queue, struct error *error) MUST_CHECK;
void embed_queue_stats(const struct embed_queue *queue, struct embed_queue_stats *ret_stats);

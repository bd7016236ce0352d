/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/embed_queue.h"

#include "base/mem.h"
#include "base/no_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct embed_queue {
    struct embed_queue_options options;
    struct job *first, *last; /* by level, then by turn */
    struct embed_queue_stats stats;

    /* The current step: text i belongs to owners[i]. */
    struct embed_sequence *sequences; /* (step_tokens) a text has at least one token */
    struct job **owners;              /* (step_tokens) texts of one job are neighbours */
    uint32_t count;
    float *vectors; /* (step_tokens, width) */
};

struct embed_queue *embed_queue_open(const struct embed_queue_options *options) {
    struct embed_queue *queue = calloc(1, sizeof *queue);
    size_t texts_max = options->step_tokens;
    assert(texts_max > 0);
    if (!queue) no_memory();
    queue->options = *options;
    queue->sequences = mem_new(texts_max, sizeof *queue->sequences);
    queue->owners = mem_new(texts_max, sizeof *queue->owners);
    queue->vectors = mem_new(texts_max * options->model->width, sizeof *queue->vectors);
    return queue;
}

void embed_queue_close(struct embed_queue *queue) {
    if (!queue) return;
    free(queue->sequences);
    free(queue->owners);
    free(queue->vectors);
    free(queue);
}

/* Links a job behind all of its level. */
static void link_job(struct embed_queue *queue, struct job *job) {
    struct job *before = queue->last;
    while (before && before->embedding.level > job->embedding.level)
        before = before->embedding.previous;
    struct job *after = before ? before->embedding.next : queue->first;
    job->embedding.previous = before;
    job->embedding.next = after;
    *(before ? &before->embedding.next : &queue->first) = job;
    *(after ? &after->embedding.previous : &queue->last) = job;
}

static void unlink_job(struct embed_queue *queue, struct job *job) {
    struct job *before = job->embedding.previous, *after = job->embedding.next;
    *(before ? &before->embedding.next : &queue->first) = after;
    *(after ? &after->embedding.previous : &queue->last) = before;
    job->embedding.next = job->embedding.previous = NULL;
}

void embed_queue_add(struct embed_queue *queue, struct job *job, int64_t level) {
    job->embedding.level = level;
    link_job(queue, job);
    queue->stats.waiting++;
}

static void leave(struct embed_queue *queue, struct job *job) {
    unlink_job(queue, job);
    if (job->embedding.vectors)
        queue->stats.running--;
    else
        queue->stats.waiting--;
}

void embed_queue_remove(struct embed_queue *queue, struct job *job) {
    leave(queue, job);
}

static size_t vector_bytes(const struct embed_queue *queue, const struct job *job) {
    return (size_t)job->embedding.request.count * queue->options.model->width * sizeof(float);
}

static bool has_room(const struct embed_queue *queue, const struct job *job) {
    size_t held = atomic_load(queue->options.held_bytes);
    return job->embedding.vectors || held == 0 ||
           held + vector_bytes(queue, job) <= EMBED_QUEUE_HELD_BYTES_MAX;
}

bool embed_queue_has_work(const struct embed_queue *queue) {
    return queue->first && has_room(queue, queue->first);
}

static void begin(struct embed_queue *queue, struct job *job) {
    struct embedding *embedding = &job->embedding;
    if (embedding->vectors) return;
    embedding->vector_bytes = vector_bytes(queue, job);
    embedding->vectors = mem_alloc(embedding->vector_bytes);
    atomic_fetch_add(queue->options.held_bytes, embedding->vector_bytes);
    queue->stats.waiting--;
    queue->stats.running++;
}

/* Takes the texts of the next step, in order, until one does not fit. */
static void gather(struct embed_queue *queue) {
    uint32_t tokens = 0;
    queue->count = 0;
    for (struct job *job = queue->first; job; job = job->embedding.next) {
        struct embedding *embedding = &job->embedding;
        if (!has_room(queue, job)) return;
        while (embedding->given < embedding->request.count) {
            const struct embed_sequence *text = &embedding->sequences[embedding->given];
            bool fits = text->count <= queue->options.step_tokens - tokens;
            if (queue->count > 0 && !fits) return;
            begin(queue, job);
            queue->sequences[queue->count] = *text;
            queue->owners[queue->count++] = job;
            embedding->given++;
            queue->stats.tokens += text->count;
            if (!fits) return; /* a text that is too long for a step goes alone */
            tokens += text->count;
        }
    }
}

/* Computes one text alone. A text that the model refuses fails its own request and no other. */
static enum err compute_alone(struct embed_queue *queue, uint32_t index, struct error *error) {
    const struct served_embedder *model = queue->options.model;
    float *vector = queue->vectors + (size_t)index * model->width;
    enum err err = model->embed(model->self, &queue->sequences[index], 1, vector, error);
    if (err != ERR_INVALID) return err;
    struct job *job = queue->owners[index];
    job->is_refused = true;
    refuse_status(&job->refusal, 500, NULL, NULL,
                  "The model could not embed a text of this request: %s.", error->text);
    memset(vector, 0, model->width * sizeof *vector);
    return OK;
}

static enum err compute(struct embed_queue *queue, struct error *error) {
    const struct served_embedder *model = queue->options.model;
    enum err err = model->embed(model->self, queue->sequences, queue->count, queue->vectors, error);
    if (err != ERR_INVALID) return err;
    err = OK;
    for (uint32_t i = 0; i < queue->count && err == OK; i++) err = compute_alone(queue, i, error);
    return err;
}

static void hand_out(struct embed_queue *queue) {
    uint32_t width = queue->options.model->width;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct embedding *embedding = &queue->owners[i]->embedding;
        const float *vector = queue->vectors + (size_t)i * width;
        memcpy(embedding->vectors + (size_t)embedding->done++ * width, vector,
               width * sizeof *vector);
    }
}

/* Gives back the jobs that are done, and puts unfinished interactive jobs behind the others of
 * their level. */
static void take_turns(struct embed_queue *queue) {
    for (uint32_t i = 0; i < queue->count; i++) {
        struct job *job = queue->owners[i];
        if (i + 1 < queue->count && queue->owners[i + 1] == job) continue;
        if (job->embedding.done == job->embedding.request.count) {
            leave(queue, job);
            queue->options.on_done(queue->options.user, job);
        } else if (tier_is_interactive(job->tier)) {
            unlink_job(queue, job);
            link_job(queue, job);
        }
    }
}

enum err embed_queue_step(struct embed_queue *queue, struct error *error) {
    gather(queue);
    assert(queue->count > 0);
    enum err err = compute(queue, error);
    if (err != OK) return err;
    queue->stats.steps++;
    hand_out(queue);
    take_turns(queue);
    return OK;
}

void embed_queue_stats(const struct embed_queue *queue, struct embed_queue_stats *ret_stats) {
    *ret_stats = queue->stats;
}

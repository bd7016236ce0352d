/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/queue.h"

#include "base/mem.h"
#include "base/rng.h"
#include "curation/judged.h"

#include <stdlib.h>

const char *const queue_names[] = {"all",           "sampled",           "uncertain",
                                   "runs_disagree", "curators_disagree", NULL};

/* Marks `size` different lines by Floyd's algorithm. All lines of the batch take part, even without
 * a result: so the sample of a running batch does not change. */
static void mark_sample(unsigned char *marks, uint32_t lines, uint64_t seed, uint64_t size) {
    uint32_t count = size < lines ? (uint32_t)size : lines;
    for (uint32_t last = lines - count; last < lines; last++) {
        uint32_t line = (uint32_t)(rng_unit_at(seed, last) * ((double)last + 1));
        marks[marks[line] ? last : line] = 1;
    }
}

/* Marks the lines on which the opinions of curators differ. */
static enum err mark_disputed(unsigned char *marks, const struct queue_options *options,
                              struct error *error) {
    struct judged *judged;
    struct judged_line line;
    enum err err;
    judged_open(&judged, options->store, options->batch_id, 0, UINT64_MAX);
    while ((err = judged_next(judged, NULL, NULL, &line, error)) == OK && line.count > 0) {
        if (line.line <= options->lines && !line.is_agreed) marks[line.line - 1] = 1;
        if (options->is_gone && options->is_gone(options->context)) {
            err = err_set(error, ERR_CANCELLED, "The client has gone.");
            break;
        }
    }
    judged_close(judged);
    return err;
}

/* Sets which lines are in the queue, and their order. */
static enum err choose(struct queue *queue, const struct queue_options *options,
                       struct error *error) {
    if (options->kind == QUEUE_ALL) return OK;
    if (options->kind == QUEUE_UNCERTAIN) {
        queue->filter = (struct answers_filter){STR(".entropy"), ANSWERS_GE, STR("0")};
        queue->query.filters = &queue->filter;
        queue->query.filter_count = 1;
        queue->query.sort = STR(".entropy");
        queue->query.descending = true;
        return OK;
    }
    queue->only = mem_new((size_t)options->lines + 1, 1);
    queue->query.marks.only = queue->only;
    if (options->kind == QUEUE_CURATORS_DISAGREE) return mark_disputed(queue->only, options, error);
    if (options->kind == QUEUE_SAMPLED)
        mark_sample(queue->only, options->lines, options->seed, options->size);
    else
        answers_mark_different(options->index, options->with, queue->only, options->lines);
    return OK;
}

enum err queue_make(struct queue *queue, const struct queue_options *options, struct error *error) {
    *queue = (struct queue){.seen = mem_new((size_t)options->lines + 1, 1)};
    queue->query.marks = (struct answers_marks){.seen = queue->seen, .count = options->lines};
    enum err err = store_judgement_mark(options->store, options->batch_id, options->curator,
                                        queue->seen, options->lines, error);
    if (err == OK) err = choose(queue, options, error);
    if (err != OK) queue_release(queue);
    return err;
}

void queue_release(struct queue *queue) {
    free(queue->only);
    free(queue->seen);
}

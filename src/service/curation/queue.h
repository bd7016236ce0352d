/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* queue: the lines of a batch that a curator is to judge, and their order, as a query of the
 * batch's index (answers/answers.h). Only lines that have a result are in a queue. It knows no HTTP
 * and reads no result.
 *
 *   all                every line, in the order of the input
 *   sampled            lines drawn by a seed, the same for every curator and every call
 *   uncertain          lines whose answer has an entropy, the most uncertain first
 *   runs_disagree      lines whose labels differ from those of the same custom_id in another batch
 *   curators_disagree  lines on which the opinions of curators differ
 *
 * A line that the curator has judged counts as seen.
 *
 * Thread: one per struct.
 * Memory: at most 2 bytes per line of the batch, which queue_release frees.
 * Invariant: a cursor of the query stays right while judgements and results come in. */

#include "answers/answers.h"

enum queue_kind {
    QUEUE_ALL,
    QUEUE_SAMPLED,
    QUEUE_UNCERTAIN,
    QUEUE_RUNS_DISAGREE,
    QUEUE_CURATORS_DISAGREE,
    QUEUE_KIND_COUNT
};
extern const char *const queue_names[]; /* NULL at the end */

struct queue_options {
    enum queue_kind kind;
    uint64_t seed, size; /* for sampled: the size is a number of lines */
    struct store *store;
    const char *batch_id;
    uint32_t lines;      /* lines in the batch */
    const char *curator; /* whose judgements make a line seen */
    struct answers_index *index;
    struct answers_index *with;     /* for runs_disagree: index of the other batch */
    bool (*is_gone)(void *context); /* ERR_CANCELLED once it is true; NULL: it never is */
    void *context;
};

struct queue {
    struct answers_query query; /* the caller adds after, limit and marks.shows_seen */
    struct answers_filter filter;
    unsigned char *only, *seen; /* for query.marks */
};

/* Fills *queue, which must not move before queue_release. */
enum err queue_make(struct queue *queue, const struct queue_options *options,
                    struct error *error) MUST_CHECK;
void queue_release(struct queue *queue);

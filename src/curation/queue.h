/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* queue: which lines of a batch a curator is to judge, and in which order. Only lines that have a
 * result are in a queue.
 *
 *   all                every line, in the order of the input
 *   sampled            lines drawn by a seed, equal for every curator and at every call
 *   uncertain          lines that tell how uncertain the model was, the most uncertain first
 *   runs_disagree      lines whose labels differ from those of the same custom_id in another batch
 *   curators_disagree  lines on which the opinions of curators differ
 *
 * A cursor names a line and its place in the order, so that it stays right while judgements and
 * results come in.
 *
 * Thread: one per struct.
 * Memory: 13 bytes per line of the batch; queue_release frees them. */

#include "curation/deck.h"

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
    uint64_t seed, size; /* of sampled */
    struct store *store;
    const char *batch_id;
    const char *curator; /* whose judgements make a line done */
    struct deck_reader *reader;
    struct deck_reader *with; /* of runs_disagree: the other batch */
};

struct queue_entry {
    uint32_t line;
    float uncertainty; /* of uncertain; else 0 */
};

struct queue {
    enum queue_kind kind;
    struct queue_entry *entries; /* (count) in order */
    size_t count;
    unsigned char *is_judged; /* by line: by the curator */
    uint64_t left;            /* entries that the curator has not judged */
};

enum err queue_make(struct queue *ret_queue, const struct queue_options *options,
                    struct error *error) MUST_CHECK;
void queue_release(struct queue *queue);

#define QUEUE_CURSOR_BYTES 64
/* Writes the cursor behind an entry. */
void queue_write_cursor(const struct queue *queue, const struct queue_entry *entry,
                        char ret_cursor[QUEUE_CURSOR_BYTES]);
/* The index of the first entry behind a cursor; false if the text is none of this queue. */
bool queue_seek(const struct queue *queue, struct str cursor, size_t *ret_index);

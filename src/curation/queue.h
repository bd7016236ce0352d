/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* queue: the lines of a batch that a curator shall judge, in their order. Only lines that have a
 * result are in a queue.
 *
 *   all                every line, in the order of the input
 *   sampled            lines drawn by a seed, the same for every curator and every call
 *   uncertain          lines that tell how uncertain the model was, the most uncertain first
 *   runs_disagree      lines whose labels differ from those of the same custom_id in another batch
 *   curators_disagree  lines on which the opinions of curators differ
 *
 * A cursor names a line and its place in the order, so that it stays right while judgements and
 * results come in.
 *
 * Thread: one per struct.
 * Memory: 9 bytes per line of the batch, which queue_release frees; while it is made, also copies
 *     of the facts of its lines (facts.h).
 * Invariant: entries stand in falling order of uncertainty, then in the order of the input. */

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
    uint64_t seed, size; /* of sampled: the size is a number of lines */
    struct store *store;
    const char *batch_id;
    const char *curator; /* whose judgements make a line done */
    struct deck_reader *reader;
    struct deck_reader *with; /* of runs_disagree: reader of the other batch */
};

struct queue_entry {
    uint32_t line;
    float uncertainty; /* in nats; 0 in all queues but uncertain */
};

struct queue {
    enum queue_kind kind;
    struct queue_entry *entries; /* (count) in order */
    size_t count;
    unsigned char *is_judged; /* by line: 1 if the curator has judged it */
    uint64_t left;            /* entries that the curator has not judged */
};

enum err queue_make(struct queue *ret_queue, const struct queue_options *options,
                    struct error *error) MUST_CHECK;
void queue_release(struct queue *queue);

#define QUEUE_CURSOR_BYTES 64
/* Writes the cursor behind an entry. */
void queue_write_cursor(const struct queue *queue, const struct queue_entry *entry,
                        char ret_cursor[QUEUE_CURSOR_BYTES]);
/* The index of the first entry behind a cursor; false if the text is no cursor of this kind. */
bool queue_seek(const struct queue *queue, struct str cursor, size_t *ret_index);

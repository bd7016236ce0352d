/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/queue.h"

#include "base/mem.h"
#include "base/rng.h"
#include "curation/facts.h"
#include "curation/judged.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const queue_names[] = {"all",           "sampled",           "uncertain",
                                   "runs_disagree", "curators_disagree", NULL};

static void add(struct queue *queue, uint32_t line, float uncertainty) {
    queue->entries[queue->count++] = (struct queue_entry){line, uncertainty};
}

/* --- the kinds --- */

static void take_marked(struct queue *queue, const unsigned char *marks, uint32_t lines) {
    for (uint32_t i = 0; i < lines; i++)
        if (marks[i]) add(queue, i, 0);
}

/* Draws `size` different lines by Floyd's algorithm. All lines of the batch take part, even without
 * a result: so the sample of a running batch does not change. */
static void take_sample(struct queue *queue, const struct queue_options *options,
                        const unsigned char *has_result, uint32_t lines) {
    unsigned char *drawn = mem_new((size_t)lines + 1, 1);
    uint32_t size = options->size < lines ? (uint32_t)options->size : lines;
    for (uint32_t last = lines - size; last < lines; last++) {
        uint32_t line = (uint32_t)(rng_unit_at(options->seed, last) * ((double)last + 1));
        drawn[drawn[line] ? last : line] = 1;
    }
    for (uint32_t i = 0; i < lines; i++) drawn[i] = drawn[i] && has_result[i];
    take_marked(queue, drawn, lines);
    free(drawn);
}

/* Orders entries by falling uncertainty, then by line. */
static int compare(const void *a, const void *b) {
    const struct queue_entry *one = a, *other = b;
    if (one->uncertainty != other->uncertainty)
        return one->uncertainty > other->uncertainty ? -1 : 1;
    return one->line < other->line ? -1 : one->line > other->line;
}

static enum err take_uncertain(struct queue *queue, const struct queue_options *options,
                               uint32_t lines, struct error *error) {
    struct fact *facts;
    enum err err = facts_copy(options->reader, &facts, error);
    if (err != OK) return err;
    for (uint32_t i = 0; i < lines; i++)
        if (facts[i].is_known && facts[i].uncertainty >= 0) add(queue, i, facts[i].uncertainty);
    qsort(queue->entries, queue->count, sizeof *queue->entries, compare);
    free(facts);
    return OK;
}

static enum err take_different(struct queue *queue, const struct queue_options *options,
                               uint32_t lines, struct error *error) {
    struct fact *facts = NULL, *others = NULL;
    uint32_t other;
    enum err err = facts_copy(options->reader, &facts, error);
    if (err == OK) err = facts_copy(options->with, &others, error);
    for (uint32_t i = 0; err == OK && i < lines; i++)
        if (facts[i].is_known &&
            deck_match(options->reader->deck, i, options->with->deck, &other) &&
            others[other].is_known && others[other].labels != facts[i].labels)
            add(queue, i, 0);
    free(facts);
    free(others);
    return err;
}

static enum err take_disputed(struct queue *queue, const struct queue_options *options,
                              uint32_t lines, struct error *error) {
    struct judged *judged;
    struct judged_line line;
    enum err err;
    judged_open(&judged, options->store, options->batch_id, 0, UINT64_MAX);
    while ((err = judged_next(judged, &line, error)) == OK && line.count > 0)
        if (line.line <= lines && !judged_is_agreed(&line)) add(queue, (uint32_t)line.line - 1, 0);
    judged_close(judged);
    return err;
}

/* --- making --- */

static enum err take(struct queue *queue, const struct queue_options *options, uint32_t lines,
                     struct error *error) {
    unsigned char *has_result;
    switch (options->kind) {
    case QUEUE_UNCERTAIN: return take_uncertain(queue, options, lines, error);
    case QUEUE_RUNS_DISAGREE: return take_different(queue, options, lines, error);
    case QUEUE_CURATORS_DISAGREE: return take_disputed(queue, options, lines, error);
    case QUEUE_ALL:
    case QUEUE_SAMPLED:
    case QUEUE_KIND_COUNT: break;
    }
    has_result = deck_results(options->reader->deck);
    if (options->kind == QUEUE_SAMPLED)
        take_sample(queue, options, has_result, lines);
    else
        take_marked(queue, has_result, lines);
    free(has_result);
    return OK;
}

enum err queue_make(struct queue *ret_queue, const struct queue_options *options,
                    struct error *error) {
    uint32_t lines = deck_lines(options->reader->deck);
    struct queue queue = {.kind = options->kind};
    queue.entries = mem_new((size_t)lines + 1, sizeof *queue.entries);
    queue.is_judged = mem_new((size_t)lines + 1, 1);
    enum err err = store_judgement_mark(options->store, options->batch_id, options->curator,
                                        queue.is_judged, lines, error);
    if (err == OK) err = take(&queue, options, lines, error);
    if (err != OK) {
        queue_release(&queue);
        return err;
    }
    for (size_t i = 0; i < queue.count; i++) queue.left += !queue.is_judged[queue.entries[i].line];
    *ret_queue = queue;
    return OK;
}

void queue_release(struct queue *queue) {
    free(queue->entries);
    free(queue->is_judged);
    *queue = (struct queue){.count = 0};
}

/* --- cursors: the letter of the kind, the bits of the uncertainty, the line --- */

void queue_write_cursor(const struct queue *queue, const struct queue_entry *entry,
                        char ret_cursor[QUEUE_CURSOR_BYTES]) {
    uint32_t bits;
    memcpy(&bits, &entry->uncertainty, sizeof bits);
    snprintf(ret_cursor, QUEUE_CURSOR_BYTES, "%c-%" PRIu32 "-%" PRIu32, *queue_names[queue->kind],
             bits, entry->line);
}

static bool read_cursor(const struct queue *queue, struct str cursor,
                        struct queue_entry *ret_entry) {
    uint64_t bits, line;
    if (cursor.bytes < 5 || *cursor.at != *queue_names[queue->kind] || cursor.at[1] != '-')
        return false;
    cursor = str_skip(cursor, 2);
    size_t end = str_find_byte(cursor, '-', 0);
    if (end == SIZE_MAX || !str_to_u64((struct str){cursor.at, end}, &bits) ||
        !str_to_u64(str_skip(cursor, end + 1), &line) || bits > INT32_MAX || line > UINT32_MAX)
        return false;
    uint32_t word = (uint32_t)bits;
    memcpy(&ret_entry->uncertainty, &word, sizeof word);
    ret_entry->line = (uint32_t)line;
    return ret_entry->uncertainty >= 0; /* false for a NaN */
}

bool queue_seek(const struct queue *queue, struct str cursor, size_t *ret_index) {
    struct queue_entry behind;
    size_t first = 0, end = queue->count;
    if (!read_cursor(queue, cursor, &behind)) return false;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (compare(&queue->entries[middle], &behind) <= 0)
            first = middle + 1;
        else
            end = middle;
    }
    *ret_index = first;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/waiting_for_model.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 64

/* The lines of one model: a ring. */
struct model_lines {
    char *model;
    size_t model_bytes;
    uint64_t blocked_at; /* UINT64_MAX: never yet */
    uint32_t *lines;     /* (capacity), a power of two */
    uint32_t first, count, capacity;
};

struct waiting_for_model {
    struct model_lines queues[WAITING_MODELS_MAX];
    uint32_t model_count;
    uint32_t line_count;
};

struct waiting_for_model *waiting_for_model_open(void) {
    struct waiting_for_model *waiting = mem_new(1, sizeof *waiting);
    return waiting;
}

void waiting_for_model_clear(struct waiting_for_model *waiting) {
    for (uint32_t i = 0; waiting && i < waiting->model_count; i++) {
        struct model_lines *queue = &waiting->queues[i];
        free(queue->lines);
        queue->lines = NULL;
        queue->first = queue->count = queue->capacity = 0;
    }
    if (waiting) waiting->line_count = 0;
}

void waiting_for_model_close(struct waiting_for_model *waiting) {
    waiting_for_model_clear(waiting);
    for (uint32_t i = 0; waiting && i < waiting->model_count; i++) free(waiting->queues[i].model);
    free(waiting);
}

bool waiting_for_model_number(struct waiting_for_model *waiting, struct str model,
                              uint32_t *ret_model) {
    for (uint32_t i = 0; i < waiting->model_count; i++) {
        const struct model_lines *queue = &waiting->queues[i];
        if (!str_equals(model, (struct str){queue->model, queue->model_bytes})) continue;
        *ret_model = i;
        return true;
    }
    if (waiting->model_count == WAITING_MODELS_MAX) return false;
    struct model_lines *queue = &waiting->queues[waiting->model_count];
    *queue = (struct model_lines){.model_bytes = model.bytes, .blocked_at = UINT64_MAX};
    queue->model = mem_str(model);
    *ret_model = waiting->model_count++;
    return true;
}

void waiting_for_model_block(struct waiting_for_model *waiting, uint32_t model, uint64_t progress) {
    assert(model < waiting->model_count);
    waiting->queues[model].blocked_at = progress;
}

bool waiting_for_model_is_blocked(const struct waiting_for_model *waiting, uint32_t model,
                                  uint64_t progress) {
    assert(model < waiting->model_count);
    return waiting->queues[model].blocked_at == progress;
}

bool waiting_for_model_is_full(const struct waiting_for_model *waiting) {
    return waiting && waiting->line_count == WAITING_LINES_MAX;
}

/* Doubles the ring; the lines then stand at its start. */
static void grow(struct model_lines *queue) {
    uint32_t capacity = queue->capacity ? 2 * queue->capacity : CAPACITY_MIN;
    uint32_t *lines = mem_new(capacity, sizeof *lines);
    for (uint32_t i = 0; i < queue->count; i++)
        lines[i] = queue->lines[(queue->first + i) & (queue->capacity - 1)];
    free(queue->lines);
    queue->lines = lines;
    queue->capacity = capacity;
    queue->first = 0;
}

void waiting_for_model_put(struct waiting_for_model *waiting, uint32_t model, uint32_t line,
                           bool is_first) {
    assert(model < waiting->model_count && !waiting_for_model_is_full(waiting));
    struct model_lines *queue = &waiting->queues[model];
    if (queue->count == queue->capacity) grow(queue);
    uint32_t mask = queue->capacity - 1;
    if (is_first) queue->first = (queue->first - 1) & mask;
    uint32_t at = is_first ? queue->first : (queue->first + queue->count) & mask;
    queue->lines[at] = line;
    queue->count++;
    waiting->line_count++;
}

bool waiting_for_model_take(struct waiting_for_model *waiting, uint64_t progress,
                            uint32_t *ret_line) {
    for (uint32_t i = 0; waiting && waiting->line_count > 0 && i < waiting->model_count; i++) {
        struct model_lines *queue = &waiting->queues[i];
        if (queue->count == 0 || queue->blocked_at == progress) continue;
        *ret_line = queue->lines[queue->first];
        queue->first = (queue->first + 1) & (queue->capacity - 1);
        queue->count--;
        waiting->line_count--;
        return true;
    }
    return false;
}

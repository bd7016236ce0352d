/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/held.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 64

/* The lines of one model: a ring. */
struct queue {
    char *model;
    size_t model_bytes;
    uint64_t blocked_at; /* UINT64_MAX: never yet */
    uint32_t *lines;     /* (capacity), a power of two */
    uint32_t first, count, capacity;
};

struct held {
    struct queue queues[HELD_MODELS_MAX];
    uint32_t model_count;
    uint32_t line_count;
};

struct held *held_open(void) {
    struct held *held = mem_new(1, sizeof *held);
    return held;
}

void held_clear(struct held *held) {
    for (uint32_t i = 0; held && i < held->model_count; i++) {
        struct queue *queue = &held->queues[i];
        free(queue->lines);
        queue->lines = NULL;
        queue->first = queue->count = queue->capacity = 0;
    }
    if (held) held->line_count = 0;
}

void held_close(struct held *held) {
    held_clear(held);
    for (uint32_t i = 0; held && i < held->model_count; i++) free(held->queues[i].model);
    free(held);
}

bool held_model(struct held *held, struct str model, uint32_t *ret_model) {
    for (uint32_t i = 0; i < held->model_count; i++) {
        const struct queue *queue = &held->queues[i];
        if (!str_equals(model, (struct str){queue->model, queue->model_bytes})) continue;
        *ret_model = i;
        return true;
    }
    if (held->model_count == HELD_MODELS_MAX) return false;
    struct queue *queue = &held->queues[held->model_count];
    *queue = (struct queue){.model_bytes = model.bytes, .blocked_at = UINT64_MAX};
    queue->model = mem_str(model);
    *ret_model = held->model_count++;
    return true;
}

void held_block(struct held *held, uint32_t model, uint64_t progress) {
    assert(model < held->model_count);
    held->queues[model].blocked_at = progress;
}

bool held_is_blocked(const struct held *held, uint32_t model, uint64_t progress) {
    assert(model < held->model_count);
    return held->queues[model].blocked_at == progress;
}

bool held_is_full(const struct held *held) {
    return held && held->line_count == HELD_LINES_MAX;
}

/* Twice the room, the lines at its start. */
static void grow(struct queue *queue) {
    uint32_t capacity = queue->capacity ? 2 * queue->capacity : CAPACITY_MIN;
    uint32_t *lines = mem_new(capacity, sizeof *lines);
    for (uint32_t i = 0; i < queue->count; i++)
        lines[i] = queue->lines[(queue->first + i) & (queue->capacity - 1)];
    free(queue->lines);
    queue->lines = lines;
    queue->capacity = capacity;
    queue->first = 0;
}

void held_put(struct held *held, uint32_t model, uint32_t line, bool is_first) {
    assert(model < held->model_count && !held_is_full(held));
    struct queue *queue = &held->queues[model];
    if (queue->count == queue->capacity) grow(queue);
    uint32_t mask = queue->capacity - 1;
    if (is_first) queue->first = (queue->first - 1) & mask;
    uint32_t at = is_first ? queue->first : (queue->first + queue->count) & mask;
    queue->lines[at] = line;
    queue->count++;
    held->line_count++;
}

bool held_take(struct held *held, uint64_t progress, uint32_t *ret_line) {
    for (uint32_t i = 0; held && held->line_count > 0 && i < held->model_count; i++) {
        struct queue *queue = &held->queues[i];
        if (queue->count == 0 || queue->blocked_at == progress) continue;
        *ret_line = queue->lines[queue->first];
        queue->first = (queue->first + 1) & (queue->capacity - 1);
        queue->count--;
        held->line_count--;
        return true;
    }
    return false;
}

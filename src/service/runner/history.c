/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/history.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>

#define STEP_NS ((int64_t)HISTORY_STEP_S * 1000000000)

struct history {
    pthread_mutex_t lock;                        /* guards the members below */
    struct history_step steps[HISTORY_STEPS];    /* ring: step i is at i % HISTORY_STEPS */
    uint64_t step_count;                         /* steps that have passed */
    int64_t step_ns;                             /* end of the last step; 0: none has begun */
    struct history_step sums;                    /* the counters at step_ns */
    struct history_event events[HISTORY_EVENTS]; /* ring: event i is at i % HISTORY_EVENTS */
    uint64_t event_count;
};

const char *history_kind_name(enum history_kind kind) {
    static const char *const names[HISTORY_KINDS] = {
        [HISTORY_MODEL_LOADED] = "model_loaded",
        [HISTORY_MODEL_UNLOADED] = "model_unloaded",
        [HISTORY_MODEL_FAILED] = "model_failed",
        [HISTORY_ENGINE_DOWN] = "engine_down",
        [HISTORY_ENGINE_RESTARTED] = "engine_restarted",
        [HISTORY_UPSTREAM_DOWN] = "upstream_down",
        [HISTORY_UPSTREAM_UP] = "upstream_up",
        [HISTORY_BATCH_STUCK] = "batch_stuck",
        [HISTORY_BATCH_AT_RISK] = "batch_at_risk",
        [HISTORY_QUALITY_ALARM] = "quality_alarm",
        [HISTORY_LINE_LOST] = "line_lost",
        [HISTORY_DISK_FULL] = "disk_full",
        [HISTORY_DISK_HAS_ROOM] = "disk_has_room",
    };
    return names[kind];
}

struct history *history_open(void) {
    struct history *history = mem_new(1, sizeof *history);
    pthread_mutex_init(&history->lock, NULL);
    return history;
}

void history_close(struct history *history) {
    if (!history) return;
    pthread_mutex_destroy(&history->lock);
    free(history);
}

void history_add(struct history *history, const struct history_event *event) {
    pthread_mutex_lock(&history->lock);
    history->events[history->event_count++ % HISTORY_EVENTS] = *event;
    pthread_mutex_unlock(&history->lock);
}

static uint64_t grown(uint64_t now, uint64_t before) {
    return now > before ? now - before : 0;
}

/* The part of `sum` that the step at `index` of `count` gets; all parts together are `sum`. */
static uint64_t part_of(uint64_t sum, uint64_t index, uint64_t count) {
    return sum / count + (index < sum % count);
}

void history_count(struct history *history, int64_t now_ns, const struct history_step *sums) {
    pthread_mutex_lock(&history->lock);
    if (history->step_ns == 0) {
        history->step_ns = now_ns;
        history->sums = *sums;
    }
    uint64_t passed =
        now_ns > history->step_ns ? (uint64_t)((now_ns - history->step_ns) / STEP_NS) : 0;
    if (passed > 0) {
        const struct history_step more = {grown(sums->tokens, history->sums.tokens),
                                          grown(sums->lines, history->sums.lines)};
        /* Steps older than an hour have no place in the ring. */
        for (uint64_t i = passed > HISTORY_STEPS ? passed - HISTORY_STEPS : 0; i < passed; i++)
            history->steps[(history->step_count + i) % HISTORY_STEPS] = (struct history_step){
                part_of(more.tokens, i, passed), part_of(more.lines, i, passed)};
        history->step_count += passed;
        history->step_ns += (int64_t)passed * STEP_NS;
        history->sums = *sums;
    }
    pthread_mutex_unlock(&history->lock);
}

size_t history_steps(struct history *history, struct history_step ret_steps[HISTORY_STEPS]) {
    pthread_mutex_lock(&history->lock);
    uint64_t end = history->step_count, count = end < HISTORY_STEPS ? end : HISTORY_STEPS;
    for (uint64_t i = 0; i < count; i++)
        ret_steps[i] = history->steps[(end - count + i) % HISTORY_STEPS];
    pthread_mutex_unlock(&history->lock);
    return (size_t)count;
}

size_t history_events(struct history *history, struct history_event ret_events[HISTORY_EVENTS]) {
    pthread_mutex_lock(&history->lock);
    uint64_t end = history->event_count, count = end < HISTORY_EVENTS ? end : HISTORY_EVENTS;
    for (uint64_t i = 0; i < count; i++)
        ret_events[i] = history->events[(end - 1 - i) % HISTORY_EVENTS];
    pthread_mutex_unlock(&history->lock);
    return (size_t)count;
}

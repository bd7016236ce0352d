/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/rates.h"

#include "runner/runner_internal.h"

#define LOOK_NS_MAX INT64_C(2000000000) /* what one look may add, of which one comes per second */

void rates_forget(struct seat *seat) {
    seat->pace = (struct pace){0};
    seat->slowness = 0;
    seat->lines_bound = 0;
    seat->measured_ns = 0;
}

struct pace_worker rates_worker(const struct seat *seat) {
    uint32_t limit = seat_limit(seat);
    return (struct pace_worker){.rate = pace_rate(&seat->pace),
                                .weight = seat->weight,
                                .lines = seat->lines,
                                .running = seat->running,
                                .is_silent = seat->is_silent,
                                .room = seat->lines < limit ? limit - seat->lines : 0};
}

/* Whether more lines would not make it faster. */
static bool is_busy(const struct seat *seat) {
    if (seat->lines == 0) return false;
    return seat->running > 0 ? seat->lines > seat->running : seat->lines >= seat_limit(seat) / 2;
}

/* Counts the time in which no answer could come: the worker was not heard, or this process stood
 * still (a suspended machine, a disk that hangs). Answers wait somewhere then, and lines that were
 * asked back for their age would run twice. */
static void note_unheard(struct seat *seat, bool is_unheard, int64_t now_ns) {
    int64_t passed_ns = now_ns - seat->looked_ns;
    int64_t heard_ns = is_unheard ? 0 : passed_ns < LOOK_NS_MAX ? passed_ns : LOOK_NS_MAX;
    seat->unheard_ns += passed_ns - heard_ns;
    seat->looked_ns = now_ns;
}

static void measure_one(struct seat *seat, const struct worker_status *status, int64_t look_ns) {
    note_unheard(seat, status->is_unheard, look_ns);
    seat->is_ready = status->ready;
    seat->is_silent = status->is_silent;
    seat->running = status->running;
    bool busy = is_busy(seat);
    int64_t now_ns = seat_clock_ns(seat, look_ns);
    if (busy && seat->measured_ns != 0)
        pace_note(&seat->pace, (double)(seat->answers - seat->answers_seen),
                  (double)(now_ns - seat->measured_ns) / 1e9);
    seat->answers_seen = seat->answers;
    seat->measured_ns = busy ? now_ns : 0;
}

/* --- peers --- */

static bool is_peer(const struct seat *seat, const struct seat *other) {
    return other != seat && other->worker && !other->has_failed && !seat_is_sick(other) &&
           other->served == seat->served;
}

static void judge(struct runner *runner, struct seat *seat) {
    double own = pace_rate(&seat->pace) / seat->weight, best = own;
    bool has_peer = false;
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        const struct seat *other = &runner->seats[i];
        if (!is_peer(seat, other)) continue;
        double rate = pace_rate(&other->pace) / other->weight;
        if (rate > best) best = rate;
        has_peer = true;
    }
    seat->slowness = own > 0 ? pace_slowness(own, best) : 0;
    seat->lines_bound =
        has_peer ? pace_bound(pace_rate(&seat->pace), seat->running, seat->lines_max) : 0;
}

void rates_measure(struct runner *runner, int64_t now_ns) {
    struct worker_status status;
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        struct worker *worker = runner->seats[i].worker;
        if (!worker) continue;
        pthread_mutex_unlock(&runner->lock);
        worker->ops->status(worker, &status);
        pthread_mutex_lock(&runner->lock);
        measure_one(&runner->seats[i], &status, now_ns);
    }
    for (uint32_t i = 0; i < runner->seat_count; i++)
        if (runner->seats[i].worker) judge(runner, &runner->seats[i]);
    pthread_mutex_unlock(&runner->lock);
}

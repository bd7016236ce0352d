/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/tail.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "runner/active_end.h"
#include "runner/rates.h"
#include "runner/runner_internal.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_NS INT64_C(1000000000)
#define GIVE_UP_NS INT64_C(5000000000) /* for a worker's answer to a cancel */

/* A batch at its end, and who may run its lines. */
struct tail {
    struct active_batch *batch;
    char id[STORE_ID_BYTES], model[MODEL_NAME_BYTES];
    uint64_t sequence;
    uint64_t serve; /* a bit per seat whose worker serves its model */
    int64_t now_ns;
    uint32_t rooms[RUNNER_WORKERS_MAX]; /* at workers that take lines over */
    uint32_t room;                      /* at all of them, for lines that do not wait already */
    struct cancel_list *cancel;
};

/* --- with the lock held --- */

/* The next batch at its end behind that of `tail`, by age; false: there is none. */
static bool find_tail(struct runner *runner, struct tail *tail) {
    struct active_batch *found = NULL;
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next) {
        bool may_be = batch->phase == PHASE_RUN && *batch->row.model && batch->in_flight > 0 &&
                      batch->row.sequence > tail->sequence && !active_is_paused(batch);
        if (!may_be || (found && found->row.sequence < batch->row.sequence)) continue;
        if (leases_are_used_up(runner, batch)) found = batch;
    }
    if (!found) return false;
    tail->batch = found;
    tail->sequence = found->row.sequence;
    memcpy(tail->id, found->row.id, sizeof tail->id);
    memcpy(tail->model, found->row.model, sizeof tail->model);
    return true;
}

/* Whether the worker takes lines of the batch over. */
static bool takes_over(const struct runner *runner, const struct tail *tail,
                       const struct seat *seat) {
    const struct line_state plain = {0};
    return (tail->serve >> seat->index & 1) && seat->is_ready && !seat->is_silent &&
           !seat_is_sick(seat) && !seat_is_slow(seat) && seat_has_room(runner, seat, &plain);
}

/* The room for lines of this seat, which is not its own. */
static uint32_t room_beside(const struct tail *tail, uint32_t seat) {
    return tail->room > tail->rooms[seat] ? tail->room - tail->rooms[seat] : 0;
}

static bool is_line_of(const struct slot *slot, const struct tail *tail) {
    return slot->state == SLOT_RUNNING && slot->batch == tail->batch && !slot->line.is_suspect;
}

static void ask_back(struct runner *runner, struct tail *tail, struct slot *slot, bool may_stay) {
    if (slot->recalled_ns == 0) runner->recalled++;
    slot->recalled_ns = seat_clock_ns(&runner->seats[slot->seat], tail->now_ns);
    slot->may_stay = may_stay;
    slot->line.avoids = (uint8_t)(slot->seat + 1);
    cancel_list_add(runner, tail->cancel, slot);
    runner->counters.lines_recalled++;
    tail->room--;
}

static int by_begin(const void *a, const void *b) {
    const struct slot *one = *(struct slot *const *)a, *other = *(struct slot *const *)b;
    if (one->begun_ns != other->begun_ns) return one->begun_ns > other->begun_ns ? -1 : 1;
    return one->id > other->id ? -1 : one->id < other->id;
}

/* The latest `count` lines of the batch that the seat has. */
static void ask_latest(struct runner *runner, struct tail *tail, uint32_t seat, uint32_t count) {
    bool may_stay = runner->seats[seat].worker->ops->recall != NULL;
    struct slot **slots = mem_new((size_t)runner->seats[seat].lines + 1, sizeof *slots);
    size_t found = 0;
    for (uint32_t i = 0; i < runner->slot_count && found < runner->seats[seat].lines; i++) {
        struct slot *slot = slot_at(runner, i);
        if (is_line_of(slot, tail) && slot->seat == seat && slot->recalled_ns == 0 &&
            !slot->has_stayed)
            slots[found++] = slot;
    }
    qsort(slots, found, sizeof(struct slot *), by_begin);
    if (count > found) count = (uint32_t)found;
    for (uint32_t i = 0; i < count; i++) ask_back(runner, tail, slots[i], may_stay);
    free(slots);
    if (count > 0)
        log_info("batch=%s event=lines_recalled worker=%u lines=%u", tail->id, seat, count);
}

/* Lines that a worker has far longer than any other line was with one. */
static void ask_overdue(struct runner *runner, struct tail *tail) {
    double longest_s = pace_longest_s(&tail->batch->longest);
    for (uint32_t i = 0; i < runner->slot_count && tail->room > 0; i++) {
        struct slot *slot = slot_at(runner, i);
        if (!is_line_of(slot, tail) || slot->line.was_overdue) continue;
        if (slot->recalled_ns != 0 && !slot->may_stay) continue;
        if (room_beside(tail, slot->seat) == 0) continue;
        int64_t now_ns = seat_clock_ns(&runner->seats[slot->seat], tail->now_ns);
        double age_s = (double)(now_ns - slot->begun_ns) / 1e9;
        if (!pace_is_overdue(age_s, longest_s)) continue;
        log_info("batch=%s request=%u event=line_overdue worker=%u seconds=%.0f", tail->id,
                 slot->line.number, slot->seat, age_s);
        slot->line.was_overdue = true;
        ask_back(runner, tail, slot, false);
    }
}

/* Lines of each seat that were asked back and are still with it. */
static void count_recalled(struct runner *runner, uint32_t ret_counts[RUNNER_WORKERS_MAX]) {
    memset(ret_counts, 0, RUNNER_WORKERS_MAX * sizeof *ret_counts);
    for (uint32_t i = 0; i < runner->slot_count && runner->recalled > 0; i++) {
        const struct slot *slot = slot_at(runner, i);
        if (slot->state == SLOT_RUNNING && slot->recalled_ns != 0) ret_counts[slot->seat]++;
    }
}

/* Lines that come before those that are asked back. Suspects have a room of their own. */
static uint32_t count_waiting(const struct active_batch *batch) {
    uint32_t waiting = 0;
    for (size_t i = 0; i < batch->pending_count; i++) waiting += !batch->pending[i].is_suspect;
    return waiting;
}

static void recall(struct runner *runner, struct tail *tail) {
    struct pace_worker workers[RUNNER_WORKERS_MAX];
    uint32_t seats[RUNNER_WORKERS_MAX], recalled[RUNNER_WORKERS_MAX];
    size_t count = 0;
    count_recalled(runner, recalled);
    tail->room = 0;
    memset(tail->rooms, 0, sizeof tail->rooms);
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        struct seat *seat = &runner->seats[i];
        if (!seat->worker || seat->has_failed || !(tail->serve >> i & 1)) continue;
        bool takes = takes_over(runner, tail, seat);
        workers[count] = rates_worker(seat);
        if (!takes) workers[count].room = 0;
        tail->rooms[i] = workers[count].room;
        tail->room += workers[count].room;
        workers[count].lines -= recalled[i];
        seats[count++] = i;
    }
    uint32_t waiting = count_waiting(tail->batch);
    tail->room = tail->room > waiting ? tail->room - waiting : 0;
    double even_s = pace_even_s(workers, count);
    for (size_t i = 0; i < count && even_s > 0; i++) {
        uint32_t lines = pace_recall(&workers[i], even_s);
        uint32_t room = room_beside(tail, seats[i]);
        if (lines > 0 && room > 0) ask_latest(runner, tail, seats[i], lines < room ? lines : room);
    }
    ask_overdue(runner, tail);
}

/* Lines that have not come back: those that may stay have begun; a worker that has not answered a
 * cancel, or whose node is silent, loses them. */
static void give_up(struct runner *runner, int64_t now_ns) {
    for (uint32_t i = 0; i < runner->slot_count && runner->recalled > 0; i++) {
        struct slot *slot = slot_at(runner, i);
        if (slot->state != SLOT_RUNNING || slot->recalled_ns == 0) continue;
        struct active_batch *batch = slot->batch;
        const struct seat *seat = &runner->seats[slot->seat];
        int64_t clock_ns = seat_clock_ns(seat, now_ns);
        if (batch->phase != PHASE_RUN || clock_ns - slot->recalled_ns < GIVE_UP_NS) continue;
        if (slot->may_stay && !seat->is_silent) {
            slot->recalled_ns = 0;
            slot->has_stayed = true;
            runner->recalled--;
            continue;
        }
        seat_leave(runner, slot);
        active_put_back(batch, &slot->line);
        batch->blocked_at = UINT64_MAX;
        slot_free(runner, slot);
        runner->progress++;
    }
}

/* --- without it --- */

void tail_tend(struct runner *runner) {
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns < runner->tail_ns) return; /* only dispatch uses tail_ns */
    runner->tail_ns = now_ns + LOOK_NS;
    struct cancel_list cancel = {0};
    struct tail tail = {.now_ns = now_ns, .cancel = &cancel};
    rates_measure(runner, now_ns);
    pthread_mutex_lock(&runner->lock);
    give_up(runner, now_ns);
    while (runner->seat_count > 1 && find_tail(runner, &tail)) {
        pthread_mutex_unlock(&runner->lock);
        tail.serve = peers_find(runner, str_from(tail.model));
        pthread_mutex_lock(&runner->lock);
        tail.batch = active_find(runner, str_from(tail.id));
        if (tail.batch && tail.batch->phase == PHASE_RUN) recall(runner, &tail);
    }
    pthread_mutex_unlock(&runner->lock);
    cancel_list_send(&cancel);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/seat.h"

#include "base/clock.h"
#include "base/crc.h"
#include "base/log.h"
#include "runner/rates.h"
#include "runner/runner_internal.h"
#include "runner/slot.h"

#include <assert.h>

#define LOST_NS INT64_C(5000000000) /* a worker without room for longer loses its suspects */
/* Between two lines for a sick seat: the first pause, and how often it is doubled. */
#define PROBE_NS INT64_C(5000000000)
#define PROBE_DOUBLINGS 6

bool seat_has_room(const struct runner *runner, const struct seat *seat,
                   const struct line_state *line) {
    if (!seat->worker || seat->is_full) return false;
    if (seat->suspects > 0) {
        bool may_go = !line || (line->is_suspect && line->home == seat->index);
        bool is_alone = seat->suspects_max > 1 || seat->requests == 0;
        return may_go && is_alone && seat->lines < seat->suspects_max;
    }
    if (seat_is_sick(seat) && seat_has_well_neighbour(runner, seat, seat->peers)) {
        int64_t now_ns = clock_monotonic_ns();
        return seat->lines == 0 && now_ns >= seat->probe_ns && now_ns >= seat->faults.due_ns;
    }
    return seat->lines < seat_limit(seat) &&
           (seat->bytes < runner->options.lookahead_bytes || seat->lines == 0);
}

bool seat_is_lost(const struct seat *seat, int64_t now_ns) {
    return seat->is_full && now_ns - seat->full_ns > LOST_NS;
}

bool seat_is_sick(const struct seat *seat) {
    return seat->downs >= WORKER_SICK_DOWNS || faults_are_many(&seat->faults);
}

int64_t seat_clock_ns(const struct seat *seat, int64_t now_ns) {
    return now_ns - seat->unheard_ns;
}

uint32_t seat_limit(const struct seat *seat) {
    bool is_bounded = seat->lines_bound > 0 && seat->lines_bound < seat->lines_max;
    return is_bounded ? seat->lines_bound : seat->lines_max;
}

bool seat_is_slow(const struct seat *seat) {
    return seat->slowness > 1;
}

static bool is_any_well(const struct runner *runner, uint64_t seats) {
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        const struct seat *seat = &runner->seats[i];
        if ((seats >> i & 1) && seat->worker && !seat->is_away && !seat->has_failed &&
            seat->downs == 0 && !seat_is_sick(seat))
            return true;
    }
    return false;
}

bool seat_has_well_neighbour(const struct runner *runner, const struct seat *seat, uint64_t seats) {
    return is_any_well(runner, seats & ~(UINT64_C(1) << seat->index));
}

uint64_t seat_last_choice(const struct runner *runner, const struct line_state *line,
                          uint32_t attempts_max) {
    uint64_t others = line->peers & ~line->failed_at;
    bool is_last = line->attempts > 0 && line->attempts + 1u >= attempts_max;
    return is_last && is_any_well(runner, others) ? others : 0;
}

bool seat_is_last_word(const struct runner *runner, const struct line_state *line) {
    return line->is_suspect && line->alone_at == line->home + 1 && !line->was_apart &&
           !line->has_no_other && line->alone + 1u >= runner->options.lost_alone_max;
}

bool seat_may_be_left(const struct runner *runner, const struct line_state *line, int64_t now_ns) {
    const struct seat *home = &runner->seats[line->home];
    return seat_is_lost(home, now_ns) || seat_is_sick(home) || seat_is_last_word(runner, line);
}

bool seat_expects_other(const struct runner *runner, const struct line_state *line,
                        int64_t now_ns) {
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        const struct seat *seat = &runner->seats[i];
        const bool is_peer = i != line->home && (line->peers >> i & 1);
        if (is_peer && seat->is_full && !seat->has_failed && !seat_is_lost(seat, now_ns))
            return true;
    }
    return false;
}

void seat_note_down(struct seat *seat, int64_t now_ns) {
    seat->downs++;
    if (!seat_is_sick(seat)) return;
    uint32_t doublings = seat->downs - WORKER_SICK_DOWNS;
    seat->probe_ns =
        now_ns + (PROBE_NS << (doublings < PROBE_DOUBLINGS ? doublings : PROBE_DOUBLINGS));
    if (doublings == 0) log_warn("worker=%u event=worker_sick downs=%u", seat->index, seat->downs);
}

bool seat_is_fault(const struct worker_result *result) {
    return result->outcome == OUTCOME_TRY_AGAIN ||
           (result->outcome == OUTCOME_DONE && result->status >= 500);
}

void seat_note_answer(struct seat *seat, const struct worker_result *result, int64_t now_ns) {
    if (result->outcome == OUTCOME_DONE) seat->downs = 0;
    if (!seat_is_fault(result)) {
        if (result->outcome == OUTCOME_DONE) faults_end(&seat->faults);
    } else if (faults_note(&seat->faults, now_ns)) {
        log_warn("worker=%u event=worker_sick faults=%u", seat->index, seat->faults.count);
    }
}

void seat_leave(struct runner *runner, struct slot *slot) {
    struct seat *seat = &runner->seats[slot->seat];
    if (slot->request) {
        assert(seat->requests > 0);
        seat->requests--;
        return;
    }
    assert(seat->lines > 0 && seat->bytes >= slot->bytes);
    seat->lines--;
    seat->bytes -= slot->bytes;
    /* Woken for every result, dispatch would run for one line at a time. */
    uint32_t refill = seat_limit(seat) / 8 * 7;
    if (seat->lines == refill || seat->lines == 0 || seat->suspects > 0) {
        runner->progress++;
        pthread_cond_signal(&runner->work);
    }
}

/* --- suspects --- */

void seat_add_suspect(struct seat *seat, struct line_state *line) {
    assert(!line->is_suspect);
    line->is_suspect = true;
    line->home = seat->index;
    seat->suspects++;
}

void seat_clear_suspect(struct runner *runner, struct line_state *line) {
    if (!line->is_suspect) return;
    struct seat *home = &runner->seats[line->home];
    assert(home->suspects > 0);
    if (--home->suspects == 0) {
        runner->progress++;
        pthread_cond_signal(&runner->work);
    }
    line->is_suspect = false;
}

void seat_move_suspect(struct runner *runner, struct seat *seat, struct line_state *line) {
    uint32_t suspects_max = runner->seats[line->home].suspects_max;
    bool is_first = seat->suspects == 0;
    seat_clear_suspect(runner, line);
    seat_add_suspect(seat, line);
    if (is_first || suspects_max < seat->suspects_max) {
        seat->suspects_max = suspects_max;
        seat->suspects_good = 0;
    }
}

/* Doubles the suspects that may run at a time once that many have ended well. So among thousands of
 * suspects with one culprit, the others need not run one by one. */
void seat_acquit(struct runner *runner, struct line_state *line) {
    if (!line->is_suspect) return;
    struct seat *home = &runner->seats[line->home];
    if (++home->suspects_good >= home->suspects_max) {
        home->suspects_good = 0;
        home->suspects_max *= 2;
        runner->progress++;
    }
    seat_clear_suspect(runner, line);
}

/* --- the hand-over --- */

void seat_begin(struct seat *seat, struct slot *slot) {
    slot->seat = seat->index;
    slot->state = SLOT_RUNNING;
    slot->begun_ns = seat_clock_ns(seat, clock_monotonic_ns());
    if (slot->request) {
        seat->requests++;
    } else {
        seat->lines++;
        seat->bytes += slot->bytes;
        order_charge(&slot->batch->order, slot->batch->order.line_cost);
    }
}

static bool is_cancelled(const struct slot *slot) {
    return slot->request ? slot->request->cancel : slot->batch->phase != PHASE_RUN;
}

bool seat_submit(struct runner *runner, struct seat *seat, struct slot *slot,
                 const struct worker_job *job) {
    struct worker *worker = seat->worker;
    struct worker_status status = {0};
    pthread_mutex_lock(&runner->lock);
    uint64_t rooms = seat->rooms;
    int64_t down_ns = seat->down_ns;
    uint32_t served = crc32c(0, job->model.at, job->model.bytes) | 1;
    if (served != seat->served) rates_forget(seat);
    seat->served = served;
    seat->peers = slot->line.peers;
    seat_begin(seat, slot);
    pthread_mutex_unlock(&runner->lock);
    bool is_taken = worker->ops->submit(worker, job);
    if (!is_taken) worker->ops->status(worker, &status);
    pthread_mutex_lock(&runner->lock);
    /* It may have ended, or gone down with the worker, which took the slot back already. */
    bool is_here = slot_find(runner, job->id) == slot && slot->state == SLOT_RUNNING;
    /* It took the job after it went down: the job runs again, and no one waits for this one. */
    bool is_orphan = is_taken && !is_here && seat->down_ns != down_ns;
    bool must_cancel = is_orphan || (is_taken && is_here && is_cancelled(slot));
    if (!is_taken) seat->has_failed = status.is_failed;
    if (!is_taken && is_here) {
        seat->is_full = seat->rooms == rooms;
        seat->full_ns = clock_monotonic_ns();
        /* One that is overloaded comes back soon. */
        seat->is_away = seat->is_full && !status.ready && !status.is_refusing;
        seat_leave(runner, slot);
        slot->state = SLOT_PLACING;
    }
    pthread_mutex_unlock(&runner->lock);
    /* A cancel that came before the worker had the job found nothing to cancel there. */
    if (must_cancel) worker->ops->cancel(worker, job->id);
    return is_taken || !is_here;
}

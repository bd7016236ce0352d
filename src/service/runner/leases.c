/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/leases.h"

#include "base/clock.h"
#include "base/mem.h"
#include "runner/adopt.h"
#include "runner/rates.h"
#include "runner/runner_internal.h"

#define LEASE_PLACES 256               /* places taken from the queue at a time */
#define REFUSED_NS INT64_C(1000000000) /* then the worker may have come to serve the model */

struct seat_lease {
    struct queue_lease range;
    uint32_t at;        /* places of the range that were taken */
    int64_t refused_ns; /* when the seat's worker last did not serve the model; 0: never */
};

static uint32_t left_of(const struct seat_lease *own) {
    return own->range.count - own->at;
}

static uint32_t end_of(const struct queue_lease *range) {
    return range->first + range->count;
}

/* --- new places --- */

/* Where a seat whose range is used up goes on. */
static uint32_t next_place(struct active_batch *batch, struct seat *seat) {
    uint32_t end = end_of(&batch->leases.of_seat[seat->index].range);
    if (runs_are_inside(&batch->runs, end)) return end;
    return runs_next(&batch->runs, &seat->warm, batch->leases.begun);
}

/* How many places of the range hold whole groups; all of them if it is one group. */
static uint32_t whole_groups(const struct active_batch *batch, const struct queue_lease *range) {
    uint32_t kept = range->count;
    if (end_of(range) == index_count(batch->index)) return kept;
    uint32_t cut = index_group_at(batch->index, end_of(range));
    while (kept > 0 && index_group_at(batch->index, range->first + kept - 1) == cut) kept--;
    return kept > 0 ? kept : range->count;
}

/* Gives the seat a range that lies in one run, or outside of all runs. False if the queue has no
 * place left. */
static bool take_range(struct runner *runner, struct active_batch *batch, struct seat *seat) {
    const struct queue_ops *queue = runner->queue->ops;
    struct queue_lease *range = &batch->leases.of_seat[seat->index].range;
    uint32_t from = next_place(batch, seat), run_end = 0;
    batch->leases.of_seat[seat->index].at = 0;
    if (!queue->take(runner->queue, batch->row.sequence, from, LEASE_PLACES, range)) {
        *range = (struct queue_lease){0};
        return false;
    }
    struct queue_lease rest = *range;
    range->count = runs_lease(&batch->runs, &seat->warm, range->first, range->count, &run_end);
    range->count = whole_groups(batch, range);
    rest.first += range->count;
    rest.count -= range->count;
    queue->give_back(runner->queue, &rest);
    /* A run is its first seat's, until nothing else is left. */
    if (range->first >= batch->leases.begun)
        batch->leases.begun = run_end > 0 ? run_end : end_of(range);
    return true;
}

/* --- places of others --- */

/* The lines that `seat` takes over from `other` so that both end together. All of them if the other
 * seat is lost or sick. */
static uint32_t share_of(const struct active_batch *batch, const struct seat *seat,
                         const struct seat *other, int64_t now_ns) {
    uint32_t left = left_of(&batch->leases.of_seat[other->index]);
    if (left == 0 || other == seat) return 0;
    if (!other->worker || other->has_failed || seat_is_sick(other) || seat_is_lost(other, now_ns))
        return left;
    const struct pace_worker own = rates_worker(seat), their = rates_worker(other);
    return pace_share(&own, &their, left);
}

/* Takes the end of a range that another seat has not come to. False if no seat has any to spare. */
static bool take_share(struct runner *runner, struct active_batch *batch, struct seat *seat,
                       int64_t now_ns) {
    struct seat_lease *leases = batch->leases.of_seat, *other = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        uint32_t share = share_of(batch, seat, &runner->seats[i], now_ns);
        if (share <= count) continue;
        count = share;
        other = &leases[i];
    }
    if (!other) return false;
    uint32_t first = end_of(&other->range) - count, end = end_of(&other->range);
    /* No beginning is cut in two where a smaller share cuts none. */
    uint32_t whole = first;
    while (whole < end && whole > 0 &&
           index_group_at(batch->index, whole) == index_group_at(batch->index, whole - 1))
        whole++;
    if (whole < end) first = whole;
    struct seat_lease *own = &leases[seat->index];
    own->range = other->range;
    own->range.first = first;
    own->range.count = end - first;
    own->at = 0;
    other->range.count -= own->range.count;
    return true;
}

/* --- the next line --- */

/* The seat with the fewest lines for its weight that has room, may serve the model and is not in
 * `tried`. */
static struct seat *least_loaded(struct runner *runner, const struct active_batch *batch,
                                 uint64_t tried, int64_t now_ns) {
    const struct line_state plain = {0};
    struct seat *best = NULL;
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        struct seat *seat = &runner->seats[i];
        int64_t refused_ns = batch->leases.of_seat[i].refused_ns;
        bool has_refused = refused_ns != 0 && now_ns - refused_ns < REFUSED_NS;
        if ((tried >> i & 1) || has_refused || !seat_has_room(runner, seat, &plain)) continue;
        if (!best || (double)seat->lines / seat->weight < (double)best->lines / best->weight)
            best = seat;
    }
    return best;
}

/* The seat that the next line goes to; its range has a place left. NULL if no seat can have one. */
static struct seat *choose(struct runner *runner, struct active_batch *batch) {
    int64_t now_ns = clock_monotonic_ns();
    bool has_more = true;
    struct seat *seat;
    for (uint64_t tried = 0; (seat = least_loaded(runner, batch, tried, now_ns));
         tried |= UINT64_C(1) << seat->index) {
        if (left_of(&batch->leases.of_seat[seat->index]) > 0) return seat;
        has_more = has_more && take_range(runner, batch, seat);
        if (has_more || take_share(runner, batch, seat, now_ns)) return seat;
    }
    return NULL;
}

/* A seat whose range has a place left, with room or without. NULL if no place is left. */
static struct seat *any_range(struct runner *runner, struct active_batch *batch) {
    for (uint32_t i = 0; i < runner->seat_count; i++)
        if (left_of(&batch->leases.of_seat[i]) > 0) return &runner->seats[i];
    return take_range(runner, batch, &runner->seats[0]) ? &runner->seats[0] : NULL;
}

bool leases_take(struct runner *runner, struct active_batch *batch, struct line_state *ret_line) {
    _Static_assert(RUNNER_WORKERS_MAX <= 64, "a bit per seat");
    if (!batch->leases.of_seat)
        batch->leases.of_seat = mem_new(RUNNER_WORKERS_MAX, sizeof *batch->leases.of_seat);
    bool has_one_model = *batch->row.model;
    for (;;) {
        struct seat *bound = has_one_model ? choose(runner, batch) : NULL;
        struct seat *seat = bound ? bound : any_range(runner, batch);
        if (!seat) return false;
        struct seat_lease *own = &batch->leases.of_seat[seat->index];
        while (left_of(own) > 0) {
            uint32_t line = index_line_at(batch->index, own->range.first + own->at++);
            if (seglog_has(batch->log, line) || adopt_has(batch, line)) continue;
            *ret_line = (struct line_state){.number = line,
                                            .leased_by = (uint8_t)(seat->index + 1),
                                            .goes_to = bound ? (uint8_t)(seat->index + 1) : 0};
            return true;
        }
    }
}

bool leases_put_back(struct active_batch *batch, const struct line_state *line) {
    if (line->leased_by == 0 || !batch->leases.of_seat) return false;
    struct seat_lease *own = &batch->leases.of_seat[line->leased_by - 1];
    if (own->at == 0) return false;
    uint32_t last = index_line_at(batch->index, own->range.first + own->at - 1);
    if (last == line->number) own->at--;
    return last == line->number;
}

bool leases_refuse(struct runner *runner, struct active_batch *batch,
                   const struct line_state *line) {
    if (!leases_put_back(batch, line)) return false;
    struct seat_lease *own = &batch->leases.of_seat[line->leased_by - 1];
    struct queue_lease rest = own->range;
    rest.first += own->at;
    rest.count -= own->at;
    runner->queue->ops->give_back(runner->queue, &rest);
    if (rest.first < batch->leases.begun) batch->leases.begun = rest.first;
    *own = (struct seat_lease){.refused_ns = clock_monotonic_ns()};
    return true;
}

bool leases_are_used_up(struct runner *runner, struct active_batch *batch) {
    struct queue_lease lease;
    for (uint32_t i = 0; i < runner->seat_count && batch->leases.of_seat; i++)
        if (left_of(&batch->leases.of_seat[i]) > 0) return false;
    if (!runner->queue->ops->take(runner->queue, batch->row.sequence, 0, 1, &lease)) return true;
    runner->queue->ops->give_back(runner->queue, &lease);
    return false;
}

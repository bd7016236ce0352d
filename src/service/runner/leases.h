/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* leases: the ranges of places of one running batch that its lines come from, one range per seat.
 *
 * Lines with a common beginning stand together in the order of a batch. A range goes to one seat,
 * so each beginning is computed by one worker and not by all of them. A seat goes on where its last
 * range ended as long as it is in a run (runs.h). Else it begins the next run that no seat has
 * begun. When all places are leased, a seat with room takes a part of what another has not begun,
 * so that both end together.
 *
 * Whether a worker serves the model of the batch is known only without the lock. A seat whose
 * worker does not is noted by leases_refuse and gets no range for a second. When no seat with room
 * may serve it, a line is taken as a probe: it goes to any seat, or says why it cannot run.
 *
 * In a batch of several models neighbours may be for different workers: all lines come from one
 * range, and each goes to the seat with the least load.
 *
 * Thread: the runner's lock. Only the dispatch thread takes lines.
 * Memory: one array of RUNNER_WORKERS_MAX ranges, made when the first line is taken.
 * Invariant: the ranges do not overlap; the queue holds the places that no range holds. */

#include "queue/queue.h"
#include "runner/line_state.h"

#include <stdlib.h>

struct active_batch;
struct runner;
struct seat_lease;

/* Zero is a valid start. */
struct leases {
    struct seat_lease *of_seat; /* NULL: nothing was leased yet */
    uint32_t begun;             /* all places before this one were begun */
};

/* The next line that has no record, with `leased_by` and, unless it is a probe, `goes_to`. False if
 * none is left. */
bool leases_take(struct runner *runner, struct active_batch *batch, struct line_state *ret_line);
/* Puts the line back where it was taken last. False if it is not the last one of its range. */
bool leases_put_back(struct active_batch *batch, const struct line_state *line);
/* The worker of the seat that the line was to go to does not serve its model: its range, with the
 * line, is free for others. False as leases_put_back. */
bool leases_refuse(struct runner *runner, struct active_batch *batch,
                   const struct line_state *line);
/* Whether no place is left to give, with any seat. */
bool leases_are_used_up(struct runner *runner, struct active_batch *batch);
/* Forgets all ranges. */
static inline void leases_release(struct leases *leases) {
    free(leases->of_seat);
    *leases = (struct leases){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* line_state: one line of a batch between its lease and its record: what has happened to it so far.
 *
 * A line state is copied, not shared: it is in exactly one place, which owns the line. That is a
 * slot while the line is being read, run or committed; the pending lines of its batch; or the
 * waiters of a leader (reuse.h). A line that waits for a model (waiting_for_model.h) has none,
 * because nothing has happened to it.
 *
 * Thread: the runner's lock.
 * Memory: plain struct. */

#include <stdbool.h>
#include <stdint.h>

struct line_state {
    uint32_t number;
    uint16_t attempts;  /* tries that failed (OUTCOME_TRY_AGAIN) */
    uint16_t refusals;  /* times a worker refused to run it (OUTCOME_NOT_RUN) */
    uint16_t downs;     /* times it was in flight when a worker went down */
    uint16_t alone;     /* downs at which nothing else was in flight */
    bool is_suspect;    /* one of these took the worker of seat `home` down: they run apart */
    bool was_apart;     /* downs that it was alone in were on two seats */
    bool has_no_other;  /* no second seat was there for its next down alone */
    uint8_t alone_at;   /* 1 + the seat of the latest of these downs; 0: none */
    uint32_t home;      /* the index of a seat */
    bool was_waiting;   /* it was taken from the lines that wait for a model */
    uint8_t model;      /* 1 + its number in waiting_for_model; 0: not known, or the only one */
    uint8_t leased_by;  /* 1 + the seat whose range it came from at once (leases.h); 0: it waited */
    uint8_t avoids;     /* 1 + the seat where it failed or was too slow; others go first; 0: none */
    uint64_t failed_at; /* a bit per seat where a try failed */
    uint64_t peers;     /* a bit per seat that served its model when it was given last */
    bool was_overdue;   /* it was taken from a worker that may have begun it */
    uint8_t goes_to;    /* 1 + the seat that it goes to, or waits for; 0: any */
    int64_t due_ns;     /* it is given to no worker before */
};

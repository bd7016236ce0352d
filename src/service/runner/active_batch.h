/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* active_batch: a batch that has not ended yet, with everything open that its lines need.
 *
 *     VALIDATE ─▶ VALIDATING ─▶ RUN ─▶ END ─▶ PUBLISH ─▶ PUBLISHING ─▶ (removed)
 *
 * The phase says which thread acts next. The status in `row` is what clients and the store see; it
 * is changed by active_move only, in the store first.
 *
 * Thread: the runner's lock. Reading `log` and the parts of `row` that no move changes needs no lock
 * while the batch is counted in `readers`, has a slot, or is in a phase of the reading thread.
 * Memory: owned by the runner's list; freed by its last reader after active_remove.
 * Invariant: `row` equals the stored row, except for counters. */

#include "batch/extras.h"
#include "batch/index.h"
#include "batch/state.h"
#include "queue/order.h"
#include "queue/pace.h"
#include "runner/leases.h"
#include "runner/runs.h"
#include "runner/waiting_for_model.h"
#include "store/seglog.h"

struct runner;
struct worker;

enum phase {
    PHASE_VALIDATE,   /* waits for the validate thread, also to be opened again after a failure */
    PHASE_VALIDATING, /* the validate thread has it */
    PHASE_RUN,        /* its lines run */
    PHASE_END,        /* cancelled, expired or done: waits for what is in flight */
    PHASE_PUBLISH,    /* waits for the publish thread */
    PHASE_PUBLISHING, /* the publish thread has it */
};

/* What watch.c has seen. */
struct active_progress {
    uint64_t lines_done;  /* durable results at the last look */
    int64_t since_ns;     /* when that number last grew, or the batch had no turn */
    int64_t tell_ns;      /* the next report that it is stuck is due */
    bool is_stuck;        /* and has been reported */
    bool is_waiting_turn; /* other batches go first: nothing is wrong */
    bool was_risk_told;
    char waiting_for[STORE_WAITING_BYTES]; /* one phrase; empty: results come */
};

struct active_batch {
    struct active_batch *next; /* by priority, then by age */
    struct order_entry order;
    struct store_batch row;
    enum phase phase;
    bool stop;           /* the thread that has it must stop soon */
    bool is_taken_up;    /* at the start of the runner: workers may have lines of it (adopt.h) */
    int64_t due_ns;      /* no thread takes it before */
    int64_t deadline_ns; /* PHASE_END: jobs in flight are given up then */
    enum endpoint endpoint;
    struct batch_extras extras;
    uint32_t alarms; /* bits of enum quality_share that were reported */
    struct active_progress progress;
    /* Its check waits for a worker of this model; empty: it does not. */
    char awaits_model[MODEL_NAME_BYTES];

    unsigned char input_sha256[SHA256_BYTES];
    struct line_index *index;
    struct seglog *log;
    uint32_t in_flight; /* slots with a line of this batch */
    uint32_t readers;   /* threads that read the log without the lock */
    bool is_removed;    /* the last reader frees it */

    unsigned char *adopted; /* a bit per line; NULL: none was adopted */

    /* Where its next line comes from, in this order. */
    struct line_state *pending; /* lines that have left their lease and wait to be given again */
    size_t pending_count, pending_capacity;
    struct waiting_for_model *waiting; /* NULL until one of several models has no room */
    struct leases leases;
    struct runs runs;
    struct pace_longest longest; /* without slow workers */
    uint64_t blocked_at; /* runner->progress when it had no line that any worker could take */
};

struct active_batch *active_find(struct runner *runner, struct str id);
/* Takes the row up, and owns it from here on, in the phase that its status asks for. */
void active_adopt(struct runner *runner, struct store_batch *row);
/* Takes the batch out of the runner: it has ended. */
void active_remove(struct runner *runner, struct active_batch *batch);
/* Ends what batch->readers counts; may free the batch. */
void active_leave(struct active_batch *batch);
void active_free(struct active_batch *batch);
/* Opens index and log of a batch that was validated, with a new epoch. */
enum err active_load(struct runner *runner, struct active_batch *batch,
                     struct error *error) MUST_CHECK;
/* Begins and ends the giving of the batch's lines. */
void active_start_lines(struct runner *runner, struct active_batch *batch);
void active_leave_order(struct runner *runner, struct active_batch *batch);
/* Moves the status, in the store first. ERR_CONFLICT if the store has another one. */
enum err active_move(struct runner *runner, struct active_batch *batch, enum batch_status to,
                     struct error *error) MUST_CHECK;
/* The line waits to be given to a worker again. */
void active_put_back(struct active_batch *batch, const struct line_state *line);
/* Lines that have a durable result. */
uint64_t active_lines_done(struct active_batch *batch);
/* Copies the row, with current counters. */
void active_copy_row(struct active_batch *batch, struct store_batch *ret_batch);
bool active_is_paused(const struct active_batch *batch);
/* After so many tries that failed the last answer is a line's record. */
uint32_t active_attempts_max(const struct runner *runner, const struct active_batch *batch);
/* The shares of marked answers, as JSON text that the caller frees. */
char *active_quality(struct active_batch *batch);

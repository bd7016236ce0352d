/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* slot: one job of the runner: a line of a batch or a single request, from the moment that dispatch
 * takes it to the moment that its result is durable or delivered.
 *
 *     FREE ──slot_take──▶ PLACING ──seat_submit──▶ RUNNING ──result──▶ COMMITTING ──durable──▶ FREE
 *                            └─no worker has room──▶ FREE ◀──down, try again──┘
 *
 * The number of a job contains the index of its slot and is never used twice in one start, so a
 * late answer finds no slot instead of the wrong one. It is also the cookie of the line's record.
 *
 * Thread: the runner's lock. A slot that is PLACING or COMMITTING is touched by one thread only,
 * which then needs no lock.
 * Memory: chunks of 1,024 slots that are kept until the runner closes, so that pointers stay valid.
 * Invariant: a line is in at most one slot. */

#include "protocol/request.h"
#include "runner/line_state.h"
#include "store/result_cache.h"
#include "store/seglog.h"

struct active_batch;
struct request;
struct runner;
struct waiter;

#define SLOT_CUSTOM_ID_BYTES 64 /* longer ones are allocated */

enum slot_state { SLOT_FREE, SLOT_PLACING, SLOT_RUNNING, SLOT_COMMITTING };

struct slot {
    uint64_t id; /* the number of its job */
    enum slot_state state;
    uint32_t index;
    uint32_t next_free;  /* while FREE: index + 1; 0: none */
    uint32_t seat;       /* while RUNNING: the index of its worker's seat */
    int64_t begun_ns;    /* when it began to be RUNNING, by seat_clock_ns */
    int64_t recalled_ns; /* likewise: when the line was asked back (tail.h); 0: it was not */
    bool may_stay;       /* then: unless its worker has begun it */
    bool has_stayed;     /* and so it has: it is not asked back so once more */
    uint64_t bytes;      /* bytes of the request's body */

    struct request *request; /* a single request; NULL: a line of `batch` */
    struct active_batch *batch;
    struct line_state line;
    struct usage usage;        /* written into the record of the line */
    enum endpoint endpoint;    /* that of the line as its client wrote it */
    struct dialect_call *call; /* the line's, if it was translated; else NULL */
    bool asks_shape;           /* the line asks for a shape of its answer */
    enum shape_end shape;      /* written into the record of the line */
    enum seglog_kind kind;     /* kind of that record */
    size_t custom_id_bytes;    /* as JSON, ASCII */
    char *custom_id;           /* in `inline_id`, or allocated */
    char inline_id[SLOT_CUSTOM_ID_BYTES];

    /* A leader, for which lines with an equal request wait (reuse.h). */
    bool is_leader;
    unsigned char key[RESULT_CACHE_KEY_BYTES];
    struct slot *next_leader;
    struct waiter *waiters;
};

/* All of these with the lock held, except slot_set_custom_id. */
struct slot *slot_take(struct runner *runner);
void slot_free(struct runner *runner, struct slot *slot);
/* NULL if no job has this number any more. */
struct slot *slot_find(struct runner *runner, uint64_t job_id);
struct slot *slot_at(struct runner *runner, uint32_t index);
/* Keeps the custom_id, given as raw JSON, for the record. */
void slot_set_custom_id(struct slot *slot, struct str raw);
/* Frees all slots; the threads have ended. */
void slots_release(struct runner *runner);

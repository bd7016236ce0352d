/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plan: all that happens in one run of the rig, drawn from its seed: the disk, the client's
 * commands and the faults. Shrinking takes events out of a plan; what is left does
 * the same as before.
 *
 * Thread: one.
 * Memory: fixed arrays. */

#include "disk.h"

#define PLAN_EVENTS_MAX 32
#define PLAN_BATCHES_MAX 4
#define PLAN_LIVES_MAX 8 /* deaths, and the life after the last of them */

enum event_kind {
    EVENT_NONE, /* taken out */
    /* commands of the client, one after another, over all lives */
    EVENT_UPLOAD,  /* the input of a batch; `value`: its lines */
    EVENT_CREATE,  /* the batch, with an idempotency key */
    EVENT_CANCEL,  /* the batch */
    EVENT_READ,    /* a page of its results; `value`: the most lines */
    EVENT_AWAIT,   /* the batch has ended */
    EVENT_DELETE,  /* the batch, with all that it has */
    EVENT_ERASE,   /* one or two of its lines, which `value` chooses */
    EVENT_PAUSE,   /* the batch, and resumes it `value` ms later */
    EVENT_IDLE,    /* `value` ms pass */
    EVENT_JUMP,    /* the wall clock jumps by `value` seconds */
    EVENT_BACKUP,  /* a backup is taken */
    EVENT_DOWN,    /* the engine of `batch` (a seat here) dies */
    EVENT_SILENCE, /* that seat answers nothing for `value` ms, then loses its connection */
    EVENT_QUEUE,   /* the nodes' queue has trouble, an enum queue_trouble, for `value` ms */
    /* faults, at call number `call` of life `life` that changes the disk */
    EVENT_CUT,   /* the power is cut; `value`: an enum disk_luck */
    EVENT_KILL,  /* the process dies, the machine does not */
    EVENT_FULL,  /* the disk is full for `value` ms */
    EVENT_ERROR, /* a sync from here on fails, and drops its pages */
    EVENT_KINDS
};

enum queue_trouble { QUEUE_AWAY, QUEUE_EMPTIED, QUEUE_LOSES_WORK, QUEUE_LOSES_RESULTS };

struct event {
    enum event_kind kind;
    uint32_t batch;
    int64_t value;
    uint32_t life;
    uint32_t call;
};

struct plan {
    uint64_t seed;
    bool is_fresh;         /* begins with an empty disk */
    uint32_t line_padding; /* bytes that each request has besides its own */
    uint32_t preempt;      /* a thread gives way at one of so many places; 0: at none */
    uint32_t workers;
    uint32_t nodes;     /* machines that have the workers and outlive the server; 0: it has them */
    uint32_t questions; /* as many in all, so that answers are used again; 0: one per line */
    uint32_t http;      /* the client speaks HTTP, and leaves one of so many requests (1: none) in
                           between; 0: it calls functions */
    uint32_t trouble;   /* one of so many answers is an error or lost; 0: none */
    uint32_t failing;   /* 1 + the seat whose worker answers errors alone; 0: none */
    uint32_t delay_ms;  /* an answer takes as long at most */
    uint32_t event_count;
    struct event events[PLAN_EVENTS_MAX];
};

void plan_draw(struct plan *ret_plan, uint64_t seed);
static inline bool event_is_fault(enum event_kind kind) {
    return kind >= EVENT_CUT;
}
/* "cut the power at call 17 of life 2", for people. */
void plan_write_event(const struct event *event, char *ret_text, size_t text_bytes);

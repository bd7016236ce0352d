/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* world: all that outlives a process of the rig: the disk, the clocks, what the client knows, and
 * what happened.
 *
 * A life of the server is a child process, so that it dies as processes do, with all its memory.
 * The world lies in memory that the children share with the rig.
 *
 * Thread: one; children live one after another.
 * Memory: one mapping, for the life of the rig. */

#include "disk.h"
#include "ledger.h"
#include "plan.h"

#define WORLD_TRACE 64

/* How a life ended. */
enum life_end {
    LIFE_DONE = 0,    /* it did all that it had to */
    LIFE_CUT = 41,    /* as planned */
    LIFE_KILLED = 42, /* as planned */
    LIFE_WRONG = 43,  /* the world has the sentence */
};

struct trace {
    uint32_t life, call;
    const char *name; /* what the call is; a constant */
    char file[48];
    uint64_t offset, bytes;
};

struct world {
    struct plan plan;
    struct ledger ledger;
    struct ledger backup;       /* what the client knew when the newest backup began */
    uint64_t backup_generation; /* its number; 0: there is none */
    int64_t now_ns;             /* the monotonic clock */
    int64_t wall_ms;            /* what the wall clock is ahead of it */
    uint32_t life;              /* from 0 */
    uint32_t call;              /* calls that changed the disk, in this life */
    uint32_t calls_all;         /* in all lives */
    uint32_t cuts;              /* deaths by a power cut, in all lives */
    uint32_t adopted;           /* lines that a server took over from nodes, in all lives */
    uint32_t requests;          /* that the client began with HTTP, in all lives */
    uint32_t unanswered;        /* those without an answer that the client took whole */
    uint32_t command;           /* the next event for the client */
    int64_t full_until_ns;
    uint32_t fulls;    /* times that the disk became full, in all lives */
    uint64_t capacity; /* the disk's, when it is not full */
    bool has_error;    /* a sync of this life failed, so the process may end itself */
    bool was_open;     /* the store was open once */
    bool may_rerun;    /* the queue or the disk had trouble: a line of a node may run again */
    uint32_t trace_count;
    struct trace trace[WORLD_TRACE];
    char wrong[512]; /* the first violation; empty: none */
    struct disk disk;
};

extern struct world *world;

/* Notes a violation and ends the life. */
void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* A generator for one purpose of this life. */
struct rng world_rng(uint64_t purpose);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plan: all that happens to the servers of one copy and to its storage in one run, drawn from the
 * seed. Shrinking takes events out of a plan; what is left does the same as before.
 *
 * Thread: one.
 * Memory: fixed arrays. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_EVENTS_MAX 16
#define PLAN_SERVERS_MAX 3
#define PLAN_CLIENTS_MAX 4

enum event_kind {
    EVENT_NONE,  /* taken out */
    EVENT_KILL,  /* the process dies, and is started again `value` ms later */
    EVENT_STOP,  /* SIGSTOP for `value` ms */
    EVENT_SLEEP, /* its machine sleeps for `value` ms, with its monotonic clock */
    EVENT_JUMP,  /* its wall clock jumps to `value` s from the true time */
    EVENT_CUT,   /* no request or answer of it passes for `value` ms */
    EVENT_AWAY,  /* nor of any server */
    EVENT_BASE,  /* its log is long enough for a base */
    EVENT_END,   /* an orderly end, and a new start */
    EVENT_LOOK,  /* the copy is restored aside, and compared */
    EVENT_KINDS
};

enum event_place {
    AT_ONCE,
    AT_WRITE,  /* before its next write to the log */
    AT_SEND,   /* when that is on its way */
    AT_ANSWER, /* when that has happened, and the answer is on its way */
    AT_LIST,   /* before its sweep lists objects */
    EVENT_PLACES
};

struct event {
    enum event_kind kind;
    enum event_place place;
    uint32_t server;
    int64_t at_ms, value;
};

struct plan {
    uint64_t seed;
    uint32_t servers;
    uint32_t preempt; /* a thread gives way at one of so many places; 0: at none */
    uint32_t trouble; /* one of so many requests goes wrong; 0: none */
    int64_t slow_ms;  /* the longest way of a request, and of its answer */
    int64_t read_ms;  /* what a base takes to read a page of the database */
    bool has_large;   /* files and segments that are objects of their own */
    uint32_t clients; /* that change the database at the same time */
    uint32_t event_count;
    struct event events[PLAN_EVENTS_MAX];
};

void plan_draw(struct plan *ret_plan, uint64_t seed);
/* "at 17300 ms server 2 is killed, for 1200 ms", for people. */
void plan_write_event(const struct event *event, char *ret_text, size_t text_bytes);

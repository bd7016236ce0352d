/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* preflight_queue: whose question about a file comes next.
 *
 * One thread works on the questions one after another, because a sample run wants the machine to
 * itself; a few may wait. Owners take turns, and an owner gets a further place only while it has
 * fewer than are free: one that asks much neither fills the places nor comes before another's first
 * question. The queue knows no request and no model.
 *
 * Thread: any; the work is done on the thread api-preflight.
 * Memory: questions are the caller's, and stay in place until they were worked on or have left. */

#include "base/err.h"
#include "protocol/request.h"

/* A question that waits or is worked on. The caller fills in the owner; zero the rest. */
struct queued_ask {
    struct queued_ask *next;
    char owner[OWNER_BYTES];
    bool is_waiting; /* the queue's lock guards this and the next two */
    bool is_gone;
    uint32_t before; /* questions of its owner that were there before it */
};

struct preflight_queue;

/* `work` may free the question. */
enum err preflight_queue_open(struct preflight_queue **ret_queue,
                              void (*work)(struct queued_ask *ask), struct error *error) MUST_CHECK;
/* Works on the waiting questions, which see that it stops, and takes no more. NULL is allowed. */
void preflight_queue_stop(struct preflight_queue *queue);
void preflight_queue_close(struct preflight_queue *queue); /* NULL is allowed */

enum preflight_added {
    PREFLIGHT_QUEUED,   /* it may be over already */
    PREFLIGHT_TOO_MANY, /* too many questions wait, or too many of its owner */
    PREFLIGHT_GONE,     /* it left before it was added */
};
enum preflight_added preflight_queue_add(struct preflight_queue *queue, struct queued_ask *ask);
/* The one who asked has gone. True if the question was waiting: it is out of the queue. */
bool preflight_queue_leave(struct preflight_queue *queue, struct queued_ask *ask);
bool preflight_queue_is_gone(struct preflight_queue *queue, const struct queued_ask *ask);
bool preflight_queue_is_stopping(struct preflight_queue *queue);

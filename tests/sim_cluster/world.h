/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* world: many nodes and one server on a clock of their own, with the deciders of the server: the
 * queue of places and the order of batches, paces and faults of workers (service/queue), and the
 * tables of jobs of both ends (protocol/cluster). What threads, sockets and disks do is not here.
 *
 * A job is a slice of at most 32 neighbouring lines, so that 100 million lines take seconds. A node
 * answers its slices one after the other at its rate, each no sooner than one line takes there. Up
 * to its room it has begun its lines. Packs take DELAY_S in each direction.
 *
 * Thread: one.
 * Memory: tables of the size of the fleet, a bit per line. */

#include "base/rng.h"
#include "cluster/job_set.h"
#include "queue/faults.h"
#include "queue/order.h"
#include "queue/pace.h"
#include "queue/queue.h"

#define DELAY_S 0.05
#define SLICE_LINES 32
#define LEASE_LINES 256
#define LINES_MAX 768   /* in flight per node, until its rate is known */
#define ROOM_LINES 64   /* that a node runs at a time */
#define SLICES_MAX 1024 /* at a node: one line each at least */
#define LOST_S 15.0
#define TRIES_MAX 5

struct settings {
    uint64_t seed;
    uint32_t nodes;
    uint64_t lines;
    double rate;     /* mean lines per second of a node */
    bool has_faults; /* losses, FLUSHALL, failover, slow and broken nodes */
};

struct slice {
    uint64_t id;
    uint32_t batch, first, count;
    uint32_t tries, avoids; /* 1 + the node where it failed; 0: none */
    bool was_overdue;
    double given_s;
};

enum word { WORD_SLICE, WORD_DONE, WORD_ERROR, WORD_BACK, WORD_RECALL, WORD_CANCEL };

struct message {
    double due_s;
    enum word word;
    uint32_t node, life; /* the node that it is from or for */
    uint32_t count;      /* lines that come back, or are asked back */
    struct slice slice;
};

struct messages {
    struct message *at;
    size_t first, count, capacity; /* a power of two */
};

/* What the node itself knows. */
struct far {
    bool is_alive, is_broken;
    uint32_t life;
    double begun_s;
    double rate, free_s, end_s; /* ends: the answers so far, the first slice */
    double back_s;              /* dead: when another machine takes its place */
    struct slice slices[SLICES_MAX];
    uint32_t first, count, lines;
    struct job_set held;
};

/* What the server knows of a node. */
struct seat {
    bool is_known;
    double lost_s; /* when it will be missed; 0: it is there */
    uint32_t lines, bound;
    uint64_t answers, answers_seen;
    struct pace pace;
    double slowness, measured_s;
    struct faults faults;
    struct job_set jobs; /* values are places in world.slices */
    struct queue_lease lease;
};

struct batch {
    struct order_entry order;
    uint32_t lines, done;
    uint64_t *bits;
    struct pace_longest longest;
};

struct world {
    struct settings settings;
    struct rng rng;
    double now_s;
    struct far *fars;
    struct seat *seats;
    struct pace_worker *workers;
    uint32_t *heap, *heap_at; /* nodes by far.end_s; 1 + place in the heap, 0: not in it */
    uint32_t heap_count;
    struct messages work, results, seen; /* seen: results that were read lately */
    struct batch *batches;
    uint32_t batch_count;
    struct order order;
    struct queue *queue;
    bool is_dry;
    uint64_t leased; /* places in leases and not given */
    struct slice *slices;
    uint32_t *free_slices;
    uint32_t free_count;
    uint64_t job_count;
    struct slice *pending;
    size_t pending_count, pending_capacity;
    uint64_t done, errors, late, returned, recalled, lost_nodes, sick;
    uint64_t wasted;                   /* lines that a node had begun, and lost at the end */
    double capacity, offered, ideal_s; /* lines per second; lines; when these were all lines */
    const char *wrong;                 /* the first thing that must not be; NULL: none */
};

/* --- node.c: the node's side, and the bus --- */
void far_start(struct world *world, uint32_t node);
void far_kill(struct world *world, uint32_t node);
void far_take(struct world *world, const struct message *message);
/* The first slice of the node whose end comes next ends. */
void far_answer(struct world *world);
double far_next_s(const struct world *world); /* when; a time far ahead: no node has any */
void message_put(struct messages *messages, const struct message *message);
/* Puts a word about a slice on a way to or from the node, which has it after DELAY_S. */
void message_send(struct world *world, struct messages *way, uint32_t node, enum word word,
                  const struct slice *slice, uint32_t count);
bool message_take(struct messages *messages, double until_s, struct message *ret_message);

/* --- server.c --- */
void server_take(struct world *world, const struct message *message);
void server_fill(struct world *world, uint32_t node);
/* Rates, nodes that are missed, ends of batches: each second. */
void server_look(struct world *world);
/* A round with every node: what a node does not hold is given out again. */
void server_sync(struct world *world);
void wrong(struct world *world, const char *what);

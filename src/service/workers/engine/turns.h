/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* turns: the turns of several engines on one device, on which only `loaded_max` models, or those
 * that fit into `memory_bytes` together, can be loaded at a time. Each engine is a member;
 * turns_decide says which one loads and which one makes room.
 *
 *     AWAY ──▶ LOADING ──▶ LOADED ──▶ LEAVING ──▶ AWAY           FAILED stays
 *
 * A load is expensive, so a loaded model keeps the device while it has work. After that, the model
 * with the most urgent work loads. Two things make a model leave sooner: a request of a single
 * client, and a batch of which half the time to its deadline has passed, if the batches of the
 * loaded model end later. Even then it stays
 *
 *   - TURN_STAY_LOADS times as long as its load took, so that two models in turn spend at most a
 *     fifth of the time on loading;
 *   - at least stay_ns_min;
 *   - until it has finished a job, so that lines that begin anew at each turn do end; but at most
 *     TURN_FRUITLESS times as long.
 *
 * A model that single clients used stays idle as long as its load took: a client that asked once
 * may ask again, and waiting costs no more than loading again.
 *
 * turns_decide is the whole policy, a function of its arguments. Knows no process, no model and no
 * GPU.
 *
 * Thread: any; one lock, which is taken after a worker's. `wake` is called with it held.
 * Memory: owned by the turns; members are never reused. */

#include "protocol/worker.h"

#define TURN_MEMBERS_MAX 64
#define TURN_STAY_LOADS 4
#define TURN_FRUITLESS 6
#define TURN_IDLE_NS ((int64_t)100000000)       /* 0.1 s without work: the model is idle */
#define TURN_FIRST_JOB_NS ((int64_t)1000000000) /* 1 s for the first job to arrive */

enum turn_state { TURN_AWAY, TURN_LOADING, TURN_LOADED, TURN_LEAVING, TURN_FAILED };

struct turn_member {
    enum turn_state state;
    uint64_t bytes; /* memory that it takes while it is loaded, as predicted */
    /* While it is not loaded: the work that waits for it. */
    bool is_wanted;
    enum tier tier;          /* the most urgent */
    int64_t wanted_unix_s;   /* since when */
    int64_t deadline_unix_s; /* the earliest; 0: none */
    /* While it is loaded. */
    int64_t loading_ns; /* when its last load began */
    int64_t loaded_ns;  /* when that load ended */
    int64_t idle_ns;    /* when its last job ended */
    uint32_t jobs;
    bool had_job;                 /* since it was loaded */
    uint64_t done;                /* jobs, since it was loaded */
    bool was_interactive;         /* the last job was a request of a single client */
    int64_t jobs_deadline_unix_s; /* the earliest since it was last idle; 0: none */
};

struct turn_decision {
    enum { TURN_WAIT, TURN_LOAD, TURN_UNLOAD } move;
    uint32_t member;
};

struct turns_options {
    uint32_t loaded_max; /* members that are loaded at a time; at least one */
    int64_t stay_ns_min;
    uint64_t memory_bytes; /* for all that are loaded, unless one alone needs more; 0: no limit */
};

/* The next move. One model moves at a time. */
struct turn_decision turns_decide(const struct turn_member *members, uint32_t count,
                                  const struct turns_options *options, int64_t now_ns,
                                  int64_t now_unix_s);

struct turns;

struct turns *turns_open(const struct turns_options *options);
/* All members must have left. NULL is allowed. */
void turns_close(struct turns *turns);
/* `wake` is called when turns_state_of of the member has changed. */
uint32_t turns_join(struct turns *turns, void (*wake)(void *context), void *context);
void turns_leave(struct turns *turns, uint32_t member);
/* Tells the memory that the member takes while it is loaded (0 before). */
void turns_weigh(struct turns *turns, uint32_t member, uint64_t bytes);

/* Jobs wait for the member; ignored while it is loaded or loads. `deadline_unix_s` 0: none. */
void turns_want(struct turns *turns, uint32_t member, enum tier tier, int64_t deadline_unix_s);
/* The state that is wanted of the member: LOADING: load now; LEAVING: make room. */
enum turn_state turns_state_of(struct turns *turns, uint32_t member);
/* The loaded member leaves by itself; jobs that come from now on wait for its next turn. */
void turns_park(struct turns *turns, uint32_t member);
/* The member has become LOADED, AWAY or FAILED. */
void turns_report(struct turns *turns, uint32_t member, enum turn_state state);
/* Whether any member has been LOADED. */
bool turns_have_loaded(struct turns *turns);
/* A job came to the loaded member. */
void turns_job(struct turns *turns, uint32_t member, enum tier tier, int64_t deadline_unix_s);
/* A job has ended: `jobs` are left inside the member. */
void turns_jobs_left(struct turns *turns, uint32_t member, uint32_t jobs);
/* Decides again, because time has passed; each member calls it several times per second. */
void turns_tend(struct turns *turns);

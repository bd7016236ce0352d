/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device: several engines that share one device, on which only `loaded_max` models can be loaded at
 * a time. Each engine is a member; the device decides which one loads and which one makes room.
 *
 *     AWAY ──▶ LOADING ──▶ LOADED ──▶ LEAVING ──▶ AWAY           FAILED stays
 *
 * A load is expensive, so a loaded model keeps the device while it has work. After that, the model
 * with the most urgent work loads. Two things make a model leave sooner: a request of a single
 * client, and a batch of which half the time to its deadline has passed, if the batches of the
 * loaded model end later. Even then it stays
 *
 *   - DEVICE_STAY_LOADS times as long as its load took, so that two models in turn spend at most a
 *     fifth of the time on loading;
 *   - at least stay_ns_min;
 *   - until it has finished a job, so that lines that begin anew at each turn do end; but at most
 *     DEVICE_FRUITLESS times as long.
 *
 * A model that single clients used stays idle as long as its load took: a client that asked once
 * may ask again, and waiting costs no more than loading again.
 *
 * device_decide is the whole policy, a function of its arguments. Knows no process and no model.
 *
 * Thread: any; one lock, which is taken after a worker's. `wake` is called with it held.
 * Memory: owned by the device; members are never reused. */

#include "protocol/worker.h"

#define DEVICE_MEMBERS_MAX 64
#define DEVICE_STAY_LOADS 4
#define DEVICE_FRUITLESS 6
#define DEVICE_IDLE_NS ((int64_t)100000000)       /* 0.1 s without work: the model is idle */
#define DEVICE_FIRST_JOB_NS ((int64_t)1000000000) /* 1 s for the first job to arrive */

enum device_state { DEVICE_AWAY, DEVICE_LOADING, DEVICE_LOADED, DEVICE_LEAVING, DEVICE_FAILED };

struct device_member {
    enum device_state state;
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

struct device_decision {
    enum { DEVICE_WAIT, DEVICE_LOAD, DEVICE_UNLOAD } move;
    uint32_t member;
};

struct device_options {
    uint32_t loaded_max; /* members that are loaded at a time; at least one */
    int64_t stay_ns_min;
};

/* The next move. One model moves at a time. */
struct device_decision device_decide(const struct device_member *members, uint32_t count,
                                     const struct device_options *options, int64_t now_ns,
                                     int64_t now_unix_s);

struct device;

struct device *device_open(const struct device_options *options);
/* All members must have left. NULL is allowed. */
void device_close(struct device *device);
/* `wake` is called when device_state of the member has changed. */
uint32_t device_join(struct device *device, void (*wake)(void *context), void *context);
void device_leave(struct device *device, uint32_t member);

/* Jobs wait for the member; ignored while it is loaded or loads. `deadline_unix_s` 0: none. */
void device_want(struct device *device, uint32_t member, enum tier tier, int64_t deadline_unix_s);
/* The state that the device wants of the member: LOADING: load now; LEAVING: make room. */
enum device_state device_state(struct device *device, uint32_t member);
/* The member has become LOADED, AWAY or FAILED. */
void device_report(struct device *device, uint32_t member, enum device_state state);
/* Whether any member has been LOADED. */
bool device_has_loaded(struct device *device);
/* A job came to the loaded member. */
void device_job(struct device *device, uint32_t member, enum tier tier, int64_t deadline_unix_s);
/* A job has ended: `jobs` are left inside the member. */
void device_jobs_left(struct device *device, uint32_t member, uint32_t jobs);
/* Decides again, because time has passed; each member calls it several times per second. */
void device_tend(struct device *device);

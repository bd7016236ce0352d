/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device: several engines that share one device, of which only so many can have their model loaded
 * at a time. Each engine is a member; the device says who loads and who makes room.
 *
 *     AWAY ──▶ LOADING ──▶ LOADED ──▶ LEAVING ──▶ AWAY           FAILED stays
 *
 * A load is dear, so a loaded model keeps the device as long as it has work, and only then does the
 * model load that is waited for most urgently. Sooner than that, it must make room for a request of
 * a single client, and for a batch of which half the time to its deadline has passed, when its own
 * batches end later. Then still, a model stays DEVICE_STAY_LOADS times as long as its load took, so
 * that two demands in turn spend at most a fifth of the time on loading, and stay_ns_min at least,
 * and until it has finished something, so that lines that must begin anew do end. A model that
 * single clients used stays idle as long as its load took: whoever asked once may ask again, and
 * waiting costs no more than loading it again would.
 *
 * Knows no process and no model. device_decide is the whole policy, a function of its arguments.
 *
 * Thread: any; one lock, which is taken after a worker's. `wake` is called under it.
 * Memory: the caller's members. */

#include "protocol/worker.h"

#define DEVICE_MEMBERS_MAX 64
#define DEVICE_STAY_LOADS 4
#define DEVICE_FRUITLESS 6 /* times that, until it must go without having finished anything */
#define DEVICE_IDLE_NS ((int64_t)100000000)       /* without work, until it is believed */
#define DEVICE_FIRST_JOB_NS ((int64_t)1000000000) /* for what was waiting to arrive */

enum device_state { DEVICE_AWAY, DEVICE_LOADING, DEVICE_LOADED, DEVICE_LEAVING, DEVICE_FAILED };

struct device_member {
    enum device_state state;
    /* While it is not loaded: what waits for it. */
    bool is_wanted;
    enum tier tier;          /* the most urgent */
    int64_t wanted_unix_s;   /* since when */
    int64_t deadline_unix_s; /* the earliest; 0: none */
    /* While it is loaded. */
    int64_t loading_ns; /* when its last load began */
    int64_t loaded_ns;  /* when that ended */
    int64_t idle_ns;    /* since when it has no job */
    uint32_t jobs;
    bool had_job;                 /* since it was loaded */
    uint64_t done;                /* jobs, since it was loaded */
    bool was_interactive;         /* the last job that came was a single client's */
    int64_t jobs_deadline_unix_s; /* the earliest since it last had no job; 0: none */
};

struct device_decision {
    enum { DEVICE_WAIT, DEVICE_LOAD, DEVICE_UNLOAD } move;
    uint32_t member;
};

struct device_options {
    uint32_t loaded_max; /* members that are loaded at a time; at least one */
    int64_t stay_ns_min;
};

/* What to do now. One model moves at a time. */
struct device_decision device_decide(const struct device_member *members, uint32_t count,
                                     const struct device_options *options, int64_t now_ns,
                                     int64_t now_unix_s);

struct device;

struct device *device_open(const struct device_options *options);
/* All members must have left. NULL is allowed. */
void device_close(struct device *device);
/* `wake` is called when the member shall look at device_state again. */
uint32_t device_join(struct device *device, void (*wake)(void *context), void *context);
void device_leave(struct device *device, uint32_t member);

/* Jobs wait for the member; ignored while it is loaded or loads. `deadline_unix_s` 0: none. */
void device_want(struct device *device, uint32_t member, enum tier tier, int64_t deadline_unix_s);
/* What the device wants the member to be: LOADING: load now; LEAVING: make room. */
enum device_state device_state(struct device *device, uint32_t member);
/* What has become of it: LOADED, AWAY or FAILED. */
void device_report(struct device *device, uint32_t member, enum device_state state);
/* A job came to the loaded member. */
void device_job(struct device *device, uint32_t member, enum tier tier, int64_t deadline_unix_s);
/* So many jobs are inside it. */
void device_jobs_left(struct device *device, uint32_t member, uint32_t jobs);
/* Decides; to be called now and then by each member, for time passes. */
void device_tend(struct device *device);

/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/engine/device.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct device {
    pthread_mutex_t lock;
    struct device_options options;
    struct device_member members[DEVICE_MEMBERS_MAX];
    struct {
        void (*wake)(void *context);
        void *context;
    } wakes[DEVICE_MEMBERS_MAX]; /* wake NULL: the member has left */
    uint32_t count;
    bool has_loaded; /* some member has been LOADED */
};

/* --- the policy --- */

#define NOBODY UINT32_MAX

static bool is_interactive(enum tier tier) {
    return tier != TIER_BATCH;
}

/* 0 means never. */
static bool is_earlier(int64_t a_unix_s, int64_t b_unix_s) {
    return a_unix_s != 0 && (b_unix_s == 0 || a_unix_s < b_unix_s);
}

static bool is_more_urgent(const struct device_member *a, const struct device_member *b) {
    if (a->tier != b->tier) return a->tier < b->tier;
    if (is_earlier(a->deadline_unix_s, b->deadline_unix_s)) return true;
    if (is_earlier(b->deadline_unix_s, a->deadline_unix_s)) return false;
    return a->wanted_unix_s < b->wanted_unix_s;
}

static uint32_t most_urgent(const struct device_member *members, uint32_t count) {
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].state == DEVICE_AWAY && members[i].is_wanted &&
            (best == NOBODY || is_more_urgent(&members[i], &members[best])))
            best = i;
    return best;
}

static int64_t load_time_ns(const struct device_member *member) {
    return member->loaded_ns - member->loading_ns;
}

/* How long the member stays loaded without a job. */
static int64_t linger_ns(const struct device_member *member) {
    int64_t load_ns = load_time_ns(member);
    if (!member->had_job) return load_ns > DEVICE_FIRST_JOB_NS ? load_ns : DEVICE_FIRST_JOB_NS;
    return member->was_interactive && load_ns > DEVICE_IDLE_NS ? load_ns : DEVICE_IDLE_NS;
}

/* The loaded member that has been idle for the longest, if any has been idle for long enough. */
static uint32_t idle_longest(const struct device_member *members, uint32_t count, int64_t now_ns) {
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        const struct device_member *one = &members[i];
        if (one->state != DEVICE_LOADED || one->jobs > 0) continue;
        if (now_ns - one->idle_ns < linger_ns(one)) continue;
        if (best == NOBODY || one->idle_ns < members[best].idle_ns) best = i;
    }
    return best;
}

static bool is_at_risk(const struct device_member *member, int64_t now_unix_s) {
    if (member->deadline_unix_s == 0) return false;
    return now_unix_s - member->wanted_unix_s >= member->deadline_unix_s - now_unix_s;
}

static bool had_its_time(const struct device_member *member, int64_t stay_ns_min, int64_t now_ns) {
    int64_t stay_ns = DEVICE_STAY_LOADS * load_time_ns(member);
    if (stay_ns < stay_ns_min) stay_ns = stay_ns_min;
    if (member->done == 0) stay_ns *= DEVICE_FRUITLESS;
    return now_ns - member->loaded_ns >= stay_ns;
}

/* The loaded member whose work can wait longest for `candidate`, if any has had its time. */
static uint32_t can_wait(const struct device_member *members, uint32_t count,
                         const struct device_member *candidate, int64_t stay_ns_min,
                         int64_t now_ns) {
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        const struct device_member *one = &members[i];
        if (one->state != DEVICE_LOADED) continue;
        if (!had_its_time(one, stay_ns_min, now_ns)) continue;
        bool is_later = is_earlier(candidate->deadline_unix_s, one->jobs_deadline_unix_s);
        if (!is_interactive(candidate->tier) && !is_later) continue;
        if (best == NOBODY ||
            is_earlier(members[best].jobs_deadline_unix_s, one->jobs_deadline_unix_s))
            best = i;
    }
    return best;
}

struct device_decision device_decide(const struct device_member *members, uint32_t count,
                                     const struct device_options *options, int64_t now_ns,
                                     int64_t now_unix_s) {
    uint32_t loaded_max = options->loaded_max > 0 ? options->loaded_max : 1;
    const struct device_decision wait = {DEVICE_WAIT, 0};
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (members[i].state == DEVICE_LOADING || members[i].state == DEVICE_LEAVING) return wait;
        loaded += members[i].state == DEVICE_LOADED;
    }
    uint32_t wanted = most_urgent(members, count);
    if (wanted == NOBODY) return wait;
    if (loaded < loaded_max) return (struct device_decision){DEVICE_LOAD, wanted};
    const struct device_member *candidate = &members[wanted];
    uint32_t victim = idle_longest(members, count, now_ns);
    if (victim == NOBODY && (is_interactive(candidate->tier) || is_at_risk(candidate, now_unix_s)))
        victim = can_wait(members, count, candidate, options->stay_ns_min, now_ns);
    return victim == NOBODY ? wait : (struct device_decision){DEVICE_UNLOAD, victim};
}

/* --- the object --- */

struct device *device_open(const struct device_options *options) {
    struct device *device = mem_new(1, sizeof *device);
    device->options = *options;
    pthread_mutex_init(&device->lock, NULL);
    return device;
}

void device_close(struct device *device) {
    if (!device) return;
    for (uint32_t i = 0; i < device->count; i++) assert(!device->wakes[i].wake);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* The lock is held. */
static void decide(struct device *device) {
    struct device_decision decision = device_decide(
        device->members, device->count, &device->options, clock_monotonic_ns(), clock_unix_s());
    if (decision.move == DEVICE_WAIT) return;
    uint32_t member = decision.member;
    struct device_member *one = &device->members[member];
    if (decision.move == DEVICE_LOAD) {
        *one = (struct device_member){.state = DEVICE_LOADING, .loading_ns = clock_monotonic_ns()};
        log_info("event=model_loads worker=%u", member);
    } else {
        one->state = DEVICE_LEAVING;
        log_info("event=model_leaves worker=%u jobs=%u", member, one->jobs);
    }
    device->wakes[member].wake(device->wakes[member].context);
}

uint32_t device_join(struct device *device, void (*wake)(void *context), void *context) {
    pthread_mutex_lock(&device->lock);
    assert(device->count < DEVICE_MEMBERS_MAX);
    uint32_t member = device->count++;
    device->members[member] = (struct device_member){.state = DEVICE_AWAY};
    device->wakes[member].wake = wake;
    device->wakes[member].context = context;
    pthread_mutex_unlock(&device->lock);
    return member;
}

void device_leave(struct device *device, uint32_t member) {
    pthread_mutex_lock(&device->lock);
    device->members[member] = (struct device_member){.state = DEVICE_FAILED};
    device->wakes[member].wake = NULL;
    decide(device);
    pthread_mutex_unlock(&device->lock);
}

void device_want(struct device *device, uint32_t member, enum tier tier, int64_t deadline_unix_s) {
    pthread_mutex_lock(&device->lock);
    struct device_member *one = &device->members[member];
    if (one->state == DEVICE_AWAY || one->state == DEVICE_LEAVING) {
        if (!one->is_wanted) {
            one->is_wanted = true;
            one->wanted_unix_s = clock_unix_s();
            one->tier = tier;
            one->deadline_unix_s = deadline_unix_s;
        }
        if (tier < one->tier) one->tier = tier;
        if (is_earlier(deadline_unix_s, one->deadline_unix_s))
            one->deadline_unix_s = deadline_unix_s;
        decide(device);
    }
    pthread_mutex_unlock(&device->lock);
}

enum device_state device_state(struct device *device, uint32_t member) {
    pthread_mutex_lock(&device->lock);
    enum device_state state = device->members[member].state;
    pthread_mutex_unlock(&device->lock);
    return state;
}

void device_report(struct device *device, uint32_t member, enum device_state state) {
    pthread_mutex_lock(&device->lock);
    struct device_member *one = &device->members[member];
    one->state = state;
    one->jobs = 0;
    if (state == DEVICE_LOADED) {
        one->loaded_ns = one->idle_ns = clock_monotonic_ns();
        device->has_loaded = true;
    }
    decide(device);
    pthread_mutex_unlock(&device->lock);
}

bool device_has_loaded(struct device *device) {
    pthread_mutex_lock(&device->lock);
    bool has_loaded = device->has_loaded;
    pthread_mutex_unlock(&device->lock);
    return has_loaded;
}

void device_job(struct device *device, uint32_t member, enum tier tier, int64_t deadline_unix_s) {
    pthread_mutex_lock(&device->lock);
    struct device_member *one = &device->members[member];
    if (one->jobs++ == 0) one->jobs_deadline_unix_s = 0;
    one->had_job = true;
    one->was_interactive = is_interactive(tier);
    if (is_earlier(deadline_unix_s, one->jobs_deadline_unix_s))
        one->jobs_deadline_unix_s = deadline_unix_s;
    pthread_mutex_unlock(&device->lock);
}

void device_jobs_left(struct device *device, uint32_t member, uint32_t jobs) {
    pthread_mutex_lock(&device->lock);
    struct device_member *one = &device->members[member];
    if (jobs == 0 && one->jobs > 0) one->idle_ns = clock_monotonic_ns();
    if (one->jobs > jobs) one->done += one->jobs - jobs;
    one->jobs = jobs;
    pthread_mutex_unlock(&device->lock);
}

void device_tend(struct device *device) {
    pthread_mutex_lock(&device->lock);
    decide(device);
    pthread_mutex_unlock(&device->lock);
}

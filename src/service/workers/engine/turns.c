/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/engine/turns.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct turns {
    pthread_mutex_t lock;
    struct turns_options options;
    struct turn_member members[TURN_MEMBERS_MAX];
    struct {
        void (*wake)(void *context);
        void *context;
    } wakes[TURN_MEMBERS_MAX]; /* wake NULL: the member has left */
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

static bool is_more_urgent(const struct turn_member *a, const struct turn_member *b) {
    if (a->tier != b->tier) return a->tier < b->tier;
    if (is_earlier(a->deadline_unix_s, b->deadline_unix_s)) return true;
    if (is_earlier(b->deadline_unix_s, a->deadline_unix_s)) return false;
    return a->wanted_unix_s < b->wanted_unix_s;
}

static uint32_t most_urgent(const struct turn_member *members, uint32_t count) {
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].state == TURN_AWAY && members[i].is_wanted &&
            (best == NOBODY || is_more_urgent(&members[i], &members[best])))
            best = i;
    return best;
}

static int64_t load_time_ns(const struct turn_member *member) {
    return member->loaded_ns - member->loading_ns;
}

/* How long the member stays loaded without a job. */
static int64_t linger_ns(const struct turn_member *member) {
    int64_t load_ns = load_time_ns(member);
    if (!member->had_job) return load_ns > TURN_FIRST_JOB_NS ? load_ns : TURN_FIRST_JOB_NS;
    return member->was_interactive && load_ns > TURN_IDLE_NS ? load_ns : TURN_IDLE_NS;
}

/* The loaded member that has been idle for the longest, if any has been idle for long enough. */
static uint32_t idle_longest(const struct turn_member *members, uint32_t count, int64_t now_ns) {
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        const struct turn_member *one = &members[i];
        if (one->state != TURN_LOADED || one->jobs > 0) continue;
        if (now_ns - one->idle_ns < linger_ns(one)) continue;
        if (best == NOBODY || one->idle_ns < members[best].idle_ns) best = i;
    }
    return best;
}

static bool is_at_risk(const struct turn_member *member, int64_t now_unix_s) {
    if (member->deadline_unix_s == 0) return false;
    return now_unix_s - member->wanted_unix_s >= member->deadline_unix_s - now_unix_s;
}

static bool had_its_time(const struct turn_member *member, int64_t stay_ns_min, int64_t now_ns) {
    int64_t stay_ns = TURN_STAY_LOADS * load_time_ns(member);
    if (stay_ns < stay_ns_min) stay_ns = stay_ns_min;
    if (member->done == 0) stay_ns *= TURN_FRUITLESS;
    return now_ns - member->loaded_ns >= stay_ns;
}

/* The loaded member whose work can wait longest for `candidate`, if any has had its time. */
static uint32_t can_wait(const struct turn_member *members, uint32_t count,
                         const struct turn_member *candidate, int64_t stay_ns_min, int64_t now_ns) {
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        const struct turn_member *one = &members[i];
        if (one->state != TURN_LOADED) continue;
        if (!had_its_time(one, stay_ns_min, now_ns)) continue;
        bool is_later = is_earlier(candidate->deadline_unix_s, one->jobs_deadline_unix_s);
        if (!is_interactive(candidate->tier) && !is_later) continue;
        if (best == NOBODY ||
            is_earlier(members[best].jobs_deadline_unix_s, one->jobs_deadline_unix_s))
            best = i;
    }
    return best;
}

struct turn_decision turns_decide(const struct turn_member *members, uint32_t count,
                                  const struct turns_options *options, int64_t now_ns,
                                  int64_t now_unix_s) {
    uint32_t loaded_max = options->loaded_max > 0 ? options->loaded_max : 1;
    const struct turn_decision wait = {TURN_WAIT, 0};
    uint32_t loaded = 0;
    uint64_t used_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (members[i].state == TURN_LOADING || members[i].state == TURN_LEAVING) return wait;
        if (members[i].state != TURN_LOADED) continue;
        loaded++;
        used_bytes += members[i].bytes;
    }
    uint32_t wanted = most_urgent(members, count);
    if (wanted == NOBODY) return wait;
    const struct turn_member *candidate = &members[wanted];
    bool fits = loaded == 0 || options->memory_bytes == 0 ||
                used_bytes + candidate->bytes <= options->memory_bytes;
    if (loaded < loaded_max && fits) return (struct turn_decision){TURN_LOAD, wanted};
    uint32_t victim = idle_longest(members, count, now_ns);
    if (victim == NOBODY && (is_interactive(candidate->tier) || is_at_risk(candidate, now_unix_s)))
        victim = can_wait(members, count, candidate, options->stay_ns_min, now_ns);
    return victim == NOBODY ? wait : (struct turn_decision){TURN_UNLOAD, victim};
}

/* --- the object --- */

struct turns *turns_open(const struct turns_options *options) {
    struct turns *turns = mem_new(1, sizeof *turns);
    turns->options = *options;
    pthread_mutex_init(&turns->lock, NULL);
    return turns;
}

void turns_close(struct turns *turns) {
    if (!turns) return;
    for (uint32_t i = 0; i < turns->count; i++) assert(!turns->wakes[i].wake);
    pthread_mutex_destroy(&turns->lock);
    free(turns);
}

/* The lock is held. */
static void decide(struct turns *turns) {
    struct turn_decision decision = turns_decide(turns->members, turns->count, &turns->options,
                                                 clock_monotonic_ns(), clock_unix_s());
    if (decision.move == TURN_WAIT) return;
    uint32_t member = decision.member;
    struct turn_member *one = &turns->members[member];
    if (decision.move == TURN_LOAD) {
        *one = (struct turn_member){
            .state = TURN_LOADING, .bytes = one->bytes, .loading_ns = clock_monotonic_ns()};
        log_info("event=model_loads worker=%u", member);
    } else {
        one->state = TURN_LEAVING;
        log_info("event=model_leaves worker=%u jobs=%u", member, one->jobs);
    }
    turns->wakes[member].wake(turns->wakes[member].context);
}

uint32_t turns_join(struct turns *turns, void (*wake)(void *context), void *context) {
    pthread_mutex_lock(&turns->lock);
    assert(turns->count < TURN_MEMBERS_MAX);
    uint32_t member = turns->count++;
    turns->members[member] = (struct turn_member){.state = TURN_AWAY};
    turns->wakes[member].wake = wake;
    turns->wakes[member].context = context;
    pthread_mutex_unlock(&turns->lock);
    return member;
}

void turns_weigh(struct turns *turns, uint32_t member, uint64_t bytes) {
    pthread_mutex_lock(&turns->lock);
    turns->members[member].bytes = bytes;
    pthread_mutex_unlock(&turns->lock);
}

void turns_leave(struct turns *turns, uint32_t member) {
    pthread_mutex_lock(&turns->lock);
    turns->members[member] = (struct turn_member){.state = TURN_FAILED};
    turns->wakes[member].wake = NULL;
    decide(turns);
    pthread_mutex_unlock(&turns->lock);
}

void turns_want(struct turns *turns, uint32_t member, enum tier tier, int64_t deadline_unix_s) {
    pthread_mutex_lock(&turns->lock);
    struct turn_member *one = &turns->members[member];
    if (one->state == TURN_AWAY || one->state == TURN_LEAVING) {
        if (!one->is_wanted) {
            one->is_wanted = true;
            one->wanted_unix_s = clock_unix_s();
            one->tier = tier;
            one->deadline_unix_s = deadline_unix_s;
        }
        if (tier < one->tier) one->tier = tier;
        if (is_earlier(deadline_unix_s, one->deadline_unix_s))
            one->deadline_unix_s = deadline_unix_s;
        decide(turns);
    }
    pthread_mutex_unlock(&turns->lock);
}

enum turn_state turns_state_of(struct turns *turns, uint32_t member) {
    pthread_mutex_lock(&turns->lock);
    enum turn_state state = turns->members[member].state;
    pthread_mutex_unlock(&turns->lock);
    return state;
}

void turns_park(struct turns *turns, uint32_t member) {
    pthread_mutex_lock(&turns->lock);
    if (turns->members[member].state == TURN_LOADED) turns->members[member].state = TURN_LEAVING;
    pthread_mutex_unlock(&turns->lock);
}

void turns_report(struct turns *turns, uint32_t member, enum turn_state state) {
    pthread_mutex_lock(&turns->lock);
    struct turn_member *one = &turns->members[member];
    one->state = state;
    one->jobs = 0;
    if (state == TURN_LOADED) {
        one->loaded_ns = one->idle_ns = clock_monotonic_ns();
        turns->has_loaded = true;
    }
    decide(turns);
    pthread_mutex_unlock(&turns->lock);
}

bool turns_have_loaded(struct turns *turns) {
    pthread_mutex_lock(&turns->lock);
    bool has_loaded = turns->has_loaded;
    pthread_mutex_unlock(&turns->lock);
    return has_loaded;
}

void turns_job(struct turns *turns, uint32_t member, enum tier tier, int64_t deadline_unix_s) {
    pthread_mutex_lock(&turns->lock);
    struct turn_member *one = &turns->members[member];
    if (one->jobs++ == 0) one->jobs_deadline_unix_s = 0;
    one->had_job = true;
    one->was_interactive = is_interactive(tier);
    if (is_earlier(deadline_unix_s, one->jobs_deadline_unix_s))
        one->jobs_deadline_unix_s = deadline_unix_s;
    pthread_mutex_unlock(&turns->lock);
}

void turns_jobs_left(struct turns *turns, uint32_t member, uint32_t jobs) {
    pthread_mutex_lock(&turns->lock);
    struct turn_member *one = &turns->members[member];
    if (jobs == 0 && one->jobs > 0) one->idle_ns = clock_monotonic_ns();
    if (one->jobs > jobs) one->done += one->jobs - jobs;
    one->jobs = jobs;
    pthread_mutex_unlock(&turns->lock);
}

void turns_tend(struct turns *turns) {
    pthread_mutex_lock(&turns->lock);
    decide(turns);
    pthread_mutex_unlock(&turns->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include "base/rng.h"

#include <stdio.h>

#define LAST_MS 90000 /* when the last event may happen */

static int64_t between(struct rng *rng, int64_t least, int64_t most) {
    return least + (int64_t)rng_below(rng, (uint64_t)(most - least + 1));
}

/* Short pauses meet calls, long ones a standby that takes over. */
static int64_t draw_pause_ms(struct rng *rng) {
    return rng_below(rng, 2) ? between(rng, 1, 3000) : between(rng, 10000, 60000);
}

static void draw_event(struct event *event, struct rng *rng, uint32_t servers) {
    static const enum event_kind kinds[] = {
        EVENT_KILL, EVENT_KILL, EVENT_KILL, EVENT_STOP, EVENT_STOP, EVENT_STOP, EVENT_SLEEP,
        EVENT_JUMP, EVENT_CUT,  EVENT_CUT,  EVENT_AWAY, EVENT_BASE, EVENT_BASE, EVENT_END};
    event->kind = kinds[rng_below(rng, sizeof kinds / sizeof *kinds)];
    event->place = (enum event_place)rng_below(rng, EVENT_PLACES);
    event->server = rng_below(rng, 2) ? 0 : (uint32_t)rng_below(rng, servers);
    event->at_ms = between(rng, 0, LAST_MS);
    event->value = draw_pause_ms(rng);
    if (event->kind == EVENT_JUMP) event->value = between(rng, -4000000, 4000000);
}

/* The leader is silent just long enough, and goes on; its follower stops between its look at the
 * chain and its write, and writes into a gap below the leader's base. */
static void draw_gap(struct event events[3], struct rng *rng) {
    int64_t at_ms = between(rng, 3000, 50000), silence_ms = between(rng, 15000, 22000);
    events[0] = (struct event){EVENT_CUT, AT_ONCE, 0, at_ms, silence_ms};
    events[1] = (struct event){EVENT_STOP, AT_WRITE, 1, at_ms, between(rng, 5000, 40000)};
    events[2] = (struct event){EVENT_BASE, AT_ONCE, 0, at_ms + silence_ms + 500, 0};
}

void plan_draw(struct plan *ret_plan, uint64_t seed) {
    static const uint32_t preempts[] = {0, 1, 4, 32}, troubles[] = {0, 4, 20, 100};
    static const int64_t slows_ms[] = {5, 40, 400, 4000};
    struct plan plan = {.seed = seed};
    struct rng rng = {rng_at(seed, 'p')};
    plan.servers = 2 + (uint32_t)rng_below(&rng, PLAN_SERVERS_MAX - 1);
    plan.preempt = preempts[rng_below(&rng, 4)];
    plan.trouble = troubles[rng_below(&rng, 4)];
    plan.slow_ms = slows_ms[rng_below(&rng, 4)];
    plan.has_large = rng_below(&rng, 4) == 0;
    plan.event_count = 1 + (uint32_t)rng_below(&rng, PLAN_EVENTS_MAX);
    for (uint32_t i = 0; i < plan.event_count; i++) draw_event(&plan.events[i], &rng, plan.servers);
    if (plan.event_count >= 3 && rng_below(&rng, 8) == 0) draw_gap(plan.events, &rng);
    *ret_plan = plan;
}

void plan_write_event(const struct event *event, char *ret_text, size_t text_bytes) {
    static const char *const kinds[] = {"nothing",
                                        "killed, starts after ms",
                                        "SIGSTOP for ms",
                                        "its machine sleeps for ms",
                                        "its wall clock jumps by s",
                                        "cut off for ms",
                                        "all are cut off for ms",
                                        "a base is due",
                                        "ends, as it is asked to"};
    static const char *const places[] = {"", ", before a write of the log",
                                         ", with a write of the log on its way",
                                         ", with the answer to a write of the log on its way"};
    snprintf(ret_text, text_bytes, "%6lld ms  server %u: %s %lld%s", (long long)event->at_ms,
             event->server, kinds[event->kind], (long long)event->value, places[event->place]);
}

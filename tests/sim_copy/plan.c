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
    static const enum event_kind kinds[] = {EVENT_KILL, EVENT_KILL, EVENT_KILL,  EVENT_STOP,
                                            EVENT_STOP, EVENT_STOP, EVENT_SLEEP, EVENT_JUMP,
                                            EVENT_CUT,  EVENT_CUT,  EVENT_AWAY,  EVENT_BASE,
                                            EVENT_BASE, EVENT_END,  EVENT_LOOK};
    event->kind = kinds[rng_below(rng, sizeof kinds / sizeof *kinds)];
    event->place = (enum event_place)rng_below(rng, EVENT_PLACES);
    event->server = rng_below(rng, 2) ? 0 : (uint32_t)rng_below(rng, servers);
    event->at_ms = between(rng, 0, LAST_MS);
    event->value = draw_pause_ms(rng);
    if (event->kind == EVENT_JUMP) event->value = between(rng, -4000000, 4000000);
}

/* --- corners that are seldom met --- */

/* The leader is silent just long enough, and goes on; its follower stops between its look at the
 * chain and its write, and writes into a gap below the leader's base. A leader that stops is always
 * silent; an entry of one that is cut off may arrive, and then nobody follows it. */
static void draw_gap(struct plan *plan, struct rng *rng) {
    int64_t at_ms = between(rng, 3000, 50000), silence_ms = between(rng, 17000, 22000);
    enum event_kind silence = rng_below(rng, 4) ? EVENT_STOP : EVENT_CUT;
    plan->servers = 2;
    plan->trouble = 0; /* a look that is not answered is no silence */
    if (plan->slow_ms > 40) plan->slow_ms = 40;
    plan->event_count = 3;
    plan->events[0] = (struct event){silence, AT_ONCE, 0, at_ms, silence_ms};
    plan->events[1] = (struct event){EVENT_STOP, AT_WRITE, 1, at_ms, between(rng, 20000, 60000)};
    plan->events[2] = (struct event){EVENT_BASE, AT_ONCE, 0, at_ms + silence_ms + 500, 0};
}

/* Bases come while files come and go. Some files are told, but not stored, when one begins, and
 * gone when it comes to them, if it reads for seconds. Others are on their way until it is over. */
static void draw_bases(struct plan *plan, struct rng *rng) {
    plan->has_large = true;
    plan->clients = PLAN_CLIENTS_MAX;
    plan->read_ms = rng_below(rng, 2) ? 1000 : 0;
    plan->slow_ms = rng_below(rng, 2) ? 400 : 4000;
    plan->event_count = PLAN_EVENTS_MAX;
    for (uint32_t i = 0; i < PLAN_EVENTS_MAX; i += 2) {
        int64_t at_ms = 5000 + i * 12000 + between(rng, 0, 10000);
        plan->events[i] = (struct event){EVENT_BASE, AT_ONCE, 0, at_ms, 0};
        plan->events[i + 1] =
            (struct event){EVENT_LOOK, AT_ONCE, 0, at_ms + between(rng, 5000, 20000), 0};
    }
}

/* The leader stops in a base or in its sweep, and goes on when another one leads, which has stored
 * files meanwhile. */
static void draw_late_sweep(struct plan *plan, struct rng *rng) {
    int64_t at_ms = between(rng, 5000, 30000), stop_ms = between(rng, 25000, 60000);
    bool is_in_sweep = rng_below(rng, 4) != 0;
    plan->has_large = true;
    plan->read_ms = 0;
    plan->slow_ms = 40;
    plan->event_count = 3;
    plan->events[0] = (struct event){EVENT_BASE, AT_ONCE, 0, at_ms, 0};
    if (!is_in_sweep) at_ms += between(rng, 100, 4000);
    plan->events[1] =
        (struct event){EVENT_STOP, is_in_sweep ? AT_LIST : AT_ONCE, 0, at_ms, stop_ms};
    at_ms += stop_ms + between(rng, 1000, 8000);
    plan->events[2] = (struct event){EVENT_LOOK, AT_ONCE, 0, at_ms, 0};
}

/* A leader with many clients stops for minutes: another one has followed, and leads in time. The
 * leader goes on before events.c's quiet time is over: it may store what no base sweeps then. */
static void draw_silence(struct plan *plan, struct rng *rng) {
    plan->clients = PLAN_CLIENTS_MAX;
    plan->trouble = 0;
    if (plan->slow_ms > 40) plan->slow_ms = 40;
    plan->event_count = 1;
    plan->events[0] = (struct event){EVENT_STOP, AT_ONCE, 0, between(rng, 10000, 25000),
                                     between(rng, 90000, 120000)};
}

void plan_draw(struct plan *ret_plan, uint64_t seed) {
    static const uint32_t preempts[] = {0, 1, 4, 32}, troubles[] = {0, 4, 20, 100};
    static const int64_t slows_ms[] = {5, 40, 400, 4000}, reads_ms[] = {0, 0, 100, 1000};
    struct plan plan = {.seed = seed};
    struct rng rng = {rng_at(seed, 'p')};
    plan.servers = 2 + (uint32_t)rng_below(&rng, PLAN_SERVERS_MAX - 1);
    plan.preempt = preempts[rng_below(&rng, 4)];
    plan.trouble = troubles[rng_below(&rng, 4)];
    plan.slow_ms = slows_ms[rng_below(&rng, 4)];
    plan.read_ms = reads_ms[rng_below(&rng, 4)];
    plan.has_large = rng_below(&rng, 4) == 0;
    plan.clients = 1 + (uint32_t)rng_below(&rng, 2);
    plan.event_count = 1 + (uint32_t)rng_below(&rng, PLAN_EVENTS_MAX);
    for (uint32_t i = 0; i < plan.event_count; i++) draw_event(&plan.events[i], &rng, plan.servers);
    uint64_t corner = rng_below(&rng, 8);
    if (corner == 0 && rng_below(&rng, 2))
        draw_gap(&plan, &rng);
    else if (corner == 0)
        draw_silence(&plan, &rng);
    if (corner == 1 || corner == 2) draw_bases(&plan, &rng);
    if (corner == 3) draw_late_sweep(&plan, &rng);
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
                                        "ends, as it is asked to",
                                        "the copy is restored aside"};
    static const char *const places[] = {
        "", ", before a write of the log", ", with a write of the log on its way",
        ", with the answer to a write of the log on its way", ", before a list of its sweep"};
    snprintf(ret_text, text_bytes, "%6lld ms  server %u: %s %lld%s", (long long)event->at_ms,
             event->server, kinds[event->kind], (long long)event->value, places[event->place]);
}

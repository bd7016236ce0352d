/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400

static bool one_in(struct rng *rng, uint64_t count) {
    return rng_below(rng, count) == 0;
}

static int64_t between(struct rng *rng, int64_t low, int64_t high) {
    return low + (int64_t)rng_below(rng, (uint64_t)(high - low + 1));
}

static void add(struct plan *plan, struct event event) {
    if (plan->event_count < PLAN_EVENTS_MAX) plan->events[plan->event_count++] = event;
}

/* Something that happens while batches run. */
static void add_middle(struct plan *plan, struct rng *rng, uint32_t batches) {
    static const int64_t jumps_s[] = {-3600, 3600, -40 * DAY_S, 400, 2 * DAY_S};
    uint32_t batch = (uint32_t)rng_below(rng, batches);
    switch (rng_below(rng, 10)) {
    case 0: add(plan, (struct event){EVENT_CANCEL, batch, 0, 0, 0}); break;
    case 1:
    case 2: add(plan, (struct event){EVENT_READ, batch, between(rng, 1, 30), 0, 0}); break;
    case 3:
    case 4: add(plan, (struct event){EVENT_IDLE, 0, between(rng, 1, 80), 0, 0}); break;
    case 5: add(plan, (struct event){EVENT_DOWN, batch, 0, 0, 0}); break;
    case 6: add(plan, (struct event){EVENT_SILENCE, batch, between(rng, 1, 3000), 0, 0}); break;
    case 7: add(plan, (struct event){EVENT_JUMP, 0, jumps_s[rng_below(rng, 5)], 0, 0}); break;
    case 8: add(plan, (struct event){EVENT_PAUSE, batch, between(rng, 1, 200), 0, 0}); break;
    default: add(plan, (struct event){EVENT_CREATE, batch, 0, 0, 0}); break;
    }
}

static void add_commands(struct plan *plan, struct rng *rng) {
    uint32_t batches = (uint32_t)between(rng, 1, 3);
    for (uint32_t i = 0; i < batches; i++) {
        int64_t lines = one_in(rng, 4) ? between(rng, 12, 40) : between(rng, 1, 10);
        add(plan, (struct event){EVENT_UPLOAD, i, lines, 0, 0});
        if (one_in(rng, 3)) add_middle(plan, rng, batches);
        add(plan, (struct event){EVENT_CREATE, i, 0, 0, 0});
        for (int64_t n = between(rng, 0, 3); n > 0; n--) add_middle(plan, rng, batches);
    }
    if (!one_in(rng, 3)) return;
    uint32_t batch = (uint32_t)rng_below(rng, batches);
    if (one_in(rng, 2)) {
        add(plan, (struct event){EVENT_AWAIT, batch, 0, 0, 0});
        add(plan, (struct event){EVENT_READ, batch, 40, 0, 0});
    }
    if (one_in(rng, 2)) add(plan, (struct event){EVENT_DELETE, batch, 0, 0, 0});
}

/* Most faults come early in a life or in the middle of its work. */
static uint32_t draw_call(struct rng *rng) {
    static const uint32_t most[] = {25, 100, 250, 500};
    return 1 + (uint32_t)rng_below(rng, most[rng_below(rng, 4)]);
}

static void add_faults(struct plan *plan, struct rng *rng) {
    uint32_t deaths = (uint32_t)between(rng, 1, PLAN_LIVES_MAX / 2);
    for (uint32_t life = 0; life < deaths; life++) {
        if (one_in(rng, 6)) {
            int64_t ms = one_in(rng, 2) ? between(rng, 1, 100) : between(rng, 100, 20000);
            add(plan, (struct event){EVENT_FULL, 0, ms, life, draw_call(rng)});
        }
        if (one_in(rng, 8)) add(plan, (struct event){EVENT_ERROR, 0, 0, life, draw_call(rng)});
        enum event_kind kind = one_in(rng, 4) ? EVENT_KILL : EVENT_CUT;
        int64_t luck = one_in(rng, 4) ? DISK_NOTHING : DISK_DRAWN;
        add(plan, (struct event){kind, 0, kind == EVENT_CUT ? luck : 0, life, draw_call(rng)});
    }
}

/* Puts an event before the command at `place`. */
static void insert(struct plan *plan, uint32_t place, struct event event) {
    if (plan->event_count == PLAN_EVENTS_MAX) return;
    memmove(&plan->events[place + 1], &plan->events[place],
            (plan->event_count - place) * sizeof event);
    plan->events[place] = event;
    plan->event_count++;
}

static uint32_t count_commands(const struct plan *plan) {
    uint32_t count = 0;
    while (count < plan->event_count && !event_is_fault(plan->events[count].kind)) count++;
    return count;
}

/* What came to the rig later has draws of its own, so that a seed keeps the rest of its plan. */
static void add_later(struct plan *plan, struct rng *rng) {
    if (one_in(rng, 3)) plan->questions = (uint32_t)between(rng, 1, 6);
    if (!one_in(rng, 4)) return;
    for (int64_t n = between(rng, 1, 2); n > 0; n--)
        insert(plan, (uint32_t)rng_below(rng, count_commands(plan) + 1),
               (struct event){EVENT_BACKUP, 0, 0, 0, 0});
}

static void leave_out(struct plan *plan, enum event_kind kind) {
    for (uint32_t i = plan->event_count; i-- > 0;)
        if (plan->events[i].kind == kind)
            memmove(&plan->events[i], &plan->events[i + 1],
                    (--plan->event_count - i) * sizeof *plan->events);
}

/* All lives are in one process then, which a server that gives up would take along. */
static void add_nodes(struct plan *plan, struct rng *rng) {
    if (!one_in(rng, 4)) return;
    plan->nodes = (uint32_t)between(rng, 1, 2);
    if (plan->workers < plan->nodes) plan->workers = plan->nodes;
    plan->questions = 0; /* a line is known by its question */
    leave_out(plan, EVENT_ERROR);
    leave_out(plan, EVENT_BACKUP);
    if (!one_in(rng, 3)) return;
    for (int64_t n = between(rng, 1, 2); n > 0; n--)
        insert(
            plan, (uint32_t)rng_below(rng, count_commands(plan) + 1),
            (struct event){EVENT_QUEUE, (uint32_t)rng_below(rng, 4), between(rng, 1, 9000), 0, 0});
}

/* Two workers of which one fails with all, or is silent at the end of a batch for so long that its
 * lines are asked back. A node's are not cancelled: that takes more than ten seconds. */
static void add_bad_worker(struct plan *plan, struct rng *rng) {
    if (!one_in(rng, 6)) return;
    bool is_failing = plan->nodes == 0 && one_in(rng, 2);
    uint32_t seat = (uint32_t)rng_below(rng, 2);
    plan->workers = 2;
    if (is_failing) {
        plan->failing = 1 + seat;
        plan->trouble = 0;
        leave_out(plan, EVENT_DOWN);
        leave_out(plan, EVENT_SILENCE);
        return;
    }
    plan->delay_ms = 2000;
    uint32_t at = 0;
    while (at < plan->event_count && plan->events[at].kind != EVENT_CREATE) at++;
    if (at == plan->event_count) return;
    insert(
        plan, at + 1,
        (struct event){EVENT_SILENCE, seat, between(rng, 7000, plan->nodes ? 9500 : 30000), 0, 0});
}

/* An erasure behind the creation of its batch. The client of functions knows which file ids it has
 * been told, that of HTTP does not. */
static void add_erasures(struct plan *plan, struct rng *rng) {
    if (plan->http || !one_in(rng, 4)) return;
    for (int64_t n = between(rng, 1, 3); n > 0; n--) {
        uint32_t at = (uint32_t)rng_below(rng, count_commands(plan));
        if (plan->events[at].kind != EVENT_CREATE && plan->events[at].kind != EVENT_AWAIT) continue;
        uint32_t end = count_commands(plan), batch = plan->events[at].batch;
        uint32_t place = at + 1 + (uint32_t)rng_below(rng, end - at);
        insert(plan, place, (struct event){EVENT_ERASE, batch, between(rng, 0, 4095), 0, 0});
    }
}

void plan_draw(struct plan *ret_plan, uint64_t seed) {
    static const uint32_t preempts[] = {0, 64, 8, 2};
    static const uint32_t paddings[] = {0, 0, 200, 3000};
    struct rng rng = {rng_at(seed, 'p')}, later = {rng_at(seed, 'l')};
    struct rng nodes = {rng_at(seed, 'n')}, http = {rng_at(seed, 'h')};
    struct rng bad = {rng_at(seed, 'b')}, erase = {rng_at(seed, 'e')};
    *ret_plan = (struct plan){.seed = seed, .delay_ms = 40};
    ret_plan->is_fresh = one_in(&rng, 16);
    ret_plan->preempt = preempts[rng_below(&rng, 4)];
    ret_plan->line_padding = paddings[rng_below(&rng, 4)];
    ret_plan->workers = (uint32_t)between(&rng, 1, 2);
    ret_plan->trouble = one_in(&rng, 2) ? (uint32_t)between(&rng, 3, 20) : 0;
    add_commands(ret_plan, &rng);
    add_faults(ret_plan, &rng);
    add_later(ret_plan, &later);
    add_nodes(ret_plan, &nodes);
    add_bad_worker(ret_plan, &bad);
    if (ret_plan->nodes == 0 && one_in(&http, 3)) ret_plan->http = (uint32_t)between(&http, 1, 8);
    add_erasures(ret_plan, &erase);
}

void plan_write_event(const struct event *event, char *ret_text, size_t text_bytes) {
    static const char *const queues[] = {"is away while", "is emptied, and", "loses work, and",
                                         "loses results, and"};
    static const char *const lucks[] = {"; the seed draws what is left", "; nothing is left",
                                        "; everything is left"};
    const unsigned batch = event->batch, life = event->life + 1, call = event->call;
    const long long value = event->value;
#define SAY(...) (void)snprintf(ret_text, text_bytes, __VA_ARGS__)
    switch (event->kind) {
    case EVENT_UPLOAD: SAY("upload b%u, %lld lines", batch, value); break;
    case EVENT_CREATE: SAY("create b%u", batch); break;
    case EVENT_CANCEL: SAY("cancel b%u", batch); break;
    case EVENT_READ: SAY("read %lld results of b%u", value, batch); break;
    case EVENT_AWAIT: SAY("await the end of b%u", batch); break;
    case EVENT_DELETE: SAY("delete b%u", batch); break;
    case EVENT_ERASE: SAY("erase lines of b%u (%lld)", batch, value); break;
    case EVENT_PAUSE: SAY("pause b%u for %lld ms", batch, value); break;
    case EVENT_IDLE: SAY("%lld ms pass", value); break;
    case EVENT_JUMP: SAY("the wall clock jumps by %lld s", value); break;
    case EVENT_DOWN: SAY("engine %u dies", batch); break;
    case EVENT_SILENCE: SAY("engine %u is silent for %lld ms, then gone", batch, value); break;
    case EVENT_QUEUE: SAY("the queue %s %lld ms pass", queues[batch], value); break;
    case EVENT_BACKUP: SAY("take a backup"); break;
    case EVENT_CUT: SAY("life %u, call %u: POWER CUT%s", life, call, lucks[value]); break;
    case EVENT_KILL: SAY("life %u, call %u: the process is KILLED", life, call); break;
    case EVENT_FULL:
        SAY("life %u, call %u: the disk is FULL for %lld ms", life, call, value);
        break;
    case EVENT_ERROR: SAY("life %u, call %u: the next sync FAILS", life, call); break;
    case EVENT_NONE:
    case EVENT_KINDS: SAY("nothing"); break;
    }
#undef SAY
}

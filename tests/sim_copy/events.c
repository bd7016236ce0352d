/* SPDX-License-Identifier: Apache-2.0 */
#include "events.h"

#include "../rig/threads.h"

#include "ledger.h"
#include "server.h"
#include "sim.h"
#include "storage.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define AGAIN_MS 1000   /* a service manager starts again what has ended */
#define QUIET_MS 150000 /* a write is late by a minute, a server is held for two, a standby waits */
#define SWEEP_MS 60000
#define LONG_MS 400000 /* after the last event clients must be served again within that time */

/* What is left to do. */
struct due {
    const struct event *event; /* NULL: a start */
    uint32_t server;
    int64_t at_ns; /* INT64_MAX: never, or when its place comes */
    bool is_armed; /* waits for its place */
};

#define DUES_MAX 64u

static struct due dues[DUES_MAX];
static uint32_t due_count;
static pthread_mutex_t lock;
static pthread_cond_t changed;

static void add(const struct event *event, uint32_t server, int64_t at_ns) {
    for (uint32_t i = 0; i < due_count; i++)
        if (dues[i].at_ns == INT64_MAX && !dues[i].is_armed) {
            dues[i] = (struct due){event, server, at_ns, false};
            return;
        }
    if (due_count == DUES_MAX) sim_fail("too many events");
    dues[due_count++] = (struct due){event, server, at_ns, false};
}

/* Its process is gone; it is started again later. */
static void end_process(uint32_t server, int64_t again_ms) {
    threads_end(server + 1);
    servers[server].is_open = false;
    for (uint32_t i = 0; i < due_count; i++)
        if (!dues[i].event && dues[i].server == server) dues[i].at_ns = INT64_MAX;
    add(NULL, server, sim->now_ns + again_ms * NS_PER_MS);
}

static void happen(const struct event *event) {
    char text[128];
    uint32_t server = event->server;
    plan_write_event(event, text, sizeof text);
    sim_note("EVENT %s", text);
    switch (event->kind) {
    case EVENT_KILL: end_process(server, event->value); return;
    case EVENT_STOP: threads_hold(server + 1, event->value * NS_PER_MS, false); return;
    case EVENT_SLEEP: threads_hold(server + 1, event->value * NS_PER_MS, true); return;
    case EVENT_JUMP: threads_set_wall(server + 1, event->value * 1000); return;
    case EVENT_CUT: storage_cut(server, event->value * NS_PER_MS); return;
    case EVENT_AWAY:
        for (uint32_t i = 0; i < sim->plan.servers; i++) storage_cut(i, event->value * NS_PER_MS);
        return;
    case EVENT_BASE: server_want_base(server); return;
    case EVENT_END: servers[server].stop = true; return;
    case EVENT_LOOK:
        if (ledger_told_ns() > 0) sim_check_copy();
        return;
    case EVENT_NONE:
    case EVENT_KINDS: return;
    }
}

/* Sleeps until something is due or signalled; the lock is held. */
static void wait_until(int64_t due_ns) {
    const struct timespec due = {due_ns / 1000000000, due_ns % 1000000000};
    pthread_cond_timedwait(&changed, &lock, &due);
}

/* Lets happen what is due, and arms what waits for its place. */
static void do_due(void) {
    for (uint32_t i = 0; i < due_count; i++) {
        struct due due = dues[i];
        if (due.at_ns > sim->now_ns) continue;
        dues[i].at_ns = INT64_MAX;
        if (due.event && due.event->place != AT_ONCE && !due.is_armed) {
            dues[i].is_armed = true;
            continue;
        }
        dues[i].is_armed = false;
        if (due.event)
            happen(due.event);
        else {
            threads_end(due.server + 1);
            server_start(due.server);
        }
    }
}

static int64_t next_ns(int64_t end_ns) {
    int64_t next = end_ns;
    for (uint32_t i = 0; i < due_count; i++)
        if (dues[i].at_ns < next) next = dues[i].at_ns;
    return next;
}

static void run_until(int64_t end_ns) {
    while (sim->now_ns < end_ns) {
        do_due();
        wait_until(next_ns(end_ns));
    }
}

void events_at(uint32_t server, enum event_place place) {
    bool has_any = false;
    for (uint32_t i = 0; i < due_count; i++) {
        struct due *due = &dues[i];
        if (!due->is_armed || due->event->server != server || due->event->place != place) continue;
        due->at_ns = sim->now_ns;
        has_any = true;
    }
    if (!has_any) return;
    pthread_cond_signal(&changed);
    threads_sleep_ns(1); /* the first thread goes on before time does */
}

void events_exit(uint32_t server) {
    add(NULL, server, sim->now_ns + AGAIN_MS * NS_PER_MS);
    pthread_cond_signal(&changed);
    for (;;) threads_sleep_ns(INT64_C(3600) * 1000000000);
}

/* Clients must be served again once nothing goes wrong any more. */
static void serve_again(void) {
    int64_t healed_ns = sim->now_ns;
    storage_heal();
    sim_note("nothing goes wrong from here on");
    for (uint32_t i = 0; i < due_count; i++) dues[i].is_armed = false;
    while (ledger_told_ns() <= healed_ns) {
        if (sim->now_ns > healed_ns + LONG_MS * NS_PER_MS)
            sim_fail("nothing is acknowledged for %d s (liveness)", LONG_MS / 1000);
        run_until(sim->now_ns + 1000 * NS_PER_MS);
    }
}

void events_run(void) {
    int64_t last_ms = 0, began_ns = sim->now_ns;
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < sim->plan.servers; i++) {
        servers[i].is_standby = i > 0;
        add(NULL, i, began_ns);
    }
    for (uint32_t i = 0; i < sim->plan.event_count; i++) {
        const struct event *event = &sim->plan.events[i];
        if (event->kind == EVENT_NONE || event->server >= sim->plan.servers) continue;
        add(event, event->server, began_ns + event->at_ms * NS_PER_MS);
        if (event->at_ms > last_ms) last_ms = event->at_ms;
    }
    run_until(began_ns + (last_ms + 2000) * NS_PER_MS);
    serve_again();
}

void events_quiet(void) {
    sim->is_quiet = true;
    run_until(sim->now_ns + QUIET_MS * NS_PER_MS);
    for (uint32_t i = 0; i < sim->plan.servers; i++) server_want_base(i);
    run_until(sim->now_ns + SWEEP_MS * NS_PER_MS);
}

void events_end(void) {
    for (uint32_t i = 0; i < sim->plan.servers; i++) threads_end(i + 1);
}

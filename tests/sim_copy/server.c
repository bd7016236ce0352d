/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include "../rig/threads.h"

#include "base/clock.h"
#include "copy/copy_internal.h"
#include "events.h"
#include "sim.h"
#include "storage.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SILENCE_MS 15000
#define FOLLOWED_MS 35000 /* twice: what it looked for next may be removed; and looks and writes */
#define SLOW_MS 40
#define PIECE_TEST_BYTES ((size_t)30000) /* a large file has three */
#define ANSWER_MS 30000                  /* how long an answer waits for the copy */

struct server servers[PLAN_SERVERS_MAX];

/* --- clients --- */

static struct rng life_rng(const struct server *server, uint64_t purpose) {
    return sim_rng(purpose * 1000 + server->life * 8 + server->index);
}

static int64_t answer_due_ns(void) {
    return clock_monotonic_ns() + ANSWER_MS * INT64_C(1000000);
}

static bool goes_on(const struct server *server) {
    return !server->stop && !copy_is_fenced(server->copy);
}

/* Sleeps until the next thing that a client does. */
static void idle(struct rng *rng) {
    clock_sleep_ms(1 + (int64_t)rng_below(rng, rng_below(rng, 4) ? 300 : 5000));
}

/* Results come: the log writer tells the runner of them once they are in the copy. */
static void *results_main(void *context) {
    struct server *server = context;
    struct rng rng = life_rng(server, 'r');
    while (goes_on(server)) {
        idle(&rng);
        if (sim->is_quiet) continue;
        uint32_t bytes = store_append_simulated(server, &rng);
        if (copy_wait(server->copy, true, answer_due_ns())) ledger_tell_text(server->served, bytes);
    }
    return NULL;
}

/* An admin changes keys. */
static void change_keys(struct server *server) {
    uint32_t version = store_keys_simulated(server);
    copy_look_at_files(server->copy);
    if (copy_wait(server->copy, false, answer_due_ns())) ledger_tell_keys(version);
}

static void serve_client(struct server *server, uint64_t purpose) {
    struct rng rng = life_rng(server, purpose);
    while (goes_on(server)) {
        idle(&rng);
        if (!goes_on(server)) return;
        if (sim->is_quiet) continue;
        if (rng_below(&rng, 10) == 0) {
            change_keys(server);
            continue;
        }
        uint32_t commit = store_commit_simulated(server, &rng);
        if (!commit) continue;
        if (!copy_wait(server->copy, false, answer_due_ns())) continue;
        ledger_tell(commit);
        sim->told++;
        sim_note("server %u acknowledges commit %u", server->index, commit);
    }
}

static void *client_main(void *context) {
    struct server *server = context;
    serve_client(server, 'd' + server->clients++);
    return NULL;
}

/* While a client waits for its answer, the files of others come and go. */
static void serve_clients(struct server *server) {
    pthread_t others[PLAN_CLIENTS_MAX];
    uint32_t count = sim->plan.clients - 1;
    server->clients = 0;
    for (uint32_t i = 0; i < count; i++)
        if (pthread_create(&others[i], NULL, client_main, server) != 0) abort();
    serve_client(server, 'c');
    for (uint32_t i = 0; i < count; i++) pthread_join(others[i], NULL);
}

/* --- the process --- */

static bool has_state(const char *dir) {
    char path[160];
    snprintf(path, sizeof path, "%s/meta.db", dir);
    bool has_database = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%s/restoring", dir);
    return has_database && access(path, F_OK) != 0;
}

static void name_dir(struct server *server) {
    snprintf(server->dir, sizeof server->dir, "%.60s/server%u-%u", sim->root, server->index,
             server->folder);
}

/* Whether all that the server asks of the storage comes to pass, without a pause. */
static bool is_undisturbed(const struct server *server) {
    const struct plan *plan = &sim->plan;
    bool is_touched = plan->trouble > 0 || plan->slow_ms > SLOW_MS;
    for (uint32_t i = 0; i < plan->event_count; i++) {
        const struct event *event = &plan->events[i];
        bool is_harmless = event->kind == EVENT_NONE || event->kind == EVENT_JUMP ||
                           event->kind == EVENT_BASE || event->kind == EVENT_LOOK;
        if (event->server == server->index || event->kind == EVENT_AWAY)
            is_touched = is_touched || !is_harmless;
    }
    return !is_touched;
}

/* A standby that nothing disturbs is not far behind the server that it follows. */
static void check_takeover(const struct server *server) {
    int64_t silent_ms = storage_silence_ns(server->copy->leader) / 1000000;
    if (silent_ms > FOLLOWED_MS && is_undisturbed(server))
        sim_fail("server %u leads only after a silence of %lld ms (takeover)", server->index,
                 (long long)silent_ms);
}

/* As the app's serve.c opens a copy, and node.c the store. */
static enum err open_copy(struct server *server, struct error *error) {
    const struct copy_options options = {
        .place = "/sim", .state_dir = server->dir, .stop = &server->stop};
    enum err err = copy_open(&server->copy, &options, error);
    if (err == OK) server->copy->piece_bytes = PIECE_TEST_BYTES;
    if (err == OK && server->is_standby && !has_state(server->dir)) {
        struct state state;
        err = copy_stand_by(server->copy, SILENCE_MS, error);
        if (err != OK) return err;
        sim_note("server %u has restored", server->index);
        check_takeover(server);
        ledger_check(server->dir, storage_lead_ns(server->copy->leader), &state);
    }
    if (err != OK) return err;
    if (mkdir(server->dir, 0700) != 0 && access(server->dir, F_OK) != 0) abort();
    store_open_simulated(server);
    return copy_attach(server->copy, (struct store *)(void *)server, error);
}

static void *process_main(void *context) {
    struct server *server = context;
    struct error error;
    pthread_t results;
    sim_note("server %u starts", server->index);
    pthread_mutex_init(&server->lock, NULL);
    enum err err = open_copy(server, &error);
    if (err == OK) {
        server->is_open = true;
        sim_note("server %u serves", server->index);
        if (pthread_create(&results, NULL, results_main, server) != 0) abort();
        serve_clients(server);
        pthread_join(results, NULL);
        server->is_open = false;
    }
    if (err != OK) sim_note("server %u: %.100s", server->index, error.text);
    if (err == ERR_CORRUPT) sim_fail("server %u: %s (fsck)", server->index, error.text);
    if (err == ERR_INVALID) sim_fail("server %u: %s (start)", server->index, error.text);
    if (err == OK && copy_is_fenced(server->copy)) sim_note("server %u is fenced", server->index);
    copy_close(server->copy);
    /* An operator does as the sentence says. */
    if (err == ERR_CONFLICT && strstr(error.text, "give --standby")) {
        server->is_standby = true;
        server->folder++;
    }
    events_exit(server->index);
}

void server_start(uint32_t index) {
    struct server *server = &servers[index];
    pthread_t thread;
    server->index = index;
    server->life++;
    server->is_open = false;
    server->stop = false;
    server->copy = NULL;
    server->mirror = NULL;
    name_dir(server);
    threads_enter(index + 1);
    if (pthread_create(&thread, NULL, process_main, server) != 0) abort();
    threads_enter(0);
}

void server_want_base(uint32_t index) {
    struct server *server = &servers[index];
    if (server->is_open) server->copy->log.bytes = UINT64_C(1) << 40;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "server/serve.h"

#include "api/api.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/service.h"
#include "batch/fsck.h"
#include "copy/copy.h"
#include "preflight/preflight_child.h"
#include "server/batch_proof.h"
#include "server/certificate.h"
#include "server/open_files.h"
#include "server/pull_child.h"
#include "server/reload.h"
#include "server/service_status.h"
#include "workers/fleet/fleet.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define POLL_MS 50
#define CLOSE_MS 2000
#define CONNECTIONS_MAX 1024
#define CLOCK_LEAST INT64_C(1767225600) /* 2026-01-01: no quern is older */
#define CLOCK_MOST INT64_C(4102444800)  /* 2100-01-01 */
/* The longest time from the end of a drain to the end of the process: a sync of a busy disk. */
#define CLOSING_MS 30000
/* OpenAI's limits, from tests/contract. */
#define OPENAI_FILE_BYTES_MAX ((uint64_t)512 << 20)
#define OPENAI_BATCH_FILE_BYTES_MAX ((uint64_t)200 << 20)

/* The network side of the node. */
struct front {
    struct reload reload; /* what SIGHUP changes */
    struct preflight_child preflight;
    struct studio_child studio;
    struct batch_proof proof;
    struct api *api;
    struct copy *copy; /* NULL: none */
    uint32_t connections_max;
    uint16_t port;
};

/* Without a key everyone who reaches the port may read and delete everything. */
static enum err check_reach(const struct serve_options *options, struct key_set *keys,
                            const char *state_dir, struct error *error) {
    struct address address;
    /* A host that is no numeric address is refused when the API listens. */
    if (!address_read(&address, str_from(options->host)) || address_is_loopback(&address))
        return OK;
    if (key_set_asks(keys)) return OK;
    if (!options->insecure_no_keys)
        return err_set(error, ERR_INVALID,
                       "--host %s: other machines reach it, and there is no key. Make one with "
                       "`quern key create --name N --state-dir %s`, or give --api-key-file; "
                       "--insecure-no-keys serves everyone without",
                       options->host, state_dir);
    log_warn("event=open_to_everyone host=%s; everyone who reaches the port may read and delete "
             "everything (--insecure-no-keys)",
             options->host);
    return OK;
}

static size_t cards(void *context, struct card_status ret_cards[CARDS_MAX]) {
    return node_cards(context, ret_cards);
}

static size_t nodes(void *context, struct fleet_status *ret_queue,
                    struct fleet_node_status *ret_nodes, size_t nodes_max) {
    fleet_status(context, ret_queue);
    return fleet_nodes(context, ret_nodes, nodes_max);
}

static enum err copy_model(void *context, struct str source, struct str destination,
                           struct error *error) {
    return node_copy(context, source, destination, error);
}

static enum err delete_model(void *context, struct str name, struct error *error) {
    return node_remove(context, name, error);
}

static bool preset(void *context, struct str name, struct ollama_preset *ret_preset) {
    return node_preset(context, name, ret_preset);
}

static enum err open_with(const struct serve_options *options, struct node *node,
                          const struct secret_variables *variables, struct front *front,
                          struct error *error) {
    struct store *store = node_store(node);
    enum err err =
        keys_open(&front->reload.keys, &options->keys, store_dir(store), variables, error);
    if (err == OK)
        err = check_reach(options, keys_set(front->reload.keys), store_dir(store), error);
    if (err == OK)
        err = webhooks_open(&front->reload.notify, &front->reload.is_secret_gone,
                            &options->webhooks, store, variables, error);
    if (err == OK) err = studio_child_open(&front->studio, &options->studio, variables, error);
    if (err != OK) return err;
    front->preflight.node = &options->node;
    struct api_options api = {.host = options->host,
                              .port = options->port,
                              .tls = front->reload.tls,
                              .store = store,
                              .runner = node_runner(node),
                              .notify = front->reload.notify,
                              .keys = keys_set(front->reload.keys),
                              .origins = options->origins,
                              .connections_max = front->connections_max,
                              .connections_per_peer_max = options->connections_per_peer_max,
                              .body_memory_bytes_max = options->body_memory_bytes_max,
                              .answer_memory_bytes_max = options->answer_memory_bytes_max,
                              .rules = options->node.runner.rules,
                              .file_bytes_max = options->file_bytes_max,
                              .batch_file_bytes_max = options->batch_file_bytes_max,
                              .no_access_log =
                                  !options->access_log || options->no_uvicorn_access_log,
                              .vllm_metrics = options->metrics_compat != NULL,
                              .access_log_leaves_out = options->access_log_leaves_out,
                              .prices = &options->prices,
                              .preflight = preflight_child_run,
                              .preflight_context = &front->preflight,
                              .preflight_ms = options->preflight_ms,
                              .pull = options->node.shelf ? pull_child_run : NULL,
                              .copy_model = copy_model,
                              .delete_model = delete_model,
                              .preset = preset,
                              .pull_context = node,
                              .studio = options->studio.url ? studio_child_run : NULL,
                              .studio_context = &front->studio,
                              .studio_url = options->studio.url,
                              .manifest = batch_proof_write,
                              .manifest_salts = batch_proof_write_salts,
                              .manifest_context = &front->proof,
                              .cards = cards,
                              .cards_context = node,
                              .nodes = node_fleet(node) ? nodes : NULL,
                              .nodes_context = node_fleet(node),
                              .copy = front->copy};
    return api_open(&front->api, &api, &front->port, error);
}

enum err serve_set_profile(struct serve_options *options, const char *profile,
                           struct error *error) {
    if (!batch_rules_of_profile(profile, &options->node.runner.rules))
        return err_set(error, ERR_INVALID, "--profile: '%s' is not 'quern' or 'openai'", profile);
    if (strcmp(profile, "quern") == 0) return OK;
    options->file_bytes_max = OPENAI_FILE_BYTES_MAX;
    options->batch_file_bytes_max = OPENAI_BATCH_FILE_BYTES_MAX;
    return OK;
}

static enum err open_front(const struct serve_options *options, struct node *node,
                           struct front *front, struct error *error) {
    struct secret_variables variables = {0};
    enum err err =
        options->env_file ? secret_variables_read(&variables, options->env_file, error) : OK;
    if (err == OK) err = open_with(options, node, &variables, front, error);
    secret_variables_release(&variables);
    return err;
}

static void close_front(struct front *front) {
    api_close(front->api, CLOSE_MS);
    batch_proof_close(&front->proof);
    studio_child_close(&front->studio);
    notify_close(front->reload.notify, CLOSE_MS);
    keys_close(front->reload.keys);
    tls_close(front->reload.tls);
}

/* Forbids core files and debuggers, because this memory has keys, signing secrets and prompts.
 * Engines inherit the limit on core files. */
static void guard_memory(void) {
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0) log_warn("core files stay allowed");
#ifndef __SANITIZE_ADDRESS__ /* its leak check is a debugger */
    if (prctl(PR_SET_DUMPABLE, 0) != 0) log_warn("the process stays open to debuggers");
#endif
}

/* Batches that are created now may expire at once when the clock is set right. */
static void warn_of_clock(void) {
    int64_t now_unix_s = clock_unix_s();
    if (now_unix_s >= CLOCK_LEAST && now_unix_s < CLOCK_MOST) return;
    log_warn("event=clock_wrong unix_s=%lld; set the clock of the machine: times of batches and "
             "files, and what expires, follow it",
             (long long)now_unix_s);
}

/* Several signals that come meanwhile are one. */
static void reload(const struct serve_options *options, struct front *front) {
    service_tell("RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(clock_monotonic_ns() / 1000));
    options->reload(options->context, &front->reload);
    service_tell("READY=1");
}

static void wait_for_stop(const struct serve_options *options, struct front *front) {
    struct service_status status = {0};
    sig_atomic_t reloads = 0;
    while (!*options->stop && !(front->copy && copy_is_fenced(front->copy))) {
        sig_atomic_t asked = options->reloads ? *options->reloads : 0;
        if (asked != reloads) reload(options, front);
        reloads = asked;
        service_status_tell(&status, node_runner(front->reload.node));
        clock_sleep_ms(POLL_MS);
    }
}

/* A server that another one has followed ends without a drain: its results would count nowhere. */
static enum err check_lead(const struct front *front, struct error *error) {
    if (!front->copy || !copy_is_fenced(front->copy)) return OK;
    return err_set(error, ERR_CONFLICT,
                   "another server has taken over the copy (--copy-to): this one has ended. Its "
                   "state directory may have what nobody was told of; start it again with "
                   "--standby and an empty --state-dir");
}

/* Ends with the lines in flight, or at the deadline. */
static void drain(const struct front *front) {
    struct runner *runner = node_runner(front->reload.node);
    int64_t drain_ms = front->reload.drain_ms;
    log_info("draining deadline_ms=%lld", (long long)drain_ms);
    service_status_tell_drain(runner, drain_ms + CLOSING_MS);
    api_drain(front->api);
    bool empty = runner_drain(runner, drain_ms);
    log_info("drained left=%s", empty ? "nothing" : "lines that the next start runs again");
}

static void report_violation(void *context, const char *sentence) {
    (void)context;
    log_error("event=fsck violation=\"%s\"", sentence);
}

/* Checks what a standby has fetched, before anyone is served from it. */
static enum err check_fetched(const char *state_dir, struct error *error) {
    struct fsck_found found;
    enum err err = fsck_run(state_dir, report_violation, NULL, &found, error);
    if (err != OK || found.violations == 0) return err;
    return err_set(error, ERR_CORRUPT,
                   "--standby: the copy violates %llu promises (see the log). %s has it; nothing "
                   "is served from it",
                   (unsigned long long)found.violations, state_dir);
}

/* True for a directory that a server has used, so that there is nothing to fetch. */
static bool has_state(const char *state_dir) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/meta.db", state_dir);
    bool has_database = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%.4000s/restoring", state_dir);
    return has_database && access(path, F_OK) != 0;
}

_Static_assert(SERVE_STANDBY_S_MIN * 1000 >= COPY_FRESH_MS,
               "a server whose standby may lead begins to lead no queue");

static enum err open_copy(const struct serve_options *options, struct copy **ret_copy,
                          struct error *error) {
    const char *state_dir = options->node.store.dir;
    if (!options->copy_to) return OK;
    const struct copy_options copy = {
        .place = options->copy_to, .state_dir = state_dir, .stop = options->stop};
    enum err err = copy_open(ret_copy, &copy, error);
    if (err != OK || !options->is_standby || has_state(state_dir)) return err;
    service_tell("READY=1\nSTATUS=standing by");
    err = copy_stand_by(*ret_copy, options->standby_ms, error);
    return err == OK ? check_fetched(state_dir, error) : err;
}

/* Opens the copy, where one is wanted, and the node. */
static enum err open_node(const struct serve_options *options, struct node_options *node_options,
                          struct node **ret_node, struct error *error) {
    enum err err = open_copy(options, &node_options->copy, error);
    return err == OK ? node_open(ret_node, node_options, error) : err;
}

enum err serve_run(const struct serve_options *options, struct error *error) {
    struct node *node;
    struct front front = {
        .reload = {.node_options = &options->node, .drain_ms = options->drain_ms}};
    struct node_options node_options = options->node;
    guard_memory();
    open_files_raise();
    warn_of_clock();
    enum err err = open_files_fit(&options->node, CONNECTIONS_MAX, &front.connections_max, error);
    if (err == OK) err = service_open(error);
    service_tell("STATUS=opening the state directory and loading models");
    if (err == OK && options->ssl_certfile)
        err =
            certificate_open(&front.reload.tls, options->ssl_certfile, options->ssl_keyfile, error);
    if (err == OK) err = open_node(options, &node_options, &node, error);
    if (err != OK) {
        tls_close(front.reload.tls);
        copy_close(node_options.copy);
        service_close();
        return err == ERR_CANCELLED ? OK : err;
    }
    front.reload.node = node;
    front.copy = node_options.copy;
    /* The network side opens first, so that /health tells "loading" while models load. */
    err = open_front(options, node, &front, error);
    if (err == OK) err = node_wait_ready(node, options->stop, error);
    if (err == OK)
        batch_proof_begin(&front.proof, node, &options->node, options->settings,
                          options->signing_key);
    if (err == OK) err = node_start(node, error);
    if (err == OK) {
        service_tell("READY=1");
        options->listening(options->context, options->host, front.port);
        wait_for_stop(options, &front);
        err = check_lead(&front, error);
        if (err == OK) drain(&front);
    }
    close_front(&front);
    node_close(node, 0);
    copy_close(node_options.copy);
    service_close();
    return err == ERR_CANCELLED ? OK : err;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "node/node_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu_find.h"
#include "hub/catalog_path.h"
#include "node/card_watch.h"
#include "node/fit.h"
#include "node/packed_folder.h"
#include "node/ranks.h"
#include "secrets/secret.h"
#include "store/outbox.h"
#include "workers/echo/worker_echo.h"
#include "workers/engine/worker_engine.h"
#include "workers/upstream/shape.h"
#include "workers/upstream/worker_upstream.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_SLICE_MS 100
#define UPSTREAM_SLICES 20 /* 2 s for its list of models; an upstream may be down for long */
#define NS_PER_S ((int64_t)1000000000)

struct wire_hello node_hello(const struct model_choice *choice,
                             const struct engine_settings *settings) {
    struct wire_hello hello = {
        .model_path = str_from(choice->path),
        .threads = settings->threads,
        .max_num_seqs = settings->max_num_seqs,
        .max_num_batched_tokens = settings->max_num_batched_tokens,
        .num_speculative_tokens = settings->num_speculative_tokens,
        .speculative_model = str_from(settings->speculative_model),
        .max_model_len = settings->max_model_len,
        .kv_bytes = settings->kv_bytes,
        .state_bytes = settings->state_bytes,
        .weight_bytes = settings->weight_bytes,
        .prefix_caching = !settings->no_prefix_caching,
        .reference = settings->reference,
        .kernels = str_from(settings->kernels),
        .pooling = str_from(settings->pooling),
        .trust_request_chat_template = settings->trust_request_chat_template,
        .chat_template = str_from(settings->chat_template),
        .tool_call_parser = str_from(settings->tool_call_parser),
        .dummy_weights = settings->dummy_weights,
        .device = settings->device,
    };
    _Static_assert(MODEL_NAMES_MAX <= WIRE_NAMES_MAX, "all names of a model fit in HELLO");
    for (size_t i = 0; i < choice->name_count; i++) hello.names.at[i] = str_from(choice->names[i]);
    hello.names.count = choice->name_count;
    return hello;
}

static enum err open_engine(struct node *node, const struct model_choice *choice,
                            const struct shelf_model *known, uint32_t rank,
                            const struct node_options *from, const struct worker_events *events,
                            struct worker **ret_worker, struct error *error) {
    char device[RANK_DEVICE_BYTES];
    const struct engine_settings settings =
        ranks_settings(&from->engine, rank, node->rank_count, device);
    const char *const arguments[] = {"engine",       "--log-level",     log_level_name(log_level()),
                                     "--log-format", log_format_name(), NULL};
    char packed_dir[PATH_MAX], refusal[160];
    struct wire_hello hello = node_hello(choice, &settings);
    if (packed_folder_of(settings.packed_dir, choice->path, packed_dir)) {
        hello.packed_dir = str_from(packed_dir);
        hello.packed_bytes_max = settings.packed_bytes_max;
    }
    struct worker_engine_options options = {.hello = hello,
                                            .arguments = arguments,
                                            .hang_ms = settings.hang_ms,
                                            .dump_dir = node->dump_dir,
                                            .turns = node->turns[rank],
                                            .keep_ms = from->keep_ms,
                                            .stays = !from->shelf && from->keep_ms <= 0};
    if (known) {
        options.foretold = known->foretold;
        options.memory_bytes = fit_memory_of(known, &settings);
        if (fit_is_too_large(known, &settings, refusal, sizeof refusal)) options.refusal = refusal;
    }
    enum err err = worker_engine_open(ret_worker, &options, events, error);
    if (err != OK) return err;
    node->paths[node->worker_count] = mem_text(choice->path);
    node->workers[node->worker_count++] = *ret_worker;
    return err;
}

/* `known` NULL: nothing is known of it but its path. */
static enum err open_worker(struct node *node, const struct model_choice *choice,
                            const struct shelf_model *known, uint32_t rank,
                            const struct node_options *from, struct error *error) {
    struct worker_events events;
    uint32_t seat;
    struct worker *worker;
    enum err err;
    if (!seats_take(&node->seats, &events, &seat))
        return err_set(error, ERR_LIMIT, "more than %d engines",
                       node->agent ? AGENT_WORKERS_MAX : RUNNER_WORKERS_MAX);
    if (choice->is_echo) {
        size_t index = (size_t)(choice - node->models);
        for (size_t i = 0; i < choice->name_count; i++) node->names[index][i] = choice->names[i];
        const struct worker_echo_options options = {.models = node->names[index],
                                                    .check = upstream_shape_check,
                                                    .look = upstream_shape_look};
        err = worker_echo_open(&worker, &options, &events, error);
    } else {
        err = open_engine(node, choice, known, rank, from, &events, &worker, error);
    }
    if (err == OK) seats_attach(&node->seats, seat, worker);
    return err;
}

enum err node_open_model(struct node *node, const struct model_choice *choice,
                         const struct shelf_model *known, const struct node_options *from,
                         struct error *error) {
    uint32_t count = choice->is_echo ? 1 : node->rank_count;
    enum err err = OK;
    for (uint32_t rank = 0; rank < count && err == OK; rank++)
        err = open_worker(node, choice, known, rank, from, error);
    return err;
}

bool node_is_chosen(const struct node_options *options, const char *path) {
    for (size_t i = 0; i < options->model_count; i++)
        if (strcmp(options->models[i].path, path) == 0) return true;
    return false;
}

/* Opens the workers of the --model options, which load first, and those of the shelf. */
static enum err open_workers(struct node *node, const struct node_options *options,
                             struct error *error) {
    const struct shelf *shelf = options->shelf;
    size_t seats = NODE_ENGINES_MAX - options->upstream_count, left_out = 0;
    enum err err = OK;
    for (size_t i = 0; i < options->model_count && err == OK; i++)
        err =
            node_open_model(node, &node->models[i],
                            shelf ? shelf_find(shelf, node->models[i].path) : NULL, options, error);
    for (size_t i = 0; shelf && i < shelf_count(shelf) && err == OK; i++) {
        const struct shelf_model *model = shelf_at(shelf, i);
        if (node_is_chosen(options, model->choice.path)) continue;
        if (node->worker_count + node->rank_count <= seats)
            err = node_open_model(node, &model->choice, model, options, error);
        else
            left_out++;
    }
    if (left_out > 0)
        log_warn("event=models_left_out count=%zu; at most %zu models are served", left_out,
                 seats / node->rank_count);
    return err;
}

/* Passes the events of batches on to webhooks. */
static void on_runner_event(void *context, const struct runner_event *event) {
    struct node *node = context;
    struct error error;
    if (event->kind == RUNNER_ENGINE_DOWN) return; /* concerns no batch */
    enum outbox_event type =
        event->kind == RUNNER_BATCH_STUCK ? OUTBOX_BATCH_STUCK : OUTBOX_BATCH_AT_RISK;
    if (store_outbox_add(node->store, type, str_from(event->batch_id), clock_unix_s(), &error) !=
        OK)
        log_warn("batch=%s event=webhook_lost error=\"%s\"", event->batch_id, error.text);
}

/* Reads the key of an upstream; *ret_key points into *ret_secret. */
static enum err read_key(const struct upstream_spec *spec, struct secret *ret_secret,
                         char **ret_key, struct error *error) {
    struct secret secret;
    enum err err = secret_read_file(&secret, spec->key_file, error);
    if (err != OK) return err_prefix(error, "upstream %s", spec->name);
    struct str key = str_trim((struct str){secret.text, secret.bytes});
    err = upstream_spec_check_key(key, secret.where, error);
    if (err != OK) {
        secret_release(&secret);
        return err_prefix(error, "upstream %s", spec->name);
    }
    size_t from = (size_t)(key.at - secret.text);
    secret.text[from + key.bytes] = '\0';
    *ret_secret = secret;
    *ret_key = secret.text + from;
    return OK;
}

static enum err open_upstream(struct node *node, const struct upstream_spec *spec,
                              struct error *error) {
    struct worker_events events;
    uint32_t seat;
    struct worker *worker;
    if (node->upstream_count == NODE_UPSTREAMS_MAX || !seats_take(&node->seats, &events, &seat))
        return err_set(error, ERR_LIMIT, "more than %d upstreams", NODE_UPSTREAMS_MAX);
    struct secret secret = {0};
    char *key = NULL;
    enum err err = OK;
    if (*spec->key_file) err = read_key(spec, &secret, &key, error);
    if (err != OK) return err;
    seats_tune(&node->seats, seat, spec->weight, worker_upstream_lines_max(spec));
    err = worker_upstream_open(&worker, spec, key, &events, error);
    secret_release(&secret);
    if (err != OK) return err;
    node->upstreams[node->upstream_count++] = worker;
    seats_attach(&node->seats, seat, worker);
    return OK;
}

/* --- keys of upstreams, read again --- */

struct node_keys {
    struct secret secrets[NODE_UPSTREAMS_MAX];
    char *keys[NODE_UPSTREAMS_MAX]; /* in the secrets; NULL: the upstream has none */
};

enum err node_keys_read(struct node_keys **ret_keys, const struct node_options *options,
                        struct error *error) {
    struct node_keys *keys = mem_new(1, sizeof *keys);
    enum err err = OK;
    for (size_t i = 0; i < options->upstream_count && i < NODE_UPSTREAMS_MAX && err == OK; i++)
        if (*options->upstreams[i].key_file)
            err = read_key(&options->upstreams[i], &keys->secrets[i], &keys->keys[i], error);
    if (err == OK)
        *ret_keys = keys;
    else
        node_keys_free(keys);
    return err;
}

void node_keys_free(struct node_keys *keys) {
    if (!keys) return;
    for (size_t i = 0; i < NODE_UPSTREAMS_MAX; i++) secret_release(&keys->secrets[i]);
    free(keys);
}

void node_keys_take(struct node *node, const struct node_keys *keys) {
    for (size_t i = 0; i < node->upstream_count; i++)
        if (keys->keys[i]) worker_upstream_set_key(node->upstreams[i], keys->keys[i]);
}

/* --- models --- */

/* Opens the turns of the engines on each device, the CPU or a GPU, if they do not all fit. */
static void open_turns(struct node *node, const struct node_options *options) {
    uint64_t bytes[NODE_MODELS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < options->model_count; i++) {
        if (!node->models[i].is_echo) bytes[count++] = catalog_bytes(node->models[i].path);
    }
    uint32_t most = fit_models_at_a_time(options, bytes, count);
    node->first_count = (most < count ? most : count) * node->rank_count;
    if (most >= count && !options->shelf) return;
    struct turns_options turns = {.loaded_max = most,
                                  .stay_ns_min = options->model_stay_s * NS_PER_S};
    if (options->shelf && options->loaded_models_max == 0 &&
        !fit_takes_whole_card(&options->engine)) {
        turns.loaded_max = NODE_ENGINES_MAX;
        turns.memory_bytes = fit_machine_bytes() / 4 * 3 / node->rank_count;
    }
    for (uint32_t rank = 0; rank < node->rank_count; rank++) node->turns[rank] = turns_open(&turns);
    if (options->shelf) count += shelf_count(options->shelf);
    log_info("event=models_take_turns models=%zu loaded_max=%u", count, turns.loaded_max);
}

/* Makes room for the files that engines will add, each about as large as its model. */
static void sweep_packed(const struct node *node, const struct node_options *options) {
    uint64_t wanted = 0, most = options->engine.packed_bytes_max;
    for (size_t i = 0; i < options->model_count; i++) {
        char packed_dir[PATH_MAX];
        const struct model_choice *model = &node->models[i];
        if (model->is_echo ||
            !packed_folder_of(options->engine.packed_dir, model->path, packed_dir) ||
            packed_folder_has(packed_dir))
            continue;
        uint64_t bytes = catalog_bytes(model->path);
        if (bytes <= most - wanted) wanted += bytes; /* larger ones cannot be kept anyway */
    }
    packed_folder_sweep(options->engine.packed_dir, most - wanted);
}

static void want_first(struct node *node) {
    for (size_t i = 0; node->turns[0] && i < node->first_count; i++)
        node->workers[i]->ops->want(node->workers[i], TIER_BATCH, 0);
}

static void ignore_model(void *context, const struct runner_model *model) {
    (void)context, (void)model;
}

/* An alias without a model is an error once every worker knows all its names. */
static enum err check_aliases(struct node *node, struct error *error) {
    struct worker_status statuses[RUNNER_WORKERS_MAX];
    size_t count = runner_worker_statuses(node->runner, statuses, RUNNER_WORKERS_MAX);
    for (size_t i = 0; i < count; i++)
        if (!statuses[i].knows_names) return OK;
    for (size_t i = 0; i < node->aliased.alias_count; i++) {
        const struct name_alias *alias = &node->aliases[i];
        if (!runner_model_find(node->runner, str_from(alias->name), ignore_model, NULL))
            return err_set(error, ERR_INVALID,
                           "--alias %.100s=%.100s: no model is served as '%.100s'", alias->name,
                           alias->model, alias->model);
    }
    return OK;
}

/* The GPUs that engines run on now; card_watch's thread asks. */
static size_t card_uses(void *context, struct card_use ret_uses[CARDS_MAX]) {
    struct node *node = context;
    struct worker_status *statuses = mem_new(RUNNER_WORKERS_MAX, sizeof *statuses);
    size_t workers = runner_worker_statuses(node->runner, statuses, RUNNER_WORKERS_MAX);
    size_t count = 0;
    for (size_t i = 0; i < workers; i++) {
        size_t at = 0;
        if (!*statuses[i].card) continue;
        while (at < count && strcmp(ret_uses[at].uuid, statuses[i].card) != 0) at++;
        if (at == CARDS_MAX) continue;
        if (at == count) {
            ret_uses[count].tokens = 0;
            memcpy(ret_uses[count++].uuid, statuses[i].card, sizeof ret_uses->uuid);
        }
        ret_uses[at].tokens += statuses[i].completion_tokens;
    }
    free(statuses);
    return count;
}

static void open_cards(struct node *node, const struct node_options *options) {
    const struct wire_device *device = &options->engine.device;
    const struct card_watch_options watch = {.context = node, .uses = card_uses};
    if (!options->watches_cards || !gpu_find_is_likely(device->name, device->plugin)) return;
    node->cards = card_watch_open(&watch);
}

/* Opens engines and upstreams on the seats of the runner or the agent. */
static enum err open_all_workers(struct node *node, const struct node_options *options,
                                 struct error *error) {
    node->seats = (struct seats){node->runner, node->agent};
    node->rank_count = ranks_count(options);
    open_turns(node, options);
    if (options->engine.packed_dir) sweep_packed(node, options);
    enum err err = open_workers(node, options, error);
    for (size_t i = 0; i < options->upstream_count && err == OK; i++)
        err = open_upstream(node, &options->upstreams[i], error);
    return err;
}

enum err node_open(struct node **ret_node, const struct node_options *options,
                   struct error *error) {
    struct node *node = mem_new(1, sizeof *node);
    memcpy(node->models, options->models, sizeof node->models);
    if (options->shelf) node->options = options;
    pthread_mutex_init(&node->adopting, NULL);
    struct runner_options runner = options->runner;
    runner.events = (struct runner_events){.context = node, .event = on_runner_event};
    runner.holds_lines = options->queue != NULL;
    runner.names = &node->aliased;
    runner.knows_all = options->shelf != NULL;
    if (options->shelf) {
        runner.look = node_models_look;
        runner.look_context = node;
        node_models_note(node);
    }
    memcpy(node->aliases, options->aliases, sizeof node->aliases);
    node->aliased = (struct names){
        .aliases = node->aliases, .alias_count = options->alias_count, .added = names_added_open()};
    enum err err = store_open(&node->store, &options->store, error);
    if (err == OK)
        snprintf(node->dump_dir, sizeof node->dump_dir, "%s/dumps", store_dir(node->store));
    if (err == OK && options->copy) err = copy_attach(options->copy, node->store, error);
    if (err == OK) err = runner_open(&node->runner, node->store, &runner, error);
    if (err == OK) err = open_all_workers(node, options, error);
    if (err == OK && options->queue)
        err = queue_open_fleet(options->queue, node->runner, store_dir(node->store), options->copy,
                               runner.lookahead_lines, &node->fleet, error);
    if (err == OK) err = check_aliases(node, error);
    if (err == OK) err = node_names_read(node, error);
    if (err == OK) want_first(node);
    if (err == OK) open_cards(node, options);
    if (err == OK)
        *ret_node = node;
    else
        node_close(node, 0);
    return err;
}

enum err node_open_remote(struct node **ret_node, const struct node_options *options,
                          const struct agent_options *agent, struct error *error) {
    struct node *node = mem_new(1, sizeof *node);
    memcpy(node->models, options->models, sizeof node->models);
    pthread_mutex_init(&node->adopting, NULL);
    agent_open(&node->agent, agent);
    enum err err = open_all_workers(node, options, error);
    if (err == OK) want_first(node);
    if (err == OK)
        *ret_node = node;
    else
        node_close(node, 0);
    return err;
}

struct agent *node_agent(struct node *node) {
    return node->agent;
}

struct fleet *node_fleet(struct node *node) {
    return node->fleet;
}

enum err node_wait_ready(struct node *node, const volatile bool *stop, struct error *error) {
    for (size_t i = 0; i < node->first_count; i++) {
        enum err err;
        do {
            if (*stop) return err_set(error, ERR_CANCELLED, "stopped while the model was loading");
            err = worker_engine_wait_ready(node->workers[i], WAIT_SLICE_MS, error);
        } while (err == ERR_UNAVAILABLE);
        if (err != OK) return err;
    }
    for (size_t i = 0; i < node->upstream_count; i++)
        for (int slice = 0; slice < UPSTREAM_SLICES && !*stop; slice++)
            if (worker_upstream_wait_asked(node->upstreams[i], WAIT_SLICE_MS)) break;
    return OK;
}

enum err node_start(struct node *node, struct error *error) {
    enum err err = runner_start(node->runner, error);
    if (err == OK && node->fleet) fleet_start(node->fleet);
    return err;
}

void node_halt(struct node *node, int64_t drain_ms) {
    runner_quiesce(node->runner);
    runner_drain(node->runner, drain_ms);
    card_watch_close(node->cards);
    node->cards = NULL;
    runner_halt(node->runner);
}

void node_close(struct node *node, int64_t drain_ms) {
    if (!node) return;
    if (node->runner && drain_ms > 0) runner_drain(node->runner, drain_ms);
    card_watch_close(node->cards);
    if (node->runner) runner_halt(node->runner);
    fleet_close(node->fleet); /* asks the runner which results are durable */
    runner_close(node->runner);
    agent_close(node->agent);
    for (uint32_t rank = 0; rank < node->rank_count; rank++) turns_close(node->turns[rank]);
    store_close(node->store);
    names_added_close(node->aliased.added);
    for (size_t i = 0; i < node->worker_count; i++) free(node->paths[i]);
    pthread_mutex_destroy(&node->adopting);
    free(node);
}

struct store *node_store(struct node *node) {
    return node->store;
}

struct runner *node_runner(struct node *node) {
    return node->runner;
}

size_t node_cards(struct node *node, struct card_status ret_cards[CARDS_MAX]) {
    return card_watch_read(node->cards, ret_cards);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The models, states and status of all workers together. */

#include "runner/models.h"

#include "base/mem.h"
#include "runner/runner_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODELS_MAX 1024 /* all workers together */
#define NAMES_MAX (MODELS_MAX * 4)

size_t runner_workers(struct runner *runner, struct worker *ret_workers[RUNNER_WORKERS_MAX]) {
    size_t count = 0;
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->seat_count; i++)
        if (runner->seats[i].worker) ret_workers[count++] = runner->seats[i].worker;
    pthread_mutex_unlock(&runner->lock);
    return count;
}

const char *model_state_name(enum model_state state) {
    static const char *const names[] = {"unloaded", "loading", "loaded", "failed"};
    return names[state];
}

enum model_state model_state_of(const struct worker_status *status) {
    if (status->is_failed) return MODEL_FAILED;
    if (status->is_parked) return MODEL_UNLOADED;
    return status->ready ? MODEL_LOADED : MODEL_LOADING;
}

bool runner_finds(const struct runner *runner, struct worker *worker, struct str model,
                  char ret_served[MODEL_NAME_BYTES]) {
    return names_find(runner->options.names, worker, model, ret_served);
}

/* ERR_UNAVAILABLE, with the reason, if every worker that serves the model has failed or, with
 * `counts_held`, is held. */
static enum err check_model(struct runner *runner, struct str model, bool counts_held,
                            struct error *error) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_status status = {0};
    char served[MODEL_NAME_BYTES], text[sizeof status.text] = "";
    size_t count = runner_workers(runner, workers);
    bool is_held = false;
    for (size_t i = 0; i < count; i++) {
        if (!runner_finds(runner, workers[i], model, served)) continue;
        workers[i]->ops->status(workers[i], &status);
        bool counts = counts_held && status.is_held;
        if (!status.is_failed && !counts) return OK;
        is_held = is_held || counts;
        memcpy(text, status.text, sizeof text);
    }
    if (!*text) return OK;
    int shown = (int)(model.bytes < 100 ? model.bytes : 100);
    if (is_held)
        return err_set(error, ERR_UNAVAILABLE,
                       "The model '%.*s' is unloaded until an administrator loads it", shown,
                       model.at);
    return err_set(error, ERR_UNAVAILABLE, "The model '%.*s' cannot be loaded: %s", shown, model.at,
                   text);
}

enum err runner_check_model(struct runner *runner, struct str model, struct error *error) {
    return check_model(runner, model, false, error);
}

enum err runner_check_request(struct runner *runner, struct str model, struct error *error) {
    return check_model(runner, model, true, error);
}

enum err runner_model_hold(struct runner *runner, struct str model, bool is_held,
                           struct error *error) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_status status;
    char served[MODEL_NAME_BYTES];
    size_t count = runner_workers(runner, workers), found = 0, changed = 0;
    int shown = (int)(model.bytes < 100 ? model.bytes : 100);
    for (size_t i = 0; i < count; i++) {
        if (!runner_finds(runner, workers[i], model, served)) continue;
        found++;
        workers[i]->ops->status(workers[i], &status);
        if (!workers[i]->ops->hold || status.is_failed) continue;
        workers[i]->ops->hold(workers[i], is_held);
        changed++;
    }
    if (changed > 0) return OK;
    if (found == 0)
        return err_set(error, ERR_NOT_FOUND, "The model '%.*s' does not exist", shown, model.at);
    return err_set(
        error, ERR_CONFLICT,
        "The model '%.*s' cannot be loaded or unloaded here: it has failed, or no engine "
        "of this server runs it",
        shown, model.at);
}

enum err runner_model_park(struct runner *runner, struct str model, struct error *error) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    char served[MODEL_NAME_BYTES];
    size_t count = runner_workers(runner, workers), found = 0;
    for (size_t i = 0; i < count; i++) {
        if (!runner_finds(runner, workers[i], model, served)) continue;
        found++;
        if (workers[i]->ops->park) workers[i]->ops->park(workers[i]);
    }
    if (found > 0) return OK;
    return err_set(error, ERR_NOT_FOUND, "The model '%.*s' does not exist",
                   (int)(model.bytes < 100 ? model.bytes : 100), model.at);
}

enum serving runner_serving(struct runner *runner, struct str model) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    char served[MODEL_NAME_BYTES];
    size_t count = runner_workers(runner, workers);
    bool all_known = count > 0 || runner->options.knows_all;
    for (size_t i = 0; i < count; i++) {
        /* The status comes first: a worker that gets its names between the two looks has them at
         * the second one. */
        struct worker_status status;
        workers[i]->ops->status(workers[i], &status);
        if (runner_finds(runner, workers[i], model, served)) return SERVED;
        if (!status.knows_names) all_known = false;
    }
    return all_known ? NOT_SERVED : SERVING_UNKNOWN;
}

bool runner_look(struct runner *runner) {
    const struct runner_options *options = &runner->options;
    return options->look && options->look(options->look_context);
}

enum shape_handling runner_shapes(struct runner *runner, struct str model) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    char served[MODEL_NAME_BYTES];
    size_t count = runner_workers(runner, workers), serving = 0, holding = 0;
    for (size_t i = 0; i < count; i++) {
        if (!runner_finds(runner, workers[i], model, served)) continue;
        if (workers[i]->ops->shapes == SHAPES_REFUSED) return SHAPES_REFUSED;
        serving++;
        holding += workers[i]->ops->shapes == SHAPES_HELD;
    }
    return serving > 0 && holding == serving ? SHAPES_HELD : SHAPES_PASSED_ON;
}

void runner_want(struct runner *runner, struct str model, enum tier tier, int64_t deadline_unix_s) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    char served[MODEL_NAME_BYTES];
    size_t count = runner_workers(runner, workers);
    for (size_t i = 0; i < count; i++)
        if (workers[i]->ops->want && runner_finds(runner, workers[i], model, served))
            workers[i]->ops->want(workers[i], tier, deadline_unix_s);
}

enum serving runner_default_model(struct runner *runner, char ret_model[MODEL_NAME_BYTES]) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_model model;
    struct worker_status status;
    if (runner_workers(runner, workers) != 1) return NOT_SERVED;
    workers[0]->ops->status(workers[0], &status);
    if (workers[0]->ops->models(workers[0], &model, 1) == 0)
        return status.ready ? NOT_SERVED : SERVING_UNKNOWN;
    if (model.name.bytes >= MODEL_NAME_BYTES) return NOT_SERVED;
    memcpy(ret_model, model.name.at, model.name.bytes);
    ret_model[model.name.bytes] = '\0';
    return SERVED;
}

size_t runner_worker_statuses(struct runner *runner, struct worker_status *ret_statuses,
                              size_t statuses_max) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    size_t count = runner_workers(runner, workers);
    if (count > statuses_max) count = statuses_max;
    for (size_t i = 0; i < count; i++) workers[i]->ops->status(workers[i], &ret_statuses[i]);
    return count;
}

bool runner_worker_model(struct runner *runner, size_t index, char ret_model[MODEL_NAME_BYTES]) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_model model;
    if (index >= runner_workers(runner, workers)) return false;
    *ret_model = '\0';
    if (workers[index]->ops->models(workers[index], &model, 1) > 0)
        snprintf(ret_model, MODEL_NAME_BYTES, "%.*s", STR_ARGS(model.name));
    return true;
}

void runner_worker_timings(struct runner *runner, size_t index,
                           struct runner_timings *ret_timings) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    *ret_timings = (struct runner_timings){.filled = 0};
    if (index >= runner_workers(runner, workers)) return;
    struct worker *worker = workers[index];
    if (worker->ops->timings)
        ret_timings->filled = worker->ops->timings(worker, &ret_timings->timings);
    (void)runner_worker_model(runner, index, ret_timings->model);
}

/* --- the list of models --- */

/* The models that all workers serve, and the names that were told. */
struct listing {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_status statuses[RUNNER_WORKERS_MAX];
    size_t worker_count;
    struct worker_model models[MODELS_MAX];
    size_t worker_of[MODELS_MAX];
    size_t model_count;
    struct str told[NAMES_MAX];
    size_t told_count;
    struct name_added added[NAMES_ADDED_MAX];
    runner_model_fn add;
    void *context;
};

static void collect(struct runner *runner, struct listing *listing) {
    listing->worker_count = runner_workers(runner, listing->workers);
    for (size_t i = 0; i < listing->worker_count; i++) {
        struct worker *worker = listing->workers[i];
        worker->ops->status(worker, &listing->statuses[i]);
        size_t more = worker->ops->models(worker, listing->models + listing->model_count,
                                          MODELS_MAX - listing->model_count);
        while (more-- > 0) listing->worker_of[listing->model_count++] = i;
    }
}

static void add_one(const struct listing *listing, struct str name,
                    const struct worker_model *served, runner_model_fn add, void *context) {
    size_t worker = listing->worker_of[served - listing->models];
    const struct worker_status *status = &listing->statuses[worker];
    uint64_t card_bytes = 0;
    for (size_t i = 0; i < CARD_PARTS; i++) card_bytes += status->ledger.part_bytes[i];
    add(context, &(struct runner_model){.name = name,
                                        .state = model_state_of(status),
                                        .text = status->is_failed ? status->text : NULL,
                                        .memory_bytes = status->memory_bytes,
                                        .card_bytes = card_bytes,
                                        .leaves_ms = status->leaves_ms,
                                        .served = *served});
}

static void tell(struct listing *listing, struct str name, const struct worker_model *served) {
    for (size_t i = 0; i < listing->told_count; i++)
        if (str_equals(listing->told[i], name)) return;
    if (listing->told_count == NAMES_MAX) return;
    listing->told[listing->told_count++] = name;
    add_one(listing, name, served, listing->add, listing->context);
}

/* The model that a request with this name gets: that of the first worker that serves it. */
static const struct worker_model *find_served(struct runner *runner, const struct listing *listing,
                                              struct str name) {
    char served[MODEL_NAME_BYTES];
    for (size_t i = 0; i < listing->worker_count; i++) {
        if (!runner_finds(runner, listing->workers[i], name, served)) continue;
        for (size_t j = 0; j < listing->model_count; j++)
            if (listing->worker_of[j] == i && str_is(listing->models[j].name, served))
                return &listing->models[j];
    }
    return NULL;
}

void runner_models(struct runner *runner, runner_model_fn add, void *context) {
    const struct names *names = runner->options.names;
    struct listing *listing = mem_new(1, sizeof *listing);
    listing->add = add;
    listing->context = context;
    collect(runner, listing);
    for (size_t i = 0; i < listing->model_count; i++)
        tell(listing, listing->models[i].name, &listing->models[i]);
    for (size_t i = 0; names && i < names->alias_count; i++) {
        struct str alias = str_from(names->aliases[i].name);
        if (name_alias_has_star(&names->aliases[i])) continue; /* no name of its own */
        const struct worker_model *served = find_served(runner, listing, alias);
        if (served) tell(listing, alias, served);
    }
    size_t added = names && names->added ? names_added_list(names->added, listing->added) : 0;
    for (size_t i = 0; i < added; i++) {
        struct str name = str_from(listing->added[i].name);
        const struct worker_model *served = find_served(runner, listing, name);
        if (served) tell(listing, name, served);
    }
    for (size_t i = 0; i < listing->model_count; i++) {
        const struct known_name *known = names_known(listing->models[i].name);
        const char *one;
        for (size_t j = 0; known && (one = names_of_known(known, j)); j++)
            tell(listing, str_from(one), &listing->models[i]);
    }
    free(listing);
}

bool runner_model_find_anew(struct runner *runner, struct str name, runner_model_fn add,
                            void *context) {
    return runner_model_find(runner, name, add, context) ||
           (runner_look(runner) && runner_model_find(runner, name, add, context));
}

bool runner_model_find(struct runner *runner, struct str name, runner_model_fn add, void *context) {
    struct listing *listing = mem_new(1, sizeof *listing);
    collect(runner, listing);
    const struct worker_model *served = find_served(runner, listing, name);
    if (served) add_one(listing, name, served, add, context);
    free(listing);
    return served != NULL;
}

void runner_write_advice(struct runner *runner, struct str model, struct buf *buf) {
    struct listing *listing = mem_new(1, sizeof *listing);
    collect(runner, listing);
    for (size_t i = 0; i < listing->model_count; i++) listing->told[i] = listing->models[i].name;
    names_write_advice(runner->options.names, buf, model, listing->told, listing->model_count);
    free(listing);
}

void runner_status(struct runner *runner, struct runner_status *ret_status) {
    struct worker_status statuses[RUNNER_WORKERS_MAX];
    struct store_status disk;
    size_t count = runner_worker_statuses(runner, statuses, RUNNER_WORKERS_MAX);
    store_status(runner->store, &disk);
    pthread_mutex_lock(&runner->lock);
    *ret_status = runner->counters;
    ret_status->keep_days = runner->retention.keep_days;
    for (int why = 0; why < DELETED_COUNT; why++)
        ret_status->batches_deleted[why] = atomic_load(&runner->retention.deleted[why]);
    ret_status->bytes_freed = atomic_load(&runner->retention.bytes);
    ret_status->draining = runner->is_draining || runner->is_stopping;
    ret_status->requests_in_flight = runner->request_count;
    ret_status->lines_in_flight = runner->slots_taken;
    for (uint32_t i = 0; i < runner->seat_count; i++)
        ret_status->lines_in_flight -= runner->seats[i].requests;
    ret_status->batches_live = 0;
    ret_status->batches_paused = 0;
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next) {
        ret_status->batches_live++;
        ret_status->batches_paused += active_is_paused(batch);
    }
    bool is_started = runner->is_started;
    pthread_mutex_unlock(&runner->lock);
    ret_status->disk_full = disk.disk_full;
    ret_status->worker_count = (uint32_t)count;
    ret_status->workers_ready = 0;
    ret_status->upstreams_reached = 0;
    const char *why = count == 0 ? "no worker" : statuses[0].text;
    uint32_t parked = 0;
    for (size_t i = 0; i < count; i++) {
        ret_status->workers_ready += statuses[i].ready;
        ret_status->upstreams_reached += statuses[i].is_reached;
        ret_status->workers_in[model_state_of(&statuses[i])]++;
        parked += statuses[i].is_parked && !statuses[i].is_held;
    }
    /* While models take turns, at times none is loaded. */
    if (is_started && ret_status->workers_ready == 0) ret_status->workers_ready = parked;
    ret_status->ready = ret_status->workers_ready > 0 && !ret_status->draining && !disk.disk_full;
    if (ret_status->draining)
        why = "draining";
    else if (disk.disk_full)
        why = "the disk is full; results wait for space";
    else if (ret_status->ready)
        why = "ready";
    snprintf(ret_status->text, sizeof ret_status->text, "%s", why);
}

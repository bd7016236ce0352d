/* SPDX-License-Identifier: Apache-2.0 */

/* What the workers together can do. */

#include "runner/runner_internal.h"

#include <stdio.h>
#include <string.h>

#define MODELS_MAX 256 /* of one worker */

size_t runner_workers(struct runner *runner, struct worker *ret_workers[RUNNER_WORKERS_MAX]) {
    size_t count = 0;
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->place_count; i++)
        if (runner->places[i].worker) ret_workers[count++] = runner->places[i].worker;
    pthread_mutex_unlock(&runner->lock);
    return count;
}

enum serving runner_serving(struct runner *runner, struct str model) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    size_t count = runner_workers(runner, workers);
    bool all_ready = count > 0;
    for (size_t i = 0; i < count; i++) {
        if (workers[i]->ops->serves(workers[i], model)) return SERVED;
        struct worker_status status;
        workers[i]->ops->status(workers[i], &status);
        if (!status.ready) all_ready = false;
    }
    return all_ready ? NOT_SERVED : SERVING_UNKNOWN;
}

enum serving runner_default_model(struct runner *runner, char ret_model[BATCH_MODEL_BYTES]) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_model model;
    struct worker_status status;
    if (runner_workers(runner, workers) != 1) return NOT_SERVED;
    workers[0]->ops->status(workers[0], &status);
    if (workers[0]->ops->models(workers[0], &model, 1) == 0)
        return status.ready ? NOT_SERVED : SERVING_UNKNOWN;
    if (model.name.bytes >= BATCH_MODEL_BYTES) return NOT_SERVED;
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

static bool was_named(const struct worker_model *models, size_t count, struct str name) {
    for (size_t i = 0; i < count; i++)
        if (str_equals(models[i].name, name)) return true;
    return false;
}

void runner_models(struct runner *runner,
                   void (*add)(void *context, const struct worker_model *model), void *context) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_model models[MODELS_MAX];
    size_t count = runner_workers(runner, workers), model_count = 0;
    for (size_t i = 0; i < count && model_count < MODELS_MAX; i++) {
        size_t more =
            workers[i]->ops->models(workers[i], models + model_count, MODELS_MAX - model_count);
        for (size_t j = 0; j < more; j++)
            if (!was_named(models, model_count + j, models[model_count + j].name))
                add(context, &models[model_count + j]);
        model_count += more;
    }
}

void runner_status(struct runner *runner, struct runner_status *ret_status) {
    struct worker_status statuses[RUNNER_WORKERS_MAX];
    struct store_status disk;
    size_t count = runner_worker_statuses(runner, statuses, RUNNER_WORKERS_MAX);
    store_status(runner->store, &disk);
    pthread_mutex_lock(&runner->lock);
    *ret_status = runner->counters;
    ret_status->draining = runner->is_draining || runner->is_stopping;
    ret_status->requests_in_flight = runner->request_count;
    ret_status->lines_in_flight = runner->slots_taken;
    for (uint32_t i = 0; i < runner->place_count; i++)
        ret_status->lines_in_flight -= runner->places[i].requests;
    ret_status->batches_live = 0;
    for (struct live *live = runner->live; live; live = live->next) ret_status->batches_live++;
    pthread_mutex_unlock(&runner->lock);
    ret_status->disk_full = disk.disk_full;
    ret_status->worker_count = (uint32_t)count;
    ret_status->workers_ready = 0;
    const char *why = count == 0 ? "no worker" : statuses[0].text;
    for (size_t i = 0; i < count; i++) ret_status->workers_ready += statuses[i].ready;
    ret_status->ready = ret_status->workers_ready > 0 && !ret_status->draining && !disk.disk_full;
    if (ret_status->draining)
        why = "draining";
    else if (disk.disk_full)
        why = "the disk is full; results wait for space";
    else if (ret_status->ready)
        why = "ready";
    snprintf(ret_status->text, sizeof ret_status->text, "%s", why);
}

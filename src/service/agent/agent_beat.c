/* SPDX-License-Identifier: Apache-2.0 */

/* What a node says of itself, and whether the bus hears it. */

#include "agent/agent_internal.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/beat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill_model(struct worker *worker, const struct worker_model *from,
                       struct beat_model *model) {
    *model = (struct beat_model){.name = from->name,
                                 .created_unix_s = from->created_unix_s,
                                 .context_tokens_max = from->context_tokens_max,
                                 .generates = from->generates,
                                 .embeds = from->embeds,
                                 .decides = from->decides};
    model->has_identity =
        worker->ops->identity && worker->ops->identity(worker, from->name, model->identity);
    model->has_weights =
        worker->ops->weights && worker->ops->weights(worker, from->name, model->weights);
}

/* `status` holds the text that the beat borrows. */
static void fill_worker(struct worker *worker, struct worker_status *status,
                        struct beat_worker *own) {
    struct worker_model models[BEAT_MODELS_MAX];
    worker->ops->status(worker, status);
    own->shapes = (uint8_t)worker->ops->shapes;
    own->ready = status->ready;
    own->is_parked = status->is_parked;
    own->is_failed = status->is_failed;
    own->knows_names = status->knows_names;
    own->running = status->running;
    own->waiting = status->waiting;
    own->restarts = status->restarts;
    own->steps = status->steps;
    own->step_age_ms = status->step_age_ms;
    own->prompt_tokens = status->prompt_tokens;
    own->cached_tokens = status->cached_tokens;
    own->completion_tokens = status->completion_tokens;
    own->memory_bytes = status->memory_bytes;
    own->kv_permille =
        status->kv_used > 0 && status->kv_used <= 1 ? (uint32_t)(status->kv_used * 1000) : 0;
    own->text = str_from(status->text);
    size_t count = worker->ops->models(worker, models, BEAT_MODELS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (models[i].name.bytes == 0 || models[i].name.bytes >= MODEL_NAME_BYTES) continue;
        fill_model(worker, &models[i], &own->models[own->model_count++]);
    }
}

void beat_fill(struct agent *agent, struct buf *out) {
    struct beat *beat = mem_new(1, sizeof *beat);
    struct worker_status *statuses = mem_new(AGENT_WORKERS_MAX, sizeof *statuses);
    for (uint32_t i = 0; i < agent->seat_count; i++) {
        struct beat_worker *own = &beat->workers[beat->worker_count++];
        own->weight = agent->seats[i].weight;
        own->lines_max = agent->seats[i].lines_max;
        if (agent->seats[i].worker) fill_worker(agent->seats[i].worker, &statuses[i], own);
    }
    beat->name = str_from(agent->options.name);
    beat->version = str_from(agent->options.version);
    pthread_mutex_lock(&agent->lock);
    beat->state = agent->is_draining ? BEAT_DRAINING : BEAT_SERVING;
    beat->has_gap = agent->has_gap;
    beat->round = agent->round;
    beat->work_seq = agent->work_seq;
    beat->result_seq = agent->result_seq_put;
    beat->count = ++agent->beat_count;
    pthread_mutex_unlock(&agent->lock);
    beat_write(out, beat);
    free(statuses);
    free(beat);
}

/* Keeps whether the bus is reached, and logs each change. It is while both ways are good: a full
 * bus can be read and takes no result. */
void agent_note(struct agent *agent, enum agent_way way, enum err err, const struct error *error) {
    pthread_mutex_lock(&agent->lock);
    bool was_reached = agent->status.is_reached;
    agent->is_way_good[way] = err == OK;
    bool is_reached = agent->is_way_good[WAY_WORK] && agent->is_way_good[WAY_RESULTS];
    bool is_new = err != OK && (was_reached || strcmp(agent->status.text, error->text) != 0);
    agent->status.is_reached = is_reached;
    if (err != OK || is_reached)
        snprintf(agent->status.text, sizeof agent->status.text, "%s",
                 err == OK ? "connected" : error->text);
    pthread_mutex_unlock(&agent->lock);
    if (is_reached && !was_reached) log_info("event=queue_reached node=%s", agent->node);
    if (is_new)
        log_warn("event=queue_lost node=%s error=\"%s\", trying again", agent->node, error->text);
}

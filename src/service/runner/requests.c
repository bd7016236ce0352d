/* SPDX-License-Identifier: Apache-2.0 */

/* Requests of single clients: they wait in order of admission and go ahead of all lines. */

#include "runner/requests.h"

#include "base/clock.h"
#include "base/mem.h"
#include "json/envelope.h"
#include "runner/models.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The load of a worker that did not answer the request before: any other worker goes first. */
#define FAILED_LOAD (1u << 20)

static bool is_sooner(const struct request *a, const struct request *b) {
    if (a->call.tier != b->call.tier) return a->call.tier < b->call.tier;
    if (a->call.priority != b->call.priority) return a->call.priority < b->call.priority;
    return a->order < b->order;
}

static void link_request(struct runner *runner, struct request *request) {
    struct request **at = &runner->requests;
    while (*at && !is_sooner(request, *at)) at = &(*at)->next;
    request->next = *at;
    *at = request;
    runner->request_count++;
}

bool request_unlink(struct runner *runner, struct request *request) {
    struct request **at = &runner->requests;
    while (*at && *at != request) at = &(*at)->next;
    if (!*at) return false;
    *at = request->next;
    runner->request_count--;
    pthread_cond_broadcast(&runner->idle);
    return true;
}

static void request_free(struct request *request) {
    pthread_mutex_destroy(&request->calling);
    free(request->body);
    free(request->model);
    free(request);
}

void request_drop(struct runner *runner, struct request *request) {
    pthread_mutex_lock(&runner->lock);
    bool is_last = --request->holds == 0;
    pthread_mutex_unlock(&runner->lock);
    if (is_last) request_free(request);
}

void request_finish(struct runner *runner, struct request *request,
                    const struct worker_result *result) {
    struct worker_result own = *result;
    own.id = request->id;
    if (request->placed_ns > request->begun_ns)
        own.times.wait_ns = request->placed_ns - request->begun_ns;
    pthread_mutex_lock(&request->calling);
    if (!request->is_finished) {
        request->is_finished = true;
        request->events.result(request->events.context, &own);
    }
    pthread_mutex_unlock(&request->calling);
    request_drop(runner, request);
}

static void finish_with_error(struct runner *runner, struct request *request, enum outcome outcome,
                              int32_t status, const char *code, const char *message) {
    struct buf body;
    buf_init(&body, 4096);
    envelope_write(&body, status, code, NULL, str_from(message));
    const struct worker_result result = {
        .outcome = outcome, .status = status, .body = buf_str(&body)};
    request_finish(runner, request, &result);
    buf_release(&body);
}

void request_fail(struct runner *runner, struct request *request, int32_t status, const char *code,
                  const char *message) {
    finish_with_error(runner, request, OUTCOME_DONE, status, code, message);
}

static void finish_cancelled(struct runner *runner, struct request *request) {
    finish_with_error(runner, request, OUTCOME_CANCELLED, 499, NULL, "The request was cancelled.");
}

void requests_fail_all(struct runner *runner) {
    for (;;) {
        pthread_mutex_lock(&runner->lock);
        struct request *request = runner->requests;
        if (request) request_unlink(runner, request);
        pthread_mutex_unlock(&runner->lock);
        if (!request) return;
        request_fail(runner, request, 503, NULL, "The server is shutting down.");
    }
}

static struct request *new_request(const struct runner_request *call,
                                   const struct runner_request_events *events) {
    struct request *request = mem_new(1, sizeof *request);
    request->call = *call;
    request->events = *events;
    request->model = mem_str(call->model);
    request->body = call->owned ? call->owned->at : mem_str(call->body);
    request->call.owned = NULL;
    request->call.model.at = request->model;
    request->call.body.at = request->body;
    request->blocked_at = UINT64_MAX;
    request->holds = 1;
    request->begun_ns = clock_monotonic_ns();
    pthread_mutex_init(&request->calling, NULL);
    return request;
}

enum err runner_request(struct runner *runner, const struct runner_request *call,
                        const struct runner_request_events *events, uint64_t *ret_request_id,
                        struct error *error) {
    enum serving serving = runner_serving(runner, call->model);
    if (serving == NOT_SERVED && runner_look(runner)) serving = runner_serving(runner, call->model);
    switch (serving) {
    case SERVED: break;
    case NOT_SERVED:
        return err_set(error, ERR_NOT_FOUND, "The model '%.*s' does not exist",
                       (int)(call->model.bytes < 100 ? call->model.bytes : 100),
                       call->model.bytes ? call->model.at : "");
    case SERVING_UNKNOWN:
        return err_set(error, ERR_UNAVAILABLE, "The models are being loaded; try again later");
    }
    enum err err = runner_check_request(runner, call->model, error);
    if (err != OK) return err;
    /* Copied, if at all, without the lock, for which probes of health wait: a body may be long. */
    struct request *request = new_request(call, events);
    pthread_mutex_lock(&runner->lock);
    if (runner->is_draining || runner->is_stopping)
        err = err_set(error, ERR_UNAVAILABLE, "The server is shutting down");
    else if (call->tier == TIER_FLEX && runner->request_count >= runner->options.flex_requests_max)
        err = err_set(error, ERR_LIMIT,
                      "There is no room for requests of tier 'flex' now; try again later");
    else if (runner->request_count >= runner->options.requests_max)
        err = err_set(error, ERR_LIMIT, "%u %s waiting already; try again later",
                      runner->request_count,
                      plural(runner->request_count, "request is", "requests are"));
    if (err == OK) {
        request->id = request->order = ++runner->request_order;
        *ret_request_id = request->id;
        link_request(runner, request);
        pthread_cond_signal(&runner->work);
    }
    pthread_mutex_unlock(&runner->lock);
    if (err == OK) {
        if (call->owned) buf_init(call->owned, call->owned->bytes_max);
        return OK;
    }
    if (call->owned) request->body = NULL;
    request_free(request);
    return err;
}

void runner_request_cancel(struct runner *runner, uint64_t request_id) {
    struct worker *worker = NULL;
    uint64_t job_id = 0;
    pthread_mutex_lock(&runner->lock);
    struct request *request = runner->requests;
    while (request && request->id != request_id) request = request->next;
    bool waits = request && request->job_id == 0 && !request->is_placing;
    if (request) request->cancel = true;
    if (waits) request_unlink(runner, request);
    if (request && request->job_id != 0) {
        worker = runner->seats[request->seat].worker;
        job_id = request->job_id;
    }
    pthread_mutex_unlock(&runner->lock);
    if (waits) finish_cancelled(runner, request);
    if (worker) worker->ops->cancel(worker, job_id);
}

/* --- placing --- */

static struct request *next_waiting(struct runner *runner) {
    for (struct request *request = runner->requests; request; request = request->next)
        if (request->job_id == 0 && !request->is_placing && request->blocked_at != runner->progress)
            return request;
    return NULL;
}

/* A worker that is not full and serves the model; without the lock. */
static struct seat *choose_seat(struct runner *runner, const struct request *request,
                                char ret_served[MODEL_NAME_BYTES]) {
    char served[MODEL_NAME_BYTES];
    struct seat *candidates[RUNNER_WORKERS_MAX], *best = NULL;
    uint32_t count = 0, loads[RUNNER_WORKERS_MAX], best_load = 0;
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        struct seat *seat = &runner->seats[i];
        if (!seat->worker || seat->is_full) continue;
        if (seat->suspects > 0 && seat->suspects_max == 1) continue; /* a suspect runs alone */
        bool has_failed_it = request->was_lost && request->seat == i;
        loads[count] = seat->requests + (has_failed_it || seat_is_sick(seat) ? FAILED_LOAD : 0);
        candidates[count++] = seat;
    }
    pthread_mutex_unlock(&runner->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct worker *worker = candidates[i]->worker;
        if (best && loads[i] >= best_load) continue;
        if (!runner_finds(runner, worker, request->call.model, served)) continue;
        memcpy(ret_served, served, sizeof served);
        best = candidates[i];
        best_load = loads[i];
    }
    return best;
}

/* Hands the job over; false if the worker refuses it. The lock is not held; the caller has a hold
 * on the request. */
static bool submit(struct runner *runner, struct request *request, struct seat *seat,
                   const char *served) {
    pthread_mutex_lock(&runner->lock);
    struct slot *slot = slot_take(runner);
    slot->request = request;
    request->job_id = slot->id;
    request->seat = seat->index;
    request->placed_ns = clock_monotonic_ns();
    pthread_mutex_unlock(&runner->lock);
    struct worker_job job = {.id = slot->id,
                             .endpoint = request->call.endpoint,
                             .tier = request->call.tier,
                             .priority = request->call.priority,
                             .stream = request->call.stream,
                             .model = str_from(served),
                             .body = request->call.body,
                             .keep_ms = request->call.keep_ms};
    memcpy(job.owner, request->call.owner, sizeof job.owner);
    slot->line.peers = peers_find(runner, request->call.model);
    if (seat_submit(runner, seat, slot, &job)) return true;
    pthread_mutex_lock(&runner->lock);
    slot_free(runner, slot);
    request->job_id = 0;
    pthread_mutex_unlock(&runner->lock);
    return false;
}

bool requests_dispatch(struct runner *runner) {
    struct request *request = next_waiting(runner);
    if (!request) return false;
    request->is_placing = true;
    request->holds++;
    pthread_mutex_unlock(&runner->lock);
    char served[MODEL_NAME_BYTES];
    struct seat *seat = choose_seat(runner, request, served);
    bool placed = seat && submit(runner, request, seat, served);
    struct error failure = {0};
    if (!seat) runner_want(runner, request->call.model, request->call.tier, 0);
    bool gone = !seat && runner_serving(runner, request->call.model) == NOT_SERVED;
    bool failed = !seat && runner_check_request(runner, request->call.model, &failure) != OK;
    pthread_mutex_lock(&runner->lock);
    request->is_placing = false;
    bool cancelled = request->cancel && !placed;
    if (!placed) request->blocked_at = runner->progress;
    bool ends = (gone || failed || cancelled) && request_unlink(runner, request);
    if (ends) request->holds--; /* the answer ends the list's hold, the last one */
    pthread_mutex_unlock(&runner->lock);
    if (!ends)
        request_drop(runner, request);
    else if (cancelled)
        finish_cancelled(runner, request);
    else if (failed)
        request_fail(runner, request, 503, NULL, failure.text);
    else
        request_fail(runner, request, 404, "model_not_found",
                     "The model of this request is not served.");
    pthread_mutex_lock(&runner->lock);
    return placed;
}

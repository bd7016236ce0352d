/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include "base/hash.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/sync.h"
#include "engine/state.h"
#include "scheduler/scheduler.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void copy_names(struct engine *engine, const struct wire_hello *options) {
    for (size_t i = 0; i < options->names.count; i++)
        engine->names[i] = mem_str(options->names.at[i]);
    engine->name_count = options->names.count;
    if (engine->name_count == 0) {
        engine->names[0] = mem_text(engine->model->name);
        engine->name_count = 1;
    }
}

/* Makes the fingerprint. It changes with the model and the program: then equal seeds may give other
 * text. */
static void make_fingerprint(struct engine *engine) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, QUERN_VERSION, sizeof QUERN_VERSION);
    sha256_add(&hash, engine->model->name, strlen(engine->model->name) + 1);
    sha256_add(&hash, engine->model->description, strlen(engine->model->description) + 1);
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(engine->fingerprint, sizeof engine->fingerprint, "fp_%.10s", hex);
}

static void find_end_tokens(struct engine *engine) {
    if (!engine->model->backend) return;
    const struct tokenizer *tokenizer = engine->model->vocabulary.tokenizer;
    size_t count = tokenizer_count(tokenizer);
    if (count > engine->model->backend->caps.vocab) count = engine->model->backend->caps.vocab;
    for (size_t id = 0; id < count && engine->end_token_count < SERVED_END_TOKENS_MAX; id++)
        if (vocabulary_is_end(&engine->model->vocabulary, (int32_t)id))
            engine->end_tokens[engine->end_token_count++] = (int32_t)id;
}

static enum err open_scheduler(struct engine *engine, const struct wire_hello *options,
                               struct error *error) {
    const struct backend_caps *caps = &engine->model->backend->caps;
    struct scheduler_options scheduler = {
        .backend = engine->model->backend,
        .max_num_seqs = options->max_num_seqs,
        .urgent_seqs = SERVED_URGENT_SEQS,
        .max_num_batched_tokens = options->max_num_batched_tokens,
        .max_model_len = options->max_model_len,
        .enable_prefix_caching = options->prefix_caching,
        .seed = id_u64(),
        .on_event = loop_on_event,
        .allowed = loop_allowed,
        .given = loop_given,
        .ahead = loop_ahead,
        .draft_tokens_max = options->num_speculative_tokens,
        .guess = engine->model->drafts ? draft_model_guess : NULL,
        .guesser = engine->model->drafts,
        .user = engine,
    };
    /* The model's limits bound the options. */
    if (scheduler.max_num_seqs > caps->sequences_max) scheduler.max_num_seqs = 0;
    if (scheduler.max_num_batched_tokens > caps->rows_max) scheduler.max_num_batched_tokens = 0;
    if (scheduler.max_model_len > caps->context_tokens_max) scheduler.max_model_len = 0;
    if (scheduler.draft_tokens_max > SCHEDULER_DRAFT_TOKENS_MAX)
        scheduler.draft_tokens_max = SCHEDULER_DRAFT_TOKENS_MAX;
    enum err err = scheduler_open(&engine->scheduler, &scheduler, error);
    if (err != OK) return err_prefix(error, "engine");
    engine->kv_tokens =
        (uint64_t)caps->page_count / (caps->full_pages + caps->window_pages) * caps->block_tokens;
    uint32_t context = scheduler.max_model_len ? scheduler.max_model_len : caps->context_tokens_max;
    if (context > engine->kv_tokens) context = (uint32_t)engine->kv_tokens;
    engine->limits.context_tokens_max = context;
    engine->shapes = shapes_open(engine->model, engine->end_tokens, engine->end_token_count);
    return OK;
}

static void open_embed_queue(struct engine *engine, const struct wire_hello *options) {
    const struct served_embedder *model = &engine->model->embedder;
    struct embed_queue_options queue = {.model = model,
                                        .step_tokens = model->step_tokens,
                                        .held_bytes = &engine->vector_bytes,
                                        .on_done = loop_on_embedded,
                                        .user = engine};
    engine->embed_queue = embed_queue_open(&queue);
    engine->text_tokens_max = model->text_tokens_max;
    if (options->max_model_len > 0 && options->max_model_len < engine->text_tokens_max)
        engine->text_tokens_max = options->max_model_len;
}

static enum err open_rings(struct engine *engine, struct error *error) {
    enum err err = ring_open(&engine->prep_ring, ENGINE_JOBS_MAX, sizeof(char), error);
    for (size_t i = 0; i < 2 && err == OK; i++)
        err = ring_open(&engine->prep_queues[i], ENGINE_JOBS_MAX, sizeof(struct job *), error);
    if (err == OK)
        err = ring_open(&engine->finish_ring, ENGINE_JOBS_MAX, sizeof(struct job *), error);
    if (err == OK)
        err = ring_open(&engine->loop_ring, ENGINE_JOBS_MAX + ENGINE_PROBES_MAX,
                        sizeof(struct loop_message), error);
    return err;
}

static void open_table(struct engine *engine) {
    engine->jobs = mem_new(ENGINE_JOBS_MAX, sizeof *engine->jobs);
    engine->running = mem_new(ENGINE_JOBS_MAX, sizeof *engine->running);
    engine->free_slots = mem_new(ENGINE_JOBS_MAX, sizeof *engine->free_slots);
    for (uint32_t i = 0; i < ENGINE_JOBS_MAX; i++) engine->free_slots[i] = ENGINE_JOBS_MAX - 1 - i;
}

static enum err start_thread(pthread_t *ret_thread, void *(*thread_main)(void *),
                             struct engine *engine, const char *name, struct error *error) {
    int number = pthread_create(ret_thread, NULL, thread_main, engine);
    if (number != 0) return err_from_errno(error, number, "engine: cannot start thread %s", name);
    return OK;
}

static enum err start_threads(struct engine *engine, size_t prep_threads, struct error *error) {
    enum err err = start_thread(&engine->finish_thread, finish_main, engine, "quern-finish", error);
    if (err != OK) return err;
    engine->has_finish_thread = true;
    err = start_thread(&engine->loop_thread, loop_main, engine, "quern-loop", error);
    if (err != OK) return err;
    engine->has_loop_thread = true;
    for (size_t i = 0; i < prep_threads; i++) {
        err = start_thread(&engine->prep_threads[i], prep_main, engine, "quern-prep", error);
        if (err != OK) return err;
        engine->prep_thread_count++;
    }
    return OK;
}

enum err engine_open(struct engine **ret_engine, const struct served_model *model,
                     const struct wire_hello *options, const struct engine_events *events,
                     struct error *error) {
    struct engine *engine = mem_new(1, sizeof *engine);
    engine->model = model;
    engine->events = *events;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_mutex_init(&engine->large, NULL);
    sync_cond_init(&engine->emptied);
    buf_init(&engine->chunk, WIRE_PAYLOAD_BYTES_MAX);
    copy_names(engine, options);
    make_fingerprint(engine);
    engine->salt_key[0] = id_u64();
    engine->salt_key[1] = id_u64();
    engine->limits.trusts_templates = options->trust_request_chat_template;
    find_end_tokens(engine);
    engine->source = (struct answer_source){model->vocabulary.tokenizer, str_from(engine->names[0]),
                                            engine->fingerprint};
    open_table(engine);
    size_t prep_threads = options->prep_threads ? options->prep_threads : 1;
    if (prep_threads > ENGINE_PREP_THREADS_MAX) prep_threads = ENGINE_PREP_THREADS_MAX;
    assert(model->backend || model->embedder.embed);
    enum err err = model->backend ? open_scheduler(engine, options, error) : OK;
    if (model->embedder.embed) open_embed_queue(engine, options);
    if (err == OK) err = open_rings(engine, error);
    if (err == OK) err = start_threads(engine, prep_threads, error);
    if (err == OK)
        *ret_engine = engine;
    else
        engine_close(engine);
    return err;
}

void engine_ready(const struct engine *engine, struct wire_ready *ret_ready) {
    *ret_ready = (struct wire_ready){
        .version = WIRE_VERSION,
        .created_unix_s = engine->model->created_unix_s,
        .context_tokens_max =
            engine->scheduler ? engine->limits.context_tokens_max : engine->text_tokens_max,
        .vocabulary_count = engine->model->backend
                                ? engine->model->backend->caps.vocab
                                : (uint32_t)tokenizer_count(engine->model->vocabulary.tokenizer),
        .kv_tokens = engine->kv_tokens,
        .generates = engine->scheduler != NULL,
        .embeds = engine->embed_queue != NULL,
        .decides = engine->scheduler && engine->model->vocabulary.template,
        .description = str_from(engine->model->description),
        .ledger = engine->model->ledger,
        .about = engine->model->about,
    };
    ret_ready->names.count = engine->name_count;
    for (size_t i = 0; i < engine->name_count; i++)
        ret_ready->names.at[i] = str_from(engine->names[i]);
}

bool engine_submit(struct engine *engine, uint64_t id, const struct wire_job *from) {
    struct job *job = job_open(id, from);
    pthread_mutex_lock(&engine->lock);
    bool is_taken = !engine->is_refusing && engine->job_count < ENGINE_JOBS_MAX;
    if (is_taken) {
        job->slot = engine->free_slots[ENGINE_JOBS_MAX - 1 - engine->job_count++];
        assert(!engine->jobs[job->slot]);
        engine->jobs[job->slot] = job;
    }
    pthread_mutex_unlock(&engine->lock);
    if (!is_taken) {
        job_close(job);
        return false;
    }
    bool can_wait = !tier_is_interactive(job->tier);
    bool was_put = ring_try_put(engine->prep_queues[can_wait], &job) &&
                   ring_try_put(engine->prep_ring, &(char){0});
    assert(was_put);
    return true;
}

void engine_forget(struct engine *engine, struct job *job) {
    pthread_mutex_lock(&engine->lock);
    assert(engine->jobs[job->slot] == job);
    engine->jobs[job->slot] = NULL;
    engine->free_slots[ENGINE_JOBS_MAX - engine->job_count--] = job->slot;
    if (engine->job_count == 0) pthread_cond_broadcast(&engine->emptied);
    pthread_mutex_unlock(&engine->lock);
}

/* Sets the flag that every stage reads first. True if the engine has the job. */
static bool flag_cancelled(struct engine *engine, uint64_t id, uint32_t *ret_slot) {
    bool is_found = false;
    pthread_mutex_lock(&engine->lock);
    for (uint32_t slot = 0; slot < ENGINE_JOBS_MAX && !is_found; slot++) {
        if (!engine->jobs[slot] || engine->jobs[slot]->id != id) continue;
        atomic_store(&engine->jobs[slot]->is_cancelled, true);
        *ret_slot = slot;
        is_found = true;
    }
    pthread_mutex_unlock(&engine->lock);
    return is_found;
}

void engine_cancel(struct engine *engine, uint64_t id) {
    struct loop_message message = {.kind = LOOP_CANCEL, .id = id};
    if (flag_cancelled(engine, id, &message.slot)) ring_put(engine->loop_ring, &message);
}

void engine_ping(struct engine *engine, uint64_t ping) {
    ring_put(engine->loop_ring, &(struct loop_message){.kind = LOOP_PING, .id = ping});
}

bool engine_drain(struct engine *engine, int64_t timeout_ms) {
    int64_t due_ns = sync_deadline_ns(timeout_ms);
    pthread_mutex_lock(&engine->lock);
    engine->is_refusing = true;
    while (engine->job_count > 0 && sync_wait_until(&engine->emptied, &engine->lock, due_ns)) {
    }
    bool is_empty = engine->job_count == 0;
    pthread_mutex_unlock(&engine->lock);
    return is_empty;
}

/* Cancels all jobs. One message wakes the loop, which finds all flags. */
static void cancel_all(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->is_refusing = true;
    for (uint32_t slot = 0; slot < ENGINE_JOBS_MAX; slot++)
        if (engine->jobs[slot]) atomic_store(&engine->jobs[slot]->is_cancelled, true);
    pthread_mutex_unlock(&engine->lock);
    for (uint32_t slot = 0; slot < ENGINE_JOBS_MAX; slot++) {
        pthread_mutex_lock(&engine->lock);
        struct loop_message message = {.kind = LOOP_CANCEL, .slot = slot};
        bool is_there = engine->jobs[slot] != NULL;
        if (is_there) message.id = engine->jobs[slot]->id;
        pthread_mutex_unlock(&engine->lock);
        if (is_there) ring_put(engine->loop_ring, &message);
    }
}

/* Stops the stages in the order in which jobs travel; each hands on all its jobs before it ends. */
static void stop_threads(struct engine *engine) {
    if (engine->prep_ring) ring_stop(engine->prep_ring);
    for (size_t i = 0; i < engine->prep_thread_count; i++)
        pthread_join(engine->prep_threads[i], NULL);
    if (engine->loop_ring) ring_stop(engine->loop_ring);
    if (engine->has_loop_thread) pthread_join(engine->loop_thread, NULL);
    if (engine->finish_ring) ring_stop(engine->finish_ring);
    if (engine->has_finish_thread) pthread_join(engine->finish_thread, NULL);
}

void engine_close(struct engine *engine) {
    if (!engine) return;
    if (engine->has_loop_thread && engine->prep_thread_count > 0) {
        cancel_all(engine);
        bool is_empty = engine_drain(engine, -1);
        assert(is_empty);
    }
    stop_threads(engine);
    scheduler_close(engine->scheduler);
    shapes_close(engine->shapes);
    embed_queue_close(engine->embed_queue);
    ring_close(engine->prep_ring);
    ring_close(engine->prep_queues[0]);
    ring_close(engine->prep_queues[1]);
    ring_close(engine->loop_ring);
    ring_close(engine->finish_ring);
    for (size_t i = 0; i < engine->name_count; i++) free(engine->names[i]);
    free(engine->jobs);
    free(engine->running);
    free(engine->free_slots);
    buf_release(&engine->chunk);
    pthread_cond_destroy(&engine->emptied);
    pthread_mutex_destroy(&engine->large);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

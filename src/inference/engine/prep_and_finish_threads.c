/* SPDX-License-Identifier: Apache-2.0 */
/* The two stages around the loop: prep turns bodies into tokens, finish writes bodies. */
#include "base/mem.h"
#include "engine/state.h"
#include "engine/tokenize.h"
#include "json/json.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LARGE_BYTES ((size_t)1 << 20)

static int32_t local_offset_s(int64_t now_unix_s) {
    time_t now = (time_t)now_unix_s;
    struct tm local;
    return localtime_r(&now, &local) ? (int32_t)local.tm_gmtoff : 0;
}

static void name_response(struct job *job) {
    const char *prefix = job->endpoint == ENDPOINT_CHAT       ? "chatcmpl-"
                         : job->endpoint == ENDPOINT_SCORE    ? "score-"
                         : job->endpoint == ENDPOINT_RERANK   ? "rerank-"
                         : job->endpoint == ENDPOINT_CLASSIFY ? "classify-"
                                                              : "cmpl-";
    struct str own = job->request.request_id;
    if (own.bytes > 0)
        snprintf(job->response_id, sizeof job->response_id, "%s%.*s", prefix, STR_ARGS(own));
    else
        id_hex(job->response_id, sizeof job->response_id, prefix, 32);
}

/* A number for a salt and its owner: the first half of a hash with a secret random key, so that no
 * client can search a salt with another's number. The owner is hashed with its length, so that no
 * salt runs into another owner's name. Never 0. */
static uint64_t salt_number(const struct engine *engine, const char *owner, struct str salt) {
    uint64_t owner_bytes = strlen(owner);
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    sha256_init(&hash);
    sha256_add(&hash, engine->salt_key, sizeof engine->salt_key);
    sha256_add(&hash, &owner_bytes, sizeof owner_bytes);
    sha256_add(&hash, owner, owner_bytes);
    sha256_add(&hash, salt.at, salt.bytes);
    sha256_end(&hash, digest);
    uint64_t number;
    memcpy(&number, digest, sizeof number);
    return number ? number : 1;
}

static void open_choices(struct job *job) {
    uint32_t count = (uint32_t)job->request.prompt_count * (uint32_t)job->request.candidates;
    job->choices = mem_new(count, sizeof *job->choices);
    for (uint32_t i = 0; i < count; i++) choice_init(&job->choices[i], &job->request);
    job->choice_count = job->open_count = count;
    job->seed = job->request.has_seed ? (uint64_t)job->request.seed : id_u64();
}

/* Drops all of the tools but their names. */
static void drop_schemas(json_t *tools) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *function = json_object_get(json_array_get(tools, i), "function");
        json_object_del(function, "description");
        json_object_del(function, "parameters");
    }
}

/* Drops the members that are tokens now; the rest of the body is small (stop strings, the
 * model). */
static void drop_documents(struct request *request) {
    json_object_del(request->body, "messages");
    /* The reader of calls knows a call by its name; that of XML looks at the schemas, too. */
    if (request->tool_format != TOOL_FORMAT_XML && request->tool_format != TOOL_FORMAT_KEYS)
        drop_schemas(request->tools);
    json_object_del(request->body, "prompt");
    json_object_del(request->body, "bad_words");
    json_object_del(request->body, "chat_template");
    json_object_del(request->body, "response_format");
    json_object_del(request->body, "structured_outputs");
    json_object_del(request->body, "guided_json");
    json_object_del(request->body, "guided_choice");
    request->messages = request->prompt = request->bad_words = NULL;
    request->chat_template = (struct str){NULL, 0};
}

static struct prep_options prep_options_now(const struct engine *engine) {
    struct prep_options options = engine->limits;
    options.now_unix_s = clock_unix_s();
    options.utc_offset_s = local_offset_s(options.now_unix_s);
    return options;
}

static bool prepare_decision(const struct engine *engine, struct job *job) {
    struct prep_options options = prep_options_now(engine);
    bool is_good = decision_prepare(&job->decision, job->endpoint, buf_str(&job->body),
                                    engine->model, &options, &job->is_cancelled, &job->refusal);
    buf_release(&job->body);
    struct str salt = json_member_str(job->decision.body, "cache_salt");
    if (*job->owner || salt.bytes > 0) job->cache_salt = salt_number(engine, job->owner, salt);
    if (!is_good && atomic_load(&job->is_cancelled)) job_refuse_cancelled(job);
    return is_good;
}

/* Texts that become vectors or labels. */
static bool prepare_texts(const struct engine *engine, struct job *job) {
    const struct score_question question = {.endpoint = job->endpoint,
                                            .body = buf_str(&job->body),
                                            .model = engine->model,
                                            .text_tokens_max = engine->text_tokens_max};
    const bool is_score = job->endpoint == ENDPOINT_SCORE || job->endpoint == ENDPOINT_RERANK;
    bool is_good = is_score ? score_prepare(&job->score, &job->embedding, &question, &job->refusal)
                            : embedding_prepare(&job->embedding, question.body, engine->model,
                                                engine->text_tokens_max, &job->refusal);
    buf_release(&job->body);
    if (is_good && (is_score || job->endpoint == ENDPOINT_CLASSIFY)) {
        job->created_unix_s = clock_unix_s();
        name_response(job);
    }
    return is_good;
}

static bool prepare(const struct engine *engine, struct job *job) {
    struct refusal *refusal = &job->refusal;
    if (atomic_load(&job->is_cancelled)) {
        job_refuse_cancelled(job);
        return false;
    }
    if (endpoint_is_words(job->endpoint)) {
        const struct prep_options limits = prep_options_now(engine);
        const struct tokenize_question question = {.endpoint = job->endpoint,
                                                   .body = buf_str(&job->body),
                                                   .model = engine->model,
                                                   .limits = &limits,
                                                   .text_tokens_max = engine->text_tokens_max};
        bool is_good = tokenize_answer(&question, &job->words, refusal);
        buf_release(&job->body);
        return is_good;
    }
    if (!served_model_does(engine->model, job->endpoint, refusal)) return false;
    if (endpoint_is_pooled(job->endpoint)) return prepare_texts(engine, job);
    if (endpoint_is_decision(job->endpoint)) return prepare_decision(engine, job);
    if (!request_parse(&job->request, job->endpoint, buf_str(&job->body),
                       engine->model->backend->caps.vocab, refusal))
        return false;
    buf_release(&job->body);
    job->prompts = mem_new(job->request.prompt_count, sizeof *job->prompts);
    const struct prep_options options = prep_options_now(engine);
    job->created_unix_s = options.now_unix_s;
    if (!prep_prompts(&job->request, engine->model, &options, job->prompts, &job->max_tokens,
                      refusal))
        return false;
    struct grammar *grammar;
    if (!shapes_compile(engine->shapes, job, &grammar, refusal)) return false;
    drop_documents(&job->request);
    name_response(job);
    if (*job->owner || job->request.cache_salt.bytes > 0)
        job->cache_salt = salt_number(engine, job->owner, job->request.cache_salt);
    open_choices(job);
    shapes_begin(job, grammar);
    shapes_limit_thought(engine->shapes, job);
    return true;
}

/* Prepares a job; false, with its refusal, if it cannot be served. Of bodies above LARGE_BYTES one
 * is prepared at a time: each may cost 8 times its bytes, and the freed memory goes back to the
 * machine at once. */
static bool prepare_within_memory(struct engine *engine, struct job *job) {
    bool is_large = job->body.bytes > LARGE_BYTES;
    if (is_large) pthread_mutex_lock(&engine->large);
    bool is_good = prepare(engine, job);
    if (!is_good) job_drop_request(job);
    if (is_large) {
        mem_trim();
        pthread_mutex_unlock(&engine->large);
    }
    /* The machine has no memory now, and another try may succeed. */
    if (!is_good && job->refusal.status == 503) job->outcome = OUTCOME_TRY_AGAIN;
    return is_good;
}

/* Takes the next job. The caller has taken a token, so one job is left for it. */
static struct job *take_job(struct engine *engine) {
    struct job *job;
    bool is_found =
        ring_take(engine->prep_queues[0], &job, 0) || ring_take(engine->prep_queues[1], &job, 0);
    /* Between the two looks an interactive job may arrive, and another thread may take the job of
     * the second queue; then this thread's job is in the first one. */
    while (!is_found)
        is_found = ring_take(engine->prep_queues[0], &job, 0) ||
                   ring_take(engine->prep_queues[1], &job, 0);
    return job;
}

void *prep_main(void *user) {
    struct engine *engine = user;
    char token;
    pthread_setname_np(pthread_self(), "quern-prep");
    while (ring_take(engine->prep_ring, &token, -1)) {
        struct job *job = take_job(engine);
        job->is_refused = !prepare_within_memory(engine, job);
        bool was_put;
        if (job->is_refused || endpoint_is_words(job->endpoint))
            was_put = ring_try_put(engine->finish_ring, &job);
        else
            was_put =
                ring_put(engine->loop_ring, &(struct loop_message){.kind = LOOP_JOB, .job = job});
        assert(was_put);
    }
    return NULL;
}

/* Moves the answer, which is long for a long text: a copy would cost as much again. */
static void move_words(struct job *job, struct buf *body) {
    size_t bytes_max = body->bytes_max;
    buf_release(body);
    *body = job->words;
    body->bytes_max = bytes_max;
    if (body->bytes > bytes_max) body->overflowed = true;
    buf_init(&job->words, 0);
}

static void write_score(const struct engine *engine, const struct job *job, struct buf *body) {
    const struct score_answer answer = {.id = job->response_id,
                                        .model_name = engine->source.model_name,
                                        .created_unix_s = job->created_unix_s,
                                        .head = &engine->model->embedder.head,
                                        .vocabulary = &engine->model->vocabulary,
                                        .width = engine->model->embedder.width};
    if (job->endpoint == ENDPOINT_CLASSIFY)
        score_write_labels(body, &answer, &job->embedding);
    else
        score_write_body(body, &answer, &job->score, &job->embedding);
}

static enum shape_end write_body(const struct engine *engine, struct job *job, struct buf *body) {
    if (endpoint_is_words(job->endpoint))
        move_words(job, body);
    else if (job->endpoint == ENDPOINT_EMBEDDINGS || job->endpoint == ENDPOINT_POOLING)
        embedding_write_body(body, engine->source.model_name, engine->model->embedder.width,
                             job->endpoint == ENDPOINT_POOLING, &job->embedding);
    else if (endpoint_is_pooled(job->endpoint))
        write_score(engine, job, body);
    else if (endpoint_is_decision(job->endpoint))
        decision_write_body(body, engine->source.model_name, &job->decision);
    else
        return answer_write_body(body, &engine->source, job);
    return SHAPE_NONE;
}

static void write_result(const struct engine *engine, struct job *job, struct buf *body,
                         struct wire_result *ret_result) {
    *ret_result = (struct wire_result){.status = 200, .outcome = job->outcome};
    struct refusal refusal = job->refusal;
    bool is_refused = job->is_refused;
    if (!is_refused) ret_result->shape = write_body(engine, job, body);
    if (body->overflowed) {
        is_refused = true;
        buf_clear(body);
        refuse_status(&refusal, 500, NULL, NULL, "The response is larger than %zu bytes.",
                      body->bytes_max);
    }
    if (is_refused) {
        refusal_write(body, &refusal);
        ret_result->status = refusal.status;
        ret_result->shape = SHAPE_NONE;
    }
    bool has_run =
        job->choice_count > 0 || job->embedding.vectors || job->decision.input_tokens > 0;
    if (has_run) ret_result->usage = job_usage(job);
    if (has_run) ret_result->times = job_times(job);
    ret_result->body = buf_str(body);
}

void *finish_main(void *user) {
    struct engine *engine = user;
    struct buf body;
    pthread_setname_np(pthread_self(), "quern-finish");
    /* A result and its numbers travel in one frame. */
    buf_init(&body, WIRE_PAYLOAD_BYTES_MAX - 1024);
    struct job *job;
    while (ring_take(engine->finish_ring, &job, -1)) {
        struct wire_result result;
        write_result(engine, job, &body, &result);
        if (engine->events.result) engine->events.result(engine->events.context, job->id, &result);
        buf_clear(&body);
        if (body.capacity > 1024 * 1024) buf_release(&body);
        size_t vector_bytes = job->embedding.vector_bytes;
        engine_forget(engine, job);
        job_close(job);
        if (vector_bytes > 0) {
            /* The embed_queue may wait for this room. */
            atomic_fetch_sub(&engine->vector_bytes, vector_bytes);
            ring_try_put(engine->loop_ring, &(struct loop_message){.kind = LOOP_WAKE});
        }
    }
    buf_release(&body);
    return NULL;
}

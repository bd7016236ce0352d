/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/answers.h"
#include "api/api_internal.h"
#include "api/copies.h"
#include "api/message_batches.h"
#include "api/openapi.h"
#include "api/pulls.h"
#include "api/uploads.h"
#include "base/mem.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((uint64_t)2 << 30)
#define MULTIPART_ROOM_BYTES ((uint64_t)1 << 20) /* for part headers and small fields */

/* All routes, each with the right that it needs. */
const struct http_route api_routes[] = {
    {"GET", "/", KEY_SCOPE_OPEN, pages_index, NULL, "getIndexPage", HTTP_PLAIN},
    {"GET", "/pages/{name}", KEY_SCOPE_OPEN, pages_get, NULL, "getPage", HTTP_PLAIN},
    {"GET", "/health", KEY_SCOPE_OPEN, health_live, NULL, "getHealth", HTTP_QUICK},
    {"GET", "/ping", KEY_SCOPE_OPEN, health_live, NULL, "getPing", HTTP_QUICK},
    {"GET", "/ready", KEY_SCOPE_OPEN, health_ready, NULL, "getReady", HTTP_QUICK},
    {"GET", "/version", KEY_SCOPE_OPEN, health_version, NULL, "getVersion", HTTP_QUICK},
    {"GET", "/openapi.json", KEY_SCOPE_OPEN, openapi_get, NULL, "getOpenapi", HTTP_PLAIN},
    {"GET", "/metrics", KEY_SCOPE_METRICS, health_metrics, NULL, "getMetrics", HTTP_QUICK},
    {"GET", "/v1/files", KEY_SCOPE_FILES, files_list, NULL, "listFiles", HTTP_PLAIN},
    {"POST", "/v1/files", KEY_SCOPE_FILES, files_create, &files_upload, "createFile", HTTP_PLAIN},
    {"GET", "/v1/files/{id}", KEY_SCOPE_FILES, files_get, NULL, "retrieveFile", HTTP_PLAIN},
    {"DELETE", "/v1/files/{id}", KEY_SCOPE_FILES, files_delete, NULL, "deleteFile", HTTP_PLAIN},
    {"GET", "/v1/files/{id}/content", KEY_SCOPE_FILES, files_content, NULL, "downloadFile",
     HTTP_PLAIN},
    {"POST", "/v1/uploads", KEY_SCOPE_FILES, uploads_create, NULL, "createUpload", HTTP_PLAIN},
    {"GET", "/v1/uploads/{id}", KEY_SCOPE_FILES, uploads_get, NULL, "retrieveUpload", HTTP_PLAIN},
    {"POST", "/v1/uploads/{id}/parts", KEY_SCOPE_FILES, uploads_part, &uploads_part_upload,
     "addUploadPart", HTTP_PLAIN},
    {"POST", "/v1/uploads/{id}/complete", KEY_SCOPE_FILES, uploads_complete, NULL, "completeUpload",
     HTTP_PLAIN},
    {"POST", "/v1/uploads/{id}/cancel", KEY_SCOPE_FILES, uploads_cancel, NULL, "cancelUpload",
     HTTP_PLAIN},
    {"POST", "/v1/batches", KEY_SCOPE_BATCHES, batches_create, NULL, "createBatch", HTTP_PLAIN},
    {"GET", "/v1/batches", KEY_SCOPE_BATCHES, batches_list, NULL, "listBatches", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}", KEY_SCOPE_BATCHES, batches_get, NULL, "retrieveBatch", HTTP_PLAIN},
    {"DELETE", "/v1/batches/{id}", KEY_SCOPE_BATCHES, batches_delete, NULL, "deleteBatch",
     HTTP_PLAIN},
    {"POST", "/v1/batches/preflight", KEY_SCOPE_BATCHES, preflight_create, NULL, "preflightBatch",
     HTTP_PLAIN},
    {"POST", "/v1/batches/{id}/cancel", KEY_SCOPE_BATCHES, batches_cancel, NULL, "cancelBatch",
     HTTP_PLAIN},
    {"POST", "/v1/batches/{id}/pause", KEY_SCOPE_BATCHES, batches_pause, NULL, "pauseBatch",
     HTTP_PLAIN},
    {"POST", "/v1/batches/{id}/resume", KEY_SCOPE_BATCHES, batches_resume, NULL, "resumeBatch",
     HTTP_PLAIN},
    {"POST", "/v1/batches/{id}/retry", KEY_SCOPE_BATCHES, batches_retry, NULL, "retryBatch",
     HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/results", KEY_SCOPE_BATCHES, results_get, NULL, "streamBatchResults",
     HTTP_PLAIN},
    {"POST", "/v1/batches/{id}/judgements", KEY_SCOPE_BATCHES, judgements_create, NULL,
     "createBatchJudgement", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/judgements", KEY_SCOPE_BATCHES, judgements_list, NULL,
     "listBatchJudgements", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/judgements/summary", KEY_SCOPE_BATCHES, judgements_summary, NULL,
     "summarizeBatchJudgements", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/answers/fields", KEY_SCOPE_BATCHES, answers_fields, NULL,
     "listAnswerFields", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/answers", KEY_SCOPE_BATCHES, answers_list, NULL, "listAnswers",
     HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/lines/{line}", KEY_SCOPE_BATCHES, answers_line, NULL,
     "retrieveBatchLine", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/judgements/export", KEY_SCOPE_BATCHES, judgements_export, NULL,
     "exportBatchJudgements", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/label_studio", KEY_SCOPE_BATCHES, studio_get, NULL,
     "retrieveBatchLabelStudio", HTTP_PLAIN},
    {"POST", "/v1/batches/{id}/label_studio", KEY_SCOPE_BATCHES, studio_start, NULL,
     "startBatchLabelStudio", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/cards", KEY_SCOPE_BATCHES, cards_list, NULL, "listBatchCards",
     HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/schema", KEY_SCOPE_BATCHES, cards_schema, NULL, "retrieveBatchSchema",
     HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/manifest", KEY_SCOPE_BATCHES, batches_manifest, NULL,
     "retrieveBatchManifest", HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/manifest/salts", KEY_SCOPE_BATCHES, batches_manifest_salts, NULL,
     "retrieveBatchManifestSalts", HTTP_PLAIN},
    {"POST", "/v1/batches/{id}/erase", KEY_SCOPE_BATCHES, erasures_create, NULL, "eraseBatchLines",
     HTTP_PLAIN},
    {"GET", "/v1/batches/{id}/erasures", KEY_SCOPE_BATCHES, erasures_list, NULL,
     "listBatchErasures", HTTP_PLAIN},
    {"POST", "/v1/chat/completions", KEY_SCOPE_INFER, inference_chat, NULL, "createChatCompletion",
     HTTP_LARGE_BODY},
    {"POST", "/v1/completions", KEY_SCOPE_INFER, inference_completions, NULL, "createCompletion",
     HTTP_LARGE_BODY},
    {"POST", "/v1/embeddings", KEY_SCOPE_INFER, inference_embeddings, NULL, "createEmbedding",
     HTTP_LARGE_BODY},
    {"POST", "/v1/decisions", KEY_SCOPE_INFER, inference_decisions, NULL, "createDecision",
     HTTP_LARGE_BODY},
    {"POST", "/v1/systemone", KEY_SCOPE_INFER, inference_systemone, NULL, "createSystemOne",
     HTTP_LARGE_BODY},
    {"POST", "/tokenize", KEY_SCOPE_INFER, inference_tokenize, NULL, "tokenize", HTTP_LARGE_BODY},
    {"POST", "/detokenize", KEY_SCOPE_INFER, inference_detokenize, NULL, "detokenize",
     HTTP_LARGE_BODY},
    {"GET", "/tokenizer_info", KEY_SCOPE_INFER, inference_tokenizer_info, NULL, "getTokenizerInfo",
     HTTP_PLAIN},
    {"POST", "/v1/score", KEY_SCOPE_INFER, inference_score, NULL, "createScore", HTTP_LARGE_BODY},
    {"POST", "/score", KEY_SCOPE_INFER, inference_score, NULL, "createScoreOfVllm",
     HTTP_LARGE_BODY},
    {"POST", "/v1/rerank", KEY_SCOPE_INFER, inference_rerank, NULL, "createRerank",
     HTTP_LARGE_BODY},
    {"POST", "/v2/rerank", KEY_SCOPE_INFER, inference_rerank, NULL, "createRerankOfCohere",
     HTTP_LARGE_BODY},
    {"POST", "/rerank", KEY_SCOPE_INFER, inference_rerank, NULL, "createRerankOfVllm",
     HTTP_LARGE_BODY},
    {"POST", "/pooling", KEY_SCOPE_INFER, inference_pooling, NULL, "createPooling",
     HTTP_LARGE_BODY},
    {"POST", "/classify", KEY_SCOPE_INFER, inference_classify, NULL, "createClassification",
     HTTP_LARGE_BODY},
    {"POST", "/v1/responses", KEY_SCOPE_INFER, responses_post, NULL, "createResponse",
     HTTP_LARGE_BODY},
    {"POST", "/v1/responses/input_tokens", KEY_SCOPE_INFER, responses_post_count, NULL,
     "countResponseInputTokens", HTTP_LARGE_BODY},
    {"POST", "/v1/responses/compact", KEY_SCOPE_INFER, inference_unsupported, NULL,
     "compactResponse", HTTP_LARGE_BODY},
    {"GET", "/v1/responses/{id}", KEY_SCOPE_INFER, responses_kept, NULL, "retrieveResponse",
     HTTP_PLAIN},
    {"DELETE", "/v1/responses/{id}", KEY_SCOPE_INFER, responses_kept, NULL, "deleteResponse",
     HTTP_PLAIN},
    {"POST", "/v1/responses/{id}/cancel", KEY_SCOPE_INFER, responses_kept, NULL, "cancelResponse",
     HTTP_PLAIN},
    {"GET", "/v1/responses/{id}/input_items", KEY_SCOPE_INFER, responses_kept, NULL,
     "listResponseInputItems", HTTP_PLAIN},
    {"POST", "/v1/messages", KEY_SCOPE_INFER, messages_post, NULL, "createMessage",
     HTTP_LARGE_BODY},
    {"POST", "/v1/messages/count_tokens", KEY_SCOPE_INFER, messages_post_count, NULL,
     "countMessageTokens", HTTP_LARGE_BODY},
    {"POST", "/v1/messages/batches", KEY_SCOPE_BATCHES, message_batches_create,
     &message_batches_upload, "createMessageBatch", HTTP_PLAIN},
    {"GET", "/v1/messages/batches", KEY_SCOPE_BATCHES, message_batches_list, NULL,
     "listMessageBatches", HTTP_PLAIN},
    {"GET", "/v1/messages/batches/{id}", KEY_SCOPE_BATCHES, message_batches_get, NULL,
     "retrieveMessageBatch", HTTP_PLAIN},
    {"DELETE", "/v1/messages/batches/{id}", KEY_SCOPE_BATCHES, message_batches_delete, NULL,
     "deleteMessageBatch", HTTP_PLAIN},
    {"POST", "/v1/messages/batches/{id}/cancel", KEY_SCOPE_BATCHES, message_batches_cancel, NULL,
     "cancelMessageBatch", HTTP_PLAIN},
    {"GET", "/v1/messages/batches/{id}/results", KEY_SCOPE_BATCHES, message_batches_results, NULL,
     "streamMessageBatchResults", HTTP_PLAIN},
    {"POST", "/api/chat", KEY_SCOPE_INFER, ollama_post_chat, NULL, "ollamaChat", HTTP_LARGE_BODY},
    {"POST", "/api/generate", KEY_SCOPE_INFER, ollama_post_generate, NULL, "ollamaGenerate",
     HTTP_LARGE_BODY},
    {"POST", "/api/embed", KEY_SCOPE_INFER, ollama_post_embed, NULL, "ollamaEmbed",
     HTTP_LARGE_BODY},
    {"POST", "/api/embeddings", KEY_SCOPE_INFER, ollama_post_embeddings, NULL, "ollamaEmbeddings",
     HTTP_LARGE_BODY},
    {"GET", "/api/tags", KEY_SCOPE_ANY, ollama_get_tags, NULL, "ollamaTags", HTTP_PLAIN},
    {"GET", "/api/ps", KEY_SCOPE_ANY, ollama_get_ps, NULL, "ollamaPs", HTTP_PLAIN},
    {"POST", "/api/show", KEY_SCOPE_ANY, ollama_post_show, NULL, "ollamaShow", HTTP_PLAIN},
    {"GET", "/api/version", KEY_SCOPE_OPEN, ollama_get_version, NULL, "ollamaVersion", HTTP_QUICK},
    {"POST", "/api/create", KEY_SCOPE_ADMIN, ollama_unsupported, NULL, "ollamaCreate", HTTP_PLAIN},
    {"POST", "/api/pull", KEY_SCOPE_ADMIN, ollama_post_pull, NULL, "ollamaPull", HTTP_PLAIN},
    {"POST", "/api/copy", KEY_SCOPE_ADMIN, ollama_post_copy, NULL, "ollamaCopy", HTTP_PLAIN},
    {"DELETE", "/api/delete", KEY_SCOPE_ADMIN, ollama_delete, NULL, "ollamaDelete", HTTP_PLAIN},
    {"POST", "/api/push", KEY_SCOPE_ADMIN, ollama_unsupported, NULL, "ollamaPush", HTTP_PLAIN},
    {"POST", "/api/blobs/{digest}", KEY_SCOPE_ADMIN, ollama_unsupported, NULL, "ollamaBlob",
     HTTP_PLAIN},
    {"GET", "/api/status", KEY_SCOPE_ANY, ollama_get_status, NULL, "ollamaStatus", HTTP_PLAIN},
    {"POST", "/api/me", KEY_SCOPE_ADMIN, ollama_hosted, NULL, "ollamaMe", HTTP_PLAIN},
    {"POST", "/api/signout", KEY_SCOPE_ADMIN, ollama_hosted, NULL, "ollamaSignOut", HTTP_PLAIN},
    {"POST", "/api/web_search", KEY_SCOPE_ADMIN, ollama_hosted, NULL, "ollamaWebSearch",
     HTTP_PLAIN},
    {"POST", "/api/web_fetch", KEY_SCOPE_ADMIN, ollama_hosted, NULL, "ollamaWebFetch", HTTP_PLAIN},
    {"GET", "/v1/models", KEY_SCOPE_ANY, models_list, NULL, "listModels", HTTP_PLAIN},
    {"GET", "/v1/keys", KEY_SCOPE_ADMIN, keys_list, NULL, "listKeys", HTTP_PLAIN},
    {"POST", "/v1/keys", KEY_SCOPE_ADMIN, keys_create, NULL, "createKey", HTTP_PLAIN},
    {"DELETE", "/v1/keys/{id}", KEY_SCOPE_ADMIN, keys_revoke, NULL, "revokeKey", HTTP_PLAIN},
    {"GET", "/v1/audit", KEY_SCOPE_ADMIN, audit_list, NULL, "listAudit", HTTP_PLAIN},
    {"GET", "/v1/machine", KEY_SCOPE_METRICS, machine_get, NULL, "getMachine", HTTP_PLAIN},
    {"GET", "/v1/machine/workers", KEY_SCOPE_METRICS, machine_workers, NULL, "getMachineWorkers",
     HTTP_PLAIN},
    {"POST", "/v1/machine/models/{model}/load", KEY_SCOPE_ADMIN, models_load, NULL, "loadModel",
     HTTP_PLAIN},
    {"POST", "/v1/machine/models/{model}/unload", KEY_SCOPE_ADMIN, models_unload, NULL,
     "unloadModel", HTTP_PLAIN},
    {"GET", "/v1/models/{model...}", KEY_SCOPE_ANY, models_get, NULL, "retrieveModel", HTTP_PLAIN},
};
const size_t api_route_count = sizeof api_routes / sizeof *api_routes;

/* --- opening and closing --- */

static void request_done(void *context, const struct http_done *done) {
    struct api *api = context;
    metrics_count_http(&api->metrics, done);
    bool is_probe =
        done->route_index < api_route_count && (api_routes[done->route_index].kind == HTTP_QUICK);
    access_log(&api->access, done, is_probe, clock_monotonic_ns());
}

static void connection_refused(void *context, const struct http_refused *refused) {
    struct api *api = context;
    access_log_gate(&api->access, refused, clock_monotonic_ns());
}

static struct http_options http_options_of(struct api *api) {
    const struct api_options *options = &api->options;
    return (struct http_options){
        .host = options->host,
        .port = options->port,
        .tls = options->tls,
        .routes = api_routes,
        .route_count = api_route_count,
        .keys = options->keys,
        .origins = options->origins,
        .context = api,
        .alias = api_alias,
        .hint = api_hint,
        .is_lenient = api_is_lenient,
        .error_form = api_error_form,
        .hold = options->copy ? copies_hold : NULL,
        .done = request_done,
        .refused = connection_refused,
        .connections_max = options->connections_max,
        .connections_per_peer_max = options->connections_per_peer_max,
        .worker_threads = options->worker_threads,
        .ping_ms = options->ping_ms,
        .body_bytes_max = API_BODY_BYTES_MAX,
        .body_memory_bytes_max = options->body_memory_bytes_max,
        .answer_memory_bytes_max = options->answer_memory_bytes_max,
        .upload_bytes_max = api->options.file_bytes_max + MULTIPART_ROOM_BYTES,
    };
}

enum err api_open(struct api **ret_api, const struct api_options *options, uint16_t *ret_port,
                  struct error *error) {
    struct api *api = mem_new(1, sizeof *api);
    api->options = *options;
    api->started_unix_s = clock_unix_s();
    if (!api->options.file_bytes_max) api->options.file_bytes_max = FILE_BYTES_MAX;
    if (!api->options.rules.lines_max) api->options.rules = batch_rules_default();
    pthread_mutex_init(&api->lock, NULL);
    large_init(&api->large);
    damaged_init(&api->damaged);
    access_init(&api->access, options->no_access_log, options->access_log_leaves_out);
    api->pulls = pulls_open();
    struct http_options http = http_options_of(api);
    enum err err = followers_open(api, error);
    if (err == OK) err = preflights_open(api, error);
    if (err == OK) err = studio_jobs_open(api, error);
    if (err == OK)
        err = answers_open(&api->answers, api->options.store, api->options.runner, error);
    if (err == OK) err = http_open(&api->server, &http, ret_port, error);
    if (err == OK) err = http_start(api->server, error);
    if (err != OK) {
        followers_stop(api);
        preflights_stop(api);
        studio_jobs_stop(api);
        pulls_stop(api->pulls);
        http_close(api->server);
        followers_close(api);
        preflights_close(api);
        studio_jobs_close(api);
        pulls_close(api->pulls);
        answers_close(api->answers);
        large_release(&api->large);
        damaged_release(&api->damaged);
        pthread_mutex_destroy(&api->lock);
        access_release(&api->access);
        free(api);
        return err;
    }
    *ret_api = api;
    return OK;
}

void api_drain(struct api *api) {
    atomic_store(&api->draining, true);
}

static bool is_running(struct api *api) {
    pthread_mutex_lock(&api->lock);
    bool running = api->running != NULL;
    pthread_mutex_unlock(&api->lock);
    return running;
}

void api_close(struct api *api, int64_t deadline_ms) {
    if (!api) return;
    api_drain(api);
    http_stop_listening(api->server);
    int64_t until_ns = clock_monotonic_ns() + deadline_ms * 1000000;
    while (is_running(api) && clock_monotonic_ns() < until_ns) clock_sleep_ms(10);
    inference_cancel_all(api);
    followers_stop(api);
    preflights_stop(api);
    studio_jobs_stop(api);
    pulls_stop(api->pulls);
    http_close(api->server);
    followers_close(api);
    preflights_close(api);
    studio_jobs_close(api);
    pulls_close(api->pulls);
    answers_close(api->answers);
    large_release(&api->large);
    damaged_release(&api->damaged);
    pthread_mutex_destroy(&api->lock);
    access_release(&api->access);
    free(api);
}

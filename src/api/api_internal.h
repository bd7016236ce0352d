/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* api_internal: what the handlers of api/ share. For this folder only.
 *
 * Thread: `options` is read-only after api_open, the rest is atomic. */

#include "api/api.h"
#include "api/errors.h"
#include "api/fields.h"
#include "api/metrics.h"

#include <pthread.h>
#include <stdatomic.h>

#define API_BODY_BYTES_MAX ((uint64_t)32 << 20)

struct inference;
struct followers;
struct preflights;

struct api {
    struct api_options options;
    struct http_server *server;
    atomic_bool draining;
    int64_t started_unix_s;
    struct metrics metrics;
    pthread_mutex_t lock;      /* guards running */
    struct inference *running; /* requests with the runner, for api_close */
    struct followers *followers;
    struct preflights *preflights;
};

/* The table of all routes; default deny. */
extern const struct http_route api_routes[];
extern const size_t api_route_count;

/* Whether the caller may know of what belongs to `owner`: its own, or anything for an admin. What
 * it may not see is answered as what is not there. */
bool api_may_see(const struct http_request *request, const char *owner);
/* For lists: the owner whose rows the caller sees; NULL: everybody's. */
const char *api_sees_owner(const struct http_request *request);

/* True, and answered with 503, when new work is refused. */
bool api_refuses_new_work(struct api *api, struct http_request *request);

/* Answers 200 with what `buf` holds, and releases it. */
void api_answer_json(struct http_request *request, struct buf *buf);

/* The body as a JSON object; false, and answered with 400, when it is not one. The caller owns
 * *ret_body. */
bool api_read_object(struct http_request *request, json_t **ret_body);

/* The query's `limit`; false, and answered with 400, when it is outside 1..`most`. */
bool api_read_limit(struct http_request *request, size_t otherwise, size_t most, size_t *ret_limit);

/* The text of a str as a C string in the request's memory; "" when it does not fit. */
const char *api_text(struct http_request *request, struct str text);

/* files.c */
#define API_FILES_LIST_MAX 10000
void files_list(void *context, struct http_request *request);
void files_get(void *context, struct http_request *request);
void files_content(void *context, struct http_request *request);
void files_delete(void *context, struct http_request *request);
void files_write_json(struct buf *buf, const struct store_file *file);
/* files_create.c */
#define API_BATCH_FILE_EXPIRES_S 2592000 /* 30 days, as the live service */
#define API_EXPIRY_S_MIN 3600
#define API_EXPIRY_S_MAX 2592000
extern const char *const api_file_purposes[]; /* NULL at the end */
extern const struct http_upload files_upload;
/* False, and answered with 413, when a file of that purpose may not have so many bytes. */
bool api_file_fits(const struct api *api, struct http_request *request, bool is_batch,
                   uint64_t bytes);
void files_create(void *context, struct http_request *request);
/* batches.c */
/* The batch of the path's first parameter, if the caller may see it: the caller releases it. Else
 * it is answered as one that is not there. Every route on a batch starts with this. */
bool batches_find(struct api *api, struct http_request *request, struct store_batch *ret_batch);
#define API_BATCHES_LIST_MAX 100
#define API_RESULTS_LIST_MAX 1000000
#define API_BATCHES_LIST_DEFAULT 20
void batches_create(void *context, struct http_request *request);
void batches_list(void *context, struct http_request *request);
void batches_get(void *context, struct http_request *request);
void batches_cancel(void *context, struct http_request *request);
void batches_pause(void *context, struct http_request *request);
void batches_resume(void *context, struct http_request *request);
void batches_retry(void *context, struct http_request *request);
/* results.c */
void results_get(void *context, struct http_request *request);
/* follow.c: clients that wait for the lines of a running batch, on a thread of its own. */
enum err followers_open(struct api *api, struct error *error) MUST_CHECK;
void followers_stop(struct api *api); /* ends their streams, and takes no more */
void followers_close(struct api *api);
/* Takes the request over, or answers it with 429 when there are too many. */
void followers_add(struct api *api, struct http_request *request, uint64_t after, uint64_t lines);
/* preflight.c: what running a file would take, one question at a time on a thread of its own. */
extern const struct fields preflight_fields;
enum err preflights_open(struct api *api, struct error *error) MUST_CHECK;
void preflights_stop(struct api *api); /* answers those that wait with 503, and takes no more */
void preflights_close(struct api *api);
void preflight_create(void *context, struct http_request *request);
/* inference.c */
void inference_chat(void *context, struct http_request *request);
void inference_completions(void *context, struct http_request *request);
void inference_embeddings(void *context, struct http_request *request);
void inference_unsupported(void *context, struct http_request *request);
void inference_cancel_all(struct api *api);
/* models.c */
void models_list(void *context, struct http_request *request);
void models_get(void *context, struct http_request *request);
/* health.c */
void health_live(void *context, struct http_request *request);
void health_ready(void *context, struct http_request *request);
void health_version(void *context, struct http_request *request);
void health_metrics(void *context, struct http_request *request);

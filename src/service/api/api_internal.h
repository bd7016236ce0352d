/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* api_internal: the state, the table of routes and the functions that the handlers of api/ share.
 * For this folder only.
 *
 * Thread: `options` is read-only after api_open; `lock` guards `running`; the rest is atomic or has
 *     a lock of its own.
 * Memory: one struct api, from api_open to api_close. */

#include "answers/large.h"
#include "api/access.h"
#include "api/api.h"
#include "api/damaged.h"
#include "api/errors.h"
#include "api/fields.h"
#include "api/metrics.h"
#include "json/json.h"

#include <pthread.h>
#include <stdatomic.h>

#define API_BODY_BYTES_MAX ((uint64_t)32 << 20)

struct inference;
struct followers;
struct preflight_queue;
struct answers;
struct studio_jobs;
struct pulls;
struct answers_state;

struct api {
    struct api_options options;
    struct http_server *server;
    atomic_bool draining;
    int64_t started_unix_s;
    struct metrics metrics;
    struct access access;
    struct damaged damaged;
    pthread_mutex_t lock;      /* guards running */
    struct inference *running; /* requests that the runner has, for api_close */
    struct followers *followers;
    struct preflight_queue *preflights;
    struct answers *answers; /* indexes of batches' answers */
    struct large large;      /* the turn of those who read large lines */
    struct studio_jobs *studio_jobs;
    struct pulls *pulls;
};

/* The table of all routes. A target without a row does not exist. */
extern const struct http_route api_routes[];
extern const size_t api_route_count;

/* --- call.c: what the handlers share --- */

/* True if the caller may see objects of `owner`: its own, or all for an admin. An object that it
 * may not see is answered like a missing one. */
bool api_may_see(const struct http_request *request, const char *owner);
/* The owner whose rows a list shows to the caller; NULL: all owners. */
const char *api_sees_owner(const struct http_request *request);

/* True, and answered with 503, if the server refuses new work. */
bool api_refuses_new_work(struct api *api, struct http_request *request);

/* True if the client of the request `context` has gone. */
bool api_is_gone(void *context);

/* Answers 200 with the contents of `buf`, and releases it. */
void api_answer_json(struct http_request *request, struct buf *buf);

/* What the tree of a body may take, in times its text, and for short ones in bytes. The text itself
 * and the buffers around it are the rest of HTTP_PLAIN_BODY_COST. */
#define API_TREE_COST 6
#define API_TREE_BYTES_LEAST ((size_t)64 << 10)
size_t api_tree_room(size_t text_bytes);

/* Reads the body as a JSON object, which the caller owns. False, and answered with 400, if it is
 * none or too complex, with 503 without memory. */
bool api_read_object(struct http_request *request, json_t **ret_body);
/* Finds the object that the body `text` is, as a span, without a tree of a long one. False, and
 * answered with 400, if it is none. */
bool api_find_object(struct http_request *request, struct str text, struct str *ret_object);
/* Answers a body that json_read_within did not read. */
void api_fail_json(struct http_request *request, enum err err, const struct error *error);

/* Reads the query's `limit`. False, and answered with 400, if it is outside 1..`most`. */
bool api_read_limit(struct http_request *request, size_t otherwise, size_t most, size_t *ret_limit);

/* A copy of a str as a C string in the request's memory; "" if it does not fit. */
const char *api_text(struct http_request *request, struct str text);

/* --- the other files --- */

/* metrics_cards.c: appends the metrics of engines on cards, and of the cards. */
void metrics_write_cards(struct api *api, const struct worker_status *statuses, size_t count,
                         struct buf *buf);

/* metrics_nodes.c: appends the metrics of nodes on other machines, and of the queue between. */
void metrics_write_nodes(struct api *api, const struct runner_progress *progress, struct buf *buf);

/* metrics_timings.c: appends how long requests took and how large they were. */
void metrics_write_timings(struct api *api, const struct worker_status *statuses, size_t count,
                           struct buf *buf);

/* metrics_workers.c: appends the metrics of engines and upstreams. Every worker counts as an
 * engine; those in front of a foreign server are upstreams as well. */
void metrics_write_workers(struct api *api, struct buf *buf);

/* audit.c: the trail of who changed what (store/audit.h). */
/* Adds an entry before the change is made. False, and answered, if it cannot be kept: then nothing
 * may be changed. */
bool api_audit(struct api *api, struct http_request *request, const char *action,
               const char *subject);
/* The change that the last entry announced was not made. */
void api_audit_failed(struct api *api, const struct http_request *request, const char *action,
                      const char *subject, const struct error *reason);
void audit_list(void *context, struct http_request *request);
/* files.c */
#define API_FILES_LIST_MAX 10000
void files_list(void *context, struct http_request *request);
void files_get(void *context, struct http_request *request);
void files_content(void *context, struct http_request *request);
void files_delete(void *context, struct http_request *request);
void files_write_json(struct buf *buf, const struct store_file *file);
/* files_create.c */
/* Answers 413: the owner's quota of stored bytes does not allow the file. */
void api_fail_quota(struct http_request *request, const char *sentence);
/* The last name of a path of any system; "upload" where no name is left. */
struct str files_name_of(struct str path);
/* False, and answered with 400, for a name with a control character. */
bool api_check_filename(struct http_request *request, struct str filename);
#define API_BATCH_FILE_EXPIRES_S 2592000 /* 30 days, as in OpenAI's service */
#define API_EXPIRY_S_MIN 3600
#define API_EXPIRY_S_MAX 2592000
extern const char *const api_file_purposes[]; /* NULL at the end */
extern const struct http_upload files_upload;
/* False, and answered with 413, if `bytes` are too many for a file of that purpose. */
bool api_file_fits(const struct api *api, struct http_request *request, bool is_batch,
                   uint64_t bytes);
void files_create(void *context, struct http_request *request);
/* batches.c */
/* Reads the batch of the path's first parameter, which the calling function releases. False, and
 * answered with 404, if it does not exist or belongs to another owner. Every route on a batch
 * starts with this. */
bool batches_find(struct api *api, struct http_request *request, struct store_batch *ret_batch);
#define API_BATCHES_LIST_MAX 100
#define API_RESULTS_LIST_MAX 1000000
#define API_BATCHES_LIST_DEFAULT 20
/* Takes the Idempotency-Key header in place of the body's field. False, and answered with 400, if
 * it is too long. */
struct batch_parameters;
bool batches_read_key(struct http_request *request, struct batch_parameters *parameters);
/* Fills in the owner, with the limits of its key. */
void batches_read_caller(struct http_request *request, struct batch_parameters *parameters);
void batches_create(void *context, struct http_request *request);
void batches_list(void *context, struct http_request *request);
void batches_get(void *context, struct http_request *request);
void batches_cancel(void *context, struct http_request *request);
void batches_delete(void *context, struct http_request *request);
void batches_pause(void *context, struct http_request *request);
void batches_manifest(void *context, struct http_request *request);
void batches_manifest_salts(void *context, struct http_request *request);
void batches_resume(void *context, struct http_request *request);
void batches_retry(void *context, struct http_request *request);
/* erasures.c */
extern const struct fields erasures_fields;
void erasures_create(void *context, struct http_request *request);
void erasures_list(void *context, struct http_request *request);
/* results.c */
void results_get(void *context, struct http_request *request);
/* answers.c */
void answers_fields(void *context, struct http_request *request);
void answers_list(void *context, struct http_request *request);
void answers_line(void *context, struct http_request *request);
/* Decodes %XX a second time, because a name or a value may have a colon or a comma. False if the
 * encoding is broken. */
bool answers_decode(struct arena *arena, struct str text, struct str *ret_text);
/* answers_csv.c: answers with a page of the query as CSV, with the columns that the request names.
 * False, and answered with 400, if it names too many. */
struct answers_index;
struct answers_query;
void answers_csv(struct http_request *request, struct answers_index *index,
                 struct answers_query *query);
/* Appends "indexed":N,"lines":M: results that are rows of the index, and durable results. */
void answers_write_counts(struct buf *buf, const struct answers_state *state,
                          const struct store_batch *batch);
/* follow.c: the clients that wait for lines of running batches, on a thread of its own. */
enum err followers_open(struct api *api, struct error *error) MUST_CHECK;
void followers_stop(struct api *api); /* ends their streams and takes no more clients */
void followers_close(struct api *api);
/* Takes the request over, or answers it with 429 if there are too many followers. */
void followers_add(struct api *api, struct http_request *request, uint64_t after, uint64_t lines);
/* preflight.c: questions what running a file would take, one at a time on a thread of its own. */
extern const struct fields preflight_fields;
enum err preflights_open(struct api *api, struct error *error) MUST_CHECK;
void preflights_stop(struct api *api); /* answers waiting ones with 503 and takes no more */
void preflights_close(struct api *api);
void preflight_create(void *context, struct http_request *request);
/* studio.c: batches on their way to Label Studio and back, each on a thread of its own. */
extern const struct fields studio_fields;
enum err studio_jobs_open(struct api *api, struct error *error) MUST_CHECK;
void studio_jobs_stop(struct api *api); /* ends all jobs and takes no more */
void studio_jobs_close(struct api *api);
void studio_get(void *context, struct http_request *request);
void studio_start(void *context, struct http_request *request);
/* judgements.c: the opinions of curators on the lines of a batch. */
/* The curator of a caller that names none. */
const char *judgements_curator(const struct http_request *request);
void judgements_create(void *context, struct http_request *request);
void judgements_list(void *context, struct http_request *request);
void judgements_summary(void *context, struct http_request *request);
void judgements_export(void *context, struct http_request *request);
/* review_items.c: the queues from which curators judge. */
void cards_list(void *context, struct http_request *request);
void cards_schema(void *context, struct http_request *request);
/* inference.c */
void inference_chat(void *context, struct http_request *request);
void inference_completions(void *context, struct http_request *request);
void inference_embeddings(void *context, struct http_request *request);
void inference_score(void *context, struct http_request *request);
void inference_rerank(void *context, struct http_request *request);
void inference_classify(void *context, struct http_request *request);
void inference_pooling(void *context, struct http_request *request);
void inference_decisions(void *context, struct http_request *request);
void inference_systemone(void *context, struct http_request *request);
void inference_tokenize(void *context, struct http_request *request);
void inference_detokenize(void *context, struct http_request *request);
void inference_tokenizer_info(void *context, struct http_request *request);
void inference_unsupported(void *context, struct http_request *request);
void inference_cancel_all(struct api *api);
/* dialects.c: Anthropic's Messages */
void messages_post(void *context, struct http_request *request);
void messages_post_count(void *context, struct http_request *request);
void responses_post(void *context, struct http_request *request);
void responses_post_count(void *context, struct http_request *request);
/* Requests for a response that was made before: none is kept. */
void responses_kept(void *context, struct http_request *request);
/* ollama.c: Ollama's own API */
void ollama_post_chat(void *context, struct http_request *request);
void ollama_post_generate(void *context, struct http_request *request);
void ollama_post_embed(void *context, struct http_request *request);
void ollama_post_embeddings(void *context, struct http_request *request);
void ollama_post_show(void *context, struct http_request *request);
void ollama_get_tags(void *context, struct http_request *request);
void ollama_get_ps(void *context, struct http_request *request);
void ollama_get_version(void *context, struct http_request *request);
void ollama_get_status(void *context, struct http_request *request);
void ollama_unsupported(void *context, struct http_request *request);
void ollama_hosted(void *context, struct http_request *request);
/* ollama_names.c */
void ollama_post_copy(void *context, struct http_request *request);
void ollama_delete(void *context, struct http_request *request);
/* pulls.c */
void ollama_post_pull(void *context, struct http_request *request);
/* foreign_routes.c: appends to the sentence about an unknown URL what the client may have meant;
 * nothing if it cannot be guessed. */
void api_hint(const char *method, struct str path, struct buf *sentence);
/* The target as this server has it, for one of Azure's: https://HOST/openai is its base URL, with
 * the name of a deployment where a request names a model:
 * /openai/deployments/NAME/chat/completions. The name becomes the query's `deployment`. False for
 * any other target. */
bool api_alias(struct str target, struct buf *ret_target);
/* As http_options has them: the paths and error bodies of other APIs (dialects/dialect.h). */
bool api_is_lenient(struct str target);
bool api_error_form(struct str target, int status, struct str error, struct buf *ret_body);
/* models.c */
/* Answers 404 for a model that nobody serves; `whose` is a phrase behind the name, or "". */
void api_fail_model(struct api *api, struct http_request *request, struct str model,
                    const char *whose);
void models_list(void *context, struct http_request *request);
void models_get(void *context, struct http_request *request);
void models_load(void *context, struct http_request *request);
void models_unload(void *context, struct http_request *request);
/* keys.c */
extern const struct fields keys_fields;
void keys_list(void *context, struct http_request *request);
void keys_create(void *context, struct http_request *request);
void keys_revoke(void *context, struct http_request *request);
/* machine.c */
void machine_get(void *context, struct http_request *request);
void machine_workers(void *context, struct http_request *request);
/* health.c */
void pages_index(void *context, struct http_request *request);
void pages_get(void *context, struct http_request *request);
void health_live(void *context, struct http_request *request);
void health_ready(void *context, struct http_request *request);
void health_version(void *context, struct http_request *request);
void health_metrics(void *context, struct http_request *request);

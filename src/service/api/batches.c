/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/mem.h"
#include "batch/create.h"
#include "batch/object.h"
#include "batch/retry.h"
#include "batch/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SEARCHED_BYTES_MAX 200 /* limit for the text of a search */

static void answer_batch(const struct api *api, struct http_request *request,
                         struct store_batch *batch) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    batch_write_json(&body, batch, api->options.prices);
    store_batch_release(batch);
    api_answer_json(request, &body);
}

static void fail(struct http_request *request, enum err err, struct error *error) {
    if (err == ERR_NOT_FOUND && !error->is_system)
        err_set(error, err, "No batch found with id '%s'.",
                api_text(request, http_request_param(request, 0)));
    api_fail_err(request, err, error, NULL);
}

bool batches_read_key(struct http_request *request, struct batch_parameters *parameters) {
    struct str key = http_request_header(request, "idempotency-key");
    if (key.bytes == 0) return true;
    if (key.bytes >= sizeof parameters->idempotency_key) {
        api_fail_param(request, "string_above_max_length", "Idempotency-Key",
                       "The Idempotency-Key header is longer than %zu bytes.",
                       sizeof parameters->idempotency_key - 1);
        return false;
    }
    memcpy(parameters->idempotency_key, key.at, key.bytes);
    parameters->idempotency_key[key.bytes] = '\0';
    return true;
}

void batches_read_caller(struct http_request *request, struct batch_parameters *parameters) {
    const struct key_caller *caller = http_request_caller(request);
    memcpy(parameters->owner, caller->owner, sizeof parameters->owner);
    parameters->batches_max = caller->batches_max;
    parameters->queued_tokens_max = caller->queued_tokens_max;
    parameters->stored_bytes_max = caller->stored_bytes_max;
}

/* Checks a batch's own webhook: the server needs a secret to sign with, and the URL an address on
 * the open internet. */
static bool check_webhook(struct api *api, struct http_request *request,
                          const struct batch_parameters *parameters) {
    struct error error;
    if (!parameters->webhook_url) return true;
    enum err err = api->options.notify
                       ? notify_check_url(api->options.notify, parameters->webhook_url, &error)
                       : err_set(&error, ERR_INVALID, "this server has no webhook secret");
    if (err == OK) return true;
    api_fail_param(request, "invalid_value", "webhook_url",
                   "Invalid value for 'webhook_url': '%.200s': %s.", parameters->webhook_url,
                   error.text);
    return false;
}

/* Answers with a batch that is stored. It must not answer with an error any more: a client that
 * tried again would make a second batch. */
static void answer_created(struct api *api, struct http_request *request, struct store_batch *batch,
                           bool existing) {
    if (existing)
        runner_batch_overlay(api->options.runner, batch);
    else
        runner_kick(api->options.runner, batch->id);
    answer_batch(api, request, batch);
}

static void create(struct api *api, struct http_request *request,
                   const struct batch_parameters *parameters) {
    struct store_batch batch;
    struct error error;
    bool existing = false;
    enum err err =
        batch_create(api->options.store, parameters, clock_unix_s(), &batch, &existing, &error);
    if (err != OK) {
        api_fail_err(request, err, &error, NULL);
        return;
    }
    answer_created(api, request, &batch, existing);
}

void batches_create(void *context, struct http_request *request) {
    struct api *api = context;
    struct batch_parameters parameters;
    struct refusal refusal;
    json_t *body;
    if (api_refuses_new_work(api, request) || !api_read_object(request, &body)) return;
    if (!batch_parameters_read(&parameters, body, &api->options.rules, &refusal)) {
        api_refuse(request, &refusal);
    } else {
        batches_read_caller(request, &parameters);
        if (check_webhook(api, request, &parameters) && batches_read_key(request, &parameters))
            create(api, request, &parameters);
        batch_parameters_release(&parameters);
    }
    json_decref(body);
}

static void write_id(struct buf *buf, const char *key, const struct store_batch *batch) {
    buf_printf(buf, ",\"%s\":", key);
    if (batch)
        json_write_string(buf, str_from(batch->id));
    else
        buf_add_text(buf, "null");
}

/* Reads the states and the text that a list is asked for. False, and answered with 400, for a state
 * that no batch has or a text that is too long. */
static bool read_wish(struct http_request *request, struct store_batch_wish *wish) {
    struct str text;
    wish->text = http_request_query(request, "q");
    for (size_t i = 0; (text = http_request_query_nth(request, "status", i)).at; i++) {
        uint32_t status = 0;
        while (status < BATCH_STATUS_COUNT &&
               !str_is(text, batch_status_name((enum batch_status)status)))
            status++;
        if (status == BATCH_STATUS_COUNT) {
            api_fail_param(request, "invalid_value", "status",
                           "Invalid value for 'status': '%.100s' is no status of a batch.",
                           api_text(request, text));
            return false;
        }
        wish->statuses |= 1u << status;
    }
    if (wish->text.bytes <= SEARCHED_BYTES_MAX) return true;
    api_fail_param(request, "string_above_max_length", "q",
                   "Invalid 'q': it has %zu bytes, and at most %d are allowed.", wish->text.bytes,
                   SEARCHED_BYTES_MAX);
    return false;
}

/* A page of the list of batches. */
struct listed {
    struct store_batch *batches;
    size_t count;
    bool has_more;
    bool is_search;
    char last[STORE_ID_BYTES]; /* the last batch that a search has looked at */
};

/* Answers with a page. A search also says after which batch it goes on: it may have found less than
 * the limit. */
static void answer_list(struct api *api, struct http_request *request, struct listed *listed) {
    struct store_batch *batches = listed->batches;
    size_t count = listed->count;
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0) buf_add_byte(&body, ',');
        runner_batch_overlay(api->options.runner, &batches[i]);
        batch_write_json(&body, &batches[i], api->options.prices);
    }
    buf_add_byte(&body, ']');
    write_id(&body, "first_id", count ? &batches[0] : NULL);
    write_id(&body, "last_id", count ? &batches[count - 1] : NULL);
    if (listed->is_search) {
        buf_add_text(&body, ",\"after\":");
        if (listed->has_more)
            json_write_string(&body, str_from(listed->last));
        else
            buf_add_text(&body, "null");
    }
    buf_printf(&body, ",\"has_more\":%s}", listed->has_more ? "true" : "false");
    for (size_t i = 0; i < count; i++) store_batch_release(&batches[i]);
    api_answer_json(request, &body);
}

void batches_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct str after = http_request_query(request, "after");
    struct store_batch_wish wish = {.owner = api_sees_owner(request)};
    struct listed listed = {.count = 0};
    struct error error;
    size_t limit;
    if (!api_read_limit(request, API_BATCHES_LIST_DEFAULT, API_BATCHES_LIST_MAX, &limit) ||
        !read_wish(request, &wish))
        return;
    listed.batches = mem_new(limit + 1, sizeof *listed.batches);
    listed.is_search = wish.statuses || wish.text.bytes > 0;
    enum err err = listed.is_search
                       ? store_batch_find(api->options.store, &wish, after, limit, listed.batches,
                                          &listed.count, &listed.has_more, listed.last, &error)
                       : store_batch_list(api->options.store, wish.owner, after, limit,
                                          listed.batches, &listed.count, &listed.has_more, &error);
    if (err == OK)
        answer_list(api, request, &listed);
    else if (err == ERR_INVALID)
        api_fail_param(request, "invalid_value", "after",
                       "Invalid value for 'after': no batch found with id '%s'.",
                       api_text(request, after));
    else
        api_fail_err(request, err, &error, NULL);
    free(listed.batches);
}

bool batches_find(struct api *api, struct http_request *request, struct store_batch *ret_batch) {
    struct error error;
    enum err err =
        runner_batch_get(api->options.runner, http_request_param(request, 0), ret_batch, &error);
    if (err == OK && !api_may_see(request, ret_batch->owner)) {
        store_batch_release(ret_batch);
        err = err_set(&error, ERR_NOT_FOUND, "The batch is another owner's.");
    }
    if (err != OK) fail(request, err, &error);
    return err == OK;
}

void batches_get(void *context, struct http_request *request) {
    struct store_batch batch;
    if (batches_find(context, request, &batch)) answer_batch(context, request, &batch);
}

/* Clients send a Content-Type of JSON and no body, so the body is not read. */
void batches_cancel(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct error error;
    char id[STORE_ID_BYTES];
    if (!batches_find(api, request, &batch)) return;
    memcpy(id, batch.id, sizeof id);
    store_batch_release(&batch);
    if (!api_audit(api, request, "batch.cancel", id)) return;
    enum err err = runner_batch_cancel(api->options.runner, str_from(id), &batch, &error);
    if (err == OK) {
        answer_batch(api, request, &batch);
    } else {
        api_audit_failed(api, request, "batch.cancel", id, &error);
        fail(request, err, &error);
    }
}

static void answer_deleted(struct http_request *request, const char *id,
                           const struct store_freed *freed) {
    struct buf body;
    buf_init(&body, 4096);
    buf_printf(&body,
               "{\"id\":\"%s\",\"object\":\"batch\",\"deleted\":true,\"quern\":{\"files\":%" PRIu64
               ",\"bytes\":%" PRIu64 ",\"judgements\":%" PRIu64 "}}",
               id, freed->files, freed->bytes, freed->judgements);
    api_answer_json(request, &body);
}

/* A batch that was deleted before is answered like one that never was. */
void batches_delete(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct store_freed freed;
    struct error error;
    if (!batches_find(api, request, &batch)) return;
    if (!api_audit(api, request, "batch.delete", batch.id)) {
        store_batch_release(&batch);
        return;
    }
    enum err err = runner_batch_delete(api->options.runner, str_from(batch.id), &freed, &error);
    if (err == OK) {
        answer_deleted(request, batch.id, &freed);
    } else {
        api_audit_failed(api, request, "batch.delete", batch.id, &error);
        fail(request, err, &error);
    }
    store_batch_release(&batch);
}

/* The body chooses lines and changes parameters; it may be absent. */
static void retry(struct api *api, struct http_request *request, const json_t *body,
                  struct store_batch *original) {
    struct batch_retry retry;
    struct refusal refusal;
    struct store_batch batch;
    struct error error;
    bool existing = false;
    if (!batch_retry_read(&retry, original, body, &api->options.rules, &refusal)) {
        api_refuse(request, &refusal);
        return;
    }
    batches_read_caller(request, &retry.parameters);
    if (batches_read_key(request, &retry.parameters) &&
        check_webhook(api, request, &retry.parameters)) {
        enum err err = batch_retry_create(api->options.store, original, &retry, clock_unix_s(),
                                          &batch, &existing, &error);
        if (err != OK)
            api_fail_err(request, err, &error, NULL);
        else
            answer_created(api, request, &batch, existing);
    }
    batch_retry_release(&retry);
}

void batches_retry(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch original;
    json_t *body = NULL;
    if (api_refuses_new_work(api, request)) return;
    if (str_trim(http_request_body(request)).bytes > 0 && !api_read_object(request, &body)) return;
    if (batches_find(api, request, &original)) {
        retry(api, request, body, &original);
        store_batch_release(&original);
    }
    json_decref(body);
}

static void set_paused(struct api *api, struct http_request *request, bool pause) {
    struct store_batch batch;
    struct error error;
    if (!batches_find(api, request, &batch)) return;
    store_batch_release(&batch);
    enum err err = runner_batch_pause(api->options.runner, http_request_param(request, 0), pause,
                                      &batch, &error);
    if (err != OK)
        fail(request, err, &error);
    else
        answer_batch(api, request, &batch);
}

void batches_pause(void *context, struct http_request *request) {
    set_paused(context, request, true);
}

void batches_resume(void *context, struct http_request *request) {
    set_paused(context, request, false);
}

typedef enum err (*proof_fn)(void *context, const struct store_batch *batch, struct buf *out,
                             struct error *error);

static void answer_proof(struct api *api, struct http_request *request, proof_fn write) {
    struct store_batch batch;
    struct buf body;
    struct error error;
    if (!batches_find(api, request, &batch)) return;
    buf_init(&body, BUF_UNLIMITED);
    enum err err = write ? write(api->options.manifest_context, &batch, &body, &error)
                         : err_set(&error, ERR_UNAVAILABLE, "This server makes no manifests.");
    store_batch_release(&batch);
    if (err == OK) {
        api_answer_json(request, &body);
        return;
    }
    buf_release(&body);
    api_fail_err(request, err, &error, NULL);
}

/* What the batch was made of, signed; its bytes are the same each time. */
void batches_manifest(void *context, struct http_request *request) {
    struct api *api = context;
    answer_proof(api, request, api->options.manifest);
}

void batches_manifest_salts(void *context, struct http_request *request) {
    struct api *api = context;
    answer_proof(api, request, api->options.manifest_salts);
}

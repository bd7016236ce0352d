/* SPDX-License-Identifier: Apache-2.0 */
#include "api/message_batches.h"

#include "api/api_internal.h"
#include "base/clock.h"
#include "base/mem.h"
#include "batch/create.h"
#include "batch/idset.h"
#include "batch/message_batch.h"
#include "dialects/message_requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define WINDOW_S 86400
#define ID_BYTES (MESSAGE_CUSTOM_ID_BYTES_MAX + 1)
#define BASE_BYTES 320

/* A body while it arrives. */
struct upload {
    struct api *api;
    struct message_requests reader;
    struct store_spool *spool; /* open until the batch is made */
    struct buf pending;        /* lines that are not in the spool yet */
    struct idset ids;
    struct buf id_texts; /* the custom_ids, ID_BYTES each */
    struct sha256 hash;  /* sum of the lines, for an idempotency key */
    uint64_t bytes;      /* bytes of the lines */
    uint64_t bytes_max;
    bool is_quota; /* bytes_max is what the owner may still store */
    enum err err;  /* a failure of the machine */
    struct error error;
};

/* --- the body --- */

static bool has_same_id(void *context, uint32_t number) {
    const struct upload *upload = context;
    const char *latest = upload->id_texts.at + upload->id_texts.bytes - ID_BYTES;
    return strcmp(upload->id_texts.at + (size_t)number * ID_BYTES, latest) == 0;
}

static bool check_id(struct upload *upload, const struct message_request *request,
                     struct refusal *refusal) {
    char param[REFUSAL_PARAM_BYTES];
    uint32_t first;
    buf_add(&upload->id_texts, request->custom_id, ID_BYTES);
    if (idset_add(&upload->ids, str_from(request->custom_id), (uint32_t)request->index, has_same_id,
                  upload, &first))
        return true;
    snprintf(param, sizeof param, "requests.%" PRIu64 ".custom_id", request->index);
    return refuse(refusal, "duplicate_custom_id", param,
                  "%s: '%s' is the custom_id of requests.%" PRIu32 " already", param,
                  request->custom_id, first);
}

static enum err write_pending(struct upload *upload) {
    struct buf *pending = &upload->pending;
    if (pending->bytes == 0) return OK;
    sha256_add(&upload->hash, pending->at, pending->bytes);
    enum err err = store_spool_write(upload->spool, pending->at, pending->bytes, &upload->error);
    buf_clear(pending);
    return err;
}

static bool check_bytes(struct upload *upload, struct refusal *refusal) {
    if (upload->bytes <= upload->bytes_max) return true;
    if (upload->is_quota)
        return refuse_status(refusal, 413, "storage_quota_exceeded", NULL,
                             "Storage quota exceeded: the requests are larger than the bytes that "
                             "are left. Delete batches first.");
    return refuse_status(refusal, 413, NULL, NULL,
                         "The requests are larger than the limit of %" PRIu64
                         " bytes for a file of a batch",
                         upload->bytes_max);
}

/* Writes the request as a line of a batch's input. Ends of lines between the values of `params`
 * become blanks; none is inside of a string. */
static bool take_request(void *context, const struct message_request *request,
                         struct refusal *refusal) {
    struct upload *upload = context;
    const struct batch_rules *rules = &upload->api->options.rules;
    struct buf *pending = &upload->pending;
    if (request->index >= rules->lines_max)
        return refuse(refusal, "invalid_value", "requests",
                      "requests: at most %" PRIu64 " requests are allowed in a batch here",
                      rules->lines_max);
    if (!check_id(upload, request, refusal)) return false;
    size_t from = pending->bytes;
    buf_printf(pending, "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"%s\",\"body\":",
               request->custom_id, endpoint_path(ENDPOINT_MESSAGES));
    size_t body = pending->bytes;
    buf_add_str(pending, request->params);
    for (char *at = pending->at + body; at < pending->at + pending->bytes; at++)
        if (*at == '\n' || *at == '\r') *at = ' ';
    buf_add_text(pending, "}\n");
    size_t bytes = pending->bytes - from;
    if (bytes > rules->line_bytes_max)
        return refuse(refusal, "invalid_value", "requests",
                      "requests.%" PRIu64
                      ": it takes %zu bytes as a line of a batch; at most %" PRIu64 " are allowed",
                      request->index, bytes, rules->line_bytes_max);
    upload->bytes += bytes;
    if (!check_bytes(upload, refusal)) return false;
    if (pending->bytes >= PIECE_BYTES) upload->err = write_pending(upload);
    return upload->err == OK;
}

static enum err read_limits(struct upload *upload, struct http_request *request) {
    const struct api_options *options = &upload->api->options;
    const struct key_caller *caller = http_request_caller(request);
    uint64_t used = 0, most = caller->stored_bytes_max;
    upload->bytes_max = options->file_bytes_max;
    if (options->batch_file_bytes_max && options->batch_file_bytes_max < upload->bytes_max)
        upload->bytes_max = options->batch_file_bytes_max;
    if (!most) return OK;
    enum err err =
        store_owner_bytes(options->store, caller->owner, clock_unix_s(), &used, &upload->error);
    uint64_t left = used < most ? most - used : 0;
    if (left < upload->bytes_max) {
        upload->bytes_max = left;
        upload->is_quota = true;
    }
    return err;
}

static void *upload_begin(void *context, struct http_request *request) {
    struct upload *upload = mem_new(1, sizeof *upload);
    upload->api = context;
    message_requests_init(&upload->reader, take_request, upload);
    idset_init(&upload->ids);
    sha256_init(&upload->hash);
    buf_init(&upload->pending, BUF_UNLIMITED);
    buf_init(&upload->id_texts, (size_t)ID_BYTES * (MESSAGE_REQUESTS_MAX + 1));
    if (api_refuses_new_work(upload->api, request)) return upload;
    enum err err = read_limits(upload, request);
    if (err == OK)
        err = store_spool_open(&upload->spool, upload->api->options.store, &upload->error);
    if (err != OK) api_fail_err(request, err, &upload->error, NULL);
    return upload;
}

static void upload_data(void *context, struct http_request *request, struct str bytes) {
    struct upload *upload = context;
    struct refusal refusal;
    if (message_requests_feed(&upload->reader, bytes, &refusal)) return;
    if (upload->err != OK)
        api_fail_err(request, upload->err, &upload->error, NULL);
    else
        api_refuse(request, &refusal);
}

static void upload_release(void *context) {
    struct upload *upload = context;
    store_spool_abort(upload->spool);
    message_requests_release(&upload->reader);
    idset_release(&upload->ids);
    buf_release(&upload->pending);
    buf_release(&upload->id_texts);
    free(upload);
}

const struct http_upload message_batches_upload = {.begin = upload_begin,
                                                   .data = upload_data,
                                                   .release = upload_release,
                                                   .is_plain = true,
                                                   .bytes_max = MESSAGE_BATCH_BYTES_MAX};

/* --- answers --- */

static bool is_host_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr(".-:[]_", c);
}

/* The scheme and the host by which the client has come, for links; empty if its Host is no plain
 * name. A proxy that ends TLS says so. */
static const char *read_base(const struct api *api, struct http_request *request,
                             char base[BASE_BYTES]) {
    struct str host = http_request_header(request, "host");
    struct str scheme = http_request_header(request, "x-forwarded-proto");
    base[0] = '\0';
    bool is_plain = host.bytes > 0 && host.bytes < BASE_BYTES - 16;
    for (size_t i = 0; i < host.bytes && is_plain; i++)
        is_plain = host.at[i] != '\0' && is_host_byte(host.at[i]);
    bool is_tls = api->options.tls || str_is(scheme, "https");
    if (is_plain) snprintf(base, BASE_BYTES, "http%s://%.*s", is_tls ? "s" : "", STR_ARGS(host));
    return base;
}

static void answer_batch(struct api *api, struct http_request *request, struct store_batch *batch) {
    char base[BASE_BYTES];
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    message_batch_write(&body, batch, read_base(api, request, base));
    store_batch_release(batch);
    api_answer_json(request, &body);
}

/* --- creating --- */

static void create(struct api *api, struct http_request *request, struct upload *upload,
                   struct batch_parameters *parameters) {
    struct store_file file = {.purpose = "batch", .filename = "message_batch.jsonl"};
    struct store_batch batch;
    struct error error;
    bool existing = true;
    int64_t now_unix_s = clock_unix_s();
    file.created_unix_s = now_unix_s;
    file.expires_unix_s = now_unix_s + API_BATCH_FILE_EXPIRES_S;
    file.owner_bytes_max = parameters->stored_bytes_max;
    enum err err = batch_find_existing(api->options.store, parameters, &batch, &error);
    if (err == ERR_NOT_FOUND) {
        struct store_spool *spool = upload->spool;
        upload->spool = NULL;
        err = batch_create_with_input(api->options.store, parameters, spool, &file, now_unix_s,
                                      &batch, &existing, &error);
    }
    if (err != OK) {
        api_fail_err(request, err, &error, NULL);
        return;
    }
    if (existing)
        runner_batch_overlay(api->options.runner, &batch);
    else
        runner_kick(api->options.runner, batch.id);
    answer_batch(api, request, &batch);
}

void message_batches_create(void *context, struct http_request *request) {
    struct api *api = context;
    struct upload *upload = http_request_upload(request);
    struct batch_parameters parameters = {
        .endpoint = ENDPOINT_MESSAGES, .completion_window = "24h", .window_s = WINDOW_S};
    struct refusal refusal;
    if (!message_requests_end(&upload->reader, &refusal)) {
        api_refuse(request, &refusal);
        return;
    }
    enum err err = write_pending(upload);
    if (err != OK) {
        api_fail_err(request, err, &upload->error, NULL);
        return;
    }
    sha256_end(&upload->hash, parameters.sha256);
    parameters.inline_requests = upload->reader.count;
    batches_read_caller(request, &parameters);
    if (!batches_read_key(request, &parameters)) return;
    atomic_fetch_add(&api->metrics.upload_bytes, upload->bytes);
    create(api, request, upload, &parameters);
}

/* --- the list --- */

/* Reads the id of a batch at which a page begins or ends. False, and answered with 400, for a text
 * that is none. */
static bool read_place(struct http_request *request, const char *name, char id[STORE_ID_BYTES]) {
    struct str text = http_request_query(request, name);
    id[0] = '\0';
    if (text.bytes == 0 || message_batch_read_id(text, id)) return true;
    api_fail_param(request, "invalid_value", name, "%s: there is no batch '%.100s' in the list",
                   name, api_text(request, text));
    return false;
}

static void add_id(struct buf *buf, const char *name, const struct store_batch *batch) {
    buf_printf(buf, ",\"%s\":", name);
    if (!batch) {
        buf_add_text(buf, "null");
        return;
    }
    buf_add_byte(buf, '"');
    message_batch_add_id(buf, batch->id);
    buf_add_byte(buf, '"');
}

static void answer_list(struct api *api, struct http_request *request, struct store_batch *batches,
                        size_t count, bool has_more) {
    char base[BASE_BYTES];
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"data\":[");
    read_base(api, request, base);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) buf_add_byte(&body, ',');
        runner_batch_overlay(api->options.runner, &batches[i]);
        message_batch_write(&body, &batches[i], base);
    }
    buf_printf(&body, "],\"has_more\":%s", has_more ? "true" : "false");
    add_id(&body, "first_id", count ? &batches[0] : NULL);
    add_id(&body, "last_id", count ? &batches[count - 1] : NULL);
    buf_add_byte(&body, '}');
    for (size_t i = 0; i < count; i++) store_batch_release(&batches[i]);
    api_answer_json(request, &body);
}

void message_batches_list(void *context, struct http_request *request) {
    struct api *api = context;
    char after[STORE_ID_BYTES], before[STORE_ID_BYTES];
    struct store_message_page page = {.owner = api_sees_owner(request)};
    struct error error;
    size_t count;
    bool has_more;
    if (!api_read_limit(request, API_BATCHES_LIST_DEFAULT, MESSAGE_BATCHES_LIST_MAX, &page.limit) ||
        !read_place(request, "after_id", after) || !read_place(request, "before_id", before))
        return;
    if (*after && *before) {
        api_fail_param(request, "invalid_value", "before_id",
                       "before_id: it cannot be given together with after_id");
        return;
    }
    page.after = str_from(after);
    page.before = str_from(before);
    struct store_batch *batches = mem_new(page.limit, sizeof *batches);
    enum err err =
        store_message_batch_list(api->options.store, &page, batches, &count, &has_more, &error);
    if (err == OK)
        answer_list(api, request, batches, count, has_more);
    else
        api_fail_err(request, err, &error, *before ? "before_id" : "after_id");
    free(batches);
}

/* --- one batch --- */

static void fail_missing(struct http_request *request) {
    api_fail(request, 404, "not_found", NULL, "There is no message batch '%.100s'.",
             api_text(request, http_request_param(request, 0)));
}

bool message_batches_find(struct api *api, struct http_request *request,
                          struct store_batch *ret_batch) {
    char id[STORE_ID_BYTES];
    struct error error;
    if (!message_batch_read_id(http_request_param(request, 0), id)) {
        fail_missing(request);
        return false;
    }
    enum err err = runner_batch_get(api->options.runner, str_from(id), ret_batch, &error);
    bool is_seen = err == OK && api_may_see(request, ret_batch->owner) &&
                   strcmp(ret_batch->endpoint, endpoint_path(ENDPOINT_MESSAGES)) == 0;
    if (err == OK && !is_seen) store_batch_release(ret_batch);
    if (is_seen) return true;
    if (err == OK || (err == ERR_NOT_FOUND && !error.is_system))
        fail_missing(request);
    else
        api_fail_err(request, err, &error, NULL);
    return false;
}

void message_batches_get(void *context, struct http_request *request) {
    struct store_batch batch;
    if (message_batches_find(context, request, &batch)) answer_batch(context, request, &batch);
}

/* A batch that has ended is answered as it is. */
void message_batches_cancel(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch, after;
    struct error error;
    if (!message_batches_find(api, request, &batch)) return;
    if (message_batch_has_ended(&batch)) {
        answer_batch(api, request, &batch);
        return;
    }
    if (api_audit(api, request, "batch.cancel", batch.id)) {
        enum err err = runner_batch_cancel(api->options.runner, str_from(batch.id), &after, &error);
        if (err == OK) {
            answer_batch(api, request, &after);
        } else {
            api_audit_failed(api, request, "batch.cancel", batch.id, &error);
            if (err == ERR_CONFLICT) /* it has ended meanwhile */
                message_batches_get(api, request);
            else
                api_fail_err(request, err, &error, NULL);
        }
    }
    store_batch_release(&batch);
}

static void answer_deleted(struct http_request *request, const char *id) {
    struct buf body;
    buf_init(&body, 4096);
    buf_add_text(&body, "{\"id\":\"");
    message_batch_add_id(&body, id);
    buf_add_text(&body, "\",\"type\":\"message_batch_deleted\"}");
    api_answer_json(request, &body);
}

void message_batches_delete(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct store_freed freed;
    struct error error;
    if (!message_batches_find(api, request, &batch)) return;
    if (!message_batch_has_ended(&batch)) {
        api_fail(request, 400, "invalid_value", NULL,
                 "The batch has not ended: cancel it, and delete it when it has.");
    } else if (api_audit(api, request, "batch.delete", batch.id)) {
        enum err err = runner_batch_delete(api->options.runner, str_from(batch.id), &freed, &error);
        if (err == OK) {
            answer_deleted(request, batch.id);
        } else {
            api_audit_failed(api, request, "batch.delete", batch.id, &error);
            if (err == ERR_NOT_FOUND && !error.is_system)
                fail_missing(request);
            else
                api_fail_err(request, err, &error, NULL);
        }
    }
    store_batch_release(&batch);
}

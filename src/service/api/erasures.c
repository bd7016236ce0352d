/* SPDX-License-Identifier: Apache-2.0 */

/* One person's lines of ended batches are erased: POST /v1/batches/{id}/erase, and the records of
 * it: GET /v1/batches/{id}/erasures (extensions; batch/erase.h). */

#include "answers/answers.h"
#include "api/api_internal.h"
#include "api/studio.h"
#include "base/mem.h"
#include "batch/erase.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct asked {
    const json_t *custom_ids, *batch_ids;
    struct str reason;
};
static const struct field rows[] = {
    {"custom_ids", FIELD_TEXTS, FIELD_ANY, 1, BATCH_ERASE_IDS_MAX, FIELD_REQUIRED,
     offsetof(struct asked, custom_ids), NULL, "The requests whose lines are erased."},
    {"reason", FIELD_TEXT, FIELD_ANY, 0, BATCH_ERASE_REASON_BYTES_MAX, 0,
     offsetof(struct asked, reason), NULL,
     "Why, for the record, which stays; it must not name the person."},
    {"batch_ids", FIELD_TEXTS, FIELD_ANY, 0, BATCH_ERASE_BATCHES_MAX - 1, 0,
     offsetof(struct asked, batch_ids), NULL,
     "Further batches with the same input, of which the same requests are erased."},
};
const struct fields erasures_fields = {rows, sizeof rows / sizeof *rows, false, api_field_refuse};

/* A call that is understood. */
struct call {
    struct api *api;
    struct http_request *request;
    struct str custom_ids[BATCH_ERASE_IDS_MAX];
    size_t id_count;
    char batches[BATCH_ERASE_BATCHES_MAX][STORE_ID_BYTES];
    size_t batch_count;
    const char *reason;
    uint64_t tasks; /* tasks of Label Studio that have the lines */
};

static bool read_ids(struct call *call, const json_t *list) {
    size_t index;
    json_t *item;
    json_array_foreach(list, index, item) {
        struct str text = json_str(item);
        if (text.bytes == 0 || text.bytes > BATCH_ERASE_ID_BYTES_MAX) {
            api_fail_param(call->request, "invalid_value", "custom_ids",
                           "Invalid 'custom_ids[%zu]': it has %zu bytes, and 1 to %d are allowed.",
                           index, text.bytes, BATCH_ERASE_ID_BYTES_MAX);
            return false;
        }
        call->custom_ids[call->id_count++] = text;
    }
    return true;
}

static bool fail_batch(struct call *call, struct str id) {
    api_fail(call->request, 404, NULL, "batch_ids", "No batch found with id '%s'.",
             api_text(call->request, id));
    return false;
}

/* Adds a batch that the caller may see; one that is named twice counts once. */
static bool add_batch(struct call *call, struct str id) {
    struct store_batch batch;
    struct error error;
    if (runner_batch_get(call->api->options.runner, id, &batch, &error) != OK)
        return fail_batch(call, id);
    bool may_see = api_may_see(call->request, batch.owner), is_known = false;
    for (size_t i = 0; i < call->batch_count; i++)
        is_known = is_known || strcmp(call->batches[i], batch.id) == 0;
    if (may_see && !is_known) memcpy(call->batches[call->batch_count++], batch.id, STORE_ID_BYTES);
    store_batch_release(&batch);
    return may_see || fail_batch(call, id);
}

static bool read_batches(struct call *call, const json_t *list) {
    size_t index;
    json_t *item;
    json_array_foreach(list, index, item) if (!add_batch(call, json_str(item))) return false;
    return true;
}

/* Looks at what Label Studio has: a job that runs would send what is being erased. */
static bool look_at_studio(struct call *call) {
    for (size_t i = 0; i < call->batch_count; i++) {
        if (studio_is_running(call->api, call->batches[i])) {
            api_fail(call->request, 409, "label_studio_running", NULL,
                     "The batch '%s' is on its way to Label Studio or back; try again then.",
                     call->batches[i]);
            return false;
        }
        call->tasks +=
            studio_count_tasks(call->api, call->batches[i], call->custom_ids, call->id_count);
    }
    return true;
}

/* --- answers --- */

static void write_id(struct buf *body, const char *name, const char *id) {
    buf_printf(body, ",\"%s\":", name);
    if (*id)
        json_write_string(body, str_from(id));
    else
        buf_add_text(body, "null");
}

static void answer(const struct call *call, const struct batch_erasure *erasure) {
    struct buf body;
    uint64_t lines = 0, judgements = 0;
    for (size_t i = 0; i < erasure->batch_count; i++) {
        lines += erasure->batches[i].lines;
        judgements += erasure->batches[i].judgements;
    }
    buf_init(&body, BUF_UNLIMITED);
    buf_printf(&body,
               "{\"object\":\"batch.erasure\",\"requests\":%" PRIu64 ",\"lines\":%" PRIu64
               ",\"judgements\":%" PRIu64 ",\"label_studio_tasks\":%" PRIu64 ",\"batches\":[",
               erasure->requests, lines, judgements, call->tasks);
    for (size_t i = 0; i < erasure->batch_count; i++) {
        const struct batch_erased *erased = &erasure->batches[i];
        buf_printf(&body, "%s{\"id\":\"%s\",\"lines\":%" PRIu64 ",\"judgements\":%" PRIu64,
                   i ? "," : "", erased->id, erased->lines, erased->judgements);
        write_id(&body, "input_file_id", erased->input_file_id);
        write_id(&body, "output_file_id", erased->output_file_id);
        write_id(&body, "error_file_id", erased->error_file_id);
        buf_add_byte(&body, '}');
    }
    buf_add_text(&body, "]}");
    api_answer_json(call->request, &body);
}

static void fail(const struct call *call, enum err err, bool is_custom_id,
                 const struct error *error) {
    for (size_t i = 0; i < call->batch_count; i++)
        api_audit_failed(call->api, call->request, "batch.erase", call->batches[i], error);
    if (is_custom_id)
        api_fail(call->request, 404, "custom_id_not_found", "custom_ids", "%s", error->text);
    else
        api_fail_err(call->request, err, error, NULL);
}

static void erase(struct call *call) {
    const char *ids[BATCH_ERASE_BATCHES_MAX];
    struct batch_erasure erasure;
    struct error error;
    bool is_custom_id;
    for (size_t i = 0; i < call->batch_count; i++) {
        ids[i] = call->batches[i];
        if (!api_audit(call->api, call->request, "batch.erase", ids[i])) return;
    }
    const struct batch_erase wish = {.batch_ids = ids,
                                     .batch_count = call->batch_count,
                                     .custom_ids = call->custom_ids,
                                     .id_count = call->id_count,
                                     .reason = call->reason};
    enum err err =
        runner_batch_erase(call->api->options.runner, &wish, &erasure, &is_custom_id, &error);
    if (err != OK) {
        fail(call, err, is_custom_id, &error);
        return;
    }
    for (size_t i = 0; i < call->batch_count; i++) answers_forget(call->api->answers, ids[i]);
    answer(call, &erasure);
}

static void read_call(struct call *call, const char *batch_id, const struct asked *asked) {
    call->reason = api_text(call->request, asked->reason);
    memcpy(call->batches[call->batch_count++], batch_id, strlen(batch_id) + 1);
    if (read_ids(call, asked->custom_ids) && read_batches(call, asked->batch_ids) &&
        look_at_studio(call))
        erase(call);
}

void erasures_create(void *context, struct http_request *request) {
    struct store_batch batch;
    struct asked asked = {.reason = {"", 0}};
    json_t *body;
    if (!batches_find(context, request, &batch)) return;
    if (api_read_object(request, &body)) {
        struct call *call = mem_new(1, sizeof *call);
        call->api = context;
        call->request = request;
        if (api_fields_read_all(request, &erasures_fields, body, &asked))
            read_call(call, batch.id, &asked);
        free(call);
        json_decref(body);
    }
    store_batch_release(&batch);
}

/* --- records --- */

/* A record as the salts' file has it, without the leaves of lines. */
static json_t *shown(const json_t *record) {
    const char *name;
    json_t *list, *other;
    size_t lines = 0, index;
    json_int_t judgements = 0;
    json_object_foreach(json_object_get(record, "files"), name, list) lines +=
        json_array_size(list);
    json_array_foreach(json_object_get(record, "others"), index, other) judgements +=
        json_integer_value(json_object_get(other, "lines"));
    return json_pack("{s:s,s:O,s:O,s:O,s:I,s:I}", "object", "batch.erasure", "erased_at",
                     json_object_get(record, "erased_at"), "reason",
                     json_object_get(record, "reason"), "requests",
                     json_object_get(record, "requests"), "lines", (json_int_t)lines, "judgements",
                     judgements);
}

static void answer_list(struct http_request *request, const json_t *records) {
    struct buf body;
    size_t index, written = 0;
    json_t *record;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[");
    json_array_foreach(records, index, record) {
        json_t *object = shown(record);
        if (!object) continue;
        if (written++ > 0) buf_add_byte(&body, ',');
        json_write(&body, object);
        json_decref(object);
    }
    buf_add_text(&body, "],\"has_more\":false}");
    api_answer_json(request, &body);
}

void erasures_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct store_proofs proofs;
    struct error error;
    json_t *records = NULL;
    if (!batches_find(api, request, &batch)) return;
    enum err err = store_proofs_get(api->options.store, batch.id, &proofs, &error);
    store_batch_release(&batch);
    if (err == OK) {
        if (proofs.erasures) err = json_read(&records, str_from(proofs.erasures), &error);
        store_proofs_release(&proofs);
    }
    if (err == OK)
        answer_list(request, records);
    else
        api_fail_err(request, err, &error, NULL);
    json_decref(records);
}

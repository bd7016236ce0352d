/* SPDX-License-Identifier: Apache-2.0 */
#include "api/openapi.h"

#include "api/api_internal.h"
#include "api/judgement_body.h"
#include "api/uploads.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

/* openapi.json, compact; tools/embed_json.py makes it when quern is built. */
extern const char openapi_json[];

static void write_version(struct buf *buf) {
    buf_add_text(buf, "\"" QUERN_VERSION "\"");
}

static void write_create_upload(struct buf *buf) {
    fields_write_schema(buf, &uploads_create_fields);
}

static void write_complete_upload(struct buf *buf) {
    fields_write_schema(buf, &uploads_complete_fields);
}

static void write_preflight(struct buf *buf) {
    fields_write_schema(buf, &preflight_fields);
}

static void write_studio(struct buf *buf) {
    fields_write_schema(buf, &studio_fields);
}

static void write_create_key(struct buf *buf) {
    fields_write_schema(buf, &keys_fields);
}

static void write_erase(struct buf *buf) {
    fields_write_schema(buf, &erasures_fields);
}

/* The marks of openapi.json: a string value "@NAME" stands for what `write` appends. */
static const struct mark {
    const char *name;
    void (*write)(struct buf *buf);
} marks[] = {
    {"version", write_version},
    {"CreateUpload", write_create_upload},
    {"CompleteUpload", write_complete_upload},
    {"PreflightBatch", write_preflight},
    {"StartLabelStudio", write_studio},
    {"CreateJudgement", judgement_body_write_schema},
    {"CreateKey", write_create_key},
    {"EraseBatchLines", write_erase},
    {"CreateBatch", batch_parameters_write_schema},
};

static void write_mark(struct buf *buf, struct str name) {
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!str_is(name, marks[i].name)) continue;
        marks[i].write(buf);
        return;
    }
    assert(false); /* openapi.json has a mark that no row of `marks` names */
}

/* Appends a part of the document; without keys no operation has a security requirement. */
static void write_part(struct buf *buf, struct str part, bool asks_keys) {
    const struct str security = STR("\"security\":[{\"bearerAuth\":[]}]");
    size_t at;
    while (!asks_keys && (at = str_find(part, security, 0)) != SIZE_MAX) {
        buf_add(buf, part.at, at);
        buf_add_text(buf, "\"security\":[]");
        part = str_skip(part, at + security.bytes);
    }
    buf_add_str(buf, part);
}

void openapi_write(struct buf *buf, bool asks_keys) {
    const char *at = openapi_json, *mark;
    for (; (mark = strstr(at, "\"@")); at = strchr(mark + 2, '"') + 1) {
        write_part(buf, (struct str){at, (size_t)(mark - at)}, asks_keys);
        write_mark(buf, (struct str){mark + 2, strcspn(mark + 2, "\"")});
    }
    write_part(buf, str_from(at), asks_keys);
}

/* Made once: the route is open, and each of its slow readers would hold a copy. */
static struct buf documents[2]; /* by whether keys are asked for */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_documents(void) {
    for (int asks_keys = 0; asks_keys < 2; asks_keys++) {
        buf_init(&documents[asks_keys], (size_t)4 << 20);
        openapi_write(&documents[asks_keys], asks_keys);
    }
}

void openapi_get(void *context, struct http_request *request) {
    const struct api *api = context;
    bool asks_keys = api->options.keys && key_set_asks(api->options.keys);
    pthread_once(&once, make_documents);
    http_answer(request, &(struct http_answer){.status = 200,
                                               .body = buf_str(&documents[asks_keys]),
                                               .is_static = true});
}

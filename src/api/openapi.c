/* SPDX-License-Identifier: Apache-2.0 */
#include "api/openapi.h"

#include "api/api_internal.h"
#include "api/uploads.h"

#include <stdio.h>
#include <string.h>

/* What follows an answer: an operation that takes the new object's id. */
struct link {
    const char *operation;
    const char *parameter;
};
#define LINKS_MAX 4

struct operation_doc {
    const char *operation;
    const char *summary;
    const char *query;  /* names of components/parameters, with blanks between */
    const char *body;   /* a schema, or NULL; see write_body for the type of content */
    const char *answer; /* a schema, or a type of content */
    const char *errors; /* statuses beyond those every operation may answer */
    struct link links[LINKS_MAX];
};

static const struct operation_doc docs[] = {
    {.operation = "getHealth",
     .summary = "Whether requests are taken",
     .answer = "Health",
     .errors = "503"},
    {.operation = "getPing", .summary = "As /health", .answer = "Health", .errors = "503"},
    {.operation = "getReady", .summary = "The same, and why not", .answer = "Ready"},
    {.operation = "getVersion", .summary = "The version of quern", .answer = "Version"},
    {.operation = "getMetrics", .summary = "Metrics for Prometheus", .answer = "text/plain"},
    {.operation = "getOpenapi", .summary = "This document", .answer = "Document"},
    {.operation = "listFiles",
     .summary = "Lists files",
     .query = "After FilesLimit Order Purpose",
     .answer = "FileList"},
    {.operation = "createFile",
     .summary = "Uploads a file",
     .body = "CreateFile",
     .answer = "File",
     .errors = "413 503",
     .links = {{"retrieveFile", "id"}, {"downloadFile", "id"}, {"deleteFile", "id"}}},
    {.operation = "retrieveFile", .summary = "Describes a file", .answer = "File", .errors = "404"},
    {.operation = "deleteFile",
     .summary = "Deletes a file",
     .answer = "FileDeleted",
     .errors = "404"},
    {.operation = "downloadFile",
     .summary = "The bytes of a file",
     .query = "Range IfRange IfNoneMatch",
     .answer = "application/octet-stream",
     .errors = "404 416"},
    {.operation = "createUpload",
     .summary = "Announces a file that comes in parts",
     .body = "CreateUpload",
     .answer = "Upload",
     .errors = "413 503",
     .links = {{"retrieveUpload", "id"},
               {"addUploadPart", "id"},
               {"completeUpload", "id"},
               {"cancelUpload", "id"}}},
    {.operation = "retrieveUpload",
     .summary = "Describes an upload",
     .answer = "Upload",
     .errors = "404"},
    {.operation = "addUploadPart",
     .summary = "Adds a part to an upload",
     .body = "AddUploadPart",
     .answer = "UploadPart",
     .errors = "404 413 503"},
    {.operation = "completeUpload",
     .summary = "Joins the parts of an upload to a file",
     .body = "CompleteUpload",
     .answer = "Upload",
     .errors = "404 503"},
    {.operation = "cancelUpload",
     .summary = "Gives an upload up",
     .answer = "Upload",
     .errors = "404"},
    {.operation = "createBatch",
     .summary = "Creates a batch of an uploaded file",
     .query = "IdempotencyKey",
     .body = "CreateBatch",
     .answer = "Batch",
     .errors = "409 503",
     .links = {{"retrieveBatch", "id"}, {"cancelBatch", "id"}}},
    {.operation = "listBatches",
     .summary = "Lists batches, the newest first",
     .query = "After BatchesLimit",
     .answer = "BatchList"},
    {.operation = "retrieveBatch",
     .summary = "Describes a batch",
     .answer = "Batch",
     .errors = "404"},
    {.operation = "preflightBatch",
     .summary = "What running a file will take; nothing is kept",
     .body = "PreflightBatch",
     .answer = "Preflight",
     .errors = "404 429 500 503 504"},
    {.operation = "cancelBatch",
     .summary = "Ends a batch; what is finished stays",
     .answer = "Batch",
     .errors = "404 409"},
    {.operation = "pauseBatch",
     .summary = "Gives no further line of a batch to an engine",
     .answer = "Batch",
     .errors = "404 409"},
    {.operation = "resumeBatch",
     .summary = "Goes on with a paused batch",
     .answer = "Batch",
     .errors = "404 409"},
    {.operation = "retryBatch",
     .summary = "Makes a new batch of the failed lines of one that has ended",
     .query = "IdempotencyKey",
     .body = "RetryBatch",
     .answer = "Batch",
     .errors = "404 409 429 503",
     .links = {{"retrieveBatch", "id"}, {"cancelBatch", "id"}}},
    {.operation = "streamBatchResults",
     .summary = "The durable result lines of a batch, also while it runs",
     .query = "ResultsAfter ResultsLimit Follow",
     .answer = "application/jsonl",
     .errors = "404 409 503"},
    {.operation = "createChatCompletion",
     .summary = "Answers a chat",
     .body = "CreateChatCompletion",
     .answer = "Completion",
     .errors = "404 429 500 503"},
    {.operation = "createCompletion",
     .summary = "Goes on with a text",
     .body = "CreateCompletion",
     .answer = "Completion",
     .errors = "404 429 500 503"},
    {.operation = "createEmbedding",
     .summary = "Turns texts into vectors",
     .body = "CreateEmbedding",
     .answer = "EmbeddingList",
     .errors = "404 429 500 503"},
    {.operation = "listModels",
     .summary = "Lists the models that are served",
     .answer = "ModelList"},
    {.operation = "retrieveModel",
     .summary = "Describes a model",
     .answer = "Model",
     .errors = "404"},
};

static const struct operation_doc *find_doc(const char *operation) {
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++)
        if (strcmp(docs[i].operation, operation) == 0) return &docs[i];
    return NULL;
}

bool openapi_describes(const char *operation) {
    return find_doc(operation) != NULL;
}

/* Calls `write` for each word of a text with single blanks; NULL has none. */
static void each_word(struct buf *buf, const char *text,
                      void (*write)(struct buf *buf, struct str word)) {
    struct str rest = str_from(text);
    while (rest.bytes > 0) {
        size_t end = str_find_byte(rest, ' ', 0);
        struct str word = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        write(buf, word);
        rest = str_skip(rest, word.bytes + 1);
    }
}

/* --- one operation --- */

static void write_parameter(struct buf *buf, struct str name) {
    buf_printf(buf, "%s{\"$ref\":\"#/components/parameters/%.*s\"}",
               buf->at[buf->bytes - 1] == '[' ? "" : ",", STR_ARGS(name));
}

/* The parameters a pattern has in its path. */
static void write_path_parameters(struct buf *buf, const char *pattern) {
    for (const char *at = pattern; (at = strchr(at, '{')); at++) {
        int bytes = (int)strcspn(at + 1, ".}");
        buf_printf(buf,
                   "%s{\"name\":\"%.*s\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":"
                   "\"string\",\"minLength\":1}}",
                   buf->at[buf->bytes - 1] == '[' ? "" : ",", bytes, at + 1);
    }
}

static void write_body(struct buf *buf, const struct http_route *route, const char *schema) {
    buf_printf(buf,
               ",\"requestBody\":{\"required\":true,\"content\":{\"%s\":{\"schema\":{\"$ref\":"
               "\"#/components/schemas/%s\"}}}}",
               route->upload ? "multipart/form-data" : "application/json", schema);
}

static void write_links(struct buf *buf, const struct operation_doc *doc) {
    if (!doc->links[0].operation) return;
    buf_add_text(buf, ",\"links\":{");
    for (size_t i = 0; i < LINKS_MAX && doc->links[i].operation; i++)
        buf_printf(buf,
                   "%s\"%s\":{\"operationId\":\"%s\",\"parameters\":{\"%s\":"
                   "\"$response.body#/id\"}}",
                   i ? "," : "", doc->links[i].operation, doc->links[i].operation,
                   doc->links[i].parameter);
    buf_add_byte(buf, '}');
}

#define REQUEST_ID_HEADER                                                                          \
    "\"headers\":{\"x-request-id\":{\"$ref\":\"#/components/headers/RequestId\"}}"

static void write_success(struct buf *buf, const char *status, const struct operation_doc *doc) {
    const char *answer = doc ? doc->answer : "Any";
    bool is_type = strchr(answer, '/') != NULL;
    buf_printf(buf, "\"%s\":{\"description\":\"%s\"," REQUEST_ID_HEADER ",\"content\":{\"%s\":{",
               status, strcmp(status, "503") == 0 ? "Not ready" : "Done",
               is_type ? answer : "application/json");
    if (!is_type) buf_printf(buf, "\"schema\":{\"$ref\":\"#/components/schemas/%s\"}", answer);
    buf_add_byte(buf, '}');
    /* Both are answered to a chat or completion: the second when it asks for a stream. */
    if (strcmp(answer, "Completion") == 0)
        buf_add_text(buf, ",\"text/event-stream\":{\"schema\":{\"type\":\"string\"}}");
    buf_add_byte(buf, '}');
    if (doc) write_links(buf, doc);
    buf_add_byte(buf, '}');
}

static void write_error(struct buf *buf, struct str status) {
    buf_printf(buf, ",\"%.*s\":{\"$ref\":\"#/components/responses/Error\"}", STR_ARGS(status));
}

static void write_responses(struct buf *buf, const struct http_route *route,
                            const struct operation_doc *doc) {
    bool is_file = doc && strcmp(doc->answer, "application/octet-stream") == 0;
    buf_add_text(buf, ",\"responses\":{");
    write_success(buf, "200", doc);
    if (is_file) {
        buf_add_byte(buf, ',');
        write_success(buf, "206", doc);
        buf_add_text(buf, ",\"304\":{\"description\":\"The client has these bytes\"," //
                     REQUEST_ID_HEADER "}");
    }
    if (strcmp(route->operation, "getReady") == 0) {
        buf_add_byte(buf, ',');
        write_success(buf, "503", doc);
    }
    write_error(buf, STR("400"));
    if (route->scope != HTTP_SCOPE_OPEN) write_error(buf, STR("401"));
    if (doc)
        each_word(buf, doc->errors, write_error);
    else
        buf_add_text(buf, ",\"default\":{\"$ref\":\"#/components/responses/Error\"}");
    buf_add_byte(buf, '}');
}

static void write_operation(struct buf *buf, const struct http_route *route) {
    const struct operation_doc *doc = find_doc(route->operation);
    buf_add_byte(buf, '"');
    for (const char *at = route->method; *at; at++) buf_add_byte(buf, (char)(*at | 0x20));
    buf_printf(buf, "\":{\"operationId\":\"%s\",\"summary\":\"%s\",\"parameters\":[",
               route->operation, doc ? doc->summary : route->operation);
    write_path_parameters(buf, route->pattern);
    if (doc) each_word(buf, doc->query, write_parameter);
    buf_add_text(buf, "],\"security\":[");
    if (route->scope != HTTP_SCOPE_OPEN) buf_add_text(buf, "{\"bearerAuth\":[]}");
    buf_add_byte(buf, ']');
    if (doc && doc->body) write_body(buf, route, doc->body);
    write_responses(buf, route, doc);
    buf_add_byte(buf, '}');
}

/* --- the document --- */

static bool is_first_of_path(size_t index) {
    for (size_t i = 0; i < index; i++)
        if (strcmp(api_routes[i].pattern, api_routes[index].pattern) == 0) return false;
    return true;
}

static void write_path(struct buf *buf, size_t first) {
    const char *comma = "";
    buf_add_byte(buf, '"');
    /* "{model...}" is a parameter like any other there. */
    for (const char *at = api_routes[first].pattern; *at; at++)
        if (*at != '.' || strncmp(at, ".json", 5) == 0) buf_add_byte(buf, *at);
    buf_add_text(buf, "\":{");
    for (size_t i = first; i < api_route_count; i++) {
        if (strcmp(api_routes[i].pattern, api_routes[first].pattern) != 0) continue;
        buf_add_text(buf, comma);
        write_operation(buf, &api_routes[i]);
        comma = ",";
    }
    buf_add_byte(buf, '}');
}

void openapi_write(struct buf *buf) {
    const char *comma = "";
    buf_add_text(buf,
                 "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"quern\",\"version\":\"" QUERN_VERSION
                 "\",\"description\":\"Files, Batches and inference as OpenAI's API has them.\","
                 "\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"}},"
                 "\"servers\":[{\"url\":\"/\"}],\"paths\":{");
    for (size_t i = 0; i < api_route_count; i++) {
        if (!is_first_of_path(i)) continue;
        buf_add_text(buf, comma);
        write_path(buf, i);
        comma = ",";
    }
    buf_add_text(buf, "},");
    openapi_write_components(buf);
    buf_add_byte(buf, '}');
}

void openapi_get(void *context, struct http_request *request) {
    struct buf body;
    (void)context;
    buf_init(&body, (size_t)4 << 20);
    openapi_write(&body);
    api_answer_json(request, &body);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The components of the OpenAPI document. */

#include "api/api_internal.h"
#include "api/openapi.h"
#include "api/uploads.h"

#include <inttypes.h>

#define TEXT "{\"type\":\"string\"}"
#define TEXT_OR_NULL "{\"type\":[\"string\",\"null\"]}"
#define INTEGER "{\"type\":\"integer\"}"
#define COUNT "{\"type\":\"integer\",\"minimum\":0}"
#define INTEGER_OR_NULL "{\"type\":[\"integer\",\"null\"]}"
#define NUMBER "{\"type\":\"number\"}"
#define NUMBER_OR_NULL "{\"type\":[\"number\",\"null\"]}"
#define BOOLEAN "{\"type\":\"boolean\"}"
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
#define CONST(text) "{\"const\":\"" text "\"}"
/* An object all of whose members are always there. */
#define WHOLE(required, properties)                                                                \
    "{\"type\":\"object\",\"required\":[" required "],\"properties\":{" properties "}}"
#define LIST(item)                                                                                 \
    WHOLE("\"object\",\"data\",\"first_id\",\"last_id\",\"has_more\"",                             \
          "\"object\":" CONST("list") ",\"data\":{\"type\":\"array\",\"items\":" REF(              \
              item) "},\"first_id\":" TEXT_OR_NULL ",\"last_id\":" TEXT_OR_NULL                    \
                    ",\"has_more\":" BOOLEAN)

/* What clients get. */
static const char *const answers[][2] = {
    {"Any", "{}"},
    {"Document", "{\"type\":\"object\"}"},
    {"Health", WHOLE("\"status\"", "\"status\":" TEXT)},
    {"Version", WHOLE("\"version\"", "\"version\":" TEXT)},
    {"Ready", WHOLE("\"ready\",\"checks\",\"text\"",
                    "\"ready\":" BOOLEAN ",\"checks\":{\"type\":\"object\","
                    "\"additionalProperties\":" BOOLEAN "},\"text\":" TEXT)},
    {"Error",
     WHOLE("\"error\"", "\"error\":" WHOLE("\"message\",\"type\",\"param\",\"code\"",
                                           "\"message\":" TEXT ",\"type\":" TEXT
                                           ",\"param\":" TEXT_OR_NULL ",\"code\":" TEXT_OR_NULL))},
    {"File",
     WHOLE("\"id\",\"object\",\"bytes\",\"created_at\",\"expires_at\",\"filename\",\"purpose\","
           "\"status\",\"status_details\"",
           "\"id\":{\"type\":\"string\",\"pattern\":\"^file-[0-9A-Za-z]{22}$\"},"
           "\"object\":" CONST("file") ",\"bytes\":" COUNT ",\"created_at\":" INTEGER
                                       ",\"expires_at\":" INTEGER_OR_NULL ",\"filename\":" TEXT
                                       ",\"purpose\":" TEXT ",\"status\":" CONST(
                                           "processed") ",\"status_details\":{\"type\":\"null\"}")},
    {"FileList", LIST("File")},
    {"FileDeleted", WHOLE("\"id\",\"object\",\"deleted\"",
                          "\"id\":" TEXT ",\"object\":" CONST("file") ",\"deleted\":" BOOLEAN)},
    {"Upload",
     WHOLE("\"id\",\"object\",\"bytes\",\"created_at\",\"expires_at\",\"filename\",\"purpose\","
           "\"status\",\"file\"",
           "\"id\":{\"type\":\"string\",\"pattern\":\"^upload_[0-9a-f]{32}$\"},"
           "\"object\":" CONST("upload") ",\"bytes\":" COUNT ",\"created_at\":" INTEGER
                                         ",\"expires_at\":" INTEGER ",\"filename\":" TEXT
                                         ",\"purpose\":" TEXT ",\"status\":{\"enum\":[\"pending\","
                                         "\"completed\",\"cancelled\",\"expired\"]},"
                                         "\"file\":{\"anyOf\":[" REF(
                                             "File") ",{\"type\":\"null\"}]}")},
    {"UploadPart", WHOLE("\"id\",\"object\",\"created_at\",\"upload_id\"",
                         "\"id\":" TEXT ",\"object\":" CONST("upload.part") //
                         ",\"created_at\":" INTEGER ",\"upload_id\":" TEXT)},
    {"BatchCounts", WHOLE("\"total\",\"completed\",\"failed\"",
                          "\"total\":" COUNT ",\"completed\":" COUNT ",\"failed\":" COUNT)},
    {"BatchUsage",
     "{\"type\":[\"object\",\"null\"],\"required\":[\"input_tokens\",\"input_tokens_details\","
     "\"output_tokens\",\"output_tokens_details\",\"total_tokens\"],\"properties\":{"
     "\"input_tokens\":" COUNT ",\"output_tokens\":" COUNT ",\"total_tokens\":" COUNT "}}"},
    {"BatchErrors",
     "{\"type\":[\"object\",\"null\"],\"required\":[\"object\",\"data\"],\"properties\":{"
     "\"object\":" CONST("list") ",\"data\":{\"type\":\"array\",\"items\":" WHOLE(
         "\"code\",\"line\",\"message\","
         "\"param\"",
         "\"code\":" TEXT_OR_NULL ",\"line\":" INTEGER_OR_NULL ",\"message\":" TEXT_OR_NULL
         ",\"param\":" TEXT_OR_NULL) //
     "}}}"},
    {"Batch",
     WHOLE("\"id\",\"object\",\"endpoint\",\"model\",\"errors\",\"input_file_id\","
           "\"completion_window\",\"status\",\"output_file_id\",\"error_file_id\",\"created_at\","
           "\"in_progress_at\",\"expires_at\",\"finalizing_at\",\"completed_at\",\"failed_at\","
           "\"expired_at\",\"cancelling_at\",\"cancelled_at\",\"request_counts\",\"usage\","
           "\"metadata\"",
           "\"id\":{\"type\":\"string\",\"pattern\":\"^batch_[0-9a-f]{32}$\"},"
           "\"object\":" CONST(
               "batch") ",\"endpoint\":" TEXT ",\"model\":" TEXT_OR_NULL
                        ",\"errors\":" REF(
                            "BatchErrors") ",\"input_file_id\":" TEXT ",\"completion_window\":" TEXT
                                           ",\"status\":{\"enum\":[\"validating\",\"in_progress\","
                                           "\"finalizing\",\"cancelling\",\"completed\",\"failed\","
                                           "\"expired\",\"cancelled\"]}"
                                           ",\"output_file_id\":" TEXT_OR_NULL
                                           ",\"error_file_id\":" TEXT_OR_NULL
                                           ",\"created_at\":" INTEGER
                                           ",\"in_progress_at\":" INTEGER_OR_NULL
                                           ",\"expires_at\":" INTEGER
                                           ",\"finalizing_at\":" INTEGER_OR_NULL
                                           ",\"completed_at\":" INTEGER_OR_NULL
                                           ",\"failed_at\":" INTEGER_OR_NULL
                                           ",\"expired_at\":" INTEGER_OR_NULL
                                           ",\"cancelling_at\":" INTEGER_OR_NULL
                                           ",\"cancelled_at\":" INTEGER_OR_NULL
                                           ",\"request_counts\":" REF("BatchCounts") //
           ",\"usage\":" REF("BatchUsage") ",\"service_tier\":" TEXT_OR_NULL
                                           ",\"priority\":" INTEGER ",\"waiting_for\":" TEXT_OR_NULL
                                           ",\"metadata\":{\"type\":[\"object\",\"null\"],"
                                           "\"additionalProperties\":" TEXT "}")},
    {"BatchList", LIST("Batch")},
    {"Interval",
     "{\"type\":[\"object\",\"null\"],\"required\":[\"mean\",\"low\",\"high\"],\"properties\":{"
     "\"mean\":" NUMBER ",\"low\":" NUMBER_OR_NULL ",\"high\":" NUMBER_OR_NULL "}}"},
    {"Preflight",
     WHOLE("\"object\",\"model\",\"token_counts\",\"requests\",\"faulty\",\"faults\","
           "\"prompt_tokens\",\"prompt_lengths\",\"duplicates\",\"pilot\",\"seconds\","
           "\"output_tokens\",\"kwh\",\"energy_cost\",\"api_cost\"",
           "\"object\":" CONST(
               "preflight") ",\"model\":" TEXT
                            ",\"token_counts\":{\"enum\":[\"exact\",\"estimated\"]}"
                            ",\"requests\":" COUNT ",\"faulty\":" COUNT ",\"prompt_tokens\":" COUNT
                            ",\"duplicates\":" COUNT
                            ",\"pilot\":{\"type\":[\"object\",\"null\"]},\"seconds\":" REF(
                                "Interval") ",\"output_tokens\":" REF("Interval") //
           ",\"kwh\":" REF("Interval") ",\"energy_cost\":" REF("Interval") ",\"api_cost\":" REF(
               "Interval"))},
    {"Model", WHOLE("\"id\",\"object\",\"created\",\"owned_by\"",
                    "\"id\":" TEXT ",\"object\":" CONST("model") ",\"created\":" INTEGER
                                                                 ",\"owned_by\":" TEXT)},
    {"ModelList", WHOLE("\"object\",\"data\"", "\"object\":" CONST("list") //
                        ",\"data\":{\"type\":\"array\",\"items\":" REF("Model") "}")},
    {"Completion",
     WHOLE("\"id\",\"object\",\"created\",\"model\",\"choices\"",
           "\"id\":" TEXT ",\"object\":" TEXT ",\"created\":" INTEGER ",\"model\":" TEXT
           ",\"choices\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}}")},
    {"Embedding",
     WHOLE("\"object\",\"index\",\"embedding\"",
           "\"object\":" CONST("embedding") ",\"index\":" COUNT
                                            ",\"embedding\":{\"type\":[\"array\",\"string\"],"
                                            "\"items\":{\"type\":\"number\"}}")},
    {"EmbeddingList",
     WHOLE("\"object\",\"data\",\"model\",\"usage\"",
           "\"object\":" CONST("list") ",\"data\":{\"type\":\"array\",\"items\":" REF(
               "Embedding") "},\"model\":" TEXT
                            ",\"usage\":" WHOLE("\"prompt_tokens\",\"total_tokens\"",
                                                "\"prompt_tokens\":" COUNT
                                                ",\"total_tokens\":" COUNT))},
};

/* The engine checks the rest of these bodies, and says what is wrong with them. */
static const char *const inference_bodies[][2] = {
    {"CreateChatCompletion",
     "{\"type\":\"object\",\"required\":[\"model\"],\"properties\":{\"model\":" TEXT
     ",\"messages\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
     "\"stream\":{\"type\":[\"boolean\",\"null\"]}}}"},
    {"CreateCompletion",
     "{\"type\":\"object\",\"required\":[\"model\"],\"properties\":{\"model\":" TEXT
     ",\"prompt\":{},\"stream\":{\"type\":[\"boolean\",\"null\"]}}}"},
    {"CreateEmbedding",
     "{\"type\":\"object\",\"required\":[\"model\"],\"properties\":{\"model\":" TEXT
     ",\"input\":{},\"encoding_format\":{},\"dimensions\":{},\"truncate_prompt_tokens\":{},"
     "\"add_special_tokens\":{},\"parse_special\":{},\"instruction\":{},\"user\":{}}}"},
};

static void write_forms(struct buf *buf) {
    buf_add_text(buf, ",\"CreateFile\":{\"type\":\"object\",\"required\":[\"file\",\"purpose\"],"
                      "\"properties\":{\"file\":{\"type\":\"string\",\"format\":\"binary\"},"
                      "\"purpose\":{\"type\":\"string\",\"enum\":[");
    for (size_t i = 0; api_file_purposes[i]; i++)
        buf_printf(buf, "%s\"%s\"", i ? "," : "", api_file_purposes[i]);
    buf_printf(buf,
               "]},\"expires_after[anchor]\":{\"type\":\"string\",\"enum\":[\"created_at\"]},"
               "\"expires_after[seconds]\":{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}},"
               "\"dependentRequired\":{\"expires_after[anchor]\":[\"expires_after[seconds]\"],"
               "\"expires_after[seconds]\":[\"expires_after[anchor]\"]}}",
               API_EXPIRY_S_MIN, API_EXPIRY_S_MAX);
    buf_add_text(buf, ",\"AddUploadPart\":{\"type\":\"object\",\"required\":[\"data\"],"
                      "\"properties\":{\"data\":{\"type\":\"string\",\"format\":\"binary\"}}}");
}

static void write_schemas(struct buf *buf) {
    buf_add_text(buf, "\"schemas\":{");
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        buf_printf(buf, "%s\"%s\":%s", i ? "," : "", answers[i][0], answers[i][1]);
    for (size_t i = 0; i < sizeof inference_bodies / sizeof *inference_bodies; i++)
        buf_printf(buf, ",\"%s\":%s", inference_bodies[i][0], inference_bodies[i][1]);
    write_forms(buf);
    buf_add_text(buf, ",\"RetryBatch\":{\"type\":\"object\",\"properties\":{\"statuses\":{\"type\":"
                      "\"array\",\"items\":{\"type\":\"integer\"}},\"codes\":{\"type\":\"array\","
                      "\"items\":{\"type\":\"string\"}}}}");
    buf_add_text(buf, ",\"CreateUpload\":");
    api_fields_write_schema(buf, uploads_create_fields, UPLOADS_CREATE_FIELDS);
    buf_add_text(buf, ",\"CompleteUpload\":");
    api_fields_write_schema(buf, uploads_complete_fields, UPLOADS_COMPLETE_FIELDS);
    buf_add_text(buf, ",\"PreflightBatch\":");
    api_fields_write_schema(buf, preflight_fields, PREFLIGHT_FIELDS);
    buf_add_text(buf, ",\"CreateBatch\":");
    batch_parameters_write_schema(buf);
    buf_add_byte(buf, '}');
}

static void write_parameter(struct buf *buf, const char *component, const char *name,
                            const char *in, const char *schema, const char *description) {
    buf_printf(buf, "%s\"%s\":{\"name\":\"%s\",\"in\":\"%s\",\"schema\":%s,\"description\":\"%s\"}",
               buf->at[buf->bytes - 1] == '{' ? "" : ",", component, name, in, schema, description);
}

static void write_limit(struct buf *buf, const char *component, int most, int otherwise) {
    char schema[120];
    snprintf(schema, sizeof schema,
             "{\"type\":\"integer\",\"minimum\":1,\"maximum\":%d,\"default\":%d}", most, otherwise);
    write_parameter(buf, component, "limit", "query", schema, "Objects on a page.");
}

static void write_parameters(struct buf *buf) {
    buf_add_text(buf, ",\"parameters\":{");
    write_limit(buf, "FilesLimit", API_FILES_LIST_MAX, API_FILES_LIST_MAX);
    write_limit(buf, "BatchesLimit", API_BATCHES_LIST_MAX, API_BATCHES_LIST_DEFAULT);
    write_parameter(buf, "After", "after", "query", TEXT,
                    "The id of the last object of the page before.");
    write_parameter(buf, "ResultsAfter", "after", "query",
                    "{\"type\":\"integer\",\"minimum\":0,\"default\":0}",
                    "Lines taken already: what X-Last-Line said.");
    write_limit(buf, "ResultsLimit", API_RESULTS_LIST_MAX, API_RESULTS_LIST_MAX);
    write_parameter(buf, "Follow", "follow", "query", "{\"type\":\"boolean\",\"default\":false}",
                    "Keeps the connection open for lines to come.");
    write_parameter(buf, "Order", "order", "query",
                    "{\"type\":\"string\",\"enum\":[\"asc\",\"desc\"],\"default\":\"desc\"}",
                    "By the time of creation.");
    write_parameter(buf, "Purpose", "purpose", "query", TEXT, "Only files with this purpose.");
    write_parameter(buf, "Range", "Range", "header", TEXT, "As RFC 9110 has it; one range.");
    write_parameter(buf, "IfRange", "If-Range", "header", TEXT, "An ETag.");
    write_parameter(buf, "IfNoneMatch", "If-None-Match", "header", TEXT, "ETags.");
    write_parameter(buf, "IdempotencyKey", "Idempotency-Key", "header",
                    "{\"type\":\"string\",\"maxLength\":255}",
                    "The same key and parameters give the same batch.");
    buf_add_byte(buf, '}');
}

void openapi_write_components(struct buf *buf) {
    buf_add_text(buf, "\"components\":{");
    write_schemas(buf);
    write_parameters(buf);
    buf_add_text(
        buf,
        ",\"headers\":{\"RequestId\":{\"required\":true,\"schema\":{\"type\":\"string\","
        "\"pattern\":"
        "\"^[0-9A-Za-z._-]{1,64}$\"},\"description\":\"Of this answer; the client's own when it "
        "sent one.\"}}"
        ",\"responses\":{\"Error\":{\"description\":\"What is wrong\",\"headers\":{"
        "\"x-request-id\":{\"$ref\":\"#/components/headers/RequestId\"}},\"content\":{"
        "\"application/json\":{\"schema\":" REF(
            "Error") "}}}}"
                     ",\"securitySchemes\":{\"bearerAuth\":{\"type\":\"http\",\"scheme\":"
                     "\"bearer\"}}}");
}

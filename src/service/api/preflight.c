/* SPDX-License-Identifier: Apache-2.0 */

/* POST /v1/batches/preflight (an extension): what running a file would take. preflight_queue.h says
 * whose question comes next. The answer is one JSON object, so the connection is silent until
 * then. */

#include "api/api_internal.h"
#include "api/preflight_queue.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "batch/line.h"
#include "json/span.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFLIGHT_MS ((int64_t)600000)
#define PILOT_LINES_DEFAULT 48
#define NAMES_KNOWN 8    /* names of a file's models to remember; others are looked up again */
#define LINES_A_LOOK 256 /* lines read between two looks whether the client still waits */
#define ANSWER_BYTES_MAX ((size_t)1 << 20)
#define PRICE_MAX 1000000
#define CURRENCY_BYTES 17

static const char *const endpoints[] = {
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/score",    "/v1/decisions",
    "/v1/systemone",        "/v1/rerank",      "/v1/pooling",    "/v1/classify", NULL};

/* The body of a preflight call. */
struct question {
    struct str file_id, endpoint, model;
    int64_t pilot_lines;
    struct prices prices;
    struct str currency;
};
#define AT(member) offsetof(struct question, member)
static const struct field rows[] = {
    {"input_file_id", FIELD_TEXT, FIELD_ANY, 1, STORE_ID_BYTES - 1, FIELD_REQUIRED, AT(file_id),
     NULL, "A file with the purpose batch."},
    {"endpoint", FIELD_CHOICE, FIELD_ANY, 0, 0, 0, AT(endpoint), endpoints,
     "As in the create call (default: the url of the first line); each line is counted for its own "
     "url."},
    {"model", FIELD_TEXT, FIELD_ANY, 1, MODEL_NAME_BYTES - 1, 0, AT(model), NULL,
     "To count with, whatever the lines name; without it they must name one."},
    {"pilot_lines", FIELD_INTEGER, FIELD_ANY, 0, API_PREFLIGHT_LINES_MAX, 0, AT(pilot_lines), NULL,
     "Requests to run for the time it takes; 48 without it, and 0 runs none."},
    {"watts", FIELD_NUMBER, FIELD_ANY, 0, PRICE_MAX, 0, AT(prices.watts), NULL,
     "What the machine draws at work."},
    {"price_per_kwh", FIELD_NUMBER, FIELD_ANY, 0, PRICE_MAX, 0, AT(prices.per_kwh), NULL,
     "Of electricity."},
    {"input_price", FIELD_NUMBER, FIELD_ANY, 0, PRICE_MAX, 0, AT(prices.input_per_million), NULL,
     "Of a million input tokens at a managed API."},
    {"output_price", FIELD_NUMBER, FIELD_ANY, 0, PRICE_MAX, 0, AT(prices.output_per_million), NULL,
     "Of a million output tokens there."},
    {"cached_price", FIELD_NUMBER, FIELD_ANY, 0, PRICE_MAX, 0, AT(prices.cached_per_million), NULL,
     "Of a million cached input tokens there; without it, that of input."},
    {"rent_per_hour", FIELD_NUMBER, FIELD_ANY, 0, PRICE_MAX, 0, AT(prices.rent_per_hour), NULL,
     "Of a rented machine for an hour."},
    {"rent_speed", FIELD_NUMBER, FIELD_ANY, 0.001, PRICE_MAX, 0, AT(prices.rent_speed), NULL,
     "How often as fast as this machine the rented one is; 1 without it."},
    {"times_per_month", FIELD_INTEGER, FIELD_ANY, 0, PRICE_MAX, 0, AT(prices.times_per_month), NULL,
     "How often the job runs, to report its costs per month."},
    {"currency", FIELD_TEXT, FIELD_ANY, 1, CURRENCY_BYTES - 1, 0, AT(currency), NULL,
     "Of all prices."},
    {"batch_discount", FIELD_NUMBER, FIELD_ANY, 0, 1, 0, AT(prices.batch_discount), NULL,
     "Share of its price that it takes off for batches."},
};
#undef AT
const struct fields preflight_fields = {rows, sizeof rows / sizeof *rows, false, api_field_refuse};

/* A question that waits or is worked on; it lives as long as its request. */
struct ask {
    struct queued_ask queued; /* first, so that the queue's pointer is this one's */
    struct api *api;
    struct http_request *request;
    struct api_preflight preflight;
    char model[MODEL_NAME_BYTES]; /* the client's name for it, then its worker's */
    char currency[CURRENCY_BYTES];
    int64_t deadline_ns;
};

/* --- whether anybody waits --- */

static bool is_stopping(struct api *api) {
    return preflight_queue_is_stopping(api->preflights) || atomic_load(&api->draining);
}

static bool is_gone(struct ask *ask) {
    return preflight_queue_is_gone(ask->api->preflights, &ask->queued);
}

static bool is_stopped(void *context) {
    struct ask *ask = context;
    return clock_monotonic_ns() >= ask->deadline_ns || is_gone(ask) || is_stopping(ask->api);
}

static void release(void *context) {
    struct ask *ask = context;
    os_close(ask->preflight.fd);
    free(ask);
}

/* Ends a request whose client has gone; no client reads this answer. */
static void answer_gone(struct ask *ask) {
    api_fail(ask->request, 499, NULL, NULL, "The client has gone.");
}

static void take_gone(void *context) {
    struct ask *ask = context;
    if (preflight_queue_leave(ask->api->preflights, &ask->queued)) answer_gone(ask);
}

/* --- the model --- */

struct found_model {
    char served[MODEL_NAME_BYTES];
    bool has_failed;
    char why[160];
};

static void keep_model(void *context, const struct runner_model *model) {
    struct found_model *found = context;
    snprintf(found->served, sizeof found->served, "%.*s", STR_ARGS(model->served.name));
    found->has_failed = model->state == MODEL_FAILED;
    snprintf(found->why, sizeof found->why, "%s", model->text ? model->text : "");
}

/* Finds the model to count with. False, and answered, if it is unknown or cannot be loaded. */
static bool find_model(struct ask *ask, struct str name, const char *whose,
                       char ret_served[MODEL_NAME_BYTES]) {
    struct found_model found = {0};
    if (!runner_model_find_anew(ask->api->options.runner, name, keep_model, &found)) {
        api_fail_model(ask->api, ask->request, name, whose);
        return false;
    }
    if (found.has_failed) {
        api_fail(ask->request, 503, "model_unavailable", "model",
                 "The model '%.255s' cannot be loaded: %s", found.served, found.why);
        return false;
    }
    memcpy(ret_served, found.served, MODEL_NAME_BYTES);
    return true;
}

/* The names in the lines of a file so far. */
struct names_seen {
    char at[NAMES_KNOWN][MODEL_NAME_BYTES];
    size_t count;
};

static bool was_seen(const struct names_seen *seen, struct str name) {
    for (size_t i = 0; i < seen->count; i++)
        if (str_is(name, seen->at[i])) return true;
    return false;
}

/* Takes the model of one line. False, and answered, if it is not that of the lines before. */
static bool take_name(struct ask *ask, struct names_seen *seen, struct str name) {
    char served[MODEL_NAME_BYTES];
    if (was_seen(seen, name)) return true;
    if (!find_model(ask, name, ", which the file names,", served)) return false;
    if (*ask->model && strcmp(ask->model, served) != 0) {
        api_fail_param(ask->request, "missing_required_parameter", "model",
                       "The file names several models, '%.255s' and '%.255s': say in 'model' which "
                       "one to count with.",
                       ask->model, served);
        return false;
    }
    memcpy(ask->model, served, sizeof ask->model);
    if (seen->count < NAMES_KNOWN && name.bytes < MODEL_NAME_BYTES) {
        memcpy(seen->at[seen->count], name.at, name.bytes);
        seen->at[seen->count++][name.bytes] = '\0';
    }
    return true;
}

/* Finds the model that all lines name, or none if no line names one. False if the request has been
 * answered; *error is not OK if the file could not be read or the client no longer waits. */
static bool read_models(struct ask *ask, struct error *error) {
    struct names_seen seen = {.count = 0};
    struct jsonl_file file;
    struct str text;
    struct buf scratch;
    uint64_t bytes;
    bool good = true;
    jsonl_file_init(&file);
    buf_init(&scratch, BATCH_LINE_BYTES_MAX + 1);
    enum err err = os_file_bytes(ask->preflight.fd, &bytes, error);
    if (err == OK) jsonl_file_borrow(&file, ask->preflight.fd, bytes);
    for (uint64_t i = 0; err == OK && good && jsonl_file_next(&file, &text); i++) {
        struct batch_line line;
        if (i % LINES_A_LOOK == 0 && is_stopped(ask))
            err = err_set(error, ERR_CANCELLED, "stopped");
        bool names_one = batch_line_read(text, &line) == BATCH_LINE_READ && line.model.at &&
                         *line.model.at == '"';
        if (err == OK && names_one)
            good = take_name(ask, &seen, json_span_text(line.model, &scratch));
    }
    if (err == OK && file.failed) (void)err_set(error, ERR_IO, "the file: %s", file.why.text);
    jsonl_file_close(&file);
    buf_release(&scratch);
    return good;
}

/* --- answering --- */

/* Answers after the time limit. The same question would take as long again, so clients must not
 * repeat it by themselves. */
static void answer_late(struct ask *ask, int64_t limit_ms) {
    struct buf body;
    char message[200];
    const struct http_header header = {"x-should-retry", "false"};
    snprintf(
        message, sizeof message,
        "The preflight was not done within %lld s; with fewer pilot_lines, or 0, it takes less.",
        (long long)(limit_ms / 1000));
    buf_init(&body, 65536);
    envelope_write(&body, 504, "preflight_timeout", NULL, str_from(message));
    http_answer(ask->request,
                &(struct http_answer){
                    .status = 504, .body = buf_str(&body), .headers = &header, .header_count = 1});
    buf_release(&body);
}

static void answer(struct ask *ask, enum err err, const struct error *error, struct buf *json) {
    if (err == OK)
        http_answer(ask->request, &(struct http_answer){.status = 200, .body = buf_str(json)});
    else if (err == ERR_CANCELLED && is_gone(ask))
        answer_gone(ask);
    else if (err == ERR_CANCELLED && is_stopping(ask->api))
        api_fail(ask->request, 503, NULL, NULL, "The server is draining; try again later");
    else if (err == ERR_CANCELLED)
        answer_late(ask, ask->api->options.preflight_ms);
    else
        api_fail_err(ask->request, err, error, NULL);
}

/* Works on a question and answers it. Afterwards the request may be freed, and the question with
 * it. */
static void work_on(struct queued_ask *queued) {
    struct ask *ask = (struct ask *)queued;
    const struct api_options *options = &ask->api->options;
    struct error error = {0};
    struct buf json;
    ask->deadline_ns = clock_monotonic_ns() + options->preflight_ms * 1000000;
    if (*ask->model) {
        if (!find_model(ask, str_from(ask->model), "", ask->model)) return;
    } else if (!read_models(ask, &error)) {
        return;
    }
    buf_init(&json, ANSWER_BYTES_MAX);
    ask->preflight.model = ask->model;
    ask->preflight.context = ask;
    ask->preflight.stopped = is_stopped;
    enum err err = error.code;
    if (err == OK)
        err = options->preflight(options->preflight_context, &ask->preflight, &json, &error);
    answer(ask, err, &error, &json);
    buf_release(&json);
}

/* --- the route --- */

/* Opens the file. False, and answered, if it does not exist, the caller may not see it, or its
 * purpose is wrong. */
static bool open_file(struct api *api, struct http_request *request, struct str id, int *ret_fd) {
    struct store_file file;
    struct error error;
    char message[200];
    int fd = -1;
    enum err err = store_file_open(api->options.store, id, clock_unix_s(), &fd, &file, &error);
    if (err == OK && !api_may_see(request, file.owner)) err = ERR_NOT_FOUND;
    if (err == ERR_NOT_FOUND)
        err_set(&error, err, "No such File object: %.80s", api_text(request, id));
    if (err == OK && strcmp(file.purpose, "batch") != 0) {
        snprintf(message, sizeof message,
                 "The file '%s' has the purpose '%s'; a batch needs one with the purpose 'batch'.",
                 file.id, file.purpose);
        err = err_set(&error, ERR_INVALID, "%s", message);
    }
    if (err == OK) {
        *ret_fd = fd;
        return true;
    }
    os_close(fd);
    api_fail_err(request, err, &error, "input_file_id");
    return false;
}

static void put_question(struct api *api, struct http_request *request,
                         const struct question *question) {
    int fd;
    if (!open_file(api, request, question->file_id, &fd)) return;
    struct ask *ask = mem_new(1, sizeof *ask);
    ask->api = api;
    ask->request = request;
    memcpy(ask->queued.owner, http_request_caller(request)->owner, sizeof ask->queued.owner);
    ask->preflight = (struct api_preflight){.fd = fd,
                                            .endpoint = ENDPOINT_COUNT,
                                            .pilot_lines = (uint32_t)question->pilot_lines,
                                            .prices = question->prices};
    if (question->currency.at) {
        memcpy(ask->currency, question->currency.at, question->currency.bytes);
        ask->preflight.prices.currency = ask->currency;
    }
    if (question->endpoint.at) (void)endpoint_find(question->endpoint, &ask->preflight.endpoint);
    if (question->model.at) memcpy(ask->model, question->model.at, question->model.bytes);
    http_request_on_gone(request, take_gone, release, ask);
    switch (preflight_queue_add(api->preflights, &ask->queued)) {
    case PREFLIGHT_QUEUED: return; /* the request may be over */
    case PREFLIGHT_GONE: answer_gone(ask); return;
    case PREFLIGHT_TOO_MANY: break;
    }
    api_fail(request, 429, "rate_limit_exceeded", NULL,
             "Other preflights wait already; try again later");
}

void preflight_create(void *context, struct http_request *request) {
    struct api *api = context;
    struct question question = {.pilot_lines = PILOT_LINES_DEFAULT};
    json_t *body;
    prices_init(&question.prices);
    if (api->options.prices) question.prices = *api->options.prices;
    if (!api->options.preflight) {
        inference_unsupported(api, request);
        return;
    }
    if (api_refuses_new_work(api, request) || !api_read_object(request, &body)) return;
    if (api_fields_read_all(request, &preflight_fields, body, &question))
        put_question(api, request, &question);
    json_decref(body);
}

/* --- opening and closing --- */

enum err preflights_open(struct api *api, struct error *error) {
    if (!api->options.preflight_ms) api->options.preflight_ms = PREFLIGHT_MS;
    return preflight_queue_open(&api->preflights, work_on, error);
}

void preflights_stop(struct api *api) {
    preflight_queue_stop(api->preflights);
}

void preflights_close(struct api *api) {
    preflight_queue_close(api->preflights);
    api->preflights = NULL;
}

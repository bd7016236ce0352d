/* SPDX-License-Identifier: Apache-2.0 */
#include "api/pulls.h"

#include "base/hash.h"
#include "base/mem.h"
#include "dialects/dialect.h"
#include "dialects/members.h"
#include "json/span.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pulls {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint32_t count;
    atomic_bool is_stopping;
};

/* One fetch. The HTTP request holds it until its end, its thread until it has answered. */
struct pull {
    struct api *api;
    struct http_request *request;
    char name[MODEL_NAME_BYTES];
    char digest[72]; /* stands for the files together: "sha256:" and the sum of the name */
    bool stream;
    atomic_bool is_gone;
    atomic_uint holds;
};

struct pulls *pulls_open(void) {
    struct pulls *pulls = mem_new(1, sizeof *pulls);
    pthread_mutex_init(&pulls->lock, NULL);
    pthread_cond_init(&pulls->ended, NULL);
    return pulls;
}

void pulls_stop(struct pulls *pulls) {
    if (!pulls) return;
    atomic_store(&pulls->is_stopping, true);
    pthread_mutex_lock(&pulls->lock);
    while (pulls->count > 0) pthread_cond_wait(&pulls->ended, &pulls->lock);
    pthread_mutex_unlock(&pulls->lock);
}

void pulls_close(struct pulls *pulls) {
    if (!pulls) return;
    pthread_cond_destroy(&pulls->ended);
    pthread_mutex_destroy(&pulls->lock);
    free(pulls);
}

static bool take_place(struct pulls *pulls) {
    pthread_mutex_lock(&pulls->lock);
    bool is_free = pulls->count < PULLS_MAX && !atomic_load(&pulls->is_stopping);
    pulls->count += is_free;
    pthread_mutex_unlock(&pulls->lock);
    return is_free;
}

static void give_place(struct pulls *pulls) {
    pthread_mutex_lock(&pulls->lock);
    pulls->count--;
    pthread_cond_broadcast(&pulls->ended);
    pthread_mutex_unlock(&pulls->lock);
}

/* --- one fetch --- */

static void drop(void *context) {
    struct pull *pull = context;
    if (atomic_fetch_sub(&pull->holds, 1) == 1) free(pull);
}

static void leave(void *context) {
    struct pull *pull = context;
    atomic_store(&pull->is_gone, true);
}

static bool is_stopped(void *context) {
    struct pull *pull = context;
    return atomic_load(&pull->is_gone) || atomic_load(&pull->api->pulls->is_stopping);
}

static void put_line(struct pull *pull, struct buf *line) {
    buf_add_byte(line, '\n');
    if (pull->stream && !http_stream_put(pull->request, buf_str(line)))
        atomic_store(&pull->is_gone, true);
    buf_clear(line);
}

static void put_status(struct pull *pull, const char *status) {
    struct buf line;
    buf_init(&line, 4096);
    buf_printf(&line, "{\"status\":\"%s\"}", status);
    put_line(pull, &line);
    buf_release(&line);
}

static void take_progress(void *context, uint64_t completed, uint64_t total) {
    struct pull *pull = context;
    struct buf line;
    if (total == 0) return;
    buf_init(&line, 4096);
    buf_printf(&line,
               "{\"status\":\"pulling %.12s\",\"digest\":\"%s\",\"total\":%" PRIu64
               ",\"completed\":%" PRIu64 "}",
               pull->digest + strlen("sha256:"), pull->digest, total, completed);
    put_line(pull, &line);
    buf_release(&line);
}

static void end_well(struct pull *pull) {
    if (pull->stream) {
        put_status(pull, "verifying sha256 digest");
        put_status(pull, "writing manifest");
        put_status(pull, "success");
        http_stream_end(pull->request);
        return;
    }
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"status\":\"success\"}");
    http_answer_json(pull->request, &body);
}

static void end_badly(struct pull *pull, const struct error *error) {
    struct buf line;
    if (!pull->stream) {
        api_fail(pull->request, 500, NULL, NULL, "%s", error->text);
        return;
    }
    buf_init(&line, 8192);
    buf_add_text(&line, "{\"error\":");
    json_write_string(&line, str_from(error->text));
    buf_add_byte(&line, '}');
    put_line(pull, &line);
    buf_release(&line);
    http_stream_end(pull->request);
}

static void *pull_main(void *context) {
    struct pull *pull = context;
    struct api *api = pull->api;
    struct error error;
    const struct api_pull asked = {pull->name, pull, is_stopped, take_progress};
    if (pull->stream) http_stream_begin_as(pull->request, "application/x-ndjson");
    put_status(pull, "pulling manifest");
    enum err err = api->options.pull(api->options.pull_context, &asked, &error);
    if (err == OK) {
        end_well(pull);
    } else {
        api_audit_failed(api, pull->request, "model.pull", pull->name, &error);
        end_badly(pull, &error);
    }
    drop(pull);
    give_place(api->pulls);
    return NULL;
}

static void start(struct api *api, struct http_request *request, struct str name, bool stream) {
    struct pull *pull = mem_new(1, sizeof *pull);
    struct sha256 hash;
    unsigned char sum[32];
    pthread_t thread;
    pull->api = api;
    pull->request = request;
    pull->stream = stream;
    memcpy(pull->name, name.at, name.bytes);
    sha256_init(&hash);
    sha256_add(&hash, name.at, name.bytes);
    sha256_end(&hash, sum);
    int at = snprintf(pull->digest, sizeof pull->digest, "sha256:");
    for (size_t i = 0; i < sizeof sum; i++)
        at += snprintf(pull->digest + at, sizeof pull->digest - (size_t)at, "%02x", sum[i]);
    atomic_store(&pull->holds, 2);
    http_request_on_gone(request, leave, drop, pull);
    if (pthread_create(&thread, NULL, pull_main, pull) != 0) {
        api_fail(request, 503, NULL, NULL, "There is no thread for this fetch; try again later");
        drop(pull);
        give_place(api->pulls);
        return;
    }
    pthread_setname_np(thread, "api-pull");
    pthread_detach(thread);
}

/* --- the route --- */

static void ignore_model(void *context, const struct runner_model *model) {
    (void)context, (void)model;
}

/* Whether a text may name a model of a hub; none of them is an option of a command. */
static bool is_name(struct str name) {
    if (name.bytes >= MODEL_NAME_BYTES || name.at[0] == '-') return false;
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.at[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_plain && !strchr("._-:/", c)) return false;
    }
    return true;
}

/* A model that is served is there. */
static void answer_there(struct http_request *request, bool stream) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    if (stream) buf_add_text(&body, "{\"status\":\"pulling manifest\"}\n");
    buf_add_text(&body, stream ? "{\"status\":\"success\"}\n" : "{\"status\":\"success\"}");
    http_answer(request, &(struct http_answer){.status = 200,
                                               .content_type = stream ? "application/x-ndjson"
                                                                      : "application/json",
                                               .body = buf_str(&body)});
    buf_release(&body);
}

static void pull(struct api *api, struct http_request *request, struct str name, bool stream) {
    if (!is_name(name)) {
        api_fail_param(request, "invalid_value", "model", "invalid model name");
        return;
    }
    if (runner_model_find(api->options.runner, name, ignore_model, NULL)) {
        answer_there(request, stream);
        return;
    }
    if (!api->options.pull) {
        api_fail(request, 501, "unsupported_endpoint", NULL,
                 "this server serves the models that it was started with; fetch others with "
                 "'quern pull', or start it without --model");
        return;
    }
    if (!api_audit(api, request, "model.pull", api_text(request, name))) return;
    if (take_place(api->pulls))
        start(api, request, name, stream);
    else
        api_fail(request, 503, NULL, NULL, "%d models are being fetched; try again later",
                 PULLS_MAX);
}

void ollama_post_pull(void *context, struct http_request *request) {
    struct str object, model, older, stream;
    const struct member places[] = {{"model", &model}, {"name", &older}, {"stream", &stream}};
    struct refusal refusal;
    struct buf name;
    if (!api_find_object(request, http_request_body(request), &object)) return;
    if (!members_read(object, places, 3, &refusal)) {
        api_refuse(request, &refusal);
        return;
    }
    if (!model.at) model = older;
    if (!json_span_is_string(model) || member_is_empty(model)) {
        api_fail_param(request, "missing_required_parameter", "model", "model is required");
        return;
    }
    if (stream.at && !member_is_bool(stream)) {
        api_fail_param(request, "invalid_type", "stream",
                       "Invalid type for 'stream': expected a boolean, got %s.",
                       member_kind(stream));
        return;
    }
    buf_init(&name, BUF_UNLIMITED);
    json_span_decode(&name, model);
    pull(context, request, buf_str(&name), !str_is(stream, "false"));
    buf_release(&name);
}

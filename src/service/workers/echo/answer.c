/* SPDX-License-Identifier: Apache-2.0 */

/* The answers of the echo worker: a request's own text in the shape of its endpoint. */

#include "workers/echo/echo_internal.h"

#include "json/envelope.h"
#include "json/json.h"
#include "json/span.h"
#include "workers/echo/vectors.h"

#include <inttypes.h>
#include <string.h>

struct str echo_wishes(struct str body) {
    /* Most have none, and a search is cheaper than reading the object. */
    if (!memmem(body.at, body.bytes, "\"echo\"", 6)) return (struct str){NULL, 0};
    struct str echo = json_span_get(body, "echo");
    return json_span_is_object(echo) ? echo : (struct str){NULL, 0};
}

/* Appends the text of a message's content, as the inside of a JSON string. */
static void add_content(struct buf *buf, struct str content) {
    if (json_span_is_string(content)) {
        json_span_add_ascii(buf, (struct str){content.at + 1, content.bytes - 2});
        return;
    }
    struct json_span_iter iter;
    struct str part;
    if (content.bytes == 0 || *content.at != '[' || !json_span_enter(&iter, content)) return;
    while (json_span_element(&iter, &part)) {
        struct str text = json_span_is_string(part) ? part : json_span_get(part, "text");
        if (json_span_is_string(text))
            json_span_add_ascii(buf, (struct str){text.at + 1, text.bytes - 2});
    }
}

/* The content of the last message of a user. */
static struct str last_user(struct str body) {
    struct json_span_iter iter;
    struct str message, found = {NULL, 0}, messages = json_span_get(body, "messages");
    if (messages.bytes == 0 || *messages.at != '[' || !json_span_enter(&iter, messages))
        return found;
    while (json_span_element(&iter, &message))
        if (json_span_string_is(json_span_get(message, "role"), "user"))
            found = json_span_get(message, "content");
    return found;
}

static void add_usage(struct buf *buf, const struct usage *usage) {
    buf_printf(buf,
               "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
               ",\"total_tokens\":%" PRIu64 ","
               "\"prompt_tokens_details\":{\"cached_tokens\":0},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
               usage->input_tokens, usage->output_tokens,
               usage->input_tokens + usage->output_tokens);
}

static void add_head(struct buf *buf, const char *id, const char *object, struct str model) {
    buf_printf(buf, "{\"id\":\"%s-echo\",\"object\":\"%s\",\"created\":%d,\"model\":", id, object,
               ECHO_CREATED_UNIX_S);
    if (json_span_is_string(model))
        json_span_add_ascii(buf, model);
    else
        buf_add_text(buf, "null");
}

/* Lines of batches report the default tier, as the engine's do. */
static const char *shown_tier(enum tier tier) {
    if (tier == TIER_PRIORITY) return "priority";
    return tier == TIER_FLEX ? "flex" : "default";
}

static void answer_chat(struct buf *buf, struct str text, struct str model, enum tier tier,
                        struct str wishes, const struct usage *usage) {
    struct str finish_reason = json_span_get(wishes, "finish_reason");
    struct str logprobs = json_span_get(wishes, "logprobs");
    add_head(buf, "chatcmpl", "chat.completion", model);
    buf_printf(buf, ",\"system_fingerprint\":null,\"service_tier\":\"%s\"", shown_tier(tier));
    buf_add_text(buf, ",\"choices\":[{"
                      "\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
    buf_add_str(buf, text);
    buf_add_text(buf, "\",\"refusal\":null},\"logprobs\":");
    buf_add_str(buf, json_span_is_object(logprobs) ? logprobs : STR("null"));
    buf_add_text(buf, ",\"finish_reason\":");
    buf_add_str(buf, json_span_is_string(finish_reason) ? finish_reason : STR("\"stop\""));
    buf_add_text(buf, "}],");
    add_usage(buf, usage);
    buf_add_byte(buf, '}');
}

static void answer_completion(struct buf *buf, struct str text, struct str model,
                              const struct usage *usage) {
    add_head(buf, "cmpl", "text_completion", model);
    buf_add_text(buf, ",\"choices\":[{\"text\":\"");
    buf_add_str(buf, text);
    buf_add_text(buf, "\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"}],");
    add_usage(buf, usage);
    buf_add_byte(buf, '}');
}

static void answer_numbers(struct buf *buf, enum endpoint endpoint, struct str body,
                           struct str model, const struct usage *usage) {
    if (endpoint == ENDPOINT_EMBEDDINGS || endpoint == ENDPOINT_POOLING) {
        buf_add_text(buf, "{\"object\":\"list\",\"model\":");
        json_span_add_ascii(buf, json_span_is_string(model) ? model : STR("null"));
        buf_add_text(buf, ",\"data\":");
        if (endpoint == ENDPOINT_EMBEDDINGS)
            echo_write_vectors(buf, body);
        else
            buf_add_text(buf, "[{\"index\":0,\"object\":\"pooling\",\"data\":[0.5]}]");
        buf_add_byte(buf, ',');
    } else if (endpoint == ENDPOINT_CLASSIFY) {
        add_head(buf, "classify", "list", model);
        buf_add_text(buf, ",\"data\":[{\"index\":0,\"label\":\"echo\",\"probs\":[1.0],"
                          "\"num_classes\":1}],");
    } else if (endpoint == ENDPOINT_RERANK) {
        add_head(buf, "rerank", "list", model);
        buf_add_text(buf, ",\"results\":[{\"index\":0,\"relevance_score\":0.5}],");
    } else {
        add_head(buf, "score", "list", model);
        buf_add_text(buf, ",\"data\":[{\"index\":0,\"object\":\"score\",\"score\":0.5}],");
    }
    buf_printf(buf, "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
               usage->input_tokens, usage->input_tokens);
}

/* The one chunk of a stream: the whole of echo->text. */
static void send_delta(struct echo *echo, const struct echo_job *job, struct str model) {
    if (!job->job.stream || !echo->events.delta) return;
    struct buf chunk;
    buf_init(&chunk, ECHO_ANSWER_BYTES_MAX);
    add_head(&chunk, "chatcmpl", "chat.completion.chunk", model);
    buf_add_text(&chunk, ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
                         "\"content\":\"");
    buf_add(&chunk, echo->text.at, echo->text.bytes);
    buf_add_text(&chunk, "\"},\"logprobs\":null,\"finish_reason\":\"stop\"}]}");
    struct worker_delta delta = {.id = job->job.id, .chunk = buf_str(&chunk)};
    echo->events.delta(echo->events.context, &delta);
    buf_release(&chunk);
}

/* The name of the served model as JSON. */
static struct str model_of(struct echo *echo, const struct echo_job *job) {
    if (!*job->model) return json_span_get((struct str){job->body, job->bytes}, "model");
    buf_clear(&echo->model);
    json_write_string(&echo->model, str_from(job->model));
    return buf_str(&echo->model);
}

/* Makes the answer an error if its request asks for another form. */
static void compare(struct echo *echo, const struct echo_job *job, struct worker_result *result) {
    const struct worker_echo_options *options = &echo->options;
    struct str body = {job->body, job->bytes};
    struct refusal refusal;
    const char *param = NULL;
    bool generates =
        job->job.endpoint == ENDPOINT_CHAT || job->job.endpoint == ENDPOINT_COMPLETIONS;
    if (!generates) return;
    bool is_good = !options->check || options->check(body, &refusal);
    if (is_good && options->look) result->shape = options->look(body, result->body, &param);
    if (is_good && result->shape == SHAPE_MISMATCHED)
        is_good = refuse(&refusal, "unsupported_parameter", param,
                         "Unsupported parameter: '%s': the echo worker repeats the text of a "
                         "request, and this text has another form.",
                         param);
    if (is_good) return;
    buf_clear(&echo->answer);
    refusal_write(&echo->answer, &refusal);
    result->status = refusal.status;
    result->body = buf_str(&echo->answer);
}

void echo_answer(struct echo *echo, const struct echo_job *job) {
    struct worker_result result = {.id = job->job.id, .status = 200};
    struct str body = {job->body, job->bytes}, model = model_of(echo, job);
    buf_clear(&echo->answer);
    buf_clear(&echo->text);
    result.usage.input_tokens = job->bytes;
    switch (job->job.endpoint) {
    case ENDPOINT_CHAT:
    case ENDPOINT_COMPLETIONS:
        add_content(&echo->text, job->job.endpoint == ENDPOINT_CHAT
                                     ? last_user(body)
                                     : json_span_get(body, "prompt"));
        result.usage.output_tokens = echo->text.bytes;
        if (job->job.endpoint == ENDPOINT_CHAT)
            answer_chat(&echo->answer, buf_str(&echo->text), model, job->job.tier,
                        echo_wishes(body), &result.usage);
        else
            answer_completion(&echo->answer, buf_str(&echo->text), model, &result.usage);
        break;
    case ENDPOINT_EMBEDDINGS:
    case ENDPOINT_SCORE:
    case ENDPOINT_RERANK:
    case ENDPOINT_POOLING:
    case ENDPOINT_CLASSIFY:
        answer_numbers(&echo->answer, job->job.endpoint, body, model, &result.usage);
        break;
    case ENDPOINT_DECISIONS:
    case ENDPOINT_SYSTEMONE:
        envelope_write(&echo->answer, 400, "unsupported_model", "model",
                       STR("The echo worker has no model, so it cannot be asked questions."));
        result.status = 400;
        break;
    default: /* it counts bytes, and has no words */
        envelope_write(&echo->answer, 400, "unsupported_endpoint", NULL,
                       STR("The echo worker has no tokenizer."));
        result.status = 400;
        break;
    }
    result.body = buf_str(&echo->answer);
    if (result.status == 200) compare(echo, job, &result);
    if (result.status == 200) send_delta(echo, job, model);
    echo->events.result(echo->events.context, &result);
}

void echo_answer_error(struct echo *echo, const struct echo_job *job, int32_t status,
                       enum outcome outcome, const char *message) {
    buf_clear(&echo->answer);
    envelope_write(&echo->answer, status, NULL, NULL, str_from(message));
    struct worker_result result = {
        .id = job->job.id, .outcome = outcome, .status = status, .body = buf_str(&echo->answer)};
    echo->events.result(echo->events.context, &result);
}

void echo_fail_as_told(struct echo *echo, const struct echo_job *job) {
    struct str body = {job->body, job->bytes};
    buf_clear(&echo->text);
    add_content(&echo->text, last_user(body));
    send_delta(echo, job, json_span_get(body, "model"));
    echo_answer_error(echo, job, (int32_t)job->told_status,
                      job->told_status == 503 ? OUTCOME_TRY_AGAIN : OUTCOME_DONE,
                      "told to by the request");
}

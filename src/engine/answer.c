/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/answer.h"

#include "base/utf8.h"
#include "json/json.h"

#include <assert.h>
#include <math.h>

/* What JSON can carry in place of minus infinity (as the OpenAI API does). */
#define LOGPROB_FLOOR (-9999.0)

static bool is_chat(const struct job *job) {
    return job->endpoint == WIRE_ENDPOINT_CHAT;
}

/* The tier that was used. A batch line reports the default tier, which is all that clients know. */
static const char *tier_name(const struct job *job) {
    switch (job->tier) {
    case WIRE_TIER_PRIORITY: return "priority";
    case WIRE_TIER_FLEX: return "flex";
    default: return "default";
    }
}

/* As a JSON string; invalid UTF-8 becomes U+FFFD. */
static void write_repaired(struct buf *out, struct str bytes) {
    json_write_string(out, bytes.bytes ? bytes : STR(""));
}

/* `"key":` with the comma before it, for members after the first. */
static void write_key(struct buf *out, const char *key) {
    buf_printf(out, ",\"%s\":", key);
}

static void write_head(struct buf *out, const struct answer_source *source, const struct job *job,
                       const char *object) {
    buf_add_text(out, "{\"id\":");
    json_write_string(out, str_from(job->response_id));
    buf_printf(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
               (long long)job->created_unix_s);
    json_write_string(out, source->model_name);
    write_key(out, "system_fingerprint");
    json_write_string(out, str_from(source->fingerprint));
    buf_printf(out, ",\"service_tier\":\"%s\"", tier_name(job));
}

static void write_usage(struct buf *out, const struct job *job) {
    struct wire_result usage;
    job_usage(job, &usage);
    buf_printf(out,
               "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%u},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%u}}",
               usage.prompt_tokens, usage.completion_tokens,
               usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens,
               usage.reasoning_tokens);
}

static void write_logprob(struct buf *out, float logprob) {
    double value = isfinite(logprob) && logprob > (float)LOGPROB_FLOOR ? logprob : LOGPROB_FLOOR;
    if (value > 0) value = 0; /* rounding */
    buf_printf(out, "%.9g", value == 0 ? 0.0 : value);
}

static void token_bytes(const struct answer_source *source, int32_t token, struct buf *bytes) {
    buf_clear(bytes);
    tokenizer_decode(source->tokenizer, token, true, bytes);
}

/* `"token":…,"logprob":…,"bytes":[…]` */
static void write_token(struct buf *out, const struct answer_source *source, int32_t token,
                        float logprob, struct buf *scratch) {
    token_bytes(source, token, scratch);
    buf_add_text(out, "\"token\":");
    write_repaired(out, buf_str(scratch));
    write_key(out, "logprob");
    write_logprob(out, logprob);
    write_key(out, "bytes");
    for (size_t i = 0; i < scratch->bytes; i++)
        buf_printf(out, "%c%u", i ? ',' : '[', (unsigned char)scratch->at[i]);
    buf_add_text(out, scratch->bytes ? "]" : "[]");
}

/* The logprobs object of a chat choice, for entries [first, end). */
static void write_chat_logprobs(struct buf *out, const struct answer_source *source,
                                const struct choice *choice, size_t first, size_t end) {
    struct buf scratch;
    buf_init(&scratch, CHOICE_TEXT_BYTES_MAX);
    buf_add_text(out, "{\"content\":[");
    for (size_t i = first; i < end; i++) {
        const struct choice_logprob *entry = &choice->logprobs[i];
        buf_add_text(out, i > first ? ",{" : "{");
        write_token(out, source, entry->token, entry->logprob, &scratch);
        buf_add_text(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < entry->top_count; k++) {
            const struct token_logprob *top = &choice->tops[entry->top_at + k];
            buf_add_text(out, k ? ",{" : "{");
            write_token(out, source, top->token, top->logprob, &scratch);
            buf_add_byte(out, '}');
        }
        buf_add_text(out, "]}");
    }
    buf_add_text(out, "],\"refusal\":null}");
    buf_release(&scratch);
}

static void write_text_top(struct buf *out, const struct answer_source *source,
                           const struct choice *choice, const struct choice_logprob *entry,
                           struct buf *scratch) {
    bool has_own = false;
    buf_add_byte(out, '{');
    for (uint32_t k = 0; k < entry->top_count; k++) {
        const struct token_logprob *top = &choice->tops[entry->top_at + k];
        has_own = has_own || top->token == entry->token;
        if (k > 0) buf_add_byte(out, ',');
        token_bytes(source, top->token, scratch);
        write_repaired(out, buf_str(scratch));
        buf_add_byte(out, ':');
        write_logprob(out, top->logprob);
    }
    if (!has_own) {
        if (entry->top_count > 0) buf_add_byte(out, ',');
        token_bytes(source, entry->token, scratch);
        write_repaired(out, buf_str(scratch));
        buf_add_byte(out, ':');
        write_logprob(out, entry->logprob);
    }
    buf_add_byte(out, '}');
}

static size_t repaired_count(struct str bytes) {
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    utf8_add_repaired(&text, bytes);
    size_t count = utf8_count(buf_str(&text));
    buf_release(&text);
    return count;
}

/* Offsets count the characters of the whole text, from its echo on. */
static void write_text_offsets(struct buf *out, const struct choice *choice, size_t echo_count,
                               size_t first, size_t end) {
    size_t offset = echo_count, raw_at = 0;
    for (size_t i = 0; i < end; i++) {
        size_t at = choice->logprobs[i].raw_at;
        offset += repaired_count((struct str){choice->raw.at + raw_at, at - raw_at});
        raw_at = at;
        if (i >= first) buf_printf(out, "%s%zu", i > first ? "," : "", offset);
    }
}

static void write_text_logprobs(struct buf *out, const struct answer_source *source,
                                const struct choice *choice, size_t echo_count, size_t first,
                                size_t end) {
    struct buf scratch;
    buf_init(&scratch, CHOICE_TEXT_BYTES_MAX);
    buf_add_text(out, "{\"tokens\":[");
    for (size_t i = first; i < end; i++) {
        if (i > first) buf_add_byte(out, ',');
        token_bytes(source, choice->logprobs[i].token, &scratch);
        write_repaired(out, buf_str(&scratch));
    }
    buf_add_text(out, "],\"token_logprobs\":[");
    for (size_t i = first; i < end; i++) {
        if (i > first) buf_add_byte(out, ',');
        write_logprob(out, choice->logprobs[i].logprob);
    }
    buf_add_text(out, "],\"top_logprobs\":[");
    for (size_t i = first; i < end; i++) {
        if (i > first) buf_add_byte(out, ',');
        write_text_top(out, source, choice, &choice->logprobs[i], &scratch);
    }
    buf_add_text(out, "],\"text_offset\":[");
    write_text_offsets(out, choice, echo_count, first, end);
    buf_add_text(out, "]}");
    buf_release(&scratch);
}

static const struct buf *echo_of(const struct job *job, uint32_t choice_index) {
    return &job->prompts[choice_index / (uint32_t)job->request.choices].echo;
}

/* The `logprobs` member for the entries [first, end), null when the request did not ask. */
static void write_logprobs(struct buf *out, const struct answer_source *source,
                           const struct job *job, uint32_t choice_index, size_t first, size_t end) {
    const struct choice *choice = &job->choices[choice_index];
    write_key(out, "logprobs");
    if (!job->request.logprobs)
        buf_add_text(out, "null");
    else if (is_chat(job))
        write_chat_logprobs(out, source, choice, first, end);
    else
        write_text_logprobs(out, source, choice,
                            repaired_count(buf_str(echo_of(job, choice_index))), first, end);
}

static void write_choice(struct buf *out, const struct answer_source *source, const struct job *job,
                         uint32_t index) {
    const struct choice *choice = &job->choices[index];
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    utf8_add_repaired(&text, buf_str(echo_of(job, index)));
    utf8_add_repaired(&text, buf_str(&choice->raw));
    buf_printf(out, "{\"index\":%u,", index);
    if (is_chat(job)) {
        buf_add_text(out, "\"message\":{\"role\":\"assistant\",\"content\":");
        write_repaired(out, buf_str(&text));
        buf_add_text(out, ",\"refusal\":null}");
    } else {
        buf_add_text(out, "\"text\":");
        write_repaired(out, buf_str(&text));
    }
    buf_release(&text);
    /* From the first on, whatever a stream has shown. */
    struct choice whole = *choice;
    whole.logprobs_shown = 0;
    write_logprobs(out, source, job, index, 0, choice_logprobs_shown(&whole, whole.raw.bytes));
    buf_printf(out, ",\"finish_reason\":\"%s\"}", choice_reason(choice));
}

void answer_write_body(struct buf *out, const struct answer_source *source, const struct job *job) {
    write_head(out, source, job, is_chat(job) ? "chat.completion" : "text_completion");
    buf_add_text(out, ",\"choices\":[");
    for (uint32_t i = 0; i < job->choice_count; i++) {
        assert(job->choices[i].is_done);
        if (i > 0) buf_add_byte(out, ',');
        write_choice(out, source, job, i);
    }
    buf_add_text(out, "],");
    write_usage(out, job);
    buf_add_byte(out, '}');
}

static void write_chunk_head(struct buf *out, const struct answer_source *source,
                             const struct job *job, uint32_t index) {
    write_head(out, source, job, is_chat(job) ? "chat.completion.chunk" : "text_completion");
    buf_printf(out, ",\"choices\":[{\"index\":%u,", index);
}

static void write_chunk_end(struct buf *out, const struct job *job, const char *reason) {
    write_key(out, "finish_reason");
    if (reason)
        buf_printf(out, "\"%s\"}]", reason);
    else
        buf_add_text(out, "null}]");
    buf_add_text(out, job->request.include_usage ? ",\"usage\":null}" : "}");
}

/* `delta` or `text` with this much of the answer; no content at all when `text` is NULL. */
static void write_piece(struct buf *out, const struct job *job, const struct str *text,
                        bool is_first) {
    if (!is_chat(job)) {
        buf_add_text(out, "\"text\":");
        write_repaired(out, text ? *text : STR(""));
        return;
    }
    buf_add_text(out, "\"delta\":{");
    if (is_first) buf_add_text(out, "\"role\":\"assistant\",");
    if (text) {
        buf_add_text(out, "\"content\":");
        write_repaired(out, *text);
    }
    buf_add_byte(out, '}');
}

/* A chat begins with the role; the echo of either kind comes before the first sampled text. */
static bool write_first_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                              uint32_t index) {
    struct choice *choice = &job->choices[index];
    choice->has_begun = true;
    struct str echo = buf_str(echo_of(job, index));
    if (!is_chat(job) && echo.bytes == 0) return false;
    write_chunk_head(out, source, job, index);
    write_piece(out, job, &echo, true);
    write_key(out, "logprobs");
    buf_add_text(out, "null");
    write_chunk_end(out, job, NULL);
    return true;
}

bool answer_write_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                        uint32_t choice_index) {
    struct choice *choice = &job->choices[choice_index];
    if (!choice->has_begun && write_first_chunk(out, source, job, choice_index)) return true;
    size_t shown = choice_shown(choice, &job->request);
    size_t logprobs = choice_logprobs_shown(choice, shown);
    if (shown > choice->shown || logprobs > choice->logprobs_shown) {
        struct str piece = {choice->raw.at + choice->shown, shown - choice->shown};
        write_chunk_head(out, source, job, choice_index);
        write_piece(out, job, &piece, false);
        write_logprobs(out, source, job, choice_index, choice->logprobs_shown, logprobs);
        write_chunk_end(out, job, NULL);
        choice->shown = shown;
        choice->logprobs_shown = logprobs;
        return true;
    }
    if (!choice->is_done || choice->has_ended) return false;
    choice->has_ended = true;
    write_chunk_head(out, source, job, choice_index);
    write_piece(out, job, NULL, false);
    write_key(out, "logprobs");
    buf_add_text(out, "null");
    write_chunk_end(out, job, choice_reason(choice));
    return true;
}

void answer_write_usage_chunk(struct buf *out, const struct answer_source *source,
                              const struct job *job) {
    write_head(out, source, job, is_chat(job) ? "chat.completion.chunk" : "text_completion");
    buf_add_text(out, ",\"choices\":[],");
    write_usage(out, job);
    buf_add_byte(out, '}');
}

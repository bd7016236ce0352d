/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/answer.h"

#include "base/utf8.h"
#include "engine/logprobs.h"
#include "json/json.h"

#include <assert.h>
#include <inttypes.h>

static bool is_chat(const struct job *job) {
    return job->endpoint == ENDPOINT_CHAT;
}

/* The tier that the answer reports. A batch line reports the default tier, which clients know,
 * unless its body names another. */
static const char *shown_tier(const struct job *job) {
    switch (job->tier) {
    case TIER_PRIORITY: return "priority";
    case TIER_FLEX: return "flex";
    case TIER_BATCH: return str_is(job->request.service_tier, "batch") ? "batch" : "default";
    default: return "default";
    }
}

/* Appends bytes as a JSON string; invalid UTF-8 becomes U+FFFD. */
static void write_repaired(struct buf *out, struct str bytes) {
    json_write_string(out, bytes.bytes ? bytes : STR(""));
}

/* Appends `,"key":`, for members after the first. */
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
    buf_printf(out, ",\"service_tier\":\"%s\"", shown_tier(job));
}

static void write_usage(struct buf *out, const struct job *job) {
    struct usage usage = job_usage(job);
    buf_printf(out,
               "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
               ",\"total_tokens\":%" PRIu64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64
               "},\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu64 "}}",
               usage.input_tokens, usage.output_tokens, usage.input_tokens + usage.output_tokens,
               usage.cached_tokens, usage.reasoning_tokens);
}

/* Appends the usage up to now, in the middle of a stream. */
static void write_usage_so_far(struct buf *out, const struct job *job) {
    uint64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
    for (size_t i = 0; i < job->request.prompt_count; i++) {
        prompt_tokens += job->prompts[i].token_count;
        cached_tokens += job->choices[i * (size_t)job->request.candidates].cached_tokens;
    }
    for (uint32_t i = 0; i < job->choice_count; i++)
        completion_tokens += job->choices[i].token_count;
    buf_printf(out,
               ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
               ",\"total_tokens\":%" PRIu64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64
               "}}",
               prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, cached_tokens);
}

static void write_ids(struct buf *out, const char *key, const struct ids *ids, size_t first) {
    write_key(out, key);
    buf_add_byte(out, '[');
    for (size_t i = first; i < ids->count; i++)
        buf_printf(out, "%s%d", i > first ? "," : "", ids->at[i]);
    buf_add_byte(out, ']');
}

static const struct prompt *prompt_of(const struct job *job, uint32_t choice_index) {
    return &job->prompts[choice_index / (uint32_t)job->request.candidates];
}

static struct logprobs_form form_of(const struct answer_source *source, const struct job *job) {
    return (struct logprobs_form){source->tokenizer, job->request.tokens_as_ids};
}

static struct logprobs_prompt scored_prompt(const struct job *job, const struct prompt *prompt,
                                            int64_t top_max) {
    return (struct logprobs_prompt){.ids = prompt->ids.at,
                                    .count = prompt->ids.count,
                                    .scores = &prompt->scores,
                                    .top_max = (uint32_t)top_max,
                                    .shows_special = !job->request.skip_special_tokens};
}

/* Appends the `logprobs` member for the entries [first, end), null if the request did not ask for
 * it; `with_echo`: after those of the prompt. */
static void write_logprobs(struct buf *out, const struct answer_source *source,
                           const struct job *job, uint32_t choice_index, size_t first, size_t end,
                           bool with_echo) {
    const struct choice *choice = &job->choices[choice_index];
    struct logprobs_form form = form_of(source, job);
    write_key(out, "logprobs");
    if (!job->request.logprobs) {
        buf_add_text(out, "null");
    } else if (is_chat(job)) {
        logprobs_write_chat(out, &form, &choice->logprobs, first, end);
    } else {
        const struct prompt *prompt = prompt_of(job, choice_index);
        struct logprobs_prompt scored = scored_prompt(job, prompt, job->request.top_logprobs);
        logprobs_write_text(out, &form, with_echo && job->request.echo ? &scored : NULL,
                            &choice->logprobs, first, end,
                            logprobs_characters(buf_str(&prompt->echo)));
    }
}

static void write_prompt_logprobs(struct buf *out, const struct answer_source *source,
                                  const struct job *job, const struct prompt *prompt) {
    if (!job->request.has_prompt_logprobs) return;
    struct logprobs_form form = form_of(source, job);
    struct logprobs_prompt scored = scored_prompt(job, prompt, job->request.prompt_logprobs);
    write_key(out, "prompt_logprobs");
    logprobs_write_prompt(out, &form, &scored);
}

/* ---- the whole body ---- */

static void write_tool_call(struct buf *out, const struct tool_call *call, bool with_arguments) {
    buf_add_text(out, "\"id\":");
    json_write_string(out, str_from(call->id));
    buf_add_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    write_repaired(out, buf_str(&call->name));
    write_key(out, "arguments");
    write_repaired(out, with_arguments ? buf_str(&call->arguments) : STR(""));
    buf_add_byte(out, '}');
}

/* Appends the members that show a thought, with a comma behind each. */
static void write_thought(struct buf *out, const struct request *request, struct str thought,
                          bool is_null) {
    static const char *const names[] = {"reasoning_content", "reasoning"};
    struct str field = request->reasoning_field;
    for (size_t i = 0; i < 2; i++) {
        bool is_shown =
            field.bytes == 0 ? i == 0 : str_is(field, names[i]) || str_is(field, "both");
        if (!is_shown) continue;
        buf_printf(out, "\"%s\":", names[i]);
        if (is_null)
            buf_add_text(out, "null");
        else
            write_repaired(out, thought);
        buf_add_byte(out, ',');
    }
}

static void write_message(struct buf *out, const struct job *job, const struct choice *choice,
                          struct str text) {
    const struct tool_reader *tools = choice->tools;
    size_t calls = tools ? tools->calls.count : 0;
    bool has_thought = choice->thought.has_begun;
    buf_add_text(out, "\"message\":{\"role\":\"assistant\",");
    if (job->request.thought_start != THOUGHT_NONE && job->request.include_reasoning)
        write_thought(out, &job->request, choice_thought(choice, choice->raw.bytes), !has_thought);
    buf_add_text(out, "\"content\":");
    if (text.bytes == 0 && (calls > 0 || has_thought))
        buf_add_text(out, "null");
    else
        write_repaired(out, text);
    write_key(out, "refusal");
    buf_add_text(out, "null");
    for (size_t i = 0; i < calls; i++) {
        buf_add_text(out, i > 0 ? ",{" : ",\"tool_calls\":[{");
        write_tool_call(out, &tools->calls.at[i], true);
        buf_add_byte(out, '}');
    }
    buf_add_text(out, calls > 0 ? "]}" : "}");
}

/* Appends the stop string that ended a choice, under the name that vLLM has for it. */
static void write_stop(struct buf *out, const struct job *job, const struct choice *choice) {
    if (!choice->stopped) return;
    write_key(out, "stop_reason");
    json_write_string(out, job->request.stops[choice->stop_index]);
}

static void write_choice(struct buf *out, const struct answer_source *source, const struct job *job,
                         uint32_t index, uint32_t shown_index) {
    const struct choice *choice = &job->choices[index];
    const struct prompt *prompt = prompt_of(job, index);
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    utf8_add_repaired(&text, buf_str(&prompt->echo));
    utf8_add_repaired(&text, choice->tools ? buf_str(&choice->tools->content)
                                           : choice_answer(choice, choice->raw.bytes));
    buf_printf(out, "{\"index\":%u,", shown_index);
    if (is_chat(job)) {
        write_message(out, job, choice, buf_str(&text));
    } else {
        buf_add_text(out, "\"text\":");
        write_repaired(out, buf_str(&text));
    }
    buf_release(&text);
    /* The body has everything, even text that a stream has shown. */
    struct choice whole = *choice;
    whole.logprobs_shown = 0;
    write_logprobs(out, source, job, index, 0, choice_logprobs_shown(&whole, whole.raw.bytes),
                   true);
    buf_printf(out, ",\"finish_reason\":\"%s\"", choice_reason(choice, &job->request));
    write_stop(out, job, choice);
    if (!is_chat(job)) write_prompt_logprobs(out, source, job, prompt);
    if (job->request.return_token_ids) {
        if (!is_chat(job)) write_ids(out, "prompt_token_ids", &prompt->ids, 0);
        write_ids(out, "token_ids", &choice->token_ids, 0);
    }
    buf_add_byte(out, '}');
}

/* Sorts the candidates of a prompt by their mean log probability, the best first. */
static void rank_candidates(const struct job *job, uint32_t first,
                            uint32_t ret_order[REQUEST_CHOICES_MAX]) {
    double means[REQUEST_CHOICES_MAX];
    for (uint32_t i = 0; i < (uint32_t)job->request.candidates; i++) {
        const struct choice *choice = &job->choices[first + i];
        double mean = choice->token_count ? choice->logprob_sum / choice->token_count : 0;
        uint32_t at = i;
        for (; at > 0 && means[at - 1] < mean; at--) {
            means[at] = means[at - 1];
            ret_order[at] = ret_order[at - 1];
        }
        means[at] = mean;
        ret_order[at] = first + i;
    }
}

/* Returns how the choices that are written keep the shape of the request. */
static enum shape_end write_choices(struct buf *out, const struct answer_source *source,
                                    const struct job *job) {
    const struct request *request = &job->request;
    bool has_shape = job->shapes && !request->is_frame_only;
    enum shape_end shape = has_shape ? SHAPE_VALID : SHAPE_NONE;
    uint32_t choices = (uint32_t)request->choices, candidates = (uint32_t)request->candidates;
    for (uint32_t p = 0; p < (uint32_t)request->prompt_count; p++) {
        uint32_t order[REQUEST_CHOICES_MAX] = {0};
        if (candidates > choices) rank_candidates(job, p * candidates, order);
        for (uint32_t k = 0; k < choices; k++) {
            uint32_t shown_index = p * choices + k;
            if (shown_index > 0) buf_add_byte(out, ',');
            uint32_t index = candidates > choices ? order[k] : shown_index;
            write_choice(out, source, job, index, shown_index);
            if (has_shape && !job->choices[index].is_whole) shape = SHAPE_TRUNCATED;
        }
    }
    return shape;
}

enum shape_end answer_write_body(struct buf *out, const struct answer_source *source,
                                 const struct job *job) {
    for (uint32_t i = 0; i < job->choice_count; i++) assert(job->choices[i].is_done);
    write_head(out, source, job, is_chat(job) ? "chat.completion" : "text_completion");
    buf_add_text(out, ",\"choices\":[");
    enum shape_end shape = write_choices(out, source, job);
    buf_add_text(out, "],");
    write_usage(out, job);
    if (is_chat(job)) {
        write_prompt_logprobs(out, source, job, &job->prompts[0]);
        if (job->request.return_token_ids)
            write_ids(out, "prompt_token_ids", &job->prompts[0].ids, 0);
    }
    buf_add_byte(out, '}');
    return shape;
}

/* ---- streams ---- */

static void write_chunk_head(struct buf *out, const struct answer_source *source,
                             const struct job *job, uint32_t index) {
    write_head(out, source, job, is_chat(job) ? "chat.completion.chunk" : "text_completion");
    buf_printf(out, ",\"choices\":[{\"index\":%u,", index);
}

/* Closes the choice and the chunk. */
static void write_chunk_end(struct buf *out, struct job *job, uint32_t index, const char *reason) {
    struct choice *choice = &job->choices[index];
    write_key(out, "finish_reason");
    if (reason)
        buf_printf(out, "\"%s\"", reason);
    else
        buf_add_text(out, "null");
    if (reason) write_stop(out, job, choice);
    if (job->request.return_token_ids) {
        write_ids(out, "token_ids", &choice->token_ids, choice->token_ids_shown);
        choice->token_ids_shown = choice->token_ids.count;
    }
    buf_add_text(out, "}]");
    if (job->request.continuous_usage)
        write_usage_so_far(out, job);
    else if (job->request.include_usage)
        buf_add_text(out, ",\"usage\":null");
}

/* Appends `delta` or `text` with a piece of the answer; without content if `text` is NULL, and
 * without a thought if it is empty. */
static void write_piece(struct buf *out, const struct job *job, const struct str *text,
                        struct str thought, bool is_first) {
    if (!is_chat(job)) {
        buf_add_text(out, "\"text\":");
        write_repaired(out, text ? *text : STR(""));
        return;
    }
    buf_add_text(out, "\"delta\":{");
    if (is_first) buf_add_text(out, "\"role\":\"assistant\",");
    if (thought.bytes > 0) write_thought(out, &job->request, thought, false);
    if (text) {
        buf_add_text(out, "\"content\":");
        write_repaired(out, *text);
    }
    if (out->at[out->bytes - 1] == ',') buf_truncate(out, out->bytes - 1);
    buf_add_byte(out, '}');
}

/* Writes the chunk before the first sampled text: the role of a chat, the echo of a prompt. */
static bool write_first_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                              uint32_t index) {
    struct choice *choice = &job->choices[index];
    const struct prompt *prompt = prompt_of(job, index);
    choice->has_begun = true;
    bool returns_ids = job->request.return_token_ids;
    bool has_logprobs = !is_chat(job) && job->request.echo && job->request.logprobs;
    struct str echo = buf_str(&prompt->echo);
    if (!is_chat(job) && echo.bytes == 0 && !returns_ids && !has_logprobs) return false;
    write_chunk_head(out, source, job, index);
    write_piece(out, job, &echo, STR(""), true);
    if (has_logprobs) {
        write_logprobs(out, source, job, index, 0, 0, true);
    } else {
        write_key(out, "logprobs");
        buf_add_text(out, "null");
    }
    if (returns_ids && !is_chat(job)) write_ids(out, "prompt_token_ids", &prompt->ids, 0);
    write_chunk_end(out, job, index, NULL);
    if (returns_ids && is_chat(job)) write_ids(out, "prompt_token_ids", &prompt->ids, 0);
    buf_add_byte(out, '}');
    return true;
}

/* The part of the thought that a stream has not shown, which then counts as shown. */
static struct str new_thought(struct choice *choice, const struct request *request, size_t shown) {
    struct str thought = choice_thought(choice, shown);
    size_t skip = choice->thought_shown;
    if (!request->include_reasoning || thought.bytes <= skip) return STR("");
    choice->thought_shown = thought.bytes;
    return str_skip(thought, skip);
}

/* Writes the text that may be shown, with its log probabilities. */
static bool write_text_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                             uint32_t index) {
    struct choice *choice = &job->choices[index];
    size_t shown = choice_shown(choice, &job->request);
    size_t logprobs = choice_logprobs_shown(choice, shown);
    struct str text = choice_answer(choice, shown);
    if (choice->tools) {
        choice_read_tools(choice, &job->request);
        text = buf_str(&choice->tools->content);
        text.bytes = choice->tools->content_shown;
    }
    choice->shown = shown;
    struct str thought = new_thought(choice, &job->request, shown);
    if (text.bytes <= choice->content_shown && thought.bytes == 0 &&
        logprobs <= choice->logprobs_shown)
        return false;
    struct str piece = str_skip(text, choice->content_shown);
    write_chunk_head(out, source, job, index);
    write_piece(out, job, piece.bytes > 0 || thought.bytes == 0 ? &piece : NULL, thought, false);
    write_logprobs(out, source, job, index, choice->logprobs_shown, logprobs, false);
    write_chunk_end(out, job, index, NULL);
    buf_add_byte(out, '}');
    choice->content_shown = text.bytes;
    choice->logprobs_shown = logprobs;
    return true;
}

/* The call that a stream shows next: one whose name it lacks, or new bytes of arguments. */
static const struct tool_call *next_call(struct choice *choice) {
    const struct call_list *calls = &choice->tools->shown;
    while (choice->call_at < calls->count) {
        const struct tool_call *call = &calls->at[choice->call_at];
        if (!choice->is_call_named || call->arguments.bytes > choice->arguments_shown) return call;
        if (choice->call_at + 1 == calls->count) break; /* more of its arguments may come */
        choice->call_at++;
        choice->is_call_named = false;
        choice->arguments_shown = 0;
    }
    return NULL;
}

/* Writes the name of a tool call, or the arguments that have come since. */
static bool write_call_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                             uint32_t index) {
    struct choice *choice = &job->choices[index];
    const struct tool_call *call = choice->tools ? next_call(choice) : NULL;
    if (!call) return false;
    write_chunk_head(out, source, job, index);
    buf_printf(out, "\"delta\":{\"tool_calls\":[{\"index\":%zu,", choice->call_at);
    if (!choice->is_call_named) {
        write_tool_call(out, call, false);
        choice->is_call_named = true;
    } else {
        buf_add_text(out, "\"function\":{\"arguments\":");
        write_repaired(out, str_skip(buf_str(&call->arguments), choice->arguments_shown));
        buf_add_byte(out, '}');
        choice->arguments_shown = call->arguments.bytes;
    }
    buf_add_text(out, "}]},\"logprobs\":null");
    write_chunk_end(out, job, index, NULL);
    buf_add_byte(out, '}');
    return true;
}

bool answer_write_chunk(struct buf *out, const struct answer_source *source, struct job *job,
                        uint32_t choice_index) {
    struct choice *choice = &job->choices[choice_index];
    if (!prompt_of(job, choice_index)->is_scored) return false;
    if (!choice->has_begun && write_first_chunk(out, source, job, choice_index)) return true;
    if (write_text_chunk(out, source, job, choice_index)) return true;
    if (write_call_chunk(out, source, job, choice_index)) return true;
    if (!choice->is_done || choice->has_ended) return false;
    choice->has_ended = true;
    write_chunk_head(out, source, job, choice_index);
    write_piece(out, job, NULL, STR(""), false);
    write_key(out, "logprobs");
    buf_add_text(out, "null");
    write_chunk_end(out, job, choice_index, choice_reason(choice, &job->request));
    buf_add_byte(out, '}');
    return true;
}

void answer_write_usage_chunk(struct buf *out, const struct answer_source *source,
                              const struct job *job) {
    write_head(out, source, job, is_chat(job) ? "chat.completion.chunk" : "text_completion");
    buf_add_text(out, ",\"choices\":[],");
    write_usage(out, job);
    buf_add_byte(out, '}');
}

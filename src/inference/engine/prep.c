/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prep.h"

#include "engine/messages.h"
#include "engine/request_thought.h"
#include "engine/request_tools.h"
#include "json/json.h"

#include <assert.h>
#include <string.h>

#define TEMPLATE_BYTES_LEAST ((size_t)1 << 20)
#define TEMPLATE_BYTES_MAX ((size_t)64 << 20)
#define PROMPT_TEXT_BYTES_MAX ((size_t)32 * 1024 * 1024)
/* Most log probabilities of all prompts of a request; more would not fit into a response. */
#define SCORES_MAX (1 << 20)

void prompt_release(struct prompt *prompt) {
    ids_release(&prompt->ids);
    buf_release(&prompt->echo);
    logprobs_release(&prompt->scores);
}

static void set_text(json_t *object, const char *key, struct str text) {
    json_t *value = json_stringn(text.bytes ? text.at : "", text.bytes);
    if (value) json_object_set_new(object, key, value); /* NULL: not UTF-8 */
}

/* A prompt as text, before it is encoded. */
struct rendering {
    struct buf text;
    struct text_ranges
        given; /* the parts that come from messages and tools, not from the template */
};

/* The variables of the template. Absent tools are none, not undefined. */
static json_t *template_context(const struct request *request) {
    json_t *context = json_object();
    if (request->reasoning_effort.bytes > 0) {
        set_text(context, "reasoning_effort", request->reasoning_effort);
        json_object_set_new(context, "enable_thinking",
                            json_boolean(!str_is(request->reasoning_effort, "none")));
    }
    if (request->template_variables) json_object_update(context, request->template_variables);
    json_object_set(context, "messages", request->messages);
    json_object_set_new(context, "tools",
                        request->tools ? json_incref(request->tools) : json_null());
    json_object_set_new(context, "documents", json_null());
    json_object_set_new(context, "add_generation_prompt",
                        json_boolean(request->add_generation_prompt));
    return context;
}

/* The most text after the last message that is searched. A template closes a turn with a few
 * words; without a bound, a long text that almost repeats itself would cost a comparison at
 * every place. */
#define CLOSING_BYTES_MAX 4096

/* The last place of `part` near the end of `whole`, or SIZE_MAX. */
static size_t find_last(struct str whole, struct str part) {
    if (part.bytes > whole.bytes) return SIZE_MAX;
    size_t last = whole.bytes - part.bytes;
    size_t first = last > CLOSING_BYTES_MAX ? last - CLOSING_BYTES_MAX : 0;
    for (size_t at = last + 1; at-- > first;)
        if (memcmp(whole.at + at, part.at, part.bytes) == 0) return at;
    return SIZE_MAX;
}

/* Cuts the template's text after the text of the last message, as transformers does: the message's
 * trailing space stays only if the template kept it. */
static bool cut_after(struct rendering *rendering, struct str last, struct refusal *refusal) {
    struct buf *text = &rendering->text;
    struct str trimmed = str_trim(last);
    if (trimmed.bytes == 0)
        return refuse(
            refusal, "invalid_value", "continue_final_message",
            "Invalid 'continue_final_message': the last message has no text to continue.");
    size_t at = find_last(buf_str(text), trimmed);
    if (at == SIZE_MAX)
        return refuse(refusal, "invalid_value", "continue_final_message",
                      "Invalid 'continue_final_message': the chat template of this model does not "
                      "end with the text of the last message.");
    size_t leading = (size_t)(trimmed.at - last.at);
    size_t bytes = last.bytes - leading;
    bool keeps_space =
        leading == 0 && bytes <= text->bytes - at && memcmp(text->at + at, last.at, bytes) == 0;
    buf_truncate(text, at + (keeps_space ? bytes : trimmed.bytes));
    text_ranges_truncate(&rendering->given, text->bytes);
    return true;
}

/* The template takes its memory from the request's, so that no message costs more than its length
 * allows; TEMPLATE_BYTES_LEAST is enough for the template's own work. */
static struct jinja_limits rendering_limits(const struct request *request) {
    size_t memory = request->memory_left;
    if (memory < TEMPLATE_BYTES_LEAST) memory = TEMPLATE_BYTES_LEAST;
    if (memory > TEMPLATE_BYTES_MAX) memory = TEMPLATE_BYTES_MAX;
    return (struct jinja_limits){.memory_bytes_max = memory};
}

/* The template of gpt-oss takes no tool without a description. */
static void describe_tools(json_t *tools) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (!json_member(function, "description"))
            json_object_set_new(function, "description", json_string(""));
    }
}

/* A template may know `tools` and yet show none of these, or none to this chat. */
static bool check_shown(const struct request *request, struct str prompt, struct refusal *refusal) {
    if (request->tool_choice == TOOL_CHOICE_NONE) return true;
    for (size_t i = 0; i < json_array_size(request->tools); i++) {
        const json_t *function = json_object_get(json_array_get(request->tools, i), "function");
        if (str_find(prompt, json_member_str(function, "name"), 0) != SIZE_MAX) return true;
    }
    return refuse_unsupported(refusal, "tools",
                              "the chat template of this model shows none of them in this chat");
}

static bool render_with(struct request *request, const struct served_model *model,
                        const struct jinja_template *template, const struct prep_options *options,
                        struct rendering *rendering, struct refusal *refusal) {
    if (!request_prep_tools(request, model, template, refusal)) return false;
    bool has_channels = thought_marks_of(template).has_channels;
    if (has_channels) describe_tools(request->tools);
    messages_clean(request->messages, (struct messages_options){
                                          jinja_template_takes_parts(template),
                                          jinja_template_knows_role(template, "developer"),
                                          has_channels,
                                      });
    json_t *context = template_context(request), *words = vocabulary_context(&model->vocabulary);
    const struct jinja_options chat = {.limits = rendering_limits(request),
                                       .now_unix_s = options->now_unix_s,
                                       .utc_offset_s = options->utc_offset_s,
                                       .model_context = words};
    struct error error;
    enum err err = jinja_template_render(template, context, &chat, &rendering->text,
                                         &rendering->given, &error);
    json_decref(context);
    json_decref(words);
    if (err == ERR_LIMIT)
        return refuse(refusal, "invalid_value", "messages",
                      "The chat template of this model did not come to an end: %s.", error.text);
    if (err != OK)
        return refuse(refusal, "invalid_value", "messages",
                      "The chat template of this model refuses these messages: %s", error.text);
    if (rendering->text.overflowed)
        return refuse(refusal, "context_length_exceeded", "messages",
                      "The rendered prompt is longer than %zu bytes.", PROMPT_TEXT_BYTES_MAX);
    if (!check_shown(request, buf_str(&rendering->text), refusal)) return false;
    struct str before = request->continue_final_message ? messages_last_text(request->messages)
                                                        : buf_str(&rendering->text);
    return request_prep_thought(request, model, template, before, refusal);
}

/* Renders a chat with the template of the request, or else with the model's. */
static bool render_chat(struct request *request, const struct served_model *model,
                        const struct prep_options *options, struct rendering *rendering,
                        struct refusal *refusal) {
    if (!request->chat_template.at) {
        const struct jinja_template *template =
            vocabulary_template(&model->vocabulary, request->tools != NULL);
        if (template) return render_with(request, model, template, options, rendering, refusal);
        return refuse(refusal, "unsupported_endpoint", "messages",
                      "This model has no chat template; use /v1/completions.");
    }
    if (!options->trusts_templates)
        return refuse_unsupported(refusal, "chat_template",
                                  "this server takes templates from the model only; it can be "
                                  "started with --trust-request-chat-template");
    struct jinja_template *template;
    struct error error;
    if (jinja_template_open(&template, request->chat_template, &error) != OK)
        return refuse(refusal, "invalid_value", "chat_template", "Invalid 'chat_template': %s.",
                      error.text);
    bool is_good = render_with(request, model, template, options, rendering, refusal);
    jinja_template_close(template);
    return is_good;
}

/* Adds the tokens of `word` as one run. False if the runs have no more room. */
static bool add_bad_run(const struct served_model *model, struct str word, struct ids *runs,
                        size_t last_at) {
    struct ids ids = {.at = NULL};
    struct error error;
    bool is_good =
        tokenizer_encode(model->vocabulary.tokenizer, word,
                         (struct encode_options){.parse_special = true}, &ids, &error) == OK;
    bool is_other = last_at == SIZE_MAX ||
                    ((size_t)runs->at[last_at] == ids.count && runs->at[last_at + 1] != ids.at[0]);
    if (is_good && ids.count > 0 && is_other) {
        ids_add(runs, (int32_t)ids.count);
        for (size_t i = 0; i < ids.count; i++) ids_add(runs, ids.at[i]);
    }
    ids_release(&ids);
    return runs->count <= SAMPLING_BAD_WORD_INTS_MAX;
}

/* Encodes bad words as vLLM does: each word at the start of a text, and after a space if that
 * changes only its first token. */
static bool prep_bad_words(struct request *request, const struct served_model *model,
                           struct refusal *refusal) {
    struct ids runs = {.at = NULL};
    bool is_good = true;
    for (size_t i = 0; i < json_array_size(request->bad_words) && is_good; i++) {
        struct str word = json_str(json_array_get(request->bad_words, i));
        struct buf spaced;
        buf_init(&spaced, BUF_UNLIMITED);
        buf_add_byte(&spaced, ' ');
        size_t skip = 0;
        while (word.at[skip] == ' ') skip++;
        buf_add_str(&spaced, str_skip(word, skip));
        size_t at = runs.count;
        is_good = add_bad_run(model, str_skip(buf_str(&spaced), 1), &runs, SIZE_MAX) &&
                  (runs.count == at || add_bad_run(model, buf_str(&spaced), &runs, at));
        buf_release(&spaced);
    }
    request->bad_word_runs = (struct token_list){runs.at, (uint32_t)runs.count};
    return is_good || refuse(refusal, "array_above_max_length", "bad_words",
                             "Invalid 'bad_words': together they are more than %u tokens.",
                             SAMPLING_BAD_WORD_INTS_MAX);
}

/* Checks ids against the model: a tokenizer may know tokens without a row in the model (Gemma's for
 * images). */
static bool check_ids(const struct ids *ids, const struct served_model *model, const char *param,
                      struct refusal *refusal) {
    if (!model->backend) return true;
    for (size_t i = 0; i < ids->count; i++)
        if ((uint32_t)ids->at[i] >= model->backend->caps.vocab)
            return refuse(refusal, "invalid_value", param,
                          "The prompt has a token (%d) that this model does not have.", ids->at[i]);
    return true;
}

/* Encodes a text. `given`: the parts in which no control token is recognised; NULL: parse_special
 * decides for the whole text. */
static bool encode(const struct request *request, const struct served_model *model, struct str text,
                   const struct text_ranges *given, struct ids *ids, struct refusal *refusal) {
    struct encode_options options = {.parse_special = given || request->parse_special,
                                     .add_bos = request->add_special_tokens,
                                     .plain = request->parse_special ? NULL : given,
                                     .scratch_bytes_max =
                                         request_body_scratch(request->memory_left)};
    const char *param = request->endpoint == ENDPOINT_CHAT ? "messages" : "prompt";
    struct error error;
    if (tokenizer_encode(model->vocabulary.tokenizer, text, options, ids, &error) == OK)
        return check_ids(ids, model, param, refusal);
    return refuse(refusal, "invalid_value", param, "The prompt cannot be turned into tokens: %s.",
                  error.text);
}

/* Closes a thought that the prompt has opened. */
static void close_thought(struct request *request, struct buf *text) {
    thought_close(request->thought_marks, request->thought_start, text);
    if (request->thought_start == THOUGHT_OPEN || request->thought_marks.has_channels)
        request->thought_start = THOUGHT_NONE;
}

static bool prep_chat(struct request *request, const struct served_model *model,
                      const struct prep_options *options, struct prompt *prompt,
                      struct refusal *refusal) {
    struct rendering rendering = {.given = {0}};
    buf_init(&rendering.text, PROMPT_TEXT_BYTES_MAX);
    bool is_good = render_chat(request, model, options, &rendering, refusal);
    struct str last = is_good ? messages_last_text(request->messages) : (struct str){NULL, 0};
    if (is_good && request->closes_thought) close_thought(request, &rendering.text);
    if (is_good && request->continue_final_message) is_good = cut_after(&rendering, last, refusal);
    if (is_good)
        is_good = encode(request, model, buf_str(&rendering.text), &rendering.given, &prompt->ids,
                         refusal);
    text_ranges_release(&rendering.given);
    buf_release(&rendering.text);
    const json_t *messages = request->messages;
    const json_t *final = json_array_get(messages, json_array_size(messages) - 1);
    if (is_good && request->echo && str_is(json_member_str(final, "role"), "assistant"))
        buf_add_str(&prompt->echo, last);
    return is_good;
}

static void add_id(const struct request *request, const struct served_model *model, int32_t id,
                   struct prompt *prompt) {
    ids_add(&prompt->ids, id);
    if (request->echo)
        tokenizer_decode(model->vocabulary.tokenizer, id, !request->skip_special_tokens,
                         &prompt->echo);
}

/* `value`: a string, or an array of checked token ids. */
static bool prep_text(const struct request *request, const struct served_model *model,
                      const json_t *value, struct prompt *prompt, struct refusal *refusal) {
    if (json_is_string(value)) {
        if (request->echo) buf_add_str(&prompt->echo, json_str(value));
        return encode(request, model, json_str(value), NULL, &prompt->ids, refusal);
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        add_id(request, model, (int32_t)json_integer_value(json_array_get(value, i)), prompt);
    return true;
}

/* Fills all prompts of a text completion. */
static bool prep_texts(const struct request *request, const struct served_model *model,
                       struct prompt *prompts, struct refusal *refusal) {
    const json_t *first = json_array_get(request->prompt, 0);
    size_t count;
    if (request->ids.count > 0) {
        for (size_t i = 0; i < request->ids.count; i++) {
            const int32_t *ids = id_lists_get(&request->ids, i, &count);
            for (size_t k = 0; k < count; k++) add_id(request, model, ids[k], &prompts[i]);
        }
        return true;
    }
    if (request->prompt_count == 1 && !json_is_array(first) && !json_is_string(first))
        return prep_text(request, model, request->prompt, prompts, refusal);
    for (size_t i = 0; i < request->prompt_count; i++)
        if (!prep_text(request, model, json_array_get(request->prompt, i), &prompts[i], refusal))
            return false;
    return true;
}

/* Keeps the last tokens of each prompt; an echo then shows only these. */
static void truncate(const struct request *request, const struct served_model *model,
                     uint32_t context_tokens_max, struct prompt *prompts) {
    if (!request->truncate_prompt) return;
    uint64_t keep = (uint64_t)request->truncate_prompt_tokens;
    if (request->truncate_prompt_tokens < 0) {
        uint64_t answer = request->max_tokens > 0 ? (uint64_t)request->max_tokens : 1;
        keep = answer < context_tokens_max ? context_tokens_max - answer : 1;
    }
    for (size_t i = 0; i < request->prompt_count; i++) {
        struct ids *ids = &prompts[i].ids;
        if (ids->count <= keep) continue;
        memmove(ids->at, ids->at + ids->count - keep, keep * sizeof *ids->at);
        ids->count = keep;
        if (!request->echo || request->endpoint == ENDPOINT_CHAT) continue;
        buf_clear(&prompts[i].echo);
        for (size_t k = 0; k < ids->count; k++)
            tokenizer_decode(model->vocabulary.tokenizer, ids->at[k], !request->skip_special_tokens,
                             &prompts[i].echo);
    }
}

static bool check_lengths(const struct request *request, uint32_t context_tokens_max,
                          const struct prompt *prompts, uint32_t *ret_max_tokens,
                          struct refusal *refusal) {
    bool is_chat = request->endpoint == ENDPOINT_CHAT;
    const char *param = is_chat ? "messages" : "prompt";
    size_t longest = 0;
    for (size_t i = 0; i < request->prompt_count; i++) {
        if (prompts[i].ids.count == 0)
            return refuse(refusal, "invalid_value", param, "Invalid '%s': it has no tokens.",
                          param);
        if (prompts[i].ids.count > longest) longest = prompts[i].ids.count;
    }
    uint64_t answer = request->max_tokens > 0 ? (uint64_t)request->max_tokens : 1;
    bool is_clamped = request->is_translated && longest < context_tokens_max;
    if (is_clamped && answer > context_tokens_max - longest) answer = context_tokens_max - longest;
    if (longest >= context_tokens_max && (request->max_tokens == 0 || request->is_translated))
        return refuse(refusal, "context_length_exceeded", param,
                      "This model's maximum context length is %u tokens. However, your %s resulted "
                      "in %zu tokens, which leaves no room for an answer. Please reduce the length "
                      "of the %s.",
                      context_tokens_max, param, longest, param);
    uint64_t wanted = longest + answer;
    if (wanted > context_tokens_max)
        return refuse(refusal, "context_length_exceeded", param,
                      "This model's maximum context length is %u tokens. However, you requested "
                      "%llu tokens (%zu in the %s, %llu in the completion). Please reduce the "
                      "length of the %s or of the completion.",
                      context_tokens_max, (unsigned long long)wanted, longest, param,
                      (unsigned long long)answer, param);
    uint64_t max_tokens = request->max_tokens > 0 ? answer : context_tokens_max - longest;
    if ((uint64_t)request->min_tokens > max_tokens)
        return refuse(refusal, "integer_above_max_value", "min_tokens",
                      "Invalid 'min_tokens': %lld is more than the %llu tokens that fit.",
                      (long long)request->min_tokens, (unsigned long long)max_tokens);
    *ret_max_tokens = (uint32_t)max_tokens;
    return true;
}

/* Checks the size of the prompts' logprobs before they are computed. */
static bool prep_scores(const struct request *request, struct prompt *prompts,
                        struct refusal *refusal) {
    bool scores = request_scores_prompt(request);
    uint64_t most = request->has_prompt_logprobs ? (uint64_t)request->prompt_logprobs : 0;
    if (request->logprobs && (uint64_t)request->top_logprobs > most)
        most = (uint64_t)request->top_logprobs;
    uint64_t values = 0;
    for (size_t i = 0; i < request->prompt_count; i++) {
        prompts[i].token_count = prompts[i].ids.count;
        prompts[i].is_scored = !scores || prompts[i].token_count == 1;
        values += prompts[i].token_count * (most + 1);
    }
    if (!scores || values <= SCORES_MAX) return true;
    return refuse(refusal, "array_above_max_length",
                  request->has_prompt_logprobs ? "prompt_logprobs" : "logprobs",
                  "Invalid '%s': the prompts would have %llu log probabilities, at most %d are "
                  "given.",
                  request->has_prompt_logprobs ? "prompt_logprobs" : "logprobs",
                  (unsigned long long)values, SCORES_MAX);
}

bool prep_prompts(struct request *request, const struct served_model *model,
                  const struct prep_options *options, struct prompt *prompts,
                  uint32_t *ret_max_tokens, struct refusal *ret_refusal) {
    for (size_t i = 0; i < request->prompt_count; i++)
        buf_init(&prompts[i].echo, PROMPT_TEXT_BYTES_MAX);
    bool is_good = request->endpoint == ENDPOINT_CHAT
                       ? prep_chat(request, model, options, prompts, ret_refusal)
                       : prep_texts(request, model, prompts, ret_refusal);
    if (!is_good) return false;
    id_lists_release(&request->ids);
    truncate(request, model, options->context_tokens_max, prompts);
    if (!prep_bad_words(request, model, ret_refusal) ||
        !check_lengths(request, options->context_tokens_max, prompts, ret_max_tokens, ret_refusal))
        return false;
    return prep_scores(request, prompts, ret_refusal);
}

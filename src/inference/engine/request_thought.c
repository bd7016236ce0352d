/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_thought.h"

#include "chat/harmony_format.h"
#include "engine/request_tools.h"

/* Most tokens that are kept for an answer with a shape; it gets at least half of max_tokens. */
#define ANSWER_TOKENS 512u
/* Most tokens of an opening mark, and of the headers of messages, also if letters spell them. */
#define OPENING_TOKENS 8u
#define HEADER_TOKENS 40u

static void find_closing_tokens(struct request *request, const struct tokenizer *tokenizer) {
    struct ids ids = {.at = NULL};
    struct error error;
    enum err err = tokenizer_encode(tokenizer, str_from(request->thought_marks.end),
                                    (struct encode_options){.parse_special = true}, &ids, &error);
    if (err != OK) ids_release(&ids);
    request->closing_tokens = (struct token_list){ids.at, (uint32_t)ids.count};
}

/* The answer to a request without tools is messages, too. */
static bool prep_messages(struct request *request, const struct served_model *model,
                          struct refusal *refusal) {
    static const char *const efforts[] = {"low", "medium", "high"};
    struct str effort = request->reasoning_effort;
    bool is_known = effort.bytes == 0 || request->is_translated;
    for (size_t i = 0; i < 3; i++)
        if (str_is(effort, efforts[i])) is_known = true;
    request->tool_format = TOOL_FORMAT_HARMONY;
    request_show_marks(request, &model->vocabulary, tool_format_mark_set(TOOL_FORMAT_HARMONY));
    return is_known || refuse_unsupported(refusal, "reasoning_effort",
                                          "this model knows the efforts low, medium and high");
}

bool request_prep_thought(struct request *request, const struct served_model *model,
                          const struct jinja_template *template, struct str prompt,
                          struct refusal *ret_refusal) {
    bool is_named =
        request->tool_format == TOOL_FORMAT_HARMONY ||
        (request->tool_format == TOOL_FORMAT_NONE && model->tool_format == TOOL_FORMAT_HARMONY);
    request->thought_marks = is_named ? thought_channels : thought_marks_of(template);
    if (request->tool_format != TOOL_FORMAT_MEMBERS) request->thought_marks.call = NULL;
    bool has_channels = request->thought_marks.has_channels;
    if (has_channels && !prep_messages(request, model, ret_refusal)) return false;
    if (!request->thought_marks.begin)
        return request->thinking_token_budget < 0 || request->is_translated ||
               refuse_unsupported(ret_refusal, "thinking_token_budget",
                                  "this model does not think");
    request->thought_start = thought_start_of(request->thought_marks, prompt);
    if (has_channels && request->continue_final_message) request->thought_start = THOUGHT_NONE;
    if (request->thought_start == THOUGHT_NONE)
        return !has_channels || !request->holds_calls ||
               refuse_unsupported(ret_refusal, "continue_final_message",
                                  "a call of this model is a message of its own");
    uint64_t marks =
        request_show_marks(request, &model->vocabulary, thought_mark_set(request->thought_marks));
    find_closing_tokens(request, model->vocabulary.tokenizer);
    bool is_frame_only = !request->shape.source && request_holds_messages(request);
    if (!request->shape.source && !is_frame_only) return true;
    const char *param = is_frame_only ? "thinking_token_budget" : request->shape.param;
    json_t *answer = asked_shape_take_format(&request->shape, "");
    if (has_channels && !request->holds_calls) answer = harmony_final(marks, answer);
    if (is_frame_only) request->is_frame_only = true;
    request->shape = (struct asked_shape){
        param, GRAMMAR_TAGS,
        thought_format(request->thought_marks, request->thought_start, marks, answer)};
    return true;
}

uint32_t request_thought_limit(const struct request *request, bool has_shape, uint32_t max_tokens) {
    uint32_t limit = UINT32_MAX;
    if (request->thought_start == THOUGHT_NONE || request->closing_tokens.count == 0) return limit;
    if (request->thinking_token_budget >= 0 && request->thinking_token_budget < UINT32_MAX)
        limit = (uint32_t)request->thinking_token_budget;
    if (!has_shape) return limit;
    uint32_t room = max_tokens / 2 < ANSWER_TOKENS ? max_tokens / 2 : ANSWER_TOKENS;
    room += request->closing_tokens.count +
            (request->thought_marks.has_channels ? HEADER_TOKENS : OPENING_TOKENS);
    uint32_t most = max_tokens > room ? max_tokens - room : 0;
    return most < limit ? most : limit;
}

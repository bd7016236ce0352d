/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_thought.h"

#include "engine/request_tools.h"

#include <assert.h>
#include <string.h>

/* Most tokens that are kept for an answer with a shape; it gets at least half of max_tokens. */
#define ANSWER_TOKENS 512u
/* Most tokens of an opening mark. */
#define OPENING_TOKENS 8u

/* Finds the tokens of the marks. Returns those that are control tokens, by their bits. */
static uint32_t find_marks(struct request *request, const struct tokenizer *tokenizer) {
    struct str begin = str_from(request->thought_marks.begin),
               end = str_from(request->thought_marks.end);
    uint32_t marks = 0;
    for (size_t i = 0; chat_marks[i]; i++) {
        struct str mark = str_from(chat_marks[i]);
        int32_t token = tokenizer_find(tokenizer, mark);
        if (token == TOKEN_NONE || (!str_starts_with(begin, mark) && !str_equals(end, mark)))
            continue;
        assert(request->shown_token_count < REQUEST_SHOWN_TOKENS_MAX);
        request->shown_tokens[request->shown_token_count++] = token;
        if (tokenizer_kind(tokenizer, token) == TOKEN_CONTROL) marks |= UINT32_C(1) << i;
    }
    return marks;
}

static void find_closing_tokens(struct request *request, const struct tokenizer *tokenizer) {
    struct ids ids = {.at = NULL};
    struct error error;
    enum err err = tokenizer_encode(tokenizer, str_from(request->thought_marks.end),
                                    (struct encode_options){.parse_special = true}, &ids, &error);
    if (err != OK) ids_release(&ids);
    request->closing_tokens = (struct token_list){ids.at, (uint32_t)ids.count};
}

bool request_prep_thought(struct request *request, const struct served_model *model,
                          const struct jinja_template *template, struct str prompt,
                          struct refusal *ret_refusal) {
    request->thought_marks = thought_marks_of(template);
    if (!request->thought_marks.begin)
        return request->thinking_token_budget < 0 ||
               refuse_unsupported(ret_refusal, "thinking_token_budget",
                                  "this model does not think");
    request->thought_start = thought_start_of(request->thought_marks, prompt);
    if (request->thought_start == THOUGHT_NONE) return true;
    uint32_t marks = find_marks(request, model->vocabulary.tokenizer);
    find_closing_tokens(request, model->vocabulary.tokenizer);
    if (!request->shape.source) return true;
    json_t *answer = asked_shape_take_format(&request->shape, "");
    request->shape = (struct asked_shape){
        request->shape.param, GRAMMAR_TAGS,
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
    room += request->closing_tokens.count + OPENING_TOKENS;
    uint32_t most = max_tokens > room ? max_tokens - room : 0;
    return most < limit ? most : limit;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_thought.h"

#include "engine/request_tools.h"

/* Most tokens that are kept for an answer with a shape; it gets at least half of max_tokens. */
#define ANSWER_TOKENS 512u
/* Most tokens of an opening mark. */
#define OPENING_TOKENS 8u

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
    uint32_t marks =
        request_show_marks(request, &model->vocabulary, thought_mark_set(request->thought_marks));
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/answer_usage.h"

#include "answer/members.h"
#include "json/span.h"

enum { PROMPT, COMPLETION, DETAILS, INPUT, OUTPUT, INPUT_DETAILS, READ, CREATION, MEMBERS };
static const struct str names[MEMBERS] = {
    [PROMPT] = {"prompt_tokens", 13},          [COMPLETION] = {"completion_tokens", 17},
    [DETAILS] = {"prompt_tokens_details", 21}, [INPUT] = {"input_tokens", 12},
    [OUTPUT] = {"output_tokens", 13},          [INPUT_DETAILS] = {"input_tokens_details", 20},
    [READ] = {"cache_read_input_tokens", 23},  [CREATION] = {"cache_creation_input_tokens", 27},
};

void answer_usage_read(struct answer_usage *ret_usage, struct str usage) {
    struct str of[MEMBERS];
    members_find(usage, names, MEMBERS, of);
    struct str details = of[DETAILS].at ? of[DETAILS] : of[INPUT_DETAILS];
    struct str cached = json_span_get(details, "cached_tokens");
    bool is_beside = !of[PROMPT].at && !details.at;
    if (is_beside) cached = of[READ];
    *ret_usage =
        (struct answer_usage){.prompt = of[PROMPT].at ? of[PROMPT] : of[INPUT],
                              .completion = of[COMPLETION].at ? of[COMPLETION] : of[OUTPUT],
                              .cached = str_is(cached, "null") ? (struct str){NULL, 0} : cached};
    if (is_beside)
        ret_usage->prompt_more = answer_usage_count(of[READ]) + answer_usage_count(of[CREATION]);
}

uint64_t answer_usage_prompt(const struct answer_usage *usage) {
    return answer_usage_count(usage->prompt) + usage->prompt_more;
}

uint64_t answer_usage_count(struct str value) {
    uint64_t count = 0;
    return str_to_u64(value, &count) ? count : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/own_words.h"

#include "dialects/members.h"
#include "json/json.h"

#include <inttypes.h>
#include <string.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define OPTION(name) "'" name "'", "'options." name "'"

static const struct own_word of_ollama[] = {{"'response_format'", "'format'"},
                                            {"'max_tokens'", "'options.num_predict'"},
                                            {"'repetition_penalty'", "'options.repeat_penalty'"},
                                            {"'reasoning_effort'", "'think'"},
                                            {OPTION("stop")},
                                            {OPTION("temperature")},
                                            {OPTION("top_p")},
                                            {OPTION("top_k")},
                                            {OPTION("min_p")},
                                            {OPTION("seed")},
                                            {OPTION("presence_penalty")},
                                            {OPTION("frequency_penalty")},
                                            {NULL, NULL}};
static const struct own_word of_embed[] = {
    {"'truncate_prompt_tokens' (-1 keeps what fits)", "'truncate'"}, {NULL, NULL}};
static const struct own_word of_messages[] = {
    {"'response_format'", "'output_config.format'"},
    {"'stop'", "'stop_sequences'"},
    {"'reasoning_effort'", "'output_config.effort'"},
    {"'thinking_token_budget'", "'thinking.budget_tokens'"},
    {".function.parameters", ".input_schema"},
    {".function.", "."},
    {NULL, NULL}};
static const struct own_word of_responses[] = {{"'response_format'", "'text.format'"},
                                               {"'max_tokens'", "'max_output_tokens'"},
                                               {"'reasoning_effort'", "'reasoning.effort'"},
                                               {"'messages'", "'input'"},
                                               {".function.", "."},
                                               {NULL, NULL}};

#define OLLAMA_TOO_LONG                                                                            \
    { "the input length exceeds the context length: ", " tokens, and at most ", " fit" }

const struct own_words ollama_words = {of_ollama, OLLAMA_TOO_LONG};
const struct own_words ollama_embed_words = {of_embed, OLLAMA_TOO_LONG};
/* Coding agents shorten their conversation when they read these words. */
const struct own_words messages_words = {of_messages,
                                         {"prompt is too long: ", " tokens > ", " maximum"}};
const struct own_words responses_words = {of_responses, {NULL, NULL, NULL}};

/* Appends the text with its words replaced. */
static void replace(const struct own_word *words, struct str text, struct buf *to) {
    for (size_t at = 0; at < text.bytes;) {
        const struct own_word *word = words;
        struct str rest = str_skip(text, at);
        while (word->inside && !str_starts_with(rest, str_from(word->inside))) word++;
        if (word->inside) {
            buf_add_text(to, word->own);
            at += strlen(word->inside);
        } else {
            buf_add_byte(to, text.at[at++]);
        }
    }
}

/* The number that stands behind `mark`. */
static bool number_behind(struct str text, const char *mark, uint64_t *ret_number) {
    size_t digits = 0;
    size_t found = str_find(text, str_from(mark), 0);
    if (found == SIZE_MAX) return false;
    struct str rest = str_skip(text, found + strlen(mark));
    while (digits < rest.bytes && rest.at[digits] >= '0' && rest.at[digits] <= '9') digits++;
    return str_to_u64((struct str){rest.at, digits}, ret_number);
}

/* Reads the two numbers of the sentence that OpenAI's servers, vLLM and quern's engine write. */
static bool is_too_long(struct str message, uint64_t *ret_prompt, uint64_t *ret_fit) {
    return number_behind(message, "maximum context length is ", ret_fit) &&
           (number_behind(message, "resulted in ", ret_prompt) ||
            number_behind(message, " tokens (", ret_prompt) ||
            number_behind(message, "you requested ", ret_prompt));
}

/* Appends a sentence, the inside of a JSON string. */
static void write_sentence(const struct own_words *words, struct str message, struct buf *body) {
    uint64_t prompt, fit;
    const char *const *parts = words->too_long;
    if (parts[0] && is_too_long(message, &prompt, &fit))
        buf_printf(body, "%s%" PRIu64 "%s%" PRIu64 "%s", parts[0], prompt, parts[1], fit, parts[2]);
    else
        replace(words->words, message, body);
}

/* Appends a `param`, whose words stand between apostrophes in the table. */
static void write_param(const struct own_words *words, struct str param, struct buf *body) {
    struct buf quoted, own;
    buf_init(&quoted, BUF_UNLIMITED);
    buf_init(&own, BUF_UNLIMITED);
    buf_add_byte(&quoted, '\'');
    buf_add(&quoted, param.at + 1, param.bytes - 2);
    buf_add_byte(&quoted, '\'');
    replace(words->words, buf_str(&quoted), &own);
    buf_add_byte(body, '"');
    buf_add(body, own.at + 1, own.bytes - 2);
    buf_add_byte(body, '"');
    buf_release(&quoted);
    buf_release(&own);
}

void own_words_write(const struct own_words *words, struct str error, struct buf *body) {
    static const char *const names[] = {"message", "type", "param", "code"};
    struct str whole, inside = {NULL, 0}, values[COUNT(names)] = {{NULL, 0}};
    struct member places[COUNT(names)];
    struct refusal twice;
    for (size_t i = 0; i < COUNT(names); i++) places[i] = (struct member){names[i], &values[i]};
    if (json_span_read(error, &whole) && json_span_is_object(whole))
        inside = json_span_get(whole, "error");
    if (!inside.at || !json_span_is_object(inside) ||
        !members_read(inside, places, COUNT(places), &twice) || !values[0].at ||
        !json_span_is_string(values[0])) {
        buf_add_str(body, error);
        return;
    }
    buf_add_text(body, "{\"error\":{\"message\":\"");
    write_sentence(words, (struct str){values[0].at + 1, values[0].bytes - 2}, body);
    buf_add_byte(body, '"');
    for (size_t i = 1; i < COUNT(names); i++) {
        bool is_param = i == 2 && values[i].at && json_span_is_string(values[i]);
        buf_printf(body, ",\"%s\":", names[i]);
        if (is_param)
            write_param(words, values[i], body);
        else
            buf_add_str(body, values[i].at ? values[i] : STR("null"));
    }
    buf_add_text(body, "}}");
}

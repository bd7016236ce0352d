/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_fields.h"

#include "json/json.h"

#include <assert.h>

#define AT(member) .offset = offsetof(struct request, member)
#define NO_SAMPLER "this build has no such sampler"
#define USE_MAX_TOKENS "use max_tokens"

static const char *const reasoning_fields[] = {"reasoning_content", "reasoning", "both", NULL};

/* The ranges of the API reference, and of vLLM for its extensions. */
static const struct field rows[] = {
    {"temperature", FIELD_NUMBER, REQUEST_BOTH, 0, 2, 0, AT(temperature)},
    {"top_p", FIELD_NUMBER, REQUEST_BOTH, 0, 1, 0, AT(top_p)},
    {"top_k", FIELD_INTEGER, REQUEST_BOTH, -1, REQUEST_NO_MAX, 0, AT(top_k)},
    {"min_p", FIELD_NUMBER, REQUEST_BOTH, 0, 1, 0, AT(min_p)},
    {"presence_penalty", FIELD_NUMBER, REQUEST_BOTH, -2, 2, 0, AT(presence_penalty)},
    {"frequency_penalty", FIELD_NUMBER, REQUEST_BOTH, -2, 2, 0, AT(frequency_penalty)},
    {"repetition_penalty", FIELD_NUMBER, REQUEST_BOTH, 0, 100, FIELD_ABOVE_MIN,
     AT(repetition_penalty)},
    {"n", FIELD_INTEGER, REQUEST_BOTH, 1, REQUEST_CHOICES_MAX, 0, AT(choices)},
    /* If a body has both, the later row wins. */
    {"max_tokens", FIELD_INTEGER, REQUEST_CHAT, 1, REQUEST_NO_MAX, 0, AT(max_tokens)},
    {"max_tokens", FIELD_INTEGER, REQUEST_TEXT, 0, REQUEST_NO_MAX, 0, AT(max_tokens)},
    {"max_completion_tokens", FIELD_INTEGER, REQUEST_CHAT, 1, REQUEST_NO_MAX, 0, AT(max_tokens)},
    {"min_tokens", FIELD_INTEGER, REQUEST_BOTH, 0, REQUEST_NO_MAX, 0, AT(min_tokens)},
    {"top_logprobs", FIELD_INTEGER, REQUEST_CHAT, 0, REQUEST_TOP_LOGPROBS_MAX, 0, AT(top_logprobs)},
    {"logprobs", FIELD_BOOL, REQUEST_CHAT, 0, 0, 0, AT(logprobs)},
    {"stream", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(stream)},
    {"translated", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(is_translated)},
    {"echo", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(echo)},
    {"ignore_eos", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(ignore_eos)},
    {"include_stop_str_in_output", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(include_stop)},
    {"skip_special_tokens", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(skip_special_tokens)},
    {"return_token_ids", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(return_token_ids)},
    {"return_tokens_as_token_ids", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(tokens_as_ids)},
    {"add_special_tokens", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(add_special_tokens)},
    {"parse_special", FIELD_BOOL, REQUEST_BOTH, 0, 0, 0, AT(parse_special)},
    {"add_generation_prompt", FIELD_BOOL, REQUEST_CHAT, 0, 0, 0, AT(add_generation_prompt)},
    {"continue_final_message", FIELD_BOOL, REQUEST_CHAT, 0, 0, 0, AT(continue_final_message)},
    {"include_reasoning", FIELD_BOOL, REQUEST_CHAT, 0, 0, 0, AT(include_reasoning)},
    {"reasoning_field", FIELD_CHOICE, REQUEST_CHAT, 0, 0, 0, AT(reasoning_field),
     .choices = reasoning_fields},
    {"thinking_token_budget", FIELD_INTEGER, REQUEST_CHAT, -1, REQUEST_NO_MAX, 0,
     AT(thinking_token_budget)},
};

/* Members that a client must not believe to be in force; `off` is the value that asks for
 * nothing. */
enum off_value { OFF_NULL, OFF_FALSE, OFF_EMPTY, OFF_ZERO, OFF_ONE };
struct unsupported {
    const char *name;
    unsigned endpoints;
    enum off_value off;
    const char *reason;
};

static const struct unsupported unsupported[] = {
    {"mirostat", REQUEST_BOTH, OFF_ZERO, NO_SAMPLER},
    {"mirostat_mode", REQUEST_BOTH, OFF_ZERO, NO_SAMPLER},
    {"typical_p", REQUEST_BOTH, OFF_ONE, NO_SAMPLER},
    {"tfs_z", REQUEST_BOTH, OFF_ONE, NO_SAMPLER},
    {"top_a", REQUEST_BOTH, OFF_ZERO, NO_SAMPLER},
    {"dry_multiplier", REQUEST_BOTH, OFF_ZERO, NO_SAMPLER},
    {"xtc_probability", REQUEST_BOTH, OFF_ZERO, NO_SAMPLER},
    {"no_repeat_ngram_size", REQUEST_BOTH, OFF_ZERO, NO_SAMPLER},
    {"dynatemp_range", REQUEST_BOTH, OFF_ZERO, NO_SAMPLER},
    {"samplers", REQUEST_BOTH, OFF_EMPTY, NO_SAMPLER},
    {"repetition_detection", REQUEST_BOTH, OFF_NULL, "repetition is not looked for"},
    {"thinking_token_budget", REQUEST_TEXT, OFF_NULL, "text completions have no thought"},
    {"n_predict", REQUEST_BOTH, OFF_NULL, USE_MAX_TOKENS},
    {"max_new_tokens", REQUEST_BOTH, OFF_NULL, USE_MAX_TOKENS},
    {"min_new_tokens", REQUEST_BOTH, OFF_ZERO, "use min_tokens"},
    {"vllm_xargs", REQUEST_BOTH, OFF_EMPTY, "there are no extensions to pass them to"},
    {"use_beam_search", REQUEST_BOTH, OFF_FALSE, "there is no beam search"},
    {"logits_processors", REQUEST_BOTH, OFF_EMPTY, "logits processors do not exist here"},
    {"documents", REQUEST_CHAT, OFF_EMPTY, "documents are not passed to templates"},
    {"functions", REQUEST_CHAT, OFF_EMPTY, "use tools"},
    {"function_call", REQUEST_CHAT, OFF_NULL, "use tool_choice"},
    {"audio", REQUEST_CHAT, OFF_NULL, "there is no audio output"},
    {"web_search_options", REQUEST_CHAT, OFF_NULL, "there is no web search"},
    {"suffix", REQUEST_TEXT, OFF_EMPTY, "no text can be inserted before a suffix"},
    {"prompt_embeds", REQUEST_TEXT, OFF_NULL, "prompts are text or token ids"},
};

static bool asks_for_nothing(const json_t *value, enum off_value off) {
    if (!value) return true;
    switch (off) {
    case OFF_NULL: return false;
    case OFF_FALSE: return json_is_false(value);
    case OFF_EMPTY:
        return (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0) ||
               (json_is_string(value) && json_string_length(value) == 0);
    case OFF_ZERO: return json_is_number(value) && json_number_value(value) <= 0;
    case OFF_ONE: return json_is_number(value) && json_number_value(value) == 1;
    }
    return false;
}

/* --- reading --- */

static bool refuse_range(struct refusal *refusal, const struct field_fault *fault) {
    static const char *const codes[2][2] = {
        {"decimal_below_min_value", "decimal_above_max_value"},
        {"integer_below_min_value", "integer_above_max_value"},
    };
    const struct field *field = fault->field;
    bool is_integer = field->kind == FIELD_INTEGER, is_above = fault->trouble == FIELD_ABOVE;
    bool is_open = field->flags & FIELD_ABOVE_MIN;
    char text[VALUE_TEXT_BYTES];
    return refuse(refusal, codes[is_integer][is_above], field->name,
                  "Invalid '%s': %s %s value. Expected a value %s %.15g, but got %s instead.",
                  field->name, is_integer ? "integer" : "decimal",
                  is_above ? "above maximum" : "below minimum",
                  is_above  ? "<="
                  : is_open ? ">"
                            : ">=",
                  is_above ? field->max : field->min, value_text(fault->got, text));
}

static bool refuse_choice(struct refusal *refusal, const struct field_fault *fault) {
    struct buf known;
    buf_init(&known, 4096);
    field_list_choices(&known, fault->field);
    refuse_value(refusal, fault->field->name, fault->got, known.at);
    buf_release(&known);
    return false;
}

bool request_field_refuse(struct refusal *refusal, const struct field_fault *fault) {
    switch (fault->trouble) {
    case FIELD_WRONG_TYPE:
        return refuse_type(refusal, fault->field->name, field_expected(fault->field->kind),
                           fault->got);
    case FIELD_BELOW:
    case FIELD_ABOVE: return refuse_range(refusal, fault);
    case FIELD_NO_CHOICE: return refuse_choice(refusal, fault);
    case FIELD_MISSING: return refuse_missing(refusal, fault->field->name);
    case FIELD_HAS_NUL:
    case FIELD_NO_MD5: break; /* no row here has such a kind */
    }
    assert(false); /* a kind without a sentence */
    return false;
}

const struct fields request_fields = {rows, sizeof rows / sizeof *rows, true, request_field_refuse};

bool request_parse_fields(struct request *request, struct refusal *refusal) {
    unsigned endpoint = 1u << request->endpoint;
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const struct unsupported *row = &unsupported[i];
        if (row->endpoints & endpoint &&
            !asks_for_nothing(json_member(request->body, row->name), row->off))
            return refuse_unsupported(refusal, row->name, row->reason);
    }
    return fields_read(&request_fields, endpoint, request->body, request, refusal);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCABULARY 300

/* A body is BASE with `members` put into it. */
#define CHAT_BASE "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TEXT_BASE "\"model\":\"m\",\"prompt\":\"hi\""

struct row {
    const char *members;
    const char *code; /* NULL: accepted */
    const char *param;
    const char *says; /* a part of the message */
};

static void check_rows(enum endpoint endpoint, const char *base, const struct row *rows,
                       size_t count) {
    for (size_t i = 0; i < count; i++) {
        char body[4096];
        snprintf(body, sizeof body, "{%s%s%s}", base, *rows[i].members ? "," : "", rows[i].members);
        struct request request;
        struct refusal refusal = {.code = "none"};
        bool is_good = request_parse(&request, endpoint, str_from(body), VOCABULARY, &refusal);
        if (is_good) request_release(&request);
        if (is_good != !rows[i].code)
            fail_msg("%s: %s", body, is_good ? "was accepted" : refusal.message);
        if (is_good) continue;
        assert_int_equal(refusal.status, 400);
        if (strcmp(refusal.code, rows[i].code) != 0 || strcmp(refusal.param, rows[i].param) != 0)
            fail_msg("%s: code %s, param %s: %s", body, refusal.code, refusal.param,
                     refusal.message);
        /* Clients see the message alone, so it names the parameter. */
        if (!strstr(refusal.message, rows[i].param) && !strchr(rows[i].param, '['))
            fail_msg("%s: does not name the parameter: %s", body, refusal.message);
        if (rows[i].says && !strstr(refusal.message, rows[i].says))
            fail_msg("%s: does not say '%s': %s", body, rows[i].says, refusal.message);
    }
}

#define TYPE "invalid_type"
#define VALUE "invalid_value"
#define MISSING "missing_required_parameter"
#define OTHER "unsupported_parameter"
#define DBELOW "decimal_below_min_value"
#define DABOVE "decimal_above_max_value"
#define IBELOW "integer_below_min_value"
#define IABOVE "integer_above_max_value"

static const struct row both[] = {
    {"", NULL, NULL, NULL},
    {"\"unknown_field\":{\"a\":[1]}", NULL, NULL, NULL},
    {"\"temperature\":0", NULL, NULL, NULL},
    {"\"temperature\":2", NULL, NULL, NULL},
    {"\"temperature\":null", NULL, NULL, NULL},
    {"\"temperature\":2.1", DABOVE, "temperature", "2.1"},
    {"\"temperature\":-1", DBELOW, "temperature", "-1"},
    {"\"temperature\":\"1\"", TYPE, "temperature", "a string"},
    {"\"temperature\":true", TYPE, "temperature", "a boolean"},
    {"\"temperature\":1e308", DABOVE, "temperature", "1e+308"},
    {"\"top_p\":0", NULL, NULL, NULL},
    {"\"top_p\":1.1", DABOVE, "top_p", "1.1"},
    {"\"top_p\":-0.1", DBELOW, "top_p", NULL},
    {"\"top_k\":-1", NULL, NULL, NULL},
    {"\"top_k\":-2", IBELOW, "top_k", "-2"},
    {"\"top_k\":1.5", TYPE, "top_k", "1.5"},
    {"\"top_k\":99999999999", NULL, NULL, NULL},
    {"\"min_p\":1", NULL, NULL, NULL},
    {"\"min_p\":1.01", DABOVE, "min_p", NULL},
    {"\"n\":0", IBELOW, "n", "but got 0"},
    {"\"n\":128", NULL, NULL, NULL},
    {"\"n\":129", IABOVE, "n", "129"},
    {"\"n\":2.0", NULL, NULL, NULL},
    {"\"n\":\"two\"", TYPE, "n", "'two'"},
    {"\"presence_penalty\":3", DABOVE, "presence_penalty", NULL},
    {"\"presence_penalty\":-2", NULL, NULL, NULL},
    {"\"frequency_penalty\":-2.5", DBELOW, "frequency_penalty", NULL},
    {"\"repetition_penalty\":0", DBELOW, "repetition_penalty", "> 0"},
    {"\"repetition_penalty\":1.3", NULL, NULL, NULL},
    {"\"max_tokens\":0", IBELOW, "max_tokens", NULL},
    {"\"max_tokens\":-1", IBELOW, "max_tokens", "-1"},
    {"\"max_tokens\":\"10\"", TYPE, "max_tokens", NULL},
    {"\"max_tokens\":9223372036854775807", IABOVE, "max_tokens", NULL},
    {"\"min_tokens\":5,\"max_tokens\":4", IABOVE, "min_tokens", NULL},
    {"\"min_tokens\":-1", IBELOW, "min_tokens", NULL},
    {"\"seed\":-9223372036854775808", NULL, NULL, NULL},
    {"\"seed\":\"x\"", TYPE, "seed", NULL},
    {"\"seed\":1.5", TYPE, "seed", NULL},
    {"\"stop\":\"x\"", NULL, NULL, NULL},
    {"\"stop\":[]", NULL, NULL, NULL},
    {"\"stop\":[\"a\",\"b\",\"c\",\"d\"]", NULL, NULL, NULL},
    {"\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]", "array_above_max_length", "stop", "5"},
    {"\"translated\":true,\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\","
     "\"k\",\"l\",\"m\",\"n\",\"o\",\"p\",\"q\"]",
     "array_above_max_length", "stop", "17"},
    {"\"stop\":\"\"", VALUE, "stop", "empty"},
    {"\"stop\":[\"a\",\"\"]", VALUE, "stop[1]", "empty"},
    {"\"stop\":[1]", TYPE, "stop[0]", NULL},
    {"\"stop\":7", TYPE, "stop", NULL},
    {"\"stop_token_ids\":[0,299]", NULL, NULL, NULL},
    {"\"stop_token_ids\":[300]", VALUE, "stop_token_ids", "300"},
    {"\"stop_token_ids\":[-1]", VALUE, "stop_token_ids", NULL},
    {"\"stop_token_ids\":3", TYPE, "stop_token_ids", NULL},
    {"\"logit_bias\":{\"5\":-100,\"6\":100}", NULL, NULL, NULL},
    {"\"logit_bias\":{}", NULL, NULL, NULL},
    {"\"logit_bias\":{\"5\":101}", DABOVE, "logit_bias.5", "101"},
    {"\"logit_bias\":{\"05\":1}", VALUE, "logit_bias", "05"},
    {"\"logit_bias\":{\"300\":1}", VALUE, "logit_bias", "300"},
    {"\"logit_bias\":{\"-1\":1}", VALUE, "logit_bias", NULL},
    {"\"logit_bias\":{\"5\":\"1\"}", TYPE, "logit_bias.5", NULL},
    {"\"logit_bias\":[1]", TYPE, "logit_bias", NULL},
    {"\"stream\":true,\"stream_options\":{\"include_usage\":true}", NULL, NULL, NULL},
    {"\"stream_options\":{\"include_usage\":true}", VALUE, "stream_options", NULL},
    {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", TYPE,
     "stream_options.include_usage", NULL},
    {"\"stream\":true,\"stream_options\":7", TYPE, "stream_options", NULL},
    {"\"stream\":1", TYPE, "stream", NULL},
    {"\"ignore_eos\":true,\"skip_special_tokens\":false", NULL, NULL, NULL},
    {"\"include_stop_str_in_output\":\"yes\"", TYPE, "include_stop_str_in_output", NULL},
    {"\"priority\":-3", NULL, NULL, NULL},
    {"\"priority\":\"high\"", TYPE, "priority", NULL},
    {"\"user\":5", TYPE, "user", NULL},
    {"\"service_tier\":\"flex\"", NULL, NULL, NULL},
    {"\"service_tier\":\"gold\"", VALUE, "service_tier", "'flex'"},
    {"\"truncate_prompt_tokens\":5", NULL, NULL, NULL},
    {"\"truncate_prompt_tokens\":0", VALUE, "truncate_prompt_tokens", NULL},
    {"\"truncate_prompt_tokens\":-2", IBELOW, "truncate_prompt_tokens", NULL},
    {"\"response_format\":{\"type\":\"text\"}", NULL, NULL, NULL},
    {"\"response_format\":{\"type\":\"json_object\"}", NULL, NULL, NULL},
    {"\"response_format\":{\"type\":\"json_schema\"}", MISSING, "response_format.json_schema",
     NULL},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\"}}", MISSING,
     "response_format.json_schema.schema", NULL},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[]}}", TYPE,
     "response_format.json_schema.schema", NULL},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{}}"
     "}",
     NULL, NULL, NULL},
    {"\"response_format\":{\"type\":\"structural_tag\"}", TYPE, "response_format", NULL},
    {"\"response_format\":{\"type\":\"xml\"}", VALUE, "response_format.type", "'xml'"},
    {"\"response_format\":{}", MISSING, "response_format.type", NULL},
    {"\"response_format\":\"json\"", TYPE, "response_format", NULL},
    {"\"guided_json\":{}", NULL, NULL, NULL},
    {"\"guided_json\":\"{\\\"type\\\":\\\"null\\\"}\"", NULL, NULL, NULL},
    {"\"guided_json\":\"{\"", VALUE, "guided_json", "it is not valid JSON: "},
    {"\"guided_json\":5", TYPE, "guided_json", NULL},
    {"\"guided_json\":null", NULL, NULL, NULL},
    {"\"guided_regex\":\"a+\"", NULL, NULL, NULL},
    {"\"guided_regex\":[]", TYPE, "guided_regex", NULL},
    {"\"guided_choice\":[\"a\"]", NULL, NULL, NULL},
    {"\"guided_choice\":[]", VALUE, "guided_choice", "empty"},
    {"\"guided_choice\":[1]", TYPE, "guided_choice", NULL},
    {"\"guided_json_object\":true", NULL, NULL, NULL},
    {"\"guided_json_object\":false", NULL, NULL, NULL},
    {"\"guided_grammar\":\"root\"", NULL, NULL, NULL},
    {"\"guided_whitespace_pattern\":\" *\"", OTHER, "guided_whitespace_pattern", NULL},
    {"\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]", VALUE, "guided_choice", "only use one"},
    {"\"guided_regex\":\"a\",\"response_format\":{\"type\":\"json_object\"}", VALUE, "guided_regex",
     "only use one"},
    {"\"structured_outputs\":{\"regex\":\"a\"}", NULL, NULL, NULL},
    {"\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":false,\"choice\":null}", NULL,
     NULL, NULL},
    {"\"structured_outputs\":{\"json_object\":true}", NULL, NULL, NULL},
    {"\"structured_outputs\":{\"json_object\":false}", VALUE, "structured_outputs.json_object",
     NULL},
    {"\"structured_outputs\":{}", VALUE, "structured_outputs", "none"},
    {"\"structured_outputs\":5", TYPE, "structured_outputs", NULL},
    {"\"structured_outputs\":{\"regex\":\"a\",\"json\":{}}", VALUE, "structured_outputs.regex",
     "only use one"},
    {"\"structured_outputs\":{\"grammar\":\"root\"}", NULL, NULL, NULL},
    {"\"guided_grammar\":{}", TYPE, "guided_grammar", NULL},
    {"\"structured_outputs\":{\"structural_tag\":\"{}\"}", TYPE,
     "structured_outputs.structural_tag", NULL},
    {"\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":true}", OTHER,
     "structured_outputs.disable_any_whitespace", NULL},
    {"\"structured_outputs\":{\"jsonx\":{}}", OTHER, "structured_outputs", "jsonx"},
    {"\"regex\":\"a+\"", NULL, NULL, NULL},
    {"\"regex\":\"\",\"grammar\":\"\",\"format\":\"\",\"extra_body\":{}", NULL, NULL, NULL},
    {"\"regex\":\"a\",\"ebnf\":\"root ::= \\\"a\\\"\"", VALUE, "ebnf", "only use one"},
    {"\"grammar\":{\"type\":\"regex\",\"value\":\"a\"}", NULL, NULL, NULL},
    {"\"json_schema\":{\"type\":\"null\"}", NULL, NULL, NULL},
    {"\"format\":\"json\"", NULL, NULL, NULL},
    {"\"format\":\"xml\"", VALUE, "format", "'xml'"},
    {"\"options\":{\"temperature\":0}", OTHER, "options", "Ollama"},
    {"\"extra_body\":{\"top_k\":1}", OTHER, "extra_body", "the body itself"},
    {"\"responseFormat\":{\"type\":\"json_object\"}", OTHER, "responseFormat", NULL},
    {"\"repsonse_format\":{\"type\":\"json_object\"}", OTHER, "repsonse_format", NULL},
    {"\"nvext\":{\"guided_json\":{\"type\":\"null\"}}", OTHER, "nvext.guided_json", NULL},
    {"\"a\":[{\"b\":{\"responseSchema\":{\"type\":\"null\"}}}]", OTHER, "a.b.responseSchema", NULL},
    {"\"metadata\":{\"guided_json\":\"x\",\"schema\":{\"a\":1}}", NULL, NULL, NULL},
    {"\"schema_version\":\"2\",\"guided_decoding_backend\":\"outlines\"", NULL, NULL, NULL},
    {"\"response_format\":{\"type\":\"text\",\"json_schema\":{\"name\":\"a\"}}", OTHER,
     "response_format.json_schema", NULL},
    {"\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"null\"}}", NULL, NULL,
     NULL},
    {"\"response_format\":{\"type\":\"json_object\",\"schema\":[]}", TYPE, "response_format.schema",
     NULL},
    {"\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"null\"},\"name\":\"a\"}",
     NULL, NULL, NULL},
    {"\"response_format\":{\"type\":\"regex\"}", MISSING, "response_format.regex", NULL},
    {"\"response_format\":{\"type\":\"regex\",\"pattern\":\"a\"}", NULL, NULL, NULL},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"regex\":\"a\"}"
     "}",
     OTHER, "response_format.json_schema.regex", NULL},
    {"\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"low\"}", NULL, NULL, NULL},
    {"\"text\":{\"format\":{\"type\":\"xml\"}}", VALUE, "text.format.type", "'xml'"},
    {"\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"null\"}}}",
     NULL, NULL, NULL},
    {"\"mirostat\":2", OTHER, "mirostat", NULL},
    {"\"mirostat\":0,\"typical_p\":1.0,\"samplers\":[]", NULL, NULL, NULL},
    {"\"typical_p\":0.9", OTHER, "typical_p", NULL},
    {"\"max_new_tokens\":5", OTHER, "max_new_tokens", "max_tokens"},
    {"\"bad_words\":[\"x\",\" two words\"]", NULL, NULL, NULL},
    {"\"bad_words\":[]", NULL, NULL, NULL},
    {"\"bad_words\":\"x\"", TYPE, "bad_words", NULL},
    {"\"bad_words\":[\"x\",7]", TYPE, "bad_words[1]", NULL},
    {"\"bad_words\":[\" \"]", VALUE, "bad_words[0]", "empty"},
    {"\"allowed_token_ids\":[1,299,1]", NULL, NULL, NULL},
    {"\"allowed_token_ids\":[]", "array_below_min_length", "allowed_token_ids", NULL},
    {"\"allowed_token_ids\":[300]", VALUE, "allowed_token_ids", "300"},
    {"\"allowed_token_ids\":[1.5]", TYPE, "allowed_token_ids", NULL},
    {"\"allowed_token_ids\":null", NULL, NULL, NULL},
    {"\"prompt_logprobs\":0", NULL, NULL, NULL},
    {"\"prompt_logprobs\":20", NULL, NULL, NULL},
    {"\"prompt_logprobs\":21", IABOVE, "prompt_logprobs", "21"},
    {"\"prompt_logprobs\":-1", IBELOW, "prompt_logprobs", NULL},
    {"\"prompt_logprobs\":true", TYPE, "prompt_logprobs", NULL},
    {"\"prompt_logprobs\":1,\"stream\":true", VALUE, "prompt_logprobs", "stream"},
    {"\"logprob_token_ids\":[1]", VALUE, "logprob_token_ids", "logprobs"},
    {"\"logprob_token_ids\":[300]", VALUE, "logprob_token_ids", "300"},
    {"\"logprob_token_ids\":[]", NULL, NULL, NULL},
    {"\"return_token_ids\":true,\"return_tokens_as_token_ids\":true", NULL, NULL, NULL},
    {"\"return_token_ids\":1", TYPE, "return_token_ids", NULL},
    {"\"spaces_between_special_tokens\":false", NULL, NULL, NULL},
    {"\"spaces_between_special_tokens\":0", TYPE, "spaces_between_special_tokens", NULL},
    {"\"request_id\":\"mine\"", NULL, NULL, NULL},
    {"\"request_id\":\"\"", VALUE, "request_id", "empty"},
    {"\"request_id\":7", TYPE, "request_id", NULL},
    {"\"cache_salt\":\"x\"", NULL, NULL, NULL},
    {"\"cache_salt\":\"\"", VALUE, "cache_salt", "empty"},
    {"\"cache_salt\":3", TYPE, "cache_salt", NULL},
    {"\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":7}", TYPE,
     "stream_options.continuous_usage_stats", NULL},
    {"\"use_beam_search\":true", OTHER, "use_beam_search", NULL},
    {"\"use_beam_search\":false", NULL, NULL, NULL},
    {"\"best_of\":1", NULL, NULL, NULL},
    {"\"best_of\":2", NULL, NULL, NULL},
    {"\"best_of\":129", IABOVE, "best_of", NULL},
    {"\"best_of\":\"2\"", TYPE, "best_of", NULL},
    {"\"best_of\":2,\"stream\":true", VALUE, "best_of", "streamed"},
    {"\"best_of\":2,\"n\":2,\"stream\":true", NULL, NULL, NULL},
    {"\"best_of\":1,\"n\":2", IBELOW, "best_of", NULL},
    {"\"store\":true,\"metadata\":{\"a\":\"b\"},\"prompt_cache_key\":\"k\"", NULL, NULL, NULL},
};

#define ALLOWED(mode, name)                                                                        \
    "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode            \
    "\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}]}}"
#define FUNCTION "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

static const struct row chat[] = {
    {"\"max_completion_tokens\":0", IBELOW, "max_completion_tokens", NULL},
    {"\"max_completion_tokens\":5,\"max_tokens\":-1", IBELOW, "max_tokens", NULL},
    {"\"logprobs\":true,\"top_logprobs\":20", NULL, NULL, NULL},
    {"\"logprobs\":true,\"top_logprobs\":21", IABOVE, "top_logprobs", "21"},
    {"\"top_logprobs\":2", VALUE, "top_logprobs", "logprobs"},
    {"\"logprobs\":false,\"top_logprobs\":0", NULL, NULL, NULL},
    {"\"logprobs\":false,\"top_logprobs\":1", VALUE, "top_logprobs", NULL},
    {"\"logprobs\":1", TYPE, "logprobs", NULL},
    {"\"modalities\":[\"text\"]", NULL, NULL, NULL},
    {"\"modalities\":[\"text\",\"audio\"]", VALUE, "modalities", "'audio'"},
    {"\"reasoning_effort\":\"low\"", NULL, NULL, NULL},
    {"\"reasoning_effort\":\"huge\"", VALUE, "reasoning_effort", NULL},
    {"\"chat_template\":\"{{ 1 }}\"", NULL, NULL, NULL},
    {"\"chat_template\":1", TYPE, "chat_template", NULL},
    {"\"logprobs\":true,\"logprob_token_ids\":[1,2]", NULL, NULL, NULL},
    {"\"logprobs\":true,\"logprob_token_ids\":[1,2,1]", VALUE, "logprob_token_ids", "twice"},
    {"\"logprobs\":false,\"logprob_token_ids\":[1]", VALUE, "logprob_token_ids", NULL},
    {"\"chat_template_kwargs\":{\"enable_thinking\":false}", NULL, NULL, NULL},
    {"\"chat_template_kwargs\":{\"messages\":[]}", VALUE, "chat_template_kwargs", "messages"},
    {"\"chat_template_kwargs\":7", TYPE, "chat_template_kwargs", NULL},
    {"\"continue_final_message\":true", NULL, NULL, NULL},
    {"\"continue_final_message\":true,\"add_generation_prompt\":true", VALUE,
     "continue_final_message", NULL},
    {"\"tools\":[" FUNCTION "]", NULL, NULL, NULL},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false", NULL, NULL,
     NULL},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":\"none\"", NULL, NULL, NULL},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":\"required\"", NULL, NULL, NULL},
    {"\"tools\":[" FUNCTION
     "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
     NULL, NULL, NULL},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}", NULL, NULL,
     NULL},
    {"\"tools\":[" FUNCTION
     "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}",
     VALUE, "tool_choice", "none of 'tools' has this name"},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":{\"type\":\"function\"}", MISSING,
     "tool_choice.function.name", NULL},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":{\"type\":\"custom\",\"custom\":{\"name\":\"f\"}}",
     VALUE, "tool_choice.type", "'custom'"},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":{}", MISSING, "tool_choice.type", NULL},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":7", TYPE, "tool_choice", NULL},
    {"\"tools\":[" FUNCTION ALLOWED("auto", "f"), NULL, NULL, NULL},
    {"\"tools\":[" FUNCTION ALLOWED("required", "f"), NULL, NULL, NULL},
    {"\"tools\":[" FUNCTION ALLOWED("none", "f"), VALUE, "tool_choice.allowed_tools.mode", NULL},
    {"\"tools\":[" FUNCTION ALLOWED("auto", "g"), VALUE, "tool_choice",
     "none of 'tools' has this name"},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":{\"type\":\"allowed_tools\"}", MISSING,
     "tool_choice.allowed_tools", NULL},
    {"\"tools\":[" FUNCTION
     "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\"}}",
     MISSING, "tool_choice.allowed_tools.tools", NULL},
    {"\"tools\":[" FUNCTION
     "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
     "\"tools\":[]}}",
     "array_below_min_length", "tool_choice.allowed_tools.tools", NULL},
    {"\"tools\":[" FUNCTION "],\"tool_choice\":\"maybe\"", VALUE, "tool_choice", "'maybe'"},
    {"\"tool_choice\":\"auto\"", VALUE, "tool_choice", NULL},
    {"\"tools\":[]", "array_below_min_length", "tools", NULL},
    {"\"tools\":{}", TYPE, "tools", NULL},
    {"\"tools\":[{\"type\":\"function\"}]", MISSING, "tools[0].function", NULL},
    {"\"tools\":[{\"type\":\"web\"}]", VALUE, "tools[0].type", NULL},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", VALUE,
     "tools[0].function.name", "'a b'"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]", NULL,
     NULL, NULL},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":1}}]", TYPE,
     "tools[0].function.strict", NULL},
    {"\"functions\":[{}]", OTHER, "functions", NULL},
    {"\"function_call\":\"auto\"", OTHER, "function_call", NULL},
    {"\"audio\":{}", OTHER, "audio", NULL},
};

/* Whole lists of messages. */
static const struct row messages[] = {
    {"[]", "array_below_min_length", "messages", NULL},
    {"null", MISSING, "messages", NULL},
    {"\"hi\"", TYPE, "messages", NULL},
    {"[7]", TYPE, "messages[0]", NULL},
    {"[{\"content\":\"x\"}]", MISSING, "messages[0].role", NULL},
    {"[{\"role\":\"robot\",\"content\":\"x\"}]", VALUE, "messages[0].role", "'robot'"},
    {"[{\"role\":\"user\"}]", MISSING, "messages[0].content", NULL},
    {"[{\"role\":\"user\",\"content\":null}]", MISSING, "messages[0].content", NULL},
    {"[{\"role\":\"user\",\"content\":5}]", TYPE, "messages[0].content", NULL},
    {"[{\"role\":\"user\",\"content\":[]}]", VALUE, "messages[0].content", NULL},
    {"[{\"role\":\"assistant\",\"content\":null}]", MISSING, "messages[0].content", NULL},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]", NULL, NULL, NULL},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", MISSING,
     "messages[0].content[0].text", NULL},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]", OTHER,
     "messages[0].content[0].type", "image_url"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"smell\"}]}]", VALUE,
     "messages[0].content[0].type", "'smell'"},
    {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":"
     "\"function\","
     "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]",
     NULL, NULL, NULL},
    {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]"
     "}]",
     VALUE, "messages[0].tool_calls[0].function.arguments", "is not valid JSON: "},
    {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"[]\"}}"
     "]}]",
     VALUE, "messages[0].tool_calls[0].function.arguments", NULL},
    {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"\"}}]}]", MISSING,
     "messages[0].tool_calls[0].function.name", NULL},
    {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", TYPE, "messages[0].tool_calls", NULL},
    {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"tool\",\"content\":\"b\"}]", NULL, NULL,
     NULL},
};

static const struct row text[] = {
    {"\"logprobs\":5", NULL, NULL, NULL},
    {"\"logprobs\":0", NULL, NULL, NULL},
    {"\"logprobs\":6", IABOVE, "logprobs", NULL},
    {"\"logprobs\":true", TYPE, "logprobs", NULL},
    {"\"echo\":true", NULL, NULL, NULL},
    {"\"echo\":true,\"logprobs\":1", NULL, NULL, NULL},
    {"\"echo\":true,\"max_tokens\":0", NULL, NULL, NULL},
    {"\"echo\":false,\"max_tokens\":0", IBELOW, "max_tokens", NULL},
    {"\"logprobs\":0,\"logprob_token_ids\":[7]", NULL, NULL, NULL},
    {"\"suffix\":\"x\"", OTHER, "suffix", NULL},
    {"\"suffix\":\"\"", NULL, NULL, NULL},
};

static const struct row prompts[] = {
    {"null", MISSING, "prompt", NULL},     {"5", TYPE, "prompt", NULL},
    {"[]", TYPE, "prompt", NULL},          {"[\"a\",\"b\"]", NULL, NULL, NULL},
    {"[1,2,299]", NULL, NULL, NULL},       {"[1,300]", VALUE, "prompt", "300"},
    {"[1,-1]", VALUE, "prompt", NULL},     {"[1,\"a\"]", TYPE, "prompt", NULL},
    {"[[1,2],[3]]", NULL, NULL, NULL},     {"[[1,2],[]]", VALUE, "prompt", NULL},
    {"[[1],\"a\"]", TYPE, "prompt", NULL}, {"[\"a\",[1]]", TYPE, "prompt", NULL},
    {"{}", TYPE, "prompt", NULL},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void fields_of_both_endpoints_keep_their_types_and_ranges(void **state) {
    (void)state;
    check_rows(ENDPOINT_CHAT, CHAT_BASE, both, COUNT(both));
    check_rows(ENDPOINT_COMPLETIONS, TEXT_BASE, both, COUNT(both));
}

static void fields_of_a_chat_keep_their_types_and_ranges(void **state) {
    (void)state;
    check_rows(ENDPOINT_CHAT, CHAT_BASE, chat, COUNT(chat));
}

static void fields_of_a_completion_keep_their_types_and_ranges(void **state) {
    (void)state;
    check_rows(ENDPOINT_COMPLETIONS, TEXT_BASE, text, COUNT(text));
}

/* Each row's value behind `key`. */
static void check_values(enum endpoint endpoint, const char *key, const struct row *rows,
                         size_t count) {
    for (size_t i = 0; i < count; i++) {
        char base[2048];
        snprintf(base, sizeof base, "\"model\":\"m\",\"%s\":%s", key, rows[i].members);
        const struct row row = {"", rows[i].code, rows[i].param, rows[i].says};
        check_rows(endpoint, base, &row, 1);
    }
}

static void messages_keep_their_shape(void **state) {
    (void)state;
    check_values(ENDPOINT_CHAT, "messages", messages, COUNT(messages));
}

static void prompts_keep_their_shape(void **state) {
    (void)state;
    check_values(ENDPOINT_COMPLETIONS, "prompt", prompts, COUNT(prompts));
}

static void a_request_names_its_model(void **state) {
    (void)state;
    const struct row rows[] = {{"", MISSING, "model", NULL}, {"\"model\":7", TYPE, "model", NULL}};
    check_rows(ENDPOINT_CHAT, "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]", rows, 2);
}

static void what_is_no_object_of_json_is_refused_without_a_code(void **state) {
    (void)state;
    static const char *const bodies[] = {"",
                                         "{",
                                         "[]",
                                         "7",
                                         "{\"a\":1}x",
                                         "{\"a\":\"\xff\"}",
                                         "{" CHAT_BASE ",\"temperature\":9,\"temperature\":0.5}",
                                         "{" CHAT_BASE ",\"x\":[{\"y\":1,\"\\u0079\":1}]}"};
    for (size_t i = 0; i < COUNT(bodies); i++) {
        struct request request;
        struct refusal refusal;
        assert_false(
            request_parse(&request, ENDPOINT_CHAT, str_from(bodies[i]), VOCABULARY, &refusal));
        assert_int_equal(refusal.status, 400);
        assert_null(refusal.code);
    }
}

static struct request parsed(enum endpoint endpoint, const char *base, const char *members) {
    char body[1024];
    snprintf(body, sizeof body, "{%s,%s}", base, members);
    struct request request;
    struct refusal refusal;
    if (!request_parse(&request, endpoint, str_from(body), VOCABULARY, &refusal))
        fail_msg("%s", refusal.message);
    return request;
}

static void max_completion_tokens_wins_over_max_tokens_in_any_order(void **state) {
    (void)state;
    static const char *const orders[] = {"\"max_tokens\":7,\"max_completion_tokens\":3",
                                         "\"max_completion_tokens\":3,\"max_tokens\":7"};
    for (size_t i = 0; i < 2; i++) {
        struct request request = parsed(ENDPOINT_CHAT, CHAT_BASE, orders[i]);
        assert_int_equal(request.max_tokens, 3);
        request_release(&request);
    }
}

static void defaults_are_those_of_the_api(void **state) {
    (void)state;
    struct request request = parsed(ENDPOINT_CHAT, CHAT_BASE, "\"x\":1");
    assert_true(request.temperature == 1 && request.top_p == 1 && request.choices == 1);
    assert_true(request.max_tokens == 0 && !request.has_seed && !request.logprobs);
    assert_true(request.skip_special_tokens && request.add_generation_prompt);
    assert_false(request.add_special_tokens);
    request_release(&request);
    request = parsed(ENDPOINT_COMPLETIONS, TEXT_BASE, "\"x\":1");
    assert_int_equal(request.max_tokens, 16);
    assert_true(request.add_special_tokens);
    request_release(&request);
}

static void values_arrive_where_they_belong(void **state) {
    (void)state;
    struct request request = parsed(
        ENDPOINT_COMPLETIONS, TEXT_BASE,
        "\"seed\":-5,\"stop\":[\"ab\",\"c\"],\"stop_token_ids\":[9,8],\"logit_bias\":{\"7\":-1.5},"
        "\"n\":3,\"logprobs\":2,\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    assert_true(request.has_seed && request.seed == -5);
    assert_true(request.stop_count == 2 && str_is(request.stops[1], "c"));
    assert_true(request.stop_tokens.count == 2 && request.stop_tokens.at[1] == 8);
    assert_true(request.bias_count == 1 && request.biases[0].token == 7);
    assert_true(request.biases[0].bias == -1.5f && request.choices == 3);
    assert_true(request.logprobs && request.top_logprobs == 2 && request.include_usage);
    request_release(&request);
}

static void a_long_value_is_cut_in_the_message(void **state) {
    (void)state;
    struct buf body;
    buf_init(&body, 1 << 20);
    buf_add_text(&body, "{\"model\":\"m\",\"messages\":[{\"role\":\"");
    for (int i = 0; i < 5000; i++) buf_add_text(&body, "é");
    buf_add_text(&body, "\",\"content\":\"\"}]}");
    struct request request;
    struct refusal refusal;
    assert_false(request_parse(&request, ENDPOINT_CHAT, buf_str(&body), VOCABULARY, &refusal));
    assert_true(strlen(refusal.message) < 400);
    assert_non_null(strstr(refusal.message, "…"));
    buf_clear(&body);
    refusal_write(&body, &refusal);
    json_t *error;
    assert_int_equal(json_read(&error, buf_str(&body), NULL), OK);
    assert_null(strstr(body.at, "fffd"));
    json_decref(error);
    buf_release(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_both_endpoints_keep_their_types_and_ranges),
        cmocka_unit_test(fields_of_a_chat_keep_their_types_and_ranges),
        cmocka_unit_test(fields_of_a_completion_keep_their_types_and_ranges),
        cmocka_unit_test(messages_keep_their_shape),
        cmocka_unit_test(prompts_keep_their_shape),
        cmocka_unit_test(a_request_names_its_model),
        cmocka_unit_test(what_is_no_object_of_json_is_refused_without_a_code),
        cmocka_unit_test(max_completion_tokens_wins_over_max_tokens_in_any_order),
        cmocka_unit_test(defaults_are_those_of_the_api),
        cmocka_unit_test(values_arrive_where_they_belong),
        cmocka_unit_test(a_long_value_is_cut_in_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

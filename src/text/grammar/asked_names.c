/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/asked_names.h"

#include "json/span.h"

#include <string.h>

#define INSIDE_BYTES_MAX 65536 /* its tree has at most 5 MiB */

#define NAME_BYTES_MAX 48 /* without case and signs; longer names are no field */
#define TYPO_BYTES_MIN 7  /* shorter names have neighbours that mean something else */
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A name in lower case, its letters and digits alone: responseFormat is response_format. */
struct plain_name {
    char at[NAME_BYTES_MAX + 1]; /* ends in NUL; "" for a name that is too long */
    size_t bytes;
};

static const char *const fields[] = {"response_format",
                                     "structured_outputs",
                                     "guided_json",
                                     "guided_regex",
                                     "guided_choice",
                                     "guided_grammar",
                                     "guided_json_object",
                                     "guided_whitespace_pattern",
                                     "grammar",
                                     "json_schema",
                                     "regex",
                                     "ebnf",
                                     "structural_tag",
                                     "format",
                                     "text",
                                     "output_format",
                                     "output_config"};

/* Their insides are words of the client, or are read by somebody else. */
static const char *const plain[] = {"messages",
                                    "prompt",
                                    "input",
                                    "tools",
                                    "tool_choice",
                                    "parallel_tool_calls",
                                    "functions",
                                    "function_call",
                                    "metadata",
                                    "chat_template_kwargs",
                                    "stream_options",
                                    "documents",
                                    "prediction",
                                    "audio",
                                    "echo",
                                    "logit_bias",
                                    "web_search_options",
                                    "guided_decoding_backend", /* who holds, not what */
                                    "structured_outputs_backend"};

/* Any of these in a plain name makes it one of a constraint. */
static const char *const words[] = {
    "responseformat", "outputformat", "structuredoutput", "structuraltag", "guided",
    "grammar",        "regex",        "regexp",           "ebnf",          "gbnf",
    "constrain",      "jsonmode",     "jsonobject",       "jsonformat",    "responsemime",
    "schema",         "extrabody"};

/* Names of the body itself that are too common to be looked for inside of others. */
static const char *const whole_names[] = {
    "options", "format", "json",  "choice", "choices", "pattern",    "enum",
    "bnf",     "lark",   "guide", "text",   "outputs", "outputtype", "responsetype"};

/* Names that a member wrong by one character is compared with. */
static const char *const near_names[] = {
    "responseformat", "structuredoutputs", "structuraltag", "guidedjson", "guidedregex",
    "guidedchoice",   "guidedgrammar",     "jsonschema",    "toolchoice", "paralleltoolcalls",
    "outputformat",   "outputconfig",      "grammar",       "extrabody"};

/* Names of whole schemas, whatever their value. */
static const char *const schema_names[] = {"jsonschema", "responseschema", "outputschema",
                                           "guidedschema", "responsejsonschema"};

static bool has_name(const char *const *names, size_t count, struct str name) {
    for (size_t i = 0; i < count; i++)
        if (str_is(name, names[i])) return true;
    return false;
}

static struct plain_name plain_of(struct str name) {
    struct plain_name plain_name = {.bytes = 0};
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.at[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) continue;
        if (plain_name.bytes == NAME_BYTES_MAX) return (struct plain_name){.bytes = 0};
        plain_name.at[plain_name.bytes++] = c;
    }
    plain_name.at[plain_name.bytes] = '\0';
    return plain_name;
}

/* Whether `a` becomes `b` by at most one character more, less or other, or by two that change
 * places. */
static bool are_near(struct str a, struct str b) {
    size_t same = 0, end = 0;
    size_t least = a.bytes < b.bytes ? a.bytes : b.bytes;
    size_t most = a.bytes < b.bytes ? b.bytes : a.bytes;
    if (most - least > 1) return false;
    while (same < least && a.at[same] == b.at[same]) same++;
    while (end < least - same && a.at[a.bytes - 1 - end] == b.at[b.bytes - 1 - end]) end++;
    size_t left = most - same - end;
    bool is_swapped =
        left == 2 && least == most && a.at[same] == b.at[same + 1] && a.at[same + 1] == b.at[same];
    return left <= 1 || is_swapped;
}

static bool has_word(const struct plain_name *name) {
    for (size_t i = 0; i < COUNT(words); i++)
        if (strstr(name->at, words[i])) return true;
    for (size_t i = 0; i < COUNT(near_names) && name->bytes >= TYPO_BYTES_MIN; i++)
        if (are_near((struct str){name->at, name->bytes}, str_from(near_names[i]))) return true;
    return false;
}

enum asked_name asked_name_find(struct str name) {
    if (has_name(fields, COUNT(fields), name)) return ASKED_NAME_FIELD;
    if (has_name(plain, COUNT(plain), name)) return ASKED_NAME_PLAIN;
    struct plain_name plain_name = plain_of(name);
    struct str text = {plain_name.at, plain_name.bytes};
    /* The client's notes, by whichever name. */
    if (strstr(plain_name.at, "metadata")) return ASKED_NAME_PLAIN;
    bool is_foreign = has_name(whole_names, COUNT(whole_names), text) || has_word(&plain_name);
    return is_foreign ? ASKED_NAME_FOREIGN : ASKED_NAME_UNKNOWN;
}

bool asked_name_is_about(struct str raw_name, struct str raw_value) {
    struct buf scratch;
    buf_init(&scratch, BUF_UNLIMITED);
    enum asked_name kind = asked_name_find(json_span_text(raw_name, &scratch));
    buf_release(&scratch);
    bool has_inside = *raw_value.at == '{' || *raw_value.at == '[';
    return kind == ASKED_NAME_FIELD || kind == ASKED_NAME_FOREIGN ||
           (kind == ASKED_NAME_UNKNOWN && has_inside && raw_value.bytes <= INSIDE_BYTES_MAX);
}

enum asked_name asked_name_find_inside(struct str name) {
    struct plain_name plain_name = plain_of(name);
    bool is_foreign = has_word(&plain_name) || strcmp(plain_name.at, "format") == 0;
    return is_foreign ? ASKED_NAME_FOREIGN : ASKED_NAME_UNKNOWN;
}

bool asked_name_is_off(struct str name, const json_t *value) {
    struct plain_name plain_name = plain_of(name);
    struct str text = {plain_name.at, plain_name.bytes},
               string = json_is_string(value)
                            ? (struct str){json_string_value(value), json_string_length(value)}
                            : (struct str){NULL, 0};
    if (!value || json_is_null(value) || json_is_false(value)) return true;
    if (json_is_number(value) && json_number_value(value) == 0) return true;
    if (json_is_string(value) && string.bytes == 0) return true;
    if (json_is_array(value) && json_array_size(value) == 0) return true;
    if (json_is_object(value) && json_object_size(value) == 0) return true;
    bool may_be_schema = json_is_object(value) || str_starts_with(str_trim(string), STR("{"));
    if (strcmp(plain_name.at, "format") == 0)
        return !may_be_schema && !str_starts_with(string, STR("json"));
    return strstr(plain_name.at, "schema") && !may_be_schema &&
           !has_name(schema_names, COUNT(schema_names), text);
}

const char *asked_name_reason(struct str name) {
    struct plain_name plain_name = plain_of(name);
    if (strcmp(plain_name.at, "extrabody") == 0)
        return "it is an argument of OpenAI's Python client; write its members into the body "
               "itself";
    if (strcmp(plain_name.at, "options") == 0)
        return "it is a member of Ollama's own API; write its members into the body itself, "
               "num_predict as max_tokens";
    return "it looks like a constraint of the answer that would not be held; use response_format, "
           "structured_outputs, a guided_* field or tools";
}

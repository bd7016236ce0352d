/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

#include <math.h>

/* The options of Ollama that change an answer. All others tune its engine, and are ignored here. */

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define WHOLE_MAX 9007199254740992.0 /* 2^53: each whole number up to it is a double */

enum kind { KIND_FLOAT, KIND_INTEGER };

struct option {
    const char *name, *inside;
    enum kind kind;
    const char *otherwise; /* Ollama's default where OpenAI's differs; NULL: nothing is said */
};

static const struct option options_known[] = {
    {"temperature", "temperature", KIND_FLOAT, "0.8"},
    {"top_k", "top_k", KIND_INTEGER, "40"},
    {"top_p", "top_p", KIND_FLOAT, "0.9"},
    {"min_p", "min_p", KIND_FLOAT, NULL},
    {"repeat_penalty", "repetition_penalty", KIND_FLOAT, NULL},
    {"presence_penalty", "presence_penalty", KIND_FLOAT, NULL},
    {"frequency_penalty", "frequency_penalty", KIND_FLOAT, NULL},
};

static bool refuse_option(struct refusal *refusal, const char *name, const char *type) {
    char param[64];
    snprintf(param, sizeof param, "options.%s", name);
    return refuse(refusal, "invalid_type", param, "option \"%s\" must be of type %s", name, type);
}

static bool check_number(const struct option *option, struct str value, struct refusal *refusal) {
    double number;
    bool is_number = member_number(value, &number);
    if (option->kind == KIND_INTEGER && (!is_number || number != floor(number)))
        return refuse_option(refusal, option->name, "integer");
    return is_number || refuse_option(refusal, option->name, "float32");
}

/* Every element must be a text; empty ones end nothing, and are left out. */
static bool add_stops(struct dialect_call *call, struct str stop, struct refusal *refusal) {
    struct json_span_iter iter;
    struct str element;
    bool has_one = false;
    if (json_span_is_string(stop)) {
        if (!member_is_empty(stop)) dialect_add_member(&call->body, "stop", stop);
        return true;
    }
    if (!member_is_array(stop)) return refuse_option(refusal, "stop", "array");
    if (!json_span_enter(&iter, stop)) return true;
    while (json_span_element(&iter, &element)) {
        if (!json_span_is_string(element))
            return refuse_option(refusal, "stop", "array of strings");
        if (member_is_empty(element)) continue;
        buf_add_text(&call->body, has_one ? "," : ",\"stop\":[");
        buf_add_str(&call->body, element);
        has_one = true;
    }
    if (has_one) buf_add_byte(&call->body, ']');
    return true;
}

/* A whole number that the request inside takes only from `least` on. */
static bool add_integer(struct dialect_call *call, const char *name, const char *inside,
                        struct str value, double least, struct refusal *refusal) {
    double number;
    if (!value.at) return true;
    if (!member_number(value, &number) || number != floor(number) || fabs(number) > WHOLE_MAX)
        return refuse_option(refusal, name, "integer");
    if (number >= least) buf_printf(&call->body, ",\"%s\":%.0f", inside, number);
    return true;
}

bool ollama_add_options(struct dialect_call *call, struct str options, struct refusal *refusal) {
    struct str values[COUNT(options_known)] = {{NULL, 0}}, stop = {NULL, 0};
    struct str seed = {NULL, 0}, num_predict = {NULL, 0}, num_ctx = {NULL, 0}, typical = {NULL, 0};
    struct member places[COUNT(options_known) + 5] = {{"seed", &seed},
                                                      {"num_predict", &num_predict},
                                                      {"num_ctx", &num_ctx},
                                                      {"typical_p", &typical},
                                                      {"stop", &stop}};
    double number = 1;
    if (options.at && !json_span_is_object(options))
        return refuse(refusal, "invalid_type", "options",
                      "Invalid type for 'options': expected an object, got %s.",
                      member_kind(options));
    for (size_t i = 0; i < COUNT(options_known); i++)
        places[5 + i] = (struct member){options_known[i].name, &values[i]};
    if (options.at && !members_read(options, places, COUNT(places), refusal)) return false;
    for (size_t i = 0; i < COUNT(options_known); i++) {
        const struct option *option = &options_known[i];
        if (values[i].at && !check_number(option, values[i], refusal)) return false;
        if (values[i].at)
            dialect_add_member(&call->body, option->inside, values[i]);
        else if (option->otherwise)
            dialect_add_member(&call->body, option->inside, str_from(option->otherwise));
    }
    if (typical.at && (!member_number(typical, &number) || number != 1))
        return refuse(refusal, "unsupported_parameter", "options.typical_p",
                      "option \"typical_p\" must be 1: there is no such sampler here");
    if (num_ctx.at && (!member_number(num_ctx, &number) || number != floor(number)))
        return refuse_option(refusal, "num_ctx", "integer");
    if (!add_integer(call, "seed", "seed", seed, 0, refusal) ||
        !add_integer(call, "num_predict", "max_tokens", num_predict, 1, refusal))
        return false;
    /* A completion without a bound would end after OpenAI's 16 tokens. */
    bool is_bound = num_predict.at && member_number(num_predict, &number) && number >= 1;
    if (call->is_bare && !is_bound) buf_printf(&call->body, ",\"max_tokens\":%.0f", WHOLE_MAX);
    return !stop.at || add_stops(call, stop, refusal);
}

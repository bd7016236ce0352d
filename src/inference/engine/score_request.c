/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/score_request.h"

#include "engine/request_fields.h"
#include "json/json.h"

#include <stdio.h>

/* The names of two sides, as vLLM has them. */
static const struct {
    const char *first, *second;
} names[] = {{"query", "documents"},
             {"text_1", "text_2"},
             {"queries", "documents"},
             {"queries", "items"},
             {"data_1", "data_2"}};

/* ---- texts ---- */

static const json_t *side_value(const struct score_side *side, uint32_t index) {
    return side->is_list ? json_array_get(side->values, index) : side->values;
}

/* Jina and Cohere have documents as objects with a text, too. */
static const json_t *text_of(const json_t *value) {
    return json_is_object(value) ? json_member(value, "text") : value;
}

struct str score_side_text(const struct score_side *side, uint32_t index) {
    return json_str(text_of(side_value(side, index)));
}

const char *score_side_param(const struct score_side *side, uint32_t index,
                             char param[SCORE_PARAM_BYTES]) {
    if (side->is_list)
        snprintf(param, SCORE_PARAM_BYTES, "%s[%u]", side->name, index);
    else
        snprintf(param, SCORE_PARAM_BYTES, "%s", side->name);
    return param;
}

static bool read_side(struct score_side *side, const json_t *body, const char *name,
                      struct refusal *refusal) {
    const json_t *values = json_member(body, name);
    char param[SCORE_PARAM_BYTES];
    if (!values) return refuse_missing(refusal, name);
    *side = (struct score_side){
        .name = name, .values = values, .count = 1, .is_list = json_is_array(values)};
    if (side->is_list) {
        const size_t count = json_array_size(values);
        if (count == 0)
            return refuse(refusal, "invalid_value", name, "Invalid '%s': it must not be empty.",
                          name);
        if (count > SCORE_PAIRS_MAX)
            return refuse(refusal, "array_above_max_length", name,
                          "Invalid '%s': array too long. Expected at most %d texts, but got %zu.",
                          name, SCORE_PAIRS_MAX, count);
        side->count = (uint32_t)count;
    }
    for (uint32_t i = 0; i < side->count; i++) {
        const json_t *value = side_value(side, i);
        if (json_is_string(text_of(value))) continue;
        return refuse_type(refusal, score_side_param(side, i, param),
                           "a string, or an object with a 'text'", value);
    }
    return true;
}

/* The first of the names' rows of which a member is there. */
static bool read_sides(struct score_request *request, enum endpoint endpoint,
                       struct refusal *refusal) {
    size_t row = endpoint == ENDPOINT_RERANK ? 0 : 1;
    for (size_t i = 0; endpoint == ENDPOINT_SCORE && i < sizeof names / sizeof *names; i++) {
        if (!json_member(request->body, names[i].first)) continue;
        const bool has_items = i == 2 && json_member(request->body, "items");
        row = has_items ? 3 : i;
        break;
    }
    if (!read_side(&request->first, request->body, names[row].first, refusal) ||
        !read_side(&request->second, request->body, names[row].second, refusal))
        return false;
    request->is_rerank = row == 0;
    if (request->is_rerank && request->first.is_list)
        return refuse_type(refusal, "query", "a string", request->first.values);
    const uint32_t first = request->first.count, second = request->second.count;
    return first == 1 || first == second ||
           refuse(refusal, "invalid_value", names[row].second,
                  "Invalid '%s': %u texts do not go with %u of '%s': one goes with many, or two "
                  "lists have one length.",
                  names[row].second, second, first, names[row].first);
}

/* ---- numbers and switches ---- */

static bool read_count(const json_t *body, const char *param, int64_t least, int64_t most,
                       int64_t *ret_value, struct refusal *refusal) {
    const json_t *value = json_member(body, param);
    if (!value) return true;
    const struct field field = {param, FIELD_INTEGER, .min = (double)least, .max = (double)most};
    return field_read(&request_fields, &field, value, ret_value, refusal);
}

static bool read_switch(const json_t *body, const char *param, bool *ret_value,
                        struct refusal *refusal) {
    const json_t *value = json_member(body, param);
    if (!value) return true;
    *ret_value = json_is_true(value);
    return json_is_boolean(value) || refuse_type(refusal, param, "a boolean", value);
}

static bool read_limits(struct score_request *request, uint32_t text_tokens_max,
                        struct refusal *refusal) {
    const char *param = "truncate_prompt_tokens";
    int64_t top = 0, cut = 0, document = 0;
    if (!read_count(request->body, "top_n", 0, INT32_MAX, &top, refusal) ||
        !read_count(request->body, "max_tokens_per_doc", 1, INT32_MAX, &document, refusal) ||
        !read_count(request->body, param, -1, text_tokens_max, &cut, refusal))
        return false;
    if (json_member(request->body, param) && cut == 0)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': 0 would leave no text; use -1 or at least 1.", param);
    request->top_n = (uint32_t)top;
    request->document_tokens = (uint32_t)document;
    request->cut_tokens = cut < 0 ? text_tokens_max : (uint32_t)cut;
    return true;
}

static bool read_switches(struct score_request *request, struct refusal *refusal) {
    bool activates = true;
    request->returns_documents = true;
    if (!read_switch(request->body, "return_documents", &request->returns_documents, refusal) ||
        !read_switch(request->body, "activation", &activates, refusal) ||
        !read_switch(request->body, "use_activation", &activates, refusal))
        return false;
    request->is_raw = !activates;
    const json_t *side = json_member(request->body, "truncation_side");
    return !side || str_is(json_str(side), "right") ||
           refuse_unsupported(refusal, "truncation_side", "texts are cut at their end");
}

static bool read_instruction(struct score_request *request, struct refusal *refusal) {
    const char *param = "instruction";
    const json_t *value = json_member(request->body, param);
    if (!value) return true;
    if (!json_is_string(value)) return refuse_type(refusal, param, "a string", value);
    if (json_string_length(value) > SCORE_INSTRUCTION_BYTES_MAX)
        return refuse(refusal, "string_above_max_length", param,
                      "Invalid '%s': string too long. Expected at most %zu bytes, but got %zu.",
                      param, SCORE_INSTRUCTION_BYTES_MAX, json_string_length(value));
    request->instruction = json_str(value);
    return true;
}

bool score_request_parse(struct score_request *ret_request, enum endpoint endpoint, struct str body,
                         uint32_t text_tokens_max, struct refusal *ret_refusal) {
    struct request_body read;
    if (!request_body_read(&read, body, NULL, 0, ret_refusal)) return false;
    struct score_request request = {.body = read.values, .memory_left = read.memory_left};
    if (require_member(request.body, "model", JSON_STRING, "model", ret_refusal) &&
        read_sides(&request, endpoint, ret_refusal) &&
        read_limits(&request, text_tokens_max, ret_refusal) &&
        read_switches(&request, ret_refusal) && read_instruction(&request, ret_refusal) &&
        request_check_caller(request.body, ret_refusal)) {
        *ret_request = request;
        return true;
    }
    score_request_release(&request);
    return false;
}

void score_request_release(struct score_request *request) {
    json_decref(request->body);
    *request = (struct score_request){.body = NULL};
}

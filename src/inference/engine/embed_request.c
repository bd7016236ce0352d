/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/embed_request.h"

#include "engine/request_fields.h"
#include "json/json.h"

#include <stdio.h>

/* The room of the longest float with its comma as text, and of four bytes as base64. */
#define FLOAT_TEXT_BYTES 17
#define FLOAT_BASE64_BYTES 6
#define ENTRY_BYTES 80 /* bytes of one vector's object, without its numbers */
#define ANSWER_BYTES_MAX (WIRE_PAYLOAD_BYTES_MAX - 16 * 1024)

#define FORMS                                                                                      \
    "a string, or a non-empty array of strings, token ids or non-empty arrays of token ids"

#define AT(member) offsetof(struct embed_request, member)
static const struct field plain_rows[] = {
    {"add_special_tokens", FIELD_BOOL, FIELD_ANY, .offset = AT(add_special_tokens)},
    {"parse_special", FIELD_BOOL, FIELD_ANY, .offset = AT(parse_special)},
};
static const struct fields plain_fields = {plain_rows, sizeof plain_rows / sizeof *plain_rows, true,
                                           request_field_refuse};

const char *embed_request_param(const struct embed_request *request, uint32_t index,
                                char param[EMBED_PARAM_BYTES]) {
    if (request->is_list)
        snprintf(param, EMBED_PARAM_BYTES, "input[%u]", index);
    else
        snprintf(param, EMBED_PARAM_BYTES, "input");
    return param;
}

const json_t *embed_request_text(const struct embed_request *request, uint32_t index) {
    return request->is_list ? json_array_get(request->input, index) : request->input;
}

static bool refuse_empty(struct refusal *refusal, const char *param) {
    return refuse(refusal, "invalid_value", param, "Invalid '%s': it must not be empty.", param);
}

/* Checks the ids of one text. */
static bool check_ids(const json_t *ids, const char *param, size_t vocabulary_count,
                      struct refusal *refusal) {
    if (json_array_size(ids) == 0) return refuse_empty(refusal, param);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *item = json_array_get(ids, i);
        if (!json_is_integer(item)) return refuse_type(refusal, param, "token ids only", item);
        json_int_t id = json_integer_value(item);
        if (id < 0 || (uint64_t)id >= vocabulary_count)
            return refuse(refusal, "invalid_value", param,
                          "Invalid '%s': %lld is not a token id of this model (0 to %zu). Clients "
                          "that count tokens for another model can send text instead: LangChain's "
                          "OpenAIEmbeddings with check_embedding_ctx_length=False.",
                          param, (long long)id, vocabulary_count - 1);
    }
    return true;
}

static bool check_text(const struct embed_request *request, uint32_t index, size_t vocabulary_count,
                       struct refusal *refusal) {
    char param[EMBED_PARAM_BYTES];
    embed_request_param(request, index, param);
    const json_t *text = embed_request_text(request, index);
    if (json_is_array(text)) return check_ids(text, param, vocabulary_count, refusal);
    if (!json_is_string(text))
        return refuse_type(refusal, param, "a string or an array of token ids", text);
    return json_string_length(text) > 0 || refuse_empty(refusal, param);
}

static bool check_count(size_t count, struct refusal *refusal) {
    return count <= EMBED_INPUTS_MAX ||
           refuse(refusal, "array_above_max_length", "input",
                  "Invalid 'input': array too long. Expected at most %d texts, but got %zu.",
                  EMBED_INPUTS_MAX, count);
}

/* Takes a long array of ids, which were checked when they were read. */
static bool parse_lists(struct embed_request *request, struct refusal *refusal) {
    request->is_list = request->ids.is_list;
    if (!check_count(request->ids.count, refusal)) return false;
    request->count = (uint32_t)request->ids.count;
    return true;
}

static bool parse_input(struct embed_request *request, size_t vocabulary_count,
                        struct refusal *refusal) {
    const json_t *input = json_member(request->body, "input"), *first;
    if (!input) return refuse_missing(refusal, "input");
    request->input = input;
    request->count = 1;
    if (request->ids.count > 0) return parse_lists(request, refusal);
    if (!json_is_string(input) && !json_is_array(input))
        return refuse_type(refusal, "input", FORMS, input);
    if (json_is_array(input)) {
        size_t count = json_array_size(input);
        if (count == 0) return refuse_empty(refusal, "input");
        first = json_array_get(input, 0);
        request->is_list = !json_is_integer(first);
        if (request->is_list && !check_count(count, refusal)) return false;
        if (request->is_list) request->count = (uint32_t)count;
    }
    for (uint32_t i = 0; i < request->count; i++) {
        if (!check_text(request, i, vocabulary_count, refusal)) return false;
        if (json_is_array(embed_request_text(request, i)) ==
            json_is_array(embed_request_text(request, 0)))
            continue;
        return refuse_type(refusal, "input", "all texts of one kind, strings or token ids",
                           embed_request_text(request, i));
    }
    return true;
}

static bool parse_format(struct embed_request *request, struct refusal *refusal) {
    const json_t *format = json_member(request->body, "encoding_format");
    if (!format) return true;
    if (!json_is_string(format)) return refuse_type(refusal, "encoding_format", "a string", format);
    request->is_base64 = str_is(json_str(format), "base64");
    return request->is_base64 || str_is(json_str(format), "float") ||
           refuse_value(refusal, "encoding_format", format, "'float', 'base64'");
}

/* Reads an integer from `least` to `most`; *ret_value stays if it is absent. */
static bool parse_count(const json_t *body, const char *param, int64_t least, int64_t most,
                        int64_t *ret_value, struct refusal *refusal) {
    const json_t *value = json_member(body, param);
    if (!value) return true;
    const struct field field = {param, FIELD_INTEGER, .min = (double)least, .max = (double)most};
    return field_read(&request_fields, &field, value, ret_value, refusal);
}

/* As in vLLM, part of a vector has a meaning only if the model was trained for it. */
static bool parse_dimensions(struct embed_request *request, const struct served_embedder *embedder,
                             struct refusal *refusal) {
    int64_t dimensions = embedder->width;
    if (!parse_count(request->body, "dimensions", 1, embedder->width, &dimensions, refusal))
        return false;
    request->dimensions = (uint32_t)dimensions;
    if (dimensions == embedder->width || embedder->is_matryoshka) return true;
    return refuse(refusal, "unsupported_parameter", "dimensions",
                  "Unsupported parameter: 'dimensions': this model was not trained for shorter "
                  "vectors (Matryoshka representations); its own have %u numbers.",
                  embedder->width);
}

static bool parse_truncation(struct embed_request *request, uint32_t text_tokens_max,
                             struct refusal *refusal) {
    const char *param = "truncate_prompt_tokens";
    int64_t keep = 0;
    if (!json_member(request->body, param)) return true;
    if (!parse_count(request->body, param, -1, text_tokens_max, &keep, refusal)) return false;
    if (keep == 0)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': 0 would leave no text; use -1 or at least 1.", param);
    request->cut_tokens = keep < 0 ? text_tokens_max : (uint32_t)keep;
    return true;
}

static bool parse_instruction(struct embed_request *request, const struct served_embedder *embedder,
                              struct refusal *refusal) {
    const char *param = "instruction";
    const json_t *value = json_member(request->body, param);
    if (!value) return true;
    if (!json_is_string(value)) return refuse_type(refusal, param, "a string", value);
    struct str text = json_str(value);
    if (text.bytes == 0) return true;
    if (!embedder->takes_instruction)
        return refuse_unsupported(refusal, param,
                                  "this model takes none; put what it was trained to see before "
                                  "the text into 'input'");
    if (request->ids.count > 0 || json_is_array(embed_request_text(request, 0)))
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': it goes with texts, not with token ids.", param);
    if (text.bytes > EMBED_INSTRUCTION_BYTES_MAX)
        return refuse(refusal, "string_above_max_length", param,
                      "Invalid '%s': string too long. Expected at most %zu bytes, but got %zu.",
                      param, EMBED_INSTRUCTION_BYTES_MAX, text.bytes);
    request->instruction = text;
    return true;
}

/* Refuses members that a client must not believe to be in force, except with the value `harmless`,
 * which asks for what quern does anyway. */
static bool check_unsupported(const json_t *body, struct refusal *refusal) {
    static const struct {
        const char *name, *harmless, *reason;
    } rows[] = {
        {"messages", NULL, "texts are given in 'input'"},
        {"truncation_side", "right", "texts are cut at their end"},
        {"embed_dtype", "float32", "numbers are float32"},
        {"endianness", "little", "base64 is of little-endian floats"},
        {"normalize", "true", "vectors have length 1"},
        {"use_activation", "true", "vectors have length 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = json_member(body, rows[i].name);
        struct str text = json_is_true(value) ? STR("true") : json_str(value);
        bool is_harmless = !value || (rows[i].harmless && str_is(text, rows[i].harmless));
        if (!is_harmless) return refuse_unsupported(refusal, rows[i].name, rows[i].reason);
    }
    return true;
}

static bool check_size(const struct embed_request *request, struct refusal *refusal) {
    size_t vector = ENTRY_BYTES + (size_t)request->dimensions *
                                      (request->is_base64 ? FLOAT_BASE64_BYTES : FLOAT_TEXT_BYTES);
    size_t most = ANSWER_BYTES_MAX / vector;
    return request->count <= most ||
           refuse(refusal, "array_above_max_length", "input",
                  "Invalid 'input': an answer holds at most %zu vectors of %u numbers as %s, but "
                  "there are %u texts.",
                  most, request->dimensions, request->is_base64 ? "base64" : "floats",
                  request->count);
}

static bool parse_members(struct embed_request *request, const struct served_model *model,
                          uint32_t text_tokens_max, struct refusal *refusal) {
    const struct served_embedder *embedder = &model->embedder;
    const json_t *body = request->body;
    if (!require_member(body, "model", JSON_STRING, "model", refusal)) return false;
    return fields_read(&plain_fields, FIELD_ANY, body, request, refusal) &&
           parse_input(request, embedder->vocab, refusal) && parse_format(request, refusal) &&
           parse_dimensions(request, embedder, refusal) &&
           parse_truncation(request, text_tokens_max, refusal) &&
           parse_instruction(request, embedder, refusal) && request_check_caller(body, refusal) &&
           check_unsupported(body, refusal) && check_size(request, refusal);
}

bool embed_request_parse(struct embed_request *ret_request, struct str body,
                         const struct served_model *model, uint32_t text_tokens_max,
                         struct refusal *ret_refusal) {
    /* Both defaults are those of sentence-transformers. */
    struct embed_request request = {.add_special_tokens = true, .parse_special = true};
    struct request_body read;
    if (!request_body_read(&read, body, "input", model->embedder.vocab, ret_refusal)) return false;
    request.body = read.values;
    request.ids = read.ids;
    request.memory_left = read.memory_left;
    bool is_good = parse_members(&request, model, text_tokens_max, ret_refusal);
    if (is_good)
        *ret_request = request;
    else
        embed_request_release(&request);
    return is_good;
}

void embed_request_release(struct embed_request *request) {
    json_decref(request->body);
    id_lists_release(&request->ids);
    *request = (struct embed_request){.body = NULL};
}

void embed_request_drop_body(struct embed_request *request) {
    json_decref(request->body);
    id_lists_release(&request->ids);
    request->body = NULL;
    request->input = NULL;
    request->instruction = (struct str){NULL, 0};
}

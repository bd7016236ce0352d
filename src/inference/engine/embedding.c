/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/embedding.h"

#include "base/base64.h"
#include "base/mem.h"
#include "json/json.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)32 * 1024 * 1024)

/* The state while the texts of one request become tokens. */
struct preparation {
    struct embedding *embedding;
    const struct tokenizer *tokenizer;
    uint32_t vocab;
    uint32_t text_tokens_max;
    struct buf text;     /* scratch */
    struct str head;     /* the text in front of every text; may be empty */
    uint32_t head_count; /* its tokens */
    struct refusal *refusal;
};

static bool encode(const struct preparation *is, const char *param, struct str text,
                   bool with_special, struct ids *ids) {
    const struct encode_options options = {
        .parse_special = is->embedding->request.parse_special,
        .add_bos = with_special,
        .scratch_bytes_max = request_body_scratch(is->embedding->request.memory_left)};
    struct error error;
    size_t first = ids->count;
    if (tokenizer_encode(is->tokenizer, text, options, ids, &error) != OK)
        return refuse(is->refusal, "invalid_value", param,
                      "Invalid '%s': it cannot be turned into tokens: %s.", param, error.text);
    for (size_t i = first; i < ids->count; i++)
        if ((uint32_t)ids->at[i] >= is->vocab)
            return refuse(is->refusal, "invalid_value", param,
                          "Invalid '%s': it has a token (%d) that this model does not have.", param,
                          ids->at[i]);
    return true;
}

/* The special token that ends a text, or TOKEN_NONE. The vocabulary's interface does not tell
 * whether an added token stands first or last. */
static int32_t closing_token(const struct preparation *is) {
    struct ids plain = {.at = NULL}, special = {.at = NULL};
    int32_t closing = TOKEN_NONE;
    if (is->embedding->request.add_special_tokens && encode(is, "input", STR("a"), false, &plain) &&
        encode(is, "input", STR("a"), true, &special) && special.count > 0 &&
        (plain.count == 0 || special.at[special.count - 1] != plain.at[plain.count - 1]))
        closing = special.at[special.count - 1];
    ids_release(&plain);
    ids_release(&special);
    return closing;
}

/* Cuts the text that begins at `first` of the ids; its beginning and its closing token stay. */
static bool cut(const struct preparation *is, size_t first, bool is_text) {
    struct ids *ids = &is->embedding->ids;
    uint32_t keep = is->embedding->request.cut_tokens;
    if (keep == 0 || ids->count - first <= keep) return true;
    int32_t closing = is_text ? closing_token(is) : TOKEN_NONE;
    if (closing != TOKEN_NONE) ids->at[first + keep - 1] = closing;
    ids->count = first + keep;
    uint32_t needed = is_text ? is->head_count + (closing != TOKEN_NONE) : 0;
    return keep > needed || refuse(is->refusal, "invalid_value", "truncate_prompt_tokens",
                                   "Invalid 'truncate_prompt_tokens': %u tokens leave none of the "
                                   "text.",
                                   keep);
}

static bool check_length(const struct preparation *is, const char *param, size_t count,
                         uint32_t head_count) {
    if (count <= head_count)
        return refuse(is->refusal, "invalid_value", param, "Invalid '%s': it has no tokens.",
                      param);
    if (count > is->text_tokens_max)
        return refuse(is->refusal, "context_length_exceeded", param,
                      "Invalid '%s': this model's maximum context length is %u tokens. However, "
                      "this text resulted in %zu tokens. Please reduce its length, or set "
                      "'truncate_prompt_tokens' (-1 keeps what fits).",
                      param, is->text_tokens_max, count);
    if (is->embedding->ids.count > EMBED_TOKENS_MAX)
        return refuse(is->refusal, "max_tokens_per_request", "input",
                      "Invalid 'input': up to %s the texts have %zu tokens, at most %d are taken "
                      "with one request.",
                      param, is->embedding->ids.count, EMBED_TOKENS_MAX);
    return true;
}

static bool add_text(struct preparation *is, uint32_t index) {
    struct embedding *embedding = is->embedding;
    const struct embed_request *request = &embedding->request;
    bool has_ids = request->ids.count > 0;
    const json_t *value = has_ids ? NULL : embed_request_text(request, index);
    char param[EMBED_PARAM_BYTES];
    embed_request_param(request, index, param);
    size_t first = embedding->ids.count;
    bool is_text = json_is_string(value);
    if (is_text) {
        buf_clear(&is->text);
        buf_add_str(&is->text, is->head);
        buf_add_str(&is->text, json_str(value));
        if (!encode(is, param, buf_str(&is->text), request->add_special_tokens, &embedding->ids))
            return false;
    } else if (has_ids) {
        size_t id_count;
        const int32_t *ids = id_lists_get(&request->ids, index, &id_count);
        for (size_t i = 0; i < id_count; i++) ids_add(&embedding->ids, ids[i]);
    } else {
        for (size_t i = 0; i < json_array_size(value); i++)
            ids_add(&embedding->ids, (int32_t)json_integer_value(json_array_get(value, i)));
    }
    if (!cut(is, first, is_text)) return false;
    size_t count = embedding->ids.count - first;
    uint32_t head_count = is_text ? is->head_count : 0;
    embedding->sequences[index] =
        (struct embed_sequence){.count = (uint32_t)count, .pool_first = head_count};
    return check_length(is, param, count, head_count);
}

/* Makes "<|user|>\n{instruction}\n<|embed|>\n", which stands in front of every text, and counts the
 * tokens that it has alone, as GritLM does. */
static bool add_head(struct preparation *is, struct buf *head) {
    const struct embed_request *request = &is->embedding->request;
    struct ids ids = {.at = NULL};
    if (request->instruction.bytes > 0) {
        buf_add_text(head, "<|user|>\n");
        buf_add_str(head, request->instruction);
        buf_add_byte(head, '\n');
    }
    buf_add_text(head, "<|embed|>\n");
    bool is_good = encode(is, "instruction", buf_str(head), request->add_special_tokens, &ids);
    is->head = buf_str(head);
    is->head_count = (uint32_t)ids.count;
    ids_release(&ids);
    return is_good;
}

static bool add_texts(struct preparation *is) {
    struct embedding *embedding = is->embedding;
    embedding->sequences = mem_new(embedding->request.count, sizeof *embedding->sequences);
    for (uint32_t i = 0; i < embedding->request.count; i++)
        if (!add_text(is, i)) return false;
    /* The list has moved while it grew, so the pointers are taken now. */
    const int32_t *at = embedding->ids.at;
    for (uint32_t i = 0; i < embedding->request.count; i++) {
        embedding->sequences[i].ids = at;
        at += embedding->sequences[i].count;
    }
    return true;
}

bool embedding_prepare(struct embedding *embedding, struct str body,
                       const struct served_model *model, uint32_t text_tokens_max,
                       struct refusal *ret_refusal) {
    if (!embed_request_parse(&embedding->request, body, model, text_tokens_max, ret_refusal))
        return false;
    struct preparation is = {.embedding = embedding,
                             .tokenizer = model->vocabulary.tokenizer,
                             .vocab = model->embedder.vocab,
                             .text_tokens_max = text_tokens_max,
                             .refusal = ret_refusal};
    struct buf head;
    buf_init(&is.text, TEXT_BYTES_MAX);
    buf_init(&head, TEXT_BYTES_MAX);
    bool is_good = (!model->embedder.takes_instruction || add_head(&is, &head)) && add_texts(&is);
    buf_release(&head);
    buf_release(&is.text);
    embed_request_drop_body(&embedding->request);
    return is_good;
}

void embedding_release(struct embedding *embedding) {
    embed_request_release(&embedding->request);
    ids_release(&embedding->ids);
    free(embedding->sequences);
    free(embedding->vectors);
    embedding->sequences = NULL;
    embedding->vectors = NULL;
}

/* Gives the first `count` numbers of a vector the length 1 again. */
static void shorten(float *vector, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += (double)vector[i] * (double)vector[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (uint32_t i = 0; i < count; i++) vector[i] = (float)((double)vector[i] * scale);
}

static void write_vector(struct buf *out, const float *vector, uint32_t count, bool is_base64) {
    if (is_base64) {
        buf_add_byte(out, '"');
        base64_add(out, vector, count * sizeof *vector); /* this machine is little-endian */
        buf_add_byte(out, '"');
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        buf_add_byte(out, i > 0 ? ',' : '[');
        json_write_float(out, vector[i]);
    }
    buf_add_byte(out, ']');
}

void embedding_write_body(struct buf *out, struct str model_name, uint32_t width, bool is_pooling,
                          const struct embedding *embedding) {
    const char *object = is_pooling ? "pooling" : "embedding";
    const char *member = is_pooling ? "data" : object;
    const struct embed_request *request = &embedding->request;
    assert(embedding->done == request->count);
    buf_add_text(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < request->count; i++) {
        float *vector = embedding->vectors + (size_t)i * width;
        if (request->dimensions < width) shorten(vector, request->dimensions);
        buf_printf(out, "%s{\"object\":\"%s\",\"index\":%u,\"%s\":", i ? "," : "", object, i,
                   member);
        write_vector(out, vector, request->dimensions, request->is_base64);
        buf_add_byte(out, '}');
    }
    buf_add_text(out, "],\"model\":");
    json_write_string(out, model_name);
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}",
               embedding->ids.count, embedding->ids.count);
}

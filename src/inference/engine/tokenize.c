/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tokenize.h"

#include "base/mem.h"
#include "engine/request_body.h"
#include "json/json.h"

#include <inttypes.h>

static uint32_t vocabulary_count(const struct tokenize_question *question) {
    return (uint32_t)tokenizer_count(question->model->vocabulary.tokenizer);
}

static bool read_switch(const json_t *values, const char *name, bool otherwise, bool *ret_value,
                        struct refusal *refusal) {
    const json_t *value = json_member(values, name);
    *ret_value = value ? json_is_true(value) : otherwise;
    return !value || json_is_boolean(value) || refuse_type(refusal, name, "a boolean", value);
}

/* Bounds the answer by the memory that the text may cost. Short words make long answers: a byte of
 * text becomes up to 20 bytes of ids and texts, an id up to hundreds of bytes. While the answer is
 * written, it stands in `copies` next to two copies of the text and the ids; on its way to the
 * server in two, next to the text in the socket's buffer. */
static void bound_answer(const struct tokenize_question *question, const struct ids *ids,
                         size_t copies, struct buf *body) {
    size_t text = question->body.bytes, most = request_body_cost_max(text);
    size_t beside = 2 * text + ids->count * sizeof *ids->at;
    size_t written = beside < most ? (most - beside) / copies : 0, sent = (most - text) / 2;
    if (written > sent) written = sent;
    if (body->bytes_max > written) body->bytes_max = written;
}

/* --- /tokenize --- */

static bool encode_prompt(const struct tokenize_question *question, const json_t *prompt,
                          bool adds_special, size_t scratch_bytes_max, struct ids *ids,
                          struct refusal *refusal) {
    const struct encode_options options = {
        .parse_special = true, .add_bos = adds_special, .scratch_bytes_max = scratch_bytes_max};
    struct error error;
    if (!json_is_string(prompt)) return refuse_type(refusal, "prompt", "a string", prompt);
    if (tokenizer_encode(question->model->vocabulary.tokenizer, json_str(prompt), options, ids,
                         &error) == OK)
        return true;
    return refuse(refusal, "invalid_value", "prompt",
                  "The prompt cannot be turned into tokens: %s.", error.text);
}

/* Reads the chat as a request for an answer; its length has no bound. */
static bool encode_chat(const struct tokenize_question *question, struct ids *ids,
                        struct refusal *refusal) {
    struct request request;
    struct prompt prompt = {.token_count = 0};
    struct prep_options limits = *question->limits;
    uint32_t ignored;
    limits.context_tokens_max = UINT32_MAX;
    if (!request_parse(&request, ENDPOINT_CHAT, question->body, vocabulary_count(question),
                       refusal))
        return false;
    bool is_good = prep_prompts(&request, question->model, &limits, &prompt, &ignored, refusal);
    if (is_good) {
        *ids = prompt.ids;
        prompt.ids = (struct ids){.at = NULL};
    }
    prompt_release(&prompt);
    request_release(&request);
    return is_good;
}

static void write_tokens(const struct tokenize_question *question, const struct ids *ids,
                         bool with_texts, struct buf *body) {
    bool generates = question->model->backend;
    buf_printf(body, "{\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"tokens\":[", ids->count,
               generates ? question->limits->context_tokens_max : question->text_tokens_max);
    for (size_t i = 0; i < ids->count; i++)
        buf_printf(body, "%s%" PRId32, i ? "," : "", ids->at[i]);
    buf_add_text(body, "],\"token_strs\":");
    if (!with_texts) {
        buf_add_text(body, "null}");
        return;
    }
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (size_t i = 0; i < ids->count; i++) {
        buf_add_byte(body, i ? ',' : '[');
        buf_clear(&text);
        tokenizer_decode(question->model->vocabulary.tokenizer, ids->at[i], true, &text);
        json_write_string(body, buf_str(&text));
    }
    buf_add_text(body, ids->count ? "]}" : "[]}");
    buf_release(&text);
}

static void release(struct request_body *read) {
    id_lists_release(&read->ids);
    json_decref(read->values);
    *read = (struct request_body){.values = NULL};
}

/* Releases the tree of a chat before the chat is read as a request, whose tree may cost as much. */
static bool tokenize(const struct tokenize_question *question, struct request_body *read,
                     struct buf *body, struct refusal *refusal) {
    const json_t *prompt = json_member(read->values, "prompt");
    struct ids ids = {.at = NULL};
    bool adds_special, with_texts, is_good;
    if (!prompt && !json_member(read->values, "messages")) return refuse_missing(refusal, "prompt");
    if (!read_switch(read->values, "add_special_tokens", prompt != NULL, &adds_special, refusal) ||
        !read_switch(read->values, "return_token_strs", false, &with_texts, refusal))
        return false;
    if (prompt) {
        is_good = encode_prompt(question, prompt, adds_special,
                                request_body_scratch(read->memory_left), &ids, refusal);
    } else {
        release(read);
        is_good = encode_chat(question, &ids, refusal);
    }
    release(read);
    if (is_good) {
        bound_answer(question, &ids, 1, body);
        write_tokens(question, &ids, with_texts, body);
    }
    ids_release(&ids);
    return is_good;
}

/* --- /detokenize --- */

static bool read_ids(const struct tokenize_question *question, const struct request_body *from,
                     struct ids *ids, struct refusal *refusal) {
    const json_t *tokens = json_member(from->values, "tokens");
    if (from->ids.count > 0 && !from->ids.is_list) {
        size_t count;
        const int32_t *at = id_lists_get(&from->ids, 0, &count);
        for (size_t i = 0; i < count; i++) ids_add(ids, at[i]);
        return true;
    }
    if (!tokens) return refuse_missing(refusal, "tokens");
    if (!json_is_array(tokens) || from->ids.count > 0)
        return refuse_type(refusal, "tokens", "an array of token ids", tokens);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *one = json_array_get(tokens, i);
        json_int_t id = json_integer_value(one);
        if (!json_is_integer(one) || id < 0 || id >= vocabulary_count(question))
            return refuse(
                refusal, "invalid_value", "tokens",
                "Invalid 'tokens': number %zu is no token of this model, which has %" PRIu32 ".", i,
                vocabulary_count(question));
        ids_add(ids, (int32_t)id);
    }
    return true;
}

static bool detokenize(const struct tokenize_question *question, const struct request_body *from,
                       struct buf *body, struct refusal *refusal) {
    struct ids ids = {.at = NULL};
    struct buf text;
    bool is_good = read_ids(question, from, &ids, refusal);
    if (is_good) {
        bound_answer(question, &ids, 2, body);
        buf_init(&text, body->bytes_max);
        tokenizer_decode_text(question->model->vocabulary.tokenizer, ids.at, ids.count, true,
                              &text);
        buf_add_text(body, "{\"prompt\":");
        json_write_string(body, buf_str(&text));
        buf_add_byte(body, '}');
        if (text.overflowed) body->overflowed = true;
        buf_release(&text);
    }
    ids_release(&ids);
    return is_good;
}

/* --- /tokenizer_info --- */

static void write_info(const struct tokenize_question *question, struct buf *body) {
    const struct vocabulary *vocabulary = &question->model->vocabulary;
    const struct jinja_template *template = vocabulary_template(vocabulary, false);
    json_t *words = vocabulary_context(vocabulary);
    const char *name;
    json_t *value;
    buf_printf(body,
               "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"vocab_size\":%" PRIu32
               ",\"model_max_length\":%" PRIu32,
               vocabulary_count(question),
               question->model->backend ? question->limits->context_tokens_max
                                        : question->text_tokens_max);
    json_object_foreach(words, name, value) {
        buf_printf(body, ",\"%s\":", name);
        json_write(body, value);
    }
    json_decref(words);
    buf_add_text(body, ",\"chat_template\":");
    if (template)
        json_write_string(body, jinja_template_source(template));
    else
        buf_add_text(body, "null");
    buf_add_byte(body, '}');
}

bool tokenize_answer(const struct tokenize_question *question, struct buf *body,
                     struct refusal *ret_refusal) {
    struct request_body read;
    const struct error too_long = {.code = ERR_LIMIT,
                                   .text = "its answer would take more memory than a request of "
                                           "its length may take"};
    if (question->endpoint == ENDPOINT_TOKENIZER_INFO) {
        write_info(question, body);
        return true;
    }
    if (!request_body_read(&read, question->body, "tokens", vocabulary_count(question),
                           ret_refusal))
        return false;
    bool is_good = question->endpoint == ENDPOINT_TOKENIZE
                       ? tokenize(question, &read, body, ret_refusal)
                       : detokenize(question, &read, body, ret_refusal);
    release(&read);
    if (is_good && body->overflowed)
        return request_body_refuse(ret_refusal, ERR_LIMIT, NULL, &too_long);
    return is_good;
}

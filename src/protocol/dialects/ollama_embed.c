/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

#include "json/json.h"

#include <inttypes.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static bool read_common(struct dialect_call *call, struct str model, struct str keep_alive,
                        struct str options, struct refusal *refusal) {
    call->endpoint = ENDPOINT_EMBEDDINGS;
    if (options.at && !json_span_is_object(options))
        return refuse(refusal, "invalid_type", "options",
                      "Invalid type for 'options': expected an object, got %s.",
                      member_kind(options));
    return ollama_read_model(call, model, refusal) &&
           ollama_read_keep_alive(call, keep_alive, refusal);
}

/* Writes the request inside. `cuts`: an input longer than the context is cut, as the client asks. */
static void write_request(struct dialect_call *call, struct str model, struct str input,
                          bool cuts) {
    buf_add_text(&call->body, "{\"model\":");
    buf_add_str(&call->body, model);
    dialect_add_member(&call->body, "input", input);
    buf_add_text(&call->body, ",\"encoding_format\":\"float\"");
    if (cuts) buf_add_text(&call->body, ",\"truncate_prompt_tokens\":-1");
}

static bool is_texts(struct str input) {
    struct json_span_iter iter;
    struct str element;
    if (!member_is_array(input)) return json_span_is_string(input);
    if (!json_span_enter(&iter, input)) return true;
    while (json_span_element(&iter, &element))
        if (!json_span_is_string(element)) return false;
    return true;
}

static bool read_embed(struct dialect_call *call, struct str object, struct refusal *refusal) {
    struct str model, input, truncate, dimensions, options, keep_alive;
    double number = 0;
    const struct member places[] = {{"model", &model},       {"input", &input},
                                    {"truncate", &truncate}, {"dimensions", &dimensions},
                                    {"options", &options},   {"keep_alive", &keep_alive}};
    if (!members_read(object, places, COUNT(places), refusal) ||
        !read_common(call, model, keep_alive, options, refusal))
        return false;
    if (input.at && !is_texts(input))
        return refuse(refusal, "invalid_type", "input", "invalid input type");
    if (truncate.at && !member_is_bool(truncate))
        return refuse(refusal, "invalid_type", "truncate",
                      "Invalid type for 'truncate': expected a boolean, got %s.",
                      member_kind(truncate));
    if (member_is_empty(input)) {
        call->wish = DIALECT_LOAD;
        return true;
    }
    if (dimensions.at && !member_number(dimensions, &number))
        return refuse(refusal, "invalid_type", "dimensions",
                      "Invalid type for 'dimensions': expected an integer, got %s.",
                      member_kind(dimensions));
    write_request(call, model, input, !str_is(truncate, "false"));
    if (number != 0) dialect_add_member(&call->body, "dimensions", dimensions);
    buf_add_byte(&call->body, '}');
    return true;
}

static bool read_embeddings(struct dialect_call *call, struct str object, struct refusal *refusal) {
    struct str model, prompt, options, keep_alive;
    const struct member places[] = {
        {"model", &model}, {"prompt", &prompt}, {"options", &options}, {"keep_alive", &keep_alive}};
    if (!members_read(object, places, COUNT(places), refusal) ||
        !read_common(call, model, keep_alive, options, refusal))
        return false;
    if (prompt.at && !json_span_is_string(prompt))
        return refuse(refusal, "invalid_type", "prompt",
                      "Invalid type for 'prompt': expected a string, got %s.", member_kind(prompt));
    if (member_is_empty(prompt)) {
        call->wish = DIALECT_LOAD;
        return true;
    }
    write_request(call, model, prompt, true);
    buf_add_byte(&call->body, '}');
    return true;
}

/* Appends the vectors of OpenAI's list in the order of their indexes, which is the order in which
 * servers give them. False if the body is no list of vectors. */
static bool add_vectors(struct str inner, bool only_first, struct buf *body) {
    struct json_span_iter iter;
    struct str whole, item;
    size_t count = 0;
    if (!json_span_read(inner, &whole) || !json_span_is_object(whole)) return false;
    struct str data = json_span_get(whole, "data");
    if (!data.at || !member_is_array(data) || !json_span_enter(&iter, data)) return false;
    while (json_span_element(&iter, &item)) {
        if (!json_span_is_object(item)) return false;
        struct str vector = json_span_get(item, "embedding");
        if (!vector.at || !member_is_array(vector)) return false;
        if (only_first && count > 0) break;
        if (count++ > 0) buf_add_byte(body, ',');
        buf_add_str(body, vector);
    }
    return count > 0;
}

static void add_embed_head(struct dialect_call *call, struct buf *body) {
    buf_add_text(body, "{\"model\":");
    json_write_string(body, buf_str(&call->model));
    buf_add_text(body, ",\"embeddings\":[");
}

static void add_embed_end(const struct dialect_times *times, uint64_t tokens, struct buf *body) {
    int64_t total_ns = times->total_ns > 0 ? times->total_ns : 1;
    int64_t load_ns = times->load_ns > 0 ? times->load_ns : 1;
    buf_printf(body,
               "],\"total_duration\":%" PRId64 ",\"load_duration\":%" PRId64
               ",\"prompt_eval_count\":%" PRIu64 "}",
               total_ns, load_ns, tokens);
}

static bool write_embed(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                        struct buf *body) {
    add_embed_head(call, body);
    if (!add_vectors(inner, false, body)) return false;
    add_embed_end(&end->times, end->usage.input_tokens, body);
    return true;
}

static bool write_embeddings(struct dialect_call *call, struct str inner,
                             const struct dialect_end *end, struct buf *body) {
    (void)call, (void)end;
    buf_add_text(body, "{\"embedding\":");
    if (!add_vectors(inner, true, body)) return false;
    buf_add_byte(body, '}');
    return true;
}

static void idle_embed(struct dialect_call *call, const struct dialect_times *times,
                       struct buf *body) {
    add_embed_head(call, body);
    add_embed_end(times, 0, body);
}

static void idle_embeddings(struct dialect_call *call, const struct dialect_times *times,
                            struct buf *body) {
    (void)call, (void)times;
    buf_add_text(body, "{\"embedding\":[]}");
}

const struct dialect ollama_embed = {.words = &ollama_embed_words,
                                     .read = read_embed,
                                     .fits = ollama_fits,
                                     .body = write_embed,
                                     .idle = idle_embed};
const struct dialect ollama_embeddings = {.words = &ollama_embed_words,
                                          .read = read_embeddings,
                                          .fits = ollama_fits,
                                          .body = write_embeddings,
                                          .idle = idle_embeddings};

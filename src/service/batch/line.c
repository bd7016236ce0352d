/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/line.h"

#include "base/utf8.h"
#include "grammar/asked_names.h"
#include "json/json.h"
#include "json/span.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 100 /* bytes of a client's value that a message shows */

struct place {
    const char *name;
    const char *param; /* its name in an error */
    size_t offset;     /* place of a struct str in struct batch_line */
};
#define PLACE(name)                                                                                \
    { #name, #name, offsetof(struct batch_line, name) }
#define BODY_PLACE(name)                                                                           \
    { #name, "body." #name, offsetof(struct batch_line, name) }

#define SHAPE_PLACES                                                                               \
    BODY_PLACE(response_format), BODY_PLACE(structured_outputs), BODY_PLACE(guided_json),          \
        BODY_PLACE(guided_regex), BODY_PLACE(guided_choice), BODY_PLACE(guided_json_object),       \
        BODY_PLACE(guided_grammar), BODY_PLACE(guided_whitespace_pattern),                         \
        BODY_PLACE(json_schema), BODY_PLACE(regex), BODY_PLACE(grammar), BODY_PLACE(ebnf),         \
        BODY_PLACE(structural_tag), BODY_PLACE(format), BODY_PLACE(output_format),                 \
        BODY_PLACE(text), BODY_PLACE(output_config), BODY_PLACE(tools), BODY_PLACE(tool_choice)

static const struct place shape_places[] = {SHAPE_PLACES};
static const struct place line_places[] = {PLACE(custom_id), PLACE(method), PLACE(url),
                                           PLACE(body)};
static const struct place body_places[] = {
    BODY_PLACE(model),     BODY_PLACE(messages),  BODY_PLACE(stream), BODY_PLACE(prompt),
    BODY_PLACE(input),     BODY_PLACE(text_1),    BODY_PLACE(text_2), BODY_PLACE(query),
    BODY_PLACE(documents), BODY_PLACE(questions), BODY_PLACE(state),  BODY_PLACE(queries),
    BODY_PLACE(items),     BODY_PLACE(data_1),    BODY_PLACE(data_2), SHAPE_PLACES};

/* Whether a member without a place may be a constraint, or have one inside. No number says one;
 * most members of a body are numbers, and their names are not looked at. */
static bool may_constrain(struct str key, struct str value) {
    bool may_say = strchr("{[\"t", *value.at);
    return may_say && asked_name_is_about(key, value);
}

/* Puts the known members into their places; of equal keys the last one stays, and `twice` names
 * them. *ret_end is the end
 * of the object. False if it is not valid. */
static bool read_members(struct str object, const struct place *places, size_t place_count,
                         struct batch_line *line, size_t *ret_end) {
    struct json_span_iter iter;
    struct str key, value;
    uint64_t seen = 0;
    if (!json_span_enter(&iter, object)) return false;
    while (json_span_member(&iter, &key, &value)) {
        bool is_known = false;
        for (size_t i = 0; i < place_count && !is_known; i++) {
            if (!json_span_string_is(key, places[i].name)) continue;
            if (seen >> i & 1 && !line->twice) line->twice = places[i].param;
            seen |= UINT64_C(1) << i;
            struct str found = str_is(value, "null") ? (struct str){NULL, 0} : value;
            memcpy((char *)line + places[i].offset, &found, sizeof found);
            is_known = true;
        }
        if (places == body_places && !is_known && may_constrain(key, value))
            line->may_constrain = true;
    }
    *ret_end = iter.at;
    return !iter.is_bad;
}

static bool has_place(struct str key) {
    for (size_t i = 0; i < sizeof body_places / sizeof *body_places; i++)
        if (json_span_string_is(key, body_places[i].name)) return true;
    return false;
}

static bool is_space(struct str text) {
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] != ' ' && text.at[i] != '\t' && text.at[i] != '\r') return false;
    return true;
}

enum batch_line_reading batch_line_read(struct str text, struct batch_line *ret_line) {
    size_t from = 0, end;
    *ret_line = (struct batch_line){0};
    while (from < text.bytes && (text.at[from] == ' ' || text.at[from] == '\t')) from++;
    text = str_skip(text, from);
    if (!json_span_is_object(text))
        return json_span_read(text, NULL) ? BATCH_LINE_NOT_OBJECT : BATCH_LINE_NOT_JSON;
    /* One reading, member by member, also finds syntax errors. */
    if (!read_members(text, line_places, sizeof line_places / sizeof *line_places, ret_line,
                      &end) ||
        !is_space(str_skip(text, end))) {
        *ret_line = (struct batch_line){0};
        return BATCH_LINE_NOT_JSON;
    }
    if (json_span_is_object(ret_line->body))
        read_members(ret_line->body, body_places, sizeof body_places / sizeof *body_places,
                     ret_line, &end);
    return BATCH_LINE_READ;
}

bool batch_line_check_form(const struct batch_line *line, struct refusal *ret_refusal) {
    const struct {
        const char *name;
        struct str value;
        bool is_object;
    } parts[] = {{"custom_id", line->custom_id, false},
                 {"method", line->method, false},
                 {"url", line->url, false},
                 {"body", line->body, true}};
    enum endpoint endpoint;
    bool is_of_body = line->twice && strncmp(line->twice, "body.", strlen("body.")) == 0;
    /* Each translator refuses such a body by itself. */
    bool is_left =
        is_of_body && batch_line_endpoint(line, &endpoint) && endpoint_is_translated(endpoint);
    if (line->twice && !is_left)
        return refuse(ret_refusal, "invalid_request", line->twice,
                      "The key '%s' is given twice: it is not clear which one counts.",
                      line->twice);
    for (size_t i = 0; i < 4; i++) {
        if (parts[i].value.at) continue;
        return refuse_missing(ret_refusal, parts[i].name);
    }
    for (size_t i = 0; i < 4; i++) {
        bool good = parts[i].is_object ? json_span_is_object(parts[i].value)
                                       : json_span_is_string(parts[i].value);
        if (good) continue;
        return refuse(ret_refusal, "invalid_request", parts[i].name,
                      "Invalid type for '%s': expected %s.", parts[i].name,
                      parts[i].is_object ? "an object" : "a string");
    }
    if (line->custom_id.bytes == 2) {
        return refuse(ret_refusal, "invalid_request", "custom_id",
                      "Invalid value for 'custom_id': it must not be empty.");
    }
    return true;
}

static bool has_required(const struct batch_line *line, enum endpoint endpoint) {
    switch (endpoint) {
    case ENDPOINT_CHAT:
    case ENDPOINT_MESSAGES: return line->messages.at;
    case ENDPOINT_COMPLETIONS: return line->prompt.at;
    case ENDPOINT_EMBEDDINGS:
    case ENDPOINT_RESPONSES:
    case ENDPOINT_CLASSIFY:
    case ENDPOINT_POOLING: return line->input.at;
    case ENDPOINT_RERANK: return line->query.at && line->documents.at;
    case ENDPOINT_DECISIONS: return line->input.at && line->questions.at;
    case ENDPOINT_SYSTEMONE: return line->state.at && line->questions.at;
    case ENDPOINT_SCORE:
        return (line->text_1.at && line->text_2.at) || (line->query.at && line->documents.at) ||
               (line->queries.at && (line->documents.at || line->items.at)) ||
               (line->data_1.at && line->data_2.at);
    default: break; /* no line has another one */
    }
    return false;
}

bool batch_line_endpoint(const struct batch_line *line, enum endpoint *ret_endpoint) {
    if (!json_span_is_string(line->url)) return false;
    struct buf scratch;
    buf_init(&scratch, BUF_UNLIMITED);
    bool known = endpoint_find(json_span_text(line->url, &scratch), ret_endpoint);
    buf_release(&scratch);
    return known;
}

/* The start of a raw string's text, for a message. */
static void show(struct str string, char ret_text[SHOWN_BYTES + 1]) {
    struct buf scratch;
    buf_init(&scratch, BUF_UNLIMITED);
    struct str text = json_span_text(string, &scratch);
    if (text.bytes > SHOWN_BYTES) text.bytes = SHOWN_BYTES;
    text.bytes = utf8_valid_prefix(text);
    memcpy(ret_text, text.bytes ? text.at : "", text.bytes);
    ret_text[text.bytes] = '\0';
    buf_release(&scratch);
}

bool batch_line_check_target(struct batch_line *line, enum endpoint batch_endpoint, bool strict_url,
                             struct refusal *ret_refusal) {
    char text[SHOWN_BYTES + 1];
    if (!json_span_string_is(line->method, "POST")) {
        show(line->method, text);
        return refuse(ret_refusal, "invalid_method", "method",
                      "Invalid method: '%s'. Only POST is supported.", text);
    }
    bool known = batch_line_endpoint(line, &line->endpoint);
    bool own = known && line->endpoint == batch_endpoint;
    if (!own && (!known || strict_url || !has_required(line, line->endpoint))) {
        show(line->url, text);
        if (!known)
            return refuse(ret_refusal, "invalid_url", "url",
                          "The URL '%s' is not supported. Supported are '%s', '%s', '%s', '%s', "
                          "'%s', '%s', '%s', '%s', '%s', '%s' and '%s'; this batch is for '%s'.",
                          text, endpoint_path(ENDPOINT_CHAT), endpoint_path(ENDPOINT_COMPLETIONS),
                          endpoint_path(ENDPOINT_EMBEDDINGS), endpoint_path(ENDPOINT_SCORE),
                          endpoint_path(ENDPOINT_DECISIONS), endpoint_path(ENDPOINT_SYSTEMONE),
                          endpoint_path(ENDPOINT_RERANK), endpoint_path(ENDPOINT_POOLING),
                          endpoint_path(ENDPOINT_RESPONSES), endpoint_path(ENDPOINT_MESSAGES),
                          endpoint_path(ENDPOINT_CLASSIFY), endpoint_path(batch_endpoint));
        return refuse(ret_refusal, "invalid_url", "url",
                      "The URL provided for this request does not match the batch endpoint. "
                      "Expected '%s', got '%s'.",
                      endpoint_path(batch_endpoint), text);
    }
    return true;
}

bool batch_line_check_model(const struct batch_line *line, bool may_lack,
                            struct refusal *ret_refusal) {
    if (json_span_is_string(line->model) || (may_lack && !line->model.at)) return true;
    return refuse(ret_refusal, "invalid_request", "body.model", "Model parameter is required.");
}

/* Adds the members without a place that may be constraints. */
static void add_others(const struct batch_line *line, struct buf *room) {
    struct json_span_iter iter;
    struct str key, value;
    bool inside = line->may_constrain && json_span_enter(&iter, line->body);
    while (inside && json_span_member(&iter, &key, &value)) {
        if (has_place(key) || !may_constrain(key, value)) continue;
        buf_add_byte(room, room->bytes ? ',' : '{');
        buf_add_str(room, key);
        buf_add_byte(room, ':');
        buf_add_str(room, value);
    }
}

struct str batch_line_shape(const struct batch_line *line, struct buf *room) {
    buf_clear(room);
    for (size_t i = 0; i < sizeof shape_places / sizeof *shape_places; i++) {
        struct str value;
        memcpy(&value, (const char *)line + shape_places[i].offset, sizeof value);
        if (!value.at) continue;
        buf_printf(room, "%s\"%s\":", room->bytes ? "," : "{", shape_places[i].name);
        buf_add_str(room, value);
    }
    add_others(line, room);
    if (room->bytes) buf_add_byte(room, '}');
    return buf_str(room);
}

/* A format asks for nothing if its type is "text". */
static bool asks_format(struct str format) {
    return format.at && !str_is(format, "null") &&
           !json_span_string_is(json_span_get(format, "type"), "text");
}

/* Values that ask for nothing: the type "text", `false` where a boolean asks for any object, and an
 * empty text in the fields of other servers. guided_whitespace_pattern alone asks for no shape. */
bool batch_line_asks_shape(const struct batch_line *line) {
    const struct str others[] = {line->json_schema, line->regex,          line->grammar,
                                 line->ebnf,        line->structural_tag, line->format};
    if (line->structured_outputs.at || line->guided_json.at || line->guided_regex.at ||
        line->guided_choice.at || line->guided_grammar.at)
        return true;
    if (line->guided_json_object.at && !str_is(line->guided_json_object, "false")) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].at && !str_is(others[i], "\"\"")) return true;
    return asks_format(line->response_format) || asks_format(line->output_format) ||
           asks_format(json_span_get(line->text, "format")) ||
           asks_format(json_span_get(line->output_config, "format"));
}

/* The model goes to the end, because the body may have a `model` of null and the last of equal keys
 * counts. */
struct str batch_line_with_model(const struct batch_line *line, struct str model,
                                 struct buf *room) {
    struct json_span_iter iter;
    struct str key, value;
    bool empty = !json_span_enter(&iter, line->body) || !json_span_member(&iter, &key, &value);
    buf_clear(room);
    buf_add(room, line->body.at, line->body.bytes - 1);
    buf_add_text(room, empty ? "\"model\":" : ",\"model\":");
    json_write_string(room, model);
    buf_add_byte(room, '}');
    return buf_str(room);
}

bool batch_line_check_body(const struct batch_line *line, struct refusal *ret_refusal) {
    static const struct {
        const char *param, *message;
    } required[ENDPOINT_COUNT] = {
        {"body.messages", "Messages parameter is required."},
        {"body.prompt", "Prompt parameter is required."},
        {"body.input", "Input parameter is required."},
        {"body.text_1", "Parameters text_1 and text_2, or query and documents, are required."},
        {"body.input", "Input parameter is required."},
        {"body.state", "State parameter is required."},
        {"body.query", "Parameters query and documents are required."},
        {"body.input", "Input parameter is required."},
        {"body.input", "Input parameter is required."},
        {"body.messages", "Messages parameter is required."},
        {"body.input", "Input parameter is required."}};
    struct str text = line->endpoint == ENDPOINT_SYSTEMONE ? line->state : line->input;
    if (endpoint_is_decision(line->endpoint) && text.at && !line->questions.at)
        return refuse(ret_refusal, "invalid_request", "body.questions",
                      "Questions parameter is required.");
    if (!has_required(line, line->endpoint)) {
        return refuse(ret_refusal, "invalid_request", required[line->endpoint].param, "%s",
                      required[line->endpoint].message);
    }
    /* A translated line is refused as a whole by its own API, and the batch goes on. */
    if (str_is(line->stream, "true") && !endpoint_is_translated(line->endpoint)) {
        return refuse(ret_refusal, "streaming_unsupported", "body.stream",
                      "Invalid value for 'stream': Streaming is not supported in the Batch API.");
    }
    return true;
}

struct str batch_line_prompt(const struct batch_line *line) {
    switch (line->endpoint) {
    case ENDPOINT_CHAT:
    case ENDPOINT_MESSAGES: return line->messages;
    case ENDPOINT_COMPLETIONS: return line->prompt;
    case ENDPOINT_EMBEDDINGS:
    case ENDPOINT_POOLING:
    case ENDPOINT_RESPONSES:
    case ENDPOINT_CLASSIFY:
    case ENDPOINT_DECISIONS: return line->input;
    case ENDPOINT_RERANK: return line->query;
    case ENDPOINT_SYSTEMONE: return line->state;
    case ENDPOINT_SCORE:
        return line->text_1.at    ? line->text_1
               : line->query.at   ? line->query
               : line->queries.at ? line->queries
                                  : line->data_1;
    default: break; /* no line has another one */
    }
    return (struct str){NULL, 0};
}

bool batch_line_same_text(struct str raw_a, struct str raw_b) {
    if (!json_span_is_string(raw_a) || !json_span_is_string(raw_b)) return false;
    if (str_equals(raw_a, raw_b)) return true;
    struct buf a, b;
    buf_init(&a, BUF_UNLIMITED);
    buf_init(&b, BUF_UNLIMITED);
    bool same = str_equals(json_span_text(raw_a, &a), json_span_text(raw_b, &b));
    buf_release(&a);
    buf_release(&b);
    return same;
}

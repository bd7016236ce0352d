/* SPDX-License-Identifier: Apache-2.0 */
/* The translators of other APIs: any bytes as a request, whose translation is JSON again, and as
 * chunks and bodies of an answer, whose events are whole lines of JSON. */
#include "dialects/messages.h"
#include "dialects/ollama.h"
#include "dialects/ollama_preset.h"
#include "dialects/responses.h"
#include "grammar/asked_elsewhere.h"
#include "json/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_json(struct str text) {
    struct str value;
    assert(json_span_read(text, &value) && value.bytes == text.bytes);
}

static void check_lines(struct str events) {
    while (events.bytes > 0) {
        size_t end = str_find_byte(events, '\n', 0);
        assert(end != SIZE_MAX);
        struct str line = {events.at, end};
        events = str_skip(events, end + 1);
        if (str_starts_with(line, STR("data: "))) line = str_skip(line, 6);
        bool is_type = str_starts_with(line, STR("event: "));
        if (line.bytes > 0 && !is_type) check_json(line);
    }
}

static void answer(struct dialect_call *call, struct str text) {
    const struct dialect_end end = {.usage = {.input_tokens = 1}};
    struct piece piece;
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    if (call->dialect->take && piece_read(text, &piece)) {
        call->dialect->take(call, &piece, 0, &out);
        call->dialect->take(call, &piece, 0, &out);
        call->dialect->end(call, &end, &out);
        check_lines(buf_str(&out));
    }
    buf_clear(&out);
    if (call->dialect->body(call, text, &end, &out)) check_json(buf_str(&out));
    buf_release(&out);
}

/* A request with what a Modelfile says is JSON again, also if its parameters are any object. */
static void apply_preset(const struct dialect *dialect, struct str object) {
    struct ollama_preset preset;
    struct buf whole;
    ollama_preset_init(&preset);
    buf_init(&whole, BUF_UNLIMITED);
    buf_add_str(&preset.params, object);
    buf_add_text(&preset.system, "\"Be kind.\"");
    if (ollama_preset_apply(&preset, dialect, object, &whole)) check_json(buf_str(&whole));
    ollama_preset_write_lines(&preset, "", &whole);
    buf_release(&whole);
    ollama_preset_release(&preset);
}

static void read_request(const struct dialect *dialect, struct str object) {
    struct refusal refusal;
    apply_preset(dialect, object);
    struct dialect_call *call = dialect_read(dialect, object, &refusal);
    if (!call) return;
    if (call->wish == DIALECT_RUN) check_json(buf_str(&call->body));
    assert(call->body.bytes <= 16 * object.bytes + 1024);
    dialect_call_free(call);
}

/* A worker's error in the words of a dialect is JSON again. */
static void check_words(const struct dialect *dialect, struct str error) {
    struct buf own;
    buf_init(&own, BUF_UNLIMITED);
    own_words_write(dialect->words, error, &own);
    check_json(buf_str(&own));
    buf_release(&own);
}

static void look_for_constraints(struct str object) {
    static const char *const members[] = {"model", "options", NULL}, *const inside[] = {"stop",
                                                                                        NULL};
    const struct asked_api api = {
        .members = members, .open = "options", .inside = inside, .reason = "it is not held"};
    struct refusal refusal;
    (void)asked_elsewhere_check(&api, object, &refusal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const struct dialect *const dialects[] = {
        &ollama_chat,     &ollama_generate, &ollama_embed,     &ollama_embeddings,
        &messages_create, &messages_count,  &responses_create, &responses_count};
    const struct str
        plain = STR(
            "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"\"}],"
            "\"input\":[],\"prompt\":\"\"}"),
        items =
            STR("{\"model\":\"m\",\"input\":\"x\",\"include\":[\"reasoning.encrypted_content\"]}");
    struct refusal refusal;
    struct str object;
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy) abort();
    if (bytes) memcpy(copy, data, bytes);
    struct str text = {copy, bytes};
    if (json_span_is_utf8(text) && json_span_read(text, &object) && json_span_is_object(object)) {
        look_for_constraints(object);
        for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
            read_request(dialects[i], object);
            check_words(dialects[i], object);
            bool has_items = dialects[i] == &responses_create || dialects[i] == &responses_count;
            struct dialect_call *call =
                dialect_read(dialects[i], has_items ? items : plain, &refusal);
            answer(call, text);
            dialect_call_free(call);
        }
    }
    free(copy);
    return 0;
}

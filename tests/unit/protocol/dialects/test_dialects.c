/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/messages.h"
#include "dialects/ollama.h"
#include "dialects/responses.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const char *const files[] = {"ollama", "messages", "responses"};

static json_t *open_cases(const char *file, const char *list) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/unit/protocol/dialects/%s.json", getenv("QUERN_SOURCE"),
             file);
    json_t *whole = json_load_file(path, 0, NULL);
    json_t *cases = json_incref(json_object_get(whole, list));
    json_decref(whole);
    assert_true(json_array_size(cases) > 6);
    return cases;
}

static const struct dialect *dialect_of(const json_t *item) {
    struct str route = json_member_str(item, "route");
    if (str_is(route, "chat")) return &ollama_chat;
    if (str_is(route, "generate")) return &ollama_generate;
    if (str_is(route, "embed")) return &ollama_embed;
    if (str_is(route, "messages")) return &messages_create;
    if (str_is(route, "count")) return &messages_count;
    if (str_is(route, "responses")) return &responses_create;
    if (str_is(route, "response_count")) return &responses_count;
    return &ollama_embeddings;
}

static const char *name_of(const json_t *item) {
    return json_string_value(json_object_get(item, "name"));
}

/* Compares texts of JSON as trees, in which 1 and 1.0 are one number. */
static void check_json(const json_t *item, const char *what, struct str text, const json_t *want) {
    char *wanted = json_dumps(want, JSON_COMPACT);
    json_t *got = json_loadb(text.at ? text.at : "", text.bytes, JSON_DECODE_INT_AS_REAL, NULL);
    json_t *tree = json_loads(wanted, JSON_DECODE_INT_AS_REAL, NULL);
    if (!got || !json_equal(got, tree))
        fail_msg("%s: %s: got %.*s, wanted %s", name_of(item), what, STR_ARGS(text), wanted);
    json_decref(got);
    json_decref(tree);
    free(wanted);
}

/* The text of the case's request, written in one of two ways. */
static char *text_of(const json_t *item, size_t flags) {
    const json_t *text = json_object_get(item, "text");
    if (text) return strdup(json_string_value(text));
    return json_dumps(json_object_get(item, "body"), flags);
}

static void check_wish(const json_t *item, const struct dialect_call *call) {
    static const char *const wishes[] = {
        [DIALECT_RUN] = "run", [DIALECT_LOAD] = "load", [DIALECT_UNLOAD] = "unload"};
    const char *wish = json_string_value(json_object_get(item, "wish"));
    const char *endpoint = json_string_value(json_object_get(item, "endpoint"));
    json_t *stream = json_object_get(item, "stream");
    const json_t *keep_ms = json_object_get(item, "keep_ms");
    if (keep_ms) assert_int_equal(call->keep_ms, json_number_value(keep_ms));
    assert_string_equal(wishes[call->wish], wish ? wish : "run");
    if (call->wish == DIALECT_RUN)
        assert_string_equal(endpoint_path(call->endpoint),
                            endpoint ? endpoint : "/v1/chat/completions");
    if (stream) assert_int_equal(call->stream, json_is_true(stream));
    assert_true(str_is(buf_str(&call->model), "m"));
}

static void check_read(const json_t *item, size_t flags) {
    char *text = text_of(item, flags);
    struct refusal refusal = {.status = 0};
    struct dialect_call *call = dialect_read(dialect_of(item), str_from(text), &refusal);
    const char *refused = json_string_value(json_object_get(item, "refused"));
    const char *param = json_string_value(json_object_get(item, "param"));
    if (refused) {
        if (call) fail_msg("%s: was taken", name_of(item));
        assert_string_equal(refusal.message, refused);
        assert_string_equal(refusal.param, param ? param : "");
        json_t *status = json_object_get(item, "status");
        assert_int_equal(refusal.status, status ? json_integer_value(status) : 400);
    } else {
        if (!call) fail_msg("%s: %s", name_of(item), refusal.message);
        check_wish(item, call);
        if (call->wish == DIALECT_RUN)
            check_json(item, "request", buf_str(&call->body), json_object_get(item, "inside"));
    }
    dialect_call_free(call);
    free(text);
}

static void each_request_is_read_or_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *cases = open_cases(files[i], "reads"), *item;
        size_t index;
        json_array_foreach(cases, index, item) {
            check_read(item, JSON_COMPACT);
            /* The arguments of calls are kept as the client wrote them. */
            char *text = text_of(item, 0);
            bool has_call = strstr(text, "arguments") || strstr(text, "tool_use");
            if (!has_call) check_read(item, JSON_INDENT(1) | JSON_ENSURE_ASCII);
            free(text);
        }
        json_decref(cases);
    }
}

/* A call whose answer is written: the model is shown as its client wrote it. */
static struct dialect_call *open_call(const json_t *item) {
    struct refusal refusal;
    const struct dialect *dialect = dialect_of(item);
    struct str text = STR("{\"model\":\"M\",\"prompt\":\"p\",\"messages\":[]}");
    if (dialect == &messages_create)
        text = STR("{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\","
                   "\"content\":\"\"}]}");
    if (dialect == &responses_create) text = STR("{\"model\":\"m\",\"input\":\"\"}");
    struct dialect_call *call = dialect_read(dialect, text, &refusal);
    assert_non_null(call);
    call->wants_logprobs = json_is_true(json_object_get(item, "logprobs"));
    return call;
}

static const struct dialect_end the_end = {
    .usage = {.input_tokens = 26, .output_tokens = 12},
    .times = {.total_ns = 4, .prefill_ns = 3, .decode_ns = 1}};

/* Checks one event, on its line, or with its type before it. Returns what follows it. */
static struct str check_event(const json_t *item, struct str events, const json_t *want) {
    if (str_starts_with(events, STR("event: "))) {
        size_t line = str_find_byte(events, '\n', 0), end = str_find(events, STR("\n\n"), 0);
        assert_true(line != SIZE_MAX && end != SIZE_MAX);
        struct str type = {events.at + 7, line - 7};
        struct str data = str_skip(events, line + 1);
        assert_true(str_equals(type, json_member_str(want, "type")));
        assert_true(str_starts_with(data, STR("data: ")));
        check_json(item, "event", (struct str){data.at + 6, end - line - 7}, want);
        return str_skip(events, end + 2);
    }
    size_t end = str_find_byte(events, '\n', 0);
    assert_true(end != SIZE_MAX);
    check_json(item, "event", (struct str){events.at, end}, want);
    return str_skip(events, end + 1);
}

static void check_events(const json_t *item, struct str events) {
    const json_t *want = json_object_get(item, "events");
    size_t count = 0;
    while (events.bytes > 0) {
        if (count >= json_array_size(want)) fail_msg("%s: too many events", name_of(item));
        events = check_event(item, events, json_array_get(want, count++));
    }
    assert_int_equal(count, json_array_size(want));
}

static void check_stream(const json_t *item) {
    struct dialect_call *call = open_call(item);
    const json_t *chunk;
    struct buf events;
    size_t index;
    buf_init(&events, BUF_UNLIMITED);
    json_array_foreach(json_object_get(item, "chunks"), index, chunk) {
        struct piece piece;
        char *text = json_dumps(chunk, JSON_COMPACT | JSON_ENSURE_ASCII);
        assert_true(piece_read(str_from(text), &piece));
        call->dialect->take(call, &piece, 0, &events);
        free(text);
    }
    call->dialect->end(call, &the_end, &events);
    check_events(item, buf_str(&events));
    buf_release(&events);
    dialect_call_free(call);
}

static void check_body(const json_t *item) {
    struct dialect_call *call = open_call(item);
    struct buf body;
    char *text = json_dumps(json_object_get(item, "body"), JSON_COMPACT | JSON_ENSURE_ASCII);
    buf_init(&body, BUF_UNLIMITED);
    assert_true(call->dialect->body(call, str_from(text), &the_end, &body));
    check_json(item, "body", buf_str(&body), json_object_get(item, "whole"));
    buf_release(&body);
    free(text);
    dialect_call_free(call);
}

static void a_stream_and_a_body_say_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *cases = open_cases(files[i], "answers"), *item;
        size_t index;
        json_array_foreach(cases, index, item) {
            check_stream(item);
            check_body(item);
        }
        json_decref(cases);
    }
}

static void vectors_are_copied(void **state) {
    (void)state;
    const struct str inner =
        STR("{\"data\":[{\"index\":0,\"embedding\":[1.0,2e-3]},{\"index\":1,\"embedding\":[0]}]}");
    struct refusal refusal;
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    struct dialect_call *call =
        dialect_read(&ollama_embed, STR("{\"model\":\"m\",\"input\":[\"a\",\"b\"]}"), &refusal);
    assert_true(call->dialect->body(call, inner, &the_end, &body));
    assert_true(str_is(buf_str(&body), "{\"model\":\"m\",\"embeddings\":[[1.0,2e-3],[0]],"
                                       "\"total_duration\":4,\"load_duration\":1,"
                                       "\"prompt_eval_count\":26}"));
    dialect_call_free(call);
    buf_clear(&body);
    call = dialect_read(&ollama_embeddings, STR("{\"model\":\"m\",\"prompt\":\"a\"}"), &refusal);
    assert_true(call->dialect->body(call, inner, &the_end, &body));
    assert_true(str_is(buf_str(&body), "{\"embedding\":[1.0,2e-3]}"));
    assert_false(call->dialect->body(call, STR("{\"data\":{}}"), &the_end, &body));
    assert_false(call->dialect->body(call, STR("[]"), &the_end, &body));
    dialect_call_free(call);
    buf_release(&body);
}

static void an_error_is_one_sentence(void **state) {
    (void)state;
    const struct str error = STR("{\"error\":{\"message\":\"no \\u00e9\",\"type\":\"x\"}}");
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    assert_int_equal(dialect_errors_of(STR("/api/chat?a")), ERRORS_OLLAMA);
    assert_int_equal(dialect_errors_of(STR("/v1/chat/completions")), ERRORS_OPENAI);
    dialect_write_error(ERRORS_OLLAMA, 400, error, &body);
    assert_true(str_is(buf_str(&body), "{\"error\":\"no \\u00e9\"}"));
    buf_clear(&body);
    dialect_write_error(ERRORS_OPENAI, 400, error, &body);
    assert_true(str_equals(buf_str(&body), error));
    buf_clear(&body);
    assert_int_equal(dialect_errors_of(STR("/v1/messages/count_tokens")), ERRORS_ANTHROPIC);
    dialect_write_error(ERRORS_ANTHROPIC, 404, error, &body);
    assert_true(str_is(buf_str(&body), "{\"type\":\"error\",\"error\":{\"type\":"
                                       "\"not_found_error\",\"message\":\"no \\u00e9\"}}"));
    buf_clear(&body);
    dialect_write_error(ERRORS_OLLAMA, 500, STR("oops"), &body);
    assert_true(str_is(buf_str(&body), "oops"));
    buf_release(&body);
}

static void check_own(const struct dialect *dialect, struct str error, const char *want) {
    const struct dialect_call call = {.dialect = dialect};
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    dialect_own_error(&call, error, &body);
    if (!str_is(buf_str(&body), want)) fail_msg("got %.*s", STR_ARGS(buf_str(&body)));
    buf_release(&body);
}

static void a_refusal_of_a_worker_is_in_the_words_of_the_api_that_was_asked(void **state) {
    (void)state;
    const struct str form = STR("{\"error\":{\"message\":\"Invalid 'response_format': \\u00e9 is "
                                "none.\",\"type\":\"t\",\"param\":\"response_format\","
                                "\"code\":null}}");
    const struct str tool = STR("{\"error\":{\"message\":\"'tools[1].function.parameters': no, "
                                "'stop'\",\"type\":\"t\",\"param\":\"tools[1].function.name\"}}");
    const struct str too_long = STR(
        "{\"error\":{\"message\":\"This model's maximum context length is 1024 tokens. However, "
        "you requested 6018 tokens (6002 in the prompt, 16 in the completion).\",\"type\":\"t\","
        "\"param\":\"messages\",\"code\":\"context_length_exceeded\"}}");
    check_own(&ollama_chat, form,
              "{\"error\":{\"message\":\"Invalid 'format': \\u00e9 is none.\",\"type\":\"t\","
              "\"param\":\"format\",\"code\":null}}");
    check_own(&messages_create, tool,
              "{\"error\":{\"message\":\"'tools[1].input_schema': no, 'stop_sequences'\","
              "\"type\":\"t\",\"param\":\"tools[1].name\",\"code\":null}}");
    check_own(&responses_create, form,
              "{\"error\":{\"message\":\"Invalid 'text.format': \\u00e9 is none.\",\"type\":\"t\","
              "\"param\":\"text.format\",\"code\":null}}");
    check_own(&messages_create, too_long,
              "{\"error\":{\"message\":\"prompt is too long: 6002 tokens > 1024 maximum\","
              "\"type\":\"t\",\"param\":\"messages\",\"code\":\"context_length_exceeded\"}}");
    check_own(&ollama_embed, too_long,
              "{\"error\":{\"message\":\"the input length exceeds the context length: 6002 tokens, "
              "and at most 1024 fit\",\"type\":\"t\",\"param\":\"messages\","
              "\"code\":\"context_length_exceeded\"}}");
    check_own(&messages_count, STR("oops"), "oops");
    check_own(&messages_count, STR("{\"error\":\"x\"}"), "{\"error\":\"x\"}");
}

/* --- the cost: `QUERN_BENCH=1 build/tests/test_dialects dialects` --- */

#define BENCH_BODY_BYTES ((size_t)32 << 20)
#define BENCH_EVENTS 200000

static double cpu_ms(void) {
    return (double)clock() * 1e3 / CLOCKS_PER_SEC;
}

/* A conversation of BENCH_BODY_BYTES in messages of 64 KiB. */
static void write_long(struct buf *body, const char *list) {
    buf_printf(body, "{\"model\":\"m\",\"max_tokens\":9,\"%s\":[", list);
    for (size_t i = 0; body->bytes < BENCH_BODY_BYTES; i++) {
        buf_printf(body, "%s{\"role\":\"%s\",\"content\":\"", i ? "," : "",
                   i % 2 ? "assistant" : "user");
        for (size_t j = 0; j < 1024; j++)
            buf_add_text(body,
                         "A line of words, and \\\"more\\\" of them at its end, so it goes.\\n");
        buf_add_text(body, "\"}");
    }
    buf_add_text(body, "]}");
}

static void bench(const char *name, const struct dialect *dialect) {
    struct buf body, events;
    struct refusal refusal;
    struct piece piece;
    const struct str chunk =
        STR("{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,"
            "\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"
            "\"logprobs\":null,\"finish_reason\":null}]}");
    buf_init(&body, BUF_UNLIMITED);
    buf_init(&events, BUF_UNLIMITED);
    write_long(&body, dialect == &responses_create ? "input" : "messages");
    double begun_ms = cpu_ms();
    struct dialect_call *call = dialect_read(dialect, buf_str(&body), &refusal);
    double read_ms = cpu_ms() - begun_ms;
    assert_non_null(call);
    double times = (double)(body.bytes + call->body.bytes) / (double)body.bytes;
    begun_ms = cpu_ms();
    for (size_t i = 0; i < BENCH_EVENTS; i++) {
        assert_true(piece_read(chunk, &piece));
        dialect->take(call, &piece, 0, &events);
        buf_clear(&events);
    }
    printf("%-16s body of 32 MiB: %.1f ms, %.2f times its bytes; event: %.3f us\n", name, read_ms,
           times, (cpu_ms() - begun_ms) * 1e3 / BENCH_EVENTS);
    dialect_call_free(call);
    buf_release(&body);
    buf_release(&events);
}

int main(void) {
    if (getenv("QUERN_BENCH")) {
        bench("ollama chat", &ollama_chat);
        bench("messages", &messages_create);
        bench("responses", &responses_create);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_is_read_or_refused_by_name),
        cmocka_unit_test(a_stream_and_a_body_say_the_same),
        cmocka_unit_test(vectors_are_copied),
        cmocka_unit_test(an_error_is_one_sentence),
        cmocka_unit_test(a_refusal_of_a_worker_is_in_the_words_of_the_api_that_was_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

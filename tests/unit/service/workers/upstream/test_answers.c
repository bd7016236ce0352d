/* SPDX-License-Identifier: Apache-2.0 */

/* What comes from an upstream, as text: answers, errors, streams. */

#include "json/json.h"
#include "workers/upstream/error.h"
#include "workers/upstream/overload.h"
#include "workers/upstream/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_reading(enum endpoint endpoint, const char *request, int status,
                           const char *body, const char *model, enum outcome outcome,
                           int32_t result_status, const char *expected) {
    const struct upstream_asked asked = {
        .endpoint = endpoint, .request = str_from(request), .model = model, .name = "up"};
    struct buf buf;
    struct upstream_reading reading;
    buf_init(&buf, 1 << 20);
    upstream_read_answer(&buf, status, str_from(body), &asked, &reading);
    if (reading.outcome != outcome || reading.status != result_status)
        fail_msg("%s: outcome %d, status %d", body, reading.outcome, reading.status);
    assert_int_equal(reading.is_overload, outcome == OUTCOME_NOT_RUN);
    if (expected && !str_is(reading.body, expected))
        fail_msg("%.*s", (int)reading.body.bytes, reading.body.at);
    json_t *value;
    struct error error = {0};
    if (json_read(&value, reading.body, &error) != OK || !json_is_object(value))
        fail_msg("%.*s", (int)reading.body.bytes, reading.body.at);
    json_decref(value);
    buf_release(&buf);
}

/* For an endpoint whose answers may be any object. */
static void expect_answer(int status, const char *body, const char *model, enum outcome outcome,
                          int32_t result_status, const char *expected) {
    expect_reading(ENDPOINT_TOKENIZE, "{}", status, body, model, outcome, result_status, expected);
}

/* The sentence of an error. */
static void expect_message(enum endpoint endpoint, const char *request, int status,
                           const char *body, enum outcome outcome, int32_t result_status,
                           const char *message) {
    const struct upstream_asked asked = {
        .endpoint = endpoint, .request = str_from(request), .name = "up"};
    struct buf buf;
    struct upstream_reading reading;
    char line[1000];
    buf_init(&buf, 1 << 20);
    upstream_read_answer(&buf, status, str_from(body), &asked, &reading);
    upstream_error_line(line, sizeof line, reading.body);
    if (reading.outcome != outcome || reading.status != result_status || strcmp(line, message) != 0)
        fail_msg("%s: outcome %d, status %d: %s", body, reading.outcome, reading.status, line);
    buf_release(&buf);
}

static void good_answers_become_ascii_on_one_line(void **state) {
    (void)state;
    expect_answer(200, "{\n \"a\": \"\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80\",\r\n \"b\": []\n}\n",
                  NULL, OUTCOME_DONE, 200,
                  "{  \"a\": \"\\u00e9\\u2028\\ud83d\\ude00\",   \"b\": [] }");
    expect_answer(201, "{}", NULL, OUTCOME_DONE, 200, "{}");
    expect_answer(200, "{\"model\":\"theirs\",\"x\":{\"model\":\"y\"}}", "our\"s", OUTCOME_DONE,
                  200, "{\"model\":\"our\\\"s\",\"x\":{\"model\":\"y\"}}");
    expect_answer(
        200, "{\"usage\":{\"prompt_tokens\":7,\"prompt_tokens_details\":null},\"c\":1}", NULL,
        OUTCOME_DONE, 200,
        "{\"usage\":{\"prompt_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":0}},"
        "\"c\":1}");
    expect_answer(200, "{\"usage\":{},\"timings\":{\"cache_n\":3}}", NULL, OUTCOME_DONE, 200,
                  "{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":0}},"
                  "\"timings\":{\"cache_n\":3}}");
}

static void usage_is_read_wherever_it_stands(void **state) {
    (void)state;
    static const struct {
        const char *body;
        uint32_t prompt, cached, completion, reasoning;
    } cases[] = {
        {"{\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":4,\"prompt_tokens_details\":"
         "{\"cached_tokens\":6},\"completion_tokens_details\":{\"reasoning_tokens\":2}}}",
         10, 6, 4, 2},
        {"{\"usage\":{\"prompt_tokens\":10,\"prompt_cache_hit_tokens\":5}}", 10, 5, 0, 0},
        {"{\"usage\":{\"prompt_tokens\":10},\"timings\":{\"cache_n\":9}}", 10, 9, 0, 0},
        {"{\"usage\":{\"prompt_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":99}}}", 3, 3,
         0, 0},
        {"{\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":1.5}}", 0, 0, 0, 0},
        {"{\"usage\":{\"prompt_tokens\":99999999999999}}", UINT32_MAX, 0, 0, 0},
        {"{\"usage\":null}", 0, 0, 0, 0},
        {"{\"usage\":\"much\"}", 0, 0, 0, 0},
    };
    struct buf buf;
    buf_init(&buf, 1 << 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct upstream_reading reading;
        const struct upstream_asked asked = {.endpoint = ENDPOINT_TOKENIZE, .name = "up"};
        upstream_read_answer(&buf, 200, str_from(cases[i].body), &asked, &reading);
        assert_int_equal(reading.outcome, OUTCOME_DONE);
        assert_int_equal(reading.usage.input_tokens, cases[i].prompt);
        assert_int_equal(reading.usage.cached_tokens, cases[i].cached);
        assert_int_equal(reading.usage.output_tokens, cases[i].completion);
        assert_int_equal(reading.usage.reasoning_tokens, cases[i].reasoning);
    }
    buf_release(&buf);
}

static void what_is_no_json_object_is_a_fault_that_says_what_it_is(void **state) {
    (void)state;
    static const struct {
        const char *body, *what;
    } cases[] = {
        {"", "nothing"},
        {" ", "nothing"},
        {"[]", "an array"},
        {"null", "null"},
        {"upstream  connect\nerror", "upstream connect error"},
        {"<html><head><title>502 Bad Gateway</title></head><body><h1>no</h1>", "502 Bad Gateway"},
        {"<!DOCTYPE html><body class=x><h1>Not</h1> here</body>", "Not here"},
        {"\x1F\x8B\x08\x01", "4 bytes that are no text in UTF-8; the first are 1f 8b 08 01"},
        {"{\"a\":1,}", "not valid JSON: string or '}' expected near '}', at byte 8"},
    };
    char message[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(message, sizeof message,
                 "The upstream up answered with something that is not a JSON object: %s",
                 cases[i].what);
        expect_message(ENDPOINT_CHAT, "{}", 200, cases[i].body, OUTCOME_TRY_AGAIN, 502, message);
    }
    static const char *const others[] = {"{",           "{\"a\":1}{",       "{\"a\":\"\xFF\"}",
                                         "{\"a\":Nan}", "{\"a\":\"\x01\"}", "{'a':1}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_answer(200, others[i], NULL, OUTCOME_TRY_AGAIN, 502, NULL);
    expect_answer(302, "", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
    expect_answer(100, "{}", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
    expect_answer(0, "", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
    expect_answer(700, "{}", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
}

#define MESSAGE(message) "{\"choices\":[{\"message\":" message "}]}"
#define CHOICE "{\"message\":{\"content\":\"a\"}}"

/* An answer of status 200 that the endpoint's request did not ask for, and what it says. */
static void a_200_without_what_was_asked_for_is_no_answer(void **state) {
    (void)state;
    static const struct {
        enum endpoint endpoint;
        const char *request, *body, *lack;
    } cases[] = {
        {ENDPOINT_CHAT, "{}", "{}", "without choices"},
        {ENDPOINT_CHAT, "{}", "{\"choices\":null}", "without choices"},
        {ENDPOINT_CHAT, "{}", "{\"choices\":[]}", "without choices"},
        {ENDPOINT_CHAT, "{}", "{\"choices\":{}}", "without choices"},
        {ENDPOINT_CHAT, "{}", "{\"choices\":[null]}", "with choice 0 that is no object"},
        {ENDPOINT_CHAT, "{}", "{\"choices\":[{}]}", "with no message in choice 0"},
        {ENDPOINT_CHAT, "{}", "{\"choices\":[{\"text\":\"a\"}]}", "with no message in choice 0"},
        {ENDPOINT_CHAT, "{}", MESSAGE("null"), "with no message in choice 0"},
        {ENDPOINT_CHAT, "{}",
         MESSAGE("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}"),
         "with an empty message in choice 0"},
        {ENDPOINT_CHAT, "{}",
         "{\"choices\":[{\"message\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}",
         "with choice 0 broken off"},
        {ENDPOINT_CHAT, "{\"n\":2}", "{\"choices\":[" CHOICE "]}", "with 1 of 2 choices"},
        {ENDPOINT_COMPLETIONS, "{\"prompt\":\"p\"}", "{\"choices\":[" CHOICE "]}",
         "with no text in choice 0"},
        {ENDPOINT_COMPLETIONS, "{\"prompt\":\"p\"}", "{\"choices\":[{\"text\":null}]}",
         "with no text in choice 0"},
        {ENDPOINT_COMPLETIONS, "{\"prompt\":[\"p\",\"q\"],\"n\":2}",
         "{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}]}", "with 2 of 4 choices"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":\"i\"}", "{\"object\":\"list\"}", "without embeddings"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":\"i\"}", "{\"data\":[]}", "without embeddings"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":\"i\"}", "{\"data\":[{\"embedding\":[]}]}",
         "with no numbers in embedding 0"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":\"i\"}", "{\"data\":[{\"embedding\":[1,null]}]}",
         "with no numbers in embedding 0"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":\"i\"}", "{\"data\":[{\"embedding\":\"\"}]}",
         "with no numbers in embedding 0"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":[\"i\",\"j\"]}", "{\"data\":[{\"embedding\":[1]}]}",
         "with 1 of 2 embeddings"},
        {ENDPOINT_SCORE, "{\"text_1\":\"a\",\"text_2\":\"b\"}", "{\"data\":null}",
         "without scores"},
        {ENDPOINT_SCORE, "{\"text_1\":\"a\",\"text_2\":\"b\"}", "{\"data\":[{\"score\":null}]}",
         "with no number in score 0"},
        {ENDPOINT_SCORE, "{\"text_1\":\"a\",\"text_2\":[\"b\",\"c\"]}",
         "{\"data\":[{\"score\":1}]}", "with 1 of 2 scores"},
        {ENDPOINT_DECISIONS, "{\"questions\":[{},{}]}", "{\"answers\":[]}", "without answers"},
        {ENDPOINT_DECISIONS, "{\"questions\":[{},{}]}", "{\"answers\":[{}]}",
         "with 1 of 2 answers"},
        {ENDPOINT_SYSTEMONE, "{\"questions\":{\"a\":{},\"b\":{}}}", "{\"answers\":{\"a\":{}}}",
         "with 1 of 2 answers"},
        {ENDPOINT_TOKENIZE, "{}", "{\"error\":{\"code\":1}}", NULL},
    };
    char message[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(message, sizeof message, "The upstream up answered %s.", cases[i].lack);
        if (cases[i].lack)
            expect_message(cases[i].endpoint, cases[i].request, 200, cases[i].body,
                           OUTCOME_TRY_AGAIN, 502, message);
        else
            expect_reading(cases[i].endpoint, cases[i].request, 200, cases[i].body, NULL,
                           OUTCOME_TRY_AGAIN, 502, NULL);
    }
}

static void a_200_with_what_was_asked_for_is_an_answer(void **state) {
    (void)state;
    static const struct {
        enum endpoint endpoint;
        const char *request, *body;
    } cases[] = {
        {ENDPOINT_CHAT, "{}", MESSAGE("{\"content\":\"\"}")},
        {ENDPOINT_CHAT, "{\"n\":2}", "{\"error\":null,\"choices\":[" CHOICE "," CHOICE "]}"},
        {ENDPOINT_CHAT, "{\"n\":null}", "{\"choices\":[" CHOICE "," CHOICE "]}"}, /* one too many */
        {ENDPOINT_CHAT, "{\"n\":\"two\"}", "{\"choices\":[" CHOICE "," CHOICE "]}"},
        {ENDPOINT_CHAT, "{}", MESSAGE("{\"content\":null,\"tool_calls\":[{\"id\":\"c\"}]}")},
        {ENDPOINT_CHAT, "{}", MESSAGE("{\"content\":null,\"reasoning\":\"r\"}")},
        {ENDPOINT_CHAT, "{}", MESSAGE("{\"content\":null,\"refusal\":\"no\"}")},
        {ENDPOINT_CHAT, "{}",
         "{\"choices\":[{\"message\":{\"role\":\"assistant\"},\"finish_reason\":\"length\"}]}"},
        {ENDPOINT_CHAT, "{}",
         "{\"error\":\"\","
         "\"choices\":[" CHOICE "]}"},
        {ENDPOINT_COMPLETIONS, "{\"prompt\":[1,2]}", "{\"choices\":[{\"text\":\"\"}]}"},
        {ENDPOINT_COMPLETIONS, "{\"prompt\":[[1],[2]]}",
         "{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}]}"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":[1,2]}", "{\"data\":[{\"embedding\":\"AACAPw==\"}]}"},
        {ENDPOINT_EMBEDDINGS, "{\"input\":[\"a\",\"b\"]}",
         "{\"data\":[{\"embedding\":[0.5]},{\"embedding\":[[1,2],[3,4]]}]}"},
        {ENDPOINT_SCORE, "{\"text_1\":\"a\",\"text_2\":[\"b\",\"c\"]}",
         "{\"data\":[{\"score\":0},{\"score\":1}]}"},
        {ENDPOINT_SCORE, "{\"query\":\"a\",\"documents\":[\"b\",\"c\"],\"top_n\":1}",
         "{\"results\":[{\"index\":1,\"relevance_score\":0.5}]}"},
        {ENDPOINT_DECISIONS, "{\"questions\":[{},{}]}", "{\"answers\":[{},{}]}"},
        {ENDPOINT_SYSTEMONE, "{\"questions\":{\"a\":{}}}", "{\"answers\":{\"a\":{}}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_reading(cases[i].endpoint, cases[i].request, 200, cases[i].body, NULL, OUTCOME_DONE,
                       200, cases[i].body);
}

static void an_overload_is_one_under_any_name(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *body;
        int32_t found;
    } cases[] = {
        {429, "", 429},
        {498, "{}", 498},
        {503, "<html>", 503},
        {529, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", 529},
        {200, "{\"choices\":null,\"error\":{\"message\":\"m\",\"code\":429}}", 429},
        {200, "{\"error\":{\"message\":\"m\",\"code\":\"503\"}}", 503},
        {200, "{\"error\":{\"message\":\"m\",\"type\":\"rate_limit_error\"}}", 429},
        {200, "{\"error\":\"Too Many Requests\"}", 429},
        {200, "{\"status\":429,\"message\":\"m\"}", 429},
        {200,
         "{\"choices\":[{\"error\":{\"code\":429,\"message\":\"m\"},\"finish_reason\":\"error\"}]}",
         429},
        {400, "{\"error\":{\"message\":\"m\",\"code\":\"insufficient_quota\"}}", 429},
        {403, "{\"error\":{\"message\":\"m\",\"code\":\"insufficient_user_quota\"}}", 429},
        {400, "{\"__type\":\"ThrottlingException\",\"message\":\"m\"}", 429},
        {500, "{\"error\":{\"message\":\"m\",\"code\":429}}", 429},
        {402, "{\"error\":{\"message\":\"Insufficient Balance\",\"code\":\"x\"}}", 402},
        {400, "{\"error\":{\"message\":\"Your credit balance is too low to access the API.\"}}",
         429},
        {500, "{\"error\":{\"message\":\"The model is overloaded. Please try again later.\"}}",
         503},
        {500, "{\"detail\":\"Rate limit exceeded\"}", 429},
        {400, "[{\"error\":{\"code\":429,\"message\":\"m\",\"status\":\"RESOURCE_EXHAUSTED\"}}]",
         429},
        {500, "{\"errors\":[{\"code\":\"service_unavailable\",\"message\":\"m\"}]}", 503},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_reading(ENDPOINT_CHAT, "{}", cases[i].status, cases[i].body, NULL, OUTCOME_NOT_RUN,
                       cases[i].found, NULL);
}

static void an_error_of_the_request_is_no_overload(void **state) {
    (void)state;
    expect_answer(400,
                  "{\"error\":{\"message\":\"do not say 'rate limit exceeded'\",\"code\":400}}",
                  NULL, OUTCOME_DONE, 400, NULL);
    expect_answer(413, "{\"error\":{\"message\":\"too large\",\"code\":\"rate_limit_exceeded\"}}",
                  NULL, OUTCOME_DONE, 413, NULL);
    expect_answer(404, "{\"error\":{\"message\":\"model unavailable\",\"code\":\"unavailable\"}}",
                  NULL, OUTCOME_DONE, 404, NULL);
    expect_answer(500, "{\"error\":{\"message\":\"m\",\"code\":500}}", NULL, OUTCOME_TRY_AGAIN, 500,
                  NULL);
    expect_reading(ENDPOINT_CHAT, "{}", 200, "{\"choices\":[" CHOICE "],\"code\":429}", NULL,
                   OUTCOME_DONE, 200, NULL);
}

static int64_t wait_of(const char *body) {
    struct upstream_overload overload;
    assert_true(upstream_overload_find(429, str_from(body), &overload));
    return overload.wait_ms;
}

static void the_wait_is_read_from_the_body_too(void **state) {
    (void)state;
    assert_int_equal(wait_of("{}"), -1);
    assert_int_equal(wait_of("{\"error\":{\"retry_after\":7}}"), 7000);
    assert_int_equal(wait_of("{\"retry_after_ms\":250}"), 250);
    assert_int_equal(wait_of("{\"error\":{\"details\":[{},{\"retryDelay\":\"34.5s\"}]}}"), 34500);
    assert_int_equal(wait_of("{\"error\":{\"message\":\"Limit 3. Please try again in 1m3.5s. \"}}"),
                     63500);
    assert_int_equal(wait_of("{\"message\":\"Rate limit is exceeded. Try again in 5 seconds.\"}"),
                     5000);
    assert_int_equal(wait_of("{\"error\":{\"message\":\"try again in a while\"}}"), -1);
}

/* What Python's readers of JSON take. */
static void lax_json_becomes_strict_json(void **state) {
    (void)state;
    static const struct {
        const char *content, *expected;
    } cases[] = {
        {"\"\\ud83d\"", "\"\\ufffd\""},
        {"\"a\\uDE00b\"", "\"a\\ufffdb\""},
        {"\"\\ud83d\\ud83d\\ude00\"", "\"\\ufffd\\ud83d\\ude00\""},
        {"\"\\\\ud83d\\ud83d\\n\"", "\"\\\\ud83d\\ufffd\\n\""},
        {"\"\xED\xA0\xBD\"", "\"\\ufffd\""},
        {"\"\xED\xA0\xBD\xED\xB8\x80\xC3\xA9\"", "\"\\ud83d\\ude00\\u00e9\""},
        {"\"NaN \\ud83d\"", "\"NaN \\ufffd\""},
        {"\"x\",\"logprob\":-Infinity", "\"x\",\"logprob\":-9999.0"},
        {"\"x\",\"l\":[NaN,Infinity,-1]", "\"x\",\"l\":[null,null,-1]"},
    };
    char body[300], expected[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(body, sizeof body, "\xEF\xBB\xBF{\"choices\":[{\"message\":{\"content\":%s}}]}",
                 cases[i].content);
        snprintf(expected, sizeof expected, "{\"choices\":[{\"message\":{\"content\":%s}}]}",
                 cases[i].expected);
        expect_reading(ENDPOINT_CHAT, "{}", 200, body, NULL, OUTCOME_DONE, 200, expected);
    }
    expect_message(ENDPOINT_EMBEDDINGS, "{\"input\":\"i\"}", 200,
                   "{\"data\":[{\"embedding\":[NaN]}]}", OUTCOME_DONE, 502,
                   "The upstream up answered with NaN or Infinity, which is no number in JSON.");
    expect_message(ENDPOINT_CHAT, "{}", 400,
                   "\xEF\xBB\xBF{\"error\":{\"message\":\"cut \\ud83d\"}}", OUTCOME_DONE, 400,
                   "cut \xEF\xBF\xBD");
}

static void the_reason_is_found_in_every_form(void **state) {
    (void)state;
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"{\"error\":{\"message\":\"Provider returned error\",\"metadata\":{\"raw\":\"no GPU\"}}}",
         "Provider returned error: no GPU"},
        {"{\"error\":{\"message\":\"m\",\"metadata\":{\"raw\":\"{\\\"error\\\":{\\\"message\\\":"
         "\\\"deep\\\"}}\"}}}",
         "m: deep"},
        {"{\"error\":{\"metadata\":{\"raw\":{\"detail\":\"deep\"}}}}", "deep"},
        {"{\"error\":\"Bad\",\"message\":\"worse\"}", "Bad: worse"},
        {"{\"errors\":[\"one\",{\"message\":\"two\"}]}", "one; two"},
        {"{\"success\":false,\"error\":[{\"code\":7,\"message\":\"three\"}]}", "three"},
        {"{\"detail\":{\"error\":\"four\"}}", "four"},
        {"{\"title\":\"Bad\",\"detail\":\"five\",\"status\":400}", "five"},
        {"{\"title\":\"six\",\"status\":400}", "six"},
        {"[{\"error\":{\"message\":\"seven\"}}]", "seven"},
        {"{\"fault\":{\"faultstring\":\"eight\"}}", "eight"},
        {"plain\ntext", "The upstream up answered with status 400: plain text"},
        {"<html><title> Bad\n Request </title></html>",
         "The upstream up answered with status 400: Bad Request"},
        {"\"a string\"", "The upstream up answered with status 400: \"a string\""},
        {"{\"errors\":[]}", "The upstream up answered with status 400 and no reason."},
        {"{\"error\":{\"code\":3}}", "The upstream up answered with status 400 and no reason."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_message(ENDPOINT_CHAT, "{}", 400, cases[i].body, OUTCOME_DONE, 400,
                       cases[i].message);
}

static void every_shape_of_error_becomes_the_one_envelope(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *body, *expected;
    } cases[] = {
        {400,
         "{\"error\":{\"message\":\"m\",\"type\":\"BadRequestError\",\"param\":\"x\",\"code\":400}"
         "}",
         "{\"message\":\"m\",\"type\":\"BadRequestError\",\"param\":\"x\",\"code\":null}"},
        {404, "{\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}}",
         "{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}"},
        {404, "{\"error\":\"model \\\"x\\\" not found\"}",
         "{\"message\":\"model \\\"x\\\" not "
         "found\",\"type\":\"invalid_request_error\",\"param\":null,"
         "\"code\":null}"},
        {400,
         "{\"object\":\"error\",\"message\":\"old\",\"type\":\"T\",\"param\":null,\"code\":40001}",
         "{\"message\":\"old\",\"type\":\"T\",\"param\":null,\"code\":null}"},
        {422, "{\"detail\":\"Not Found\"}",
         "{\"message\":\"Not "
         "Found\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}"},
        {422, "{\"detail\":[{\"loc\":[\"body\",3],\"msg\":\"bad\"},{\"msg\":\"worse\"},7]}",
         "{\"message\":\"body.3: bad; worse\",\"type\":\"invalid_request_error\",\"param\":null,"
         "\"code\":null}"},
        {400,
         "{\"error\":{\"code\":400,\"message\":\"too "
         "long\",\"type\":\"exceed_context_size_error\"}}",
         "{\"message\":\"too long\",\"type\":\"exceed_context_size_error\",\"param\":null,\"code\":"
         "\"context_length_exceeded\"}"},
        {413, "<html>",
         "{\"message\":\"The upstream up answered with status 413 and no reason.\",\"type\":"
         "\"invalid_request_error\",\"param\":null,\"code\":null}"},
        {401, "{\"error\":{\"message\":[1]}}",
         "{\"message\":\"The upstream up answered with status 401 and no reason.\",\"type\":"
         "\"invalid_request_error\",\"param\":null,\"code\":null}"},
    };
    char expected[400];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(expected, sizeof expected, "{\"error\":%s}", cases[i].expected);
        expect_answer(cases[i].status, cases[i].body, NULL, OUTCOME_DONE, cases[i].status,
                      expected);
    }
}

static void statuses_say_whose_matter_it_is(void **state) {
    (void)state;
    static const int own[] = {400, 401, 402, 403, 404, 405, 413, 422, 451};
    static const int faults[] = {408, 409, 425, 500, 501, 502, 504, 524, 599};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        expect_answer(own[i], "{}", NULL, OUTCOME_DONE, own[i], NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        expect_answer(faults[i], "{}", NULL, OUTCOME_TRY_AGAIN, faults[i], NULL);
    expect_answer(429, "{}", NULL, OUTCOME_NOT_RUN, 429, NULL);
    expect_answer(503, "", NULL, OUTCOME_NOT_RUN, 503, NULL);
}

/* --- streams --- */

static void an_event_is_read(struct buf *buf, const char *data, enum upstream_event expected,
                             bool finishes, const char *text) {
    struct upstream_stream_end end = {.has_choice = false};
    assert_int_equal(upstream_read_event(buf, str_from(data), "m", &end), expected);
    assert_int_equal(end.is_finished, finishes);
    if (text) assert_string_equal(buf->at, text);
}

static void a_stream_knows_whether_it_had_a_choice(void **state) {
    (void)state;
    struct upstream_stream_end end = {.has_choice = false};
    struct buf buf;
    buf_init(&buf, 4096);
    upstream_read_event(&buf, STR("{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}"), NULL, &end);
    upstream_read_event(&buf, STR("{\"choices\":null}"), NULL, &end);
    assert_false(end.has_choice);
    upstream_read_event(&buf, STR("{\"choices\":[{\"delta\":{\"content\":\"\\ud83d\"}}]}"), NULL,
                        &end);
    assert_true(end.has_choice && !end.is_finished);
    assert_string_equal(buf.at, "{\"choices\":[{\"delta\":{\"content\":\"\\ufffd\"}}]}");
    assert_int_equal(end.usage.input_tokens, 1);
    assert_int_equal(upstream_read_event(&buf,
                                         STR("{\"choices\":[{\"error\":{\"code\":429,\"message\":"
                                             "\"m\",\"retry_after\":2}}]}"),
                                         NULL, &end),
                     UPSTREAM_EVENT_ERROR);
    assert_true(end.is_overload && end.status == 429 && end.wait_ms == 2000);
    assert_int_equal(
        upstream_read_event(&buf, STR("{\"error\":{\"message\":\"m\",\"code\":500}}"), NULL, &end),
        UPSTREAM_EVENT_ERROR);
    assert_true(!end.is_overload && end.status == 502);
    buf_release(&buf);
}

static void events_tell_what_they_are(void **state) {
    (void)state;
    struct buf buf;
    buf_init(&buf, 4096);
    an_event_is_read(&buf, "[DONE]", UPSTREAM_EVENT_DONE, false, NULL);
    an_event_is_read(&buf, "{\"model\":\"t\",\"choices\":[{\"finish_reason\":null}]}",
                     UPSTREAM_EVENT_CHUNK, false,
                     "{\"model\":\"m\",\"choices\":[{\"finish_reason\":null}]}");
    an_event_is_read(&buf, "{\"choices\":[{\"finish_reason\":null},{\"finish_reason\":\"stop\"}]}",
                     UPSTREAM_EVENT_CHUNK, true, NULL);
    an_event_is_read(&buf, "{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}", UPSTREAM_EVENT_USAGE,
                     false,
                     "{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"prompt_tokens_details\":"
                     "{\"cached_tokens\":0}}}");
    an_event_is_read(&buf, "{\"choices\":[],\"usage\":null}", UPSTREAM_EVENT_CHUNK, false, NULL);
    an_event_is_read(
        &buf, "{\"error\":{\"message\":\"x\",\"code\":500}}", UPSTREAM_EVENT_ERROR, false,
        "{\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"param\":null,\"code\":"
        "null}}");
    an_event_is_read(&buf, "{", UPSTREAM_EVENT_BAD, false, NULL);
    an_event_is_read(&buf, "[1]", UPSTREAM_EVENT_BAD, false, NULL);
    buf_release(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_answers_become_ascii_on_one_line),
        cmocka_unit_test(usage_is_read_wherever_it_stands),
        cmocka_unit_test(what_is_no_json_object_is_a_fault_that_says_what_it_is),
        cmocka_unit_test(a_200_without_what_was_asked_for_is_no_answer),
        cmocka_unit_test(a_200_with_what_was_asked_for_is_an_answer),
        cmocka_unit_test(an_overload_is_one_under_any_name),
        cmocka_unit_test(an_error_of_the_request_is_no_overload),
        cmocka_unit_test(the_wait_is_read_from_the_body_too),
        cmocka_unit_test(lax_json_becomes_strict_json),
        cmocka_unit_test(the_reason_is_found_in_every_form),
        cmocka_unit_test(every_shape_of_error_becomes_the_one_envelope),
        cmocka_unit_test(statuses_say_whose_matter_it_is),
        cmocka_unit_test(events_tell_what_they_are),
        cmocka_unit_test(a_stream_knows_whether_it_had_a_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* What goes to an upstream and what comes from it, as text: options, requests, answers, streams. */

#include "json/json.h"
#include "workers/upstream/models.h"
#include "workers/upstream/reader.h"
#include "workers/upstream/request.h"
#include "workers/upstream/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct upstream_spec spec_of(const char *text) {
    struct upstream_spec spec;
    struct error error = {0};
    if (upstream_spec_read(text, &spec, &error) != OK) fail_msg("%s: %s", text, error.text);
    return spec;
}

static void options_are_read_with_their_defaults(void **state) {
    (void)state;
    struct upstream_spec spec = spec_of("gpu-1=http://10.0.0.7:8000");
    assert_string_equal(spec.name, "gpu-1");
    assert_string_equal(spec.base, "http://10.0.0.7:8000/v1");
    assert_string_equal(spec.health, "http://10.0.0.7:8000/health");
    assert_int_equal(spec.concurrency, 64);
    assert_int_equal(spec.weight, 1);
    assert_int_equal(spec.model_count, 0);
    assert_int_equal(spec.first_byte_ms, 3600000);
    assert_false(spec.proxy_from_environment);
    spec = spec_of("p=https://api.example.com/inference/v1/,key-file=/run/k,concurrency=8,weight=3,"
                   "models=a|big=org/model:70b,timeout=60,stall-timeout=9,connect-timeout=2,"
                   "health=/health/liveliness,proxy=env");
    assert_string_equal(spec.base, "https://api.example.com/inference/v1");
    assert_string_equal(spec.health, "https://api.example.com/health/liveliness");
    assert_string_equal(spec.key_file, "/run/k");
    assert_int_equal(spec.concurrency, 8);
    assert_int_equal(spec.weight, 3);
    assert_int_equal(spec.model_count, 2);
    assert_string_equal(spec.models[0].theirs, "a");
    assert_string_equal(spec.models[1].name, "big");
    assert_string_equal(spec.models[1].theirs, "org/model:70b");
    assert_int_equal(spec.first_byte_ms, 60000);
    assert_int_equal(spec.stall_ms, 9000);
    assert_int_equal(spec.connect_ms, 2000);
    assert_true(spec.proxy_from_environment);
    assert_string_equal(spec_of("a=http://[::1]:11434/v1").base, "http://[::1]:11434/v1");
}

static void what_cannot_be_meant_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "=",
                                        "a",
                                        "a=",
                                        "=http://h",
                                        "a=h:80",
                                        "a=file:///etc/passwd",
                                        "a=gopher://h",
                                        "a=http://",
                                        "a=http://h\n",
                                        "a=http://u:p@h",
                                        "a=http://u@h",
                                        "a=http://h?q",
                                        "a=http://h#f",
                                        "a/b=http://h",
                                        "a\"=http://h",
                                        "a=http://h,concurrency",
                                        "a=http://h,concurrency=",
                                        "a=http://h,concurrency=0",
                                        "a=http://h,concurrency=5000",
                                        "a=http://h,weight=-1",
                                        "a=http://h,models=",
                                        "a=http://h,models=a|",
                                        "a=http://h,models=a|a",
                                        "a=http://h,models==b",
                                        "a=http://h,timeout=0",
                                        "a=http://h,timeout=1.5",
                                        "a=http://h,=1",
                                        "a=http://h,health=h",
                                        "a=http://h,proxy=yes",
                                        "a=http://h,shapes=no"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct upstream_spec spec;
        struct error error = {0};
        if (upstream_spec_read(texts[i], &spec, &error) != ERR_INVALID)
            fail_msg("taken: %s", texts[i]);
        assert_true(strlen(error.text) > 20);
        assert_null(strstr(error.text, ":p@"));
    }
}

/* --- answers --- */

static void expect_answer(int status, const char *body, const char *model, enum outcome outcome,
                          int32_t result_status, const char *expected) {
    struct buf buf;
    struct upstream_reading reading;
    buf_init(&buf, 1 << 20);
    upstream_read_answer(&buf, status, str_from(body), model, "up", &reading);
    assert_int_equal(reading.outcome, outcome);
    assert_int_equal(reading.status, result_status);
    if (expected && !str_is(reading.body, expected))
        fail_msg("%.*s", (int)reading.body.bytes, reading.body.at);
    json_t *value;
    struct error error = {0};
    if (json_read(&value, reading.body, &error) != OK || !json_is_object(value))
        fail_msg("%.*s", (int)reading.body.bytes, reading.body.at);
    json_decref(value);
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
        upstream_read_answer(&buf, 200, str_from(cases[i].body), NULL, "up", &reading);
        assert_int_equal(reading.outcome, OUTCOME_DONE);
        assert_int_equal(reading.usage.input_tokens, cases[i].prompt);
        assert_int_equal(reading.usage.cached_tokens, cases[i].cached);
        assert_int_equal(reading.usage.output_tokens, cases[i].completion);
        assert_int_equal(reading.usage.reasoning_tokens, cases[i].reasoning);
    }
    buf_release(&buf);
}

static void what_is_no_json_object_is_a_fault(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "",          " ",           "[]",         "null",   "\"x\"",
        "{",         "{\"a\":NaN}", "{\"a\":1}{", "<html>", "{\"a\":\"\xFF\"}",
        "{\"a\":1,}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        expect_answer(
            200, bodies[i], NULL, OUTCOME_TRY_AGAIN, 502,
            "{\"error\":{\"message\":\"The upstream up answered with something that is not "
            "a JSON object.\",\"type\":\"server_error\",\"param\":null,\"code\":"
            "\"upstream_bad_answer\"}}");
    expect_answer(200, "{\"error\":{\"message\":\"no\",\"code\":429}}", NULL, OUTCOME_TRY_AGAIN,
                  502,
                  "{\"error\":{\"message\":\"no\",\"type\":\"server_error\",\"param\":null,"
                  "\"code\":null}}");
    expect_answer(302, "", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
    expect_answer(100, "{}", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
    expect_answer(0, "", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
    expect_answer(700, "{}", NULL, OUTCOME_TRY_AGAIN, 502, NULL);
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
    static const int faults[] = {408, 409, 425, 500, 501, 502, 504, 529, 599};
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
    struct usage usage = {0};
    bool is_finished = false;
    assert_int_equal(upstream_read_event(buf, str_from(data), "m", &usage, &is_finished), expected);
    assert_int_equal(is_finished, finishes);
    if (text) assert_string_equal(buf->at, text);
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

/* --- requests and models --- */

static void expect_request(const char *body, const char *model, bool is_stream, bool wants,
                           const char *expected) {
    struct buf buf;
    bool wants_usage = !wants;
    buf_init(&buf, 4096);
    upstream_request_write(&buf, str_from(body), model, is_stream, &wants_usage);
    assert_string_equal(buf.at, expected);
    assert_int_equal(wants_usage, wants);
    buf_release(&buf);
}

static void requests_change_only_where_they_must(void **state) {
    (void)state;
    expect_request(" {\"a\" : 1.50}", NULL, false, false, " {\"a\" : 1.50}");
    expect_request("{\"model\":\"x\",\"n\": 1.50}", "y\"", false, false,
                   "{\"model\":\"y\\\"\",\"n\":1.50}");
    expect_request("{\"stream\":true}", NULL, true, false,
                   "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    expect_request("{\"stream_options\":{\"x\":1,\"include_usage\":false},\"a\":2}", NULL, true,
                   false, "{\"a\":2,\"stream_options\":{\"include_usage\":true,\"x\":1}}");
    expect_request("{\"stream_options\":{\"include_usage\":true}}", NULL, true, true,
                   "{\"stream_options\":{\"include_usage\":true}}");
    expect_request("{\"stream_options\":null}", NULL, true, false,
                   "{\"stream_options\":{\"include_usage\":true}}");
}

static void models_come_and_go_with_the_list(void **state) {
    (void)state;
    struct upstream_models *models = calloc(1, sizeof *models);
    struct upstream_spec spec = spec_of("a=http://h");
    struct error error = {0};
    assert_non_null(models);
    upstream_models_init(models, &spec);
    assert_false(models->is_known);
    static const char *const bad[] = {"",          "[]", "{}", "{\"data\":[]}", "{\"data\":{}}",
                                      "{\"data\":"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(upstream_models_read(models, str_from(bad[i]), &error), OK);
    assert_false(models->is_known);
    assert_int_equal(
        upstream_models_read(models,
                             STR("{\"data\":[{\"id\":\"x\",\"max_model_len\":4096},{\"id\":"
                                 "\"y\",\"created\":9},{\"id\":7},3,{\"id\":\"\"}]}"),
                             &error),
        OK);
    const struct upstream_model *x = upstream_models_find(models, STR("x"));
    assert_non_null(x);
    assert_int_equal(x->context_tokens_max, 4096);
    assert_int_equal(upstream_models_read(models, STR("{\"data\":[{\"id\":\"y\"}]}"), &error), OK);
    assert_null(upstream_models_find(models, STR("x")));
    assert_true(str_is(x->name, "x")); /* others may still hold on to it */
    struct worker_model listed[4];
    assert_int_equal(upstream_models_list(models, listed, 4), 1);
    upstream_models_release(models);
    free(models);
}

static void named_models_stay_whatever_the_list_says(void **state) {
    (void)state;
    struct upstream_models *models = calloc(1, sizeof *models);
    struct upstream_spec spec = spec_of("a=http://h,models=big=x|z");
    struct error error = {0};
    assert_non_null(models);
    upstream_models_init(models, &spec);
    assert_true(models->is_known);
    assert_int_equal(upstream_models_read(models,
                                          STR("{\"data\":[{\"id\":\"x\",\"meta\":{\"n_ctx\":512}},"
                                              "{\"id\":\"y\"}]}"),
                                          &error),
                     OK);
    const struct upstream_model *big = upstream_models_find(models, STR("big"));
    assert_non_null(big);
    assert_string_equal(big->theirs, "x");
    assert_int_equal(big->context_tokens_max, 512);
    assert_non_null(upstream_models_find(models, STR("z")));
    assert_null(upstream_models_find(models, STR("x")));
    assert_null(upstream_models_find(models, STR("y")));
    upstream_models_release(models);
    free(models);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_with_their_defaults),
        cmocka_unit_test(what_cannot_be_meant_is_refused),
        cmocka_unit_test(good_answers_become_ascii_on_one_line),
        cmocka_unit_test(usage_is_read_wherever_it_stands),
        cmocka_unit_test(what_is_no_json_object_is_a_fault),
        cmocka_unit_test(every_shape_of_error_becomes_the_one_envelope),
        cmocka_unit_test(statuses_say_whose_matter_it_is),
        cmocka_unit_test(events_tell_what_they_are),
        cmocka_unit_test(requests_change_only_where_they_must),
        cmocka_unit_test(models_come_and_go_with_the_list),
        cmocka_unit_test(named_models_stay_whatever_the_list_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

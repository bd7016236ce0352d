/* SPDX-License-Identifier: Apache-2.0 */

/* What goes to an upstream, as text: options, requests, the list of models. */

#include "workers/upstream/models.h"
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
        cmocka_unit_test(requests_change_only_where_they_must),
        cmocka_unit_test(models_come_and_go_with_the_list),
        cmocka_unit_test(named_models_stay_whatever_the_list_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

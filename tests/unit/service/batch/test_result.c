/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/result.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static json_t *write_and_read(const struct batch_result *result, struct buf *text) {
    struct error error;
    json_t *object;
    buf_init(text, 1 << 16);
    batch_result_write(text, result);
    assert_int_equal(text->at[text->bytes - 1], '\n');
    assert_int_equal(json_read(&object, buf_str(text), &error), OK);
    assert_int_equal(json_object_size(object), 4);
    return object;
}

static void a_line_that_ran_has_a_response_and_a_null_error(void **state) {
    (void)state;
    struct buf text;
    json_t *object =
        write_and_read(&(struct batch_result){.batch_id = "batch_0123456789abcdef0123456789abcdef",
                                              .line = 7,
                                              .custom_id = STR("\"c\\ud83d\\ude00\""),
                                              .status = 200,
                                              .request_id = STR("req_1"),
                                              .body = STR("{\"a\":1}")},
                       &text);
    struct str id = json_member_str(object, "id");
    assert_true(str_starts_with(id, STR("batch_req_")) && id.bytes >= strlen("batch_req_") + 24);
    assert_true(str_is(json_member_str(object, "custom_id"), "c\xF0\x9F\x98\x80"));
    assert_true(json_is_null(json_object_get(object, "error")));
    json_t *response = json_object_get(object, "response");
    assert_int_equal(json_integer_value(json_object_get(response, "status_code")), 200);
    assert_true(json_is_object(json_object_get(response, "body")));
    json_decref(object);
    buf_release(&text);
}

static void a_line_that_did_not_run_has_a_null_response_and_a_code(void **state) {
    (void)state;
    static const struct {
        enum batch_outcome outcome;
        const char *code;
    } cases[] = {{BATCH_NOT_IN_WINDOW, "batch_expired"},
                 {BATCH_WAS_CANCELLED, "batch_cancelled"},
                 {BATCH_TIMED_OUT, "request_timeout"},
                 {BATCH_SERVER_FAULTED, "batch_failed"}};
    for (size_t i = 0; i < 4; i++) {
        struct buf text;
        json_t *object = write_and_read(&(struct batch_result){.batch_id = "batch_0",
                                                               .custom_id = STR("\"c\""),
                                                               .outcome = cases[i].outcome},
                                        &text);
        assert_true(json_is_null(json_object_get(object, "response")));
        assert_true(
            str_is(json_member_str(json_object_get(object, "error"), "code"), cases[i].code));
        assert_non_null(json_object_get(json_object_get(object, "error"), "message"));
        json_decref(object);
        buf_release(&text);
    }
}

static void a_body_is_made_ascii_on_one_line_or_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected; /* NULL: refused */
    } cases[] = {{"{\"a\":\"b\"}", "{\"a\":\"b\"}"},
                 {" {\"a\":1}\n", "{\"a\":1}"},
                 {"{\"a\":\"\xE2\x80\xA8\"}", "{\"a\":\"\\u2028\"}"},
                 {"{\"a\":\"\xF0\x9F\x98\x80\"}", "{\"a\":\"\\ud83d\\ude00\"}"},
                 {"{\"a\":\n1}", "{\"a\": 1}"},
                 {"[1]", NULL},
                 {"\"x\"", NULL},
                 {"", NULL},
                 {"{\"a\":", NULL},
                 {"{\"a\":\"\xFF\"}", NULL}};
    struct buf scratch;
    buf_init(&scratch, 1 << 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str body;
        bool good = batch_body_read(str_from(cases[i].text), &scratch, &body);
        assert_int_equal(good, cases[i].expected != NULL);
        if (good) assert_true(str_is(body, cases[i].expected));
    }
    buf_release(&scratch);
}

static void ids_are_different_for_every_line_and_the_same_every_time(void **state) {
    (void)state;
    struct buf a, b, again;
    struct batch_result result = {.batch_id = "batch_ab", .custom_id = STR("\"c\"")};
    result.outcome = BATCH_WAS_CANCELLED;
    json_decref(write_and_read(&result, &a));
    json_decref(write_and_read(&result, &again));
    result.line = 1;
    json_decref(write_and_read(&result, &b));
    assert_string_equal(a.at, again.at);
    assert_string_not_equal(a.at, b.at);
    buf_release(&a);
    buf_release(&b);
    buf_release(&again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_ran_has_a_response_and_a_null_error),
        cmocka_unit_test(a_line_that_did_not_run_has_a_null_response_and_a_code),
        cmocka_unit_test(a_body_is_made_ascii_on_one_line_or_refused),
        cmocka_unit_test(ids_are_different_for_every_line_and_the_same_every_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "client/objects.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static enum err read_batch(const char *text, struct batch_object *ret_batch, struct error *error) {
    json_t *object;
    enum err err = object_read(str_from(text), &object, error);
    if (err != OK) return err;
    err = batch_object_read(ret_batch, object, error);
    json_decref(object);
    return err;
}

static void a_batch_is_read_whole(void **state) {
    (void)state;
    struct batch_object batch = {0};
    struct error error = {0};
    assert_int_equal(
        read_batch("{\"id\":\"batch_1\",\"status\":\"in_progress\",\"endpoint\":\"/v1/embeddings\","
                   "\"request_counts\":{\"total\":9,\"completed\":3,\"failed\":1},"
                   "\"created_at\":1700000000,\"in_progress_at\":1700000001.5,"
                   "\"output_file_id\":\"\",\"error_file_id\":null,"
                   "\"usage\":{\"input_tokens\":7,\"output_tokens\":8},"
                   "\"metadata\":{\"quern_submission\":\"submit-1\"},\"quern\":{\"paused\":null}}",
                   &batch, &error),
        OK);
    assert_string_equal(batch.id, "batch_1");
    assert_int_equal(batch.state, STATE_IN_PROGRESS);
    assert_int_equal(batch.total, 9);
    assert_int_equal(batch.completed, 3);
    assert_int_equal(batch.failed, 1);
    assert_int_equal(batch.created_unix_s, 1700000000);
    assert_int_equal(batch.begun_unix_s, 1700000001);
    assert_int_equal(batch.output_tokens, 8);
    assert_string_equal(batch.output_file_id, "");
    assert_string_equal(batch.submission, "submit-1");
    assert_true(batch.is_quern);
    assert_false(batch_object_is_over(&batch));
}

static void members_of_other_types_count_as_absent(void **state) {
    (void)state;
    struct batch_object batch = {0};
    struct error error = {0};
    assert_int_equal(
        read_batch("{\"id\":\"b\",\"status\":\"completed\",\"request_counts\":[1],\"errors\":7,"
                   "\"created_at\":\"x\",\"usage\":{\"input_tokens\":-5},\"metadata\":[],"
                   "\"output_file_id\":null,"
                   "\"quern\":true,\"completed_at\":1e300}",
                   &batch, &error),
        OK);
    assert_true(batch_object_is_over(&batch));
    assert_int_equal(batch.total + batch.input_tokens + batch.error_count, 0);
    assert_string_equal(batch.output_file_id, "");
    assert_string_equal(batch.error_file_id, "");
    assert_int_equal(batch_object_check_files(&batch, &error), OK);
    assert_int_equal(batch.ended_unix_s, 0);
    assert_false(batch.is_quern);
}

/* Each byte of it is encoded in a URL. */
static void an_id_of_a_file_has_any_form(void **state) {
    (void)state;
    static const char *const ids[][2] = {
        {"\"s3://bucket/a b/out.jsonl\"", "s3://bucket/a b/out.jsonl"},
        {"\"files/abc+/=\"", "files/abc+/="},
        {"\"../../etc/passwd\"", "../../etc/passwd"},
        {"12345678901", "12345678901"},
        {"\"\"", ""}};
    static const char *const bad[] = {
        "[\"a\"]", "{}", "true", "\"a\\u0000b\"", "\"a\\nb\"", "\"..\"", "\"a\\u009b31mb\""};
    char text[300];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct batch_object batch = {0};
        struct error error = {0};
        snprintf(text, sizeof text, "{\"id\":\"b\",\"status\":\"completed\",\"error_file_id\":%s}",
                 ids[i][0]);
        assert_int_equal(read_batch(text, &batch, &error), OK);
        assert_int_equal(batch_object_check_files(&batch, &error), OK);
        assert_string_equal(batch.error_file_id, ids[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct batch_object batch = {0};
        struct error error = {0};
        snprintf(text, sizeof text, "{\"id\":\"b\",\"status\":\"completed\",\"output_file_id\":%s}",
                 bad[i]);
        assert_int_equal(read_batch(text, &batch, &error), OK);
        assert_int_equal(batch_object_check_files(&batch, &error), ERR_CORRUPT);
        assert_non_null(strstr(error.text, "output_file_id of b"));
    }
}

static void what_is_no_batch_is_a_sentence(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",           "<html>",         "[]",
        "{}",         "{\"id\":\"b\"}", "{\"id\":\"/b\",\"status\":\"completed\"}",
        "{\"id\":1,", "null",           "{\"id\":\"b\",\"status\":\"\"}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct batch_object batch = {0};
        struct error error = {0};
        assert_int_equal(read_batch(texts[i], &batch, &error), ERR_CORRUPT);
        assert_non_null(strstr(error.text, "base URL"));
    }
}

static void texts_cannot_command_a_terminal(void **state) {
    (void)state;
    struct batch_object batch = {0};
    struct error error = {0};
    assert_int_equal(read_batch("{\"id\":\"b\",\"status\":\"\\u001b[2J\\u009b1m\\nx\","
                                "\"model\":\"\\u00e9\\u007f\"}",
                                &batch, &error),
                     OK);
    assert_string_equal(batch.status, " [2J??1m x");
    assert_string_equal(batch.model, "\xc3\xa9 ");
    assert_int_equal(batch.state, STATE_OTHER);
    char cut[4];
    object_copy_text(STR("ab\xc3\xa9"), cut, sizeof cut);
    assert_string_equal(cut, "ab");
}

static void errors_are_kept_up_to_a_count(void **state) {
    (void)state;
    struct batch_object batch = {0};
    struct error error = {0};
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, "{\"id\":\"b\",\"status\":\"failed\",\"errors\":{\"data\":[null");
    for (int i = 0; i < 20; i++) buf_printf(&text, ",{\"line\":%d,\"message\":\"m%d\"}", i, i);
    buf_add_text(&text, "]}}");
    assert_int_equal(read_batch(text.at, &batch, &error), OK);
    assert_int_equal(batch.error_count, 21);
    assert_int_equal(batch.errors[2].line, 1);
    assert_string_equal(batch.errors[2].text, "m1");
    buf_release(&text);
}

static void ids_stand_in_urls(void **state) {
    (void)state;
    struct buf path;
    assert_true(object_id_is_sane(STR("batch_0-9.a=:~Z")));
    assert_false(object_id_is_sane(STR("")));
    assert_false(object_id_is_sane(STR(".b")));
    assert_false(object_id_is_sane(STR("a/b")));
    assert_false(object_id_is_sane(STR("a\0b")));
    buf_init(&path, 100);
    object_add_id(&path, "a=b:c.d");
    assert_string_equal(path.at, "a%3Db%3Ac.d");
    buf_release(&path);
}

static void messages_of_errors_are_found(void **state) {
    (void)state;
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"{\"error\":{\"message\":\"No batch\",\"code\":null}}", "No batch"},
        {"{\"error\":\"gone\"}", "gone"},
        {"{\"object\":\"error\",\"message\":\"vLLM's\"}", "vLLM's"},
        {"{\"detail\":\"Not Found\"}", "Not Found"},
        {"{\"error\":{\"message\":7}}", ""},
        {"<html>502</html>", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[64];
        object_error_message(str_from(cases[i].body), message, sizeof message);
        assert_string_equal(message, cases[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_read_whole),
        cmocka_unit_test(members_of_other_types_count_as_absent),
        cmocka_unit_test(an_id_of_a_file_has_any_form),
        cmocka_unit_test(what_is_no_batch_is_a_sentence),
        cmocka_unit_test(texts_cannot_command_a_terminal),
        cmocka_unit_test(errors_are_kept_up_to_a_count),
        cmocka_unit_test(ids_stand_in_urls),
        cmocka_unit_test(messages_of_errors_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

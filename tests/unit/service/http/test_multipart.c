/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "http/multipart.h"

#include <string.h>

#define TYPE "multipart/form-data; boundary=XyZ"

/* Writes what is read as one line: "name/filename/type=data;" */
struct log {
    struct buf text;
    int stop_at; /* the event that answers false; -1: none */
    int events;
};

static bool go_on(struct log *log) {
    return log->events++ != log->stop_at;
}

static bool begin(void *context, const struct multipart_part *part) {
    struct log *log = context;
    buf_printf(&log->text, "%s/%s/%s=", part->name, part->has_filename ? part->filename : "-",
               part->content_type);
    return go_on(log);
}

static bool data(void *context, struct str bytes) {
    struct log *log = context;
    buf_add_str(&log->text, bytes);
    return go_on(log);
}

static bool end(void *context) {
    struct log *log = context;
    buf_add_byte(&log->text, ';');
    return go_on(log);
}

static enum err read_cut(struct str body, size_t first_cut, size_t second_cut, struct log *log) {
    struct multipart multipart;
    struct multipart_events events = {log, begin, data, end};
    struct error error;
    buf_init(&log->text, 1 << 20);
    log->events = 0;
    assert_int_equal(multipart_init(&multipart, str_from(TYPE), &events, &error), OK);
    struct str pieces[3] = {{body.at, first_cut},
                            {body.at + first_cut, second_cut - first_cut},
                            str_skip(body, second_cut)};
    for (int i = 0; i < 3; i++) {
        enum err err = multipart_feed(&multipart, pieces[i], &error);
        if (err != OK) return err;
    }
    return multipart_end(&multipart, &error);
}

static void check_all_cuts(struct str body, enum err expected_err, struct str expected) {
    for (size_t first = 0; first <= body.bytes; first++)
        for (size_t second = first; second <= body.bytes; second++) {
            struct log log = {.stop_at = -1};
            enum err err = read_cut(body, first, second, &log);
            assert_int_equal(err, expected_err);
            if (err == OK) {
                assert_int_equal(log.text.bytes, expected.bytes);
                assert_memory_equal(log.text.at, expected.at, expected.bytes);
            }
            buf_release(&log.text);
        }
}

#define FIELD(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"

static void parts_are_the_same_wherever_the_body_is_cut(void **state) {
    (void)state;
    check_all_cuts(
        STR("--XyZ\r\n" FIELD(
            "a") "1\r\n--XyZ\r\n"
                 "content-disposition: form-data; name=f; filename=\"x y.jsonl\"\r\n"
                 "Content-Type: application/octet-stream\r\n\r\nline\r\n\r\n--XyZ--\r\n"),
        OK, STR("a/-/=1;f/x y.jsonl/application/octet-stream=line\r\n;"));
}

static void text_that_almost_is_the_boundary_is_data(void **state) {
    (void)state;
    check_all_cuts(
        STR("--XyZ\r\n" FIELD("a") "\r\n--Xy\r\r\n\r\n--X\r\n-\r\n--Xyz--XyZ\r\n--XyZ--"), OK,
        STR("a/-/=\r\n--Xy\r\r\n\r\n--X\r\n-\r\n--Xyz--XyZ;"));
}

static void data_may_start_with_dashes_and_hold_nul(void **state) {
    (void)state;
    check_all_cuts(STR("--XyZ\r\n" FIELD("a") "--Xy\0\377\r\r\n--XyZ--"), OK,
                   STR("a/-/=--Xy\0\377\r;"));
}

static void empty_parts_have_no_data(void **state) {
    (void)state;
    check_all_cuts(STR("--XyZ\r\n" FIELD("a") "\r\n--XyZ \t\r\n" FIELD("b") "--XyZ--"), OK,
                   STR("a/-/=;b/-/=;"));
}

static void preamble_and_epilogue_are_skipped(void **state) {
    (void)state;
    check_all_cuts(STR("hello --XyZ\r\n--XyZ\r\n" FIELD("a") "1\r\n--XyZ--\r\n--XyZ\r\nbye"), OK,
                   STR("a/-/=1;"));
}

static void a_body_without_its_closing_delimiter_is_refused(void **state) {
    (void)state;
    check_all_cuts(STR("--XyZ\r\n" FIELD("a") "1\r\n--XyZ"), ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ\r\n" FIELD("a") "1"), ERR_INVALID, STR(""));
    check_all_cuts(STR(""), ERR_INVALID, STR(""));
}

static void malformed_parts_are_refused(void **state) {
    (void)state;
    check_all_cuts(STR("--XyZ\r\n\r\n1\r\n--XyZ--"), ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ\r\nContent-Disposition: attachment; name=a\r\n\r\n--XyZ--"),
                   ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ\r\nContent-Disposition: form-data; filename=a\r\n\r\n--XyZ--"),
                   ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n--XyZ--"),
                   ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ\r\nContent-Disposition: form-data; name=\"a\r\n\r\n--XyZ--"),
                   ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ\r\n folded: x\r\n" FIELD("a") "--XyZ--"), ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ!\r\n" FIELD("a") "--XyZ--"), ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ-\r\n" FIELD("a") "--XyZ--"), ERR_INVALID, STR(""));
    check_all_cuts(STR("--XyZ\n" FIELD("a") "--XyZ--"), ERR_INVALID, STR(""));
}

static void long_headers_and_many_parts_are_over_the_limit(void **state) {
    (void)state;
    struct log log = {.stop_at = -1};
    struct buf body;
    buf_init(&body, 1 << 20);
    buf_add_text(&body, "--XyZ\r\nA: ");
    for (int i = 0; i < MULTIPART_HEAD_BYTES_MAX; i++) buf_add_byte(&body, 'x');
    assert_int_equal(read_cut(buf_str(&body), 0, body.bytes, &log), ERR_LIMIT);
    buf_release(&log.text);
    buf_clear(&body);
    for (int i = 0; i <= MULTIPART_PARTS_MAX; i++)
        buf_add_text(&body, i == 0 ? "--XyZ\r\n" FIELD("a") : "\r\n--XyZ\r\n" FIELD("a"));
    assert_int_equal(read_cut(buf_str(&body), 0, body.bytes, &log), ERR_LIMIT);
    buf_release(&log.text);
    buf_release(&body);
}

static void an_event_that_says_stop_ends_the_reading(void **state) {
    (void)state;
    struct str body = STR("--XyZ\r\n" FIELD("a") "1\r\n--XyZ\r\n" FIELD("b") "2\r\n--XyZ--");
    for (int stop = 0; stop < 6; stop++) {
        struct log log = {.stop_at = stop};
        assert_int_equal(read_cut(body, body.bytes, body.bytes, &log), ERR_CANCELLED);
        assert_int_equal(log.events, stop + 1);
        buf_release(&log.text);
    }
}

static void content_types_without_a_usable_boundary_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=\"a\r\nb\"",
        "multipart/form-data; boundary=\"a ",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-datax; boundary=a",
        "multipart/mixed; boundary=a",
        /* 71 characters */
        ("multipart/form-data;boundary="
         "01234567890123456789012345678901234567890123456789012345678901234567890"),
    };
    struct multipart multipart;
    struct multipart_events events = {NULL, begin, data, end};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(multipart_init(&multipart, str_from(bad[i]), &events, NULL), ERR_INVALID);
    static const char *const good[] = {
        "multipart/form-data; boundary=a",
        "Multipart/Form-Data;charset=utf-8;BOUNDARY=\"a b?c\"",
        "multipart/form-data ; boundary=----WebKitFormBoundaryAbC123",
        "multipart/form-data; boundary=a;",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(multipart_init(&multipart, str_from(good[i]), &events, NULL), OK);
}

static void parameters_are_unquoted_as_browsers_quote_them(void **state) {
    (void)state;
    char text[32];
    struct str value = STR("form-data; name=\"a\\\"b%22c\\\\d\"; filename=\"C:\\x\"; n=1 ;z=\"\"");
    assert_true(multipart_parameter(value, "name", text, sizeof text));
    assert_string_equal(text, "a\"b\"c\\d");
    assert_true(multipart_parameter(value, "FILENAME", text, sizeof text));
    assert_string_equal(text, "C:\\x");
    assert_true(multipart_parameter(value, "n", text, sizeof text));
    assert_string_equal(text, "1");
    assert_true(multipart_parameter(value, "z", text, sizeof text));
    assert_string_equal(text, "");
    assert_false(multipart_parameter(value, "absent", text, sizeof text));
    assert_false(multipart_parameter(value, "name", text, 7));
    assert_false(multipart_parameter(STR("f; name=\"a\0b\""), "name", text, sizeof text));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_same_wherever_the_body_is_cut),
        cmocka_unit_test(text_that_almost_is_the_boundary_is_data),
        cmocka_unit_test(data_may_start_with_dashes_and_hold_nul),
        cmocka_unit_test(empty_parts_have_no_data),
        cmocka_unit_test(preamble_and_epilogue_are_skipped),
        cmocka_unit_test(a_body_without_its_closing_delimiter_is_refused),
        cmocka_unit_test(malformed_parts_are_refused),
        cmocka_unit_test(long_headers_and_many_parts_are_over_the_limit),
        cmocka_unit_test(an_event_that_says_stop_ends_the_reading),
        cmocka_unit_test(content_types_without_a_usable_boundary_are_refused),
        cmocka_unit_test(parameters_are_unquoted_as_browsers_quote_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/place.h"

#include <string.h>

static void a_name_is_bucket_and_key(void **state) {
    static const char *const rows[][3] = {
        {"s3://my-bucket/in.jsonl", "my-bucket", "in.jsonl"},
        {"s3://a.b_c/x/y//z 1+\xc3\xa4.jsonl", "a.b_c", "x/y//z 1+\xc3\xa4.jsonl"},
        {"s3://abc/..x/.y.", "abc", "..x/.y."},
        {"s3://abc/a?b#c%20", "abc", "a?b#c%20"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct s3_place place;
        struct error error;
        assert_int_equal(s3_place_read(&place, rows[i][0], &error), OK);
        assert_string_equal(place.bucket, rows[i][1]);
        assert_string_equal(place.key, rows[i][2]);
    }
}

static void a_name_that_cannot_be_asked_for_is_refused_with_its_reason(void **state) {
    char longest[1100] = "s3://abc/";
    const char *const rows[][2] = {{"s3://", "no bucket"},
                                   {"s3://ab/x", "no bucket"},
                                   {"s3://a b/x", "no bucket"},
                                   {"s3://.abc/x", "no bucket"},
                                   {"s3://abc", "no object"},
                                   {"s3://abc/", "no object"},
                                   {"s3://abc/x/", "no object"},
                                   {"s3://abc/../x", "'..'"},
                                   {"s3://abc/x/.", "'..'"},
                                   {"s3://abc/./x", "'..'"},
                                   {"s3://abc/x\ny", "control"},
                                   {"http://abc/x", "no bucket"},
                                   {"s3://user@host/x", "no bucket"},
                                   {longest, "1024 bytes"}};
    (void)state;
    memset(longest + 9, 'k', 1025);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct s3_place place;
        struct error error;
        assert_int_equal(s3_place_read(&place, rows[i][0], &error), ERR_INVALID);
        if (!strstr(error.text, rows[i][1])) fail_msg("%s: %s", rows[i][0], error.text);
    }
    longest[9 + 1024] = '\0';
    struct s3_place place;
    struct error error;
    assert_int_equal(s3_place_read(&place, longest, &error), OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_bucket_and_key),
        cmocka_unit_test(a_name_that_cannot_be_asked_for_is_refused_with_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

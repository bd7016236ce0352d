/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/listing.h"

#include <stdio.h>
#include <string.h>

/* Appends the name and a blank. */
static void gather(void *context, const char *rest) {
    char *names = context;
    snprintf(names + strlen(names), 200 - strlen(names), "%s ", rest);
}

static enum err read_page(const char *xml, char ret_names[200], char token[S3_TOKEN_BYTES],
                          struct error *error) {
    ret_names[0] = '\0';
    return s3_listing_read(str_from(xml), "one/log/", gather, ret_names, token, error);
}

static void a_page_gives_the_names_behind_the_prefix(void **state) {
    char names[200], token[S3_TOKEN_BYTES] = "old";
    struct error error;
    (void)state;
    assert_int_equal(
        read_page("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"s3\"><Prefix>one/log/</Prefix>"
                  "<IsTruncated>true</IsTruncated>"
                  "<Contents><Key>one/log/1</Key><Size>5</Size></Contents>"
                  "<Contents><Key>two/log/2</Key></Contents>"
                  "<Contents><Key>one/log/a&amp;b</Key><Owner><ID>x</ID></Owner></Contents>"
                  "<NextContinuationToken>1/+=&lt;</NextContinuationToken></ListBucketResult>",
                  names, token, &error),
        OK);
    assert_string_equal(names, "1 a&b ");
    assert_string_equal(token, "1/+=<");
    assert_int_equal(read_page("<ListBucketResult><IsTruncated>false</IsTruncated>"
                               "<Contents><Key>one/log/3</Key></Contents></ListBucketResult>",
                               names, token, &error),
                     OK);
    assert_string_equal(names, "3 ");
    assert_string_equal(token, "");
}

static void what_is_no_page_is_refused_before_a_name_is_given(void **state) {
    static const char *const rows[] = {
        "", "<html><Contents><Key>one/log/1</Key></Contents></html>",
        "<ListBucketResult><Contents><Key>one/log/1</Key></Contents>",
        ("<ListBucketResult><IsTruncated>true</IsTruncated>"
         "<Contents><Key>one/log/1</Key></Contents></ListBucketResult>")};
    char names[200], token[S3_TOKEN_BYTES] = "old";
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(read_page(rows[i], names, token, &error), ERR_CORRUPT);
        assert_string_equal(names, "");
        assert_string_equal(token, "old");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_gives_the_names_behind_the_prefix),
        cmocka_unit_test(what_is_no_page_is_refused_before_a_name_is_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

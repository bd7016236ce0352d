/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/range.h"

#define NONE ((struct str){NULL, 0})

static void check(const char *text, enum range_answer answer, uint64_t offset, uint64_t bytes) {
    struct range range;
    if (range_read(str_from(text), NONE, NONE, STR("\"e\""), 100, &range) != answer)
        fail_msg("%s", text);
    if (answer == RANGE_UNSATISFIABLE) return;
    assert_int_equal(range.offset, offset);
    assert_int_equal(range.bytes, bytes);
}

static void one_range_of_bytes_is_obeyed(void **state) {
    (void)state;
    check("bytes=0-9", RANGE_PART, 0, 10);
    check("bytes=10-", RANGE_PART, 10, 90);
    check("bytes=-10", RANGE_PART, 90, 10);
    check("bytes=-1000", RANGE_PART, 0, 100);
    check("bytes=99-1000", RANGE_PART, 99, 1);
    check("bytes=0-0", RANGE_PART, 0, 1);
}

static void a_range_past_the_end_cannot_be_satisfied(void **state) {
    (void)state;
    check("bytes=100-", RANGE_UNSATISFIABLE, 0, 0);
    check("bytes=18446744073709551615-", RANGE_UNSATISFIABLE, 0, 0);
    check("bytes=-0", RANGE_UNSATISFIABLE, 0, 0);
}

static void a_range_that_cannot_be_read_is_ignored(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=0-1,3-4",
        "lines=0-1",
        "bytes=1",
        "bytes=--1",
        "bytes=18446744073709551616-",
        "bytes=+1-2",
        "bytes=0x1-2",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(cases[i], RANGE_WHOLE, 0, 100);
}

static void an_empty_file_has_no_range(void **state) {
    (void)state;
    struct range range;
    assert_int_equal(range_read(STR("bytes=0-"), NONE, NONE, STR("\"e\""), 0, &range),
                     RANGE_UNSATISFIABLE);
    assert_int_equal(range_read(NONE, NONE, NONE, STR("\"e\""), 0, &range), RANGE_WHOLE);
    assert_int_equal(range.bytes, 0);
}

static void a_known_entity_tag_means_not_modified(void **state) {
    (void)state;
    struct range range;
    struct str etag = STR("\"e\"");
    assert_int_equal(range_read(NONE, NONE, etag, etag, 100, &range), RANGE_NOT_MODIFIED);
    assert_int_equal(range_read(NONE, NONE, STR("W/\"e\""), etag, 100, &range), RANGE_NOT_MODIFIED);
    assert_int_equal(range_read(NONE, NONE, STR("\"x\" , \"e\""), etag, 100, &range),
                     RANGE_NOT_MODIFIED);
    assert_int_equal(range_read(NONE, NONE, STR("*"), etag, 100, &range), RANGE_NOT_MODIFIED);
    assert_int_equal(range_read(NONE, NONE, STR("\"x\",e"), etag, 100, &range), RANGE_WHOLE);
}

static void a_range_holds_only_if_the_file_is_the_one_meant(void **state) {
    (void)state;
    struct range range;
    struct str etag = STR("\"e\"");
    assert_int_equal(range_read(STR("bytes=0-9"), etag, NONE, etag, 100, &range), RANGE_PART);
    assert_int_equal(range_read(STR("bytes=0-9"), STR("\"x\""), NONE, etag, 100, &range),
                     RANGE_WHOLE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_range_of_bytes_is_obeyed),
        cmocka_unit_test(a_range_past_the_end_cannot_be_satisfied),
        cmocka_unit_test(a_range_that_cannot_be_read_is_ignored),
        cmocka_unit_test(an_empty_file_has_no_range),
        cmocka_unit_test(a_known_entity_tag_means_not_modified),
        cmocka_unit_test(a_range_holds_only_if_the_file_is_the_one_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

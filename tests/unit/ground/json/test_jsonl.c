/* SPDX-License-Identifier: Apache-2.0 */
#include "json/jsonl.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void add_line(void *context, const struct jsonl_line *line) {
    char *out = context;
    size_t used = strlen(out);
    snprintf(out + used, 400 - used, "%d:%d+%d ", (int)line->number, (int)line->offset,
             (int)line->bytes);
}

/* The same lines must come out however the file is cut into pieces. */
static void check(const char *text, size_t bytes, const char *expected) {
    for (size_t piece = 1; piece <= bytes + 1; piece++) {
        struct jsonl_splitter splitter;
        char out[400] = "";
        jsonl_init(&splitter);
        for (size_t at = 0; at < bytes; at += piece)
            jsonl_feed(&splitter, (struct str){text + at, at + piece > bytes ? bytes - at : piece},
                       add_line, out);
        jsonl_end(&splitter, add_line, out);
        assert_string_equal(out, expected);
    }
}
#define CHECK(text, expected) check(text, sizeof(text) - 1, expected)

static void lines_end_in_lf_and_the_last_needs_none(void **state) {
    (void)state;
    CHECK("ab\ncd\n", "1:0+2 2:3+2 ");
    CHECK("ab\ncd", "1:0+2 2:3+2 ");
    CHECK("", "");
}

static void one_cr_before_lf_is_stripped(void **state) {
    (void)state;
    CHECK("ab\r\ncd\r\r\nef\r", "1:0+2 2:4+3 3:9+2 ");
}

static void blank_lines_are_skipped_and_counted(void **state) {
    (void)state;
    CHECK("\n \t\r\nab\n\n\ncd\n\n", "3:5+2 6:10+2 ");
}

static void a_byte_order_mark_is_skipped_at_the_start_only(void **state) {
    (void)state;
    CHECK("\xEF\xBB\xBF"
          "ab\n\xEF\xBB\xBF"
          "c\n",
          "1:3+2 2:6+4 ");
    CHECK("\xEF\xBB"
          "ab\n",
          "1:0+4 ");
    CHECK("\xEF\xBB\xBF", "");
    CHECK("\xEF\xBB", "1:0+2 ");
}

static void unicode_line_separators_do_not_split(void **state) {
    (void)state;
    CHECK("a\xE2\x80\xA8"
          "b\xC2\x85"
          "c\n",
          "1:0+8 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_in_lf_and_the_last_needs_none),
        cmocka_unit_test(one_cr_before_lf_is_stripped),
        cmocka_unit_test(blank_lines_are_skipped_and_counted),
        cmocka_unit_test(a_byte_order_mark_is_skipped_at_the_start_only),
        cmocka_unit_test(unicode_line_separators_do_not_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

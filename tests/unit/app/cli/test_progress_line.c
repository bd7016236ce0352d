/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct progress_part parts[] = {{.rank = 2, .text = "[bar] "},
                                             {.rank = 0, .text = "5/60 done"},
                                             {.rank = 1, .text = ", ETA 0:07"}};

static void line_is(size_t width, const char *wanted) {
    char line[PROGRESS_LINE_BYTES];
    progress_line(line, parts, 3, width);
    assert_string_equal(line, wanted);
}

static void the_parts_of_most_worth_get_the_room(void **state) {
    (void)state;
    line_is(SIZE_MAX, "[bar] 5/60 done, ETA 0:07");
    line_is(25, "[bar] 5/60 done, ETA 0:07");
    line_is(24, "5/60 done, ETA 0:07");
    line_is(18, "[bar] 5/60 done");
    line_is(9, "5/60 done");
    line_is(1, "5/60 done");
}

static void a_line_is_never_longer_than_its_room_in_memory(void **state) {
    (void)state;
    static struct progress_part long_parts[8];
    char line[PROGRESS_LINE_BYTES];
    for (uint32_t i = 0; i < 8; i++) {
        long_parts[i].rank = i;
        memset(long_parts[i].text, 'x', PROGRESS_PART_BYTES - 1);
    }
    progress_line(line, long_parts, 8, SIZE_MAX);
    assert_int_equal(strlen(line), 4 * (PROGRESS_PART_BYTES - 1));
}

static void a_bar_is_full_at_the_end_only(void **state) {
    (void)state;
    char text[PROGRESS_PART_BYTES];
    progress_bar(text, 0, 0);
    assert_string_equal(text, "[..............................] ");
    progress_bar(text, 59, 60);
    assert_string_equal(text, "[#############################.] ");
    progress_bar(text, 60, 60);
    assert_string_equal(text, "[##############################] ");
}

static void times_are_minutes_and_seconds_up_to_an_hour(void **state) {
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{-1, "-:--"},   {0, "0:00"},       {7.9, "0:07"},
                 {754, "12:34"}, {3723, "1:02:03"}, {4e6, "-:--"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[16];
        progress_clock(text, cases[i].seconds);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_of_most_worth_get_the_room),
        cmocka_unit_test(a_line_is_never_longer_than_its_room_in_memory),
        cmocka_unit_test(a_bar_is_full_at_the_end_only),
        cmocka_unit_test(times_are_minutes_and_seconds_up_to_an_hour),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

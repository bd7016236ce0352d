/* SPDX-License-Identifier: Apache-2.0 */
/* A chart is a well-formed element, whatever its names and numbers are. */
#include "bench/plot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void names_are_escaped_and_unknown_points_left_out(void **state) {
    (void)state;
    static const char *const places[] = {"1", "<8>"};
    const struct plot_point points[] = {{5, 4, 6, true}, {0, 0, 0, false}};
    const struct plot plot = {.title = "a & b",
                              .x_title = "\"x\"",
                              .places = places,
                              .place_count = 2,
                              .lines = {{"<script>", points}},
                              .line_count = 1};
    struct buf out;
    buf_init(&out, 1 << 16);
    plot_write(&out, &plot);
    assert_non_null(strstr(out.at, "a &amp; b"));
    assert_non_null(strstr(out.at, "&lt;8&gt;"));
    assert_non_null(strstr(out.at, "&lt;script&gt;: 5 (4 to 6)"));
    assert_null(strstr(out.at, "<script"));
    assert_null(strstr(strstr(out.at, "<circle") + 1, "<circle"));
    buf_release(&out);
}

static void a_chart_of_zeros_has_an_axis(void **state) {
    (void)state;
    static const char *const places[] = {"1"};
    const struct plot_point points[] = {{0, 0, 0, true}};
    const struct plot plot = {.title = "t",
                              .x_title = "x",
                              .places = places,
                              .place_count = 1,
                              .lines = {{"n", points}},
                              .line_count = 1};
    struct buf out;
    buf_init(&out, 1 << 16);
    plot_write(&out, &plot);
    assert_null(strstr(out.at, "nan"));
    assert_null(strstr(out.at, "inf"));
    buf_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_escaped_and_unknown_points_left_out),
        cmocka_unit_test(a_chart_of_zeros_has_an_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/metrics_text.h"
#include "cli/top_show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S 1000000000ll

static void samples_have_names_labels_and_values(void **state) {
    (void)state;
    struct str text = STR("# HELP a b\n# TYPE a gauge\n\na 1\n"
                          "b{x=\"1\",y=\"a \\\"q\\\" } b\"} -2.5e3\nc{} NaN 17\n"
                          "d{x=\"1\" 3\ne{x=\"1\"}\n{} 4\nf one\nlast{z=\"\"} 9");
    struct metric_sample sample;
    assert_true(metrics_text_next(&text, &sample));
    assert_true(str_is(sample.name, "a") && sample.labels.bytes == 0 && sample.value == 1);
    assert_true(metrics_text_next(&text, &sample));
    assert_true(str_is(sample.name, "b") && sample.value == -2500);
    assert_true(str_is(metrics_text_label(&sample, "x"), "1"));
    assert_true(str_is(metrics_text_label(&sample, "y"), "a \\\"q\\\" } b"));
    assert_int_equal(metrics_text_label(&sample, "q").bytes, 0);
    assert_true(metrics_text_next(&text, &sample));
    assert_true(str_is(sample.name, "c") && isnan(sample.value));
    assert_true(metrics_text_next(&text, &sample)); /* the lines between are no samples */
    assert_true(str_is(sample.name, "last") && sample.value == 9);
    assert_int_equal(metrics_text_label(&sample, "z").bytes, 0);
    assert_false(metrics_text_next(&text, &sample));
}

static void no_text_makes_it_read_beyond(void **state) {
    (void)state;
    static const char whole[] = "b{x=\"1\",y=\"a \\\"q\"} -2.5e3 1\n";
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        char *copy = malloc(bytes + 1); /* a tool sees what is read behind it */
        memcpy(copy, whole, bytes);
        struct str text = {copy, bytes};
        struct metric_sample sample;
        while (metrics_text_next(&text, &sample)) {
            (void)metrics_text_label(&sample, "x");
            (void)metrics_text_label(&sample, "y");
            (void)metrics_text_label(&sample, "none");
        }
        free(copy);
    }
}

#define ENGINE(up, tokens)                                                                         \
    "quern_engine_up{engine=\"0\"} " up "\nquern_engine_running{engine=\"0\"} 512\n"               \
    "quern_engine_waiting{engine=\"0\"} 3\nquern_engine_kv_used_ratio{engine=\"0\"} 0.5\n"         \
    "quern_engine_generated_tokens_total{engine=\"0\"} " tokens "\n"                               \
    "quern_engine_prompt_tokens_total{engine=\"0\"} 100\n"                                         \
    "quern_engine_restarts_total{engine=\"0\"} 1\nquern_lines_total " tokens "\n"
#define LEDGER                                                                                     \
    "quern_engine_card_info{engine=\"0\",card=\"GPU-12345678-9\"} 1\n"                             \
    "quern_engine_card_memory_limit_bytes{engine=\"0\"} 16106127360\n"                             \
    "quern_engine_card_memory_bytes{engine=\"0\",part=\"weights\"} 8053063680\n"                   \
    "quern_engine_card_memory_bytes{engine=\"0\",part=\"kv\"} 5368709120\n"                        \
    "quern_engine_card_memory_bytes{engine=\"0\",part=\"logits\"} 536870912\n"                     \
    "quern_engine_card_memory_bytes{engine=\"0\",part=\"steps\"} 536870912\n"
#define CARD                                                                                       \
    "quern_card_up{card=\"GPU-12345678-9\",name=\"NVIDIA H200\"} 1\n"                              \
    "quern_card_memory_bytes{card=\"GPU-12345678-9\"} 150323855360\n"                              \
    "quern_card_memory_used_bytes{card=\"GPU-12345678-9\"} 16106127360\n"                          \
    "quern_card_utilisation_ratio{card=\"GPU-12345678-9\"} 0.98\n"                                 \
    "quern_card_sm_clock_hertz{card=\"GPU-12345678-9\"} 1680000000\n"                              \
    "quern_card_tokens_per_second{card=\"GPU-12345678-9\"} 17081.4\n"                              \
    "quern_card_joules_per_1000_tokens{card=\"GPU-12345678-9\"} 40.25\n"                           \
    "quern_card_ecc_errors_total{card=\"GPU-12345678-9\"} 7\n"                                     \
    "quern_card_power_watts{card=\"GPU-12345678-9\"} 690\n"                                        \
    "quern_card_power_limit_watts{card=\"GPU-12345678-9\"} 700\n"                                  \
    "quern_card_temperature_celsius{card=\"GPU-12345678-9\"} 61\n"                                 \
    "quern_card_clocks_limited{card=\"GPU-12345678-9\",reason=\"power\"} 1\n"                      \
    "quern_card_clocks_limited{card=\"GPU-12345678-9\",reason=\"heat\"} 0\n"                       \
    "quern_card_xid_errors_total{card=\"GPU-12345678-9\"} 2\n"

static struct top_reading readings[2];

static char *shown(const char *now, const char *before) {
    struct buf out;
    buf_init(&out, 1 << 20);
    memset(readings, 0, sizeof readings);
    if (before) top_show_read(&readings[0], str_from(before), 5 * S);
    top_show_read(&readings[1], str_from(now), 7 * S);
    top_show_write(&out, &readings[1], &readings[0]);
    buf_add_byte(&out, '\0');
    return out.at; /* the caller's */
}

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no \"%s\" in:\n%s", part, text);
}

static void rates_are_between_two_readings(void **state) {
    (void)state;
    char *text = shown(ENGINE("1", "5000"), ENGINE("1", "1000"));
    has(text, "     0  up        512       3   50%      2000         0        1  cpu");
    has(text, "lines 5000 (2000.0/s)");
    assert_null(strstr(text, "GPU-"));
    free(text);
    text = shown(ENGINE("0", "5000"), NULL);
    has(text, "     0  down      512       3   50%         -         -        1  cpu");
    has(text, "lines 5000\n");
    free(text);
    text = shown(ENGINE("1", "10"), ENGINE("1", "1000")); /* the engine has started again */
    has(text, "   50%         -         0        1");
    free(text);
}

static void an_engine_on_a_card_tells_its_memory_and_the_card_its_state(void **state) {
    (void)state;
    char *text = shown(ENGINE("1", "1") LEDGER CARD, NULL);
    has(text, "GPU-12345678  13.5/15.0 GiB: weights 7.5, KV 5.0, other 1.0\n");
    has(text, "GPU-12345678  NVIDIA H200 ");
    has(text, "   98%  15.0/140.0 GiB   690/700 W  1680 MHz   61C     17081      40.2    2    7  "
              "limited by power\n");
    free(text);
    text = shown("quern_card_up{card=\"GPU-12345678-9\",name=\"a\033b\"} 0\n", NULL);
    has(text, "GPU-12345678  a?b ");
    has(text, "down: the driver reports nothing about it");
    free(text);
}

static void foreign_numbers_of_engines_are_left_out(void **state) {
    (void)state;
    char *text = shown("quern_engine_up{engine=\"64\"} 1\nquern_engine_up{engine=\"-1\"} 1\n"
                       "quern_engine_up 1\nquern_card_up{name=\"a\"} 1\n",
                       NULL);
    assert_true(readings[1].engine_count == 0 && readings[1].card_count == 0);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_have_names_labels_and_values),
        cmocka_unit_test(no_text_makes_it_read_beyond),
        cmocka_unit_test(rates_are_between_two_readings),
        cmocka_unit_test(an_engine_on_a_card_tells_its_memory_and_the_card_its_state),
        cmocka_unit_test(foreign_numbers_of_engines_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

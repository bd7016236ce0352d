/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A GPU whose step takes fixed_ns, and each_ns per row of the waves of `wave` rows that it needs.
 * The first trial of each number of rows takes twice as long. Once it has worked for tired_ns,
 * steps of more than 1,024 rows take a tenth longer. */
static struct {
    uint64_t fixed_ns, each_ns, tired_ns, worked_ns;
    uint32_t wave;
    uint32_t fails_at; /* trial, from 1 */
    uint32_t trials, rows_last;
} card;

static uint64_t step_ns(uint32_t rows) {
    const uint64_t ns =
        card.fixed_ns + card.each_ns * ((rows + card.wave - 1) / card.wave * card.wave);
    return card.tired_ns > 0 && card.worked_ns >= card.tired_ns && rows > 1024 ? ns + ns / 10 : ns;
}

static enum err trial(struct gpu *gpu, uint32_t rows, uint64_t *ret_ns, struct error *error) {
    (void)gpu;
    if (++card.trials == card.fails_at) return err_set(error, ERR_IO, "the GPU is gone");
    *ret_ns = step_ns(rows) * (rows == card.rows_last ? 1 : 2);
    card.rows_last = rows, card.worked_ns += *ret_ns;
    return OK;
}

static const struct gpu_table table = {.trial = trial};

static uint32_t enough(uint64_t fixed_ns, uint64_t each_ns, uint32_t wave, uint32_t most) {
    struct error error;
    uint32_t rows = 0;
    card.worked_ns = 0;
    card.fixed_ns = fixed_ns, card.each_ns = each_ns, card.wave = wave;
    card.fails_at = card.trials = card.rows_last = 0;
    assert_int_equal(gpu_rows_enough(&table, NULL, most, &rows, &error), OK);
    return rows;
}

/* Whether steps of `rows` compute the share of the rows per second of any other number. */
static bool is_enough(uint32_t rows, uint32_t most) {
    for (uint32_t other = GPU_ROWS_LEAST; other < most + GPU_ROWS_UNIT; other += GPU_ROWS_UNIT) {
        const uint32_t tried = other < most ? other : most;
        if ((double)rows * (double)step_ns(tried) <
            GPU_ROWS_SHARE * (double)tried * (double)step_ns(rows))
            return false;
    }
    return true;
}

static void the_least_number_that_is_enough_is_found(void **state) {
    (void)state;
    static const uint64_t fixed_ns[] = {1000, 20000, 50000, 100000, 200000, 1000000, 100000000};
    static const uint32_t most[] = {513, 600, 768, 1024, 2000, 2048, 8192};
    static const uint32_t waves[] = {1, 300, 640, 1900};
    for (size_t i = 0; i < sizeof fixed_ns / sizeof *fixed_ns; i++)
        for (size_t k = 0; k < sizeof most / sizeof *most; k++)
            for (size_t w = 0; w < sizeof waves / sizeof *waves; w++) {
                const uint32_t rows = enough(fixed_ns[i], 1000, waves[w], most[k]);
                assert_true(is_enough(rows, most[k]));
                for (uint32_t less = GPU_ROWS_LEAST; less < rows; less += GPU_ROWS_UNIT)
                    assert_false(is_enough(less, most[k]));
            }
    assert_int_equal(enough(0, 1000, 1, 2048), GPU_ROWS_LEAST);
    assert_int_equal(enough(100000000, 1, 1, 2048), 2048);
}

/* 1,280 rows fill two waves of 640, and 1,536 to 1,792 leave a third one partly empty. */
static void a_number_behind_a_slower_one_is_found(void **state) {
    (void)state;
    assert_int_equal(enough(0, 1000, 640, 2048), 1280);
    assert_int_equal(enough(0, 1000, 1024, 2048), 1024);
}

/* Rested, 2,048 rows compute the most per second, tired 1,024. */
static void the_card_is_tired_before_the_trials(void **state) {
    (void)state;
    assert_int_equal(enough(1750000, 20000, 1, 2048), 1280);
    card.tired_ns = 400000000;
    assert_int_equal(enough(1750000, 20000, 1, 2048), 768);
    card.tired_ns = 0;
}

/* A small model's GPU does not tire, and its start does not wait for it. */
static void short_steps_are_few(void **state) {
    (void)state;
    (void)enough(1000, 1, 1, 1024);
    assert_in_range(card.trials, 7, 100);
}

static void few_rows_are_not_tried(void **state) {
    (void)state;
    assert_int_equal(enough(1000, 1000, 1, 512), 512);
    assert_int_equal(enough(1000, 1000, 1, 1), 1);
    assert_int_equal(card.trials, 0);
}

static void a_gpu_without_a_clock_has_all_rows(void **state) {
    (void)state;
    assert_int_equal(enough(0, 0, 1, 2048), 2048);
    assert_int_equal(card.trials, 2);
}

static void an_error_of_the_card_is_told(void **state) {
    (void)state;
    for (uint32_t fails_at = 1; fails_at <= 70; fails_at++) { /* 64 of them before the trials */
        struct error error;
        uint32_t rows;
        (void)enough(1000, 1000, 1, 2048);
        card.fails_at = fails_at, card.trials = 0;
        assert_int_equal(gpu_rows_enough(&table, NULL, 2048, &rows, &error), ERR_IO);
        assert_string_equal(error.text, "trying steps: the GPU is gone");
        assert_int_equal(card.trials, fails_at);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_number_that_is_enough_is_found),
        cmocka_unit_test(a_number_behind_a_slower_one_is_found),
        cmocka_unit_test(the_card_is_tired_before_the_trials),
        cmocka_unit_test(short_steps_are_few),
        cmocka_unit_test(few_rows_are_not_tried),
        cmocka_unit_test(a_gpu_without_a_clock_has_all_rows),
        cmocka_unit_test(an_error_of_the_card_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

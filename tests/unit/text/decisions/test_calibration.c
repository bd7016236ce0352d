/* SPDX-License-Identifier: Apache-2.0 */
/* Temperatures of made-up cases whose true temperature is known, and the figures of cases that are
 * counted by hand. */
#include "decisions/calibration.h"
#include "reading.h"

#include <math.h>
#include <string.h>

static uint64_t seed;

/* Uniform in [0, 1). */
static double draw(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

/* Cases whose true options are drawn from the probabilities at a temperature. */
static struct calibration_set set_at(double temperature, size_t cases) {
    struct calibration_set set = {.count = 0};
    seed = 12;
    for (size_t i = 0; i < cases; i++) {
        double logs[8], sum = 0, at = 0;
        uint32_t count = 2 + (uint32_t)(i % 7), truth = 0;
        for (uint32_t k = 0; k < count; k++) logs[k] = -8 * draw() - 100 * (double)(i % 3);
        double first = logs[0];
        for (uint32_t k = 0; k < count; k++) sum += exp((logs[k] - first) / temperature);
        double place = draw() * sum;
        for (uint32_t k = 0; k < count; k++) {
            at += exp((logs[k] - first) / temperature);
            if (at <= place && k + 1 < count) truth = k + 1;
        }
        calibration_add(&set, logs, count, truth);
    }
    return set;
}

static void a_known_temperature_is_found(void **state) {
    (void)state;
    static const double temperatures[] = {0.5, 1, 1.7, 3};
    for (size_t i = 0; i < 4; i++) {
        struct calibration_set set = set_at(temperatures[i], 20000);
        double found = calibration_fit(&set);
        if (!(fabs(found / temperatures[i] - 1) < 0.03))
            fail_msg("%.4f instead of %.4f", found, temperatures[i]);
        struct calibration_figures before = calibration_measure(&set, 1),
                                   after = calibration_measure(&set, found);
        assert_true(after.log_loss <= before.log_loss && after.accuracy == before.accuracy);
        assert_true(after.error < 0.02);
        if (temperatures[i] >= 1.7) assert_true(before.error > 3 * after.error);
        /* It is the least: its neighbours are no better. */
        assert_true(calibration_measure(&set, found * 1.01).log_loss >= after.log_loss);
        assert_true(calibration_measure(&set, found / 1.01).log_loss >= after.log_loss);
        calibration_release(&set);
    }
}

static void a_set_without_an_inner_least_has_a_bound(void **state) {
    (void)state;
    static const double logs[] = {-0.1, -2};
    struct calibration_set right = {.count = 0}, wrong = {.count = 0};
    for (int i = 0; i < 10; i++) {
        calibration_add(&right, logs, 2, 0);
        calibration_add(&wrong, logs, 2, 1);
    }
    assert_true(calibration_fit(&right) == CALIBRATION_LEAST);
    assert_true(calibration_fit(&wrong) == CALIBRATION_MOST);
    calibration_release(&right);
    calibration_release(&wrong);
}

static void figures_are_those_counted_by_hand(void **state) {
    (void)state;
    struct calibration_set set = {.count = 0};
    /* 0.9 sure three times and right twice, 0.6 sure once and right. */
    const double sure[] = {log(0.9), log(0.1)}, half[] = {log(0.4), log(0.6)};
    calibration_add(&set, sure, 2, 0);
    calibration_add(&set, sure, 2, 0);
    calibration_add(&set, sure, 2, 1);
    calibration_add(&set, half, 2, 1);
    struct calibration_figures figures = calibration_measure(&set, 1);
    assert_true(fabs(figures.accuracy - 0.75) < 1e-12);
    assert_true(fabs(figures.log_loss - -(2 * log(0.9) + log(0.1) + log(0.6)) / 4) < 1e-12);
    /* Bins: |2 − 2.7| and |1 − 0.6|, over 4 cases. */
    assert_true(fabs(figures.error - (0.7 + 0.4) / 4) < 1e-12);
    calibration_release(&set);
}

static void impossible_options_and_single_ones_are_numbers(void **state) {
    (void)state;
    struct calibration_set set = {.count = 0};
    static const double edge[] = {0, -690, -690}, one[] = {-5};
    calibration_add(&set, edge, 3, 2);
    calibration_add(&set, edge, 3, 0);
    calibration_add(&set, one, 1, 0);
    double temperature = calibration_fit(&set);
    struct calibration_figures figures = calibration_measure(&set, temperature);
    assert_true(isfinite(temperature) && isfinite(figures.log_loss) && isfinite(figures.error));
    assert_true(isfinite(calibration_measure(&set, CALIBRATION_LEAST).log_loss));
    calibration_release(&set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_temperature_is_found),
        cmocka_unit_test(a_set_without_an_inner_least_has_a_bound),
        cmocka_unit_test(figures_are_those_counted_by_hand),
        cmocka_unit_test(impossible_options_and_single_ones_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/estimate.h"
#include "preflight/hash_set.h"
#include "preflight/token_layout.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void quantiles_are_values_that_are_there(void **state) {
    (void)state;
    const uint32_t sorted[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    assert_int_equal(estimate_quantile(sorted, 10, 0.5), 5);
    assert_int_equal(estimate_quantile(sorted, 10, 0.95), 10);
    assert_int_equal(estimate_quantile(sorted, 10, 0.9), 9);
    assert_int_equal(estimate_quantile(sorted, 10, 1), 10);
    assert_int_equal(estimate_quantile(sorted, 10, 0), 1);
    assert_int_equal(estimate_quantile(sorted, 1, 0.99), 1);
    assert_int_equal(estimate_quantile(sorted, 0, 0.5), 0);
}

static void points_are_those_of_students_distribution(void **state) {
    (void)state;
    assert_true(estimate_t(1) == 12.706 && estimate_t(4) == 2.776 && estimate_t(30) == 2.042);
    assert_true(estimate_t(31) == 1.960);
    struct interval is = estimate_scaled((struct interval){1, 2, 4, true}, 10);
    assert_true(is.is_known && is.low == 10 && is.mean == 20 && is.high == 40);
}

static void uncertainties_of_ratios_add_up_as_squares_of_logarithms(void **state) {
    (void)state;
    struct interval is = estimate_widened((struct interval){50, 100, 200, true}, 1, 1);
    assert_true(fabs(is.low - 50) < 1e-9 && is.mean == 100 && fabs(is.high - 200) < 1e-9);
    is = estimate_widened((struct interval){100, 100, 100, true}, 0.5, 1.5);
    assert_true(fabs(is.low - 50) < 1e-9 && is.mean == 100 && fabs(is.high - 150) < 1e-9);
    /* Ratios of 2^3 and 2^4 make one of 2^5. */
    is = estimate_widened((struct interval){100.0 / 8, 100, 800, true}, 1.0 / 16, 16);
    assert_true(fabs(is.low - 3.125) < 1e-9 && fabs(is.high - 3200) < 1e-6);
    is = estimate_widened((struct interval){0, 100, 200, true}, 0.5, 2);
    assert_true(is.low == 0);
    is = estimate_widened((struct interval){100, 100, 100, false}, 0.5, 2);
    assert_true(is.low == 100 && is.high == 100);
}

static void bins_are_equally_wide_from_the_shortest_length(void **state) {
    (void)state;
    struct estimate_bin bins[ESTIMATE_BINS];
    assert_int_equal(estimate_histogram(NULL, 0, bins), 0);
    const uint32_t close[] = {238, 239, 239, 240, 242};
    assert_int_equal(estimate_histogram(close, 5, bins), 5);
    const uint64_t counts[] = {1, 2, 1, 0, 1};
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(bins[i].from, 238 + i);
        assert_int_equal(bins[i].count, counts[i]);
    }
    const uint32_t wide[] = {512, 600, 700, 971};
    assert_int_equal(estimate_histogram(wide, 4, bins), 12);
    assert_int_equal(bins[0].from, 512);
    assert_int_equal(bins[1].from, 551); /* (971 - 512) / 12 + 1 = 39 */
    assert_int_equal(bins[2].count, 1);
    assert_int_equal(bins[11].count, 1);
    const uint32_t ends[] = {1, UINT32_MAX};
    assert_int_equal(estimate_histogram(ends, 2, bins), 12);
    assert_int_equal(bins[0].count, 1);
    assert_int_equal(bins[11].count, 1);
}

static void an_outlier_squeezes_no_histogram(void **state) {
    (void)state;
    struct estimate_bin bins[ESTIMATE_BINS];
    uint32_t lengths[100];
    for (uint32_t i = 0; i < 99; i++) lengths[i] = 100 + i; /* 95 % are at most 194 */
    lengths[99] = 1000000;
    size_t count = estimate_histogram(lengths, 100, bins);
    assert_int_equal(count, 12);
    assert_int_equal(bins[1].from - bins[0].from, 16); /* (2 * 94) / 12 + 1 */
    assert_int_equal(bins[0].count, 16);
    assert_int_equal(bins[count - 1].count, 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += bins[i].count;
    assert_int_equal(sum, 100);
}

static void a_roomy_length_has_five_hundred_more_and_is_round(void **state) {
    (void)state;
    assert_int_equal(estimate_roomy(0), 512);
    assert_int_equal(estimate_roomy(12), 512);
    assert_int_equal(estimate_roomy(13), 640);
    assert_int_equal(estimate_roomy(UINT32_MAX) % 128, 127); /* cut to what fits */
}

static void a_set_of_hashes_tells_new_ones_from_old(void **state) {
    (void)state;
    struct hash_set seen = {0};
    assert_false(hash_set_has(&seen, 5));
    for (uint64_t i = 0; i < 20000; i++) assert_true(hash_set_add(&seen, rng_at(3, i)));
    for (uint64_t i = 0; i < 20000; i++) assert_false(hash_set_add(&seen, rng_at(3, i)));
    for (uint64_t i = 0; i < 20000; i++) assert_true(hash_set_has(&seen, rng_at(3, i)));
    for (uint64_t i = 0; i < 20000; i++) assert_false(hash_set_has(&seen, rng_at(4, i)));
    assert_int_equal(seen.count, 20000);
    assert_true(hash_set_add(&seen, 0));
    assert_true(hash_set_has(&seen, 0));
    hash_set_release(&seen);
}

#define JOB                                                                                        \
    "The role asks for ten years of careful work with mills, querns and other grinding tools.\\n"  \
    "Answer with one JSON object that has a recommendation and a reasoning of two sentences.\\n"   \
    "Do not reward length. Ignore name, age, gender, nationality and photograph of the person.\\n"

static struct token_layout_advice advice_for(bool job_first) {
    struct token_layout layout = {0};
    for (int i = 0; i < 40; i++) {
        char text[2000], profile[300];
        struct error error;
        json_t *messages;
        snprintf(profile, sizeof profile,
                 "Candidate %d has worked for company number %d for %d years and more.", i, i * 7,
                 i % 9);
        snprintf(text, sizeof text, "[{\"role\":\"user\",\"content\":\"%s\\n%s\"}]",
                 job_first ? JOB : profile, job_first ? profile : JOB);
        assert_int_equal(json_read(&messages, str_from(text), &error), OK);
        token_layout_add(&layout, messages, NULL);
        json_decref(messages);
    }
    struct token_layout_advice advice = token_layout_look(&layout);
    token_layout_release(&layout);
    return advice;
}

static void shared_text_behind_private_text_is_found_and_in_front_of_it_is_good(void **state) {
    (void)state;
    assert_true(advice_for(true).late_share == 0);
    struct token_layout_advice advice = advice_for(false);
    assert_true(advice.late_share == 1);
    assert_true(advice.late_bytes_mean > 200 && advice.late_bytes_mean < 300);
    struct token_layout empty = {0};
    assert_true(token_layout_look(&empty).late_share == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_values_that_are_there),
        cmocka_unit_test(points_are_those_of_students_distribution),
        cmocka_unit_test(uncertainties_of_ratios_add_up_as_squares_of_logarithms),
        cmocka_unit_test(bins_are_equally_wide_from_the_shortest_length),
        cmocka_unit_test(an_outlier_squeezes_no_histogram),
        cmocka_unit_test(a_roomy_length_has_five_hundred_more_and_is_round),
        cmocka_unit_test(a_set_of_hashes_tells_new_ones_from_old),
        cmocka_unit_test(shared_text_behind_private_text_is_found_and_in_front_of_it_is_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

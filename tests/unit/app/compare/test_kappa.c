/* SPDX-License-Identifier: Apache-2.0 */
/* Kappa on tables whose figures are known from elsewhere. */
#include "compare/kappa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void add(struct kappa_counts *counts, const char *a, const char *b, int rows) {
    for (int i = 0; i < rows; i++) kappa_add(counts, str_from(a), str_from(b));
}

static void check_near(double got, double expected) {
    if (!(fabs(got - expected) < 1e-9)) fail_msg("%.15f instead of %.15f", got, expected);
}

/* statsmodels.stats.inter_rater.cohens_kappa gives the same three figures. */
static void kappa_and_its_interval_are_those_of_statsmodels(void **state) {
    (void)state;
    static const int table[4][4] = {{11, 3, 0, 1}, {2, 9, 4, 0}, {1, 2, 7, 3}, {0, 0, 2, 14}};
    struct kappa_counts counts;
    kappa_init(&counts);
    add(&counts, "yes", "yes", 20);
    add(&counts, "yes", "no", 5);
    add(&counts, "no", "yes", 10);
    add(&counts, "no", "no", 15);
    struct kappa is = kappa_measure(&counts);
    kappa_release(&counts);
    assert_true(is.is_known);
    assert_int_equal(is.rows, 50);
    check_near(is.value, 0.4);
    check_near(is.low, 0.151092290476661);
    check_near(is.high, 0.648907709523339);
    kappa_init(&counts);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            add(&counts, (char[]){(char)('a' + i), '\0'}, (char[]){(char)('a' + k), '\0'},
                table[i][k]);
    is = kappa_measure(&counts);
    kappa_release(&counts);
    check_near(is.value, 0.592165898617512);
    check_near(is.low, 0.436651531502921);
    check_near(is.high, 0.747680265732102);
}

static void one_label_alone_or_too_many_have_no_kappa(void **state) {
    (void)state;
    struct kappa_counts counts;
    char label[16];
    kappa_init(&counts);
    assert_false(kappa_measure(&counts).is_known);
    add(&counts, "yes", "yes", 9);
    assert_false(kappa_measure(&counts).is_known);
    add(&counts, "no", "no", 1);
    assert_true(kappa_measure(&counts).is_known);
    check_near(kappa_measure(&counts).value, 1);
    for (int i = 0; i < KAPPA_LABELS_MAX; i++) {
        snprintf(label, sizeof label, "%d", i);
        add(&counts, label, label, 1);
    }
    assert_false(kappa_measure(&counts).is_known);
    kappa_release(&counts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kappa_and_its_interval_are_those_of_statsmodels),
        cmocka_unit_test(one_label_alone_or_too_many_have_no_kappa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

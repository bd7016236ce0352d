/* SPDX-License-Identifier: Apache-2.0 */
/* Correlations of ranks on lists worked out by hand, and on drawn lists against the definition of
 * tau-b, which looks at every pair. */
#include "compare/ranks.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ROWS_MAX 300

static struct rank_pair pairs[ROWS_MAX];

static struct ranks ranks_of(const double *a, const double *b, size_t count) {
    for (size_t i = 0; i < count; i++) pairs[i] = (struct rank_pair){a[i], b[i], (uint32_t)i};
    return ranks_measure(pairs, count);
}

static void check_near(double got, double expected) {
    if (!(fabs(got - expected) < 1e-12)) fail_msg("%.15f instead of %.15f", got, expected);
}

/* Ten pairs of rows. Rows 1 and 4 are tied in both lists, rows 2 and 5 in the first one. The lists
 * put two of the other pairs into the same order (1-5 and 4-5) and six into opposite order. */
static void kendall_corrects_for_ties_in_both_lists(void **state) {
    (void)state;
    static const double a[] = {12, 2, 1, 12, 2}, b[] = {1, 4, 7, 1, 0};
    struct ranks is = ranks_of(a, b, 5);
    assert_true(is.is_known);
    assert_int_equal(is.pairs, 10);
    assert_int_equal(is.tied_a, 2);
    assert_int_equal(is.tied_b, 1);
    assert_int_equal(is.tied_both, 1);
    check_near(is.kendall, -4 / sqrt(72));
}

/* The second list has the ranks 1, 2, 3.5, 5, 3.5. The products of the distances from rank 3 sum to
 * 8, and their squares to 10 and 9.5. */
static void spearman_gives_equal_scores_the_mean_of_their_ranks(void **state) {
    (void)state;
    static const double a[] = {1, 2, 3, 4, 5}, b[] = {5, 6, 7, 8, 7};
    check_near(ranks_of(a, b, 5).spearman, 8 / sqrt(95));
}

static void equal_order_is_1_and_opposite_order_is_minus_1(void **state) {
    (void)state;
    static const double a[] = {1, 2, 3, 4, 4}, same[] = {10, 20, 30, 40, 40},
                        opposite[] = {4, 3, 2, 1, 1};
    struct ranks is = ranks_of(a, same, 5);
    check_near(is.spearman, 1);
    check_near(is.kendall, 1);
    is = ranks_of(a, opposite, 5);
    check_near(is.spearman, -1);
    check_near(is.kendall, -1);
}

static void a_list_of_equal_scores_has_no_correlation(void **state) {
    (void)state;
    static const double a[] = {1, 2, 3}, b[] = {7, 7, 7};
    struct ranks is = ranks_of(a, b, 3);
    assert_false(is.is_known);
    assert_true(is.spearman == 0 && is.kendall == 0);
    assert_int_equal(is.tied_b, 3);
    assert_false(ranks_of(a, b, 1).is_known);
    assert_false(ranks_of(a, b, 0).is_known);
}

static int sign(double x) {
    return (x > 0) - (x < 0);
}

static double kendall_by_definition(size_t count) {
    double sum = 0, free_a = 0, free_b = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            int a = sign(pairs[i].a - pairs[k].a), b = sign(pairs[i].b - pairs[k].b);
            sum += a * b;
            free_a += a != 0;
            free_b += b != 0;
        }
    }
    return sum / sqrt(free_a * free_b);
}

/* The rank of a score is the number of smaller ones and half of the equal ones. */
static double spearman_by_definition(size_t count) {
    double both = 0, squares_a = 0, squares_b = 0;
    for (size_t i = 0; i < count; i++) {
        double a = 0, b = 0;
        for (size_t k = 0; k < count; k++) {
            a += (double)sign(pairs[i].a - pairs[k].a) / 2;
            b += (double)sign(pairs[i].b - pairs[k].b) / 2;
        }
        both += a * b;
        squares_a += a * a;
        squares_b += b * b;
    }
    return both / sqrt(squares_a * squares_b);
}

static void drawn_lists_agree_with_the_definitions(void **state) {
    (void)state;
    struct rng rng = {17};
    double a[ROWS_MAX], b[ROWS_MAX];
    for (int round = 0; round < 60; round++) {
        size_t count = 3 + rng_below(&rng, ROWS_MAX - 3);
        uint64_t different = 2 + rng_below(&rng, round % 2 ? 6 : 1000000);
        for (size_t i = 0; i < count; i++) {
            a[i] = (double)rng_below(&rng, different);
            b[i] = rng_below(&rng, 2) ? a[i] : (double)rng_below(&rng, different) / 3;
        }
        a[0] = -1; /* so that neither list has one score only */
        b[1] = -1;
        struct ranks is = ranks_of(a, b, count);
        assert_true(fabs(is.kendall - kendall_by_definition(count)) < 1e-9);
        assert_true(fabs(is.spearman - spearman_by_definition(count)) < 1e-9);
    }
}

/* The bounds are SciPy's tanh(arctanh(rho) -+ norm.ppf(0.975) sqrt((1 + rho^2 / 2) / (n - 3))). */
static void the_interval_is_that_of_bonett_and_wright(void **state) {
    (void)state;
    static const struct {
        double rho, low, high;
        size_t count;
    } known[] = {{0.6, 0.364955493374162, 0.763145087847807, 50},
                 {-0.25, -0.977841304684719, 0.939637015224626, 4},
                 {0.95, 0.942167354804221, 0.956795418579288, 1000}};
    double low, high;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true(ranks_interval(known[i].rho, known[i].count, &low, &high));
        check_near(low, known[i].low);
        check_near(high, known[i].high);
    }
    assert_true(ranks_interval(1, 9, &low, &high));
    check_near(low, 1);
    check_near(high, 1);
    assert_false(ranks_interval(0.5, 3, &low, &high));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_interval_is_that_of_bonett_and_wright),
        cmocka_unit_test(kendall_corrects_for_ties_in_both_lists),
        cmocka_unit_test(spearman_gives_equal_scores_the_mean_of_their_ranks),
        cmocka_unit_test(equal_order_is_1_and_opposite_order_is_minus_1),
        cmocka_unit_test(a_list_of_equal_scores_has_no_correlation),
        cmocka_unit_test(drawn_lists_agree_with_the_definitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

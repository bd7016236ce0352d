/* SPDX-License-Identifier: Apache-2.0 */

/* The experts of a row, by every table. */
#include "kernels/kernels.h"

#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define EXPERTS 5u
#define USED 2u
#define STRIDE 7u

/* log 1, log 2, …: the softmax of a row is these numbers over their sum, which is 16. */
static const float logits[3][STRIDE] = {
    {0.0f, 0.6931471806f, 1.3862943611f, 2.0794415417f, 0.0f, 9.0f, 9.0f}, /* 1 2 4 8 1 */
    {0.6931471806f, 1.0986122887f, 1.0986122887f, 1.0986122887f, 1.6094379124f, 9.0f, 9.0f},
    {-1000.0f, 1000.0f, -INFINITY, 0.0f, -INFINITY, 9.0f, 9.0f}}; /* 2 3 3 3 5; 0 1 0 0 0 */
static const uint32_t experts[3][USED] = {{3, 2}, {4, 1}, {1, 3}};
static const float shares[3][USED] = {{8, 4}, {5, 3}, {16, 0}};

static void check(const struct kernels *kernels, size_t first, size_t rows, bool sums_to_one) {
    uint32_t got[3][USED] = {{99}};
    float weights[3][USED] = {{99}};
    kernels->route(&(struct route){.logits = logits[first],
                                   .stride = STRIDE,
                                   .rows = rows,
                                   .experts = EXPERTS,
                                   .used = USED,
                                   .sums_to_one = sums_to_one,
                                   .ret_experts = got[0],
                                   .ret_weights = weights[0]});
    for (size_t i = 0; i < rows; i++) {
        const float *share = shares[first + i];
        const float all = sums_to_one ? share[0] + share[1] : 16.0f;
        for (size_t j = 0; j < USED; j++) {
            assert_int_equal(got[i][j], experts[first + i][j]);
            assert_true(fabsf(weights[i][j] - share[j] / all) < 1e-6f);
        }
    }
}

static void the_most_probable_experts_weigh_what_the_softmax_says(void **state) {
    (void)state;
    for (size_t i = 0; kernels_at(i); i++)
        for (int sums = 0; sums < 2; sums++) {
            check(kernels_at(i), 0, 3, sums);
            for (size_t row = 0; row < 3; row++) check(kernels_at(i), row, 1, sums);
        }
}

/* Logits of the probabilities 1/5, 1/2, 4/5, 1/2, 1/5, 1/2: three groups of two. */
static const float by_sigmoid[6] = {-1.3862943611f, 0, 1.3862943611f, 0, -1.3862943611f, 0};

struct choice {
    struct route call;
    uint32_t experts[2];
    float weights[2];
};

static void a_bias_and_groups_choose_but_do_not_weigh(void **state) {
    (void)state;
    static const float bias[6] = {0.9f, 0.0f, -0.7f, 0.1f, 0.9f, 0.3f};
    const struct choice choices[] = {
        {{.is_sigmoid = true}, {2, 1}, {0.8f, 0.5f}},
        /* 1.1 0.5 0.1 0.6 1.1 0.8 */
        {{.is_sigmoid = true, .bias = bias}, {0, 4}, {0.2f, 0.2f}},
        {{.is_sigmoid = true, .bias = bias, .groups = 3, .groups_used = 1}, {4, 5}, {0.2f, 0.5f}},
        {{.is_sigmoid = true,
          .bias = bias,
          .groups = 3,
          .groups_used = 1,
          .groups_by_best = true,
          .sums_to_one = true,
          .scale = 2.5f},
         {0, 1},
         {2.5f * 0.2f / 0.7f, 2.5f * 0.5f / 0.7f}},
        {{.scale = 2, .sums_to_one = true}, {2, 1}, {1.6f, 0.4f}},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        struct route call = choices[i].call;
        uint32_t got[2] = {99, 99};
        float weights[2] = {0};
        call.logits = by_sigmoid;
        call.stride = call.experts = 6;
        call.rows = 1;
        call.used = 2;
        call.ret_experts = got;
        call.ret_weights = weights;
        kernels_choose(NULL)->route(&call);
        for (int j = 0; j < 2; j++) {
            assert_int_equal(got[j], choices[i].experts[j]);
            assert_true(fabsf(weights[j] - choices[i].weights[j]) < 1e-6f);
        }
    }
}

static void what_is_no_number_stays_none(void **state) {
    (void)state;
    const float row[3] = {1.0f, NAN, 2.0f};
    uint32_t got[2];
    float weights[2];
    kernels_choose("ref")->route(&(struct route){.logits = row,
                                                 .stride = 3,
                                                 .rows = 1,
                                                 .experts = 3,
                                                 .used = 2,
                                                 .sums_to_one = true,
                                                 .ret_experts = got,
                                                 .ret_weights = weights});
    assert_true(got[0] < 3 && got[1] < 3);
    assert_true(isnan(weights[0]) && isnan(weights[1]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_probable_experts_weigh_what_the_softmax_says),
        cmocka_unit_test(a_bias_and_groups_choose_but_do_not_weigh),
        cmocka_unit_test(what_is_no_number_stays_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

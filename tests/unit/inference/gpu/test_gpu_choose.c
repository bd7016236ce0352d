/* SPDX-License-Identifier: Apache-2.0 */
#include "fit_configs.h"
#include "gpu/gpu_choose.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* For a file in Q8_0, whose weights have no smaller form than 8 bits. */
static struct gpu_choice choose(const struct model_config *config, uint64_t mib, uint32_t asked) {
    return gpu_choose(&(struct card_fit_options){.config = config,
                                                 .is_tied = true,
                                                 .kv = GPU_BF16,
                                                 .memory_bytes = mib * MIB,
                                                 .wanted = {.sequences_max = asked}},
                      false);
}

static void bf16_stays_where_the_wanted_sequences_have_room(void **state) {
    (void)state;
    const struct model_config config = qwen3_4b();
    struct gpu_choice is = choose(&config, 40000, 0);
    assert_int_equal(is.form, GPU_BF16);
    assert_int_equal(is.wanted, 64);
    assert_int_equal(is.tokens, 1024);
    assert_int_equal(is.sequences, 64);
    is = choose(&config, 15900, 32);
    assert_int_equal(is.form, GPU_BF16);
    assert_true(is.in_bf16 >= 32);
    is = choose(&config, 15900, 1);
    assert_int_equal(is.form, GPU_BF16);
}

/* 4.02 G parameters: bf16 leaves 8 GB for keys and values, 8 bits leave 12. */
static void eight_bits_run_the_sequences_that_bf16_leaves_no_room_for(void **state) {
    (void)state;
    const struct model_config config = qwen3_4b();
    struct gpu_choice is = choose(&config, 15900, 0);
    assert_int_equal(is.form, GPU_INT8);
    assert_in_range(is.in_bf16, 30, 60);
    assert_int_equal(is.sequences, 64);
    /* A cache of 4,096 tokens fits, so bf16 would open, for a few at a time. */
    is = choose(&config, 9400, 0);
    assert_int_equal(is.form, GPU_INT8);
    assert_in_range(is.in_bf16, 1, 8);
    assert_in_range(is.sequences, 20, 40);
}

/* With the same requests as for a small GPU, an H200 has room for most of them in either form. */
static void a_few_more_sequences_are_no_reason_to_be_less_exact(void **state) {
    (void)state;
    const struct model_config config = qwen3_4b();
    const struct gpu_choice is = choose(&config, 139000, 1024);
    assert_int_equal(is.form, GPU_BF16);
    assert_in_range(is.in_bf16, 700, 1000);
}

static void what_fits_in_no_form_is_left_to_the_order_of_forms(void **state) {
    (void)state;
    const struct model_config config = qwen3_4b();
    struct gpu_choice is = choose(&config, 3000, 0);
    assert_int_equal(is.form, GPU_BF16);
    assert_int_equal(is.sequences, 0);
    const struct model_config experts = qwen3_30b_a3b(); /* experts would stay with the host */
    is = choose(&experts, 15900, 0);
    assert_int_equal(is.form, GPU_BF16);
    assert_int_equal(is.sequences, 0);
}

/* A context that is shorter than the sequences that are counted. */
static void the_caller_s_context_counts(void **state) {
    (void)state;
    const struct model_config config = qwen3_4b();
    const struct gpu_choice is =
        gpu_choose(&(struct card_fit_options){.config = &config,
                                              .is_tied = true,
                                              .kv = GPU_BF16,
                                              .memory_bytes = 15900 * MIB,
                                              .wanted = {.sequences_max = 64, .context_max = 256}},
                   false);
    assert_int_equal(is.tokens, 256);
    assert_int_equal(is.form, GPU_BF16);
    assert_int_equal(is.sequences, 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_stays_where_the_wanted_sequences_have_room),
        cmocka_unit_test(eight_bits_run_the_sequences_that_bf16_leaves_no_room_for),
        cmocka_unit_test(a_few_more_sequences_are_no_reason_to_be_less_exact),
        cmocka_unit_test(what_fits_in_no_form_is_left_to_the_order_of_forms),
        cmocka_unit_test(the_caller_s_context_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

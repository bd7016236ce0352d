/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_ledger.h"

#include "gpu/gpu_sampling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define LAYERS 36

static uint32_t edits_of(const struct gpu_limits *limits) {
    return gpu_sampling_edits_max(
        &(struct gpu_sampling_options){.vocab = 151669,
                                       .sequences_max = limits->sequences_max,
                                       .context_max = limits->context_max});
}

/* The shapes of Qwen3-4B. */
struct rig {
    struct gpu_matrix matrices[4 * LAYERS + 1];
    struct gpu_op ops[4 * LAYERS + 1];
    struct gpu_program program;
    struct gpu_limits limits;
};

static void add_product(struct rig *rig, uint32_t rows, uint32_t cols, enum op_to to) {
    uint32_t at = rig->program.matrix_count++;
    rig->matrices[at] = (struct gpu_matrix){.rows = rows, .cols = cols, .form = GPU_BF16};
    rig->ops[rig->program.op_count++] = (struct gpu_op){.kind = OP_MATMUL, .matrix = at, .to = to};
}

static void open_rig(struct rig *rig) {
    *rig = (struct rig){.program = {.width = 2560,
                                    .ffn = 9728,
                                    .heads = 32,
                                    .kv_heads = 8,
                                    .head_dim = 128,
                                    .vocab_rows = 151936,
                                    .vocab = 151669,
                                    .rope_count = 1,
                                    .rotary_dim = {128}},
                        .limits = {.rows_max = 2048,
                                   .logit_rows_max = 528,
                                   .sequences_max = 528,
                                   .context_max = 32768,
                                   .layer_places = LAYERS,
                                   .group_count = 1,
                                   .page_count_max = 1 << 20,
                                   .page_count_min = 2048,
                                   .steps_max = 2,
                                   .pages_max = 528 * 2048,
                                   .items_max = 4096,
                                   .partials_max = 4096,
                                   .kv_form = GPU_BF16}};
    for (int i = 0; i < LAYERS; i++) {
        add_product(rig, (32 + 16) * 128, 2560, TO_WIDE);
        add_product(rig, 2560, 32 * 128, TO_H);
        add_product(rig, 2 * 9728, 2560, TO_WIDE);
        add_product(rig, 2560, 9728, TO_H);
    }
    rig->matrices[rig->program.matrix_count++] =
        (struct gpu_matrix){.rows = 151936, .cols = 2560, .form = GPU_BF16};
    rig->limits.edits_max = edits_of(&rig->limits);
    rig->program.matrices = rig->matrices;
    rig->program.ops = rig->ops;
}

static void a_ledger_is_the_sum_of_its_parts_and_fills_the_limit(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    struct memory_ledger is = gpu_ledger_predict(&rig.program, &rig.limits, 15900 * MIB);
    assert_int_equal(is.used, is.context + is.weights + is.activations + is.logits + is.steps +
                                  is.workspace + is.kv);
    assert_true(is.used <= is.limit && is.limit - is.used < is.page_bytes);
    assert_int_equal(is.page_bytes, 36 * 2 * 8 * 16 * 128 * 2);
    /* 4.02 G parameters in 2 bytes, and the angles of 32,768 positions. */
    assert_in_range(is.weights / MIB, 7660, 7700);
    uint64_t logits = (uint64_t)2 * 640 * 151936 * 4 + rig.limits.edits_max * UINT64_C(4);
    assert_int_equal(is.logits / MIB, logits / MIB);
}

static struct memory_ledger refuse(const struct rig *rig, uint64_t mib, struct error *error) {
    struct memory_ledger is = gpu_ledger_predict(&rig->program, &rig->limits, mib * MIB);
    const struct gpu_refusal refusal = {
        .program = &rig->program, .limits = &rig->limits, .ledger = &is, .urgent_sequences = 16};
    assert_true(is.used > is.limit);
    assert_int_equal(gpu_ledger_refuse(&refusal, error), ERR_LIMIT);
    return is;
}

static void a_refusal_names_the_parts_and_the_largest_settings_that_fit(void **state) {
    (void)state;
    struct rig rig;
    struct error error;
    unsigned context, sequences;
    open_rig(&rig);
    refuse(&rig, 13500, &error);
    const char *advice = strstr(error.text, "it fits with --max-model-len ");
    assert_non_null(strstr(error.text, "driver 608, weights 76"));
    if (!advice) fail_msg("%s", error.text);
    assert_int_equal(sscanf(advice, "it fits with --max-model-len %u or with --max-num-seqs %u",
                            &context, &sequences),
                     2);
    /* They fit, and one step more does not. */
    for (int more = 0; more < 2; more++) {
        struct rig other = rig;
        other.limits.context_max = context + 64 * more;
        other.limits.page_count_min = (context + 64 * more + 15) / 16;
        other.limits.pages_max = 528 * other.limits.page_count_min;
        struct memory_ledger is = gpu_ledger_predict(&rig.program, &other.limits, 13500 * MIB);
        assert_int_equal(is.used <= is.limit, !more);
        other = rig;
        other.limits.sequences_max = other.limits.logit_rows_max = sequences + 16 + more;
        other.limits.pages_max = other.limits.sequences_max * 2048;
        other.limits.edits_max = edits_of(&other.limits);
        is = gpu_ledger_predict(&rig.program, &other.limits, 13500 * MIB);
        assert_int_equal(is.used <= is.limit, !more);
    }
}

static void expect_advice(const struct rig *rig, uint64_t mib, const char *advice) {
    struct error error;
    refuse(rig, mib, &error);
    if (!strstr(error.text, advice)) fail_msg("%s", error.text);
    assert_true(strlen(error.text) < ERROR_TEXT_BYTES - 1);
}

static void without_such_settings_it_names_8_bits_or_nothing(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    expect_advice(&rig, 6000, "; only less of several together would fit: --max-model-len");
    rig.limits.context_max = 256;
    rig.limits.page_count_min = 16;
    expect_advice(&rig, 7000, "; it fits with --quantization fp8 or int8");
    expect_advice(&rig, 3000, "; no setting makes it fit: use a smaller model, or --device cpu");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ledger_is_the_sum_of_its_parts_and_fills_the_limit),
        cmocka_unit_test(a_refusal_names_the_parts_and_the_largest_settings_that_fit),
        cmocka_unit_test(without_such_settings_it_names_8_bits_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

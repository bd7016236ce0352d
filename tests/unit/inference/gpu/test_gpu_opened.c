/* SPDX-License-Identifier: Apache-2.0 */
#include "executor_rig.h"
#include "gpu/gpu_limits.h"

/* card_fit against the executor, which opens a GPU that is laid out as memory_ledger predicts. */

static struct gpu_limits prepared_limits;
static struct memory_ledger prepared_ledger;

/* Lays out a GPU of CUDA as memory_ledger predicts it. */
static enum err prepare_predicted(struct gpu *gpu, const struct gpu_program *program,
                                  const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                                  struct error *error) {
    (void)gpu;
    prepared_limits = *limits;
    prepared_ledger = *ret_ledger = gpu_ledger_predict(program, limits, prepared_ledger.limit);
    return ret_ledger->used <= ret_ledger->limit ? OK : err_set(error, ERR_LIMIT, "too large");
}

static const struct gpu_table *predicted_table(uint64_t memory_bytes) {
    static struct gpu_table table;
    table = *quern_gpu_table();
    table.prepare = prepare_predicted;
    prepared_ledger.limit = memory_bytes;
    return &table;
}

static void expect_prediction(const char *name, const struct forms *forms, uint64_t memory_bytes) {
    struct rig rig;
    struct error error;
    enum err err = open_on(&rig, predicted_table(memory_bytes), name, forms, 0, memory_bytes,
                           &(struct executor_limits){0}, &error);
    const struct tensor_name head = tensor_name_of(ROLE_HEAD, 0);
    const struct card_fit fit = card_fit_of(
        &(struct card_fit_options){.config = &rig.config,
                                   .is_tied = !checkpoint_find(rig.checkpoint, str_from(head.text)),
                                   .weights = forms->weights,
                                   .kv = forms->kv,
                                   .memory_bytes = memory_bytes,
                                   .sequence_tokens = 16});
    assert_int_equal(err, fit.is_fitting ? OK : ERR_LIMIT);
    assert_memory_equal(&fit.limits, &prepared_limits, sizeof prepared_limits);
    assert_memory_equal(&fit.ledger, &prepared_ledger, offsetof(struct memory_ledger, page_count));
    assert_int_equal(fit.ledger.page_count, prepared_ledger.page_count);
    if (err == OK) {
        assert_int_equal(rig.own.caps.page_count, fit.ledger.page_count);
        assert_int_equal(rig.own.caps.sequences_max, fit.sequences);
    }
    close_rig(&rig);
}

static void a_card_is_predicted_as_it_is_then_opened(void **state) {
    (void)state;
    static const uint64_t mib[] = {600, 650, 700, 800, 1000, 1500, 4000};
    static const struct forms forms[] = {{GPU_BF16, GPU_BF16, false},
                                         {GPU_BF16, GPU_E4M3, false},
                                         {GPU_E4M3, GPU_E4M3, false},
                                         {GPU_INT8, GPU_BF16, false}};
    uint32_t sequences_least = UINT32_MAX, sequences_most = 0;
    for (size_t i = 0; i < MODELS; i++)
        for (size_t j = 0; j < sizeof mib / sizeof *mib; j++)
            for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
                expect_prediction(models[i], &forms[k], mib[j] << 20);
                uint32_t sequences = prepared_limits.sequences_max;
                if (sequences < sequences_least) sequences_least = sequences;
                if (sequences > sequences_most) sequences_most = sequences;
            }
    /* The GPUs are so different that the default is halved from its most to its least. */
    assert_int_equal(sequences_most, GPU_SEQUENCES_DEFAULT);
    assert_int_equal(sequences_least, 32);
}

static uint32_t trials;

static enum err trial(struct gpu *gpu, uint32_t rows, uint64_t *ret_ns, struct error *error) {
    (void)gpu, (void)error;
    trials++;
    *ret_ns = 1000000 + rows; /* the most rows are by far the best */
    return OK;
}

/* The trials for the rows of a step, which takes all that it has room for. */
static uint32_t trials_of(bool leaves_experts) {
    const uint64_t memory_bytes = (uint64_t)4000 << 20;
    const struct forms forms = {GPU_BF16, GPU_BF16, leaves_experts};
    const struct executor_limits limits = {.rows_max = 1024};
    struct rig rig;
    struct error error;
    struct gpu_table table = *predicted_table(memory_bytes);
    uint32_t rows;
    table.trial = trial;
    must(open_on(&rig, &table, "tiny_next/qwen3_moe", &forms, 0, memory_bytes, &limits, &error),
         &error);
    assert_int_equal(prepared_limits.experts_away > 0, leaves_experts);
    trials = 0;
    must(executor_gpu_rows(&rig.own, &rows, &error), &error);
    assert_int_equal(rows, 1024);
    close_rig(&rig);
    return trials;
}

static void a_step_that_waits_for_the_bus_has_all_rows_without_trials(void **state) {
    (void)state;
    assert_true(trials_of(false) > 0);
    assert_int_equal(trials_of(true), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_is_predicted_as_it_is_then_opened),
        cmocka_unit_test(a_step_that_waits_for_the_bus_has_all_rows_without_trials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

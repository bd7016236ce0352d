/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps of the plain GPU against a decoder in double precision. */

static const struct world_traits shapes[] = {
    {"plain", 32, 48, 4, 4, 16, 1.0f, .has_head = true, .tolerance = 2e-5},
    {"GQA, window, softcap, post norms, tied", 48, 40, 6, 2, 32, 4.0f, .window = 20,
     .softcap = 3.0f, .logit_softcap = 5.0f, .has_post = true, .is_gelu = true, .tolerance = 2e-5},
    {"head norms, biases, magnitude, a part turns", 32, 64, 4, 1, 64, 1.0f, .window = 7,
     .magnitude = 1.2f, .rotary = 24, .has_head_norms = true, .has_bias = true, .has_head = true,
     .tolerance = 2e-5},
    {"bf16", 32, 48, 4, 2, 16, 1.0f, .has_head = true, .form = GPU_BF16, .kv_form = GPU_BF16,
     .tolerance = 0.06},
    {"E4M3 keys and values", 32, 48, 4, 2, 16, 1.0f, .window = 33, .has_head = true,
     .kv_form = GPU_E4M3, .tolerance = 0.4},
    {"experts", 32, 24, 4, 4, 16, 1.0f, .has_head = true, .tolerance = 1e-4, .experts = 9,
     .used = 3},
    {"all experts, post norms, window", 32, 24, 4, 2, 16, 1.0f, .window = 20, .has_post = true,
     .is_gelu = true, .has_head = true, .tolerance = 1e-4, .experts = 3, .used = 3},
    {"sinks, clamped gates, biases, window", 32, 24, 8, 2, 16, 1.0f, .window = 20,
     .magnitude = 1.2f, .has_bias = true, .has_sinks = true, .is_clamped = true, .has_head = true,
     .tolerance = 1e-4, .experts = 9, .used = 4},
    {"states, gated attention between them", 32, 48, 4, 2, 16, 1.0f, .rotary = 4,
     .has_head_norms = true, .has_head = true, .tolerance = 1e-4, .recurrent = 5, .k_heads = 2,
     .v_heads = 4, .state_dim = 8, .has_output_gate = true},
    {"tiled states, gated attention behind them", 32, 48, 4, 2, 16, 1.0f, .has_head = true,
     .tolerance = 1e-4, .recurrent = 3, .k_heads = 2, .v_heads = 6, .state_dim = 12,
     .is_tiled = true, .has_output_gate = true},
    {"a shared expert with a factor", 32, 48, 4, 2, 16, 1.0f, .has_head = true, .tolerance = 1e-4,
     .experts = 12, .used = 3, .shared_ffn = 64, .shared_is_scaled = true},
    {"sigmoids in groups, a shared expert, states", 32, 48, 4, 2, 16, 1.0f, .has_head = true,
     .tolerance = 1e-4, .experts = 12, .used = 3, .shared_ffn = 32, .groups = 4, .groups_used = 2,
     .recurrent = 5, .k_heads = 2, .v_heads = 4, .state_dim = 8, .has_output_gate = true},
    {"sigmoids without groups, convolutions, post norms", 32, 48, 4, 2, 16, 1.0f, .has_post = true,
     .is_gelu = true, .tolerance = 1e-4, .experts = 6, .used = 2, .groups = 1, .recurrent = 6},
    {"states in bf16", 32, 48, 4, 2, 16, 1.0f, .has_head = true, .tolerance = 0.05, .recurrent = 1,
     .k_heads = 2, .v_heads = 2, .state_dim = 8, .state_form = GPU_BF16},
    {"Mamba-2, squares", 32, 48, 4, 2, 16, 1.0f, .has_head = true, .tolerance = 1e-4,
     .recurrent = 5, .k_heads = 2, .v_heads = 6, .state_dim = 8, .is_mamba = true,
     .is_ungated = true},
    {"convolutions", 32, 48, 4, 2, 16, 1.0f, .has_head = true, .tolerance = 1e-4, .recurrent = 6},
    {"a convolution first, post norms, window", 32, 48, 4, 2, 16, 1.0f, .window = 20,
     .has_post = true, .is_gelu = true, .tolerance = 1e-4, .recurrent = 1},
    {"heads of two sizes, shared keys, parts of tokens", 32, 48, 4, 2, 16, 1.0f, .window = 20,
     .has_post = true, .has_head_norms = true, .is_gelu = true, .has_head = true, .tolerance = 1e-4,
     .wide_dim = 32, .wide_kv_heads = 1, .norms_v = true, .shares_keys = true, .input_width = 8,
     .x_scale = 0.7f},
    {"experts beside a feed-forward", 32, 24, 4, 2, 16, 1.0f, .window = 20, .has_post = true,
     .is_gelu = true, .has_head = true, .tolerance = 1e-4, .experts = 6, .used = 2, .wide_dim = 32,
     .wide_kv_heads = 2, .norms_v = true, .x_scale = 0.7f, .has_both = true},
    {"entries for all heads", 32, 48, 4, 1, 48, 1.0f, .rotary = 16, .has_head = true,
     .tolerance = 1e-4, .rank = 32, .still_dim = 24, .value_dim = 20},
    {"entries, two products of q, sigmoids in groups", 32, 48, 4, 1, 48, 1.0f, .rotary = 16,
     .has_head = true, .tolerance = 1e-4, .rank = 32, .q_rank = 28, .still_dim = 24,
     .value_dim = 20, .experts = 8, .used = 3, .shared_ffn = 32, .groups = 4, .groups_used = 2},
    {"entries in bf16", 32, 48, 4, 1, 48, 1.0f, .rotary = 16, .has_head = true, .form = GPU_BF16,
     .kv_form = GPU_BF16, .tolerance = 0.1, .rank = 32, .q_rank = 28, .still_dim = 24,
     .value_dim = 20},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* The largest difference over the logits of the step waited for last. */
static void expect_logits(const struct world *world, const struct world_references *references,
                          const struct world_step *step) {
    struct error error = {0};
    uint32_t count = step->step.wanted_count, rows = world->vocab_rows;
    float *logits = calloc((size_t)count * rows, sizeof *logits);
    expect_ok(world->table->logits(world->gpu, 0, count, logits, &error), &error);
    struct world_difference most = world_compare(world, references, step, logits);
    if (most.off > world->traits.tolerance)
        fail_msg("%s: sequence %u at %u: logit %u is off by %g", world->traits.name, most.sequence,
                 most.position, most.token, most.off);
    free(logits);
}

static void run_steps(struct world *world, const struct world_references *references,
                      bool wants_all, unsigned how) {
    struct world_step *step = calloc(1, sizeof *step);
    struct error error = {0};
    struct gpu_result result = {0};
    for (uint32_t i = 0; i < WORLD_COURSE; i++) {
        world_plan(world, step, i + 1, world_course[i], world_course_runs(i), wants_all, how);
        expect_ok(world->table->submit(world->gpu, &step->step, NULL, &error), &error);
        expect_ok(world->table->wait(world->gpu, i + 1, &result, &error), &error);
        assert_int_equal(result.nonfinite_rows, 0);
        expect_logits(world, references, step);
    }
    free(step);
}

static void every_shape_and_every_plan_agrees_with_the_reference(void **state) {
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct world_references references;
        struct world world;
        world_make(&world, &shapes[i], 7 + i);
        world_references_open(&world, &references);
        world_close(&world);
        for (unsigned how = 0; how < PLAN_WAYS; how++) {
            world_open(&world, &shapes[i], 7 + i);
            run_steps(&world, &references, how % 3 == 0, how);
            world_close(&world);
        }
        world_references_close(&references);
    }
}

/* ---- copies ---- */

static void a_sequence_may_begin_with_copied_pages(void **state) {
    (void)state;
    struct world_step *step = calloc(1, sizeof *step);
    struct error error = {0};
    struct gpu_result result = {0};
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct world_references references;
        struct world world;
        world_open(&world, &shapes[i], 70 + i);
        world_references_open(&world, &references);
        for (uint32_t at = 0; at < WORLD_COPY_STEPS; at++) {
            world_plan_copies(&world, step, at + 1, at, PLAN_TILES | PLAN_PREFIX);
            expect_ok(world.table->submit(world.gpu, &step->step, NULL, &error), &error);
            memset(step->copies, 0xa5, sizeof step->copies);
            expect_ok(world.table->wait(world.gpu, at + 1, &result, &error), &error);
            expect_logits(&world, &references, step);
        }
        world_references_close(&references);
        world_close(&world);
    }
    free(step);
}

static void a_step_is_copied_when_it_is_submitted(void **state) {
    (void)state;
    struct world_references references;
    struct world world;
    struct error error = {0};
    struct gpu_result result = {0};
    struct world_step *step = calloc(1, sizeof *step), *lost = calloc(1, sizeof *lost);
    const struct world_run runs[] = {{0, 0, 40, false}, {3, 0, 20, false}};
    world_open(&world, &shapes[1], 3);
    world_references_open(&world, &references);
    world_plan(&world, step, 1, runs, 2, true, PLAN_TILES | PLAN_CUT | PLAN_LIST);
    world_plan(&world, lost, 1, runs, 2, true, PLAN_TILES | PLAN_CUT | PLAN_LIST);
    expect_ok(world.table->submit(world.gpu, &lost->step, NULL, &error), &error);
    memset(lost, 0xa5, sizeof *lost);
    free(lost);
    expect_ok(world.table->wait(world.gpu, 1, &result, &error), &error);
    expect_logits(&world, &references, step);
    world_references_close(&references);
    world_close(&world);
    free(step);
}

static void weights_may_come_in_parts_and_in_another_order(void **state) {
    (void)state;
    struct world_references references;
    struct world world;
    struct error error = {0};
    struct gpu_result result = {0};
    struct world_step *step = calloc(1, sizeof *step);
    const struct world_run runs[] = {{0, 0, 12, false}};
    world_make(&world, &shapes[0], 4);
    world_references_open(&world, &references);
    struct gpu_options options = {.memory_bytes = 64u << 20};
    expect_ok(world.table->open(&world.gpu, &options, &error), &error);
    expect_ok(world.table->prepare(world.gpu, &world.program, &world.limits, &world.ledger, &error),
              &error);
    for (uint32_t m = 0; m < world.program.matrix_count; m++) {
        uint32_t rows = world.matrices[m].rows, cols = world.matrices[m].cols, half = rows / 2;
        uint32_t *order = calloc(rows, sizeof *order);
        float *reversed = calloc((size_t)half * cols, sizeof *reversed);
        for (uint32_t i = 0; i < half; i++) {
            order[i] = half - 1 - i;
            memcpy(reversed + (size_t)order[i] * cols, world.values[m] + (size_t)i * cols,
                   cols * sizeof *reversed);
        }
        struct gpu_rows second = {.matrix = m,
                                  .row_first = half,
                                  .rows = rows - half,
                                  .type = TENSOR_F32,
                                  .blocks = world.values[m] + (size_t)half * cols};
        struct gpu_rows first = {
            .matrix = m, .rows = half, .type = TENSOR_F32, .blocks = reversed, .row_order = order};
        expect_ok(world.table->fill(world.gpu, &second, &error), &error);
        expect_ok(world.table->fill(world.gpu, &first, &error), &error);
        free(order);
        free(reversed);
    }
    expect_ok(world.table->warm(world.gpu, &error), &error);
    world_plan(&world, step, 1, runs, 1, true, PLAN_TILES);
    expect_ok(world.table->submit(world.gpu, &step->step, NULL, &error), &error);
    expect_ok(world.table->wait(world.gpu, 1, &result, &error), &error);
    expect_logits(&world, &references, step);
    world_references_close(&references);
    world_close(&world);
    free(step);
}

/* ---- single operations ---- */

static void a_program_run_one_operation_at_a_time_gives_the_step_s_logits(void **state) {
    (void)state;
    struct world world;
    struct error error = {0};
    struct gpu_result result = {0};
    struct world_step *step = calloc(1, sizeof *step);
    const struct world_run runs[] = {{0, 0, 34, false}, {3, 0, 3, false}};
    static float buffers[6][WORLD_ROWS * 512], wanted[WORLD_ROWS * 64], logits[WORLD_ROWS * 64];
    for (uint32_t i = 0; i < SHAPES; i++) {
        world_open(&world, &shapes[i], 11);
        world_plan(&world, step, 1, runs, 2, false, PLAN_TILES);
        expect_ok(world.table->submit(world.gpu, &step->step, NULL, &error), &error);
        expect_ok(world.table->wait(world.gpu, 1, &result, &error), &error);
        expect_ok(world.table->logits(world.gpu, 0, 2, wanted, &error), &error);
        bool is_behind_keep = false;
        for (uint32_t op = 0; op < world.program.op_count; op++) {
            struct gpu_op_call call = {.op = op,
                                       .step = &step->step,
                                       .is_behind_keep = is_behind_keep,
                                       .x = buffers[0],
                                       .h = buffers[1],
                                       .wide = buffers[2],
                                       .attended = buffers[3],
                                       .narrow = buffers[4],
                                       .shared = buffers[5],
                                       .logits = logits};
            expect_ok(world.table->run_op(world.gpu, &call, &error), &error);
            is_behind_keep |= world.ops[op].kind == OP_KEEP;
        }
        assert_memory_equal(logits, wanted, 2 * world.vocab_rows * sizeof *logits);
        struct gpu_counters counters;
        expect_ok(world.table->counters(world.gpu, &counters, &error), &error);
        assert_int_equal(counters.steps, 1);
        assert_int_equal(counters.rows, 37);
        assert_true(counters.busy_ns > 0 && counters.op_ns[OP_MATMUL] == 0);
        world_close(&world);
    }
    free(step);
}

/* ---- two steps in flight ---- */

/* Greedy draws of all wanted rows, each for the slot of its sequence. */
static void set_greedy(const struct world_step *step, struct gpu_samples *ret_samples,
                       struct gpu_draw *draws, uint32_t *rows) {
    for (uint32_t i = 0; i < step->step.wanted_count; i++) {
        rows[i] = i;
        draws[i] = (struct gpu_draw){.mask = -1, .slot = (int32_t)step->sequences[step->wanted[i]]};
    }
    *ret_samples = (struct gpu_samples){.number = step->step.number,
                                        .count = step->step.wanted_count,
                                        .rows = rows,
                                        .draws = draws};
}

/* Submits step `number`, in which sequence 0 decodes and, in the second, sequence 3's prompt
 * joins. Draws come with the submit, or late. */
static void submit_greedy(struct world *world, struct world_step *step, uint32_t number,
                          bool is_late) {
    struct error error = {0};
    struct gpu_draw draws[WORLD_SEQUENCES];
    struct gpu_samples samples;
    uint32_t rows[WORLD_SEQUENCES];
    struct world_run runs[] = {
        {0, number == 1 ? 0 : 32 + number, number == 1 ? 34 : 1, number > 1},
        {3, number == 2 ? 0 : 18 + number, number == 2 ? 21 : 1, number > 2}};
    world_plan(world, step, number, runs, number == 1 ? 1 : 2, false, PLAN_TILES | PLAN_CUT);
    set_greedy(step, &samples, draws, rows);
    expect_ok(world->table->submit(world->gpu, &step->step, is_late ? NULL : &samples, &error),
              &error);
    if (is_late) expect_ok(world->table->sample(world->gpu, &samples, &error), &error);
    memset(draws, 0xa5, sizeof draws);
    memset(rows, 0xa5, sizeof rows);
}

/* Waits for step `number` and appends the tokens of its sequences. */
static void end_greedy(struct world *world, uint32_t number) {
    struct error error = {0};
    int32_t tokens[WORLD_ROWS];
    struct gpu_result result = {.tokens = tokens};
    expect_ok(world->table->wait(world->gpu, number, &result, &error), &error);
    world->sequences[0].tokens[33 + number] = tokens[0];
    if (number > 1) world->sequences[3].tokens[19 + number] = tokens[1];
}

static void expect_greedy(const struct world *world, uint32_t sequence, uint32_t begin,
                          uint32_t end) {
    const int32_t *tokens = world->sequences[sequence].tokens;
    double *logits = calloc((size_t)WORLD_CONTEXT * world->vocab_rows, sizeof *logits);
    world_reference(world, tokens, end, logits);
    for (uint32_t i = begin; i < end; i++) {
        const double *row = logits + (size_t)(i - 1) * world->vocab_rows;
        for (uint32_t j = 0; j < world->vocab; j++)
            if (row[j] > row[tokens[i]] + 1e-4)
                fail_msg("sequence %u: token %u is %d (%g), and %u has %g", sequence, i, tokens[i],
                         row[tokens[i]], j, row[j]);
    }
    free(logits);
}

static void pending_tokens_are_those_of_the_step_before(void **state) {
    (void)state;
    const uint32_t steps = 20;
    for (unsigned late = 0; late < 2; late++) {
        struct world world;
        struct world_step *step = calloc(1, sizeof *step);
        world_open(&world, &shapes[1], 5);
        submit_greedy(&world, step, 1, late);
        for (uint32_t number = 2; number <= steps; number++) {
            submit_greedy(&world, step, number, late && number % 2 == 0);
            end_greedy(&world, number - 1);
        }
        end_greedy(&world, steps);
        expect_greedy(&world, 0, 34, 34 + steps);
        expect_greedy(&world, 3, 21, 20 + steps);
        world_close(&world);
        free(step);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_and_every_plan_agrees_with_the_reference),
        cmocka_unit_test(a_step_is_copied_when_it_is_submitted),
        cmocka_unit_test(a_sequence_may_begin_with_copied_pages),
        cmocka_unit_test(weights_may_come_in_parts_and_in_another_order),
        cmocka_unit_test(a_program_run_one_operation_at_a_time_gives_the_step_s_logits),
        cmocka_unit_test(pending_tokens_are_those_of_the_step_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

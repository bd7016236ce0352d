/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "executor_rig.h"
#include "gpu/gpu_limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT 256u
#define BLOCKS (CONTEXT / BACKEND_BLOCK_TOKENS)
#define SEQUENCES 8u
#define ROWS 64u

static const struct executor_limits small_limits = {.rows_max = ROWS,
                                                    .sequences_max = SEQUENCES,
                                                    .context_max = CONTEXT,
                                                    .block_count = SEQUENCES * BLOCKS};

static const struct forms plain_forms = {GPU_F32, GPU_F32, false};

/* ---- logits ---- */

/* Sequences whose rows come in random pieces. Each begins with the blocks that the first one has,
 * and waits until these are written. */
struct course {
    struct rng rng;
    uint32_t groups, full_groups, window;
    uint32_t shared; /* tokens */
    int32_t tokens[SEQUENCES][CONTEXT];
    uint32_t counts[SEQUENCES];
    uint32_t done[SEQUENCES];
    uint32_t pages[SEQUENCES][BACKEND_GROUPS_MAX * BLOCKS];
    struct step step;
    struct step_sequence sequences[SEQUENCES];
    struct logit_row logit_rows[ROWS];
    int32_t step_tokens[ROWS];
    uint32_t positions[ROWS];
};

static uint32_t below(struct rng *rng, uint32_t bound) {
    return (uint32_t)rng_below(rng, bound);
}

static void make_course(struct course *course, const struct backend_caps *caps, uint64_t seed) {
    *course = (struct course){.rng = {seed},
                              .full_groups = caps->full_pages,
                              .groups = caps->full_pages + caps->window_pages,
                              .window = caps->window_tokens};
    course->shared = BACKEND_BLOCK_TOKENS * (4 + below(&course->rng, 3));
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        course->counts[i] =
            course->shared + 10 + below(&course->rng, CONTEXT - course->shared - 10);
        course->done[i] = i == 0 ? 0 : course->shared;
        for (uint32_t j = 0; j < CONTEXT; j++)
            course->tokens[i][j] = i > 0 && j < course->shared
                                       ? course->tokens[0][j]
                                       : (int32_t)below(&course->rng, caps->vocab);
        for (uint32_t group = 0; group < course->groups; group++)
            for (uint32_t j = 0; j < BLOCKS; j++) {
                uint32_t owner = j < course->shared / BACKEND_BLOCK_TOKENS ? 0 : i;
                course->pages[i][group * BLOCKS + j] =
                    (owner * BLOCKS + j) * course->groups + group;
            }
    }
}

/* Gives a window group's entries that no row sees any page. */
static void forget_passed(struct course *course, uint32_t at) {
    uint32_t first = backend_first_seen_block(course->window, course->done[at]);
    if (course->window == 0) return;
    for (uint32_t group = course->full_groups; group < course->groups; group++)
        for (uint32_t j = 0; j < first; j++) course->pages[at][group * BLOCKS + j] = 7;
}

static void add_rows(struct course *course, uint32_t at) {
    struct step *step = &course->step;
    uint32_t left = course->counts[at] - course->done[at], room = ROWS - step->row_count;
    uint32_t count = below(&course->rng, 2) == 0 ? 1 : 1 + below(&course->rng, 40);
    if (count > left) count = left;
    if (count > room) count = room;
    if (count == 0) return;
    forget_passed(course, at);
    course->sequences[step->sequence_count] = (struct step_sequence){.slot = at,
                                                                     .row_first = step->row_count,
                                                                     .row_count = count,
                                                                     .kv_tokens = course->done[at],
                                                                     .block_count = BLOCKS,
                                                                     .page_stride = BLOCKS,
                                                                     .pages = course->pages[at]};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = step->row_count++;
        course->step_tokens[row] = course->tokens[at][course->done[at]];
        course->positions[row] = course->done[at]++;
        if (i == count - 1 || below(&course->rng, 3) == 0)
            course->logit_rows[step->logit_count++] =
                (struct logit_row){.row = row, .sequence = step->sequence_count};
    }
    step->sequence_count++;
}

/* Makes the next step; false at the end. */
static bool make_step(struct course *course, uint64_t number) {
    course->step = (struct step){.number = number,
                                 .tokens = course->step_tokens,
                                 .positions = course->positions,
                                 .sequences = course->sequences,
                                 .logit_rows = course->logit_rows};
    bool is_shared = course->done[0] >= course->shared;
    for (uint32_t i = 0; i < (is_shared ? SEQUENCES : 1); i++)
        if (course->done[i] < course->counts[i] && below(&course->rng, 4) > 0) add_rows(course, i);
    if (course->step.row_count > 0) return true;
    for (uint32_t i = 0; i < SEQUENCES && course->step.row_count == 0; i++) add_rows(course, i);
    return course->step.row_count > 0;
}

static void expect_near(const float *expected, const float *logits, size_t count) {
    float largest = 0.0f;
    for (size_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(expected[i]));
    for (size_t i = 0; i < count; i++)
        assert_true(fabsf(logits[i] - expected[i]) <= 1e-4f * largest + 1e-4f);
}

static void logits_of_mixed_steps_are_those_of_the_cpu(void **state) {
    (void)state;
    struct course *course = calloc(1, sizeof *course);
    for (size_t i = 0; i < MODELS; i++) {
        struct rig cpu, gpu;
        struct error error;
        open_cpu(&cpu, models[i], &small_limits);
        open_gpu(&gpu, quern_gpu_table(), models[i], 2, &small_limits);
        size_t vocab = cpu.backend.caps.vocab;
        float *expected = calloc(ROWS * vocab, sizeof *expected);
        float *logits = calloc(ROWS * vocab, sizeof *logits);
        make_course(course, &cpu.backend.caps, i + 1);
        for (uint64_t number = 1; make_step(course, number); number++) {
            const struct executor *a = cpu.executor, *b = gpu.executor;
            must(a->ops->logits(a->self, &course->step, expected, &error), &error);
            must(b->ops->logits(b->self, &course->step, logits, &error), &error);
            expect_near(expected, logits, course->step.logit_count * vocab);
        }
        free(expected);
        free(logits);
        close_rig(&cpu);
        close_rig(&gpu);
    }
    free(course);
}

/* ---- opening ---- */

static void a_model_that_does_not_fit_is_refused_before_its_weights_are_read(void **state) {
    (void)state;
    struct rig rig;
    struct error error;
    assert_int_equal(
        open_on(&rig, quern_gpu_table(), "llama3", &plain_forms, 2, 2 << 20, &small_limits, &error),
        ERR_LIMIT);
    assert_non_null(strstr(error.text, "MiB"));
    close_rig(&rig);
}

static void the_default_of_sequences_follows_the_memory(void **state) {
    (void)state;
    static const uint64_t mib[] = {3000, 750};
    const struct executor_limits limits = {.context_max = CONTEXT};
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        struct error error;
        must(open_on(&rig, quern_gpu_table(), "llama3", &plain_forms, 2, mib[i] << 20, &limits,
                     &error),
             &error);
        const struct backend_caps *caps = &rig.own.caps;
        assert_int_equal(caps->rows_max, GPU_ROWS_DEFAULT);
        if (i == 0)
            assert_int_equal(caps->sequences_max, GPU_SEQUENCES_DEFAULT);
        else
            assert_in_range(caps->sequences_max, 32, GPU_SEQUENCES_DEFAULT / 2);
        assert_true(caps->page_count >= caps->sequences_max * BLOCKS);
        close_rig(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_mixed_steps_are_those_of_the_cpu),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused_before_its_weights_are_read),
        cmocka_unit_test(the_default_of_sequences_follows_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

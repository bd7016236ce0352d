/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Steps of the plain device against a decoder in double precision. */

static const struct world_traits shapes[] = {
    {.name = "plain",
     .width = 32,
     .ffn = 48,
     .heads = 4,
     .kv_heads = 4,
     .head_dim = 16,
     .embed_scale = 1.0f,
     .has_head = true,
     .tolerance = 2e-5},
    {.name = "GQA, window, softcap, post norms, tied",
     .width = 48,
     .ffn = 40,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 32,
     .window = 20,
     .softcap = 3.0f,
     .logit_softcap = 5.0f,
     .embed_scale = 4.0f,
     .has_post = true,
     .is_gelu = true,
     .tolerance = 2e-5},
    {.name = "head norms, biases, magnitude",
     .width = 32,
     .ffn = 64,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 64,
     .window = 7,
     .embed_scale = 1.0f,
     .magnitude = 1.2f,
     .has_head_norms = true,
     .has_bias = true,
     .has_head = true,
     .tolerance = 2e-5},
    {.name = "bf16",
     .width = 32,
     .ffn = 48,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .embed_scale = 1.0f,
     .has_head = true,
     .form = DEVICE_BF16,
     .kv_form = DEVICE_BF16,
     .tolerance = 0.06},
    {.name = "E4M3 keys and values",
     .width = 32,
     .ffn = 48,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .window = 33,
     .embed_scale = 1.0f,
     .has_head = true,
     .kv_form = DEVICE_E4M3,
     .tolerance = 0.4},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

struct references {
    double *logits[WORLD_SEQUENCES]; /* (WORLD_CONTEXT, vocab_rows) */
};

static void open_references(const struct world *world, struct references *ret) {
    for (uint32_t s = 0; s < WORLD_SEQUENCES; s++) {
        ret->logits[s] = calloc((size_t)WORLD_CONTEXT * world->vocab_rows, sizeof(double));
        world_reference(world, world->sequences[s].tokens, WORLD_CONTEXT, ret->logits[s]);
    }
}

static void close_references(struct references *references) {
    for (uint32_t s = 0; s < WORLD_SEQUENCES; s++) free(references->logits[s]);
}

static void expect_ok(enum err err, const struct error *error) {
    if (err != OK) fail_msg("%s", error->text);
}

/* The largest difference over the logits of the step waited for last. */
static void expect_logits(const struct world *world, const struct references *references,
                          const struct world_step *step) {
    struct error error = {0};
    uint32_t count = step->step.wanted_count, rows = world->vocab_rows;
    float *logits = calloc((size_t)count * rows, sizeof *logits);
    expect_ok(world->table->logits(world->device, 0, count, logits, &error), &error);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = step->wanted[i];
        const double *wanted =
            references->logits[step->sequences[row]] + (size_t)step->positions[row] * rows;
        for (uint32_t j = 0; j < rows; j++) {
            double apart = fabs((double)logits[(size_t)i * rows + j] - wanted[j]);
            if (!(apart <= world->traits.tolerance))
                fail_msg("%s: sequence %u at %u: logit %u is %g, not %g", world->traits.name,
                         step->sequences[row], step->positions[row], j,
                         (double)logits[(size_t)i * rows + j], wanted[j]);
        }
    }
    free(logits);
}

/* A prompt in pieces, sequences that join behind a common prefix, and decode. */
static void run_steps(struct world *world, const struct references *references, bool wants_all,
                      unsigned how) {
    static const struct world_run steps[][WORLD_SEQUENCES] = {
        {{0, 0, 40, false}},
        {{0, 40, 13, false}, {1, 32, 9, false}, {3, 0, 37, false}},
        {{0, 53, 1, false}, {1, 41, 30, false}, {2, 32, 20, false}, {3, 37, 1, false}},
        {{0, 54, 1, false}, {1, 71, 1, false}, {2, 52, 1, false}, {3, 38, 1, false}},
        {{1, 72, 1, false}, {2, 53, 1, false}},
    };
    struct world_step *step = calloc(1, sizeof *step);
    struct error error = {0};
    struct device_result result = {0};
    for (uint32_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        uint32_t count = 0;
        while (count < WORLD_SEQUENCES && steps[i][count].count > 0) count++;
        world_plan(world, step, i + 1, steps[i], count, wants_all, how);
        expect_ok(world->table->submit(world->device, &step->step, NULL, &error), &error);
        expect_ok(world->table->wait(world->device, i + 1, &result, &error), &error);
        assert_int_equal(result.nonfinite_rows, 0);
        expect_logits(world, references, step);
    }
    free(step);
}

static void every_shape_and_every_plan_agrees_with_the_reference(void **state) {
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct references references;
        struct world world;
        world_make(&world, &shapes[i], 7 + i);
        open_references(&world, &references);
        world_close(&world);
        for (unsigned how = 0; how < PLAN_WAYS; how++) {
            world_open(&world, &shapes[i], 7 + i);
            run_steps(&world, &references, how % 3 == 0, how);
            world_close(&world);
        }
        close_references(&references);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_and_every_plan_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

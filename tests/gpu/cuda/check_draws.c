/* SPDX-License-Identifier: Apache-2.0 */

/* The draws of steps: at once and later, with and without statistics, and by as many calls as there
 * are rows. */

#include "check_plugin.h"
#include "plain_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t order_of(const float *logits, uint32_t vocab, uint32_t place) {
    for (uint32_t id = 0; id < vocab; id++) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < vocab; i++)
            before += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
        if (before == place) return id;
    }
    return 0;
}

/* Rows 0 and 1 are drawn at once, 2 and 3 later: greedy; the first forbidden; one allowed token;
 * top_k 1 at a temperature. */
static void check_early_and_late(struct world *world) {
    struct world_step *step = calloc(1, sizeof *step);
    int32_t tokens[WORLD_SEQUENCES], allowed = 17, named[2] = {3, 4};
    uint32_t early[2] = {0, 1}, late[2] = {2, 3}, mask[2] = {1u << allowed, 0};
    struct gpu_answer answers[3];
    float named_logits[2];
    struct gpu_result result = {.tokens = tokens, .answers = answers, .named_logits = named_logits};
    world_plan(world, step, 3000, world_course[3], 4, false, PLAN_TILES | PLAN_PREFIX);
    submit_checked(world, step, NULL);
    wait_checked(world, 3000, &result);
    float *logits = logits_checked(world, 4);
    const size_t stride = world->vocab_rows;
    struct draw_edit edit = {.row = 1,
                             .token = (int32_t)order_of(logits + stride, world->vocab, 0),
                             .kind = DRAW_FORBID};
    struct gpu_draw draws[4] = {{.mask = -1, .slot = 0},
                                {.mask = -1, .slot = 1, .edit_count = 1},
                                {.mask = 0, .slot = 2},
                                {.mask = -1, .slot = -1, .factor = 1, .top_k = 1, .seed = 5}};
    struct gpu_ask asks[3] = {{.row = 0, .token = -1, .top_count = 3},
                              {.row = 2, .token = -1, .named_count = 2},
                              {.row = 3, .token = 9}};
    struct gpu_samples first = {.number = 3001,
                                .count = 2,
                                .rows = early,
                                .draws = draws,
                                .mask_words = 2,
                                .edits = &edit,
                                .edit_count = 1,
                                .asks = asks,
                                .ask_count = 1};
    struct gpu_samples second = {.number = 3001,
                                 .count = 2,
                                 .rows = late,
                                 .draws = draws + 2,
                                 .masks = mask,
                                 .mask_count = 1,
                                 .mask_words = 2,
                                 .asks = asks + 1,
                                 .ask_count = 2,
                                 .named = named,
                                 .named_count = 2};
    step->step.number = 3001;
    submit_checked(world, step, &first);
    sample_checked(world, &second);
    wait_checked(world, 3001, &result);
    report(tokens[0] == (int32_t)order_of(logits, world->vocab, 0) &&
               tokens[1] == (int32_t)order_of(logits + stride, world->vocab, 1) &&
               tokens[2] == allowed &&
               tokens[3] == (int32_t)order_of(logits + 3 * stride, world->vocab, 0),
           "%s: draws at once and later take the tokens they must", world->traits.name);
    const float *third = logits + 2 * stride, *last = logits + 3 * stride;
    bool is_told =
        answers[0].token == tokens[0] && answers[0].rank == 1 && answers[0].top_count == 3 &&
        answers[0].top[2] == (int32_t)order_of(logits, world->vocab, 2) &&
        answers[1].token == allowed && answers[1].logit == third[allowed] &&
        named_logits[0] == third[3] && named_logits[1] == third[4] && answers[2].token == 9 &&
        answers[2].logit == last[9] && order_of(last, world->vocab, answers[2].rank - 1) == 9;
    report(is_told, "%s: answers are in the order of the asks", world->traits.name);
    free(logits);
    free(step);
}

/* Rows that need no statistics beside rows that do: all rows get one token by a mask; then row 0 is
 * greedy, the best of row 2 is forbidden, rows 1 and 3 have a top_p that keeps the best alone; then
 * the same with an ask, for which all rows have statistics. */
static void check_bare(struct world *world) {
    struct world_step *step = calloc(1, sizeof *step);
    int32_t tokens[3][WORLD_SEQUENCES];
    uint32_t rows[4] = {0, 1, 2, 3}, mask[2] = {1u << 17, 0};
    struct gpu_answer answer;
    struct gpu_result result = {.tokens = tokens[0], .answers = &answer};
    world_plan(world, step, 3200, world_course[3], 4, false, PLAN_TILES | PLAN_PREFIX);
    submit_checked(world, step, NULL);
    wait_checked(world, 3200, &result);
    float *logits = logits_checked(world, 4);
    const size_t stride = world->vocab_rows;
    const struct gpu_draw masked = {.mask = 0, .slot = -1};
    const struct gpu_draw bare = {
        .mask = -1, .slot = -1, .factor = 1, .offset = -INFINITY, .top_p = 1e-6f, .seed = 5};
    const struct gpu_draw all_masked[4] = {masked, masked, masked, masked};
    const struct gpu_draw draws[4] = {
        {.mask = -1, .slot = -1}, bare, {.mask = -1, .slot = -1, .edit_count = 1}, bare};
    const struct draw_edit edit = {.row = 2,
                                   .token = (int32_t)order_of(logits + 2 * stride, world->vocab, 0),
                                   .kind = DRAW_FORBID};
    const struct gpu_ask ask = {.row = 1, .token = -1, .top_count = 2};
    for (uint32_t i = 0; i < 3; i++) {
        const struct gpu_samples samples = {.number = 3201 + i,
                                            .count = 4,
                                            .rows = rows,
                                            .draws = i == 0 ? all_masked : draws,
                                            .masks = mask,
                                            .mask_count = i == 0,
                                            .mask_words = 2,
                                            .edits = &edit,
                                            .edit_count = i > 0,
                                            .asks = &ask,
                                            .ask_count = i == 2};
        result.tokens = tokens[i];
        step->step.number = 3201 + i;
        submit_checked(world, step, &samples);
        wait_checked(world, 3201 + i, &result);
    }
    bool is_right = true;
    for (uint32_t row = 0; row < 4; row++)
        is_right &=
            tokens[0][row] == 17 && tokens[1][row] == tokens[2][row] &&
            tokens[1][row] == (int32_t)order_of(logits + row * stride, world->vocab, row == 2);
    double sum = 0;
    for (uint32_t id = 0; id < world->vocab; id++) sum += exp((double)logits[stride + id]);
    is_right &=
        answer.token == tokens[2][1] && answer.rank == 1 && fabs(answer.lse - log(sum)) < 1e-5;
    report(is_right, "%s: rows with and without statistics take the tokens they must",
           world->traits.name);
    free(logits);
    free(step);
}

/* The token that row i of check_calls must take. */
static int32_t forced(const struct world *world, uint32_t row) {
    return (int32_t)(row * 7 % world->vocab);
}

/* Every row is drawn by a call of its own that has as many edits as a call may have: all tokens but
 * one are forbidden, and nothing is added to each again and again. */
static void check_calls(struct world *world) {
    struct world_step *step = calloc(1, sizeof *step);
    const uint32_t each = world->limits.edits_max / world->vocab, count = world_course[0][0].count;
    struct draw_edit *edits = calloc(world->limits.edits_max, sizeof *edits);
    int32_t *tokens = calloc(count, sizeof *tokens);
    struct gpu_result result = {.tokens = tokens};
    bool is_right = true;
    world_plan(world, step, 3500, world_course[0], 1, true, PLAN_TILES);
    for (uint32_t row = 0; row < count; row++) {
        for (uint32_t i = 0; i < each * world->vocab; i++)
            edits[i] = (struct draw_edit){.token = (int32_t)(i / each), .kind = DRAW_BIAS};
        for (uint32_t i = 0; i < world->vocab; i++)
            if ((int32_t)i != forced(world, row)) edits[i * each].kind = DRAW_FORBID;
        struct gpu_draw draw = {.mask = -1, .slot = -1, .edit_count = each * world->vocab};
        struct gpu_samples samples = {.number = 3500,
                                      .count = 1,
                                      .rows = &row,
                                      .draws = &draw,
                                      .mask_words = 2,
                                      .edits = edits,
                                      .edit_count = draw.edit_count};
        if (row == 0)
            submit_checked(world, step, &samples);
        else
            sample_checked(world, &samples);
        memset(edits, 0xa5, world->limits.edits_max * sizeof *edits);
    }
    wait_checked(world, 3500, &result);
    for (uint32_t row = 0; row < count; row++) is_right &= tokens[row] == forced(world, row);
    report(is_right, "%s: %u calls with %u edits each draw the rows of one step",
           world->traits.name, count, each * world->vocab);
    free(edits);
    free(tokens);
    free(step);
}

void check_draws(struct world *world) {
    check_early_and_late(world);
    check_bare(world);
    check_calls(world);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Draws and answers of the plain GPU against kernels/draw.h's definition, token by token, over
 * the logits that the GPU gives. */

#define ROWS 24u
#define VOCAB 50u /* tokens in the world */
#define WORDS ((VOCAB + 31) / 32)
#define EDITS 120u

struct rig {
    struct world world;
    struct world_step step;
    struct gpu_draw draws[ROWS];
    struct gpu_ask asks[ROWS];
    struct draw_edit edits[EDITS];
    uint32_t masks[ROWS * WORDS];
    uint32_t mask_count, edit_count;
    float logits[ROWS * 64];
    int32_t named[2 * ROWS];
    uint32_t named_count;
};

static uint32_t below(struct rig *rig, uint32_t bound) {
    return (uint32_t)rng_below(&rig->world.rng, bound);
}

static float between(struct rig *rig, double low, double high) {
    return (float)(low + (high - low) * rng_unit(&rig->world.rng));
}

/* ---- random draws ---- */

static void add_mask(struct rig *rig, struct gpu_draw *draw) {
    uint32_t *mask = rig->masks + (size_t)rig->mask_count * WORDS;
    draw->mask = (int32_t)rig->mask_count++;
    memset(mask, 0, WORDS * sizeof *mask);
    for (uint32_t count = 1 + below(rig, 20); count > 0; count--) {
        uint32_t token = below(rig, VOCAB);
        mask[token / 32] |= 1u << token % 32;
    }
    while (!(mask[draw->fallback / 32] >> draw->fallback % 32 & 1)) draw->fallback++;
}

static void add_edits(struct rig *rig, struct gpu_draw *draw, uint32_t row, bool holds_all) {
    draw->edit_begin = rig->edit_count;
    for (uint32_t token = 0; token < VOCAB; token++)
        for (int kind = DRAW_FORBID; kind <= DRAW_SUBTRACT; kind++) {
            bool is_wanted = holds_all ? kind == DRAW_HOLD : below(rig, 30) == 0;
            if (!is_wanted || rig->edit_count == EDITS) continue;
            rig->edits[rig->edit_count++] = (struct draw_edit){.row = row,
                                                               .token = (int32_t)token,
                                                               .kind = (enum draw_edit_kind)kind,
                                                               .value = between(rig, 0.5, 2.0)};
        }
    draw->edit_count = rig->edit_count - draw->edit_begin;
}

static void set_draws(struct rig *rig, uint32_t count) {
    const float temperatures[] = {0.0f, 0.3f, 1.0f, 5.0f}, top_ps[] = {0.0f, 0.3f, 0.9f, 1.0f};
    const uint32_t top_ks[] = {0, 1, 5, 30};
    rig->mask_count = rig->edit_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct gpu_draw *draw = &rig->draws[i];
        float temperature = temperatures[below(rig, 4)];
        *draw = (struct gpu_draw){.seed = rng_next(&rig->world.rng),
                                  .counter = below(rig, 1000),
                                  .factor = temperature > 0.0f ? draw_factor(temperature) : 0,
                                  .offset = draw_offset(temperature, below(rig, 3) ? 0.0f : 0.2f),
                                  .top_p = top_ps[below(rig, 4)],
                                  .top_k = top_ks[below(rig, 4)],
                                  .mask = -1,
                                  .slot = (int32_t)below(rig, 5) - 1};
        if (below(rig, 3) == 0) add_mask(rig, draw);
        if (below(rig, 3) == 0) add_edits(rig, draw, i, i == 0);
    }
}

/* ---- the definition ---- */

static void edited_of(const struct rig *rig, const struct gpu_draw *draw, const float *logits,
                      bool is_holding, float *ret) {
    for (uint32_t t = 0; t < VOCAB; t++) {
        bool is_out =
            draw->mask >= 0 && !(rig->masks[(size_t)draw->mask * WORDS + t / 32] >> t % 32 & 1);
        float value = draw_clean(logits[t]);
        for (uint32_t i = 0; i < draw->edit_count; i++) {
            const struct draw_edit *edit = &rig->edits[draw->edit_begin + i];
            if (edit->token != (int32_t)t) continue;
            is_out |= edit->kind == DRAW_HOLD && is_holding;
            value = draw_edited(value, edit->kind, edit->value);
        }
        ret[t] = is_out ? -INFINITY : draw_clean(value);
    }
}

/* Tokens before `token` in order of likelihood that min_p leaves, and what they weigh. */
static uint32_t before_of(const float *v, uint32_t token, float least, float max, float factor,
                          uint64_t *ret_weight) {
    uint32_t count = 0;
    *ret_weight = 0;
    for (uint32_t t = 0; t < VOCAB; t++) {
        if (!(v[t] >= least) || !(v[t] > v[token] || (v[t] == v[token] && t < token))) continue;
        count++;
        *ret_weight += draw_weight(v[t], max, factor);
    }
    return count;
}

static int32_t token_of(const struct rig *rig, const struct gpu_draw *draw, const float *logits) {
    float v[VOCAB], max = -INFINITY;
    int32_t best = -1;
    for (int holding = 1; holding >= 0 && best < 0; holding--) {
        edited_of(rig, draw, logits, holding, v);
        for (uint32_t t = 0; t < VOCAB; t++)
            if (v[t] > max) max = v[t], best = (int32_t)t;
    }
    if (best < 0) return draw->fallback;
    if (draw->factor == 0.0f) return best;
    float least = draw_least(max, draw->offset);
    uint64_t total = 0, before, weights[VOCAB];
    for (uint32_t t = 0; t < VOCAB; t++) {
        bool is_left = v[t] >= least;
        uint32_t rank = before_of(v, t, least, max, draw->factor, &before);
        if (draw->top_k > 0 && rank >= draw->top_k) is_left = false;
        weights[t] = is_left ? draw_weight(v[t], max, draw->factor) : 0;
        total += weights[t];
    }
    uint64_t enough =
        draw->top_p > 0.0f && draw->top_p < 1.0f ? draw_enough(draw->top_p, total) : UINT64_MAX;
    uint64_t kept = 0, sum = 0;
    for (uint32_t t = 0; t < VOCAB; t++) {
        (void)before_of(v, t, least, max, draw->factor, &before);
        if (before >= enough) weights[t] = 0;
        kept += weights[t];
    }
    uint64_t wanted = draw_wanted(rng_at(draw->seed, draw->counter), kept);
    for (uint32_t t = 0; t < VOCAB; t++) {
        sum += weights[t];
        if (sum > wanted) return (int32_t)t;
    }
    return -1;
}

static void expect_answer(const float *logits, const struct gpu_ask *ask, int32_t sampled,
                          const struct gpu_answer *answer) {
    double sum = 0.0;
    uint32_t rank = 1;
    int32_t token = ask->token >= 0 ? ask->token : sampled;
    for (uint32_t t = 0; t < VOCAB; t++) {
        sum += exp((double)logits[t]);
        rank += logits[t] > logits[token] || (logits[t] == logits[token] && (int32_t)t < token);
    }
    assert_int_equal(answer->token, token);
    assert_true(answer->logit == logits[token]);
    assert_true(fabs(answer->lse - log(sum)) < 1e-9);
    assert_int_equal(answer->rank, rank);
    assert_int_equal(answer->top_count, ask->top_count);
    for (uint32_t i = 0; i < answer->top_count; i++) {
        uint64_t weight;
        assert_true(answer->top_logits[i] == logits[answer->top[i]]);
        assert_int_equal(
            before_of(logits, (uint32_t)answer->top[i], -INFINITY, 0.0f, 1.0f, &weight), i);
    }
}

/* ---- a step in two calls ---- */

static void open_rig(struct rig *rig, uint64_t seed) {
    const struct world_run runs[] = {{0, 0, ROWS, false}};
    memset(rig, 0, sizeof *rig);
    world_open(&rig->world, &world_small, seed);
    world_plan(&rig->world, &rig->step, 1, runs, 1, true, PLAN_TILES);
}

/* Asks about each third row: of its token, or of another. */
static uint32_t set_asks(struct rig *rig, const uint32_t *rows, uint32_t count,
                         struct gpu_ask *asks) {
    uint32_t ask_count = 0;
    rig->named_count = 0;
    for (uint32_t i = 0; i < count; i += 3) {
        asks[ask_count++] = (struct gpu_ask){.row = rows[i],
                                             .token = (int32_t)below(rig, VOCAB + 1) - 1,
                                             .top_count = below(rig, GPU_TOP_MAX + 1),
                                             .named_begin = rig->named_count,
                                             .named_count = 2};
        rig->named[rig->named_count++] = (int32_t)below(rig, VOCAB);
        rig->named[rig->named_count++] = (int32_t)below(rig, VOCAB);
    }
    return ask_count;
}

/* Rows first, first + 2, …; the rig keeps nothing of the samples but what it compares. */
struct part {
    uint32_t rows[ROWS], count;
    struct gpu_draw draws[ROWS];
    struct gpu_ask asks[ROWS];
    uint32_t ask_count;
    int32_t tokens[ROWS]; /* as they should be */
    int32_t named[2 * ROWS];
    uint32_t named_count;
};

static struct gpu_samples samples_of(struct rig *rig, struct part *part, uint32_t first) {
    part->count = 0;
    for (uint32_t row = first; row < ROWS; row += 2) part->rows[part->count++] = row;
    set_draws(rig, part->count);
    part->ask_count = set_asks(rig, part->rows, part->count, part->asks);
    part->named_count = rig->named_count;
    memcpy(part->draws, rig->draws, sizeof part->draws);
    memcpy(part->named, rig->named, sizeof part->named);
    for (uint32_t i = 0; i < part->count; i++)
        part->tokens[i] =
            token_of(rig, &part->draws[i], rig->logits + part->rows[i] * rig->world.vocab_rows);
    return (struct gpu_samples){.number = rig->step.step.number,
                                .count = part->count,
                                .rows = part->rows,
                                .draws = part->draws,
                                .masks = rig->masks,
                                .mask_count = rig->mask_count,
                                .mask_words = WORDS,
                                .edits = rig->edits,
                                .edit_count = rig->edit_count,
                                .asks = part->asks,
                                .ask_count = part->ask_count,
                                .named = part->named,
                                .named_count = part->named_count};
}

static void expect_part(const struct rig *rig, const struct part *part, const int32_t *tokens,
                        const struct gpu_answer *answers, const float *named_logits) {
    for (uint32_t i = 0; i < part->count; i++)
        if (tokens[part->rows[i]] != part->tokens[i])
            fail_msg("row %u: token %d, not %d", part->rows[i], tokens[part->rows[i]],
                     part->tokens[i]);
    for (uint32_t i = 0; i < part->ask_count; i++) {
        const struct gpu_ask *ask = &part->asks[i];
        const float *logits = rig->logits + ask->row * rig->world.vocab_rows;
        expect_answer(logits, ask, tokens[ask->row], &answers[i]);
        for (uint32_t j = 0; j < ask->named_count; j++)
            assert_true(named_logits[ask->named_begin + j] ==
                        logits[part->named[ask->named_begin + j]]);
    }
}

static void draws_and_answers_are_as_defined_over_both_calls(void **state) {
    (void)state;
    struct rig *rig = calloc(1, sizeof *rig);
    struct part *parts = calloc(2, sizeof *parts);
    struct error error = {0};
    int32_t tokens[ROWS];
    struct gpu_answer answers[ROWS];
    float named[2 * ROWS];
    struct gpu_result result = {.tokens = tokens, .answers = answers, .named_logits = named};
    open_rig(rig, 21);
    for (uint64_t number = 1; number < 60; number++) {
        rig->step.step.number = number;
        const struct gpu_table *table = rig->world.table;
        struct gpu_samples samples = samples_of(rig, &parts[0], 0);
        expect_ok(
            table->submit(rig->world.gpu, &rig->step.step, number > 1 ? &samples : NULL, &error),
            &error);
        samples = samples_of(rig, &parts[1], 1);
        if (number > 1) expect_ok(table->sample(rig->world.gpu, &samples, &error), &error);
        expect_ok(table->wait(rig->world.gpu, number, &result, &error), &error);
        assert_int_equal(result.nonfinite_rows, 0);
        expect_ok(table->logits(rig->world.gpu, 0, ROWS, rig->logits, &error), &error);
        if (number == 1) continue;
        expect_part(rig, &parts[0], tokens, answers, named);
        expect_part(rig, &parts[1], tokens, answers + parts[0].ask_count,
                    named + parts[0].named_count);
    }
    world_close(&rig->world);
    free(parts);
    free(rig);
}

static void rows_of_nan_are_counted_and_get_their_fallback(void **state) {
    (void)state;
    struct rig *rig = calloc(1, sizeof *rig);
    struct error error = {0};
    int32_t tokens[ROWS] = {-7, -7};
    struct gpu_answer answer;
    struct gpu_result result = {.tokens = tokens, .answers = &answer};
    assert_int_equal(setenv("QUERN_PLAIN_FAULT", "wait:1:nan", 1), 0);
    open_rig(rig, 22);
    assert_int_equal(unsetenv("QUERN_PLAIN_FAULT"), 0);
    uint32_t mask[WORDS] = {0x30}, row = 1;
    struct gpu_draw draw = {.factor = 1.0f, .mask = 0, .fallback = 4, .slot = -1};
    struct gpu_ask ask = {.row = 1, .token = -1, .top_count = 2};
    struct gpu_samples samples = {.number = 1,
                                  .count = 1,
                                  .rows = &row,
                                  .draws = &draw,
                                  .masks = mask,
                                  .mask_count = 1,
                                  .mask_words = WORDS,
                                  .asks = &ask,
                                  .ask_count = 1};
    expect_ok(rig->world.table->submit(rig->world.gpu, &rig->step.step, &samples, &error), &error);
    expect_ok(rig->world.table->wait(rig->world.gpu, 1, &result, &error), &error);
    assert_int_equal(result.nonfinite_rows, ROWS);
    assert_int_equal(tokens[0], -7); /* without a draw */
    assert_int_equal(tokens[1], 4);
    assert_true(answer.lse == -INFINITY && answer.logit == -INFINITY);
    assert_int_equal(answer.rank, 5);
    assert_int_equal(answer.top[1], 1);
    world_close(&rig->world);
    free(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_and_answers_are_as_defined_over_both_calls),
        cmocka_unit_test(rows_of_nan_are_counted_and_get_their_fallback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

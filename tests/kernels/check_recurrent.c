/* SPDX-License-Identifier: Apache-2.0 */

/* Layers with a state. Each trial has rows before and behind its item and gaps between rows, all
 * NaN. Results and states are compared in double with the form that has all rows of an item as one
 * chunk (recurrent_exact.h), with ref, and bit by bit with the same rows in several items, head by
 * head, and in place of an input. */

#include "harness.h"
#include "recurrent_exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAP 5          /* floats between rows */
#define UNTOUCHED 7.0f /* in results before they are written */

/* `in`: (rows + 2, in_stride), from whose row 1 on the item's are. */
struct trial {
    void (*apply)(const struct trial *trial, const struct kernels *kernels, float *in, float *y,
                  size_t y_stride, const struct recurrent_item *item, uint32_t begin, uint32_t end);
    union {
        struct short_conv conv;
        struct delta_rule delta;
        struct mamba mamba;
    };
    uint32_t units; /* channels or heads */
    size_t rows;
    float *in;
    size_t in_stride;
    size_t in_width;
    size_t y_at; /* place of the input that the result may replace */
    size_t y_width;
    float *state;
    size_t state_count;
    float *vectors; /* weights and what heads have */
};

static void trial_fill(struct trial *trial, struct rng *rng, size_t vectors) {
    trial->in_stride = trial->in_width + GAP;
    const size_t count = (trial->rows + 2) * trial->in_stride;
    trial->in = make_floats(count);
    poison(trial->in, count);
    for (size_t r = 1; r <= trial->rows; r++)
        for (size_t i = 0; i < trial->in_width; i++)
            trial->in[r * trial->in_stride + i] = random_float(rng);
    trial->state = make_random(rng, trial->state_count);
    trial->vectors = make_floats(vectors);
    for (size_t i = 0; i < vectors; i++) trial->vectors[i] = (float)(2 * rng_unit(rng) - 1);
}

static void trial_release(struct trial *trial) {
    free(trial->in);
    free(trial->state);
    free(trial->vectors);
}

/* ---- the calls: inputs of a row lie one after another ---- */

static void apply_conv(const struct trial *trial, const struct kernels *kernels, float *in,
                       float *y, size_t y_stride, const struct recurrent_item *item, uint32_t begin,
                       uint32_t end) {
    struct short_conv call = trial->conv;
    const bool has_factors = trial->in_width > call.channels;
    call.x = in;
    call.before = has_factors ? in + call.channels : NULL;
    call.after = has_factors ? in + (size_t)2 * call.channels : NULL;
    call.x_stride = trial->in_stride;
    call.weight = trial->vectors;
    call.bias = call.has_silu ? trial->vectors + (size_t)call.taps * call.channels : NULL;
    call.y = y;
    call.y_stride = y_stride;
    kernels->short_conv(&call, item, begin, end);
}

static void apply_delta(const struct trial *trial, const struct kernels *kernels, float *in,
                        float *y, size_t y_stride, const struct recurrent_item *item,
                        uint32_t begin, uint32_t end) {
    struct delta_rule call = trial->delta;
    const size_t keys = (size_t)call.k_heads * call.k_dim;
    call.q = in;
    call.k = in + keys;
    call.v = in + 2 * keys;
    call.a = call.v + (size_t)call.v_heads * call.v_dim;
    call.b = call.a + call.v_heads;
    call.qkv_stride = call.a_stride = call.b_stride = trial->in_stride;
    call.a_log = trial->vectors;
    call.dt_bias = trial->vectors + call.v_heads;
    call.y = y;
    call.y_stride = y_stride;
    kernels->delta_rule(&call, item, begin, end);
}

static void apply_mamba(const struct trial *trial, const struct kernels *kernels, float *in,
                        float *y, size_t y_stride, const struct recurrent_item *item,
                        uint32_t begin, uint32_t end) {
    struct mamba call = trial->mamba;
    call.x = in;
    call.b = in + (size_t)call.heads * call.head_dim;
    call.c = call.b + (size_t)call.groups * call.state_dim;
    call.dt = call.c + (size_t)call.groups * call.state_dim;
    call.xbc_stride = call.dt_stride = trial->in_stride;
    call.dt_bias = trial->vectors;
    call.a_log = trial->vectors + call.heads;
    call.d = trial->vectors + (size_t)2 * call.heads;
    call.y = y;
    call.y_stride = y_stride;
    kernels->mamba(&call, item, begin, end);
}

/* ---- comparing ---- */

struct result {
    float *y;     /* (rows + 2, y_width + GAP) */
    float *state; /* a NaN behind it */
};

static struct result result_new(const struct trial *trial) {
    const size_t count = (trial->rows + 2) * (trial->y_width + GAP);
    struct result result = {make_floats(count), make_floats(trial->state_count + 1)};
    for (size_t i = 0; i < count; i++) result.y[i] = UNTOUCHED;
    memcpy(result.state, trial->state, trial->state_count * sizeof(float));
    poison(result.state + trial->state_count, 1);
    return result;
}

static void result_release(struct result *result) {
    free(result->y);
    free(result->state);
}

static struct result whole(const struct trial *trial, const struct kernels *kernels) {
    struct result result = result_new(trial);
    struct recurrent_item item = {1, trial->rows, result.state};
    trial->apply(trial, kernels, trial->in, result.y, trial->y_width + GAP, &item, 0, trial->units);
    return result;
}

/* Short items, each by ranges of one or some units. */
static struct result in_pieces(const struct trial *trial, const struct kernels *kernels,
                               struct rng *rng) {
    struct result result = result_new(trial);
    for (size_t row = 0, rows; row < trial->rows; row += rows) {
        const size_t most = rng_below(rng, 2) ? 40 : 2;
        rows = 1 + rng_below(rng, most < trial->rows - row ? most : trial->rows - row);
        struct recurrent_item item = {1 + row, rows, result.state};
        for (uint32_t unit = 0, units; unit < trial->units; unit += units) {
            units = 1 + (uint32_t)rng_below(rng, trial->units - unit);
            trial->apply(trial, kernels, trial->in, result.y, trial->y_width + GAP, &item, unit,
                         unit + units);
        }
    }
    return result;
}

static bool is_same(const struct trial *trial, const struct result *a, const struct result *b) {
    return same_floats(a->state, b->state, trial->state_count + 1) &&
           same_floats(a->y, b->y, (trial->rows + 2) * (trial->y_width + GAP));
}

/* The result in the place of an input, row for row that of `expected`. */
static bool is_same_in_place(const struct trial *trial, const struct kernels *kernels,
                             const struct result *expected) {
    const size_t count = (trial->rows + 2) * trial->in_stride;
    float *in = make_floats(count);
    memcpy(in, trial->in, count * sizeof *in);
    struct result result = result_new(trial);
    struct recurrent_item item = {1, trial->rows, result.state};
    float *y = in + trial->y_at;
    trial->apply(trial, kernels, in, y, trial->in_stride, &item, 0, trial->units);
    bool is_ok = same_floats(result.state, expected->state, trial->state_count);
    for (size_t r = 1; r <= trial->rows; r++)
        is_ok = is_ok && same_floats(y + r * trial->in_stride,
                                     expected->y + r * (trial->y_width + GAP), trial->y_width);
    result_release(&result);
    free(in);
    return is_ok;
}

/* Within 1e-5 of the largest, at least 1. */
static bool is_near(const char *what, const float *got, const float *expected, size_t count) {
    float most = 1;
    for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - expected[i]) <= 1e-5f * most)) {
            note("%s %zu is %.9g, not %.9g", what, i, (double)got[i], (double)expected[i]);
            return false;
        }
    return true;
}

static bool result_is_near(const struct trial *trial, const struct result *got,
                           const struct result *expected) {
    return is_near("state", got->state, expected->state, trial->state_count) &&
           is_near("y", got->y, expected->y, (trial->rows + 2) * (trial->y_width + GAP));
}

static struct result exact(const struct trial *trial) {
    static const struct kernels in_double = {
        .short_conv = exact_short_conv, .delta_rule = exact_delta_rule, .mamba = exact_mamba};
    return whole(trial, &in_double);
}

static bool trial_is_right(const struct trial *trial, const struct kernels *kernels,
                           struct rng *rng) {
    struct result expected = exact(trial);
    struct result reference = whole(trial, kernels_at(0));
    struct result ours = whole(trial, kernels);
    struct result cut = in_pieces(trial, kernels, rng);
    const bool is_ok = result_is_near(trial, &reference, &expected) &&
                       result_is_near(trial, &ours, &reference) && is_same(trial, &ours, &cut) &&
                       is_same_in_place(trial, kernels, &ours);
    result_release(&expected);
    result_release(&reference);
    result_release(&ours);
    result_release(&cut);
    return is_ok;
}

/* ---- sizes ---- */

static const size_t row_counts[] = {0, 1, 2, 17, 63, 64, 65};

static void check_conv(const struct kernels *kernels, struct rng *rng, uint32_t channels,
                       uint32_t taps, bool has_silu, bool has_factors) {
    bool is_ok = true;
    for (size_t i = 0; i < COUNT_OF(row_counts); i++) {
        struct trial trial = {.apply = apply_conv,
                              .units = channels,
                              .rows = row_counts[i],
                              .in_width = (size_t)channels * (has_factors ? 3 : 1),
                              .y_width = channels,
                              .state_count = (size_t)(taps - 1) * channels};
        trial.conv = (struct short_conv){.channels = channels, .taps = taps, .has_silu = has_silu};
        trial.y_at = has_factors ? (size_t)(1 + rng_below(rng, 2)) * channels : 0;
        trial_fill(&trial, rng, (size_t)(taps + 1) * channels);
        is_ok = trial_is_right(&trial, kernels, rng) && is_ok;
        trial_release(&trial);
    }
    report(is_ok, "%s short_conv %u taps of %u%s%s", kernels->name, taps, channels,
           has_silu ? ", silu and bias" : "", has_factors ? ", factors" : "");
}

static void check_delta(const struct kernels *kernels, struct rng *rng, uint32_t k_heads,
                        uint32_t v_heads, uint32_t k_dim, uint32_t v_dim, bool is_tiled) {
    bool is_ok = true;
    for (size_t i = 0; i < COUNT_OF(row_counts); i++) {
        const size_t keys = (size_t)2 * k_heads * k_dim, values = (size_t)v_heads * v_dim;
        struct trial trial = {.apply = apply_delta,
                              .units = v_heads,
                              .rows = row_counts[i],
                              .in_width = keys + values + (size_t)2 * v_heads,
                              .y_at = keys,
                              .y_width = values,
                              .state_count = values * k_dim};
        trial.delta = (struct delta_rule){.k_heads = k_heads,
                                          .v_heads = v_heads,
                                          .k_dim = k_dim,
                                          .v_dim = v_dim,
                                          .heads_are_tiled = is_tiled};
        trial_fill(&trial, rng, (size_t)2 * v_heads);
        is_ok = trial_is_right(&trial, kernels, rng) && is_ok;
        trial_release(&trial);
    }
    report(is_ok, "%s delta_rule %u of %u heads, %ux%u", kernels->name, k_heads, v_heads, k_dim,
           v_dim);
}

static void check_mamba(const struct kernels *kernels, struct rng *rng, uint32_t heads,
                        uint32_t groups, uint32_t head_dim, uint32_t state_dim) {
    bool is_ok = true;
    for (size_t i = 0; i < COUNT_OF(row_counts); i++) {
        const size_t values = (size_t)heads * head_dim;
        struct trial trial = {.apply = apply_mamba,
                              .units = heads,
                              .rows = row_counts[i],
                              .in_width = values + (size_t)2 * groups * state_dim + heads,
                              .y_width = values,
                              .state_count = values * state_dim};
        trial.mamba = (struct mamba){.dt_min = i % 2 ? 0.3f : 0,
                                     .dt_max = i % 2 ? 1.5f : INFINITY,
                                     .heads = heads,
                                     .groups = groups,
                                     .head_dim = head_dim,
                                     .state_dim = state_dim};
        trial_fill(&trial, rng, (size_t)3 * heads);
        is_ok = trial_is_right(&trial, kernels, rng) && is_ok;
        trial_release(&trial);
    }
    report(is_ok, "%s mamba %u heads in %u groups, %ux%u", kernels->name, heads, groups, state_dim,
           head_dim);
}

/* ---- the norm behind a state ---- */

static bool norm_is_right(struct rng *rng, const struct kernels *kernels, size_t width,
                          bool is_shared, bool gate_is_first) {
    enum { ROWS = 4, GROUPS = 3 };
    const size_t stride = GROUPS * width + GAP;
    float *x = make_random(rng, 2 * ROWS * stride);
    float *weight = make_random(rng, GROUPS * width);
    float *y[3];
    struct gated_norm call = {.x = x,
                              .x_stride = stride,
                              .gate = x + ROWS * stride,
                              .gate_stride = stride,
                              .weight = weight,
                              .weight_step = is_shared ? 0 : width,
                              .y_stride = stride,
                              .width = width,
                              .groups = GROUPS,
                              .rows = ROWS,
                              .epsilon = 1e-5f,
                              .gate_is_first = gate_is_first};
    const gated_norm_fn functions[] = {exact_gated_norm, kernels_at(0)->gated_norm,
                                       kernels->gated_norm};
    for (size_t i = 0; i < 3; i++) {
        call.y = y[i] = make_floats(ROWS * stride);
        for (size_t e = 0; e < ROWS * stride; e++) y[i][e] = UNTOUCHED;
        functions[i](&call);
    }
    bool is_ok =
        is_near("ref", y[1], y[0], ROWS * stride) && is_near("y", y[2], y[1], ROWS * stride);
    call.rows = 1;
    for (size_t r = 0; r < ROWS; r++) { /* each row alone, in place of x or of the gate */
        float *to = x + (r % 2 ? ROWS + r : r) * stride;
        call.x = x + r * stride;
        call.gate = x + (ROWS + r) * stride;
        call.y = to;
        kernels->gated_norm(&call);
        is_ok = is_ok && same_floats(to, y[2] + r * stride, GROUPS * width);
    }
    for (size_t i = 0; i < 3; i++) free(y[i]);
    free(x);
    free(weight);
    return is_ok;
}

void check_recurrent(const struct kernels *kernels) {
    static const uint32_t deltas[][4] = {{1, 1, 16, 16},   {1, 3, 24, 40},   {2, 4, 64, 64},
                                         {1, 2, 128, 128}, {1, 1, 256, 256}, {1, 1, 33, 7}};
    static const uint32_t mambas[][4] = {{2, 1, 16, 16},   {3, 3, 24, 40},   {4, 2, 64, 128},
                                         {2, 1, 128, 128}, {1, 1, 256, 256}, {2, 1, 7, 33}};
    static const size_t norms[] = {1, 16, 31, 64, 128, 129, 1000};
    struct rng rng = {11};
    for (uint32_t taps = 2; taps <= CONV_TAPS_MAX; taps++) {
        static const uint32_t channels[] = {1, 16, 37, 256};
        for (size_t i = 0; i < COUNT_OF(channels); i++)
            for (int form = 0; form < 4; form++)
                check_conv(kernels, &rng, channels[i], taps, form & 1, form & 2);
    }
    for (size_t i = 0; i < COUNT_OF(deltas); i++)
        for (int tiled = 0; tiled < 2; tiled++)
            check_delta(kernels, &rng, deltas[i][0], deltas[i][1], deltas[i][2], deltas[i][3],
                        tiled == 1);
    for (size_t i = 0; i < COUNT_OF(mambas); i++)
        check_mamba(kernels, &rng, mambas[i][0], mambas[i][1], mambas[i][2], mambas[i][3]);
    for (size_t i = 0; i < COUNT_OF(norms); i++)
        for (int form = 0; form < 4; form++)
            report(norm_is_right(&rng, kernels, norms[i], form & 1, form & 2),
                   "%s gated_norm %zu%s%s", kernels->name, norms[i],
                   form & 1 ? ", shared weights" : "", form & 2 ? ", gate first" : "");
}

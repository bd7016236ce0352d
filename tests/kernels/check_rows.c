/* SPDX-License-Identifier: Apache-2.0 */

/* Norms, rotary positions, gates: each against ref within 1e-5 of the value or of 1, whichever is
 * more (inputs are about 1), and each row alone against all rows at once, bit by bit. */

#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 5

static const size_t widths[] = {1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 576, 1000};

static bool is_near(const float *a, const float *b, size_t count, float tolerance) {
    for (size_t i = 0; i < count; i++) {
        float size = fmaxf(1, fmaxf(fabsf(a[i]), fabsf(b[i])));
        if (!(fabsf(a[i] - b[i]) <= tolerance * size)) {
            note("element %zu is %.9g, not %.9g", i, (double)a[i], (double)b[i]);
            return false;
        }
    }
    return true;
}

static bool norm_is_right(struct rng *rng, const struct kernels *kernels, bool is_layer,
                          size_t width) {
    norm_fn ours = is_layer ? kernels->layer_norm : kernels->rms_norm;
    norm_fn reference = is_layer ? kernels_at(0)->layer_norm : kernels_at(0)->rms_norm;
    size_t stride = width + 3;
    float *x = make_random(rng, ROWS * stride);
    float *weight = make_random(rng, width);
    float *bias = make_random(rng, width);
    float *old = make_random(rng, ROWS * stride);
    float *y[3] = {make_floats(ROWS * stride), make_floats(ROWS * stride),
                   make_floats(ROWS * stride)};
    bool is_ok = true;
    for (int add = 0; add < 2; add++) {
        struct norm call = {.x = x,
                            .x_stride = stride,
                            .y_stride = stride,
                            .weight = weight,
                            .bias = is_layer ? bias : NULL,
                            .width = width,
                            .rows = ROWS,
                            .epsilon = 1e-5f,
                            .add = add};
        for (int i = 0; i < 3; i++) memcpy(y[i], old, ROWS * stride * sizeof(float));
        call.y = y[0];
        reference(&call);
        call.y = y[1];
        ours(&call);
        call.rows = 1;
        for (size_t r = 0; r < ROWS; r++) {
            call.x = x + r * stride;
            call.y = y[2] + r * stride;
            ours(&call);
        }
        is_ok = is_ok && is_near(y[1], y[0], ROWS * stride, 1e-5f);
        is_ok = is_ok && same_floats(y[1], y[2], ROWS * stride);
        if (add) continue;
        call.x = call.y = x; /* in place, after the last use of x */
        call.rows = ROWS;
        float *copy = make_floats(ROWS * stride);
        memcpy(copy, x, ROWS * stride * sizeof(float));
        ours(&call);
        for (size_t r = 0; r < ROWS; r++)
            is_ok = is_ok && same_floats(x + r * stride, y[1] + r * stride, width);
        memcpy(x, copy, ROWS * stride * sizeof(float));
        free(copy);
    }
    for (int i = 0; i < 3; i++) free(y[i]);
    free(x);
    free(weight);
    free(bias);
    free(old);
    return is_ok;
}

static bool rope_is_right(struct rng *rng, const struct kernels *kernels, uint32_t head_dim,
                          uint32_t rotary_dim, bool interleaved) {
    uint32_t pairs = rotary_dim / 2;
    uint32_t heads = 3;
    size_t stride = (size_t)heads * head_dim + 7;
    uint32_t positions[ROWS] = {0, 1, 17, 299, 1};
    float *frequencies = make_floats(pairs);
    for (uint32_t i = 0; i < pairs; i++)
        frequencies[i] = powf(10000.0f, -2.0f * (float)i / (float)rotary_dim);
    float *cosines = make_floats((size_t)300 * pairs);
    float *sines = make_floats((size_t)300 * pairs);
    rope_table(frequencies, pairs, 0, 300, cosines, sines);
    float *y[3] = {make_random(rng, ROWS * stride), make_floats(ROWS * stride),
                   make_floats(ROWS * stride)};
    for (int i = 1; i < 3; i++) memcpy(y[i], y[0], ROWS * stride * sizeof(float));
    struct rope call = {.x = y[0],
                        .x_stride = stride,
                        .positions = positions,
                        .rows = ROWS,
                        .head_count = heads,
                        .head_dim = head_dim,
                        .rotary_dim = rotary_dim,
                        .interleaved = interleaved,
                        .cosines = cosines,
                        .sines = sines};
    kernels_at(0)->rope(&call);
    call.x = y[1];
    kernels->rope(&call);
    call.rows = 1;
    for (size_t r = 0; r < ROWS; r++) {
        call.x = y[2] + r * stride;
        call.positions = positions + r;
        kernels->rope(&call);
    }
    bool is_ok = same_floats(y[1], y[2], ROWS * stride);
    for (size_t i = 0; i < ROWS * stride; i++)
        is_ok = is_ok && fabsf(y[0][i] - y[1][i]) <= 4e-6f; /* values reach 17 */
    for (int i = 0; i < 3; i++) free(y[i]);
    free(frequencies);
    free(cosines);
    free(sines);
    return is_ok;
}

static bool gate_is_right(struct rng *rng, gate_fn ours, gate_fn reference, size_t width) {
    size_t stride = 2 * width + 1;
    float *x = make_random(rng, ROWS * stride);
    for (size_t i = 0; i < ROWS * stride; i += 11) x[i] *= 9; /* up to 108: both ends of σ */
    float *y[3] = {make_floats(ROWS * width), make_floats(ROWS * width), make_floats(ROWS * width)};
    struct gate call = {.gate = x,
                        .up = x + width,
                        .in_stride = stride,
                        .y = y[0],
                        .y_stride = width,
                        .width = width,
                        .rows = ROWS,
                        .limit = 7.0f,
                        .alpha = 1.702f};
    reference(&call);
    call.y = y[1];
    ours(&call);
    call.rows = 1;
    for (size_t r = 0; r < ROWS; r++) {
        call.gate = x + r * stride;
        call.up = x + r * stride + width;
        call.y = y[2] + r * width;
        ours(&call);
    }
    bool is_ok = is_near(y[1], y[0], ROWS * width, 1e-5f) && same_floats(y[1], y[2], ROWS * width);
    call.gate = call.y = x;
    call.up = x + width;
    call.y_stride = stride;
    call.rows = ROWS;
    ours(&call);
    for (size_t r = 0; r < ROWS; r++)
        is_ok = is_ok && same_floats(x + r * stride, y[1] + r * width, width);
    for (int i = 0; i < 3; i++) free(y[i]);
    free(x);
    return is_ok;
}

static bool gelu_and_add_are_right(struct rng *rng, const struct kernels *kernels, size_t width) {
    size_t count = ROWS * width;
    float *x = make_random(rng, count);
    float *y[2] = {make_floats(count), make_floats(count)};
    for (int i = 0; i < 2; i++) memcpy(y[i], x, count * sizeof(float));
    kernels_at(0)->gelu_erf(y[0], width, width, ROWS);
    for (size_t r = 0; r < ROWS; r++) kernels->gelu_erf(y[1] + r * width, width, width, 1);
    bool is_ok = true;
    for (size_t i = 0; i < count; i++) /* the erf of 7.1.26 is good to 2e-7 of 1 */
        is_ok = is_ok && fabsf(y[0][i] - y[1][i]) <= 1e-6f * fmaxf(1, fabsf(x[i]));
    kernels->gelu_erf(y[0], width, width, 0);
    for (int i = 0; i < 2; i++) memcpy(y[i], x, count * sizeof(float));
    kernels_at(0)->add(x, y[0], count);
    kernels->add(x, y[1], count);
    is_ok = is_ok && same_floats(y[0], y[1], count);
    for (int i = 0; i < 2; i++) free(y[i]);
    free(x);
    return is_ok;
}

/* The activations of a feed-forward without a gate. */
static bool bent_is_right(struct rng *rng, const struct kernels *kernels, size_t width) {
    const size_t count = ROWS * width;
    float *x = make_random(rng, count);
    float *y[2] = {make_floats(count), make_floats(count)};
    bool is_ok = true;
    for (size_t i = 0; i < count; i += 7) x[i] = 1e-7f * (float)i - 1e-5f; /* around eps and 0 */
    for (int i = 0; i < 2; i++) memcpy(y[i], x, count * sizeof(float));
    kernels_at(0)->relu2(y[0], width, width, ROWS);
    for (size_t r = 0; r < ROWS; r++) kernels->relu2(y[1] + r * width, width, width, 1);
    is_ok = same_floats(y[0], y[1], count);
    for (int i = 0; i < 2; i++) {
        memcpy(y[i], x, count * sizeof(float));
        (i == 0 ? kernels_at(0) : kernels)
            ->xielu(&(struct xielu){.x = y[i],
                                    .x_stride = width,
                                    .width = width,
                                    .rows = ROWS,
                                    .alpha_p = 0.8f,
                                    .alpha_n = 1.3f,
                                    .beta = 0.5f,
                                    .eps = -1e-6f});
    }
    for (size_t i = 0; i < count; i++)
        is_ok = is_ok && fabsf(y[0][i] - y[1][i]) <= 1e-6f * fmaxf(1, y[0][i]);
    for (int i = 0; i < 2; i++) free(y[i]);
    free(x);
    return is_ok;
}

void check_rows(const struct kernels *kernels) {
    static const uint32_t dims[][2] = {{2, 2},   {24, 24},   {32, 32},  {64, 64},
                                       {80, 32}, {128, 128}, {256, 256}};
    struct rng rng = {2};
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        size_t width = widths[i];
        report(norm_is_right(&rng, kernels, false, width), "%s rms_norm %zu", kernels->name, width);
        report(norm_is_right(&rng, kernels, true, width), "%s layer_norm %zu", kernels->name,
               width);
        report(gate_is_right(&rng, kernels->silu_mul, kernels_at(0)->silu_mul, width),
               "%s silu_mul %zu", kernels->name, width);
        report(gate_is_right(&rng, kernels->gelu_tanh_mul, kernels_at(0)->gelu_tanh_mul, width),
               "%s gelu_tanh_mul %zu", kernels->name, width);
        report(gate_is_right(&rng, kernels->sigmoid_mul, kernels_at(0)->sigmoid_mul, width),
               "%s sigmoid_mul %zu", kernels->name, width);
        report(gate_is_right(&rng, kernels->clamped_mul, kernels_at(0)->clamped_mul, width),
               "%s clamped_mul %zu", kernels->name, width);
        report(bent_is_right(&rng, kernels, width), "%s relu2, xielu %zu", kernels->name, width);
        report(gelu_and_add_are_right(&rng, kernels, width), "%s gelu_erf, add %zu", kernels->name,
               width);
    }
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        report(rope_is_right(&rng, kernels, dims[i][0], dims[i][1], false), "%s rope halves %u/%u",
               kernels->name, dims[i][1], dims[i][0]);
        report(rope_is_right(&rng, kernels, dims[i][0], dims[i][1], true),
               "%s rope neighbours %u/%u", kernels->name, dims[i][1], dims[i][0]);
    }
}

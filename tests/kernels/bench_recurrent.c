/* SPDX-License-Identifier: Apache-2.0 */

/* Layers with a state on one core: a step of 32 sequences with a row each, whose states come from
 * memory, and a prompt of 512 rows, whose state stays in the caches. */

#include "harness.h"
#include "kernels/peak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATES_BYTES ((size_t)128 << 20)

enum kind { CONV, DELTA, MAMBA };

static const char *const kind_names[] = {
    [CONV] = "short_conv", [DELTA] = "delta_rule", [MAMBA] = "mamba"};

/* Channels of a convolution of 4 taps, or heads. */
struct shape {
    enum kind kind;
    uint32_t units;
    uint32_t inner; /* k_dim, state_dim */
    uint32_t outer; /* v_dim, head_dim */
};

struct recurrent_work {
    const struct kernels *kernels;
    struct shape shape;
    size_t sequences;
    size_t rows; /* per sequence */
    size_t state_floats;
    size_t in_stride;
    size_t y_stride;
    float *in;
    float *y;
    float *states;
    float *vectors;
};

static void run_item(const struct recurrent_work *work, const struct recurrent_item *item) {
    const struct shape *shape = &work->shape;
    const size_t inner = (size_t)shape->units * shape->inner;
    const float *in = work->in;
    const struct short_conv conv = {.x = in,
                                    .x_stride = work->in_stride,
                                    .weight = work->vectors,
                                    .y = work->y,
                                    .y_stride = work->y_stride,
                                    .channels = shape->units,
                                    .taps = 4,
                                    .has_silu = true};
    const struct delta_rule delta = {.q = in,
                                     .k = in + inner / 2,
                                     .v = in + inner,
                                     .qkv_stride = work->in_stride,
                                     .a = in,
                                     .b = in + shape->units,
                                     .a_stride = work->in_stride,
                                     .b_stride = work->in_stride,
                                     .a_log = work->vectors,
                                     .dt_bias = work->vectors,
                                     .y = work->y,
                                     .y_stride = work->y_stride,
                                     .k_heads = shape->units / 2,
                                     .v_heads = shape->units,
                                     .k_dim = shape->inner,
                                     .v_dim = shape->outer};
    const struct mamba mamba = {.x = in,
                                .b = in,
                                .c = in + shape->inner,
                                .xbc_stride = work->in_stride,
                                .dt = in,
                                .dt_stride = work->in_stride,
                                .dt_bias = work->vectors,
                                .a_log = work->vectors,
                                .d = work->vectors,
                                .dt_max = INFINITY,
                                .y = work->y,
                                .y_stride = work->y_stride,
                                .heads = shape->units,
                                .groups = 1,
                                .head_dim = shape->outer,
                                .state_dim = shape->inner};
    if (shape->kind == CONV) work->kernels->short_conv(&conv, item, 0, shape->units);
    if (shape->kind == DELTA) work->kernels->delta_rule(&delta, item, 0, shape->units);
    if (shape->kind == MAMBA) work->kernels->mamba(&mamba, item, 0, shape->units);
}

static void run_recurrent(void *context) {
    const struct recurrent_work *work = context;
    for (size_t s = 0; s < work->sequences; s++) {
        float *state = work->states + s * work->state_floats;
        run_item(work, &(struct recurrent_item){s * work->rows, work->rows, state});
    }
}

/* An operation is a multiplication or an addition of the recurrence, a multiplication alone counts
 * as both. */
static void report_prompt(const struct recurrent_work *work, double s) {
    const struct peak peak = peak_of(work->kernels, MATRIX_F32);
    const double per_value = work->shape.kind == DELTA ? 8 : 6;
    const double gop_s = 1e-9 * per_value * (double)work->rows * (double)work->state_floats / s;
    (void)printf("%.2f us a row, %.1f GOP/s, %.0f %% of %s\n", 1e6 * s / (double)work->rows, gop_s,
                 100 * gop_s / peak.gop_s, peak.what);
}

static void report_bytes(const struct recurrent_work *work, double s) {
    const double bytes =
        8.0 * (double)work->state_floats +
        (work->shape.kind == CONV ? 8.0 * (double)(work->rows * work->y_stride) : 0);
    const double gb_s = 1e-9 * bytes * (double)work->sequences / s;
    const double peak_gb_s = peak_update_gb_s(STATES_BYTES);
    (void)printf("%.2f us a sequence, %.1f GB/s read and written, %.0f %% of an update in place\n",
                 1e6 * s / (double)work->sequences, gb_s, 100 * gb_s / peak_gb_s);
}

static void bench_shape(const struct kernels *kernels, struct shape shape, size_t sequences,
                        size_t rows) {
    struct rng rng = {13};
    struct recurrent_work work = {
        .kernels = kernels, .shape = shape, .sequences = sequences, .rows = rows};
    const size_t inner = (size_t)shape.units * shape.inner;
    const size_t outer = (size_t)shape.units * shape.outer;
    work.state_floats = shape.kind == CONV ? (size_t)3 * shape.units : inner * shape.outer;
    work.y_stride = shape.kind == CONV ? shape.units : outer;
    work.in_stride = work.y_stride + (shape.kind == CONV ? 0 : inner);
    work.in = make_random(&rng, sequences * rows * work.in_stride);
    work.y = make_floats(sequences * rows * work.y_stride);
    work.states = kernels_memory(sequences * work.state_floats * sizeof(float));
    memset(work.states, 0, sequences * work.state_floats * sizeof(float));
    work.vectors = make_random(&rng, (size_t)4 * shape.units);
    const double s = seconds_of(run_recurrent, &work);
    (void)printf("%s %s %u of %ux%u, %zu x %zu rows: ", kernels->name, kind_names[shape.kind],
                 shape.units, shape.inner, shape.outer, sequences, rows);
    if (rows > 1 && shape.kind != CONV)
        report_prompt(&work, s);
    else
        report_bytes(&work, s);
    (void)fflush(stdout);
    free(work.in);
    free(work.y);
    free(work.states);
    free(work.vectors);
}

void bench_recurrent(const struct kernels *kernels) {
    static const struct shape shapes[] = {
        {DELTA, 32, 128, 128}, {DELTA, 16, 128, 128}, {DELTA, 8, 64, 64},
        {MAMBA, 48, 128, 64},  {MAMBA, 24, 256, 64},  {CONV, 8192, 1, 1},
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        bench_shape(kernels, shapes[i], 32, 1);
        bench_shape(kernels, shapes[i], 1, 512);
    }
}

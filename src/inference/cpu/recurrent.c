/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/recurrent.h"

#include "base/min_max.h"
#include "cpu/rows.h"
#include "cpu/task_split.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Channels of a task at least: a few cache lines of each row. */
#define CHANNELS_EACH_MIN 128u

/* The sequences of a step times parts of their states. A part is `each` channels, or heads. */
struct job {
    struct forward *forward;
    const struct op *op;
    uint32_t count; /* channels, or heads, of a state */
    uint32_t each;
    /* A channel, or head, has `floats` neighbours in each of `strips` strips of a state. */
    size_t floats;
    uint32_t strips;
    /* Runs the kernel over an item's rows, for channels or heads begin..end-1. */
    void (*run)(const struct job *job, const struct recurrent_item *item, uint32_t begin,
                uint32_t end);
};

/* The state of the operation's layer in a place. */
static float *state_at(const struct job *job, uint32_t place) {
    const struct forward *forward = job->forward;
    assert(place < forward->options.state_count);
    return forward->states + place * forward->program->states.floats + job->op->state_at;
}

/* Copies a part of a state from a place, or zeros it. */
static void copy_part(const struct job *job, uint32_t from, uint32_t to, uint32_t begin,
                      uint32_t end) {
    const size_t bytes = (end - begin) * job->floats * sizeof(float);
    for (uint32_t i = 0; i < job->strips; i++) {
        const size_t at = ((size_t)i * job->count + begin) * job->floats;
        if (from == BACKEND_STATE_ZERO)
            memset(state_at(job, to) + at, 0, bytes);
        else
            memcpy(state_at(job, to) + at, state_at(job, from) + at, bytes);
    }
}

/* One part of one sequence: its state is fetched, goes through the rows, and is saved between two
 * of them where the step says so. Other parts need nothing of it. */
static void part_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct job *job = context;
    const uint32_t parts = divide_up(job->count, job->each);
    const struct step_sequence *sequence = &job->forward->step->sequences[task / parts];
    const uint32_t begin = task % parts * job->each;
    const uint32_t end = min_u32(begin + job->each, job->count);
    const uint32_t saved = sequence->save_rows;
    struct recurrent_item item = {.row = sequence->row_first,
                                  .row_count = sequence->row_count,
                                  .state = state_at(job, sequence->state)};
    if (sequence->state_from != sequence->state)
        copy_part(job, sequence->state_from, sequence->state, begin, end);
    if (saved > 0) {
        assert(saved <= sequence->row_count && sequence->save_to != sequence->state);
        item.row_count = saved;
        job->run(job, &item, begin, end);
        copy_part(job, sequence->state, sequence->save_to, begin, end);
        item.row += saved;
        item.row_count = sequence->row_count - saved;
    }
    if (item.row_count > 0) job->run(job, &item, begin, end);
}

/* Runs all parts of all sequences: as many tasks as keep all threads busy. */
static void run_parts(struct job *job, uint32_t each_min) {
    const uint32_t sequences = job->forward->step->sequence_count;
    const uint32_t tasks = TASKS_PER_THREAD * pool_threads(job->forward->options.pool);
    const uint32_t parts = divide_up(tasks, sequences);
    job->each = max_u32(divide_up(job->count, parts), min_u32(each_min, job->count));
    pool_run(job->forward->options.pool, part_task, job,
             sequences * divide_up(job->count, job->each));
}

/* Runs all heads, whose states are matrices of key_dim × value_dim. */
static void run_heads(struct forward *forward, const struct op *op,
                      void (*run)(const struct job *job, const struct recurrent_item *item,
                                  uint32_t begin, uint32_t end)) {
    const struct recurrent_sizes *sizes = &forward->program->shape.recurrent;
    struct job job = {.forward = forward,
                      .op = op,
                      .count = sizes->value_heads,
                      .floats = (size_t)sizes->key_dim * sizes->value_dim,
                      .strips = 1,
                      .run = run};
    run_parts(&job, 1);
}

/* ---- CONV ---- */

static void conv_item(const struct job *job, const struct recurrent_item *item, uint32_t begin,
                      uint32_t end) {
    const struct forward *forward = job->forward;
    const struct program_shape *shape = &forward->program->shape;
    const bool is_gated = job->op->is_gated;
    const size_t channels = shape->channels;
    const size_t stride = is_gated ? 3 * channels : channels + shape->state_width;
    const struct short_conv call = {.x = forward->wide + (is_gated ? 2 * channels : 0),
                                    .before = is_gated ? forward->wide : NULL,
                                    .after = is_gated ? forward->wide + channels : NULL,
                                    .x_stride = stride,
                                    .weight = job->op->recurrent->conv,
                                    .bias = job->op->recurrent->conv_bias,
                                    .y = is_gated ? forward->attended : forward->wide,
                                    .y_stride = is_gated ? channels : stride,
                                    .channels = shape->channels,
                                    .taps = shape->recurrent.taps,
                                    .has_silu = !is_gated};
    forward->options.kernels->short_conv(&call, item, begin, end);
}

void recurrent_conv(struct forward *forward, const struct op *op) {
    const struct program_shape *shape = &forward->program->shape;
    struct job job = {.forward = forward,
                      .op = op,
                      .count = shape->channels,
                      .floats = 1,
                      .strips = shape->recurrent.taps - 1,
                      .run = conv_item};
    run_parts(&job, CHANNELS_EACH_MIN);
}

/* ---- DELTA ---- */

static void delta_item(const struct job *job, const struct recurrent_item *item, uint32_t begin,
                       uint32_t end) {
    const struct forward *forward = job->forward;
    const struct program_shape *shape = &forward->program->shape;
    const struct recurrent_sizes *sizes = &shape->recurrent;
    const size_t keys = (size_t)sizes->key_heads * sizes->key_dim;
    const struct delta_rule call = {.q = forward->wide,
                                    .k = forward->wide + keys,
                                    .v = forward->wide + 2 * keys,
                                    .qkv_stride = (size_t)shape->channels + shape->state_width,
                                    .a = forward->narrow,
                                    .b = forward->narrow + sizes->value_heads,
                                    .a_stride = 2 * (size_t)sizes->value_heads,
                                    .b_stride = 2 * (size_t)sizes->value_heads,
                                    .a_log = job->op->recurrent->decay,
                                    .dt_bias = job->op->recurrent->step_bias,
                                    .y = forward->attended,
                                    .y_stride = shape->state_width,
                                    .k_heads = sizes->key_heads,
                                    .v_heads = sizes->value_heads,
                                    .k_dim = sizes->key_dim,
                                    .v_dim = sizes->value_dim,
                                    .heads_are_tiled = sizes->heads_are_tiled};
    forward->options.kernels->delta_rule(&call, item, begin, end);
}

void recurrent_delta(struct forward *forward, const struct op *op) {
    run_heads(forward, op, delta_item);
}

/* ---- MAMBA ---- */

static void mamba_item(const struct job *job, const struct recurrent_item *item, uint32_t begin,
                       uint32_t end) {
    const struct forward *forward = job->forward;
    const struct program_shape *shape = &forward->program->shape;
    const struct recurrent_sizes *sizes = &shape->recurrent;
    const struct recurrent *weights = job->op->recurrent;
    const float *b = forward->wide + shape->state_width;
    const struct mamba call = {.x = forward->wide,
                               .b = b,
                               .c = b + (size_t)sizes->key_heads * sizes->key_dim,
                               .xbc_stride = (size_t)shape->channels + shape->state_width,
                               .dt = forward->narrow,
                               .dt_stride = sizes->value_heads,
                               .dt_bias = weights->step_bias,
                               .a_log = weights->decay,
                               .d = weights->skip,
                               .dt_min = sizes->step_min,
                               .dt_max = sizes->step_max > 0 ? sizes->step_max : INFINITY,
                               .y = forward->attended,
                               .y_stride = shape->state_width,
                               .heads = sizes->value_heads,
                               .groups = sizes->key_heads,
                               .head_dim = sizes->value_dim,
                               .state_dim = sizes->key_dim};
    forward->options.kernels->mamba(&call, item, begin, end);
}

void recurrent_mamba(struct forward *forward, const struct op *op) {
    rows_scale(forward->narrow,
               (size_t)forward->row_count * forward->program->shape.recurrent.value_heads,
               op->gate_factor);
    run_heads(forward, op, mamba_item);
}

/* ---- GATED_NORM ---- */

/* attended · silu(gate), without a norm. */
static void gate_rows(const struct forward *forward, float *attended, float *gate, uint32_t count) {
    const size_t width = forward->program->shape.state_width;
    const size_t stride = forward->program->shape.channels + width;
    for (uint32_t i = 0; i < count; i++)
        forward->options.kernels->silu_mul(&(struct gate){.gate = gate + i * stride,
                                                          .up = attended + i * width,
                                                          .y = attended + i * width,
                                                          .width = width,
                                                          .rows = 1});
}

static void norm_rows(void *context, uint32_t row, uint32_t count) {
    const struct job *job = context;
    const struct forward *forward = job->forward;
    const struct program_shape *shape = &forward->program->shape;
    const struct matrix *next = job->op->next;
    const size_t width = shape->state_width, stride = shape->channels + width;
    const bool is_mamba = job->op->recurrent->skip != NULL;
    const uint32_t groups = is_mamba ? shape->recurrent.key_heads : shape->recurrent.value_heads;
    float *attended = forward->attended + row * width;
    float *gate = forward->wide + row * stride + shape->channels;
    for (uint32_t i = 0; i < count && job->op->gate_factor > 0; i++)
        rows_scale(gate + i * stride, width, job->op->gate_factor);
    if (!job->op->recurrent->norm)
        gate_rows(forward, attended, gate, count);
    else
        forward->options.kernels->gated_norm(
            &(struct gated_norm){.x = attended,
                                 .x_stride = width,
                                 .gate = gate,
                                 .gate_stride = stride,
                                 .weight = job->op->recurrent->norm,
                                 .y = attended,
                                 .y_stride = width,
                                 .weight_step = is_mamba ? width / groups : 0,
                                 .width = width / groups,
                                 .groups = groups,
                                 .rows = count,
                                 .epsilon = shape->inner_eps,
                                 .gate_is_first = job->op->is_gated});
    rows_scale(attended, width * count, job->op->factor);
    forward->options.kernels->activate(next, attended, width, count,
                                       forward->activations + row * next->activation_bytes);
}

void recurrent_gated_norm(struct forward *forward, const struct op *op) {
    struct job job = {.forward = forward, .op = op};
    task_split_rows(forward->options.pool, norm_rows, &job, forward->row_count);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/recurrent.h"

#include "base/least.h"
#include "cpu/spread.h"

#include <assert.h>
#include <string.h>

/* Channels of a task at least: a few cache lines of each row. */
#define CHANNELS_EACH_MIN 128u

/* The sequences of a step times parts of their states. A part is `each` channels, or heads. */
struct job {
    struct forward *forward;
    const struct op *op;
    uint32_t count; /* channels, or heads, of a state */
    uint32_t each;
};

static float *state_of(const struct job *job, const struct step_sequence *sequence) {
    const struct forward *forward = job->forward;
    assert(sequence->slot < forward->options.state_count);
    return forward->states + sequence->slot * forward->program->states.floats + job->op->state_at;
}

/* The sequence and the part of a task. */
struct part {
    const struct step_sequence *sequence;
    struct recurrent_item item;
    uint32_t begin, end;
};

static struct part part_of(const struct job *job, uint32_t task) {
    const uint32_t parts = spread_divide_up(job->count, job->each);
    const struct step_sequence *sequence = &job->forward->step->sequences[task / parts];
    const uint32_t begin = task % parts * job->each;
    return (struct part){.sequence = sequence,
                         .item = {.row = sequence->row_first,
                                  .row_count = sequence->row_count,
                                  .state = state_of(job, sequence)},
                         .begin = begin,
                         .end = least_u32(begin + job->each, job->count)};
}

/* Runs `task` for each part of each sequence: as many tasks as keep all threads busy. */
static void run_parts(struct job *job, uint32_t each_min, pool_task_fn task) {
    const uint32_t sequences = job->forward->step->sequence_count;
    const uint32_t tasks = SPREAD_TASKS_PER_THREAD * pool_threads(job->forward->options.pool);
    const uint32_t parts = spread_divide_up(tasks, sequences);
    job->each = most_u32(spread_divide_up(job->count, parts), least_u32(each_min, job->count));
    pool_run(job->forward->options.pool, task, job,
             sequences * spread_divide_up(job->count, job->each));
}

/* ---- CONV ---- */

static void conv_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct job *job = context;
    const struct part part = part_of(job, task);
    const struct forward *forward = job->forward;
    const struct program_shape *shape = &forward->program->shape;
    const size_t stride = (size_t)shape->channels + shape->state_width;
    const struct short_conv call = {.x = forward->wide,
                                    .x_stride = stride,
                                    .weight = job->op->recurrent->conv,
                                    .y = forward->wide,
                                    .y_stride = stride,
                                    .channels = shape->channels,
                                    .taps = shape->recurrent.taps,
                                    .has_silu = true};
    for (uint32_t i = 0; part.sequence->slot_is_new && i + 1 < call.taps; i++)
        memset(part.item.state + (size_t)i * call.channels + part.begin, 0,
               (part.end - part.begin) * sizeof(float));
    forward->options.kernels->short_conv(&call, &part.item, part.begin, part.end);
}

void recurrent_conv(struct forward *forward, const struct op *op) {
    struct job job = {.forward = forward, .op = op, .count = forward->program->shape.channels};
    run_parts(&job, CHANNELS_EACH_MIN, conv_task);
}

/* ---- DELTA ---- */

static void delta_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct job *job = context;
    const struct part part = part_of(job, task);
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
    const size_t head = (size_t)sizes->key_dim * sizes->value_dim;
    if (part.sequence->slot_is_new)
        memset(part.item.state + part.begin * head, 0,
               (part.end - part.begin) * head * sizeof(float));
    forward->options.kernels->delta_rule(&call, &part.item, part.begin, part.end);
}

void recurrent_delta(struct forward *forward, const struct op *op) {
    struct job job = {
        .forward = forward, .op = op, .count = forward->program->shape.recurrent.value_heads};
    run_parts(&job, 1, delta_task);
}

/* ---- GATED_NORM ---- */

static void norm_rows(void *context, uint32_t row, uint32_t count) {
    const struct job *job = context;
    const struct forward *forward = job->forward;
    const struct program_shape *shape = &forward->program->shape;
    const struct matrix *next = job->op->next;
    const size_t width = shape->state_width, stride = shape->channels + width;
    float *attended = forward->attended + row * width;
    forward->options.kernels->gated_norm(
        &(struct gated_norm){.x = attended,
                             .x_stride = width,
                             .gate = forward->wide + row * stride + shape->channels,
                             .gate_stride = stride,
                             .weight = job->op->recurrent->norm,
                             .y = attended,
                             .y_stride = width,
                             .width = shape->recurrent.value_dim,
                             .groups = shape->recurrent.value_heads,
                             .rows = count,
                             .epsilon = shape->eps});
    forward->options.kernels->activate(next, attended, width, count,
                                       forward->activations + row * next->activation_bytes);
}

void recurrent_gated_norm(struct forward *forward, const struct op *op) {
    struct job job = {.forward = forward, .op = op};
    spread_rows(forward->options.pool, norm_rows, &job, forward->row_count);
}

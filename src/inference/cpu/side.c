/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/side.h"

#include "cpu/task_split.h"

#include <math.h>
#include <string.h>

struct job {
    struct forward *forward;
    const struct op *op;
};

static void norm(const struct forward *forward, struct norm call) {
    call.epsilon = forward->program->shape.eps;
    call.x_stride = call.y_stride = call.width;
    forward->options.kernels->rms_norm(&call);
}

/* The products are the first halves of the sums; a layer's part is normed by itself. */
static void inputs_rows(void *context, uint32_t row, uint32_t count) {
    const struct job *job = context;
    const struct forward *forward = job->forward;
    const struct op *op = job->op;
    const struct program_shape *shape = &forward->program->shape;
    const size_t all = (size_t)shape->layers * op->width;
    const float per_width = 1.0f / sqrtf((float)shape->width), half = 0.707106781186548f;
    float *looked_up = forward->wide + row * all;
    for (uint32_t i = row; i < row + count; i++, looked_up += all) {
        float *to = forward->inputs + i * all;
        for (size_t j = 0; j < all; j++) to[j] *= per_width;
        norm(
            forward,
            (struct norm){
                .x = to, .y = to, .weight = op->weight, .width = op->width, .rows = shape->layers});
        matrix_row(op->matrix, (uint32_t)forward->step->tokens[i], looked_up);
        for (size_t j = 0; j < all; j++) to[j] = (looked_up[j] * op->scale + to[j]) * half;
    }
}

void side_inputs(struct forward *forward, const struct op *op) {
    struct job job = {.forward = forward, .op = op};
    task_split_rows(forward->options.pool, inputs_rows, &job, forward->row_count);
}

static void side_rows(void *context, uint32_t row, uint32_t count) {
    const struct job *job = context;
    const struct forward *forward = job->forward;
    const size_t width = forward->program->shape.width;
    float *h = forward->h + row * width, *side = forward->side + row * width;
    const bool joins = job->op->kind == OP_JOIN;
    norm(forward, (struct norm){.x = h,
                                .y = side,
                                .weight = job->op->weight,
                                .width = width,
                                .rows = count,
                                .add = joins});
    if (joins) memcpy(h, side, count * width * sizeof *h);
}

void side_run(struct forward *forward, const struct op *op) {
    struct job job = {.forward = forward, .op = op};
    task_split_rows(forward->options.pool, side_rows, &job, forward->row_count);
}

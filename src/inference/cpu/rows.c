/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/rows.h"

#include "cpu/forward_state.h"
#include "cpu/task_split.h"

struct rows_job {
    struct forward *forward;
    const struct op *op;
    rows_fn work;
};

static void work_on_rows(void *context, uint32_t row, uint32_t count) {
    const struct rows_job *job = context;
    job->work(job->forward, job->op, row, count);
}

void rows_run(struct forward *forward, const struct op *op, rows_fn work) {
    struct rows_job job = {.forward = forward, .op = op, .work = work};
    task_split_rows(forward->options.pool, work_on_rows, &job, forward->row_count);
}

void rows_scale(float *x, size_t count, float factor) {
    for (size_t i = 0; factor > 0 && i < count; i++) x[i] *= factor;
}

void rows_prepare(const struct forward *forward, const struct matrix *next, const float *x,
                  size_t x_stride, uint32_t row, uint32_t count) {
    if (next)
        forward->options.kernels->activate(next, x + row * x_stride, x_stride, count,
                                           forward->activations + row * next->activation_bytes);
}

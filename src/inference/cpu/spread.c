/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/spread.h"

/* Activations of one matmul task stay in the second-level cache together with a tile of weights. */
#define MATMUL_ACTIVATION_BYTES ((size_t)512 * 1024)
#define MATMUL_ROWS_MIN 32u

/* How many of `count` rows or tiles one task takes; 1 for a count of 0. */
static uint32_t share_of(const struct pool *pool, uint32_t count) {
    return count > 0 ? spread_divide_up(count, SPREAD_TASKS_PER_THREAD * pool_threads(pool)) : 1;
}

struct rows_job {
    spread_fn work;
    void *context;
    uint32_t rows;
    uint32_t rows_each;
};

static void rows_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct rows_job *job = context;
    uint32_t row = task * job->rows_each;
    uint32_t left = job->rows - row;
    job->work(job->context, row, left < job->rows_each ? left : job->rows_each);
}

void spread_rows(struct pool *pool, spread_fn work, void *context, uint32_t rows) {
    struct rows_job job = {
        .work = work, .context = context, .rows = rows, .rows_each = share_of(pool, rows)};
    pool_run(pool, rows_task, &job, spread_divide_up(rows, job.rows_each));
}

struct matmul_job {
    const struct kernels *kernels;
    const struct matmul *all;
    uint32_t rows_each;
    uint32_t tiles_each;
    uint32_t tile_tasks;
};

static void matmul_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct matmul_job *job = context;
    struct matmul part = *job->all;
    size_t row = (size_t)(task / job->tile_tasks) * job->rows_each;
    uint32_t tile = task % job->tile_tasks * job->tiles_each;
    uint32_t tile_end = tile + job->tiles_each;
    if (tile_end > part.matrix->tile_count) tile_end = part.matrix->tile_count;
    part.activations =
        (const unsigned char *)part.activations + row * part.matrix->activation_bytes;
    part.y += row * part.y_stride;
    part.rows = part.rows - row < job->rows_each ? part.rows - row : job->rows_each;
    job->kernels->matmul(&part, tile, tile_end);
}

void spread_matmul(struct pool *pool, const struct kernels *kernels, const struct matmul *call) {
    struct matmul_job job = {.kernels = kernels, .all = call};
    size_t rows_each = MATMUL_ACTIVATION_BYTES / call->matrix->activation_bytes;
    job.rows_each = rows_each > MATMUL_ROWS_MIN ? (uint32_t)rows_each : MATMUL_ROWS_MIN;
    job.tiles_each = share_of(pool, call->matrix->tile_count);
    job.tile_tasks = spread_divide_up(call->matrix->tile_count, job.tiles_each);
    uint32_t row_tasks = spread_divide_up((uint32_t)call->rows, job.rows_each);
    pool_run(pool, matmul_task, &job, row_tasks * job.tile_tasks);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/task_split.h"

/* Activations of one matmul task stay in the second-level cache together with a tile of weights. */
#define MATMUL_ACTIVATION_BYTES ((size_t)512 * 1024)
#define MATMUL_ROWS_MIN 32u

/* How many of `count` rows or tiles one task takes; 1 for a count of 0. */
static uint32_t share_of(const struct pool *pool, uint32_t count) {
    return count > 0 ? divide_up(count, TASKS_PER_THREAD * pool_threads(pool)) : 1;
}

struct rows_job {
    task_split_fn work;
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

void task_split_rows(struct pool *pool, task_split_fn work, void *context, uint32_t rows) {
    struct rows_job job = {
        .work = work, .context = context, .rows = rows, .rows_each = share_of(pool, rows)};
    pool_run(pool, rows_task, &job, divide_up(rows, job.rows_each));
}

struct matmul_job {
    const struct kernels *kernels;
    const struct matmul *calls;
    uint32_t rows_each;
    uint32_t tiles_each;
    uint32_t row_tasks;
    uint32_t tile_tasks;
    unsigned char *room; /* (threads, room_bytes) for tiles of matrices that were left */
    size_t room_bytes;
};

/* Multiplies by tiles that stay in the file: each is laid when its turn comes. */
static void matmul_left(const struct matmul_job *job, const struct matmul *call, uint32_t tile,
                        uint32_t tile_end, unsigned char *room) {
    struct matrix view;
    struct matmul part = *call;
    part.matrix = &view;
    for (; tile < tile_end; tile++) {
        matrix_lay(call->matrix, tile, room, &view);
        job->kernels->matmul(&part, tile, tile + 1);
    }
}

/* A task of a call that has fewer rows than another has nothing to do. */
static void matmul_task(void *context, uint32_t task, uint32_t worker) {
    const struct matmul_job *job = context;
    const uint32_t each = job->row_tasks * job->tile_tasks;
    struct matmul part = job->calls[task / each];
    size_t row = (size_t)(task % each / job->tile_tasks) * job->rows_each;
    uint32_t tile = task % job->tile_tasks * job->tiles_each;
    uint32_t tile_end = tile + job->tiles_each;
    if (row >= part.rows) return;
    if (tile_end > part.matrix->tile_count) tile_end = part.matrix->tile_count;
    part.activations =
        (const unsigned char *)part.activations + row * part.matrix->activation_bytes;
    part.y += row * part.y_stride;
    part.rows = part.rows - row < job->rows_each ? part.rows - row : job->rows_each;
    if (part.matrix->is_left)
        matmul_left(job, &part, tile, tile_end, job->room + worker * job->room_bytes);
    else
        job->kernels->matmul(&part, tile, tile_end);
}

void task_split_matmuls(struct pool *pool, const struct kernels *kernels,
                        const struct matmul *calls, uint32_t count, unsigned char *room) {
    const struct matrix *matrix = calls[0].matrix;
    struct matmul_job job = {.kernels = kernels,
                             .calls = calls,
                             .room = room,
                             .room_bytes = room ? matrix_tile_bytes(matrix) : 0};
    size_t rows_each = MATMUL_ACTIVATION_BYTES / matrix->activation_bytes, rows_most = 0;
    for (uint32_t i = 0; i < count; i++)
        if (calls[i].rows > rows_most) rows_most = calls[i].rows;
    job.rows_each = rows_each > MATMUL_ROWS_MIN ? (uint32_t)rows_each : MATMUL_ROWS_MIN;
    /* To lay a tile costs more than to read its rows' activations from the third level. */
    if (matrix->is_left && job.rows_each < rows_most) job.rows_each = (uint32_t)rows_most;
    job.row_tasks = divide_up((uint32_t)rows_most, job.rows_each);
    job.tiles_each = share_of(pool, count * matrix->tile_count);
    if (job.tiles_each > matrix->tile_count) job.tiles_each = matrix->tile_count;
    job.tile_tasks = divide_up(matrix->tile_count, job.tiles_each);
    pool_run(pool, matmul_task, &job, count * job.row_tasks * job.tile_tasks);
}

void task_split_matmul(struct pool *pool, const struct kernels *kernels,
                       const struct matmul *call) {
    task_split_matmuls(pool, kernels, call, 1, NULL);
}

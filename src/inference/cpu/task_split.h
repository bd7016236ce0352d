/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* task_split: cuts the rows of a stage and the tiles of a product into tasks for a pool.
 *
 * It knows kernels and pools, no model and no step.
 *
 * Thread: as pool_run.
 * Memory: none.
 * Invariant: the cut never changes a result (batch invariance of kernels/). */

#include "kernels/kernels.h"
#include "kernels/pool.h"

/* Tasks per thread, so that a late thread costs a quarter of its share. */
#define TASKS_PER_THREAD 4u

/* The number of pieces of `each` in `count`; the last one may be smaller. each > 0 */
static inline uint32_t divide_up(uint32_t count, uint32_t each) {
    return (count + each - 1) / each;
}

typedef void (*task_split_fn)(void *context, uint32_t row, uint32_t count);
/* Calls `work` for rows 0..rows-1, in pieces. */
void task_split_rows(struct pool *pool, task_split_fn work, void *context, uint32_t rows);

/* Runs kernels->matmul over all tiles and rows of the call. */
void task_split_matmul(struct pool *pool, const struct kernels *kernels, const struct matmul *call);
/* The same for `count` calls whose matrices have the same sizes and forms. `room` has a tile for
 * each thread of the pool, one behind another, if matrices may have been left in the file
 * (matrix_leave); otherwise it is NULL. */
void task_split_matmuls(struct pool *pool, const struct kernels *kernels,
                        const struct matmul *calls, uint32_t count, unsigned char *room);

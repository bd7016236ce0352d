/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rows: an operation over the rows of a pass, spread over threads.
 *
 * Thread: that of the pass; tasks run on its pool.
 * Memory: the pass's. */

#include "cpu/forward.h"

struct matrix;
struct op;

/* The part of an operation that lies in rows row..row+count-1. */
typedef void (*rows_fn)(struct forward *forward, const struct op *op, uint32_t row, uint32_t count);

/* Runs the operation over all rows of the pass. */
void rows_run(struct forward *forward, const struct op *op, rows_fn work);
/* x · factor, where it is above 0. */
void rows_scale(float *x, size_t count, float factor);
/* Leaves rows of x in the form that the next matrix reads; nothing without such a matrix. */
void rows_prepare(const struct forward *forward, const struct matrix *next, const float *x,
                  size_t x_stride, uint32_t row, uint32_t count);

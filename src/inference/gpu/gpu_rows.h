/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_rows: the least rows of a step that use the GPU fully.
 *
 * A step reads all weights once and starts some hundred kernels, whatever its rows: few rows leave
 * the GPU idle. From some number of rows on, more of them make the step longer and gain nothing,
 * and a chat beside a batch waits for whole steps. That number depends on GPU, model and forms, so
 * the GPU finds it by trials. All of them together take nine times as long as the largest step.
 * Half a second of steps goes before them, since a GPU that has rested is faster than under load,
 * and most of all with many rows (docs/internals/inference/gpu.md).
 *
 * Rows per second do not always rise with the rows, since a GPU fills in waves of tiles of which
 * the last may have few (docs/internals/inference/gpu.md). So every number is tried.
 *
 * Thread: the thread that loads, behind warm and before the first step.
 * Memory: none is kept. */

#include "gpu/table.h"

#define GPU_ROWS_LEAST 512u /* fewer are never taken */
#define GPU_ROWS_UNIT 256u
#define GPU_ROWS_TRIED_MAX 31u /* numbers below `most`: up to 8,192 rows */
#define GPU_ROWS_SHARE 0.97    /* this share of the most rows per second is enough */

/* Tries GPU_ROWS_LEAST rows, GPU_ROWS_UNIT more each time, and `most` rows. *ret_rows is the
 * least of these that computes GPU_ROWS_SHARE of the best one's rows per second. It is `most` if
 * `most` is at most GPU_ROWS_LEAST, or if the GPU has no clock. */
enum err gpu_rows_enough(const struct gpu_table *table, struct gpu *gpu, uint32_t most,
                         uint32_t *ret_rows, struct error *error) MUST_CHECK;

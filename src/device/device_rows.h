/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_rows: the least rows of a step that use the device fully.
 *
 * A step reads all weights once and starts some hundred kernels, whatever its rows: few rows leave
 * the device idle. From some number of rows on, more of them make nothing but the step longer, and
 * with it the wait of a chat beside a batch. That number depends on card, model and forms: products
 * of an H100 want some 2,000 rows, those of a card with a fifth of its speed some 500. So it is
 * found by trials of the device. They take nine times as long as the largest step.
 *
 * Rows per second do not always rise with the rows: products fill a card in waves of tiles, and the
 * last wave may have few (docs/internals/device.md). So all numbers are tried.
 *
 * Thread: the thread that loads, behind warm and before the first step.
 * Memory: none is kept. */

#include "kernels/device.h"

#define DEVICE_ROWS_LEAST 512u /* fewer are never taken */
#define DEVICE_ROWS_UNIT 256u
#define DEVICE_ROWS_TRIED_MAX 31u /* numbers below `most`: up to 8,192 rows */
#define DEVICE_ROWS_SHARE 0.97    /* of the most rows per second is enough */

/* The least of DEVICE_ROWS_LEAST, its sums with multiples of DEVICE_ROWS_UNIT, and `most`, with
 * which steps compute at least DEVICE_ROWS_SHARE of the rows per second of the fastest of these.
 * `most` if it is at most DEVICE_ROWS_LEAST, or the device has no clock. */
enum err device_rows_enough(const struct device_table *table, struct device *device, uint32_t most,
                            uint32_t *ret_rows, struct error *error) MUST_CHECK;

/* SPDX-License-Identifier: Apache-2.0 */

/* Laying weights into tiles, on one core: over memory that was touched before (a matrix of 16 MiB
 * and more), and one tile again and again, as a step does it for experts that stay in a file. The
 * way of a table stands next to the one of quern without it. */

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>

#define COLS 2048

struct fill_work {
    struct matrix *matrix;
    struct matrix_part part;
    uint32_t tiles;
};

static void run_fill(void *context) {
    const struct fill_work *work = context;
    matrix_fill(work->matrix, &work->part, 0, work->tiles);
}

/* Billions of weights in a second. */
static double speed_of(const struct kernels *kernels, const struct matrix_part *part,
                       uint32_t tiles) {
    struct fill_work work = {.part = *part, .tiles = tiles};
    work.matrix = make_matrix(kernels, part, 1, COLS);
    const double weights = 1e-9 * (double)tiles * MATRIX_TILE * COLS;
    const double speed = weights / seconds_of(run_fill, &work);
    matrix_close(work.matrix);
    return speed;
}

void bench_fill(const struct kernels *kernels) {
    static const enum tensor_type types[] = {TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_MXFP4, TENSOR_Q8_0,
                                             TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K,  TENSOR_Q3_K,
                                             TENSOR_BF16, TENSOR_F16};
    struct rng rng = {14};
    struct kernels plain = *kernels;
    plain.fill_tile = NULL;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        const uint32_t rows = 256 * MATRIX_TILE;
        unsigned char *blocks = make_weights(&rng, types[i], rows, COLS);
        const struct matrix_part part = {types[i], blocks, rows, NULL};
        const double fast = speed_of(kernels, &part, 256), tile = speed_of(kernels, &part, 1);
        const double slow = speed_of(&plain, &part, 256), slow_tile = speed_of(&plain, &part, 1);
        (void)printf("%s fill %s %ux%u: %.2f billion weights/s, %.1f times plain; one tile %.2f, "
                     "%.1f times\n",
                     kernels->name, tensor_type_name(types[i]), rows, COLS, fast, fast / slow, tile,
                     tile / slow_tile);
        (void)fflush(stdout);
        free(blocks);
    }
}

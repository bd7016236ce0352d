/* SPDX-License-Identifier: Apache-2.0 */

/* Weight matrices and products.
 *
 * Tolerances. Activations that the table's own rounding keeps (small integers times a power of two,
 * the largest of each group 127) must give the double-precision product up to 4e-6 · Σ|w x|, the
 * rounding of float sums. Other activations may be off by their rounding besides: half a step of
 * the group's scale for int8, 2⁻⁸ relative for bf16. */

#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUM_TOLERANCE 4e-6
/* A step is at most this many means of the row / 127, unless the group needs more (tile.h). */
#define STEP_MEANS 4.0
#define ROWS_MOST 64

struct problem {
    struct matrix *matrix;
    struct matrix_part parts[3];
    uint32_t part_count;
    float *weights; /* (matrix->rows, cols), in the order of the matrix */
    unsigned char *blocks[3];
    uint32_t *order;
    uint32_t cols;
    uint32_t rows;
};

static struct problem make_problem(struct rng *rng, const struct kernels *kernels,
                                   const enum tensor_type *types, const uint32_t *part_rows,
                                   uint32_t part_count, uint32_t cols) {
    struct problem problem = {.cols = cols, .part_count = part_count};
    struct matrix_part *parts = problem.parts;
    for (uint32_t p = 0; p < part_count; p++) {
        problem.blocks[p] = make_weights(rng, types[p], part_rows[p], cols);
        parts[p] = (struct matrix_part){types[p], problem.blocks[p], part_rows[p], NULL};
        problem.rows += part_rows[p];
    }
    /* The first part goes backwards. */
    problem.order = make_bytes(part_rows[0] * sizeof *problem.order);
    for (uint32_t i = 0; i < part_rows[0]; i++) problem.order[i] = part_rows[0] - 1 - i;
    parts[0].row_order = problem.order;
    problem.matrix = make_matrix(kernels, parts, part_count, cols);
    problem.weights = make_floats((size_t)problem.rows * cols);
    float *row = problem.weights;
    for (uint32_t p = 0; p < part_count; p++) {
        for (uint32_t i = 0; i < part_rows[p]; i++, row += cols) {
            size_t from = p == 0 ? problem.order[i] : i;
            quant_row_to_f32(types[p],
                             problem.blocks[p] + from * tensor_type_row_bytes(types[p], cols), cols,
                             row);
        }
    }
    return problem;
}

static void drop_problem(struct problem *problem) {
    matrix_close(problem->matrix);
    for (size_t i = 0; i < COUNT_OF(problem->blocks); i++) free(problem->blocks[i]);
    free(problem->order);
    free(problem->weights);
}

static bool rows_come_back(const struct problem *problem) {
    float *row = make_floats(problem->cols);
    bool same = true;
    for (uint32_t i = 0; i < problem->rows; i++) {
        matrix_row(problem->matrix, i, row);
        same =
            same && same_floats(row, problem->weights + (size_t)i * problem->cols, problem->cols);
    }
    free(row);
    return same;
}

/* Every byte is that of a table without a way of its own to fill tiles. */
static bool bytes_are_plain(const struct problem *problem) {
    const struct matrix *matrix = problem->matrix;
    struct kernels plain = *matrix->kernels;
    plain.fill_tile = NULL;
    struct matrix *other = make_matrix(&plain, problem->parts, problem->part_count, problem->cols);
    const bool is_same =
        other->bytes == matrix->bytes && memcmp(other->memory, matrix->memory, matrix->bytes) == 0;
    matrix_close(other);
    return is_same;
}

static void *activate(const struct problem *problem, const float *x, size_t rows) {
    void *activations = make_bytes(rows * problem->matrix->activation_bytes);
    problem->matrix->kernels->activate(problem->matrix, x, problem->cols, rows, activations);
    return activations;
}

static void multiply(const struct problem *problem, const void *activations, size_t rows, float *y,
                     size_t y_stride, const float *bias, bool add) {
    struct matmul call = {.matrix = problem->matrix,
                          .activations = activations,
                          .rows = rows,
                          .y = y,
                          .y_stride = y_stride,
                          .bias = bias,
                          .add = add};
    problem->matrix->kernels->matmul(&call, 0, problem->matrix->tile_count);
}

/* The most that rounding may move each activation of a row. Caller frees. */
static double *roundings_of(const struct problem *problem, const float *x) {
    const struct matrix *matrix = problem->matrix;
    double *roundings = calloc(problem->cols, sizeof *roundings);
    if (!roundings) abort();
    double mean = 0;
    for (uint32_t k = 0; k < problem->cols; k++) mean += fabs((double)x[k]) / problem->cols;
    for (uint32_t k = 0; k < problem->cols; k++) {
        if (matrix->layout == MATRIX_BF16_PAIRS) roundings[k] = fabs((double)x[k]) / 256;
        if (matrix->layout != MATRIX_BYTES) continue;
        double largest = 0;
        uint32_t begin = k / matrix->group * matrix->group;
        for (uint32_t i = 0; i < matrix->group; i++)
            largest = fmax(largest, fabs((double)x[begin + i]));
        roundings[k] = fmax(fmin(largest, STEP_MEANS * mean), largest / 128) / 127 * 0.501;
    }
    return roundings;
}

/* Random activations of which some are far larger than the rest, as a model's are. */
static float *make_activations(struct rng *rng, size_t count) {
    float *x = make_random(rng, count);
    for (size_t i = 0; i < count; i++)
        if (rng_below(rng, 24) == 0) x[i] *= (float)(1u << rng_below(rng, 11));
    return x;
}

static bool is_product(const struct problem *problem, const float *x, size_t rows, const float *y,
                       bool is_exact) {
    double worst = 0;
    for (size_t r = 0; r < rows; r++) {
        const float *a = x + r * problem->cols;
        double *roundings = roundings_of(problem, a);
        for (uint32_t n = 0; n < problem->rows; n++) {
            const float *w = problem->weights + (size_t)n * problem->cols;
            double sum = 0;
            double size = 0;
            double rounding = 0;
            for (uint32_t k = 0; k < problem->cols; k++) {
                sum += (double)w[k] * (double)a[k];
                size += fabs((double)w[k] * (double)a[k]);
                if (!is_exact) rounding += fabs((double)w[k]) * roundings[k];
            }
            double error = fabs((double)y[r * problem->rows + n] - sum);
            double allowed = SUM_TOLERANCE * size + rounding * 1.0001 + 1e-30;
            if (!(error / allowed <= worst)) worst = error / allowed;
        }
        free(roundings);
    }
    if (!(worst <= 1)) note("error is %g of what is allowed", worst);
    return worst <= 1;
}

static float *make_exact(struct rng *rng, const struct problem *problem, size_t rows) {
    size_t count = rows * problem->cols;
    float *x = make_floats(count);
    for (size_t i = 0; i < count; i++) {
        float value = (float)rng_below(rng, 255) - 127;
        if (i % 16 == 5) value = 127; /* K is a multiple of 16 wherever groups matter */
        x[i] = value / 64;
    }
    return x;
}

static bool products_are_right(struct rng *rng, const struct problem *problem) {
    bool is_ok = true;
    for (int is_exact = 0; is_exact < 2; is_exact++) {
        size_t rows = 7;
        float *x =
            is_exact ? make_exact(rng, problem, rows) : make_activations(rng, rows * problem->cols);
        float *y = make_floats(rows * problem->rows);
        void *activations = activate(problem, x, rows);
        poison(y, rows * problem->rows);
        multiply(problem, activations, rows, y, problem->rows, NULL, false);
        is_ok = is_product(problem, x, rows, y, is_exact) && is_ok;
        free(activations);
        free(x);
        free(y);
    }
    return is_ok;
}

/* y = old + (product + bias), and floats outside the columns do not change. */
static bool bias_and_add_work(struct rng *rng, const struct problem *problem) {
    size_t rows = 3;
    size_t stride = problem->rows + 5;
    float *x = make_random(rng, rows * problem->cols);
    float *bias = make_random(rng, problem->rows);
    float *plain = make_floats(rows * problem->rows);
    float *old = make_random(rng, rows * stride);
    float *y = make_floats(rows * stride);
    void *activations = activate(problem, x, rows);
    multiply(problem, activations, rows, plain, problem->rows, NULL, false);
    memcpy(y, old, rows * stride * sizeof *y);
    multiply(problem, activations, rows, y, stride, bias, true);
    bool is_ok = true;
    for (size_t r = 0; r < rows; r++) {
        for (size_t n = 0; n < stride; n++) {
            float expected = old[r * stride + n];
            if (n < problem->rows) expected += plain[r * problem->rows + n] + bias[n];
            is_ok = is_ok && y[r * stride + n] == expected;
        }
    }
    memcpy(y, old, rows * stride * sizeof *y);
    multiply(problem, activations, 0, y, stride, bias, true);
    is_ok = is_ok && same_floats(y, old, rows * stride);
    free(activations);
    free(x);
    free(bias);
    free(plain);
    free(old);
    free(y);
    return is_ok;
}

/* Any number of rows, cut anywhere along rows and tiles, gives the bits each row gives alone. */
static bool batches_do_not_matter(struct rng *rng, const struct problem *problem) {
    static const size_t counts[] = {1, 2, 3, 5, 8, 15, 16, 17, 33, 64};
    const struct matrix *matrix = problem->matrix;
    float *x = make_activations(rng, ROWS_MOST * (size_t)problem->cols);
    float *alone = make_floats(ROWS_MOST * (size_t)problem->rows);
    float *y = make_floats(ROWS_MOST * (size_t)problem->rows);
    for (size_t r = 0; r < ROWS_MOST; r++) {
        void *activations = activate(problem, x + r * problem->cols, 1);
        multiply(problem, activations, 1, alone + r * problem->rows, problem->rows, NULL, false);
        free(activations);
    }
    bool is_ok = true;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        size_t first = rng_below(rng, ROWS_MOST - counts[i] + 1);
        void *activations = activate(problem, x + first * problem->cols, counts[i]);
        poison(y, ROWS_MOST * (size_t)problem->rows);
        struct matmul call = {.matrix = matrix,
                              .activations = activations,
                              .rows = counts[i],
                              .y = y,
                              .y_stride = problem->rows};
        for (uint32_t tile = 0; tile < matrix->tile_count;) {
            uint32_t end = tile + (uint32_t)rng_below(rng, matrix->tile_count - tile + 1);
            matrix->kernels->matmul(&call, tile, end); /* sometimes an empty range */
            tile = end;
        }
        is_ok = is_ok && same_floats(y, alone + first * problem->rows, counts[i] * problem->rows);
        free(activations);
    }
    free(x);
    free(alone);
    free(y);
    return is_ok;
}

/* The same for blocks of random bytes, whose scales are any number. */
static bool any_bytes_are_plain(struct rng *rng, const struct kernels *kernels,
                                enum tensor_type type, uint32_t rows, uint32_t cols) {
    const size_t bytes = rows * tensor_type_row_bytes(type, cols);
    unsigned char *blocks = make_bytes(bytes);
    for (size_t i = 0; i < bytes; i++) blocks[i] = (unsigned char)rng_next(rng);
    struct problem problem = {.parts = {{type, blocks, rows, NULL}}, .part_count = 1, .cols = cols};
    problem.matrix = make_matrix(kernels, problem.parts, 1, cols);
    const bool is_same = bytes_are_plain(&problem);
    matrix_close(problem.matrix);
    free(blocks);
    return is_same;
}

/* Any rows and columns, whole tiles and the ends of them. */
static void check_fill(struct rng *rng, const struct kernels *kernels, enum tensor_type type) {
    const uint32_t block = tensor_type_block_elements(type);
    bool is_ok = true;
    for (int i = 0; i < 24 && is_ok; i++) {
        const uint32_t rows = 1 + (uint32_t)rng_below(rng, 100);
        const uint32_t cols = block * (1 + (uint32_t)rng_below(rng, block == 1 ? 90 : 5));
        is_ok = any_bytes_are_plain(rng, kernels, type, rows, cols);
        if (!is_ok) note("%u rows of %u columns differ", rows, cols);
    }
    report(is_ok, "%s matrix %s: any bytes fill tiles as they do without a table's own way",
           kernels->name, tensor_type_name(type));
}

static void check_one(struct rng *rng, const struct kernels *kernels, const char *name,
                      const enum tensor_type *types, const uint32_t *part_rows, uint32_t part_count,
                      uint32_t cols) {
    struct problem problem = make_problem(rng, kernels, types, part_rows, part_count, cols);
    report(rows_come_back(&problem), "%s matrix %s %ux%u: rows come back bit by bit", kernels->name,
           name, problem.rows, cols);
    report(bytes_are_plain(&problem),
           "%s matrix %s %ux%u: its bytes are those without a table's own way", kernels->name, name,
           problem.rows, cols);
    report(products_are_right(rng, &problem), "%s matmul %s %ux%u: is the product", kernels->name,
           name, problem.rows, cols);
    report(bias_and_add_work(rng, &problem), "%s matmul %s %ux%u: bias and add", kernels->name,
           name, problem.rows, cols);
    report(batches_do_not_matter(rng, &problem), "%s matmul %s %ux%u: batches do not matter",
           kernels->name, name, problem.rows, cols);
    drop_problem(&problem);
}

void check_matmul(const struct kernels *kernels) {
    struct rng rng = {1};
    for (uint32_t id = 0; id < TENSOR_TYPE_END; id++) {
        if (!tensor_type_is_known(id)) continue;
        enum tensor_type type = (enum tensor_type)id;
        const char *name = tensor_type_name(type);
        uint32_t block = tensor_type_block_elements(type);
        uint32_t few = block == 1 ? 7 : block;
        check_fill(&rng, kernels, type);
        check_one(&rng, kernels, name, &type, (uint32_t[]){1}, 1, few);
        check_one(&rng, kernels, name, &type, (uint32_t[]){33}, 1, block == 1 ? 48 : 3 * block);
        check_one(&rng, kernels, name, (enum tensor_type[]){type, type, type},
                  (uint32_t[]){64, 17, 16}, 3, block == 256 ? 512 : 576);
    }
    check_one(&rng, kernels, "Q4_K+Q6_K",
              (enum tensor_type[]){TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q6_K}, (uint32_t[]){40, 24, 24},
              3, 256);
    check_one(&rng, kernels, "Q8_0+Q4_1+Q5_0",
              (enum tensor_type[]){TENSOR_Q8_0, TENSOR_Q4_1, TENSOR_Q5_0}, (uint32_t[]){32, 31, 33},
              3, 160);
    check_one(&rng, kernels, "Q5_K+Q8_0+Q6_K",
              (enum tensor_type[]){TENSOR_Q5_K, TENSOR_Q8_0, TENSOR_Q6_K}, (uint32_t[]){33, 32, 64},
              3, 512);
    check_one(&rng, kernels, "IQ4_XS+Q6_K", (enum tensor_type[]){TENSOR_IQ4_XS, TENSOR_Q6_K},
              (uint32_t[]){50, 31}, 2, 512);
    check_one(&rng, kernels, "IQ4_NL+MXFP4+Q5_1",
              (enum tensor_type[]){TENSOR_IQ4_NL, TENSOR_MXFP4, TENSOR_Q5_1},
              (uint32_t[]){33, 32, 5}, 3, 96);
    check_one(&rng, kernels, "INT4+Q8_0", (enum tensor_type[]){TENSOR_INT4, TENSOR_Q8_0},
              (uint32_t[]){33, 40}, 2, 160);
    check_one(&rng, kernels, "F16+Q4_0", (enum tensor_type[]){TENSOR_F16, TENSOR_Q4_0},
              (uint32_t[]){15, 16}, 2, 96);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/matrix.h"
#include "kernels/ref/ref.h"

#include <assert.h>
#include <string.h>

#define CHUNK 256 /* weights unpacked at a time: the largest block */
#define ROWS 16   /* rows of activations that share one unpacking */
#define LANES 16  /* partial sums of a dot product, so that a compiler may use vectors */

void ref_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                  void *ret_activations) {
    assert(x_stride >= matrix->cols);
    unsigned char *at = ret_activations;
    for (size_t row = 0; row < rows; row++)
        memcpy(at + row * matrix->activation_bytes, x + row * x_stride,
               matrix->cols * sizeof(float));
}

/* sums (LANES) += a · b over `count` elements, element i into lane i % LANES. */
static void dot(const float *a, const float *b, size_t count, float *sums) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) sums[lane] += a[i + lane] * b[i + lane];
    for (size_t lane = 0; i + lane < count; lane++) sums[lane] += a[i + lane] * b[i + lane];
}

static float sum_of(const float *sums) {
    float halves[LANES / 2];
    for (size_t i = 0; i < LANES / 2; i++) halves[i] = sums[i] + sums[i + LANES / 2];
    for (size_t width = LANES / 4; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++) halves[i] += halves[i + width];
    return halves[0];
}

/* One output for up to ROWS rows: `blocks` is its row of weights. */
static void multiply_row(const struct matmul *call, enum tensor_type type,
                         const unsigned char *blocks, uint32_t column, size_t row_begin,
                         size_t row_count) {
    const struct matrix *matrix = call->matrix;
    const unsigned char *activations = call->activations;
    float sums[ROWS][LANES] = {{0}};
    for (uint32_t first = 0; first < matrix->cols; first += CHUNK) {
        uint32_t left = matrix->cols - first;
        uint32_t count = left < CHUNK ? left : CHUNK;
        float weights[CHUNK];
        quant_row_to_f32(type, blocks, count, weights);
        blocks += tensor_type_row_bytes(type, count);
        for (size_t r = 0; r < row_count; r++) {
            const void *row = activations + (row_begin + r) * matrix->activation_bytes;
            dot((const float *)row + first, weights, count, sums[r]);
        }
    }
    for (size_t r = 0; r < row_count; r++) {
        float *y = call->y + (row_begin + r) * call->y_stride + column;
        float sum = sum_of(sums[r]);
        if (call->bias) sum += call->bias[column];
        *y = call->add ? *y + sum : sum;
    }
}

void ref_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end) {
    const struct matrix *matrix = call->matrix;
    assert(matrix->layout == MATRIX_BLOCKS && call->y_stride >= matrix->rows);
    assert(tile_begin <= tile_end && tile_end <= matrix->tile_count);
    for (uint32_t t = tile_begin; t < tile_end; t++) {
        const struct matrix_tile *tile = &matrix->tiles[t];
        enum tensor_type type = matrix->parts[tile->part].type;
        size_t row_bytes = tensor_type_row_bytes(type, matrix->cols);
        for (uint32_t c = 0; c < tile->count; c++) {
            const unsigned char *blocks = matrix->memory + tile->offset + c * row_bytes;
            for (size_t row = 0; row < call->rows; row += ROWS) {
                size_t left = call->rows - row;
                multiply_row(call, type, blocks, tile->column + c, row, left < ROWS ? left : ROWS);
            }
        }
    }
}

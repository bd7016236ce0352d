/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "../block_scales.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *make_bytes(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes ? bytes : 1) != 0) abort();
    return memory;
}

float *make_floats(size_t count) {
    return make_bytes(count * sizeof(float));
}

float random_float(struct rng *rng) {
    float value = (float)(2 * rng_unit(rng) - 1);
    return rng_below(rng, 64) == 0 ? value * 12 : value;
}

float *make_random(struct rng *rng, size_t count) {
    float *values = make_floats(count);
    for (size_t i = 0; i < count; i++) values[i] = random_float(rng);
    return values;
}

void poison(float *at, size_t count) {
    for (size_t i = 0; i < count; i++) at[i] = NAN;
}

/* Gives a block of random bytes scales that weights have. */
static void set_scales(struct rng *rng, enum tensor_type type, unsigned char *block) {
    const struct block_scales *scales = block_scales_find(type);
    if (type == TENSOR_MXFP4 || type == TENSOR_MXFP4_PAIRS) {
        block[0] = (unsigned char)(118 + rng_below(rng, 6));
    } else if (type == TENSOR_INT4) {
        float scale = (float)(rng_unit(rng) + 0.1) * 0.02f;
        float minimum = -scale * (float)rng_below(rng, 17);
        memcpy(block, &scale, sizeof scale);
        memcpy(block + sizeof scale, &minimum, sizeof minimum);
    } else if (!scales) {
        (void)fprintf(stderr, "%s has no row in tests/block_scales.h\n", tensor_type_name(type));
        abort();
    }
    for (uint32_t h = 0; scales && h < scales->count; h++) {
        uint16_t half = half_from_f32((float)(rng_unit(rng) - 0.4) * 0.02f);
        memcpy(block + scales->at + 2 * h, &half, sizeof half);
    }
}

unsigned char *make_weights(struct rng *rng, enum tensor_type type, uint32_t rows, uint32_t cols) {
    size_t bytes = rows * tensor_type_row_bytes(type, cols);
    unsigned char *blocks = make_bytes(bytes);
    uint32_t block_bytes = tensor_type_block_bytes(type);
    for (size_t at = 0; at < bytes; at += block_bytes) {
        if (type == TENSOR_F32) {
            float value = random_float(rng) * 0.05f;
            memcpy(blocks + at, &value, sizeof value);
        } else if (type == TENSOR_F16 || type == TENSOR_BF16) {
            float value = random_float(rng) * 0.05f;
            uint16_t bits = type == TENSOR_F16 ? half_from_f32(value) : bf16_from_f32(value);
            memcpy(blocks + at, &bits, sizeof bits);
        } else {
            for (uint32_t i = 0; i < block_bytes; i++)
                blocks[at + i] = (unsigned char)rng_next(rng);
            set_scales(rng, type, blocks + at);
        }
    }
    return blocks;
}

struct matrix *make_matrix(const struct kernels *kernels, const struct matrix_part *parts,
                           uint32_t part_count, uint32_t cols) {
    struct error error = {0};
    struct matrix *matrix = NULL;
    if (matrix_open(&matrix, kernels, parts, part_count, cols, &error) != OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        abort();
    }
    matrix_fill(matrix, parts, 0, matrix->tile_count);
    return matrix;
}

int64_t spent_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool same_floats(const float *a, const float *b, size_t count) {
    return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

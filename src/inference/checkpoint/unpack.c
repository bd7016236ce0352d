/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/unpack.h"

#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define TASK_ROWS 64 /* a multiple of the rows in a word; few enough that their lines stay in L1 */

static uint32_t word_at(const unsigned char *at, size_t index) {
    uint32_t word;
    memcpy(&word, at + index * sizeof word, sizeof word);
    return word;
}

static float scale_at(const struct packed_weight *weight, size_t index) {
    if (weight->scale_type == TENSOR_F32) {
        float scale;
        memcpy(&scale, weight->scales + index * sizeof scale, sizeof scale);
        return scale;
    }
    uint16_t bits;
    memcpy(&bits, weight->scales + index * sizeof bits, sizeof bits);
    return weight->scale_type == TENSOR_F16 ? half_to_f32(bits) : bf16_to_f32(bits);
}

static float from_e4m3(uint8_t byte) {
    if ((byte & 0x7F) == 0x7F) return NAN;
    /* The bits are those of a float32 whose exponent is 120 too small. */
    uint32_t bits = (uint32_t)(byte & 0x7F) << 20;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 0x1p120f;
    return byte & 0x80 ? -value : value;
}

static void unpack_fp8(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                       void *ret_rows) {
    uint16_t *to = ret_rows;
    for (size_t row = begin; row < end; row++) {
        size_t scales = row / weight->block_rows * weight->scale_cols;
        const unsigned char *values = weight->values + row * weight->cols;
        for (size_t first = 0; first < weight->cols; first += weight->block_cols) {
            float scale = scale_at(weight, scales + first / weight->block_cols);
            size_t last = first + weight->block_cols;
            if (last > weight->cols) last = weight->cols;
            for (size_t col = first; col < last; col++)
                to[row * weight->cols + col] = bf16_from_f32(from_e4m3(values[col]) * scale);
        }
    }
}

static const unsigned char awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* output j in a word */

static void unpack_awq(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                       void *ret_rows) {
    uint16_t *to = ret_rows;
    size_t words = weight->rows / 8;
    for (size_t col = 0; col < weight->cols; col++) {
        size_t group = col / weight->block_cols;
        for (size_t word = begin / 8; word < end / 8; word++) {
            uint32_t values = word_at(weight->values, col * words + word);
            uint32_t zeros = word_at(weight->zeros, group * words + word);
            for (size_t j = 0; j < 8; j++) {
                uint32_t shift = 4u * awq_place[j];
                int32_t q = (int32_t)(values >> shift & 15) - (int32_t)(zeros >> shift & 15);
                float scale = scale_at(weight, group * weight->rows + word * 8 + j);
                to[(word * 8 + j) * weight->cols + col] = bf16_from_f32((float)q * scale);
            }
        }
    }
}

static void unpack_gptq(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                        void *ret_rows) {
    uint16_t *to = ret_rows;
    uint32_t bits = weight->bits, each = 32 / bits, mask = (1u << bits) - 1;
    for (size_t col = 0; col < weight->cols; col++) {
        size_t group = weight->groups ? word_at(weight->groups, col) : col / weight->block_cols;
        uint32_t shift = bits * (uint32_t)(col % each);
        for (size_t row = begin; row < end; row++) {
            uint32_t value = word_at(weight->values, col / each * weight->rows + row);
            uint32_t zeros = word_at(weight->zeros, group * (weight->rows / each) + row / each);
            uint32_t zero = (zeros >> bits * (uint32_t)(row % each) & mask) + weight->zero_add;
            int32_t q = (int32_t)(value >> shift & mask) - (int32_t)zero;
            float scale = scale_at(weight, group * weight->rows + row);
            to[row * weight->cols + col] = bf16_from_f32((float)q * scale);
        }
    }
}

static void unpack_int8(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                        void *ret_rows) {
    uint16_t *to = ret_rows;
    for (size_t row = begin; row < end; row++) {
        const size_t scales = row / weight->block_rows * weight->scale_cols;
        const unsigned char *values = weight->values + row * weight->cols;
        for (size_t col = 0; col < weight->cols; col++)
            to[row * weight->cols + col] = bf16_from_f32(
                (float)(int8_t)values[col] * scale_at(weight, scales + col / weight->block_cols));
    }
}

/* The zero point of an output in a group. */
static uint32_t zero_of_row(const struct packed_weight *weight, size_t row, size_t group) {
    const uint32_t bits = weight->bits, each = 32 / bits, mask = (1u << bits) - 1;
    if (!weight->zeros) return 1u << (bits - 1);
    return word_at(weight->zeros, row / each * weight->scale_cols + group) >>
               bits * (uint32_t)(row % each) &
           mask;
}

static uint32_t value_of_row(const struct packed_weight *weight, size_t row, size_t col) {
    const uint32_t bits = weight->bits, each = 32 / bits, mask = (1u << bits) - 1;
    const size_t words = (weight->cols + each - 1) / each;
    return word_at(weight->values, row * words + col / each) >> bits * (uint32_t)(col % each) &
           mask;
}

static void unpack_by_rows(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                           void *ret_rows) {
    uint16_t *to = ret_rows;
    for (size_t row = begin; row < end; row++)
        for (size_t col = 0; col < weight->cols; col++) {
            const size_t group =
                weight->groups ? word_at(weight->groups, col) : col / weight->block_cols;
            const int32_t q =
                (int32_t)value_of_row(weight, row, col) - (int32_t)zero_of_row(weight, row, group);
            to[row * weight->cols + col] =
                bf16_from_f32((float)q * scale_at(weight, row * weight->scale_cols + group));
        }
}

static void unpack_nvfp4(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                         void *ret_rows) {
    static const float magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    uint16_t *to = ret_rows;
    for (size_t row = begin; row < end; row++) {
        const unsigned char *values = weight->values + row * (weight->cols / 2);
        const unsigned char *scales = weight->scales + row * weight->scale_cols;
        for (size_t col = 0; col < weight->cols; col++) {
            const unsigned nibble = values[col / 2] >> 4 * (col % 2) & 15;
            const float magnitude = magnitudes[nibble & 7];
            const float scale = from_e4m3(scales[col / NVFP4_GROUP]) * weight->factor;
            to[row * weight->cols + col] =
                bf16_from_f32((nibble & 8 ? -magnitude : magnitude) * scale);
        }
    }
}

/* ---- rows of integers ---- */

#define BLOCK 32 /* elements of a block of INT4 or MXFP4 */
#define MXFP4_BYTES ((size_t)17)

/* A block of row `row`, whose inputs are of one group: value = scale · q - scale · zero. */
static void put_block(const struct packed_weight *weight, size_t row, size_t first_col,
                      const uint8_t q[BLOCK], uint32_t zero, void *to) {
    const size_t group = first_col / weight->block_cols;
    float scale =
        scale_at(weight, weight->packing == PACKING_ROWS ? row * weight->scale_cols + group
                                                         : group * weight->rows + row);
    float minimum = -(float)zero * scale;
    unsigned char *at = (unsigned char *)to +
                        row * tensor_type_row_bytes(weight->type, weight->cols) +
                        first_col / BLOCK * tensor_type_block_bytes(weight->type);
    memcpy(at, &scale, sizeof scale);
    memcpy(at + sizeof scale, &minimum, sizeof minimum);
    at += sizeof scale + sizeof minimum;
    for (size_t i = 0; i < BLOCK / 2; i++) at[i] = (unsigned char)(q[i] | q[i + BLOCK / 2] << 4);
}

static void keep_awq(const struct packed_weight *weight, uint32_t begin, uint32_t end, void *to) {
    size_t words = weight->rows / 8;
    for (size_t col = 0; col < weight->cols; col += BLOCK) {
        for (size_t word = begin / 8; word < end / 8; word++) {
            uint32_t zeros = word_at(weight->zeros, col / weight->block_cols * words + word);
            uint8_t q[8][BLOCK];
            for (size_t i = 0; i < BLOCK; i++) {
                uint32_t values = word_at(weight->values, (col + i) * words + word);
                for (size_t j = 0; j < 8; j++)
                    q[j][i] = (uint8_t)(values >> 4u * awq_place[j] & 15);
            }
            for (size_t j = 0; j < 8; j++)
                put_block(weight, word * 8 + j, col, q[j], zeros >> 4u * awq_place[j] & 15, to);
        }
    }
}

static void keep_gptq(const struct packed_weight *weight, uint32_t begin, uint32_t end, void *to) {
    for (size_t col = 0; col < weight->cols; col += BLOCK) {
        size_t group = col / weight->block_cols;
        for (size_t row = begin; row < end; row++) {
            uint32_t zeros = word_at(weight->zeros, group * (weight->rows / 8) + row / 8);
            uint8_t q[BLOCK];
            for (size_t i = 0; i < BLOCK; i += 8) {
                uint32_t values = word_at(weight->values, (col + i) / 8 * weight->rows + row);
                for (uint32_t j = 0; j < 8; j++) q[i + j] = (uint8_t)(values >> 4 * j & 15);
            }
            put_block(weight, row, col, q, (zeros >> 4 * (row % 8) & 15) + weight->zero_add, to);
        }
    }
}

static void keep_rows(const struct packed_weight *weight, uint32_t begin, uint32_t end, void *to) {
    for (size_t row = begin; row < end; row++)
        for (size_t col = 0; col < weight->cols; col += BLOCK) {
            uint8_t q[BLOCK];
            for (size_t i = 0; i < BLOCK; i++) q[i] = (uint8_t)value_of_row(weight, row, col + i);
            put_block(weight, row, col, q, zero_of_row(weight, row, col / weight->block_cols), to);
        }
}

static void unpack_dummy(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                         void *ret_rows) {
    uint16_t *to = ret_rows;
    size_t first = (size_t)begin * weight->cols, last = (size_t)end * weight->cols;
    for (size_t i = first; i < last; i++) {
        float unit = (float)(rng_at(weight->seed, i) >> 40) * 0x1p-24f;
        to[i] = bf16_from_f32(weight->centre + weight->spread * (2.0f * unit - 1.0f));
    }
}

/* ---- matrices of three axes ---- */

/* Neighbours of a byte become elements 16 apart, as GGUF's blocks have them. */
static void unpack_mxfp4(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                         void *ret_rows) {
    const size_t blocks = weight->cols / BLOCK;
    unsigned char *to = (unsigned char *)ret_rows + begin * blocks * MXFP4_BYTES;
    for (size_t i = begin * blocks; i < end * blocks; i++, to += MXFP4_BYTES) {
        const unsigned char *from = weight->values + i * (BLOCK / 2);
        to[0] = weight->scales[i];
        for (size_t j = 0; j < BLOCK / 4; j++) {
            const unsigned low = from[j], high = from[j + BLOCK / 4];
            to[1 + 2 * j] = (unsigned char)((low & 15) | (high & 15) << 4);
            to[2 + 2 * j] = (unsigned char)(low >> 4 | (high & 0xF0));
        }
    }
}

static void unpack_turned(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                          void *ret_rows) {
    const size_t bytes = tensor_type_block_bytes(weight->type);
    unsigned char *to = ret_rows;
    for (size_t col = 0; col < weight->cols; col++)
        for (size_t row = begin; row < end; row++)
            memcpy(to + (row * weight->cols + col) * bytes,
                   weight->values + (col * weight->rows + row) * bytes, bytes);
}

/* The weight of one matrix of those that follow each other. */
static struct packed_weight slice_of(const struct packed_weight *weight, uint32_t slice) {
    struct packed_weight one = *weight;
    const size_t elements = (size_t)slice * weight->rows * weight->cols;
    if (weight->packing == PACKING_MXFP4) {
        one.values += elements / 2;
        one.scales += elements / BLOCK;
    } else if (weight->packing == PACKING_TURNED) {
        one.values += elements * tensor_type_block_bytes(weight->type);
    } else {
        assert(slice == 0);
    }
    return one;
}

/* ---- spreading ---- */

/* Rows begin..end-1 of a weight, to where row 0 begins. */
typedef void (*unpack_fn)(const struct packed_weight *weight, uint32_t begin, uint32_t end,
                          void *ret_rows);

static unpack_fn choose(const struct packed_weight *weight) {
    const bool keeps = weight->type == TENSOR_INT4;
    switch (weight->packing) {
    case PACKING_FP8: return unpack_fp8;
    case PACKING_AWQ: return keeps ? keep_awq : unpack_awq;
    case PACKING_GPTQ: return keeps ? keep_gptq : unpack_gptq;
    case PACKING_ROWS: return keeps ? keep_rows : unpack_by_rows;
    case PACKING_INT8: return unpack_int8;
    case PACKING_NVFP4: return unpack_nvfp4;
    case PACKING_MXFP4: return unpack_mxfp4;
    case PACKING_TURNED: return unpack_turned;
    case PACKING_DUMMY: break;
    }
    return unpack_dummy;
}

struct unpack_job {
    const struct packed_weight *weight;
    unpack_fn unpack;
    void *rows;
};

static void unpack_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct unpack_job *job = context;
    uint32_t begin = task * TASK_ROWS, end = begin + TASK_ROWS;
    if (end > job->weight->rows) end = job->weight->rows;
    job->unpack(job->weight, begin, end, job->rows);
}

void unpack_weight(const struct packed_weight *weight, uint32_t slice, struct pool *pool,
                   void *ret_rows) {
    const struct packed_weight one = slice_of(weight, slice);
    assert(weight->packing != PACKING_AWQ || weight->rows % 8 == 0);
    assert(weight->type != TENSOR_INT4 ||
           (!weight->groups && weight->cols % BLOCK == 0 && weight->block_cols % BLOCK == 0));
    struct unpack_job job = {&one, choose(weight), ret_rows};
    pool_run(pool, unpack_task, &job, (weight->rows + TASK_ROWS - 1) / TASK_ROWS);
}

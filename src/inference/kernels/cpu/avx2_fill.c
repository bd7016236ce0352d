/* SPDX-License-Identifier: Apache-2.0 */

/* Whole tiles of weights from the rows of a file, for the avx2 table and the avx512 tables.
 *
 * A tile has the words of four inputs of its 32 columns next to each other, and a file has those of
 * one row. So 16 bytes of four rows are turned at a time, two such squares in the lanes of a
 * vector. Nibbles of a row and of the row 16 further on are joined before, while they lie as the
 * file has them; other types go through one byte per weight. Wider vectors would gain nothing:
 * reading and writing memory bounds it. */

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/inline.h"
#include "kernels/matrix.h"

#include <immintrin.h>
#include <string.h>

#define BLOCK_MAX 256 /* elements of the largest block */

/* (MATRIX_TILE) where each column's row begins. */
typedef const unsigned char *const *tile_rows;

struct fill {
    const struct matrix *matrix;
    const struct matrix_tile *tile;
    tile_rows rows;
    enum tensor_type type;
    uint32_t elements; /* a block's */
    size_t block_bytes;
    size_t group_bytes; /* the tile's */
    size_t data_bytes;  /* a group's, before its scales */
};

/* ---- squares ---- */

/* Word w of rows 0 to 3 of each lane goes to x[w]. */
ALWAYS_INLINE void turn(__m256i *x) {
    const __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
    const __m256i c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi64(a, c);
    x[1] = _mm256_unpackhi_epi64(a, c);
    x[2] = _mm256_unpacklo_epi64(b, d);
    x[3] = _mm256_unpackhi_epi64(b, d);
}

/* 16 bytes of a row, and of the one four further on. */
ALWAYS_INLINE __m256i load_two(tile_rows rows, uint32_t row, size_t offset) {
    const __m128i first = _mm_loadu_si128((const void *)(rows[row] + offset));
    const __m128i second = _mm_loadu_si128((const void *)(rows[row + 4] + offset));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
}

ALWAYS_INLINE void store(unsigned char *at, __m256i x) {
    _mm256_storeu_si256((void *)at, x);
}

/* Four words of each row, from `offset` on, with `add` added to each byte. ret: (4, 32) words */
static void fill_words(tile_rows rows, size_t offset, uint8_t add, unsigned char *ret) {
    const __m256i adds = _mm256_set1_epi8((char)add);
    for (uint32_t c = 0; c < MATRIX_TILE; c += 8) {
        __m256i x[4];
        UNROLL for (uint32_t i = 0; i < 4; i++) x[i] =
            _mm256_add_epi8(load_two(rows, c + i, offset), adds);
        turn(x);
        UNROLL for (uint32_t i = 0; i < 4; i++)
            store(ret + ((size_t)i * MATRIX_TILE + c) * 4, x[i]);
    }
}

/* The same of words with a nibble per byte: those of the last 16 columns are the high halves.
 * ret: (4, 16) words */
static void fill_joined(tile_rows rows, size_t offset, unsigned char *ret) {
    for (uint32_t c = 0; c < MATRIX_TILE / 2; c += 8) {
        __m256i x[4];
        UNROLL for (uint32_t i = 0; i < 4; i++) x[i] =
            _mm256_or_si256(load_two(rows, c + i, offset),
                            _mm256_slli_epi16(load_two(rows, c + 16 + i, offset), 4));
        turn(x);
        UNROLL for (uint32_t i = 0; i < 4; i++) store(ret + (size_t)64 * i + (size_t)4 * c, x[i]);
    }
}

/* 16 bytes of each row, from `offset` on, with two nibbles each: elements j and j + 16, or
 * neighbours. ret_low, ret_high: (4, 16) words of the first and the last 16 elements */
ALWAYS_INLINE void fill_nibbles(tile_rows rows, size_t offset, const bool are_neighbours,
                                unsigned char *ret_low, unsigned char *ret_high) {
    const __m256i nibble = _mm256_set1_epi8(15);
    for (uint32_t c = 0; c < MATRIX_TILE / 2; c += 8) {
        __m256i low[4], high[4];
        UNROLL for (uint32_t i = 0; i < 4; i++) {
            const __m256i x = load_two(rows, c + i, offset);
            const __m256i y = load_two(rows, c + 16 + i, offset);
            low[i] = _mm256_or_si256(_mm256_and_si256(x, nibble),
                                     _mm256_slli_epi16(_mm256_and_si256(y, nibble), 4));
            high[i] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(x, 4), nibble),
                                      _mm256_andnot_si256(nibble, y));
            if (!are_neighbours) continue;
            const __m256i first = _mm256_unpacklo_epi8(low[i], high[i]);
            high[i] = _mm256_unpackhi_epi8(low[i], high[i]);
            low[i] = first;
        }
        turn(low);
        turn(high);
        UNROLL for (uint32_t i = 0; i < 4; i++) {
            store(ret_low + (size_t)64 * i + (size_t)4 * c, low[i]);
            store(ret_high + (size_t)64 * i + (size_t)4 * c, high[i]);
        }
    }
}

/* ---- scales ---- */

static void fill_halves(tile_rows rows, size_t offset, unsigned char *ret) {
    uint16_t halves[MATRIX_TILE];
    for (uint32_t c = 0; c < MATRIX_TILE; c++)
        memcpy(&halves[c], rows[c] + offset, sizeof halves[c]);
    for (uint32_t c = 0; c < MATRIX_TILE; c += 8)
        store(ret + (size_t)4 * c,
              _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128((const void *)(halves + c)))));
}

/* MXFP4: 2^(e - 128), where two exponents are below those of normal numbers. */
static void fill_powers(tile_rows rows, size_t offset, unsigned char *ret) {
    for (uint32_t c = 0; c < MATRIX_TILE; c++) {
        const uint32_t e = rows[c][offset];
        const uint32_t bits = e < 2 ? UINT32_C(0x200000) << e : (e - 1) << 23;
        memcpy(ret + (size_t)4 * c, &bits, sizeof bits);
    }
}

static void fill_floats(tile_rows rows, size_t offset, unsigned char *ret) {
    for (uint32_t c = 0; c < MATRIX_TILE; c++)
        memcpy(ret + (size_t)4 * c, rows[c] + offset, sizeof(float));
}

/* Numbers of eight groups of eight columns; ret: of the first group and column. */
ALWAYS_INLINE void store_numbers(const __m256 *x, size_t group_bytes, unsigned char *ret) {
    UNROLL for (int half = 0; half < 2; half++) {
        __m256i turned[4];
        UNROLL for (int i = 0; i < 4; i++) turned[i] =
            _mm256_castps_si256(half ? _mm256_permute2f128_ps(x[i], x[i + 4], 0x31)
                                     : _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
        turn(turned);
        UNROLL for (int i = 0; i < 4; i++)
            store(ret + (size_t)(4 * half + i) * group_bytes, turned[i]);
    }
}

ALWAYS_INLINE __m256 times_bytes(const unsigned char *half, uint32_t low, uint32_t high) {
    uint16_t bits;
    memcpy(&bits, half, sizeof bits);
    const __m128i bytes = _mm_set_epi32(0, 0, (int)high, (int)low);
    return _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(bits)),
                         _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
}

/* Q4_K, Q5_K: six bits of scale and minimum for each of eight groups. ret: numbers of the first */
static void fill_k_numbers(tile_rows rows, size_t offset, size_t group_bytes, unsigned char *ret) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (uint32_t c = 0; c < MATRIX_TILE; c += 8) {
        __m256 scales[8], minima[8];
        UNROLL for (uint32_t i = 0; i < 8; i++) {
            const unsigned char *block = rows[c + i] + offset;
            uint32_t w[3];
            memcpy(w, block + 4, sizeof w);
            scales[i] = times_bytes(block, w[0] & 0x3f3f3f3f,
                                    (w[2] & 0x0f0f0f0f) | (w[0] >> 6 & 0x03030303) << 4);
            minima[i] = times_bytes(block + 2, w[1] & 0x3f3f3f3f,
                                    (w[2] >> 4 & 0x0f0f0f0f) | (w[1] >> 6 & 0x03030303) << 4);
            minima[i] = _mm256_xor_ps(minima[i], sign);
        }
        store_numbers(scales, group_bytes, ret + (size_t)4 * c);
        store_numbers(minima, group_bytes, ret + (size_t)4 * (MATRIX_TILE + c));
    }
}

/* ---- blocks ---- */

/* A block of 32 nibbles with its scale, and its minimum behind that. */
static void fill_block_of_nibbles(const struct fill *fill, size_t offset, unsigned char *at) {
    unsigned char *numbers = at + fill->data_bytes;
    const size_t nibbles = offset + fill->block_bytes - 16;
    switch (fill->type) {
    case TENSOR_MXFP4:
    case TENSOR_MXFP4_PAIRS: fill_powers(fill->rows, offset, numbers); break;
    case TENSOR_INT4:
        fill_floats(fill->rows, offset, numbers);
        fill_floats(fill->rows, offset + 4, numbers + 128);
        break;
    case TENSOR_Q4_1:
        fill_halves(fill->rows, offset, numbers);
        fill_halves(fill->rows, offset + 2, numbers + 128);
        break;
    default: fill_halves(fill->rows, offset, numbers);
    }
    if (fill->type == TENSOR_MXFP4_PAIRS)
        fill_nibbles(fill->rows, nibbles, true, at, at + 256);
    else
        fill_nibbles(fill->rows, nibbles, false, at, at + 256);
}

static void fill_q8_0(const struct fill *fill, size_t offset, unsigned char *at) {
    fill_words(fill->rows, offset + 2, fill->tile->zero, at);
    fill_words(fill->rows, offset + 18, fill->tile->zero, at + 512);
    fill_halves(fill->rows, offset, at + fill->data_bytes);
}

/* 32 bytes hold two groups: one in the low halves, one in the high halves. */
static void fill_q4_k(const struct fill *fill, size_t offset, unsigned char *at) {
    fill_k_numbers(fill->rows, offset, fill->group_bytes, at + fill->data_bytes);
    for (size_t two = 0; two < 4; two++, at += 2 * fill->group_bytes) {
        unsigned char *next = at + fill->group_bytes;
        fill_nibbles(fill->rows, offset + 16 + 32 * two, false, at, next);
        fill_nibbles(fill->rows, offset + 32 + 32 * two, false, at + 256, next + 256);
    }
}

/* ---- one byte per weight ---- */

static void split_q5_k(const unsigned char *block, uint8_t *ret_q) {
    const __m256i nibble = _mm256_set1_epi8(15), bit = _mm256_set1_epi8(16);
    const __m256i high = _mm256_loadu_si256((const void *)(block + 16));
    for (int g = 0; g < 8; g++) {
        __m256i q = _mm256_loadu_si256((const void *)(block + 48 + (size_t)32 * (g / 2)));
        q = _mm256_and_si256(_mm256_srli_epi16(q, 4 * (g % 2)), nibble);
        const __m256i fifth = _mm256_slli_epi16(_mm256_srli_epi16(high, g), 4);
        store(ret_q + (size_t)32 * g, _mm256_or_si256(q, _mm256_and_si256(fifth, bit)));
    }
}

static void split_q6_k(const unsigned char *block, uint8_t *ret_q, float *ret_scales) {
    const __m256i nibble = _mm256_set1_epi8(15), bits = _mm256_set1_epi8(0x30);
    uint16_t d;
    memcpy(&d, block + 208, sizeof d);
    const __m256 factor = _mm256_set1_ps(_cvtsh_ss(d));
    for (int half = 0; half < 2; half++) {
        const __m256i high = _mm256_loadu_si256((const void *)(block + 128 + (size_t)32 * half));
        for (int j = 0; j < 4; j++) {
            __m256i q = _mm256_loadu_si256(
                (const void *)(block + (size_t)64 * half + (size_t)32 * (j % 2)));
            q = _mm256_and_si256(_mm256_srli_epi16(q, j < 2 ? 0 : 4), nibble);
            const __m256i two = _mm256_slli_epi16(_mm256_srli_epi16(high, 2 * j), 4);
            store(ret_q + (size_t)128 * half + (size_t)32 * j,
                  _mm256_or_si256(q, _mm256_and_si256(two, bits)));
        }
        const __m128i scales = _mm_loadl_epi64((const void *)(block + 192 + (size_t)8 * half));
        _mm256_storeu_ps(ret_scales + (size_t)8 * half,
                         _mm256_mul_ps(factor, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scales))));
    }
}

struct split_rows {
    uint8_t q[MATRIX_TILE][BLOCK_MAX];
    float scales[MATRIX_TILE][BLOCK_MAX / 16];
    float minima[MATRIX_TILE][BLOCK_MAX / 16];
};

static void split_rows(const struct fill *fill, size_t offset, struct split_rows *ret_split) {
    for (uint32_t c = 0; c < MATRIX_TILE; c++) {
        const unsigned char *block = fill->rows[c] + offset;
        if (fill->type == TENSOR_Q5_K && fill->matrix->group == 32)
            split_q5_k(block, ret_split->q[c]);
        else if (fill->type == TENSOR_Q6_K)
            split_q6_k(block, ret_split->q[c], ret_split->scales[c]);
        else
            quant_row_split(fill->type, block, fill->elements, ret_split->q[c],
                            ret_split->scales[c], ret_split->minima[c]);
    }
}

static void fill_split(const struct fill *fill, size_t offset, unsigned char *at) {
    const struct quant_form form = quant_form_of(fill->type);
    const uint32_t group = fill->matrix->group;
    const bool has_k_numbers = fill->type == TENSOR_Q5_K && group == form.group;
    const uint8_t add = (uint8_t)(fill->tile->zero - form.zero);
    const unsigned char *rows[MATRIX_TILE];
    struct split_rows split;
    split_rows(fill, offset, &split);
    for (uint32_t c = 0; c < MATRIX_TILE; c++) rows[c] = split.q[c];
    if (has_k_numbers) fill_k_numbers(fill->rows, offset, fill->group_bytes, at + fill->data_bytes);
    for (uint32_t begin = 0; begin < fill->elements; begin += group, at += fill->group_bytes) {
        for (uint32_t k = 0; k < group; k += 16) {
            if (fill->tile->bits == 4)
                fill_joined(rows, begin + k, at + (size_t)16 * k);
            else
                fill_words(rows, begin + k, add, at + (size_t)32 * k);
        }
        unsigned char *numbers = at + fill->data_bytes;
        for (uint32_t c = 0; c < MATRIX_TILE && !has_k_numbers; c++) {
            memcpy(numbers + (size_t)4 * c, &split.scales[c][begin / form.group], sizeof(float));
            if (fill->tile->has_minimum)
                memcpy(numbers + (size_t)4 * (MATRIX_TILE + c),
                       &split.minima[c][begin / form.group], sizeof(float));
        }
    }
}

static void (*block_filler(enum tensor_type type))(const struct fill *, size_t, unsigned char *) {
    switch (type) {
    case TENSOR_Q4_0:
    case TENSOR_Q4_1:
    case TENSOR_IQ4_NL:
    case TENSOR_MXFP4:
    case TENSOR_MXFP4_PAIRS:
    case TENSOR_INT4: return fill_block_of_nibbles;
    case TENSOR_Q8_0: return fill_q8_0;
    case TENSOR_Q4_K: return fill_q4_k;
    default: return fill_split;
    }
}

/* ---- floats ---- */

/* Eight halves of each row. ret: (8, 32) halves */
static void fill_shorts(tile_rows rows, size_t offset, unsigned char *ret) {
    const __m256i low = _mm256_set1_epi32(0xffff);
    for (uint32_t c = 0; c < MATRIX_TILE; c += 8) {
        __m256i x[4];
        UNROLL for (uint32_t i = 0; i < 4; i++) x[i] = load_two(rows, c + i, offset);
        turn(x);
        UNROLL for (uint32_t i = 0; i < 4; i++) {
            __m256i both =
                _mm256_packus_epi32(_mm256_and_si256(x[i], low), _mm256_srli_epi32(x[i], 16));
            both = _mm256_permute4x64_epi64(both, 0xd8);
            unsigned char *at = ret + (size_t)128 * i + (size_t)2 * c;
            _mm_storeu_si128((void *)at, _mm256_castsi256_si128(both));
            _mm_storeu_si128((void *)(at + 64), _mm256_extracti128_si256(both, 1));
        }
    }
}

/* 16 bytes of a row at a time; false for rows that end within. */
static bool fill_float_tile(const struct fill *fill) {
    const size_t row_bytes = tensor_type_row_bytes(fill->type, fill->matrix->cols);
    unsigned char *at = fill->matrix->memory + fill->tile->offset;
    const bool are_shorts =
        fill->matrix->layout == MATRIX_F16 || fill->matrix->layout == MATRIX_BF16;
    if (row_bytes % 16 != 0) return false;
    if (fill->matrix->layout == MATRIX_F32 && fill->type != TENSOR_F32) return false;
    for (size_t offset = 0; offset < row_bytes; offset += 16, at += (size_t)16 * MATRIX_TILE) {
        if (are_shorts)
            fill_shorts(fill->rows, offset, at);
        else
            fill_words(fill->rows, offset, 0, at);
    }
    return true;
}

bool avx2_fill_tile(const struct matrix *matrix, const struct matrix_tile *tile,
                    const unsigned char *const *rows) {
    struct fill fill = {
        .matrix = matrix, .tile = tile, .rows = rows, .type = matrix->parts[tile->part].type};
    if (tile->count < MATRIX_TILE) return false;
    if (matrix->layout != MATRIX_BYTES) return fill_float_tile(&fill);
    fill.elements = tensor_type_block_elements(fill.type);
    fill.block_bytes = tensor_type_block_bytes(fill.type);
    fill.group_bytes = tile_group_bytes(matrix->group, tile->bits, tile->has_minimum);
    fill.data_bytes = (size_t)matrix->group * (tile->bits == 4 ? 16 : 32);
    const bool is_alike = quant_form_of(fill.type).group == matrix->group;
    void (*const filler)(const struct fill *, size_t, unsigned char *) =
        is_alike ? block_filler(fill.type) : fill_split;
    unsigned char *at = matrix->memory + tile->offset;
    const size_t filled_bytes = fill.elements / matrix->group * fill.group_bytes;
    for (size_t i = 0; i < matrix->cols / fill.elements; i++, at += filled_bytes)
        filler(&fill, i * fill.block_bytes, at);
    return true;
}

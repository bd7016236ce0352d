/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/quant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define BLOCK_ELEMENTS_MAX 256
#define BLOCK_GROUPS_MAX 16

/* One block in integer form; the sizes are those of the largest type. */
struct split {
    uint8_t q[BLOCK_ELEMENTS_MAX];
    float scales[BLOCK_GROUPS_MAX];
    float minima[BLOCK_GROUPS_MAX];
};

typedef void (*split_fn)(const uint8_t *block, struct split *ret_split);

struct type_facts {
    uint32_t id;
    const char *name;
    uint32_t elements;
    uint32_t bytes;
    struct quant_form form;
    split_fn split; /* NULL for the float types */
};

float bf16_to_f32(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

uint16_t bf16_from_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u); /* quiet NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float half_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31u;
    uint32_t mantissa = half & 1023u;
    uint32_t bits;
    float result;
    if (exponent == 0) { /* zero and subnormal: exact in float32 */
        result = (float)mantissa * 0x1p-24f;
        return sign ? -result : result;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0u);
    else
        bits = sign | (exponent + 112u) << 23 | mantissa << 13;
    memcpy(&result, &bits, sizeof result);
    return result;
}

uint16_t half_from_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x1ffu));
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or more */
    if (size < 0x38800000u) { /* below the smallest normal half, 2^-14 */
        /* Adding 0.5 leaves the value, rounded to multiples of 2^-24, in the low bits. */
        float shifted;
        memcpy(&shifted, &size, sizeof shifted);
        shifted += 0.5f;
        memcpy(&size, &shifted, sizeof size);
        return (uint16_t)(sign | (size - 0x3f000000u));
    }
    size += 0xfffu + (size >> 13 & 1u);
    return (uint16_t)(sign | ((size >> 13) - (112u << 10)));
}

static uint16_t load_u16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t load_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static float load_half(const uint8_t *at) {
    return half_to_f32(load_u16(at));
}

/* Byte j holds element j in its low and element j + 16 in its high half. */
static void split_nibbles(const uint8_t *bytes, uint8_t *ret_q) {
    for (size_t j = 0; j < 16; j++) {
        ret_q[j] = bytes[j] & 15u;
        ret_q[j + 16] = bytes[j] >> 4;
    }
}

static void add_fifth_bits(uint32_t bits, uint8_t *q) {
    for (size_t i = 0; i < 32; i++) q[i] = (uint8_t)(q[i] | (bits >> i & 1u) << 4);
}

static void split_q4_0(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = load_half(block);
    split_nibbles(block + 2, ret_split->q);
}

static void split_int4(const uint8_t *block, struct split *ret_split) {
    memcpy(&ret_split->scales[0], block, sizeof(float));
    memcpy(&ret_split->minima[0], block + sizeof(float), sizeof(float));
    split_nibbles(block + 8, ret_split->q);
}

static void split_q4_1(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = load_half(block);
    ret_split->minima[0] = load_half(block + 2);
    split_nibbles(block + 4, ret_split->q);
}

static void split_q5_0(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = load_half(block);
    split_nibbles(block + 6, ret_split->q);
    add_fifth_bits(load_u32(block + 2), ret_split->q);
}

static void split_q5_1(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = load_half(block);
    ret_split->minima[0] = load_half(block + 2);
    split_nibbles(block + 8, ret_split->q);
    add_fifth_bits(load_u32(block + 4), ret_split->q);
}

static void split_q8_0(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = load_half(block);
    for (size_t i = 0; i < 32; i++) ret_split->q[i] = block[2 + i] ^ 0x80u; /* int8 + 128 */
}

static const int8_t iq4_steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
/* Twice a float of two exponent and one mantissa bits. */
static const int8_t mxfp4_steps[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void split_iq4_nl(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = load_half(block);
    split_nibbles(block + 2, ret_split->q);
}

static void split_iq4_xs(const uint8_t *block, struct split *ret_split) {
    float d = load_half(block);
    uint32_t high = load_u16(block + 2);
    for (size_t g = 0; g < 8; g++) {
        uint32_t low = block[4 + g / 2] >> (4 * (g % 2)) & 15u;
        uint32_t six = low | (high >> (2 * g) & 3u) << 4;
        ret_split->scales[g] = d * (float)((int32_t)six - 32);
        split_nibbles(block + 8 + 16 * g, ret_split->q + 32 * g);
    }
}

static void split_mxfp4(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = ldexpf(1.0f, (int)block[0] - 128);
    split_nibbles(block + 1, ret_split->q);
}

/* Byte j holds the elements 2j and 2j + 1. */
static void split_mxfp4_pairs(const uint8_t *block, struct split *ret_split) {
    ret_split->scales[0] = ldexpf(1.0f, (int)block[0] - 128);
    for (size_t j = 0; j < 16; j++) {
        ret_split->q[2 * j] = block[1 + j] & 15u;
        ret_split->q[2 * j + 1] = block[1 + j] >> 4;
    }
}

static void split_q2_k(const uint8_t *block, struct split *ret_split) {
    const uint8_t *scales = block;
    const uint8_t *q = block + 16;
    float d = load_half(block + 80);
    float dmin = load_half(block + 82);
    for (size_t k = 0; k < 16; k++) {
        ret_split->scales[k] = d * (float)(scales[k] & 15u);
        ret_split->minima[k] = -(dmin * (float)(scales[k] >> 4));
    }
    for (size_t i = 0; i < 256; i++)
        ret_split->q[i] = q[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3u;
}

static void split_q3_k(const uint8_t *block, struct split *ret_split) {
    const uint8_t *high = block;
    const uint8_t *q = block + 32;
    const uint8_t *scales = block + 96;
    float d = load_half(block + 108);
    for (size_t k = 0; k < 16; k++) {
        uint32_t low = k < 8 ? scales[k] & 15u : scales[k - 8] >> 4;
        uint32_t six = low | (uint32_t)(scales[8 + k % 4] >> (2 * (k / 4)) & 3u) << 4;
        ret_split->scales[k] = d * (float)((int32_t)six - 32);
    }
    for (size_t i = 0; i < 256; i++) {
        size_t half = i / 128;
        size_t j = i % 128 / 32;
        uint32_t two = q[32 * half + i % 32] >> (2 * j) & 3u;
        /* The high bit set means "do not subtract 4", so it is bit 2 of value + 4. */
        ret_split->q[i] = (uint8_t)(two | (high[i % 32] >> (4 * half + j) & 1u) << 2);
    }
}

/* The eight packed pairs of six-bit scale and minimum of Q4_K and Q5_K. */
static void split_k_scales(const uint8_t *block, struct split *ret_split) {
    const uint8_t *packed = block + 4;
    float d = load_half(block);
    float dmin = load_half(block + 2);
    for (size_t g = 0; g < 8; g++) {
        uint32_t scale;
        uint32_t minimum;
        if (g < 4) {
            scale = packed[g] & 63u;
            minimum = packed[g + 4] & 63u;
        } else {
            scale = (packed[g + 4] & 15u) | (uint32_t)(packed[g - 4] >> 6) << 4;
            minimum = (uint32_t)(packed[g + 4] >> 4) | (uint32_t)(packed[g] >> 6) << 4;
        }
        ret_split->scales[g] = d * (float)scale;
        ret_split->minima[g] = -(dmin * (float)minimum);
    }
}

static void split_k_nibbles(const uint8_t *bytes, uint8_t *ret_q) {
    for (size_t i = 0; i < 256; i++) {
        uint8_t byte = bytes[32 * (i / 64) + i % 32];
        ret_q[i] = i / 32 % 2 ? byte >> 4 : byte & 15u;
    }
}

static void split_q4_k(const uint8_t *block, struct split *ret_split) {
    split_k_scales(block, ret_split);
    split_k_nibbles(block + 16, ret_split->q);
}

static void split_q5_k(const uint8_t *block, struct split *ret_split) {
    const uint8_t *high = block + 16;
    split_k_scales(block, ret_split);
    split_k_nibbles(block + 48, ret_split->q);
    for (size_t i = 0; i < 256; i++)
        ret_split->q[i] = (uint8_t)(ret_split->q[i] | (high[i % 32] >> (i / 32) & 1u) << 4);
}

static void split_q6_k(const uint8_t *block, struct split *ret_split) {
    const uint8_t *low = block;
    const uint8_t *high = block + 128;
    float d = load_half(block + 208);
    for (size_t k = 0; k < 16; k++) ret_split->scales[k] = d * (float)(int8_t)block[192 + k];
    for (size_t i = 0; i < 256; i++) {
        size_t half = i / 128;
        size_t j = i % 128 / 32;
        uint8_t byte = low[64 * half + i % 32 + (j & 1 ? 32 : 0)];
        uint32_t four = j < 2 ? byte & 15u : byte >> 4;
        ret_split->q[i] = (uint8_t)(four | (high[32 * half + i % 32] >> (2 * j) & 3u) << 4);
    }
}

static const struct type_facts facts_of_types[] = {
    {TENSOR_F32, "F32", 1, 4, {0, 0, 0, false, NULL}, NULL},
    {TENSOR_F16, "F16", 1, 2, {0, 0, 0, false, NULL}, NULL},
    {TENSOR_Q4_0, "Q4_0", 32, 18, {4, 32, 8, false, NULL}, split_q4_0},
    {TENSOR_Q4_1, "Q4_1", 32, 20, {4, 32, 0, true, NULL}, split_q4_1},
    {TENSOR_Q5_0, "Q5_0", 32, 22, {8, 32, 16, false, NULL}, split_q5_0},
    {TENSOR_Q5_1, "Q5_1", 32, 24, {8, 32, 0, true, NULL}, split_q5_1},
    {TENSOR_Q8_0, "Q8_0", 32, 34, {8, 32, 128, false, NULL}, split_q8_0},
    {TENSOR_Q2_K, "Q2_K", 256, 84, {4, 16, 0, true, NULL}, split_q2_k},
    {TENSOR_Q3_K, "Q3_K", 256, 110, {4, 16, 4, false, NULL}, split_q3_k},
    {TENSOR_Q4_K, "Q4_K", 256, 144, {4, 32, 0, true, NULL}, split_q4_k},
    {TENSOR_Q5_K, "Q5_K", 256, 176, {8, 32, 0, true, NULL}, split_q5_k},
    {TENSOR_Q6_K, "Q6_K", 256, 210, {8, 16, 32, false, NULL}, split_q6_k},
    {TENSOR_IQ4_NL, "IQ4_NL", 32, 18, {4, 32, 0, false, iq4_steps}, split_iq4_nl},
    {TENSOR_IQ4_XS, "IQ4_XS", 256, 136, {4, 32, 0, false, iq4_steps}, split_iq4_xs},
    {TENSOR_BF16, "BF16", 1, 2, {0, 0, 0, false, NULL}, NULL},
    {TENSOR_MXFP4, "MXFP4", 32, 17, {4, 32, 0, false, mxfp4_steps}, split_mxfp4},
    {TENSOR_MXFP4_PAIRS, "MXFP4", 32, 17, {4, 32, 0, false, mxfp4_steps}, split_mxfp4_pairs},
    {TENSOR_INT4, "INT4", 32, 24, {4, 32, 0, true, NULL}, split_int4},
};

static const struct type_facts *find_type(uint32_t id) {
    for (size_t i = 0; i < sizeof facts_of_types / sizeof facts_of_types[0]; i++)
        if (facts_of_types[i].id == id) return &facts_of_types[i];
    return NULL;
}

static const struct type_facts *facts_of(enum tensor_type type) {
    const struct type_facts *facts = find_type((uint32_t)type);
    assert(facts);
    return facts;
}

bool tensor_type_is_known(uint32_t id) {
    return find_type(id) != NULL;
}

const char *tensor_type_name(enum tensor_type type) {
    return facts_of(type)->name;
}

uint32_t tensor_type_block_elements(enum tensor_type type) {
    return facts_of(type)->elements;
}

uint32_t tensor_type_block_bytes(enum tensor_type type) {
    return facts_of(type)->bytes;
}

bool tensor_type_is_quantised(enum tensor_type type) {
    return facts_of(type)->split != NULL;
}

size_t tensor_type_row_bytes(enum tensor_type type, size_t count) {
    const struct type_facts *facts = facts_of(type);
    assert(count % facts->elements == 0);
    return count / facts->elements * facts->bytes;
}

struct quant_form quant_form_of(enum tensor_type type) {
    assert(tensor_type_is_quantised(type));
    return facts_of(type)->form;
}

void quant_row_split(enum tensor_type type, const void *row, size_t count, uint8_t *ret_q,
                     float *ret_scales, float *ret_minima) {
    const struct type_facts *facts = facts_of(type);
    assert(facts->split && count % facts->elements == 0);
    size_t groups = facts->elements / facts->form.group;
    const uint8_t *block = row;
    for (size_t at = 0; at < count; at += facts->elements, block += facts->bytes) {
        struct split split;
        facts->split(block, &split);
        memcpy(ret_q + at, split.q, facts->elements);
        size_t first_group = at / facts->form.group;
        memcpy(ret_scales + first_group, split.scales, groups * sizeof(float));
        if (facts->form.has_minimum)
            memcpy(ret_minima + first_group, split.minima, groups * sizeof(float));
    }
}

static void floats_to_f32(enum tensor_type type, const uint8_t *row, size_t count,
                          float *ret_values) {
    if (type == TENSOR_F32) {
        memcpy(ret_values, row, count * sizeof(float));
    } else if (type == TENSOR_F16) {
        for (size_t i = 0; i < count; i++) ret_values[i] = load_half(row + 2 * i);
    } else {
        for (size_t i = 0; i < count; i++) ret_values[i] = bf16_to_f32(load_u16(row + 2 * i));
    }
}

void quant_row_to_f32(enum tensor_type type, const void *row, size_t count, float *ret_values) {
    const struct type_facts *facts = facts_of(type);
    assert(count % facts->elements == 0);
    const uint8_t *block = row;
    if (!facts->split) {
        floats_to_f32(type, block, count, ret_values);
        return;
    }
    for (size_t at = 0; at < count; at += facts->elements, block += facts->bytes) {
        struct split split;
        facts->split(block, &split);
        for (uint32_t i = 0; i < facts->elements; i++) {
            uint32_t g = i / facts->form.group;
            int32_t steps = facts->form.steps ? facts->form.steps[split.q[i]]
                                              : (int32_t)split.q[i] - (int32_t)facts->form.zero;
            float scaled = split.scales[g] * (float)steps;
            ret_values[at + i] = facts->form.has_minimum ? scaled + split.minima[g] : scaled;
        }
    }
}

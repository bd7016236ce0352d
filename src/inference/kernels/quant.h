/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* quant: the element types of GGUF tensors and the meaning of their blocks of quantised weights.
 *
 * Ids are those of the file format; a type that no file has comes behind the format's last one. It
 * knows single rows and blocks, no files and no matrices.
 *
 * Thread: any.
 * Memory: the caller's; rows need no alignment. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_MXFP4_PAIRS = 4, /* MXFP4 with neighbours in a byte: Ollama's first files of gpt-oss */
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_IQ4_XS = 23,
    TENSOR_BF16 = 30,
    TENSOR_MXFP4 = 39,
    /* unpacked 4-bit weights of AWQ and GPTQ: Q4_1 with scale and minimum in f32 */
    TENSOR_INT4 = 256,
    /* keys and values of 8 bits (kernels.h); not a type of weights, so no function here takes it */
    TENSOR_KV_INT8 = 257,
};
#define TENSOR_TYPE_END 257u /* above every type of weights */

/* True when `id` is one of these types; every other function here asserts it. */
bool tensor_type_is_known(uint32_t id);
const char *tensor_type_name(enum tensor_type type);
uint32_t tensor_type_block_elements(enum tensor_type type); /* 1, 32 or 256 */
uint32_t tensor_type_block_bytes(enum tensor_type type);
/* False for F32, F16 and BF16. */
bool tensor_type_is_quantised(enum tensor_type type);
/* Bytes of a row of `count` elements, which must be a multiple of the block's. */
size_t tensor_type_row_bytes(enum tensor_type type, size_t count);

/* Converts `count` elements (a multiple of the block's) to float32, multiplied in the format's
 * order. row: tensor_type_row_bytes, ret_values: (count) */
void quant_row_to_f32(enum tensor_type type, const void *row, size_t count, float *ret_values);

/* A type as unsigned integers: a value is scale · (q - zero), or scale · q + minimum for a type
 * with minima, or scale · steps[q] for a type with steps. */
struct quant_form {
    uint32_t bits;  /* 4 or 8: q < 1 << bits */
    uint32_t group; /* elements that share a scale, 16 or 32 */
    uint32_t zero;  /* 0 (with minima or steps) or a power of two */
    bool has_minimum;
    const int8_t *steps; /* (16), of 4 bits without minimum; or NULL */
};

/* Only for quantised types. */
struct quant_form quant_form_of(enum tensor_type type);
/* Splits a row into that form. ret_q: (count), ret_scales, ret_minima: (count / group). ret_minima
 * has the summand (so -dmin·M for the K types), and is written only for a form with minima. */
void quant_row_split(enum tensor_type type, const void *row, size_t count, uint8_t *ret_q,
                     float *ret_scales, float *ret_minima);

/* IEEE half precision, nearest even; NaN stays NaN. */
float half_to_f32(uint16_t half);
uint16_t half_from_f32(float value);
float bf16_to_f32(uint16_t value);
uint16_t bf16_from_f32(float value);

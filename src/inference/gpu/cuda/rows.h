/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rows: what a step does to its rows of activations between two products, each stage one kernel.
 *
 * Activations are bf16, e4m3 or int8; the residual is float32 and stays in GPU memory. A product
 * of 8-bit operands leaves raw sums; whoever reads them multiplies by the scale of the row (of the
 * activations) and of the column (of the weights), for no GPU but sm_90 can do that inside
 * cuBLASLt. Knows no model, no step and no memory but what it is given.
 *
 * Every call only enqueues. A kernel waits itself for the kernel before it on the stream
 * (programmatic dependent launch on sm_90 and later), so weights, which no kernel writes, are read
 * ahead.
 *
 * 16-byte accesses need widths and strides that are multiples of 8 and pointers at multiples of 16;
 * norm and gate do anything else in a slower kernel, heads and embed refuse it.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; nothing is allocated.
 * Invariant: a row's result is bitwise the same for any other rows of the call. */

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st; /* cudaStream_t points to one */

/* What a product left. value = sum · row_scale[row] · column_scale[column] + bias[column] */
enum cuda_sums { CUDA_SUMS_BF16, CUDA_SUMS_INT32 };
struct cuda_product {
    const void *sums; /* (rows, stride) */
    enum cuda_sums type;
    size_t stride;
    const float *row_scale;       /* (rows) or NULL: not scaled. INT32 is always scaled */
    const uint16_t *column_scale; /* (columns) bf16; with row_scale. bf16, for consumers read it for
                                     each row: 2 B a column beside 2 B of sums */
    const float *bias;            /* (columns) or NULL */
};

/* Where a stage leaves rows for the next product. value = code · scale[row]
 *
 * The values of INT8 are mixed: each four neighbours of a row, (a, b, c, d), are replaced by
 * (a+b+c+d, a-b+c-d, a+b-c-d, a-b-c+d), a Hadamard transform. So a large number is shared by four
 * and does not take the codes of the whole row. Weights are mixed likewise and divided by 4
 * (unpack.h), which leaves every product as it was. A rest of fewer than four stays. */
enum cuda_code { CUDA_BF16, CUDA_E4M3, CUDA_INT8 };
struct cuda_rows {
    void *codes; /* (rows, stride) */
    enum cuda_code type;
    size_t stride;
    float
        *scale; /* (rows), written unless BF16: largest magnitude / 448 or / 127, at least 1e-20 */
};

/* The weights of a norm: plus + what stands there. bf16 where the host finds that every weight (or
 * every weight - 1, as Gemma's) is exactly one: each row reads them, and half the bytes count. */
struct cuda_weights {
    const void *at; /* (width) float32, or bf16 */
    bool is_bf16;
    float plus; /* 0 with float32 */
};

/* x += h, or x = (x + rms_norm(h) · post) · x_scale; then y = rms_norm(x) · weight, or x · weight.
 */
struct cuda_norm {
    float *x; /* (rows, x_stride), changed when there is an h */
    size_t x_stride;
    struct cuda_product h;      /* sums NULL: nothing to add */
    const float *post;          /* (width) or NULL */
    float x_scale;              /* with post */
    struct cuda_weights weight; /* (width) */
    struct cuda_rows y;         /* codes NULL: only the addition */
    uint32_t width;
    uint32_t rows;
    float epsilon;
    bool is_bare; /* y is x · weight */
};
enum err cuda_norm(const struct cuda_norm *call, struct CUstream_st *stream,
                   struct error *error) MUST_CHECK;

/* y = act(factor · gate) · up, where a row of `in` is gate (width), then up (width); or
 * y = max(factor · gate, 0)² without up. */
enum cuda_gate_kind { CUDA_SILU, CUDA_GELU_TANH, CUDA_RELU2 };
struct cuda_gate {
    struct cuda_product in; /* scales and bias have 2 · width columns, or width */
    enum cuda_gate_kind kind;
    float factor; /* 0 means 1 */
    struct cuda_rows y;
    uint32_t width;
    uint32_t rows;
};
enum err cuda_gate(const struct cuda_gate *call, struct CUstream_st *stream,
                   struct error *error) MUST_CHECK;

/* y = act(gate) · with, where a row of `in` is the gate alone. */
struct cuda_gate_with {
    struct cuda_product in; /* (rows, width) */
    enum cuda_gate_kind kind;
    const uint16_t *with; /* (…, with_stride) bf16 */
    size_t with_stride;
    const uint32_t *with_rows; /* (rows): row i goes with that row of `with`; NULL: with row i */
    struct cuda_rows y;
    uint32_t width; /* a multiple of 8, as the strides, at most CUDA_GATE_WITH_MAX */
    uint32_t rows;
};
#define CUDA_GATE_WITH_MAX 1024u
enum err cuda_gate_with(const struct cuda_gate_with *call, struct CUstream_st *stream,
                        struct error *error) MUST_CHECK;

/* What each layer has of a token: for every part of `width` numbers of a row
 * y = (table[token] · table_scale + rms_norm(in · in_scale) · weight) · √½. */
struct cuda_inputs {
    struct cuda_product in; /* (rows, parts · width) */
    float in_scale;
    const uint16_t *table; /* (vocabulary, parts · width) bf16 */
    float table_scale;
    const int32_t *tokens; /* (rows) as cuda_embed has them */
    const int32_t *last_token;
    const float *weight; /* (width) */
    float epsilon;
    uint16_t *y;    /* (rows, parts · width) bf16; not the sums */
    uint32_t width; /* a multiple of 8 */
    uint32_t parts;
    uint32_t rows;
};
enum err cuda_inputs(const struct cuda_inputs *call, struct CUstream_st *stream,
                     struct error *error) MUST_CHECK;

/* y = rms_norm(in) · weight + plus. */
struct cuda_side {
    struct cuda_product in;
    const float *weight;  /* (width) */
    const uint16_t *plus; /* (rows, width) bf16, or NULL */
    uint16_t *y;          /* (rows, width) bf16; may be the sums themselves */
    uint32_t width;       /* a multiple of 8 */
    uint32_t rows;
    float epsilon;
};
enum err cuda_side(const struct cuda_side *call, struct CUstream_st *stream,
                   struct error *error) MUST_CHECK;

/* x += factor · h. */
struct cuda_add {
    float *x; /* (rows, x_stride) */
    size_t x_stride;
    struct cuda_product h;
    float factor;
    uint32_t width; /* a multiple of 4, as the strides */
    uint32_t rows;  /* at most 65,535 */
};
enum err cuda_add(const struct cuda_add *call, struct CUstream_st *stream,
                  struct error *error) MUST_CHECK;

/* y = from, in the form of the next product. */
struct cuda_quantise {
    const void *from; /* (rows, from_stride) bf16 */
    size_t from_stride;
    struct cuda_rows y; /* 8-bit codes */
    uint32_t width;     /* a multiple of 8, as the strides */
    uint32_t rows;
};
enum err cuda_quantise(const struct cuda_quantise *call, struct CUstream_st *stream,
                       struct error *error) MUST_CHECK;

/* y = y · sigmoid(gate), of what attention left. */
struct cuda_output_gate {
    struct cuda_product gate;  /* its columns 0..width-1 */
    const uint32_t *gate_rows; /* (rows): row i of y goes with that row; NULL: with row i */
    uint16_t *y;               /* (rows, y_stride) bf16 */
    size_t y_stride;
    uint32_t width; /* a multiple of 8, as the strides */
    uint32_t rows;
};
enum err cuda_output_gate(const struct cuda_output_gate *call, struct CUstream_st *stream,
                          struct error *error) MUST_CHECK;

/* Norms and turns q and k and stores k and v. A page of one layer and KV head is 16 tokens of keys,
 * and as many of values, each [16][head_dim]: k, v (pages, page_heads, 16, head_dim) in bf16, or
 * e4m3 with fp16 scales (pages, scale_heads, 2, 16) in a pool of their own, keys' before values'. */
struct cuda_heads {
    struct cuda_product in; /* a row: q (heads · head_dim), k (kv_heads · head_dim), v likewise */
    uint32_t rows;
    uint32_t heads;
    uint32_t kv_heads;         /* 0: a row is q alone */
    uint32_t page_heads;       /* heads that a page has room for, at least kv_heads */
    uint32_t scale_heads;      /* that its scales have room for, at least page_heads */
    uint32_t head_dim;         /* a multiple of 8, at most 256; or 512, into pages of bf16 */
    const float *q_norm;       /* (head_dim) or NULL */
    const float *k_norm;       /* (head_dim) or NULL */
    bool norms_v;              /* v is normed without weights */
    float epsilon;             /* epsilon in both */
    const float *cosines;      /* (positions, rotary_dim / 2) or NULL: nothing turns */
    const float *sines;        /* likewise */
    const uint32_t *positions; /* (rows) */
    uint32_t rotary_dim;       /* even, at most head_dim: the first elements of a head that turn */
    bool interleaved;          /* pairs (2i, 2i+1); else (i, i + rotary_dim/2) */
    uint16_t *q;               /* (rows, q_stride) bf16, written; may be the sums themselves */
    size_t q_stride;
    void *k;
    void *v;
    uint16_t *kv_scales;   /* NULL: k and v are bf16; else e4m3 */
    const uint32_t *slots; /* (rows): page · 16 + offset, all different */
};
enum err cuda_heads(const struct cuda_heads *call, struct CUstream_st *stream,
                    struct error *error) MUST_CHECK;

/* x = table[token] · scale + positions[place]; a token below zero stands for last_token[~token],
 * which only the GPU knows yet. */
struct cuda_embed {
    const uint16_t *table; /* (vocabulary, width) bf16 */
    const int32_t *tokens; /* (rows) */
    const int32_t *last_token;
    float scale;
    const float *positions; /* (places, width) or NULL */
    const uint32_t *places; /* (rows) with positions */
    float *x;               /* (rows, x_stride) */
    size_t x_stride;
    uint32_t width; /* a multiple of 8 */
    uint32_t rows;
};
enum err cuda_embed(const struct cuda_embed *call, struct CUstream_st *stream,
                    struct error *error) MUST_CHECK;

/* Row i of `to` becomes row from_rows[i] of `from`: the rows somebody samples from. */
struct cuda_keep {
    const void *from; /* (…, from_bytes a row) */
    size_t from_bytes;
    const uint32_t *from_rows; /* (rows) */
    void *to;                  /* (rows, row_bytes); does not overlap `from` */
    size_t row_bytes;          /* at most from_bytes */
    uint32_t rows;
};
enum err cuda_keep(const struct cuda_keep *call, struct CUstream_st *stream,
                   struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/rows.h, products.h and unpack.h in plain C: right and slow. */

#include "gpu/cuda/attention.h"
#include "gpu/cuda/products.h"
#include "gpu/cuda/products_load.h"
#include "gpu/cuda/products_notes.h"
#include "gpu/cuda/rows.h"
#include "gpu/cuda/scaled.h"
#include "gpu/cuda/unpack.h"

#include "host_faults.h"
#include "host_kernels.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

float host_e4m3[256];

__attribute__((constructor)) static void fill_e4m3(void) {
    for (int i = 0; i < 256; i++) {
        const int exponent = i >> 3 & 15, mantissa = i & 7;
        const float size =
            exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
        host_e4m3[i] = i & 0x80 ? -size : size;
    }
}

uint8_t host_to_e4m3(float value) {
    const float size = fabsf(value);
    uint8_t below = 0, above = 0x7e; /* codes are in the order of their values */
    while (above - below > 1) {
        uint8_t middle = (uint8_t)((below + above) / 2);
        if (host_from_e4m3(middle) <= size)
            below = middle;
        else
            above = middle;
    }
    bool is_low = size - host_from_e4m3(below) < host_from_e4m3(above) - size;
    uint8_t code = is_low ? below : above;
    return (uint8_t)(value < 0 ? code | 0x80 : code);
}

float host_sum_at(const struct cuda_product *product, size_t row, size_t column) {
    const size_t at = row * product->stride + column;
    float value = product->type == CUDA_SUMS_INT32
                      ? (float)((const int32_t *)product->sums)[at]
                      : host_from_bf16(((const uint16_t *)product->sums)[at]);
    if (product->row_scale)
        value *= product->row_scale[row] * host_from_bf16(product->column_scale[column]);
    return product->bias ? value + product->bias[column] : value;
}

/* Mixes a row of INT8 (struct cuda_rows), times `factor`. */
static void mix(float *values, uint32_t width, float factor) {
    for (float *v = values; v + 4 <= values + width; v += 4) {
        const float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
        v[0] = (a + c) * factor, v[1] = (b + d) * factor;
        v[2] = (a - c) * factor, v[3] = (b - d) * factor;
    }
}

/* The scale that brings a row to the largest code. */
static float scale_of(enum cuda_code code, const float *values, uint32_t width) {
    float most = 0;
    for (uint32_t i = 0; i < width; i++) most = fmaxf(most, fabsf(values[i]));
    return fmaxf(most / (code == CUDA_E4M3 ? 448.0f : 127.0f), 1e-20f);
}

static void store_codes(const struct cuda_rows *y, size_t row, const float *values, uint32_t width,
                        float scale) {
    for (uint32_t i = 0; i < width; i++) {
        const size_t at = row * y->stride + i;
        if (y->type == CUDA_BF16) ((uint16_t *)y->codes)[at] = host_to_bf16(values[i]);
        if (y->type == CUDA_E4M3) ((uint8_t *)y->codes)[at] = host_to_e4m3(values[i] / scale);
        if (y->type == CUDA_INT8) ((int8_t *)y->codes)[at] = (int8_t)lrintf(values[i] / scale);
    }
}

void host_store(const struct cuda_rows *y, size_t row, float *values, uint32_t width) {
    float scale = 1;
    if (y->type == CUDA_INT8) mix(values, width, 1);
    if (y->type != CUDA_BF16) y->scale[row] = scale = scale_of(y->type, values, width);
    store_codes(y, row, values, width, scale);
}

float host_factor_of(const float *values, uint32_t width, float epsilon) {
    double squares = 0;
    for (uint32_t i = 0; i < width; i++) squares += (double)values[i] * (double)values[i];
    return (float)(1.0 / sqrt(squares / width + (double)epsilon));
}

void host_norm_row(const struct cuda_norm *call, size_t row, const float *h, float *y) {
    float *x = call->x + row * call->x_stride;
    float factor = h && call->post ? host_factor_of(h, call->width, call->epsilon) : 1;
    for (uint32_t i = 0; h && i < call->width; i++)
        x[i] = (x[i] + h[i] * factor * (call->post ? call->post[i] : 1)) *
               (call->post ? call->x_scale : 1);
    factor = call->is_bare ? 1 : host_factor_of(x, call->width, call->epsilon);
    for (uint32_t i = 0; i < call->width; i++) {
        float weight = call->weight.is_bf16 ? host_from_bf16(((const uint16_t *)call->weight.at)[i])
                                            : ((const float *)call->weight.at)[i];
        y[i] = x[i] * factor * (weight + call->weight.plus);
    }
    host_store(&call->y, row, y, call->width);
}

HOST_AGAIN(cuda_norm)
enum err cuda_norm(const struct cuda_norm *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_norm, call, sizeof *call, NULL, 0)) return OK;
    float *h = malloc(call->width * sizeof *h), *y = malloc(call->width * sizeof *y);
    for (size_t row = 0; row < call->rows; row++) {
        for (uint32_t i = 0; call->h.sums && i < call->width; i++)
            h[i] = host_sum_at(&call->h, row, i);
        host_norm_row(call, row, call->h.sums ? h : NULL, y);
    }
    free(h);
    free(y);
    return OK;
}

HOST_AGAIN(cuda_quantise)
enum err cuda_quantise(const struct cuda_quantise *call, struct CUstream_st *stream,
                       struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_quantise, call, sizeof *call, NULL, 0)) return OK;
    float *y = malloc(call->width * sizeof *y);
    for (size_t row = 0; row < call->rows; row++) {
        for (uint32_t i = 0; i < call->width; i++)
            y[i] = host_from_bf16(((const uint16_t *)call->from)[row * call->from_stride + i]);
        host_store(&call->y, row, y, call->width);
    }
    free(y);
    return OK;
}

/* A key or value of a slot. */
static void keep(const struct cuda_heads *call, uint32_t slot, uint32_t head, bool is_value,
                 const float *values) {
    const size_t run = (size_t)(slot / 16) * call->page_heads + head;
    const size_t at = (run * 16 + slot % 16) * call->head_dim;
    void *pool = is_value ? call->v : call->k;
    if (!host_can_store((uintptr_t)pool + at * (call->kv_scales ? 1 : 2))) return;
    float most = 0;
    for (uint32_t i = 0; i < call->head_dim; i++) most = fmaxf(most, fabsf(values[i]));
    uint16_t half = half_from_f32(fmaxf(most / 448.0f * 1.001f, 6.2e-5f));
    const size_t scales = (size_t)(slot / 16) * call->scale_heads + head;
    if (call->kv_scales) call->kv_scales[scales * 32 + (is_value ? 16 : 0) + slot % 16] = half;
    for (uint32_t i = 0; i < call->head_dim; i++) {
        if (call->kv_scales)
            ((uint8_t *)pool)[at + i] = host_to_e4m3(values[i] / half_to_f32(half));
        else
            ((uint16_t *)pool)[at + i] = host_to_bf16(values[i]);
    }
}

/* RMSNorm; `weight` may be NULL. */
static void norm_head(const struct cuda_heads *call, const float *weight, float *head) {
    const float factor = host_factor_of(head, call->head_dim, call->epsilon);
    for (uint32_t i = 0; i < call->head_dim; i++) head[i] *= factor * (weight ? weight[i] : 1);
}

static void turn(const struct cuda_heads *call, size_t row, const float *weight, float *head) {
    const uint32_t half = call->rotary_dim / 2;
    const size_t angle = (size_t)call->positions[row] * half;
    if (weight) norm_head(call, weight, head);
    for (uint32_t i = 0; i < half; i++) {
        const float a = head[i], b = head[i + half];
        head[i] = a * call->cosines[angle + i] - b * call->sines[angle + i];
        head[i + half] = a * call->sines[angle + i] + b * call->cosines[angle + i];
    }
}

HOST_AGAIN(cuda_heads)
enum err cuda_heads(const struct cuda_heads *call, struct CUstream_st *stream,
                    struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_heads, call, sizeof *call, NULL, 0)) return OK;
    float head[CUDA_HEAD_WIDE];
    assert(call->rotary_dim <= call->head_dim && !call->interleaved);
    assert(!call->kv_scales || call->scale_heads >= call->page_heads);
    assert(call->page_heads >= call->kv_heads && call->head_dim <= CUDA_HEAD_WIDE);
    for (size_t row = 0; row < call->rows; row++)
        for (uint32_t h = 0; h < call->heads + 2 * call->kv_heads; h++) {
            bool is_q = h < call->heads, is_value = h >= call->heads + call->kv_heads;
            for (uint32_t i = 0; i < call->head_dim; i++)
                head[i] = host_sum_at(&call->in, row, (size_t)h * call->head_dim + i);
            if (!is_value) turn(call, row, is_q ? call->q_norm : call->k_norm, head);
            if (is_value && call->norms_v) norm_head(call, NULL, head);
            for (uint32_t i = 0; is_q && i < call->head_dim; i++)
                call->q[row * call->q_stride + h * call->head_dim + i] = host_to_bf16(head[i]);
            if (!is_q)
                keep(call, call->slots[row], (h - call->heads) % call->kv_heads, is_value, head);
        }
    return OK;
}

HOST_AGAIN(cuda_embed)
enum err cuda_embed(const struct cuda_embed *call, struct CUstream_st *stream,
                    struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_embed, call, sizeof *call, NULL, 0)) return OK;
    if (!host_can_read(call->last_token)) return OK;
    for (size_t row = 0; row < call->rows; row++) {
        int32_t token =
            call->tokens[row] < 0 ? call->last_token[~call->tokens[row]] : call->tokens[row];
        for (uint32_t i = 0; i < call->width; i++)
            call->x[row * call->x_stride + i] =
                host_from_bf16(call->table[(size_t)token * call->width + i]) * call->scale +
                (call->positions ? call->positions[(size_t)call->places[row] * call->width + i]
                                 : 0);
    }
    return OK;
}

HOST_AGAIN(cuda_keep)
enum err cuda_keep(const struct cuda_keep *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_keep, call, sizeof *call, NULL, 0)) return OK;
    for (size_t i = 0; i < call->rows; i++)
        memcpy((char *)call->to + i * call->row_bytes,
               (const char *)call->from + call->from_rows[i] * call->from_bytes, call->row_bytes);
    return OK;
}

/* ---- products ---- */

#define SHAPES_MAX 4096 /* a bucket per 16 rows of each matrix */
#define LANES 16
#define NOTES_NAME "products of a GPU in plain C"

struct cuda_products {
    struct products_note shapes[SHAPES_MAX];
    uint32_t count;
    bool has_timed;
    char *notes;
};

size_t cuda_format_out_bytes(enum cuda_format format) {
    return format == CUDA_FORMAT_BF16 || format == CUDA_FORMAT_E4M3 ? 2 : 4;
}

enum err cuda_products_open(struct cuda_products **ret_products, const char *path,
                            size_t workspace_bytes, struct error *error) {
    static const char *const nowhere[] = {"/nonexistent/"};
    void *library;
    (void)path;
    (void)workspace_bytes;
    if (host_machine_is("no-library")) return products_load(&library, NULL, nowhere, 1, error);
    if (host_is_full("library")) return err_set(error, ERR_LIMIT, "no device memory for cuBLASLt");
    *ret_products = calloc(1, sizeof **ret_products);
    return *ret_products ? OK : err_set(error, ERR_LIMIT, "no memory");
}

void cuda_products_close(struct cuda_products *products) {
    if (products) free(products->notes);
    free(products);
}

/* An algorithm is a number that follows from its shape. */
static uint64_t algorithm_of(const struct products_note *shape) {
    return shape->outputs * UINT64_C(0x9e3779b97f4a7c15) + shape->inputs + shape->bucket;
}

static const struct products_note *shape_of(const struct cuda_products *products,
                                            const struct cuda_multiply *call) {
    for (uint32_t i = 0; i < products->count; i++) {
        const struct products_note *shape = &products->shapes[i];
        if (shape->format == call->format && shape->outputs == call->outputs &&
            shape->inputs == call->inputs && shape->bucket == row_bucket(call->rows) &&
            shape->batch == call->batch && shape->gap == call->gap)
            return shape;
    }
    return NULL;
}

uint32_t cuda_products_recall(struct cuda_products *products, const char *notes, size_t bytes) {
    products->count = products_notes_read(notes, bytes, NOTES_NAME, products->shapes, SHAPES_MAX);
    for (uint32_t i = 0; i < products->count; i++)
        assert(products->shapes[i].words[7] == algorithm_of(&products->shapes[i]));
    return products->count;
}

bool cuda_products_tell(struct cuda_products *products, const char **ret_notes, size_t *ret_bytes) {
    free(products->notes);
    products->notes = products->has_timed ? products_notes_write(NOTES_NAME, products->shapes,
                                                                 products->count, ret_bytes)
                                          : NULL;
    *ret_notes = products->notes;
    return products->notes != NULL;
}

enum err cuda_products_tune(struct cuda_products *products, const struct cuda_multiply *call,
                            uint32_t copies, size_t copy_bytes, struct CUstream_st *stream,
                            struct error *error) {
    (void)stream;
    assert(products->count < SHAPES_MAX);
    if (!shape_of(products, call)) {
        struct products_note *shape = &products->shapes[products->count++];
        *shape = (struct products_note){.format = call->format,
                                        .outputs = call->outputs,
                                        .inputs = call->inputs,
                                        .bucket = row_bucket(call->rows),
                                        .batch = call->batch,
                                        .gap = call->gap};
        shape->words[7] = algorithm_of(shape);
        products->has_timed = true;
    }
    /* Every byte that a trial reads or writes must be there. */
    const size_t in = row_bucket(call->rows) * (size_t)call->inputs;
    const size_t side = call->batch > 0 ? call->batch : 1;
    assert(copies == 1 || copy_bytes >= side * call->outputs * call->inputs);
    volatile const uint8_t *last = (const uint8_t *)call->weights + (copies - 1) * copy_bytes;
    (void)*last;
    (void)in;
    memset(call->sums, 0xff,
           (size_t)row_bucket(call->rows) * (call->outputs + call->gap) * side *
               cuda_format_out_bytes(call->format));
    return call->outputs % (call->batch > 0 ? 8 : 16) == 0 && call->inputs % 16 == 0
               ? OK
               : err_set(error, ERR_INVALID, "a product of %u x %u", call->outputs, call->inputs);
}

/* `count` elements from `at` on as numbers. */
static void elements(enum cuda_format format, const void *from, size_t at, size_t count,
                     float *ret_values) {
    for (size_t i = 0; i < count; i++) {
        if (format == CUDA_FORMAT_E4M3 || format == CUDA_FORMAT_E4M3_F32)
            ret_values[i] = host_from_e4m3(((const uint8_t *)from)[at + i]);
        else
            ret_values[i] = host_from_bf16(((const uint16_t *)from)[at + i]);
    }
}

/* As many sums side by side as a compiler may keep in registers. */
static float dot(const float *a, const float *b, size_t count) {
    float sums[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) sums[lane] += a[i + lane] * b[i + lane];
    for (; i < count; i++) sum += a[i] * b[i];
    for (size_t lane = 0; lane < LANES; lane++) sum += sums[lane];
    return sum;
}

static void multiply_int8(const struct cuda_multiply *call) {
    const size_t inputs = call->inputs;
    for (size_t out = 0; out < call->outputs; out++) {
        const int8_t *weights = (const int8_t *)call->weights + out * inputs;
        for (size_t row = 0; row < call->rows; row++) {
            const int8_t *in = (const int8_t *)call->in + row * inputs;
            int32_t sum = 0;
            for (size_t i = 0; i < inputs; i++) sum += in[i] * weights[i];
            ((int32_t *)call->sums)[row * call->outputs + out] = sum;
        }
    }
}

static void multiply_numbers(const struct cuda_multiply *call) {
    const size_t inputs = call->inputs;
    float *in = malloc(call->rows * inputs * sizeof *in), *weights = malloc(inputs * sizeof *in);
    elements(call->format, call->in, 0, call->rows * inputs, in);
    for (size_t out = 0; out < call->outputs; out++) {
        elements(call->format, call->weights, out * inputs, inputs, weights);
        for (size_t row = 0; row < call->rows; row++) {
            const float sum = dot(in + row * inputs, weights, inputs);
            const size_t at = row * call->outputs + out;
            if (cuda_format_out_bytes(call->format) == 4)
                ((float *)call->sums)[at] = sum;
            else
                ((uint16_t *)call->sums)[at] = host_to_bf16(sum);
        }
    }
    free(in);
    free(weights);
}

/* One product of heads: between the rows of it stand those of the others. */
static void multiply_head(const struct cuda_multiply *call, size_t head) {
    const size_t inputs = call->inputs, outputs = call->outputs, apart = outputs + call->gap;
    float *in = malloc(inputs * sizeof *in), *weights = malloc(outputs * inputs * sizeof *weights);
    assert(call->format == CUDA_FORMAT_BF16 && in && weights);
    elements(call->format, call->weights, head * outputs * inputs, outputs * inputs, weights);
    for (size_t row = 0; row < call->rows; row++) {
        elements(call->format, call->in, (row * call->batch + head) * inputs, inputs, in);
        uint16_t *sums = (uint16_t *)call->sums + (row * call->batch + head) * apart;
        for (size_t out = 0; out < outputs; out++)
            sums[out] = host_to_bf16(dot(in, weights + out * inputs, inputs));
    }
    free(in);
    free(weights);
}

/* The library computes the rows of a whole bucket: what stands behind the last row is lost. */
static void spoil_rest(const struct cuda_multiply *call) {
    const bool is_int32 = call->format == CUDA_FORMAT_INT8;
    const size_t count = call->batch > 0 ? call->batch : 1, apart = call->outputs + call->gap;
    const size_t bytes = cuda_format_out_bytes(call->format);
    for (size_t at = call->rows * count; at < row_bucket(call->rows) * count; at++)
        memset((char *)call->sums + at * apart * bytes, is_int32 ? 0x7f : 0xff,
               call->outputs * bytes);
}

static enum err again_multiply(const void *call, const void *more, struct error *error) {
    (void)more;
    return cuda_multiply(NULL, call, NULL, error);
}
enum err cuda_multiply(struct cuda_products *products, const struct cuda_multiply *call,
                       struct CUstream_st *stream, struct error *error) {
    if (products && !shape_of(products, call)) /* a recorded call was asked for before */
        return err_set(error, ERR_NOT_FOUND, "no algorithm for %u rows of %u x %u", call->rows,
                       call->outputs, call->inputs);
    if (host_record_product(stream, again_multiply, call, sizeof *call)) return OK;
    for (size_t head = 0; head < call->batch; head++) multiply_head(call, head);
    if (call->batch == 0)
        (call->format == CUDA_FORMAT_INT8 ? multiply_int8 : multiply_numbers)(call);
    spoil_rest(call);
    return OK;
}

/* ---- scaled products ---- */

/* For some buckets: its caller must ask for buckets, not for rows. */
bool cuda_scaled_pays(enum cuda_ending ending, uint32_t outputs, uint32_t rows) {
    (void)ending;
    (void)outputs;
    assert(rows % 16 == 0);
    return rows / 16 % 2 == 1;
}

static void end_row(const struct cuda_scaled *call, const struct cuda_product *product,
                    size_t row) {
    const bool is_gated = call->ending != CUDA_END_SCALED;
    const enum cuda_gate_kind kind = call->ending == CUDA_END_SILU ? CUDA_SILU : CUDA_GELU_TANH;
    const uint32_t width = is_gated ? call->outputs / 2 : call->outputs;
    for (size_t i = 0; i < width; i++) {
        float value = host_sum_at(product, row, i);
        if (is_gated) value = host_gated(kind, value, host_sum_at(product, row, width + i));
        ((uint16_t *)call->y)[row * width + i] = host_to_bf16(value);
    }
}

HOST_AGAIN(cuda_scaled)
enum err cuda_scaled(const struct cuda_scaled *call, struct CUstream_st *stream,
                     struct error *error) {
    if (host_record(stream, again_cuda_scaled, call, sizeof *call, NULL, 0)) return OK;
    int32_t *sums = malloc((size_t)call->rows * call->outputs * sizeof *sums);
    if (!sums) return err_set(error, ERR_LIMIT, "no memory");
    multiply_int8(&(struct cuda_multiply){.format = CUDA_FORMAT_INT8,
                                          .outputs = call->outputs,
                                          .inputs = call->inputs,
                                          .rows = call->rows,
                                          .weights = call->weights,
                                          .in = call->in,
                                          .sums = sums});
    const struct cuda_product product = {.sums = sums,
                                         .type = CUDA_SUMS_INT32,
                                         .stride = call->outputs,
                                         .row_scale = call->row_scale,
                                         .column_scale = call->column_scale};
    for (size_t row = 0; row < call->rows; row++) end_row(call, &product, row);
    free(sums);
    return OK;
}

/* The least bf16 that is at least `value`, which is positive. */
static uint16_t bf16_above(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0xffff) >> 16);
}

/* Whether e4m3 has all numbers of a row divided by `scale`, but for two roundings to bf16. */
static bool has_all(const float *values, uint32_t width, float scale) {
    for (uint32_t i = 0; i < width; i++) {
        const float code = host_from_e4m3(host_to_e4m3(values[i] / scale));
        if (!(fabsf(code * scale - values[i]) <= fabsf(values[i]) * 0x1p-7f)) return false;
    }
    return true;
}

/* The scale of a row of weights: one with which e4m3 has all its numbers, else as the largest asks.
 */
static uint16_t weight_scale(enum cuda_code code, const float *values, uint32_t width) {
    static const float largest[8] = {448, 416, 384, 352, 320, 288, 256, 240};
    const float least = scale_of(code, values, width); /* with which the largest code is 448 */
    for (int i = 0; code == CUDA_E4M3 && i < 8; i++)
        if (has_all(values, width, least * 448.0f / largest[i]))
            return host_to_bf16(least * 448.0f / largest[i]);
    return bf16_above(least);
}

static enum err again_unpack(const void *call, const void *more, struct error *error) {
    (void)more;
    return cuda_unpack(call, NULL, error);
}
enum err cuda_unpack(const struct cuda_unpack *call, struct CUstream_st *stream,
                     struct error *error) {
    if (!host_has_code()) /* the first kernel of a load */
        return err_set(error, ERR_IO, "unpack: PTX JIT compiler library not found");
    if (host_record(stream, again_unpack, call, sizeof *call, NULL, 0)) return OK;
    float *row = malloc(call->cols * sizeof *row);
    const size_t bytes = tensor_type_row_bytes(call->type, call->cols);
    for (size_t i = 0; i < call->rows; i++) {
        size_t from = call->row_order ? call->row_order[i] : i;
        quant_row_to_f32(call->type, (const char *)call->blocks + from * bytes, call->cols, row);
        const struct cuda_rows y = {call->codes, call->code, call->stride, NULL};
        float scale = 1;
        if (call->code == CUDA_INT8) mix(row, call->cols, 0.25f);
        if (call->code != CUDA_BF16) {
            call->scales[i] = weight_scale(call->code, row, call->cols);
            scale = host_from_bf16(call->scales[i]);
        }
        store_codes(&y, i, row, call->cols, scale);
    }
    free(row);
    return OK;
}

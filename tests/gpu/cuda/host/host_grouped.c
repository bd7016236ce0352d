/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/grouped.h in plain C: right and slow. Codes and scales stand where
 * grouped.h says. */

#include "gpu/cuda/grouped.h"

#include "host_kernels.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a line's group has its codes and scales. */
struct place {
    char *codes;    /* those of the block and the group */
    uint16_t *pair; /* the line's */
    uint32_t line;  /* in the block */
};

static struct place place_of(const struct cuda_grouped *weights, uint32_t line, uint32_t group) {
    const size_t groups = weights->inputs / GROUPED_INPUTS;
    const size_t code_bytes = grouped_code_bytes(weights->kind);
    const size_t block_bytes = groups * (code_bytes + GROUPED_SCALE_BYTES);
    char *block = (char *)weights->at + line / GROUPED_LINES * block_bytes;
    char *scales = block + groups * code_bytes + group * GROUPED_SCALE_BYTES;
    line %= GROUPED_LINES;
    return (struct place){block + group * code_bytes,
                          (uint16_t *)(void *)(scales + (line % 8 * 4 + line / 8) * 4), line};
}

/* Code i of 0..31: the byte that has it, and by how much it is shifted there. */
static uint8_t *byte_of(enum grouping kind, const struct place *place, uint32_t i,
                        uint32_t *ret_shift) {
    *ret_shift = 0;
    if (kind == GROUPED_BYTES)
        return (uint8_t *)place->codes + i / 16 * 512 +
               ((place->line % 8 * 4 + i % 16 / 4) * 4 + place->line / 8) * 4 + i % 4;
    const uint32_t nibble = i % 8 / 2 + i % 2 * 4;
    *ret_shift = nibble % 2 * 4;
    return (uint8_t *)place->codes + ((place->line % 8 * 4 + i / 8) * 4 + place->line / 8) * 4 +
           nibble / 2;
}

static void put_code(enum grouping kind, const struct place *place, uint32_t i, uint32_t code) {
    uint32_t shift;
    uint8_t *byte = byte_of(kind, place, i, &shift);
    const uint32_t mask = kind == GROUPED_BYTES ? 0xff : 0xfu << shift;
    *byte = (uint8_t)((*byte & ~mask) | code << shift);
}

/* The scales of a line's group as numbers. */
struct scales {
    float low, high;
};

static struct scales scales_of(enum grouping kind, const struct place *place) {
    if (kind == GROUPED_E2M1) return (struct scales){host_from_bf16(place->pair[0]), 0};
    return (struct scales){half_to_f32(place->pair[0]), half_to_f32(place->pair[1])};
}

static float number_of(enum grouping kind, const struct place *place, struct scales scales,
                       uint32_t i) {
    uint32_t shift;
    const uint32_t byte = *byte_of(kind, place, i, &shift);
    if (kind == GROUPED_BYTES) return (i < 16 ? scales.low : scales.high) * ((float)byte - 32.0f);
    const uint32_t nibble = byte >> shift & 15u;
    if (kind == GROUPED_E2M1) {
        static const float sizes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        return scales.low * (nibble & 8 ? -sizes[nibble & 7] : sizes[nibble]);
    }
    const float code = (float)nibble;
    return kind == GROUPED_ZEROS ? scales.low * (code + scales.high)
                                 : scales.low * code + scales.high;
}

void host_grouped_numbers(const struct cuda_grouped *weights, uint32_t line, float *ret_values) {
    for (uint32_t group = 0; group < weights->inputs / GROUPED_INPUTS; group++) {
        const struct place place = place_of(weights, line, group);
        const struct scales scales = scales_of(weights->kind, &place);
        for (uint32_t i = 0; i < GROUPED_INPUTS; i++)
            ret_values[group * GROUPED_INPUTS + i] = number_of(weights->kind, &place, scales, i);
    }
}

float host_grouped_number(const struct cuda_grouped *weights, uint32_t line, uint32_t input) {
    const struct place place = place_of(weights, line, input / GROUPED_INPUTS);
    return number_of(weights->kind, &place, scales_of(weights->kind, &place),
                     input % GROUPED_INPUTS);
}

uint32_t host_grouped_line(uint32_t gate_width, uint32_t row) {
    if (gate_width == 0) return row;
    const uint32_t column = row % gate_width, is_up = row / gate_width % 2;
    return row / (2 * gate_width) * (2 * gate_width) + column / 8 * 16 + is_up * 8 + column % 8;
}

/* The scales of a group as a pair of halves. */
static void put_scales(const struct place *place, const struct quant_form *form, enum grouping kind,
                       const float *scales, const float *minima) {
    const float scale = scales[0];
    float second = form->has_minimum ? minima[0] : 0;
    if (kind == GROUPED_BYTES) second = form->group == 16 ? scales[1] : scale;
    if (kind == GROUPED_ZEROS)
        second = !form->has_minimum ? -(float)form->zero : scale != 0 ? minima[0] / scale : 0;
    place->pair[0] = kind == GROUPED_E2M1 ? host_to_bf16(2 * scale) : half_from_f32(scale);
    place->pair[1] = half_from_f32(second);
}

HOST_AGAIN(cuda_grouped_fill)
enum err cuda_grouped_fill(const struct cuda_grouped_fill *call, struct CUstream_st *stream,
                           struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_grouped_fill, call, sizeof *call, NULL, 0)) return OK;
    const uint32_t cols = call->to.inputs;
    const struct quant_form form = quant_form_of(call->type);
    const enum grouping kind = call->to.kind;
    const uint32_t each = GROUPED_INPUTS / form.group;
    const uint32_t raised = kind == GROUPED_BYTES ? 32 - form.zero : 0;
    uint8_t *q = malloc(cols);
    float *scales = calloc(cols, sizeof *scales), *minima = calloc(cols, sizeof *minima);
    for (uint32_t row = 0; row < call->rows; row++) {
        quant_row_split(call->type,
                        (const char *)call->blocks + row * tensor_type_row_bytes(call->type, cols),
                        cols, q, scales, minima);
        for (uint32_t group = 0; group < cols / GROUPED_INPUTS; group++) {
            const struct place place =
                place_of(&call->to, host_grouped_line(call->gate_width, call->first + row), group);
            for (uint32_t i = 0; i < GROUPED_INPUTS; i++)
                put_code(kind, &place, i, q[group * GROUPED_INPUTS + i] + raised);
            put_scales(&place, &form, kind, scales + group * each, minima + group * each);
        }
    }
    free(q);
    free(scales);
    free(minima);
    return OK;
}

HOST_AGAIN(cuda_grouped_embed)
enum err cuda_grouped_embed(const struct cuda_grouped_embed *call, struct CUstream_st *stream,
                            struct error *error) {
    (void)error;
    const struct cuda_embed *rows = &call->rows;
    if (host_record(stream, again_cuda_grouped_embed, call, sizeof *call, NULL, 0)) return OK;
    for (uint32_t row = 0; row < rows->rows; row++) {
        int32_t token = rows->tokens[row];
        if (token < 0) token = rows->last_token[~token];
        const float *place =
            rows->positions ? rows->positions + (size_t)rows->places[row] * rows->width : NULL;
        for (uint32_t i = 0; i < rows->width; i++)
            rows->x[row * rows->x_stride + i] =
                host_grouped_number(&call->table, (uint32_t)token, i) * rows->scale +
                (place ? place[i] : 0);
    }
    return OK;
}

HOST_AGAIN(cuda_grouped_unpack)
enum err cuda_grouped_unpack(const struct cuda_grouped_unpack *call, struct CUstream_st *stream,
                             struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_grouped_unpack, call, sizeof *call, NULL, 0)) return OK;
    const uint32_t cols = call->from.inputs;
    float *row = malloc(cols * sizeof *row);
    for (uint32_t line = 0; line < call->from.lines; line++) {
        host_grouped_numbers(&call->from, line, row);
        for (uint32_t i = 0; i < cols; i++)
            call->to[(size_t)line * cols + i] = host_to_bf16(row[i]);
    }
    free(row);
    return OK;
}

/* One line with all rows of float32. */
static void multiply_line(const float *weights, const float *in, uint32_t rows, uint32_t inputs,
                          uint16_t *y, size_t y_stride) {
    for (uint32_t row = 0; row < rows; row++) {
        float sum = 0;
        for (uint32_t i = 0; i < inputs; i++) sum += weights[i] * in[(size_t)row * inputs + i];
        y[row * y_stride] = host_to_bf16(sum);
    }
}

static void multiply(const struct cuda_grouped *weights, const float *in, uint32_t rows,
                     uint16_t *y, size_t y_stride) {
    float *line = malloc(weights->inputs * sizeof *line);
    for (uint32_t i = 0; i < weights->lines; i++) {
        host_grouped_numbers(weights, i, line);
        multiply_line(line, in, rows, weights->inputs, y + i, y_stride);
    }
    free(line);
}

HOST_AGAIN(cuda_grouped_few)
enum err cuda_grouped_few(const struct cuda_grouped_few *call, struct CUstream_st *stream,
                          struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_grouped_few, call, sizeof *call, NULL, 0)) return OK;
    const uint32_t inputs = call->weights.inputs;
    /* What blocks leave for each other stands where nothing is that is still needed. */
    memset(call->room.sums, 0xff, (size_t)GROUPED_TILE * GROUPED_ROWS * sizeof(float));
    for (uint32_t i = 0; i < (call->weights.lines - 1) / GROUPED_TILE + 1; i++)
        assert(call->room.counts[i] == 0);
    float *in = malloc((size_t)call->rows * inputs * sizeof *in);
    for (uint32_t row = 0; row < call->rows; row++)
        for (uint32_t i = 0; i < inputs; i++)
            in[(size_t)row * inputs + i] = host_from_bf16(call->in[row * call->in_stride + i]);
    multiply(&call->weights, in, call->rows, call->y, call->y_stride);
    free(in);
    return OK;
}

HOST_AGAIN(cuda_grouped_quantise)
enum err cuda_grouped_quantise(const struct cuda_grouped_quantise *call, struct CUstream_st *stream,
                               struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_grouped_quantise, call, sizeof *call, NULL, 0)) return OK;
    for (uint32_t row = 0; row < call->rows; row++)
        for (uint32_t group = 0; group < call->width / GROUPED_INPUTS; group++) {
            const uint16_t *from = call->from + row * call->from_stride + group * GROUPED_INPUTS;
            const size_t at = (size_t)group * call->to.rows_most + row;
            int8_t *codes = (int8_t *)call->to.codes + at * GROUPED_INPUTS;
            float most = 0, *scale = (float *)call->to.scales + 2 * at;
            int sum = 0;
            for (uint32_t i = 0; i < GROUPED_INPUTS; i++)
                most = fmaxf(most, fabsf(host_from_bf16(from[i])));
            scale[0] = fmaxf(most / 127.0f, 1e-20f);
            for (uint32_t i = 0; i < GROUPED_INPUTS; i++)
                sum += codes[i] = (int8_t)lrintf(host_from_bf16(from[i]) / scale[0]);
            scale[1] = scale[0] * (float)sum;
        }
    return OK;
}

HOST_AGAIN(cuda_grouped_many)
enum err cuda_grouped_many(const struct cuda_grouped_many *call, struct CUstream_st *stream,
                           struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_grouped_many, call, sizeof *call, NULL, 0)) return OK;
    const uint32_t inputs = call->weights.inputs;
    float *in = malloc((size_t)call->rows * inputs * sizeof *in);
    for (uint32_t row = 0; row < call->rows; row++)
        for (uint32_t i = 0; i < inputs; i++) {
            const size_t at = (size_t)(i / GROUPED_INPUTS) * call->in.rows_most + row;
            const int8_t code =
                ((const int8_t *)call->in.codes)[at * GROUPED_INPUTS + i % GROUPED_INPUTS];
            in[(size_t)row * inputs + i] = (float)code * ((const float *)call->in.scales)[2 * at];
        }
    multiply(&call->weights, in, call->rows, call->y, call->y_stride);
    free(in);
    return OK;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/recurrent.h in plain C: right and slow, a row after the other, of what
 * the plugin asks of them. Both calls of Gated DeltaNet are one here. */

#include "gpu/cuda/recurrent.h"

#include "host_kernels.h"
#include "kernels/quant.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAPS 4u
#define SHORT_TAPS 3u
#define DIM_MAX 128u

static float silu(float x) {
    return x / (1 + expf(-x));
}

static float rounded(float value) {
    return host_from_bf16(host_to_bf16(value));
}

/* ---- slots ---- */

static void *slot_at(const struct cuda_states *states, uint32_t slot) {
    return (char *)states->at + slot * states->stride;
}

static float number_at(const struct cuda_states *states, uint32_t slot, size_t at) {
    if (slot == CUDA_STATE_NONE) return 0;
    const void *from = slot_at(states, slot);
    return states->is_bf16 ? host_from_bf16(((const uint16_t *)from)[at])
                           : ((const float *)from)[at];
}

static void put_number(const struct cuda_states *states, uint32_t slot, size_t at, float value) {
    void *to = slot_at(states, slot);
    assert(host_can_store((uintptr_t)to));
    if (states->is_bf16)
        ((uint16_t *)to)[at] = host_to_bf16(value);
    else
        ((float *)to)[at] = value;
}

/* ---- the convolution of a channel, row by row ---- */

struct channel {
    float window[TAPS]; /* the last inputs, the row's own behind them */
};

static struct channel channel_of(const struct cuda_states *tails, uint32_t slot, uint32_t taps,
                                 uint32_t channels, uint32_t index) {
    struct channel channel = {0};
    for (uint32_t i = 0; i + 1 < taps; i++)
        channel.window[i] = number_at(tails, slot, (size_t)i * channels + index);
    return channel;
}

static float convolve(struct channel *channel, const float *weights, uint32_t taps, float input) {
    float sum = 0;
    channel->window[taps - 1] = input;
    for (uint32_t i = 0; i < taps; i++) sum += weights[i] * channel->window[i];
    memmove(channel->window, channel->window + 1, (taps - 1) * sizeof(float));
    return sum;
}

static void leave_channel(const struct channel *channel, const struct cuda_states *tails,
                          uint32_t slot, uint32_t taps, uint32_t channels, uint32_t index) {
    for (uint32_t i = 0; i + 1 < taps; i++)
        put_number(tails, slot, (size_t)i * channels + index, channel->window[i]);
}

/* ---- Gated DeltaNet ---- */

/* All channels of an item; ret_rows (rows, channels). */
static void convolve_item(const struct cuda_delta *call, const struct cuda_state_item *item,
                          float *ret_rows) {
    const uint32_t channels = 2 * call->k_heads * call->k_dim + call->v_heads * call->v_dim;
    for (uint32_t c = 0; c < channels; c++) {
        struct channel channel = channel_of(&call->tails, item->from, TAPS, channels, c);
        for (uint32_t i = 0; i < item->rows; i++) {
            const float input = rounded(host_sum_at(&call->qkv, item->row + i, c));
            ret_rows[(size_t)i * channels + c] =
                silu(convolve(&channel, call->conv + (size_t)c * TAPS, TAPS, input));
            if (item->save != CUDA_STATE_NONE && i + 1 == item->save_rows)
                leave_channel(&channel, &call->tails, item->save, TAPS, channels, c);
        }
        leave_channel(&channel, &call->tails, item->to, TAPS, channels, c);
    }
}

static void normalise(const float *from, uint32_t count, float factor, float *ret) {
    float squares = 1e-6f;
    for (uint32_t i = 0; i < count; i++) squares += from[i] * from[i];
    for (uint32_t i = 0; i < count; i++) ret[i] = from[i] * factor / sqrtf(squares);
}

/* One row through a value head's state (v_dim, k_dim). */
static void head_row(const struct cuda_delta *call, size_t row, uint32_t head, const float *qkv,
                     float *state) {
    const uint32_t D = call->k_dim, group = call->v_heads / call->k_heads;
    const uint32_t key = call->heads_are_tiled ? head % call->k_heads : head / group;
    const float *v = qkv + (size_t)(2 * call->k_heads + head) * D;
    const float x = host_sum_at(&call->a, row, head) + call->dt_bias[head];
    const float decay = expf(-expf(call->a_log[head]) * (x > 20 ? x : log1pf(expf(x))));
    const float beta = 1 / (1 + expf(-host_sum_at(&call->b, row, head)));
    float q[DIM_MAX], k[DIM_MAX], o[DIM_MAX], squares = 0;
    normalise(qkv + (size_t)key * D, D, 1 / sqrtf((float)D), q);
    normalise(qkv + (size_t)(call->k_heads + key) * D, D, 1, k);
    for (uint32_t i = 0; i < D; i++) {
        float *s = state + (size_t)i * D, told = 0;
        o[i] = 0;
        for (uint32_t j = 0; j < D; j++) s[j] *= decay, told += s[j] * k[j];
        for (uint32_t j = 0; j < D; j++) s[j] += beta * (v[i] - told) * k[j], o[i] += s[j] * q[j];
        squares += o[i] * o[i];
    }
    for (uint32_t i = 0; i < D; i++) {
        const float z = host_sum_at(&call->z, row, head * D + i);
        const float y = o[i] / sqrtf(squares / (float)D + call->epsilon) * call->norm[i];
        call->y[row * call->y_stride + head * D + i] = host_to_bf16(y * silu(z));
    }
}

static void leave_state(const struct cuda_delta *call, uint32_t slot, uint32_t head,
                        const float *state) {
    const size_t count = (size_t)call->k_dim * call->v_dim;
    for (size_t i = 0; i < count; i++) put_number(&call->states, slot, head * count + i, state[i]);
}

static void run_item(const struct cuda_delta *call, const struct cuda_state_item *item) {
    static float state[DIM_MAX * DIM_MAX];
    const uint32_t channels = 2 * call->k_heads * call->k_dim + call->v_heads * call->v_dim;
    const size_t count = (size_t)call->k_dim * call->v_dim;
    float *rows = malloc((size_t)item->rows * channels * sizeof *rows);
    if (!rows) abort();
    convolve_item(call, item, rows);
    for (uint32_t head = 0; head < call->v_heads; head++) {
        for (size_t i = 0; i < count; i++)
            state[i] = number_at(&call->states, item->from, head * count + i);
        for (uint32_t i = 0; i < item->rows; i++) {
            head_row(call, item->row + i, head, rows + (size_t)i * channels, state);
            if (item->save != CUDA_STATE_NONE && i + 1 == item->save_rows)
                leave_state(call, item->save, head, state);
        }
        leave_state(call, item->to, head, state);
    }
    free(rows);
}

enum err cuda_delta_supports(uint32_t k_heads, uint32_t v_heads, uint32_t k_dim, uint32_t v_dim,
                             struct error *error) {
    if (k_heads > 0 && v_heads % k_heads == 0 && v_heads / k_heads <= 8 && k_dim == v_dim &&
        (k_dim == 64 || k_dim == 128))
        return OK;
    return err_set(error, ERR_INVALID, "delta: %u and %u heads of %u and %u", k_heads, v_heads,
                   k_dim, v_dim);
}

size_t cuda_delta_room(uint32_t rows, uint32_t k_heads, uint32_t v_heads, uint32_t dim) {
    return ((size_t)rows * (2 * k_heads + v_heads) * dim * 2 + 15) / 16 * 16 +
           (size_t)rows * v_heads * 8;
}

HOST_AGAIN(cuda_delta_decode)
enum err cuda_delta_decode(const struct cuda_delta *call, struct CUstream_st *stream,
                           struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_delta_decode, call, sizeof *call, NULL, 0)) return OK;
    for (uint32_t i = 0; i < call->item_count; i++) {
        assert(call->items[i].rows == 1);
        struct cuda_state_item item = call->items[i];
        item.save = CUDA_STATE_NONE;
        run_item(call, &item);
    }
    return OK;
}

HOST_AGAIN(cuda_delta_chunk)
enum err cuda_delta_chunk(const struct cuda_delta *call, struct CUstream_st *stream,
                          struct error *error) {
    (void)error;
    assert(call->room);
    if (host_record(stream, again_cuda_delta_chunk, call, sizeof *call, NULL, 0)) return OK;
    for (uint32_t i = 0; i < call->item_count; i++) run_item(call, &call->items[i]);
    return OK;
}

/* ---- Mamba-2 ---- */

/* One row through a head's state (head_dim, state_dim); x becomes what the head leaves. */
static void mamba_head(const struct cuda_mamba *call, size_t row, uint32_t head, float *xbc,
                       float *state) {
    const uint32_t P = call->head_dim, N = call->state_dim;
    const float *b = xbc + call->heads * P + head / (call->heads / call->groups) * N;
    const float *c = b + call->groups * N;
    const float dt = host_sum_at(&call->dt, row, head) * call->dt_factor + call->dt_bias[head];
    const float step = fminf(fmaxf(dt > 20 ? dt : log1pf(expf(dt)), call->dt_min), call->dt_max);
    const float decay = expf(-step * expf(call->a_log[head]));
    for (uint32_t p = 0; p < P; p++) {
        float *x = &xbc[head * P + p], *s = state + (size_t)p * N, sum = 0;
        for (uint32_t n = 0; n < N; n++) s[n] = decay * s[n] + step * *x * b[n], sum += s[n] * c[n];
        *x = sum + call->d[head] * *x;
    }
}

/* Gates and norms a row. */
static void mamba_end(const struct cuda_mamba *call, size_t row, float *values) {
    const uint32_t width = call->heads / call->groups * call->head_dim;
    for (uint32_t i = 0; i < call->groups * width; i++)
        if (!call->norm_is_first) values[i] *= silu(host_sum_at(&call->z, row, i) * call->z_factor);
    for (uint32_t first = 0; first < call->groups * width; first += width) {
        float squares = 0;
        for (uint32_t i = 0; i < width; i++) squares += values[first + i] * values[first + i];
        const float scale = 1 / sqrtf(squares / (float)width + call->epsilon);
        for (uint32_t i = first; i < first + width; i++) {
            float y = values[i] * call->y_factor * (call->norm ? scale * call->norm[i] : 1);
            if (call->norm_is_first) y *= silu(host_sum_at(&call->z, row, i) * call->z_factor);
            call->y[row * call->y_stride + i] = host_to_bf16(y);
        }
    }
}

/* All channels of an item; ret_rows (rows, channels). */
static void mamba_convolve(const struct cuda_mamba *call, const struct cuda_state_item *item,
                           uint32_t channels, float *ret_rows) {
    for (uint32_t c = 0; c < channels; c++) {
        struct channel channel = channel_of(&call->tails, item->from, TAPS, channels, c);
        for (uint32_t i = 0; i < item->rows; i++) {
            const float input = rounded(host_sum_at(&call->xbc, item->row + i, c));
            ret_rows[(size_t)i * channels + c] =
                silu(convolve(&channel, call->conv + (size_t)c * TAPS, TAPS, input) +
                     (call->conv_bias ? call->conv_bias[c] : 0));
            if (item->save != CUDA_STATE_NONE && i + 1 == item->save_rows)
                leave_channel(&channel, &call->tails, item->save, TAPS, channels, c);
        }
        leave_channel(&channel, &call->tails, item->to, TAPS, channels, c);
    }
}

static void mamba_leave(const struct cuda_mamba *call, uint32_t slot, uint32_t head,
                        const float *state) {
    const size_t count = (size_t)call->head_dim * call->state_dim;
    for (size_t i = 0; i < count; i++) put_number(&call->states, slot, head * count + i, state[i]);
}

static void mamba_item(const struct cuda_mamba *call, const struct cuda_state_item *item) {
    const uint32_t channels = call->heads * call->head_dim + 2 * call->groups * call->state_dim;
    const size_t count = (size_t)call->head_dim * call->state_dim;
    float *state = malloc(count * sizeof *state);
    float *rows = malloc((size_t)item->rows * channels * sizeof *rows);
    if (!rows || !state) abort();
    mamba_convolve(call, item, channels, rows);
    for (uint32_t head = 0; head < call->heads; head++) {
        for (size_t i = 0; i < count; i++)
            state[i] = number_at(&call->states, item->from, head * count + i);
        for (uint32_t i = 0; i < item->rows; i++) {
            mamba_head(call, item->row + i, head, rows + (size_t)i * channels, state);
            if (item->save != CUDA_STATE_NONE && i + 1 == item->save_rows)
                mamba_leave(call, item->save, head, state);
        }
        mamba_leave(call, item->to, head, state);
    }
    for (uint32_t i = 0; i < item->rows; i++)
        mamba_end(call, item->row + i, rows + (size_t)i * channels);
    free(rows);
    free(state);
}

enum err cuda_mamba_supports(uint32_t heads, uint32_t groups, uint32_t head_dim, uint32_t state_dim,
                             struct error *error) {
    if (groups > 0 && heads % groups == 0 && head_dim % 4 == 0 && state_dim >= 16 &&
        state_dim <= 256 && (state_dim & (state_dim - 1)) == 0)
        return OK;
    return err_set(error, ERR_INVALID, "mamba: %u heads of %u in %u groups, states of %u", heads,
                   head_dim, groups, state_dim);
}

size_t cuda_mamba_room(uint32_t rows, uint32_t heads, uint32_t groups, uint32_t head_dim,
                       uint32_t state_dim) {
    return (size_t)rows * (heads * head_dim + 2 * groups * state_dim) * sizeof(float);
}

HOST_AGAIN(cuda_mamba)
enum err cuda_mamba(const struct cuda_mamba *call, struct CUstream_st *stream,
                    struct error *error) {
    (void)error;
    assert(call->room && call->decoded_count <= call->item_count);
    if (host_record(stream, again_cuda_mamba, call, sizeof *call, NULL, 0)) return OK;
    for (uint32_t i = 0; i < call->item_count; i++) {
        assert(i >= call->decoded_count || call->items[i].rows == 1);
        mamba_item(call, &call->items[i]);
    }
    return OK;
}

/* ---- the short convolution ---- */

static void run_short_channel(const struct cuda_short_conv *call,
                              const struct cuda_state_item *item, uint32_t c) {
    const uint32_t width = call->width;
    struct channel channel = channel_of(&call->tails, item->from, SHORT_TAPS, width, c);
    for (uint32_t i = 0; i < item->rows; i++) {
        const size_t row = item->row + i;
        const float in =
            host_sum_at(&call->in, row, c) * host_sum_at(&call->in, row, c + 2 * width);
        const float sum = convolve(&channel, call->conv + (size_t)c * SHORT_TAPS, SHORT_TAPS,
                                   call->tails.is_bf16 ? rounded(in) : in);
        call->y[row * call->y_stride + c] =
            host_to_bf16(sum * host_sum_at(&call->in, row, c + width));
        if (item->save != CUDA_STATE_NONE && i + 1 == item->save_rows)
            leave_channel(&channel, &call->tails, item->save, SHORT_TAPS, width, c);
    }
    leave_channel(&channel, &call->tails, item->to, SHORT_TAPS, width, c);
}

HOST_AGAIN(cuda_short_conv)
enum err cuda_short_conv(const struct cuda_short_conv *call, struct CUstream_st *stream,
                         struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_short_conv, call, sizeof *call, NULL, 0)) return OK;
    for (uint32_t i = 0; i < call->item_count; i++) {
        assert(i >= call->decoded_count ||
               (call->items[i].rows == 1 && call->items[i].save == CUDA_STATE_NONE));
        for (uint32_t c = 0; c < call->width; c++) run_short_channel(call, &call->items[i], c);
    }
    return OK;
}

/* ---- a product apart from a norm ---- */

HOST_AGAIN(cuda_add)
enum err cuda_add(const struct cuda_add *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_add, call, sizeof *call, NULL, 0)) return OK;
    for (size_t row = 0; row < call->rows; row++)
        for (uint32_t i = 0; i < call->width; i++)
            call->x[row * call->x_stride + i] += call->factor * host_sum_at(&call->h, row, i);
    return OK;
}

/* ---- the gate of attention ---- */

HOST_AGAIN(cuda_output_gate)
enum err cuda_output_gate(const struct cuda_output_gate *call, struct CUstream_st *stream,
                          struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_output_gate, call, sizeof *call, NULL, 0)) return OK;
    for (size_t row = 0; row < call->rows; row++)
        for (uint32_t i = 0; i < call->width; i++) {
            uint16_t *y = &call->y[row * call->y_stride + i];
            const size_t from = call->gate_rows ? call->gate_rows[row] : row;
            *y = host_to_bf16(host_from_bf16(*y) / (1 + expf(-host_sum_at(&call->gate, from, i))));
        }
    return OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define SQUARES_MIN 1e-6f /* added to the squares of q and k; no config has it */

static float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* log(1 + e^x); beyond 20 the sum is x in float32. */
static float softplus_of(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

/* One channel: `window` has the taps of the row, its own input last. */
static float convolved(const struct short_conv *call, const float *window, uint32_t channel) {
    float sum = call->bias ? call->bias[channel] : 0;
    for (uint32_t i = 0; i < call->taps; i++)
        sum += call->weight[(size_t)i * call->channels + channel] * window[i];
    return call->has_silu ? sum * sigmoid(sum) : sum;
}

void ref_short_conv(const struct short_conv *call, const struct recurrent_item *item,
                    uint32_t channel_begin, uint32_t channel_end) {
    const uint32_t kept = call->taps - 1;
    assert(call->taps >= 2 && call->taps <= CONV_TAPS_MAX && channel_end <= call->channels);
    for (uint32_t c = channel_begin; c < channel_end; c++) {
        float window[CONV_TAPS_MAX];
        for (uint32_t i = 0; i < kept; i++) window[i] = item->state[(size_t)i * call->channels + c];
        for (size_t row = item->row; row < item->row + item->row_count; row++) {
            const size_t at = row * call->x_stride + c;
            const float after = call->after ? call->after[at] : 1.0f;
            window[kept] = call->before ? call->x[at] * call->before[at] : call->x[at];
            call->y[row * call->y_stride + c] = convolved(call, window, c) * after;
            memmove(window, window + 1, kept * sizeof *window);
        }
        for (uint32_t i = 0; i < kept; i++) item->state[(size_t)i * call->channels + c] = window[i];
    }
}

/* ret = x / |x| · scale */
static void normalise(const float *x, uint32_t count, float scale, float *ret) {
    float squares = 0;
    for (uint32_t i = 0; i < count; i++) squares += x[i] * x[i];
    const float factor = scale / sqrtf(squares + SQUARES_MIN);
    for (uint32_t i = 0; i < count; i++) ret[i] = x[i] * factor;
}

/* ret_sums (columns) = Sᵀ x for S (rows, columns) */
static void product(const float *state, const float *x, uint32_t rows, uint32_t columns,
                    float *ret_sums) {
    memset(ret_sums, 0, columns * sizeof *ret_sums);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++) ret_sums[j] += x[i] * state[i * columns + j];
}

/* S = keep S + x ⊗ y */
static void update(float *state, float keep, const float *x, uint32_t rows, const float *y,
                   uint32_t columns) {
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++)
            state[i * columns + j] = keep * state[i * columns + j] + x[i] * y[j];
}

/* One row of value head `head`. */
static void delta_row(const struct delta_rule *call, size_t row, uint32_t head, float *state) {
    const uint32_t k_dim = call->k_dim, v_dim = call->v_dim;
    const size_t at = row * call->qkv_stride;
    const size_t key = (size_t)delta_key_head(call, head) * k_dim;
    const float *v = call->v + at + (size_t)head * v_dim;
    float q[RECURRENT_DIM_MAX], k[RECURRENT_DIM_MAX], change[RECURRENT_DIM_MAX];
    normalise(call->q + at + key, k_dim, 1.0f / sqrtf((float)k_dim), q);
    normalise(call->k + at + key, k_dim, 1.0f, k);
    const float step = softplus_of(call->a[row * call->a_stride + head] + call->dt_bias[head]);
    const float keep = expf(-expf(call->a_log[head]) * step);
    const float beta = sigmoid(call->b[row * call->b_stride + head]);
    product(state, k, k_dim, v_dim, change);
    for (uint32_t j = 0; j < v_dim; j++) change[j] = beta * (v[j] - keep * change[j]);
    update(state, keep, k, k_dim, change, v_dim);
    product(state, q, k_dim, v_dim, call->y + row * call->y_stride + (size_t)head * v_dim);
}

void ref_delta_rule(const struct delta_rule *call, const struct recurrent_item *item,
                    uint32_t head_begin, uint32_t head_end) {
    assert(call->k_dim <= RECURRENT_DIM_MAX && call->v_dim <= RECURRENT_DIM_MAX);
    assert(head_end <= call->v_heads && call->v_heads % call->k_heads == 0);
    for (uint32_t head = head_begin; head < head_end; head++) {
        float *state = item->state + (size_t)head * call->k_dim * call->v_dim;
        for (size_t row = item->row; row < item->row + item->row_count; row++)
            delta_row(call, row, head, state);
    }
}

/* One row of head `head`. */
static void mamba_row(const struct mamba *call, size_t row, uint32_t head, float *state) {
    const uint32_t head_dim = call->head_dim, state_dim = call->state_dim;
    const size_t at = row * call->xbc_stride;
    const size_t group = (size_t)(head / (call->heads / call->groups)) * state_dim;
    const float *x = call->x + at + (size_t)head * head_dim;
    float scaled[RECURRENT_DIM_MAX], skipped[RECURRENT_DIM_MAX];
    float step = softplus_of(call->dt[row * call->dt_stride + head] + call->dt_bias[head]);
    step = fminf(fmaxf(step, call->dt_min), call->dt_max);
    const float keep = expf(-step * expf(call->a_log[head]));
    for (uint32_t i = 0; i < head_dim; i++) {
        scaled[i] = step * x[i];
        skipped[i] = call->d[head] * x[i];
    }
    update(state, keep, call->b + at + group, state_dim, scaled, head_dim);
    float *y = call->y + row * call->y_stride + (size_t)head * head_dim;
    product(state, call->c + at + group, state_dim, head_dim, y);
    for (uint32_t i = 0; i < head_dim; i++) y[i] += skipped[i];
}

void ref_mamba(const struct mamba *call, const struct recurrent_item *item, uint32_t head_begin,
               uint32_t head_end) {
    assert(call->head_dim <= RECURRENT_DIM_MAX && call->state_dim <= RECURRENT_DIM_MAX);
    assert(head_end <= call->heads && call->heads % call->groups == 0);
    for (uint32_t head = head_begin; head < head_end; head++) {
        float *state = item->state + (size_t)head * call->state_dim * call->head_dim;
        for (size_t row = item->row; row < item->row + item->row_count; row++)
            mamba_row(call, row, head, state);
    }
}

/* One group of one row. */
static void norm_group(const struct gated_norm *call, const float *x, const float *gate,
                       const float *weight, float *y) {
    float squares = 0;
    for (size_t i = 0; i < call->width; i++) {
        const float value = call->gate_is_first ? x[i] * gate[i] * sigmoid(gate[i]) : x[i];
        squares += value * value;
    }
    const float factor = 1.0f / sqrtf(squares / (float)call->width + call->epsilon);
    for (size_t i = 0; i < call->width; i++)
        y[i] = x[i] * gate[i] * sigmoid(gate[i]) * factor * weight[i];
}

void ref_gated_norm(const struct gated_norm *call) {
    for (size_t row = 0; row < call->rows; row++)
        for (size_t i = 0; i < call->groups; i++) {
            const size_t at = i * call->width;
            norm_group(call, call->x + row * call->x_stride + at,
                       call->gate + row * call->gate_stride + at,
                       call->weight + i * call->weight_step, call->y + row * call->y_stride + at);
        }
}

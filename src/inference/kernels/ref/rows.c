/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>

void rope_table(const float *inv_freq, uint32_t pair_count, uint32_t position_begin,
                uint32_t position_end, float *ret_cosines, float *ret_sines) {
    assert(position_begin <= position_end);
    for (uint32_t position = position_begin; position < position_end; position++) {
        size_t row = (size_t)(position - position_begin) * pair_count;
        for (uint32_t i = 0; i < pair_count; i++) {
            double angle = (double)position * (double)inv_freq[i];
            ret_cosines[row + i] = (float)cos(angle);
            ret_sines[row + i] = (float)sin(angle);
        }
    }
}

void ref_rms_norm(const struct norm *call) {
    for (size_t row = 0; row < call->rows; row++) {
        const float *x = call->x + row * call->x_stride;
        float *y = call->y + row * call->y_stride;
        float squares = 0;
        for (size_t i = 0; i < call->width; i++) squares += x[i] * x[i];
        float factor = 1.0f / sqrtf(squares / (float)call->width + call->epsilon);
        for (size_t i = 0; i < call->width; i++) {
            float value = x[i] * factor * call->weight[i];
            y[i] = call->add ? y[i] + value : value;
        }
    }
}

void ref_layer_norm(const struct norm *call) {
    for (size_t row = 0; row < call->rows; row++) {
        const float *x = call->x + row * call->x_stride;
        float *y = call->y + row * call->y_stride;
        float sum = 0;
        float squares = 0;
        for (size_t i = 0; i < call->width; i++) sum += x[i];
        float mean = sum / (float)call->width;
        for (size_t i = 0; i < call->width; i++) squares += (x[i] - mean) * (x[i] - mean);
        float factor = 1.0f / sqrtf(squares / (float)call->width + call->epsilon);
        for (size_t i = 0; i < call->width; i++) {
            float value = (x[i] - mean) * factor * call->weight[i];
            if (call->bias) value += call->bias[i];
            y[i] = call->add ? y[i] + value : value;
        }
    }
}

void ref_rope(const struct rope *call) {
    uint32_t pairs = call->rotary_dim / 2;
    assert(call->rotary_dim % 2 == 0 && call->rotary_dim <= call->head_dim);
    uint32_t step = call->interleaved ? 2 : 1;
    uint32_t apart = call->interleaved ? 1 : pairs;
    for (size_t row = 0; row < call->rows; row++) {
        const float *cosines = call->cosines + (size_t)call->positions[row] * pairs;
        const float *sines = call->sines + (size_t)call->positions[row] * pairs;
        for (uint32_t head = 0; head < call->head_count; head++) {
            float *x = call->x + row * call->x_stride + (size_t)head * call->head_dim;
            for (uint32_t i = 0; i < pairs; i++) {
                float first = x[step * i];
                float second = x[step * i + apart];
                x[step * i] = first * cosines[i] - second * sines[i];
                x[step * i + apart] = first * sines[i] + second * cosines[i];
            }
        }
    }
}

void ref_silu_mul(const struct gate *call) {
    for (size_t row = 0; row < call->rows; row++) {
        const float *gate = call->gate + row * call->in_stride;
        const float *up = call->up + row * call->in_stride;
        float *y = call->y + row * call->y_stride;
        for (size_t i = 0; i < call->width; i++) y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

void ref_gelu_tanh_mul(const struct gate *call) {
    const float sqrt_2_over_pi = 0.797884560802865f;
    for (size_t row = 0; row < call->rows; row++) {
        const float *gate = call->gate + row * call->in_stride;
        const float *up = call->up + row * call->in_stride;
        float *y = call->y + row * call->y_stride;
        for (size_t i = 0; i < call->width; i++) {
            float x = gate[i];
            float inner = sqrt_2_over_pi * (x + 0.044715f * x * x * x);
            y[i] = 0.5f * x * (1.0f + tanhf(inner)) * up[i];
        }
    }
}

void ref_sigmoid_mul(const struct gate *call) {
    for (size_t row = 0; row < call->rows; row++) {
        const float *gate = call->gate + row * call->in_stride;
        const float *up = call->up + row * call->in_stride;
        float *y = call->y + row * call->y_stride;
        for (size_t i = 0; i < call->width; i++) y[i] = up[i] / (1.0f + expf(-gate[i]));
    }
}

void ref_clamped_mul(const struct gate *call) {
    const float limit = call->limit;
    for (size_t row = 0; row < call->rows; row++) {
        const float *gate = call->gate + row * call->in_stride;
        const float *up = call->up + row * call->in_stride;
        float *y = call->y + row * call->y_stride;
        for (size_t i = 0; i < call->width; i++) {
            const float g = fminf(gate[i], limit), u = fminf(fmaxf(up[i], -limit), limit);
            y[i] = g / (1.0f + expf(-call->alpha * g)) * (u + 1.0f);
        }
    }
}

void ref_gelu_erf(float *x, size_t x_stride, size_t width, size_t rows) {
    const float sqrt_half = 0.707106781186548f;
    for (size_t row = 0; row < rows; row++) {
        float *at = x + row * x_stride;
        for (size_t i = 0; i < width; i++) at[i] = 0.5f * at[i] * (1.0f + erff(at[i] * sqrt_half));
    }
}

void ref_relu2(float *x, size_t x_stride, size_t width, size_t rows) {
    for (size_t row = 0; row < rows; row++) {
        float *at = x + row * x_stride;
        for (size_t i = 0; i < width; i++) at[i] = at[i] > 0 ? at[i] * at[i] : 0;
    }
}

void ref_xielu(const struct xielu *call) {
    for (size_t row = 0; row < call->rows; row++) {
        float *x = call->x + row * call->x_stride;
        for (size_t i = 0; i < call->width; i++) {
            const float bent = x[i] > 0 ? call->alpha_p * x[i] * x[i]
                                        : call->alpha_n * (expm1f(fminf(x[i], call->eps)) - x[i]);
            x[i] = bent + call->beta * x[i];
        }
    }
}

void ref_add(const float *x, float *y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += x[i];
}

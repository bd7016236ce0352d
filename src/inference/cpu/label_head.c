/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/label_head.h"

#include <math.h>

#define LANES 16 /* sums that run side by side, so that a compiler can use vectors */

static float product(const float *a, const float *b, size_t count) {
    float lanes[LANES] = {0}, sum = 0.0f;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t j = 0; j < LANES; j++) lanes[j] += a[i + j] * b[i + j];
    for (; i < count; i++) sum += a[i] * b[i];
    for (size_t j = 0; j < LANES; j++) sum += lanes[j];
    return sum;
}

void label_head_multiply(const float *weight, const float *x, size_t in, size_t out, float *ret_y) {
    for (size_t i = 0; i < out; i++) ret_y[i] = product(weight + i * in, x, in);
}

/* LayerNorm(GELU(x)) · norm, in place. */
static void bend_and_norm(const struct label_head *head, float *x) {
    const size_t width = head->width;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < width; i++) {
        x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.707106781186548f));
        sum += (double)x[i];
    }
    const double mean = sum / (double)width;
    for (size_t i = 0; i < width; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double factor = 1.0 / sqrt(squares / (double)width + (double)head->epsilon);
    for (size_t i = 0; i < width; i++)
        x[i] = (float)(((double)x[i] - mean) * factor) * head->weights->norm[i];
}

enum err label_head_run(const struct label_head *head, const float *state, uint32_t index,
                        float *ret_labels, struct error *error) {
    const struct label_weights *weights = head->weights;
    const size_t width = head->width;
    if (weights->dense) {
        for (size_t i = 0; i < width; i++)
            head->scratch[i] = product(weights->dense + i * width, state, width) +
                               (weights->dense_bias ? weights->dense_bias[i] : 0.0f);
        if (weights->norm)
            bend_and_norm(head, head->scratch);
        else
            for (size_t i = 0; i < width; i++) head->scratch[i] = tanhf(head->scratch[i]);
        state = head->scratch;
    }
    for (size_t i = 0; i < head->labels; i++) {
        ret_labels[i] = product(weights->output + i * width, state, width) +
                        (weights->bias ? weights->bias[i] : 0.0f);
        if (!isfinite(ret_labels[i]))
            return err_set(error, ERR_INVALID,
                           "text %u: its label %zu is no finite number, so the weights are unsound",
                           index, i);
    }
    return OK;
}

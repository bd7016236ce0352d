/* SPDX-License-Identifier: Apache-2.0 */
#include "recurrent_exact.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double softplus(double x) {
    return x > 20 ? x : log1p(exp(x));
}

static double dot(const float *a, const float *b, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Input `index` of a channel: negative ones are the state's. */
static double conv_input(const struct short_conv *call, const struct recurrent_item *item,
                         const float *state, long index, uint32_t channel) {
    if (index < 0)
        return (double)state[(size_t)(index + call->taps - 1) * call->channels + channel];
    const size_t at = (item->row + (size_t)index) * call->x_stride + channel;
    return (double)call->x[at] * (call->before ? (double)call->before[at] : 1);
}

void exact_short_conv(const struct short_conv *call, const struct recurrent_item *item,
                      uint32_t channel_begin, uint32_t channel_end) {
    const long taps = call->taps, rows = (long)item->row_count;
    for (uint32_t c = channel_begin; c < channel_end; c++) {
        for (long row = 0; row < rows; row++) {
            double sum = call->bias ? (double)call->bias[c] : 0;
            for (long i = 0; i < taps; i++)
                sum += (double)call->weight[(size_t)i * call->channels + c] *
                       conv_input(call, item, item->state, row - taps + 1 + i, c);
            const size_t at = item->row + (size_t)row;
            if (call->has_silu) sum *= sigmoid(sum);
            if (call->after) sum *= (double)call->after[at * call->x_stride + c];
            call->y[at * call->y_stride + c] = (float)sum;
        }
        float last[CONV_TAPS_MAX];
        for (long i = 0; i < taps - 1; i++)
            last[i] = (float)conv_input(call, item, item->state, rows - taps + 1 + i, c);
        for (long i = 0; i < taps - 1; i++) item->state[(size_t)i * call->channels + c] = last[i];
    }
}

/* What the rows of one head have, rows from the item's first on. */
struct chunk {
    size_t rows;
    const float *keys[EXACT_ROWS];    /* what a row's change goes to */
    const float *queries[EXACT_ROWS]; /* what its result reads */
    double key_factor[EXACT_ROWS];
    double query_factor[EXACT_ROWS];
    double decay[EXACT_ROWS]; /* log of the factor of the first state after the row */
    uint32_t inner;           /* width of keys and queries */
    uint32_t outer;           /* width of changes and results */
    double *changes;          /* (rows, outer) */
};

/* ret (outer): the product of row `i`'s key or query and the state that the rows before `count`
 * leave, at the decay of row i. */
static void read_state(const struct chunk *chunk, const float *state, const float *what,
                       double factor, size_t i, size_t count, double *ret) {
    for (uint32_t column = 0; column < chunk->outer; column++) {
        double sum = 0;
        for (uint32_t e = 0; e < chunk->inner; e++)
            sum += (double)what[e] * (double)state[(size_t)e * chunk->outer + column];
        ret[column] = factor * exp(chunk->decay[i]) * sum;
    }
    for (size_t j = 0; j < count; j++) {
        const double part = factor * dot(what, chunk->keys[j], chunk->inner) *
                            chunk->key_factor[j] * exp(chunk->decay[i] - chunk->decay[j]);
        for (uint32_t column = 0; column < chunk->outer; column++)
            ret[column] += part * chunk->changes[j * chunk->outer + column];
    }
}

static void write_state(const struct chunk *chunk, float *state) {
    const double last = chunk->rows ? chunk->decay[chunk->rows - 1] : 0;
    for (uint32_t e = 0; e < chunk->inner; e++)
        for (uint32_t column = 0; column < chunk->outer; column++) {
            double sum = exp(last) * (double)state[(size_t)e * chunk->outer + column];
            for (size_t j = 0; j < chunk->rows; j++)
                sum += exp(last - chunk->decay[j]) * chunk->key_factor[j] *
                       (double)chunk->keys[j][e] * chunk->changes[j * chunk->outer + column];
            state[(size_t)e * chunk->outer + column] = (float)sum;
        }
}

static void delta_head(const struct delta_rule *call, const struct recurrent_item *item,
                       uint32_t head, struct chunk *chunk) {
    float *state = item->state + (size_t)head * call->k_dim * call->v_dim;
    const size_t key = (size_t)delta_key_head(call, head) * call->k_dim;
    double decay = 0;
    for (size_t i = 0; i < chunk->rows; i++) {
        const size_t row = item->row + i;
        const float *q = call->q + row * call->qkv_stride + key;
        const float *k = call->k + row * call->qkv_stride + key;
        const float *v = call->v + row * call->qkv_stride + (size_t)head * call->v_dim;
        const float a = call->a[row * call->a_stride + head] + call->dt_bias[head];
        const double beta = sigmoid((double)call->b[row * call->b_stride + head]);
        decay -= exp((double)call->a_log[head]) * softplus((double)a);
        chunk->decay[i] = decay;
        chunk->keys[i] = k;
        chunk->queries[i] = q;
        chunk->key_factor[i] = 1 / sqrt(dot(k, k, call->k_dim) + 1e-6);
        chunk->query_factor[i] =
            1 / sqrt(dot(q, q, call->k_dim) + 1e-6) / sqrt((double)call->k_dim);
        double *change = chunk->changes + i * call->v_dim;
        read_state(chunk, state, k, chunk->key_factor[i], i, i, change);
        for (uint32_t j = 0; j < call->v_dim; j++) change[j] = beta * ((double)v[j] - change[j]);
    }
    for (size_t i = 0; i < chunk->rows; i++) {
        float *y = call->y + (item->row + i) * call->y_stride + (size_t)head * call->v_dim;
        double read[RECURRENT_DIM_MAX];
        read_state(chunk, state, chunk->queries[i], chunk->query_factor[i], i, i + 1, read);
        for (uint32_t j = 0; j < call->v_dim; j++) y[j] = (float)read[j];
    }
    write_state(chunk, state);
}

void exact_delta_rule(const struct delta_rule *call, const struct recurrent_item *item,
                      uint32_t head_begin, uint32_t head_end) {
    assert(item->row_count <= EXACT_ROWS);
    struct chunk chunk = {.rows = item->row_count, .inner = call->k_dim, .outer = call->v_dim};
    chunk.changes = calloc(EXACT_ROWS * (size_t)call->v_dim, sizeof *chunk.changes);
    for (uint32_t head = head_begin; head < head_end; head++) delta_head(call, item, head, &chunk);
    free(chunk.changes);
}

static void mamba_head(const struct mamba *call, const struct recurrent_item *item, uint32_t head,
                       struct chunk *chunk) {
    float *state = item->state + (size_t)head * call->state_dim * call->head_dim;
    const size_t group = (size_t)(head / (call->heads / call->groups)) * call->state_dim;
    double decay = 0;
    for (size_t i = 0; i < chunk->rows; i++) {
        const size_t row = item->row + i;
        const float *x = call->x + row * call->xbc_stride + (size_t)head * call->head_dim;
        const float dt = call->dt[row * call->dt_stride + head] + call->dt_bias[head];
        const double step =
            fmin(fmax(softplus((double)dt), (double)call->dt_min), (double)call->dt_max);
        decay -= step * exp((double)call->a_log[head]);
        chunk->decay[i] = decay;
        chunk->keys[i] = call->b + row * call->xbc_stride + group;
        chunk->queries[i] = call->c + row * call->xbc_stride + group;
        chunk->key_factor[i] = chunk->query_factor[i] = 1;
        for (uint32_t j = 0; j < call->head_dim; j++)
            chunk->changes[i * call->head_dim + j] = step * (double)x[j];
    }
    for (size_t i = 0; i < chunk->rows; i++) {
        const size_t row = item->row + i;
        const float *x = call->x + row * call->xbc_stride + (size_t)head * call->head_dim;
        float *y = call->y + row * call->y_stride + (size_t)head * call->head_dim;
        double read[RECURRENT_DIM_MAX];
        read_state(chunk, state, chunk->queries[i], 1, i, i + 1, read);
        for (uint32_t j = 0; j < call->head_dim; j++)
            y[j] = (float)(read[j] + (double)call->d[head] * (double)x[j]);
    }
    write_state(chunk, state);
}

void exact_mamba(const struct mamba *call, const struct recurrent_item *item, uint32_t head_begin,
                 uint32_t head_end) {
    assert(item->row_count <= EXACT_ROWS);
    struct chunk chunk = {
        .rows = item->row_count, .inner = call->state_dim, .outer = call->head_dim};
    chunk.changes = calloc(EXACT_ROWS * (size_t)call->head_dim, sizeof *chunk.changes);
    for (uint32_t head = head_begin; head < head_end; head++) mamba_head(call, item, head, &chunk);
    free(chunk.changes);
}

void exact_gated_norm(const struct gated_norm *call) {
    for (size_t row = 0; row < call->rows; row++)
        for (size_t group = 0; group < call->groups; group++) {
            const float *x = call->x + row * call->x_stride + group * call->width;
            const float *gate = call->gate + row * call->gate_stride + group * call->width;
            float *y = call->y + row * call->y_stride + group * call->width;
            double squares = 0;
            for (size_t i = 0; i < call->width; i++) {
                const double silu = (double)gate[i] * sigmoid((double)gate[i]);
                squares += pow((double)x[i] * (call->gate_is_first ? silu : 1), 2);
            }
            const double mean = squares / (double)call->width + (double)call->epsilon;
            for (size_t i = 0; i < call->width; i++)
                y[i] = (float)((double)x[i] * (double)gate[i] * sigmoid((double)gate[i]) /
                               sqrt(mean) * (double)call->weight[group * call->weight_step + i]);
        }
}

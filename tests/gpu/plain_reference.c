/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A decoder from its weights, in double precision and in the plainest order: one sequence, layer by
 * layer, all positions. It shares no code with the device. */

struct pass {
    const struct world *world;
    const struct world_traits *traits;
    uint32_t count; /* positions */
    double *x, *h, *qkv, *y;
    double *routed; /* (width) what the router reads; or NULL: h */
    double *keys;   /* (count, keys and values of the first layer), with shares_keys */
    double *inputs; /* (count, layers, input_width) */
    double *doubts; /* (count), see plain_world.h; or NULL */
};

static void norm(const double *x, const float *weight, uint32_t width, double *ret) {
    double squares = 0.0;
    for (uint32_t i = 0; i < width; i++) squares += x[i] * x[i];
    double factor = 1.0 / sqrt(squares / width + 1e-5);
    for (uint32_t i = 0; i < width; i++)
        ret[i] = x[i] * factor * (weight ? (double)weight[i] : 1.0);
}

static double product(const float *weights, const double *x, uint32_t count) {
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++) sum += (double)weights[i] * x[i];
    return sum;
}

static double bias_at(const float *bias, size_t at) {
    return bias ? (double)bias[at] : 0.0;
}

static void add_half(const struct pass *pass, const double *y, const float *post, double *x) {
    double normed[512];
    uint32_t width = pass->traits->width;
    if (post) norm(y, post, width, normed);
    for (uint32_t i = 0; i < width; i++) x[i] += post ? normed[i] : y[i];
}

/* Norm and rotation of one head. */
static void turn(const struct pass *pass, const struct world_layer *layer, double *head,
                 const float *weight, uint32_t position) {
    uint32_t dim = layer->head_dim, pairs = pass->world->program.rotary_dim[layer->is_local] / 2;
    double magnitude = pass->traits->magnitude > 0.0f ? (double)pass->traits->magnitude : 1.0;
    if (weight) {
        double normed[512];
        norm(head, weight, dim, normed);
        memcpy(head, normed, dim * sizeof *head);
    }
    for (uint32_t i = 0; i < pairs; i++) {
        double angle = position * (double)pass->world->frequencies[layer->is_local][i];
        double c = cos(angle) * magnitude, s = sin(angle) * magnitude;
        double a = head[i], b = head[i + pairs];
        head[i] = a * c - b * s;
        head[i + pairs] = a * s + b * c;
    }
}

static double score_of(const struct pass *pass, const double *q, const double *k, uint32_t dim) {
    double score = 0.0, cap = (double)pass->traits->softcap;
    for (uint32_t i = 0; i < dim; i++) score += q[i] * k[i];
    score /= sqrt((double)dim);
    return cap > 0.0 ? cap * tanh(score / cap) : score;
}

/* Attention of one position and head over pass->qkv. */
static void attend(const struct pass *pass, const struct world_layer *layer, uint32_t position,
                   uint32_t head, double *ret) {
    const struct world_traits *t = pass->traits;
    uint32_t dim = layer->head_dim, kv = head / (t->heads / layer->kv_heads);
    size_t stride = world_qkv_rows(t, layer), keys_stride = stride;
    const double *keys = pass->qkv + (size_t)t->heads * dim;
    if (layer->is_query_only) keys = pass->keys, keys_stride = (size_t)2 * layer->kv_heads * dim;
    const double *q = pass->qkv + position * stride + (size_t)head * dim;
    double total = 0.0;
    if (layer->sinks) total = exp((double)layer->sinks[head]);
    memset(ret, 0, dim * sizeof *ret);
    for (uint32_t j = 0; j <= position; j++) {
        if (layer->is_local && position - j >= t->window) continue;
        const double *k = keys + j * keys_stride + (size_t)kv * dim;
        const double *v = k + (size_t)layer->kv_heads * dim;
        double weight = exp(score_of(pass, q, k, dim));
        total += weight;
        for (uint32_t i = 0; i < dim; i++) ret[i] += weight * v[i];
    }
    for (uint32_t i = 0; i < dim; i++) ret[i] /= total;
}

static void run_attention(const struct pass *pass, const struct world_layer *layer) {
    const struct world_traits *t = pass->traits;
    const uint32_t dim = layer->head_dim, rows = world_qkv_rows(t, layer);
    const uint32_t q_width = t->heads * dim, kv_width = layer->kv_heads * dim;
    const uint32_t before = q_width + 2 * kv_width;
    for (uint32_t p = 0; p < pass->count; p++) {
        double *qkv = pass->qkv + (size_t)p * rows;
        norm(pass->x + (size_t)p * t->width, layer->attention_norm, t->width, pass->h);
        for (uint32_t i = 0; i < rows; i++)
            qkv[i] = product(layer->qkv + (size_t)i * t->width, pass->h, t->width) +
                     bias_at(layer->qkv_bias, i);
        for (uint32_t i = 0; i < t->heads + (layer->is_query_only ? 0 : layer->kv_heads); i++)
            turn(pass, layer, qkv + (size_t)i * dim, i < t->heads ? layer->q_norm : layer->k_norm,
                 p);
        for (uint32_t i = 0; t->norms_v && !layer->is_query_only && i < layer->kv_heads; i++)
            norm(qkv + q_width + kv_width + (size_t)i * dim, NULL, dim,
                 qkv + q_width + kv_width + (size_t)i * dim);
        if (pass->keys && layer == pass->world->layers)
            memcpy(pass->keys + (size_t)p * 2 * kv_width, qkv + q_width,
                   2 * kv_width * sizeof *qkv);
    }
    for (uint32_t p = 0; p < pass->count; p++) {
        for (uint32_t head = 0; head < t->heads; head++)
            attend(pass, layer, p, head, pass->h + (size_t)head * dim);
        for (uint32_t i = 0; t->has_output_gate && i < q_width; i++)
            pass->h[i] /= 1.0 + exp(-pass->qkv[(size_t)p * rows + before + i]);
        for (uint32_t i = 0; i < t->width; i++)
            pass->y[i] = product(layer->output + (size_t)i * q_width, pass->h, q_width) +
                         bias_at(layer->output_bias, i);
        add_half(pass, pass->y, layer->post_attention, pass->x + (size_t)p * t->width);
    }
}

/* ---- latent layers ---- */

/* The keys and values of a head are products of the entries, and are computed as such: a device has
 * q multiplied instead. */
struct heads_of_entries {
    double *keys;   /* (count, still_dim) */
    double *values; /* (count, value_dim) */
};

static void norm_latent(const double *x, const float *weight, uint32_t width, double *ret) {
    double squares = 0.0;
    for (uint32_t i = 0; i < width; i++) squares += x[i] * x[i];
    for (uint32_t i = 0; i < width; i++)
        ret[i] = x[i] / sqrt(squares / width + 1e-6) * (double)weight[i];
}

/* Keys and values of a head from all entries (count, rank + turned). */
static void unfold(const struct pass *pass, const struct world_layer *layer, uint32_t head,
                   const double *entries, struct heads_of_entries *ret) {
    const struct world_traits *t = pass->traits;
    const float *k_b = layer->k_b + (size_t)head * t->rank * t->still_dim;
    const float *v_b = layer->v_b + (size_t)head * t->value_dim * t->rank;
    memset(ret->keys, 0, (size_t)pass->count * t->still_dim * sizeof *ret->keys);
    for (uint32_t p = 0; p < pass->count; p++) {
        const double *entry = entries + (size_t)p * t->head_dim;
        for (uint32_t r = 0; r < t->rank; r++)
            for (uint32_t i = 0; i < t->still_dim; i++)
                ret->keys[(size_t)p * t->still_dim + i] +=
                    (double)k_b[(size_t)r * t->still_dim + i] * entry[r];
        for (uint32_t i = 0; i < t->value_dim; i++)
            ret->values[(size_t)p * t->value_dim + i] =
                product(v_b + (size_t)i * t->rank, entry, t->rank);
    }
}

/* What a head of q leaves of a position: ret (value_dim). */
static void attend_latent(const struct pass *pass, const struct heads_of_entries *of,
                          const double *entries, const double *q, uint32_t position, double *ret) {
    const struct world_traits *t = pass->traits;
    const double scale = 1.0 / sqrt((double)(t->still_dim + t->rotary));
    double total = 0.0;
    memset(ret, 0, t->value_dim * sizeof *ret);
    for (uint32_t j = 0; j <= position; j++) {
        const double *turned = entries + (size_t)j * t->head_dim + t->rank;
        double score = 0.0;
        for (uint32_t i = 0; i < t->still_dim; i++)
            score += q[i] * of->keys[(size_t)j * t->still_dim + i];
        for (uint32_t i = 0; i < t->rotary; i++) score += q[t->still_dim + i] * turned[i];
        const double weight = exp(score * scale);
        total += weight;
        for (uint32_t i = 0; i < t->value_dim; i++)
            ret[i] += weight * of->values[(size_t)j * t->value_dim + i];
    }
    for (uint32_t i = 0; i < t->value_dim; i++) ret[i] /= total;
}

/* q (heads, still_dim + turned) and the entry of a position. */
static void make_entry(const struct pass *pass, const struct world_layer *layer, uint32_t p,
                       double *q, double *entry) {
    const struct world_traits *t = pass->traits;
    const uint32_t each = t->still_dim + t->rotary, width = t->heads * each;
    const uint32_t before = t->q_rank > 0 ? t->q_rank : width;
    double *in = pass->qkv + (size_t)p * world_qkv_rows(t, layer);
    norm(pass->x + (size_t)p * t->width, layer->attention_norm, t->width, pass->h);
    for (uint32_t i = 0; i < before + t->head_dim; i++)
        in[i] = product(layer->qkv + (size_t)i * t->width, pass->h, t->width);
    norm_latent(in + before, layer->latent_norm, t->rank, entry);
    memcpy(entry + t->rank, in + before + t->rank, t->rotary * sizeof *entry);
    turn(pass, layer, entry + t->rank, NULL, p);
    if (t->q_rank > 0) norm_latent(in, layer->latent_q_norm, t->q_rank, pass->h);
    for (uint32_t i = 0; i < width; i++)
        q[i] =
            t->q_rank > 0 ? product(layer->q_b + (size_t)i * t->q_rank, pass->h, t->q_rank) : in[i];
    for (uint32_t head = 0; head < t->heads; head++)
        turn(pass, layer, q + (size_t)head * each + t->still_dim, NULL, p);
}

static void run_latent(const struct pass *pass, const struct world_layer *layer) {
    const struct world_traits *t = pass->traits;
    const size_t count = pass->count, each = t->still_dim + t->rotary, heads = t->heads;
    const size_t left = heads * t->value_dim;
    double *q = calloc(count * heads * each, sizeof *q);
    double *entries = calloc(count * t->head_dim, sizeof *entries);
    double *y = calloc(count * left, sizeof *y);
    struct heads_of_entries of = {calloc(count * t->still_dim, sizeof *of.keys),
                                  calloc(count * t->value_dim, sizeof *of.values)};
    for (uint32_t p = 0; p < count; p++)
        make_entry(pass, layer, p, q + p * heads * each, entries + (size_t)p * t->head_dim);
    for (uint32_t head = 0; head < heads; head++) {
        unfold(pass, layer, head, entries, &of);
        for (uint32_t p = 0; p < count; p++)
            attend_latent(pass, &of, entries, q + (p * heads + head) * each, p,
                          y + p * left + head * t->value_dim);
    }
    for (uint32_t p = 0; p < count; p++) {
        for (uint32_t i = 0; i < t->width; i++)
            pass->y[i] = product(layer->output + i * left, y + p * left, (uint32_t)left);
        add_half(pass, pass->y, layer->post_attention, pass->x + (size_t)p * t->width);
    }
    free(q);
    free(entries);
    free(y);
    free(of.keys);
    free(of.values);
}

/* ---- layers with a state ---- */

static double silu(double x) {
    return x / (1.0 + exp(-x));
}

static void normalise(double *x, uint32_t count, double factor) {
    double squares = 1e-6;
    for (uint32_t i = 0; i < count; i++) squares += x[i] * x[i];
    for (uint32_t i = 0; i < count; i++) x[i] *= factor / sqrt(squares);
}

/* The convolution of channel c at a position, over inputs `apart` numbers apart. */
static double convolved(const struct world_layer *layer, const double *inputs, size_t apart,
                        uint32_t taps, uint32_t channels, uint32_t position, uint32_t c) {
    double sum = bias_at(layer->conv_bias, c);
    for (uint32_t i = 0; i < taps && i <= position; i++)
        sum += (double)layer->conv[(size_t)(taps - 1 - i) * channels + c] *
               inputs[(position - i) * apart + c];
    return sum;
}

/* A value head's state (k, v) takes a position and answers: ret (state_dim). */
static void advance(const struct world_traits *t, double *state, const double *q, const double *k,
                    const double *v, double decay, double beta, double *ret) {
    const uint32_t dim = t->state_dim;
    for (uint32_t j = 0; j < dim; j++) {
        double told = 0.0;
        ret[j] = 0.0;
        for (uint32_t i = 0; i < dim; i++) {
            state[i * dim + j] *= decay;
            told += state[i * dim + j] * k[i];
        }
        for (uint32_t i = 0; i < dim; i++) {
            state[i * dim + j] += k[i] * beta * (v[j] - told);
            ret[j] += state[i * dim + j] * q[i];
        }
    }
}

/* One position through all heads: `in` are its convolved channels, then its gates; y (v_heads,
 * state_dim). */
static void delta_row(const struct pass *pass, const struct world_layer *layer, const double *h,
                      double *in, double *states, double *y) {
    const struct world_traits *t = pass->traits;
    const uint32_t dim = t->state_dim, channels = world_channels(t);
    for (uint32_t i = 0; i < 2 * t->k_heads; i++)
        normalise(in + (size_t)i * dim, dim, i < t->k_heads ? 1.0 / sqrt((double)dim) : 1.0);
    for (uint32_t j = 0; j < t->v_heads; j++) {
        const uint32_t key = t->is_tiled ? j % t->k_heads : j / (t->v_heads / t->k_heads);
        const double a =
            product(layer->rates + (size_t)j * t->width, h, t->width) + (double)layer->step_bias[j];
        const double b = product(layer->rates + (size_t)(t->v_heads + j) * t->width, h, t->width);
        const double decay = exp(-exp((double)layer->decay[j]) * log1p(exp(a)));
        double *own = y + (size_t)j * dim, normed[256];
        advance(t, states + (size_t)j * dim * dim, in + (size_t)key * dim,
                in + (size_t)(t->k_heads + key) * dim, in + (size_t)(2 * t->k_heads + j) * dim,
                decay, 1.0 / (1.0 + exp(-b)), own);
        double squares = 0.0;
        for (uint32_t i = 0; i < dim; i++) squares += own[i] * own[i];
        for (uint32_t i = 0; i < dim; i++)
            normed[i] = own[i] / sqrt(squares / dim + 1e-6) * (double)layer->state_norm[i] *
                        silu(in[channels + (size_t)j * dim + i]);
        memcpy(own, normed, dim * sizeof *own);
    }
}

/* What a group of heads of Mamba-2 leaves, gated and normed: y (width). */
static void end_group(const float *weights, const double *gates, uint32_t width, double *y) {
    double squares = 0.0;
    for (uint32_t i = 0; i < width; i++) {
        y[i] *= silu((double)WORLD_STATE_GATE_FACTOR * gates[i]);
        squares += y[i] * y[i];
    }
    for (uint32_t i = 0; i < width; i++)
        y[i] *= (double)WORLD_STATE_FACTOR * (double)weights[i] / sqrt(squares / width + 1e-6);
}

/* The same of Mamba-2; the channels are x | B | C. */
static void mamba_row(const struct pass *pass, const struct world_layer *layer, const double *h,
                      double *in, double *states, double *y) {
    const struct world_traits *t = pass->traits;
    const uint32_t dim = t->state_dim, each = t->v_heads / t->k_heads;
    for (uint32_t j = 0; j < t->v_heads; j++) {
        const double dt =
            (double)WORLD_STEP_FACTOR * product(layer->rates + (size_t)j * t->width, h, t->width);
        const double step = fmin(fmax(log1p(exp(dt + (double)layer->step_bias[j])), 0.1), 2.0);
        const double decay = exp(-step * exp((double)layer->decay[j]));
        const double *x = in + (size_t)j * dim, *b = in + (size_t)(t->v_heads + j / each) * dim;
        const double *c = b + (size_t)t->k_heads * dim;
        for (uint32_t p = 0; p < dim; p++) {
            double *state = states + ((size_t)j * dim + p) * dim, sum = 0.0;
            for (uint32_t n = 0; n < dim; n++) {
                state[n] = decay * state[n] + step * x[p] * b[n];
                sum += state[n] * c[n];
            }
            y[(size_t)j * dim + p] = sum + (double)layer->skip[j] * x[p];
        }
    }
    for (uint32_t i = 0; i < t->v_heads; i += each)
        end_group(layer->state_norm + (size_t)i * dim, in + world_channels(t) + (size_t)i * dim,
                  each * dim, y + (size_t)i * dim);
}

/* A convolution takes a row's doubts to the rows behind it that read it. */
static void carry_doubts(const struct pass *pass, uint32_t taps) {
    for (uint32_t p = pass->doubts ? pass->count : 0; p-- > 1;)
        for (uint32_t i = 1; i < taps && i <= p; i++)
            pass->doubts[p] = fmax(pass->doubts[p], pass->doubts[p - i]);
}

/* pass->qkv has the first product of all positions. */
static void run_state(const struct pass *pass, const struct world_layer *layer) {
    const struct world_traits *t = pass->traits;
    const uint32_t channels = world_channels(t), width = world_state_width(t);
    const uint32_t rows = channels + (t->k_heads > 0 ? 1 : 2) * width;
    double *states = calloc((size_t)t->v_heads * t->state_dim * t->state_dim + 1, sizeof *states);
    double *in = calloc(rows, sizeof *in), *y = calloc(width, sizeof *y);
    carry_doubts(pass, t->k_heads > 0 ? 4 : 3);
    for (uint32_t p = 0; p < pass->count; p++) {
        double *x = pass->x + (size_t)p * t->width, *own = pass->qkv + (size_t)p * rows;
        norm(x, layer->attention_norm, t->width, pass->h);
        for (uint32_t i = 0; i < rows; i++)
            own[i] = product(layer->qkv + (size_t)i * t->width, pass->h, t->width);
        if (t->k_heads > 0) {
            memcpy(in, own, rows * sizeof *in);
            for (uint32_t c = 0; c < channels; c++)
                in[c] = silu(convolved(layer, pass->qkv, rows, 4, channels, p, c));
            (t->is_mamba ? mamba_row : delta_row)(pass, layer, pass->h, in, states, y);
        } else { /* before | after | channels; what is convolved takes the place of before */
            for (uint32_t c = 0; c < width; c++) own[c] *= own[2 * width + c];
            for (uint32_t c = 0; c < width; c++)
                y[c] = own[width + c] * convolved(layer, pass->qkv, rows, 3, channels, p, c);
        }
        for (uint32_t i = 0; i < t->width; i++)
            pass->y[i] = product(layer->output + (size_t)i * width, y, width);
        add_half(pass, pass->y, layer->post_attention, x);
    }
    free(states);
    free(in);
    free(y);
}

static double activated(const struct world_traits *traits, bool is_expert, double gate, double up) {
    const double limit = (double)WORLD_GATE_LIMIT, alpha = (double)WORLD_GATE_ALPHA;
    if (traits->is_ungated) {
        const double inner = (double)WORLD_GATE_FACTOR * fmax(gate, 0.0);
        return inner * inner * (double)WORLD_ADD_FACTOR;
    }
    if (is_expert && traits->is_clamped) {
        gate = fmin(gate, limit);
        return (fmax(fmin(up, limit), -limit) + 1.0) * gate / (1.0 + exp(-alpha * gate));
    }
    if (!traits->is_gelu) return gate / (1.0 + exp(-gate)) * up;
    return 0.5 * gate * (1.0 + tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) *
           up;
}

/* y = the feed-forward of h beside the experts. */
static void run_dense(const struct pass *pass, const struct world_layer *layer) {
    const struct world_traits *t = pass->traits;
    const float *up = layer->dense_gate_up + (size_t)t->ffn * t->width;
    double inner[512];
    for (uint32_t i = 0; i < t->ffn; i++)
        inner[i] = activated(
            t, false, product(layer->dense_gate_up + (size_t)i * t->width, pass->h, t->width),
            product(up + (size_t)i * t->width, pass->h, t->width));
    for (uint32_t i = 0; i < t->width; i++)
        pass->y[i] = product(layer->dense_down + (size_t)i * t->ffn, inner, t->ffn);
}

/* y += weight · an expert of h, or the feed-forward of a layer without experts. */
static void add_expert(const struct pass *pass, const struct world_layer *layer, uint32_t expert,
                       double weight) {
    const struct world_traits *t = pass->traits;
    const size_t first = (size_t)expert * 2 * t->ffn, out = (size_t)expert * t->width;
    const float *gate = layer->gate_up + first * t->width, *up = gate + (size_t)t->ffn * t->width;
    const float *down = layer->down + out * t->ffn;
    double inner[512];
    if (layer->expert_scale) weight *= (double)layer->expert_scale[expert];
    for (uint32_t i = 0; i < t->ffn; i++)
        inner[i] = activated(t, layer->router != NULL,
                             product(gate + (size_t)i * t->width, pass->h, t->width) +
                                 bias_at(layer->gate_up_bias, first + i),
                             product(up + (size_t)i * t->width, pass->h, t->width) +
                                 bias_at(layer->gate_up_bias, first + t->ffn + i));
    for (uint32_t i = 0; i < t->width; i++)
        pass->y[i] += weight * (product(down + (size_t)i * t->ffn, inner, t->ffn) +
                                bias_at(layer->down_bias, out + i));
}

/* How much further logits move with products of that form than with those of bf16. */
static double rounding_of(enum gpu_form form) {
    return form == GPU_E4M3 ? 12.0 : form == GPU_INT8 ? 5.0 : 1.0;
}

/* How far a row is in doubt, whose first experts are chosen; `kept` is the sum of their scores. */
static double doubt_of(const struct world_traits *traits, const double *scores,
                       const uint32_t *chosen, double kept) {
    const double last = scores[chosen[traits->used - 1]];
    double next = 0.0;
    if (world_has_all_experts(traits)) return 0.0;
    for (uint32_t i = traits->used; i < traits->experts; i++) next = fmax(next, scores[chosen[i]]);
    const double tie = WORLD_TIE * rounding_of(traits->form);
    if (last >= WORLD_DOUBT * kept && next > 0.0 && log(last / next) < tie) return INFINITY;
    return 1.0 - scores[chosen[0]] / kept;
}

/* The experts of h with the largest logits, by the softmax over all or over these alone. */
static void add_experts(const struct pass *pass, const struct world_layer *layer,
                        uint32_t position) {
    const struct world_traits *t = pass->traits;
    double scores[WORLD_EXPERTS_MAX], all = 0.0, kept = 0.0;
    uint32_t chosen[WORLD_EXPERTS_MAX];
    for (uint32_t i = 0; i < t->experts; i++) {
        scores[i] = exp(product(layer->router + (size_t)i * t->width,
                                layer->dense_down ? pass->routed : pass->h, t->width) +
                        bias_at(layer->router_bias, i));
        all += scores[i];
        chosen[i] = i;
    }
    for (uint32_t i = 0; i < t->used; i++) {
        uint32_t best = i;
        for (uint32_t j = i + 1; j < t->experts; j++)
            if (scores[chosen[j]] > scores[chosen[best]]) best = j;
        const uint32_t expert = chosen[best];
        chosen[best] = chosen[i];
        chosen[i] = expert;
        kept += scores[expert];
    }
    if (pass->doubts)
        pass->doubts[position] = fmax(pass->doubts[position], doubt_of(t, scores, chosen, kept));
    for (uint32_t i = 0; i < t->used; i++)
        add_expert(pass, layer, chosen[i], scores[chosen[i]] / (t->has_post ? all : kept));
}

/* The expert that all rows go through. */
static void add_shared(const struct pass *pass, const struct world_layer *layer) {
    const struct world_traits *t = pass->traits;
    const uint32_t ffn = t->shared_ffn;
    const float *up = layer->shared_gate_up + (size_t)ffn * t->width;
    double inner[512], factor = 1.0;
    if (layer->shared_scale)
        factor = 1.0 / (1.0 + exp(-product(layer->shared_scale, pass->h, t->width)));
    for (uint32_t i = 0; i < ffn; i++)
        inner[i] = activated(
            t, true, product(layer->shared_gate_up + (size_t)i * t->width, pass->h, t->width),
            product(up + (size_t)i * t->width, pass->h, t->width));
    for (uint32_t i = 0; i < t->width; i++)
        pass->y[i] += factor * product(layer->shared_down + (size_t)i * ffn, inner, ffn);
}

/* Marks the `count` largest of values, and tells by how much the least of them is ahead of the
 * next. */
static double mark_best(const double *values, uint32_t of, uint32_t count, bool *ret_is_best) {
    double last = INFINITY, next = -INFINITY;
    memset(ret_is_best, 0, of * sizeof *ret_is_best);
    for (uint32_t turn = 0; turn < count; turn++) {
        uint32_t best = of;
        for (uint32_t i = 0; i < of; i++)
            if (!ret_is_best[i] && (best == of || values[i] > values[best])) best = i;
        ret_is_best[best] = true;
        last = values[best];
    }
    for (uint32_t i = 0; i < of; i++)
        if (!ret_is_best[i]) next = fmax(next, values[i]);
    return last - next;
}

/* The sum of the two largest. */
static double best_two(const double *values, uint32_t count) {
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        second = fmax(second, fmin(first, values[i]));
        first = fmax(first, values[i]);
    }
    return first + second;
}

/* Chosen by sigmoid + bias in the best groups; weights are the sigmoids. */
static void add_sigmoid_experts(const struct pass *pass, const struct world_layer *layer,
                                uint32_t position) {
    const struct world_traits *t = pass->traits;
    const uint32_t each = t->experts / t->groups;
    double scores[WORLD_EXPERTS_MAX], choice[WORLD_EXPERTS_MAX], counts[WORLD_EXPERTS_MAX];
    bool is_kept[WORLD_EXPERTS_MAX], is_chosen[WORLD_EXPERTS_MAX];
    double sum = 0.0, ahead = INFINITY;
    for (uint32_t i = 0; i < t->experts; i++) {
        scores[i] =
            1.0 / (1.0 + exp(-product(layer->router + (size_t)i * t->width, pass->h, t->width)));
        choice[i] = scores[i] + (double)layer->choice_bias[i];
    }
    if (t->groups > 1) {
        for (uint32_t i = 0; i < t->groups; i++) counts[i] = best_two(choice + i * each, each);
        ahead = mark_best(counts, t->groups, t->groups_used, is_kept);
        for (uint32_t i = 0; i < t->experts; i++)
            if (!is_kept[i / each]) choice[i] = -INFINITY;
    }
    ahead = fmin(ahead, mark_best(choice, t->experts, t->used, is_chosen));
    if (pass->doubts && ahead < WORLD_NEAR * rounding_of(t->form))
        pass->doubts[position] = INFINITY;
    for (uint32_t i = 0; i < t->experts; i++) sum += is_chosen[i] ? scores[i] : 0.0;
    for (uint32_t i = 0; i < t->experts; i++)
        if (is_chosen[i])
            add_expert(pass, layer, i,
                       scores[i] / (t->has_post ? 1.0 : sum) * (double)WORLD_ROUTE_SCALE);
}

/* y = a feed-forward and experts of a row of x, side by side. */
static void run_both(const struct pass *pass, const struct world_layer *layer, uint32_t p) {
    const struct world_traits *t = pass->traits;
    const double *x = pass->x + (size_t)p * t->width;
    double side[512];
    norm(x, layer->ffn_norm, t->width, pass->h);
    run_dense(pass, layer);
    norm(pass->y, layer->post_dense, t->width, side);
    norm(x, layer->router_norm, t->width, pass->routed);
    norm(x, layer->experts_norm, t->width, pass->h);
    memset(pass->y, 0, t->width * sizeof *pass->y);
    add_experts(pass, layer, p);
    norm(pass->y, layer->post_experts, t->width, pass->h);
    for (uint32_t i = 0; i < t->width; i++) pass->y[i] = side[i] + pass->h[i];
}

/* The layer's part of a token, and the factor behind a layer. */
static void run_part(const struct pass *pass, const struct world_layer *layer, uint32_t p) {
    const struct world_traits *t = pass->traits;
    const uint32_t width = t->input_width;
    const size_t index = (size_t)(layer - pass->world->layers);
    double *x = pass->x + (size_t)p * t->width, gated[512];
    for (uint32_t i = 0; layer->input_gate && i < width; i++)
        gated[i] =
            activated(t, false, product(layer->input_gate + (size_t)i * t->width, x, t->width),
                      pass->inputs[(p * WORLD_LAYERS + index) * width + i]);
    for (uint32_t i = 0; layer->input_gate && i < t->width; i++)
        pass->y[i] = product(layer->input_out + (size_t)i * width, gated, width);
    if (layer->input_gate) add_half(pass, pass->y, layer->post_input, x);
    for (uint32_t i = 0; t->x_scale > 0.0f && i < t->width; i++) x[i] *= (double)t->x_scale;
}

/* All layers' parts of a token. */
static void make_parts(const struct pass *pass, uint32_t p, int32_t token) {
    const struct world *world = pass->world;
    const uint32_t width = pass->traits->input_width, all = WORLD_LAYERS * width;
    double *parts = pass->inputs + (size_t)p * all, part[512];
    for (uint32_t i = 0; i < all; i++)
        parts[i] = product(world->input_projection + (size_t)i * pass->traits->width,
                           pass->x + (size_t)p * pass->traits->width, pass->traits->width) /
                   sqrt((double)pass->traits->width);
    for (uint32_t first = 0; first < all; first += width) {
        norm(parts + first, world->input_norm, width, part);
        for (uint32_t i = 0; i < width; i++)
            parts[first + i] =
                ((double)world->input_table[(size_t)token * all + first + i] * sqrt(width) +
                 part[i]) *
                sqrt(0.5);
    }
}

static void run_ffn(const struct pass *pass, const struct world_layer *layer) {
    const struct world_traits *t = pass->traits;
    for (uint32_t p = 0; p < pass->count; p++) {
        if (layer->dense_down) {
            run_both(pass, layer, p);
            add_half(pass, pass->y, layer->post_ffn, pass->x + (size_t)p * t->width);
            run_part(pass, layer, p);
            continue;
        }
        norm(pass->x + (size_t)p * t->width, layer->ffn_norm, t->width, pass->h);
        memset(pass->y, 0, t->width * sizeof *pass->y);
        if (layer->router)
            (t->groups > 0 ? add_sigmoid_experts : add_experts)(pass, layer, p);
        else
            add_expert(pass, layer, 0, 1.0);
        if (layer->router && layer->shared_down) add_shared(pass, layer);
        add_half(pass, pass->y, layer->post_ffn, pass->x + (size_t)p * t->width);
        run_part(pass, layer, p);
    }
}

/* ret_doubts (count) zeros, or NULL. */
static void evaluate(const struct world *world, const int32_t *tokens, uint32_t count,
                     double *ret_logits, double *ret_doubts) {
    const struct world_traits *t = &world->traits;
    const size_t state = world_channels(t) + 2 * (size_t)world_state_width(t);
    const size_t most = world_qkv_most(world);
    const size_t qkv = t->recurrent && state > most ? state : most;
    const float *head = world->head ? world->head : world->embedding;
    struct pass pass = {.world = world, .traits = t, .count = count, .doubts = ret_doubts};
    pass.x = calloc((size_t)count * t->width, sizeof(double));
    pass.h = calloc(t->width + qkv, sizeof(double));
    pass.y = calloc(t->width, sizeof(double));
    pass.qkv = calloc(count * qkv, sizeof(double));
    pass.routed = calloc(t->width, sizeof(double));
    pass.inputs = calloc((size_t)count * WORLD_LAYERS * t->input_width + 1, sizeof(double));
    if (t->shares_keys) pass.keys = calloc(count * qkv, sizeof(double));
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < t->width; i++)
            pass.x[(size_t)p * t->width + i] =
                (double)world->embedding[(size_t)tokens[p] * t->width + i] * (double)t->embed_scale;
    for (uint32_t p = 0; t->input_width > 0 && p < count; p++) make_parts(&pass, p, tokens[p]);
    for (uint32_t i = 0; i < WORLD_LAYERS; i++) {
        (world->layers[i].is_recurrent ? run_state
         : t->rank > 0                 ? run_latent
                                       : run_attention)(&pass, &world->layers[i]);
        run_ffn(&pass, &world->layers[i]);
    }
    for (uint32_t p = 0; p < count; p++) {
        norm(pass.x + (size_t)p * t->width, world->output_norm, t->width, pass.h);
        for (uint32_t i = 0; i < world->vocab_rows; i++) {
            double logit = product(head + (size_t)i * t->width, pass.h, t->width);
            double cap = (double)t->logit_softcap;
            ret_logits[(size_t)p * world->vocab_rows + i] =
                cap > 0.0 ? cap * tanh(logit / cap) : logit;
        }
    }
    free(pass.x);
    free(pass.h);
    free(pass.y);
    free(pass.qkv);
    free(pass.routed);
    free(pass.inputs);
    free(pass.keys);
}

void world_reference(const struct world *world, const int32_t *tokens, uint32_t count,
                     double *ret_logits) {
    evaluate(world, tokens, count, ret_logits, NULL);
}

void world_references_open(const struct world *world, struct world_references *ret_references) {
    for (uint32_t s = 0; s < WORLD_SEQUENCES; s++) {
        double *logits = calloc((size_t)WORLD_CONTEXT * world->vocab_rows, sizeof *logits);
        double *doubts = calloc(WORLD_CONTEXT, sizeof *doubts);
        evaluate(world, world->sequences[s].tokens, WORLD_CONTEXT, logits, doubts);
        ret_references->logits[s] = logits;
        ret_references->doubts[s] = doubts;
    }
}

void world_references_close(struct world_references *references) {
    for (uint32_t s = 0; s < WORLD_SEQUENCES; s++) {
        free(references->logits[s]);
        free(references->doubts[s]);
    }
}

struct world_difference world_compare(const struct world *world,
                                      const struct world_references *references,
                                      const struct world_step *step, const float *logits) {
    struct world_difference most = {.off = 0};
    for (uint32_t i = 0; i < step->step.wanted_count; i++) {
        const uint32_t row = step->wanted[i];
        const double *wanted = references->logits[step->sequences[row]] +
                               (size_t)step->positions[row] * world->vocab_rows;
        const double doubt = references->doubts[step->sequences[row]][step->positions[row]];
        if (isinf(doubt)) continue;
        const double share = doubt > WORLD_DOUBT ? WORLD_DOUBT_SHARE : 1.0;
        for (uint32_t j = 0; j < world->vocab_rows; j++) {
            double off =
                share * fabs((double)logits[(size_t)i * world->vocab_rows + j] - wanted[j]);
            if (off <= most.off) continue;
            most = (struct world_difference){isnan(off) ? INFINITY : off, step->sequences[row],
                                             step->positions[row], j};
        }
    }
    return most;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_internal.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements of a vector, which may be cut into rows. */
static size_t count_of(const struct checkpoint_tensor *tensor) {
    return (size_t)(tensor->axes[0] * tensor->axes[1]);
}

/* Appends the elements of a vector to *at. */
static enum err append_tensor(const struct weights_loader *loader, uint32_t layer,
                              enum tensor_role role, float **at) {
    const struct checkpoint_tensor *tensor = weights_find(loader, layer, role);
    assert(tensor);
    struct checkpoint_bytes bytes;
    enum err err = checkpoint_read(tensor, 0, loader->options.pool, &bytes, loader->error);
    if (err != OK) return err;
    const size_t count = count_of(tensor);
    quant_row_to_f32((enum tensor_type)tensor->type, bytes.at, count, *at);
    checkpoint_done(loader->options.checkpoint, tensor, &bytes);
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite((*at)[i]))
            return err_set(loader->error, ERR_INVALID,
                           "tensor %.*s: element %llu is no finite number",
                           STR_ARGS(tensor->spelled), (unsigned long long)i);
    *at += count;
    return OK;
}

/* A bias goes with the rows of its matrix. */
static void order_heads(const struct weights_loader *loader, float *bias, size_t count) {
    const uint32_t head_dim = loader->options.config->head_dim;
    float head[CONFIG_HEAD_DIM_MAX];
    for (size_t at = 0; loader->row_order && at < count; at += head_dim) {
        memcpy(head, bias + at, head_dim * sizeof *head);
        for (uint32_t i = 0; i < head_dim; i++) bias[at + i] = head[loader->row_order[i]];
    }
}

/* Elements of a bias that belong to rows of q and k. */
static size_t turning_count(const struct weights_loader *loader, enum tensor_role role) {
    const struct model_config *config = loader->options.config;
    const size_t q = (size_t)config->heads * config->head_dim;
    const size_t k = (size_t)config->kv_heads * config->head_dim;
    switch (role) {
    case ROLE_Q_BIAS: return q;
    case ROLE_K_BIAS: return k;
    case ROLE_QKV_BIAS: return q + k;
    default: return 0;
    }
}

enum err weights_read_vector(struct weights_loader *loader, uint32_t layer,
                             const enum tensor_role *roles, size_t role_count, float **ret_vector) {
    size_t count = 0;
    for (size_t i = 0; i < role_count; i++) {
        const struct checkpoint_tensor *tensor = weights_find(loader, layer, roles[i]);
        if (!tensor) return OK;
        count += count_of(tensor);
    }
    float *vector = calloc(count, sizeof *vector);
    if (!vector)
        return err_set(loader->error, ERR_LIMIT, "no memory for a vector of %zu weights", count);
    *ret_vector = vector; /* weights_close frees it, also after an error */
    loader->weights->bytes += count * sizeof *vector;
    float *at = vector;
    enum err err = OK;
    for (size_t i = 0; i < role_count && err == OK; i++) {
        float *begin = at;
        err = append_tensor(loader, layer, roles[i], &at);
        if (err == OK) order_heads(loader, begin, turning_count(loader, roles[i]));
    }
    return err;
}

enum err weights_read_norm(struct weights_loader *loader, uint32_t layer, enum tensor_role role,
                           float **ret_norm) {
    enum err err = weights_read_vector(loader, layer, &role, 1, ret_norm);
    float offset = checkpoint_norm_offset(loader->options.checkpoint);
    if (err != OK || offset == 0.0f || !*ret_norm) return err;
    uint64_t count = weights_find(loader, layer, role)->axes[0];
    for (uint64_t i = 0; i < count; i++) (*ret_norm)[i] += offset;
    return OK;
}

static float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

/* A folder's numbers are tensors, of which the last two may be absent; a GGUF's are in its config. */
enum err weights_read_xielu(struct weights_loader *loader, uint32_t layer, float **ret_xielu) {
    static const enum tensor_role roles[] = {ROLE_XIELU_ALPHA_P, ROLE_XIELU_ALPHA_N,
                                             ROLE_XIELU_BETA, ROLE_XIELU_EPS};
    const struct model_config *config = loader->options.config;
    const bool is_gguf = checkpoint_has_rates(loader->options.checkpoint);
    if (config->architecture->activation != ACTIVATION_XIELU) return OK;
    float *numbers = *ret_xielu = calloc(4, sizeof *numbers);
    if (!numbers) return err_set(loader->error, ERR_LIMIT, "no memory for four numbers");
    memcpy(numbers, is_gguf ? config->list[layer].xielu : (const float[4]){0, 0, 0.5f, -1e-6f},
           4 * sizeof *numbers);
    for (int i = 0; !is_gguf && i < 4; i++) {
        float *at = &numbers[i];
        if (!weights_find(loader, layer, roles[i]) && i >= 2) continue;
        if (!weights_find(loader, layer, roles[i]))
            return err_set(
                loader->error, ERR_INVALID, "tensor %s is missing",
                checkpoint_spell(loader->options.checkpoint, tensor_name_of(roles[i], layer).text)
                    .text);
        enum err err = append_tensor(loader, layer, roles[i], &at);
        if (err != OK) return err;
    }
    numbers[0] = softplus(numbers[0]);
    numbers[1] = numbers[2] + softplus(numbers[1]);
    return OK;
}

/* ---- experts ---- */

/* Line e of ret_lines, `stride` floats apart, begins with what the tensor has for expert e. */
static enum err read_lines(struct weights_loader *loader, uint32_t layer, enum tensor_role role,
                           size_t stride, float *ret_lines) {
    const struct checkpoint_tensor *tensor = weights_find(loader, layer, role);
    struct checkpoint_bytes bytes;
    assert(tensor);
    const size_t width = (size_t)tensor->axes[0];
    enum err err = checkpoint_read(tensor, 0, loader->options.pool, &bytes, loader->error);
    for (uint64_t i = 0; i < tensor->axes[1] && err == OK; i++) {
        float *line = ret_lines + i * stride;
        quant_row_to_f32((enum tensor_type)tensor->type, bytes.at + i * tensor->row_bytes, width,
                         line);
        for (size_t j = 0; j < width && err == OK; j++)
            if (!isfinite(line[j]))
                err = err_set(loader->error, ERR_INVALID,
                              "tensor %.*s: element %zu of line %llu is no finite number",
                              STR_ARGS(tensor->spelled), j, (unsigned long long)i);
    }
    if (bytes.at) checkpoint_done(loader->options.checkpoint, tensor, &bytes);
    return err;
}

/* The biases of gate and up that alternate in the file become those of gate, then of up. */
static enum err read_alternate(struct weights_loader *loader, uint32_t layer, size_t ffn,
                               float *ret_lines) {
    const uint32_t experts = loader->options.config->experts;
    const uint32_t *order = loader->halves_order;
    enum err err = read_lines(loader, layer, ROLE_GATE_UP_EXPERTS_BIAS, 2 * ffn, ret_lines);
    float *line = calloc(2 * ffn, sizeof *line);
    if (!line)
        return err_set(loader->error, ERR_LIMIT, "no memory for a bias of %zu weights", 2 * ffn);
    for (uint32_t i = 0; order && i < experts && err == OK; i++) {
        float *to = ret_lines + i * 2 * ffn;
        memcpy(line, to, 2 * ffn * sizeof *line);
        for (size_t j = 0; j < 2 * ffn; j++) to[j] = line[order[j]];
    }
    free(line);
    return err;
}

enum err weights_read_expert_biases(struct weights_loader *loader, uint32_t layer,
                                    struct experts *ret_experts) {
    static const enum tensor_role router[] = {ROLE_ROUTER_BIAS};
    const struct model_config *config = loader->options.config;
    const size_t ffn = config->expert_ffn, count = config->experts, width = config->width;
    enum err err = weights_read_vector(loader, layer, router, 1, &ret_experts->router_bias);
    if (err != OK || !ret_experts->router_bias) return err;
    float *first = ret_experts->gate_up_bias = calloc(count, 2 * ffn * sizeof *first);
    float *down = ret_experts->down_bias = calloc(count, width * sizeof *down);
    if (!first || !down)
        return err_set(loader->error, ERR_LIMIT, "no memory for the biases of %zu experts", count);
    loader->weights->bytes += count * (2 * ffn + width) * sizeof *first;
    if (weights_find(loader, layer, ROLE_GATE_UP_EXPERTS_BIAS)) {
        err = read_alternate(loader, layer, ffn, first);
    } else {
        err = read_lines(loader, layer, ROLE_GATE_EXPERTS_BIAS, 2 * ffn, first);
        if (err == OK) err = read_lines(loader, layer, ROLE_UP_EXPERTS_BIAS, 2 * ffn, first + ffn);
    }
    return err == OK ? read_lines(loader, layer, ROLE_DOWN_EXPERTS_BIAS, width, down) : err;
}

/* ---- recurrent layers ---- */

enum err weights_read_conv(struct weights_loader *loader, uint32_t layer, enum tensor_role role,
                           float **ret_conv) {
    const struct checkpoint_tensor *tensor = weights_find(loader, layer, role);
    const size_t taps = (size_t)tensor->axes[0], channels = (size_t)tensor->axes[1];
    struct checkpoint_bytes bytes;
    float row[CONFIG_TAPS_MAX];
    assert(taps <= CONFIG_TAPS_MAX);
    float *conv = *ret_conv = calloc(taps * channels, sizeof *conv);
    if (!conv)
        return err_set(loader->error, ERR_LIMIT, "no memory for %zu weights of a convolution",
                       taps * channels);
    loader->weights->bytes += taps * channels * sizeof *conv;
    enum err err = checkpoint_read(tensor, 0, loader->options.pool, &bytes, loader->error);
    if (err != OK) return err;
    for (size_t i = 0; i < channels; i++) {
        quant_row_to_f32((enum tensor_type)tensor->type, bytes.at + i * tensor->row_bytes, taps,
                         row);
        for (size_t j = 0; j < taps; j++) conv[j * channels + i] = row[j];
    }
    checkpoint_done(loader->options.checkpoint, tensor, &bytes);
    for (size_t j = 0; j < taps; j++)
        for (size_t i = 0; i < channels; i++)
            if (!isfinite(conv[j * channels + i]))
                return err_set(loader->error, ERR_INVALID,
                               "tensor %.*s: a weight of channel %zu is no finite number",
                               STR_ARGS(tensor->spelled), i);
    return OK;
}

enum err weights_read_decay(struct weights_loader *loader, uint32_t layer, float **ret_decay) {
    static const enum tensor_role roles[] = {ROLE_STATE_DECAY};
    enum err err = weights_read_vector(loader, layer, roles, 1, ret_decay);
    if (err != OK || !checkpoint_has_rates(loader->options.checkpoint)) return err;
    const struct checkpoint_tensor *tensor = weights_find(loader, layer, ROLE_STATE_DECAY);
    for (uint64_t i = 0; i < count_of(tensor); i++) {
        float *rate = &(*ret_decay)[i];
        if (*rate >= 0.0f)
            return err_set(loader->error, ERR_INVALID,
                           "tensor %.*s: element %llu is %g, and no decay below 0",
                           STR_ARGS(tensor->spelled), (unsigned long long)i, (double)*rate);
        *rate = logf(-*rate);
    }
    return OK;
}

/* ---- positions and labels ---- */

/* Rows of a matrix as floats, from `first` on: ret_rows (count, columns). */
static enum err read_rows(struct weights_loader *loader, enum tensor_role role, size_t first,
                          size_t count, float *ret_rows) {
    const struct checkpoint_tensor *tensor = weights_find(loader, 0, role);
    const size_t width = (size_t)tensor->axes[0];
    struct checkpoint_bytes bytes;
    enum err err = checkpoint_read(tensor, 0, loader->options.pool, &bytes, loader->error);
    if (err != OK) return err;
    for (size_t i = 0; i < count; i++)
        quant_row_to_f32((enum tensor_type)tensor->type, bytes.at + (first + i) * tensor->row_bytes,
                         width, ret_rows + i * width);
    checkpoint_done(loader->options.checkpoint, tensor, &bytes);
    for (size_t i = 0; i < count * width; i++)
        if (!isfinite(ret_rows[i]))
            return err_set(loader->error, ERR_INVALID,
                           "tensor %.*s: element %zu is no finite number",
                           STR_ARGS(tensor->spelled), first * width + i);
    return OK;
}

/* Memory of weights_close for rows of the model's width. */
static enum err take_rows(struct weights_loader *loader, size_t count, float **ret_rows) {
    const size_t width = loader->options.config->width;
    *ret_rows = calloc(count, width * sizeof **ret_rows);
    if (!*ret_rows)
        return err_set(loader->error, ERR_LIMIT, "no memory for %zu rows of %zu weights", count,
                       width);
    loader->weights->bytes += count * width * sizeof **ret_rows;
    return OK;
}

/* The second token type marks the second text of a pair. */
static enum err read_second_type(struct weights_loader *loader, const float *first) {
    const size_t width = loader->options.config->width;
    if (loader->options.config->token_types < 2) return OK;
    enum err err = take_rows(loader, 1, &loader->weights->second_type);
    float *second = loader->weights->second_type;
    if (err == OK) err = read_rows(loader, ROLE_TOKEN_TYPES, 1, 1, second);
    for (size_t i = 0; i < width && err == OK; i++) second[i] -= first[i];
    return err;
}

/* A position begins with its own vector, and the first token type's. */
enum err weights_read_positions(struct weights_loader *loader) {
    const struct model_config *config = loader->options.config;
    bool is_rotary = config->architecture->is_rotary_encoder;
    size_t width = config->width, count = is_rotary ? 1 : config->context_max;
    float *type = calloc(width, sizeof *type);
    if (!type)
        return err_set(loader->error, ERR_LIMIT, "no memory for a vector of %zu weights", width);
    enum err err = take_rows(loader, count, &loader->weights->positions);
    float *at = loader->weights->positions;
    if (err == OK && config->token_types > 0) err = read_rows(loader, ROLE_TOKEN_TYPES, 0, 1, type);
    if (err == OK && !is_rotary)
        err = read_rows(loader, ROLE_POSITIONS, config->position_first, count, at);
    for (size_t i = 0; err == OK && i < count * width; i++) at[i] += type[i % width];
    if (err == OK) err = read_second_type(loader, type);
    free(type);
    return err;
}

/* The bucket of a distance, key less query, as T5 and MPNet have them: half of them for keys before
 * the query; of each half one for each of the first distances, then some by their logarithm. */
static uint32_t bucket_of(int64_t distance) {
    const uint32_t half = CONFIG_DISTANCES / 2, exact = half / 2;
    const uint32_t side = distance > 0 ? half : 0;
    const float size = (float)(distance < 0 ? -distance : distance);
    if (size < (float)exact) return side + (uint32_t)size;
    const float farthest = 128.0f; /* all beyond share the last bucket */
    const float share = logf(size / (float)exact) / logf(farthest / (float)exact);
    const uint32_t bucket = exact + (uint32_t)(share * (float)(half - exact));
    return side + (bucket < half ? bucket : half - 1);
}

enum err weights_read_distances(struct weights_loader *loader) {
    const struct model_config *config = loader->options.config;
    struct weights *weights = loader->weights;
    if (!config->architecture->has_distance_bias) return OK;
    const size_t chunk = 64, heads = config->heads, tokens = config->context_max;
    weights->distance_zero = tokens - 1;
    weights->distance_stride = tokens - 1 + (tokens + chunk - 1) / chunk * chunk;
    const size_t count = heads * weights->distance_stride;
    float *buckets = mem_new(CONFIG_DISTANCES * heads, sizeof *buckets);
    weights->distances = calloc(count, sizeof *weights->distances);
    enum err err = OK;
    if (!weights->distances)
        err = err_set(loader->error, ERR_LIMIT, "no memory for %zu distances", count);
    if (err == OK) err = read_rows(loader, ROLE_DISTANCE_BIAS, 0, CONFIG_DISTANCES, buckets);
    weights->bytes += count * sizeof *weights->distances;
    for (size_t i = 0; err == OK && i < count; i++) {
        const size_t head = i / weights->distance_stride, place = i % weights->distance_stride;
        const int64_t distance = (int64_t)place - (int64_t)weights->distance_zero;
        weights->distances[i] = buckets[bucket_of(distance) * heads + head];
    }
    free(buckets);
    return err;
}

enum err weights_read_dense(struct weights_loader *loader) {
    static const enum tensor_role roles[CONFIG_DENSE_MAX] = {ROLE_DENSE_FIRST, ROLE_DENSE_SECOND};
    const struct model_config *config = loader->options.config;
    enum err err = OK;
    for (uint32_t i = 0; i < CONFIG_DENSE_MAX && config->dense_widths[i] > 0 && err == OK; i++) {
        const size_t in = config_dense_width(config, i), out = config->dense_widths[i];
        float *rows = loader->weights->dense[i] = calloc(out, in * sizeof *rows);
        if (!rows) return err_set(loader->error, ERR_LIMIT, "no memory for %zu weights", in * out);
        loader->weights->bytes += in * out * sizeof *rows;
        err = read_rows(loader, roles[i], 0, out, rows);
    }
    return err;
}

enum err weights_read_labels(struct weights_loader *loader) {
    static const enum tensor_role dense_bias[] = {ROLE_LABEL_DENSE_BIAS};
    static const enum tensor_role bias[] = {ROLE_LABELS_BIAS}, norm[] = {ROLE_LABEL_NORM};
    const struct model_config *config = loader->options.config;
    struct label_weights *to = &loader->weights->labels;
    if (config->labels == 0) return OK;
    enum err err = take_rows(loader, config->labels, &to->output);
    if (err == OK) err = read_rows(loader, ROLE_LABELS, 0, config->labels, to->output);
    if (err == OK) err = weights_read_vector(loader, 0, bias, 1, &to->bias);
    if (err == OK) err = weights_read_vector(loader, 0, norm, 1, &to->norm);
    if (err != OK || !weights_find(loader, 0, ROLE_LABEL_DENSE)) return err;
    err = take_rows(loader, config->width, &to->dense);
    if (err == OK) err = read_rows(loader, ROLE_LABEL_DENSE, 0, config->width, to->dense);
    return err == OK ? weights_read_vector(loader, 0, dense_bias, 1, &to->dense_bias) : err;
}

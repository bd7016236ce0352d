/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "check_plugin.h"
#include "gpu/gpu_store.h"
#include "gpu/text_runner_gpu.h"
#include "weights/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whole texts: tiny encoders with random weights through the runner of whole texts, against a
 * reference in double precision that knows no step, page or item. */

#define LAYERS_MAX 3u
#define MATRICES_MAX (1 + 4 * LAYERS_MAX)
#define TEXTS 9u
#define VOCAB 61u
#define WIDTH_MAX 1024u
#define EPSILON 1e-5f

struct shape {
    const char *name, *family;
    uint32_t layers, width, heads, head_dim, ffn, context;
    uint32_t window; /* keys on each side, its own too, in the layers behind the first */
    bool has_types, pools_all;
    enum gpu_form form;
    double tolerance; /* limit for |difference| / |vector| */
};

/* Differences are some two to four times as large as those of kernels in plain C. */
static const struct shape shapes[] = {
    {"an encoder, the mean", "bert", 3, 96, 3, 32, 160, 90, 0, true, true, GPU_BF16, 0.02},
    {"an encoder, the first row", "bert", 2, 128, 2, 64, 256, 170, 0, false, false, GPU_BF16, 0.02},
    {"an encoder of one layer", "bert", 1, 64, 1, 64, 64, 20, 0, true, false, GPU_BF16, 0.02},
    {"an encoder in INT8", "bert", 2, 128, 4, 32, 256, 60, 0, true, true, GPU_INT8, 0.1},
    {"an encoder in E4M3", "bert", 2, 128, 2, 64, 256, 60, 0, false, true, GPU_E4M3, 0.2},
    {"rotary positions and a gate", "nomic-bert", 2, 128, 2, 64, 192, 70, 0, true, true, GPU_BF16,
     0.02},
    {"windows to both sides, the mean", "modern-bert", 3, 128, 2, 64, 160, 170, 9, false, true,
     GPU_BF16, 0.02},
    {"windows to both sides, the first row", "modern-bert", 3, 96, 3, 32, 96, 90, 33, false, false,
     GPU_BF16, 0.02},
};

struct text_world {
    const struct shape *shape;
    struct rng rng;
    struct model_config config;
    struct gpu_store *store;
    struct weight_store to;
    struct layer_weights layers[LAYERS_MAX];
    struct program_weights weights;
    float *second_type;
    struct matrix *matrices[MATRICES_MAX];
    float *values[MATRICES_MAX]; /* by handle */
    uint32_t matrix_count;
    float frequencies[2][64];
    float *vectors[64]; /* all of them */
    uint32_t vector_count;
    int32_t *tokens[TEXTS];
    uint32_t counts[TEXTS], seconds[TEXTS]; /* seconds: the first row of the second text */
};

/* ---- a model ---- */

/* Numbers that bf16 holds. */
static float *numbers(struct text_world *world, size_t count, float mean, float deviation) {
    float *made = malloc(count * sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = bf16_to_f32(
            bf16_from_f32(mean + deviation * (float)(3.4 * rng_unit(&world->rng) - 1.7)));
    return made;
}

static float *vector(struct text_world *world, uint32_t count, float mean, float deviation) {
    return world->vectors[world->vector_count++] = numbers(world, count, mean, deviation);
}

static struct matrix *matrix(struct text_world *world, uint32_t rows, uint32_t cols,
                             bool is_looked_up) {
    const struct matrix_part part = {.type = TENSOR_F32, .rows = rows};
    const struct weight_matrix from = {.parts = &part,
                                       .part_count = 1,
                                       .cols = cols,
                                       .is_looked_up = is_looked_up,
                                       .is_multiplied = !is_looked_up};
    struct error error = {0};
    bool is_filled;
    struct matrix **made = &world->matrices[world->matrix_count];
    must(world->to.ops->open(world->to.self, &from, made, &is_filled, &error), &error, "open");
    world->values[world->matrix_count++] =
        numbers(world, (size_t)rows * cols, 0, is_looked_up ? 1 : 1 / sqrtf((float)cols));
    return *made;
}

static void make_config(struct text_world *world) {
    const struct shape *shape = world->shape;
    struct model_config *config = &world->config;
    const bool is_modern = strcmp(shape->family, "modern-bert") == 0;
    *config = (struct model_config){.architecture = config_architecture(str_from(shape->family)),
                                    .layers = shape->layers,
                                    .width = shape->width,
                                    .ffn = shape->ffn,
                                    .heads = shape->heads,
                                    .kv_heads = shape->heads,
                                    .head_dim = shape->head_dim,
                                    .context_max = shape->context,
                                    .vocab_rows = VOCAB,
                                    .token_count = VOCAB,
                                    .eps = EPSILON,
                                    .rope_base = 1000,
                                    .rope_base_local = 100,
                                    .rope_scale = 1,
                                    .attention_scale = 1 / sqrtf((float)shape->head_dim),
                                    .is_bidirectional = true,
                                    .windows_see_both = is_modern,
                                    .window = shape->window};
    for (uint32_t i = 1; is_modern && i < shape->layers; i++) {
        config->list[i].window = shape->window;
        config->list[i].rope = 1;
    }
    for (int i = 0; i < (is_modern ? 2 : 1); i++)
        config_rope_frequencies(config, i == 1, world->frequencies[i]);
}

static void make_layer(struct text_world *world, uint32_t index) {
    const struct shape *shape = world->shape;
    const uint32_t width = shape->width;
    const struct architecture *architecture = world->config.architecture;
    struct layer_weights *to = &world->layers[index];
    const bool has_gate = !architecture->is_encoder || architecture->is_rotary_encoder;
    to->qkv = matrix(world, 3 * width, width, false);
    to->output = matrix(world, width, width, false);
    to->gate_up = matrix(world, (has_gate ? 2 : 1) * shape->ffn, width, false);
    to->down = matrix(world, width, shape->ffn, false);
    if (!architecture->is_encoder) {
        to->attention_norm = index > 0 ? vector(world, width, 1, 0.3f) : NULL;
        to->ffn_norm = vector(world, width, 1, 0.3f);
        return;
    }
    if (!has_gate) {
        to->qkv_bias = vector(world, 3 * width, 0, 0.3f);
        to->output_bias = vector(world, width, 0, 0.3f);
        to->encoder.up_bias = vector(world, shape->ffn, 0, 0.3f);
        to->encoder.down_bias = vector(world, width, 0, 0.3f);
    }
    to->encoder.attention_norm = vector(world, width, 1, 0.3f);
    to->encoder.attention_norm_bias = vector(world, width, 0, 0.3f);
    to->encoder.ffn_norm = vector(world, width, 1, 0.3f);
    to->encoder.ffn_norm_bias = vector(world, width, 0, 0.3f);
}

/* Texts of one token and of the whole context are among them. */
static void make_texts(struct text_world *world) {
    for (uint32_t i = 0; i < TEXTS; i++) {
        const uint32_t most = world->shape->context;
        const uint32_t count = i == 3   ? 1
                               : i == 5 ? most
                                        : 1 + (uint32_t)rng_below(&world->rng, most);
        world->counts[i] = count;
        world->seconds[i] = i % 2 ? count : (uint32_t)rng_below(&world->rng, count + 1);
        world->tokens[i] = calloc(count, sizeof *world->tokens[i]);
        for (uint32_t k = 0; k < count; k++)
            world->tokens[i][k] = (int32_t)rng_below(&world->rng, VOCAB);
    }
}

static void make(struct text_world *world, const struct shape *shape, uint64_t seed,
                 const struct gpu_table *table, struct gpu *gpu) {
    const uint32_t width = shape->width;
    *world = (struct text_world){.shape = shape, .rng = {seed}};
    world->store = gpu_store_open(
        &(struct gpu_store_options){.table = table, .gpu = gpu, .form = shape->form});
    world->to = gpu_store_interface(world->store);
    make_config(world);
    world->weights = (struct program_weights){.layers = world->layers,
                                              .embedding = matrix(world, VOCAB, width, true),
                                              .embedding_norm = vector(world, width, 1, 0.3f)};
    for (uint32_t i = 0; i < shape->layers; i++) make_layer(world, i);
    if (world->config.architecture->is_encoder) {
        const bool is_rotary = world->config.architecture->is_rotary_encoder;
        world->weights.embedding_norm_bias = vector(world, width, 0, 0.3f);
        world->weights.position_rows = is_rotary ? 1 : shape->context;
        world->weights.positions = vector(world, world->weights.position_rows * width, 0, 0.5f);
        if (shape->has_types) world->second_type = vector(world, width, 0, 0.5f);
    } else {
        world->weights.output_norm = vector(world, width, 1, 0.3f);
    }
    make_texts(world);
}

static void fill(struct text_world *world) {
    struct error error = {0};
    for (uint32_t i = 0; i < world->matrix_count; i++) {
        const struct matrix_part part = {
            .type = TENSOR_F32, .rows = world->matrices[i]->rows, .blocks = world->values[i]};
        const struct weight_matrix from = {
            .parts = &part, .part_count = 1, .cols = world->matrices[i]->cols};
        must(world->to.ops->fill(world->to.self, world->matrices[i], &from, &error), &error,
             "fill");
    }
}

static void release(struct text_world *world) {
    for (uint32_t i = 0; i < world->vector_count; i++) free(world->vectors[i]);
    for (uint32_t i = 0; i < TEXTS; i++) free(world->tokens[i]);
    for (uint32_t i = 0; i < world->matrix_count; i++) {
        free(world->values[i]);
        free(world->matrices[i]);
    }
    gpu_store_close(world->store);
}

/* ---- the reference ---- */

static void layer_norm(const double *x, const float *weight, const float *bias, uint32_t width,
                       double *ret) {
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < width; i++) mean += x[i] / width;
    for (uint32_t i = 0; i < width; i++) variance += (x[i] - mean) * (x[i] - mean) / width;
    for (uint32_t i = 0; i < width; i++)
        ret[i] = (x[i] - mean) / sqrt(variance + (double)EPSILON) * (double)weight[i] +
                 (bias ? (double)bias[i] : 0);
}

static void product(const struct text_world *world, const struct matrix *by, const float *bias,
                    const double *x, double *ret) {
    const float *weights = world->values[by->handle];
    for (uint32_t i = 0; i < by->rows; i++) {
        ret[i] = bias ? (double)bias[i] : 0;
        for (uint32_t k = 0; k < by->cols; k++)
            ret[i] += (double)weights[(size_t)i * by->cols + k] * x[k];
    }
}

/* Rotates all heads of q and k of a row. */
static void rotate(const struct text_world *world, uint32_t layer, uint32_t position, double *row) {
    const struct shape *shape = world->shape;
    const uint32_t half = shape->head_dim / 2;
    if (strcmp(shape->family, "bert") == 0) return;
    for (uint32_t head = 0; head < 2 * shape->heads; head++)
        for (uint32_t i = 0; i < half; i++) {
            double *x = row + (size_t)head * shape->head_dim + i;
            const double angle =
                position * (double)world->frequencies[world->config.list[layer].rope][i];
            const double a = x[0], b = x[half];
            x[0] = a * cos(angle) - b * sin(angle);
            x[half] = a * sin(angle) + b * cos(angle);
        }
}

static void attend(const struct text_world *world, uint32_t layer, const double *qkv,
                   uint32_t count, uint32_t row, double *ret) {
    const struct shape *shape = world->shape;
    const uint32_t width = shape->width, dim = shape->head_dim;
    const uint32_t window = world->config.list[layer].window;
    memset(ret, 0, width * sizeof *ret);
    for (uint32_t head = 0; head < shape->heads; head++) {
        const double *q = qkv + (size_t)row * 3 * width + (size_t)head * dim;
        double total = 0;
        for (uint32_t j = 0; j < count; j++) {
            const double *k = qkv + (size_t)j * 3 * width + width + (size_t)head * dim;
            const uint32_t apart = j > row ? j - row : row - j;
            double score = 0;
            if (window > 0 && apart >= window) continue;
            for (uint32_t i = 0; i < dim; i++) score += q[i] * k[i];
            const double weight = exp(score / sqrt((double)dim));
            total += weight;
            for (uint32_t i = 0; i < dim; i++) ret[(size_t)head * dim + i] += weight * k[width + i];
        }
        for (uint32_t i = 0; i < dim; i++) ret[(size_t)head * dim + i] /= total;
    }
}

static double gelu(double x) {
    return x / 2 * erfc(-x / sqrt(2.0));
}

/* The feed-forward's first product becomes its gated first half. */
static void bend(const struct text_world *world, double *wide) {
    const uint32_t ffn = world->shape->ffn;
    const struct architecture *architecture = world->config.architecture;
    for (uint32_t i = 0; i < ffn; i++) {
        const double x = wide[i];
        if (architecture->is_rotary_encoder)
            wide[i] = x / (1 + exp(-x)) * wide[ffn + i];
        else
            wide[i] = gelu(x) * (architecture->is_encoder ? 1 : wide[ffn + i]);
    }
}

/* x = what a layer makes of it: norms before its halves, or behind them. */
static void run_layer(const struct text_world *world, uint32_t layer, uint32_t count, double *x,
                      double *qkv) {
    const uint32_t width = world->shape->width;
    const struct layer_weights *weights = &world->layers[layer];
    const struct encoder_layer *own = &weights->encoder;
    const bool is_post = world->config.architecture->is_encoder;
    double h[WIDTH_MAX], wide[2 * WIDTH_MAX];
    for (uint32_t row = 0; row < count; row++) {
        const double *from = x + (size_t)row * width;
        if (weights->attention_norm) layer_norm(from, weights->attention_norm, NULL, width, h);
        product(world, weights->qkv, weights->qkv_bias, weights->attention_norm ? h : from,
                qkv + (size_t)row * 3 * width);
        rotate(world, layer, row, qkv + (size_t)row * 3 * width);
    }
    for (uint32_t row = 0; row < count; row++) {
        double *to = x + (size_t)row * width;
        attend(world, layer, qkv, count, row, wide);
        product(world, weights->output, weights->output_bias, wide, h);
        for (uint32_t i = 0; i < width; i++) to[i] += h[i];
        if (is_post) layer_norm(to, own->attention_norm, own->attention_norm_bias, width, to);
        if (!is_post) layer_norm(to, weights->ffn_norm, NULL, width, h);
        product(world, weights->gate_up, own->up_bias, is_post ? to : h, wide);
        bend(world, wide);
        product(world, weights->down, own->down_bias, wide, h);
        for (uint32_t i = 0; i < width; i++) to[i] += h[i];
        if (is_post) layer_norm(to, own->ffn_norm, own->ffn_norm_bias, width, to);
    }
}

/* The sum of a text's rows: ret (width). */
static void reference(const struct text_world *world, uint32_t text, double *ret) {
    const uint32_t width = world->shape->width, count = world->counts[text];
    const struct program_weights *weights = &world->weights;
    double *x = calloc((size_t)count * width, sizeof *x);
    double *qkv = calloc((size_t)count * 3 * width, sizeof *qkv);
    for (uint32_t row = 0; row < count; row++) {
        double *to = x + (size_t)row * width;
        const float *from = world->values[0] + (size_t)world->tokens[text][row] * width;
        const size_t place = weights->position_rows > 1 ? row : 0;
        for (uint32_t i = 0; i < width; i++) {
            to[i] = (double)from[i];
            if (weights->positions) to[i] += (double)weights->positions[place * width + i];
            if (world->second_type && row >= world->seconds[text])
                to[i] += (double)world->second_type[i];
        }
        layer_norm(to, weights->embedding_norm, weights->embedding_norm_bias, width, to);
    }
    for (uint32_t i = 0; i < world->shape->layers; i++) run_layer(world, i, count, x, qkv);
    memset(ret, 0, width * sizeof *ret);
    for (uint32_t row = 0; row < (world->shape->pools_all ? count : 1); row++) {
        double *from = x + (size_t)row * width;
        if (weights->output_norm) layer_norm(from, weights->output_norm, NULL, width, from);
        for (uint32_t i = 0; i < width; i++) ret[i] += from[i];
    }
    free(x);
    free(qkv);
}

/* ---- the check ---- */

/* Texts first..first+count-1 in one step. */
static void submit(const struct text_world *world, const struct text_runner *runner, uint32_t first,
                   uint32_t count) {
    struct step_sequence sequences[TEXTS];
    struct text_pool pools[TEXTS];
    uint32_t rows = 0;
    int32_t *tokens = calloc(runner->rows_max, sizeof *tokens);
    uint32_t *positions = calloc(runner->rows_max, sizeof *positions);
    bool *is_second = calloc(runner->rows_max, sizeof *is_second);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t own = world->counts[first + i];
        sequences[i] = (struct step_sequence){.row_first = rows, .row_count = own};
        pools[i] = (struct text_pool){.count = world->shape->pools_all ? own : 1};
        for (uint32_t k = 0; k < own; k++, rows++) {
            tokens[rows] = world->tokens[first + i][k];
            positions[rows] = k;
            is_second[rows] = k >= world->seconds[first + i];
        }
    }
    const struct step step = {.row_count = rows,
                              .sequence_count = count,
                              .tokens = tokens,
                              .positions = positions,
                              .sequences = sequences};
    const struct text_step text = {.step = &step, .pools = pools, .is_second = is_second};
    struct error error = {0};
    must(runner->ops->submit(runner->self, &text, &error), &error, "submit");
    free(tokens);
    free(positions);
    free(is_second);
}

/* The largest |difference| / |vector| over all texts, which two steps under way have. */
static double worst_of(const struct text_world *world, const struct text_runner *runner,
                       bool *ret_are_again) {
    const uint32_t width = world->shape->width, half = TEXTS / 2;
    float *got = calloc(TEXTS * (size_t)width, sizeof *got);
    float *again = calloc(TEXTS * (size_t)width, sizeof *again);
    struct error error = {0};
    double worst = 0, want[WIDTH_MAX];
    for (float *to = got;; to = again) {
        submit(world, runner, 0, half);
        submit(world, runner, half, TEXTS - half);
        must(runner->ops->wait(runner->self, to, &error), &error, "wait");
        must(runner->ops->wait(runner->self, to + (size_t)half * width, &error), &error, "wait");
        if (to == again) break;
    }
    *ret_are_again = memcmp(got, again, TEXTS * (size_t)width * sizeof *got) == 0;
    for (uint32_t i = 0; i < TEXTS; i++) {
        double off = 0, size = 0;
        reference(world, i, want);
        for (uint32_t k = 0; k < width; k++) {
            off += pow((double)got[(size_t)i * width + k] - want[k], 2);
            size += want[k] * want[k];
        }
        if (!(sqrt(off / size) <= worst)) worst = sqrt(off / size);
    }
    free(got);
    free(again);
    return worst;
}

static void check_shape(const struct gpu_table *table, const struct shape *shape, uint64_t seed,
                        uint64_t memory_bytes) {
    struct text_world world;
    struct gpu *gpu;
    struct text_runner runner;
    struct error error = {0};
    const struct gpu_info card = {.name = "a GPU"};
    bool are_again;
    open_checked(table, (struct gpu_options){.memory_bytes = memory_bytes}, &gpu);
    make(&world, shape, seed, table, gpu);
    const struct text_runner_gpu_options options = {.table = table,
                                                    .gpu = gpu,
                                                    .card = &card,
                                                    .store = world.store,
                                                    .config = &world.config,
                                                    .weights = world.weights,
                                                    .second_type = world.second_type,
                                                    .is_bidirectional = true,
                                                    .pools_all = shape->pools_all,
                                                    .kv_form = GPU_BF16,
                                                    .rows_max = 2048,
                                                    .tokens_max = shape->context};
    must(text_runner_gpu_open(&runner, &options, &error), &error, "opening");
    fill(&world);
    warm_checked(table, gpu);
    const double worst = worst_of(&world, &runner, &are_again);
    report(worst <= shape->tolerance, "texts, %s: vectors are off by %.3g at most", shape->name,
           worst);
    report(are_again, "texts, %s: the same steps give the same bits again", shape->name);
    runner.ops->close(runner.self);
    table->close(gpu);
    release(&world);
}

void check_texts(const struct gpu_table *table, uint64_t seed, uint64_t memory_bytes) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(table, &shapes[i], seed + i, memory_bytes);
}

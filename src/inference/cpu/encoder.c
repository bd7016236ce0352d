/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/encoder.h"

#include "base/mem.h"
#include "cpu/task_split.h"
#include "cpu/workspace.h"

#include <assert.h>
#include <stdlib.h>

/* Queries of one attention task: enough to reuse the keys it reads, few enough to spread. */
#define ATTENTION_ROWS 32u
/* Rows of a chunk. The maximum keeps the results of its stages in the second-level cache; the
 * minimum keeps the cost of reading the weights once per chunk low. */
#define CHUNK_ROWS_MAX 48u
#define CHUNK_ROWS_MIN 24u

struct encoder {
    struct encoder_options options;
    uint32_t qkv_width;
    struct kv_cache cache;      /* the layers' in turn */
    struct workspace workspace; /* the arrays below, and the cache */
    float *x;                   /* (rows_max, width): the residual stream */
    float *qkv;                 /* (rows_max, qkv_width) */
    float *attended;            /* (rows_max, width) */
    float *wide;                /* (threads · CHUNK_ROWS_MAX, ffn_width) */
    float *frequencies;         /* (head_dim/2) for a rotary encoder, as the next two */
    float *cosines;             /* (rows_max, head_dim/2): of the rows of this step */
    float *sines;
    uint32_t *row_numbers;        /* (rows_max) 0, 1, 2, …: a row's line in these tables */
    size_t activation_bytes;      /* most bytes per row that any matrix needs */
    unsigned char *activations;   /* (threads · CHUNK_ROWS_MAX, activation_bytes) */
    uint32_t *slots;              /* (rows_max) */
    struct attention_item *items; /* (rows_max) */
    uint32_t item_count;
    const struct step *step; /* the one under way */
    const bool *is_second;   /* (rows) likewise, which rows are of second texts */
};

/* ---- opening ---- */

/* The width of the feed-forward's first product: up, or gate and up. */
static size_t ffn_width(const struct encoder *encoder) {
    const struct model_config *config = encoder->options.config;
    return (config->architecture->is_rotary_encoder ? 2 : 1) * (size_t)config->ffn;
}

/* The formula of the workspace (cpu/workspace.h). */
static void lay_out(struct encoder *encoder) {
    struct workspace *space = &encoder->workspace;
    const struct encoder_options *options = &encoder->options;
    size_t rows = options->rows_max, width = options->config->width;
    size_t chunk_rows = (size_t)pool_threads(options->pool) * CHUNK_ROWS_MAX;
    size_t pairs = options->config->head_dim / 2;
    size_t plane = kv_block_bytes(&encoder->cache) * options->block_count;
    encoder->x = workspace_take(space, rows * width * sizeof(float));
    encoder->qkv = workspace_take(space, rows * encoder->qkv_width * sizeof(float));
    encoder->attended = workspace_take(space, rows * width * sizeof(float));
    encoder->wide = workspace_take(space, chunk_rows * ffn_width(encoder) * sizeof(float));
    if (options->config->architecture->is_rotary_encoder) {
        encoder->frequencies = workspace_take(space, pairs * sizeof(float));
        encoder->cosines = workspace_take(space, rows * pairs * sizeof(float));
        encoder->sines = workspace_take(space, rows * pairs * sizeof(float));
        encoder->row_numbers = workspace_take(space, rows * sizeof *encoder->row_numbers);
    }
    encoder->activations = workspace_take(space, chunk_rows * encoder->activation_bytes);
    encoder->slots = workspace_take(space, rows * sizeof *encoder->slots);
    encoder->items = workspace_take(space, rows * sizeof *encoder->items);
    encoder->cache.k = workspace_take(space, plane);
    encoder->cache.v = workspace_take(space, plane);
}

enum err encoder_open(struct encoder **ret_encoder, const struct encoder_options *options,
                      struct error *error) {
    const struct model_config *config = options->config;
    assert(config->architecture->is_encoder && config->kv_heads == config->heads);
    assert(config->heads * config->head_dim == config->width && options->rows_max > 0);
    struct encoder *encoder = mem_new(1, sizeof *encoder);
    encoder->options = *options;
    encoder->qkv_width = 3 * config->width;
    encoder->activation_bytes = workspace_activation_bytes(options->weights);
    encoder->cache = (struct kv_cache){
        .type = options->kernels->kv_type, .kv_heads = config->heads, .head_dim = config->head_dim};
    lay_out(encoder);
    enum err err = workspace_open(&encoder->workspace, error);
    if (err != OK) {
        free(encoder);
        return err;
    }
    lay_out(encoder);
    if (config->architecture->is_rotary_encoder) {
        config_rope_frequencies(config, false, encoder->frequencies);
        for (uint32_t i = 0; i < options->rows_max; i++) encoder->row_numbers[i] = i;
    }
    *ret_encoder = encoder;
    return OK;
}

void encoder_close(struct encoder *encoder) {
    if (!encoder) return;
    workspace_close(&encoder->workspace);
    free(encoder);
}

uint64_t encoder_workspace_bytes(const struct encoder *encoder) {
    return encoder->workspace.bytes;
}

/* ---- the stages of a layer ---- */

/* Some rows on their way through the stages between two attentions. */
struct chunk {
    uint32_t row; /* its first row in the step */
    uint32_t count;
    uint32_t place; /* place of the first row in the arrays below */
    float *wide;    /* (place + count, ffn_width) */
    unsigned char *activations;
};

/* A stage is row-wise work, or a product of the chunk's activations with a matrix. */
struct stage {
    void (*rows)(struct encoder *encoder, const struct chunk *chunk, uint32_t layer);
    struct matmul (*product)(struct encoder *encoder, const struct chunk *chunk, uint32_t layer);
};

static const struct layer_weights *layer_of(const struct encoder *encoder, uint32_t layer) {
    return &encoder->options.weights->layers[layer];
}

static float *x_of(const struct encoder *encoder, const struct chunk *chunk) {
    return encoder->x + (size_t)chunk->row * encoder->options.config->width;
}

static float *qkv_of(const struct encoder *encoder, const struct chunk *chunk) {
    return encoder->qkv + (size_t)chunk->row * encoder->qkv_width;
}

static float *wide_of(const struct encoder *encoder, const struct chunk *chunk) {
    return chunk->wide + chunk->place * ffn_width(encoder);
}

static void norm(const struct encoder *encoder, const struct chunk *chunk, const float *weight,
                 const float *bias) {
    size_t width = encoder->options.config->width;
    encoder->options.kernels->layer_norm(&(struct norm){.x = x_of(encoder, chunk),
                                                        .x_stride = width,
                                                        .y = x_of(encoder, chunk),
                                                        .y_stride = width,
                                                        .weight = weight,
                                                        .bias = bias,
                                                        .width = width,
                                                        .rows = chunk->count,
                                                        .epsilon = encoder->options.config->eps});
}

static void activate(const struct encoder *encoder, const struct chunk *chunk,
                     const struct matrix *matrix, const float *x, size_t x_stride) {
    encoder->options.kernels->activate(matrix, x, x_stride, chunk->count,
                                       chunk->activations +
                                           chunk->place * matrix->activation_bytes);
}

static void embed(struct encoder *encoder, const struct chunk *chunk, uint32_t layer) {
    (void)layer;
    const struct weights *weights = encoder->options.weights;
    const struct step *step = encoder->step;
    const struct model_config *config = encoder->options.config;
    size_t width = config->width, pairs = config->head_dim / 2;
    bool is_rotary = config->architecture->is_rotary_encoder;
    for (uint32_t i = chunk->row; i < chunk->row + chunk->count; i++) {
        float *x = encoder->x + i * width;
        const float *position = weights->positions + (is_rotary ? 0 : step->positions[i] * width);
        if (is_rotary)
            rope_table(encoder->frequencies, (uint32_t)pairs, step->positions[i],
                       step->positions[i] + 1, encoder->cosines + i * pairs,
                       encoder->sines + i * pairs);
        matrix_row(weights->embedding, (uint32_t)step->tokens[i], x);
        for (size_t j = 0; j < width; j++) x[j] += position[j];
        if (!encoder->is_second[i] || !weights->second_type) continue;
        for (size_t j = 0; j < width; j++) x[j] += weights->second_type[j];
    }
    norm(encoder, chunk, weights->embedding_norm, weights->embedding_norm_bias);
}

static void before_qkv(struct encoder *encoder, const struct chunk *chunk, uint32_t layer) {
    activate(encoder, chunk, layer_of(encoder, layer)->qkv, x_of(encoder, chunk),
             encoder->options.config->width);
}

static struct matmul qkv_product(struct encoder *encoder, const struct chunk *chunk,
                                 uint32_t layer) {
    return (struct matmul){.matrix = layer_of(encoder, layer)->qkv,
                           .y = qkv_of(encoder, chunk),
                           .y_stride = encoder->qkv_width,
                           .bias = layer_of(encoder, layer)->qkv_bias};
}

/* Rotates q and k of a rotary encoder, and stores k and v. */
static void store(struct encoder *encoder, const struct chunk *chunk, uint32_t layer) {
    (void)layer;
    const struct model_config *config = encoder->options.config;
    if (config->architecture->is_rotary_encoder)
        encoder->options.kernels->rope(
            &(struct rope){.x = qkv_of(encoder, chunk),
                           .x_stride = encoder->qkv_width,
                           .positions = encoder->row_numbers + chunk->row,
                           .rows = chunk->count,
                           .head_count = 2 * config->heads, /* k follows q */
                           .head_dim = config->head_dim,
                           .rotary_dim = config->head_dim,
                           .cosines = encoder->cosines,
                           .sines = encoder->sines});
    const float *k = qkv_of(encoder, chunk) + config->width;
    struct kv_store call = {.cache = &encoder->cache,
                            .k = k,
                            .k_stride = encoder->qkv_width,
                            .v = k + config->width,
                            .v_stride = encoder->qkv_width,
                            .slots = encoder->slots + chunk->row,
                            .rows = chunk->count};
    encoder->options.kernels->kv_store(&call, 0, config->heads);
}

static void before_output(struct encoder *encoder, const struct chunk *chunk, uint32_t layer) {
    size_t width = encoder->options.config->width;
    activate(encoder, chunk, layer_of(encoder, layer)->output,
             encoder->attended + chunk->row * width, width);
}

static struct matmul output_product(struct encoder *encoder, const struct chunk *chunk,
                                    uint32_t layer) {
    return (struct matmul){.matrix = layer_of(encoder, layer)->output,
                           .y = x_of(encoder, chunk),
                           .y_stride = encoder->options.config->width,
                           .bias = layer_of(encoder, layer)->output_bias,
                           .add = true};
}

static void before_up(struct encoder *encoder, const struct chunk *chunk, uint32_t layer) {
    const struct layer_weights *weights = layer_of(encoder, layer);
    norm(encoder, chunk, weights->encoder.attention_norm, weights->encoder.attention_norm_bias);
    activate(encoder, chunk, weights->gate_up, x_of(encoder, chunk),
             encoder->options.config->width);
}

static struct matmul up_product(struct encoder *encoder, const struct chunk *chunk,
                                uint32_t layer) {
    return (struct matmul){.matrix = layer_of(encoder, layer)->gate_up,
                           .y = wide_of(encoder, chunk),
                           .y_stride = ffn_width(encoder),
                           .bias = layer_of(encoder, layer)->encoder.up_bias};
}

static void before_down(struct encoder *encoder, const struct chunk *chunk, uint32_t layer) {
    const struct kernels *kernels = encoder->options.kernels;
    size_t ffn = encoder->options.config->ffn, stride = ffn_width(encoder);
    float *x = wide_of(encoder, chunk);
    if (stride > ffn)
        kernels->silu_mul(&(struct gate){.gate = x,
                                         .up = x + ffn,
                                         .in_stride = stride,
                                         .y = x,
                                         .y_stride = stride,
                                         .width = ffn,
                                         .rows = chunk->count});
    else
        kernels->gelu_erf(x, stride, ffn, chunk->count);
    activate(encoder, chunk, layer_of(encoder, layer)->down, x, stride);
}

static struct matmul down_product(struct encoder *encoder, const struct chunk *chunk,
                                  uint32_t layer) {
    return (struct matmul){.matrix = layer_of(encoder, layer)->down,
                           .y = x_of(encoder, chunk),
                           .y_stride = encoder->options.config->width,
                           .bias = layer_of(encoder, layer)->encoder.down_bias,
                           .add = true};
}

static void after_down(struct encoder *encoder, const struct chunk *chunk, uint32_t layer) {
    const struct encoder_layer *weights = &layer_of(encoder, layer)->encoder;
    norm(encoder, chunk, weights->ffn_norm, weights->ffn_norm_bias);
}

static const struct stage to_begin[] = {{.rows = embed}, {0}};
static const struct stage before_attention[] = {
    {.rows = before_qkv}, {.product = qkv_product}, {.rows = store}, {0}};
static const struct stage after_attention[] = {{.rows = before_output}, {.product = output_product},
                                               {.rows = before_up},     {.product = up_product},
                                               {.rows = before_down},   {.product = down_product},
                                               {.rows = after_down},    {0}};

/* ---- spreading stages ---- */

/* Only attention reads other rows. So a thread takes a chunk of rows from one attention to the
 * next: the result of a stage is in its caches for the next stage, and no thread waits. With too
 * few rows for that, the threads share each stage. */

struct phase {
    struct encoder *encoder;
    const struct stage *stages;
    uint32_t layer;
    uint32_t rows_each;
    struct chunk chunk; /* the chunk that threads share */
};

static struct matmul product_of(struct encoder *encoder, const struct stage *stage,
                                const struct chunk *chunk, uint32_t layer) {
    struct matmul call = stage->product(encoder, chunk, layer);
    call.activations = chunk->activations + chunk->place * call.matrix->activation_bytes;
    call.rows = chunk->count;
    return call;
}

static void chunk_task(void *context, uint32_t task, uint32_t worker) {
    const struct phase *phase = context;
    struct encoder *encoder = phase->encoder;
    uint32_t row = task * phase->rows_each, left = encoder->step->row_count - row;
    struct chunk chunk = {.row = row,
                          .count = left < phase->rows_each ? left : phase->rows_each,
                          .place = 0,
                          .wide = encoder->wide + worker * CHUNK_ROWS_MAX * ffn_width(encoder),
                          .activations = encoder->activations +
                                         worker * CHUNK_ROWS_MAX * encoder->activation_bytes};
    for (const struct stage *stage = phase->stages; stage->rows || stage->product; stage++) {
        if (stage->rows) {
            stage->rows(encoder, &chunk, phase->layer);
            continue;
        }
        struct matmul call = product_of(encoder, stage, &chunk, phase->layer);
        encoder->options.kernels->matmul(&call, 0, call.matrix->tile_count);
    }
}

static void shared_rows(void *context, uint32_t row, uint32_t count) {
    const struct phase *phase = context;
    struct chunk part = phase->chunk;
    part.row = part.place = row;
    part.count = count;
    phase->stages->rows(phase->encoder, &part, phase->layer);
}

static void share_stages(struct phase *phase) {
    struct encoder *encoder = phase->encoder;
    uint32_t rows = encoder->step->row_count;
    phase->chunk =
        (struct chunk){.count = rows, .wide = encoder->wide, .activations = encoder->activations};
    for (; phase->stages->rows || phase->stages->product; phase->stages++) {
        if (phase->stages->rows) {
            task_split_rows(encoder->options.pool, shared_rows, phase, rows);
            continue;
        }
        struct matmul call = product_of(encoder, phase->stages, &phase->chunk, phase->layer);
        task_split_matmul(encoder->options.pool, encoder->options.kernels, &call);
    }
}

static void run_stages(struct encoder *encoder, const struct stage *stages, uint32_t layer) {
    struct phase phase = {.encoder = encoder, .stages = stages, .layer = layer};
    uint32_t rows = encoder->step->row_count, threads = pool_threads(encoder->options.pool);
    if (rows < threads * CHUNK_ROWS_MIN) {
        share_stages(&phase);
        return;
    }
    uint32_t chunks = divide_up(divide_up(rows, CHUNK_ROWS_MAX), threads) * threads;
    phase.rows_each = divide_up(rows, chunks);
    pool_run(encoder->options.pool, chunk_task, &phase, divide_up(rows, phase.rows_each));
}

/* ---- attention ---- */

struct attention_job {
    struct encoder *encoder;
    struct attention call;
    uint32_t heads_each;
    uint32_t head_tasks;
};

static void attention_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct attention_job *job = context;
    struct attention_group group = {.items = &job->encoder->items[task / job->head_tasks],
                                    .item_count = 1};
    uint32_t head = task % job->head_tasks * job->heads_each;
    uint32_t end = head + job->heads_each;
    uint32_t heads = job->call.head_count;
    job->encoder->options.kernels->attention(&job->call, &group, head, end < heads ? end : heads);
}

static void run_attention(struct encoder *encoder) {
    const struct model_config *config = encoder->options.config;
    struct attention_job job = {.encoder = encoder,
                                .call = {.cache = &encoder->cache,
                                         .q = encoder->qkv,
                                         .q_stride = encoder->qkv_width,
                                         .y = encoder->attended,
                                         .y_stride = config->width,
                                         .head_count = config->heads,
                                         .scale = config->attention_scale,
                                         .bias = encoder->options.weights->distances,
                                         .bias_stride = encoder->options.weights->distance_stride,
                                         .bias_zero = encoder->options.weights->distance_zero}};
    assert(encoder->item_count > 0);
    /* With few items a task has some of the heads. */
    uint32_t tasks = TASKS_PER_THREAD * pool_threads(encoder->options.pool);
    uint32_t wanted = divide_up(tasks, encoder->item_count);
    job.heads_each = divide_up(config->heads, wanted);
    job.head_tasks = divide_up(config->heads, job.heads_each);
    pool_run(encoder->options.pool, attention_task, &job, encoder->item_count * job.head_tasks);
}

/* Where each row's key and value go, and the attention work list: runs of up to ATTENTION_ROWS rows
 * of one text. */
static void plan(struct encoder *encoder) {
    const struct step *step = encoder->step;
    encoder->item_count = 0;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *sequence = &step->sequences[i];
        assert(sequence->kv_tokens == 0);
        for (uint32_t j = 0; j < sequence->row_count; j++) {
            uint32_t row = sequence->row_first + j, left = sequence->row_count - j;
            uint32_t block = sequence->pages[j / KV_BLOCK_TOKENS];
            assert(step->positions[row] == j && block < encoder->options.block_count);
            encoder->slots[row] = block * KV_BLOCK_TOKENS + j % KV_BLOCK_TOKENS;
            if (j % ATTENTION_ROWS != 0) continue;
            encoder->items[encoder->item_count++] =
                (struct attention_item){.row = row,
                                        .row_count = left < ATTENTION_ROWS ? left : ATTENTION_ROWS,
                                        .position = j,
                                        .key_count = sequence->row_count,
                                        .blocks = sequence->pages};
        }
    }
}

/* ---- a step ---- */

const float *encoder_run(struct encoder *encoder, const struct step *step, const bool *is_second) {
    assert(step->row_count >= 1 && step->row_count <= encoder->options.rows_max);
    encoder->step = step;
    encoder->is_second = is_second;
    plan(encoder);
    run_stages(encoder, to_begin, 0);
    for (uint32_t layer = 0; layer < encoder->options.config->layers; layer++) {
        run_stages(encoder, before_attention, layer);
        run_attention(encoder);
        run_stages(encoder, after_attention, layer);
    }
    return encoder->x;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "model/encoder.h"

#include "model/spread.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)64)
/* Queries of one attention task: enough to reuse the keys it reads, few enough to spread. */
#define ATTENTION_ROWS 32u

struct encoder {
    struct encoder_options options;
    uint32_t qkv_width;
    struct kv_cache cache; /* the layers' in turn */
    unsigned char *memory; /* everything below */
    size_t bytes;
    float *x;           /* (rows_max, width): the residual stream */
    float *wide;        /* (rows_max, qkv_width) and (rows_max, width), or (rows_max, ffn) */
    float *attended;    /* the second part of wide */
    float *frequencies; /* (head_dim/2) of a rotary encoder, as the next two */
    float *cosines;     /* (rows_max, head_dim/2): of the rows of this step */
    float *sines;
    uint32_t *row_numbers;        /* (rows_max) 0, 1, 2, …: a row's line in these tables */
    unsigned char *activations;   /* (rows_max, most bytes any matrix needs) */
    uint32_t *slots;              /* (rows_max) */
    struct attention_item *items; /* (rows_max) */
    uint32_t item_count;
    const struct step *step; /* the one under way */
};

/* ---- opening ---- */

static void *place(unsigned char *memory, size_t *at, size_t bytes) {
    void *here = memory ? memory + *at : NULL;
    *at += (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    return here;
}

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The widest row of activations any matrix reads. */
static size_t activation_bytes(const struct weights *weights) {
    size_t most = 0;
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        const struct layer_weights *layer = &weights->layers[i];
        most = max_of(most, layer->qkv->activation_bytes);
        most = max_of(most, layer->output->activation_bytes);
        most = max_of(most, layer->gate_up->activation_bytes);
        most = max_of(most, layer->down->activation_bytes);
    }
    return most;
}

/* What the feed-forward's first product gives: up, or gate and up. */
static size_t ffn_width(const struct encoder *encoder) {
    const struct model_config *config = encoder->options.config;
    return (config->architecture->is_rotary_encoder ? 2 : 1) * (size_t)config->ffn;
}

/* The formula of the workspace: hands out `memory`, or only adds up when it is NULL. No product
 * here can overflow, see the bounds of config.h. */
static size_t lay_out(struct encoder *encoder, unsigned char *memory) {
    const struct encoder_options *options = &encoder->options;
    size_t at = 0, rows = options->rows_max, width = options->config->width;
    size_t widest = max_of(encoder->qkv_width + width, ffn_width(encoder));
    size_t pairs = options->config->head_dim / 2;
    size_t plane = kv_block_bytes(&encoder->cache) * options->block_count;
    encoder->x = place(memory, &at, rows * width * sizeof(float));
    encoder->wide = place(memory, &at, rows * widest * sizeof(float));
    encoder->attended = memory ? encoder->wide + rows * encoder->qkv_width : NULL;
    if (options->config->architecture->is_rotary_encoder) {
        encoder->frequencies = place(memory, &at, pairs * sizeof(float));
        encoder->cosines = place(memory, &at, rows * pairs * sizeof(float));
        encoder->sines = place(memory, &at, rows * pairs * sizeof(float));
        encoder->row_numbers = place(memory, &at, rows * sizeof *encoder->row_numbers);
    }
    encoder->activations = place(memory, &at, rows * activation_bytes(options->weights));
    encoder->slots = place(memory, &at, rows * sizeof *encoder->slots);
    encoder->items = place(memory, &at, rows * sizeof *encoder->items);
    encoder->cache.k = place(memory, &at, plane);
    encoder->cache.v = place(memory, &at, plane);
    return at;
}

enum err encoder_open(struct encoder **ret_encoder, const struct encoder_options *options,
                      struct error *error) {
    const struct model_config *config = options->config;
    assert(config->architecture->is_encoder && config->kv_heads == config->heads);
    assert(config->heads * config->head_dim == config->width && options->rows_max > 0);
    struct encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder) abort();
    encoder->options = *options;
    encoder->qkv_width = 3 * config->width;
    encoder->cache = (struct kv_cache){
        .type = options->kernels->kv_type, .kv_heads = config->heads, .head_dim = config->head_dim};
    encoder->bytes = lay_out(encoder, NULL);
    void *memory = mmap(NULL, encoder->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        enum err err =
            err_set(error, ERR_LIMIT, "no memory for a workspace of %zu bytes", encoder->bytes);
        free(encoder);
        return err;
    }
    (void)madvise(memory, encoder->bytes, MADV_HUGEPAGE); /* as forward_open does */
    encoder->memory = memory;
    (void)lay_out(encoder, encoder->memory);
    if (config->architecture->is_rotary_encoder) {
        config_rope_frequencies(config, false, encoder->frequencies);
        for (uint32_t i = 0; i < options->rows_max; i++) encoder->row_numbers[i] = i;
    }
    *ret_encoder = encoder;
    return OK;
}

void encoder_close(struct encoder *encoder) {
    if (!encoder) return;
    munmap(encoder->memory, encoder->bytes);
    free(encoder);
}

uint64_t encoder_workspace_bytes(const struct encoder *encoder) {
    return encoder->bytes;
}

/* ---- the stages of a layer ---- */

/* One stage of a layer over some rows; stages that are row-wise differ only in this function. */
typedef void (*stage_fn)(struct encoder *encoder, uint32_t layer, uint32_t row, uint32_t count);

struct stage_job {
    struct encoder *encoder;
    stage_fn stage;
    uint32_t layer;
};

static void stage_rows(void *context, uint32_t row, uint32_t count) {
    const struct stage_job *job = context;
    job->stage(job->encoder, job->layer, row, count);
}

static void run_stage(struct encoder *encoder, stage_fn stage, uint32_t layer) {
    struct stage_job job = {.encoder = encoder, .stage = stage, .layer = layer};
    spread_rows(encoder->options.pool, stage_rows, &job, encoder->step->row_count);
}

static const struct layer_weights *layer_of(const struct encoder *encoder, uint32_t layer) {
    return &encoder->options.weights->layers[layer];
}

static void norm_rows(const struct encoder *encoder, const float *weight, const float *bias,
                      uint32_t row, uint32_t count) {
    size_t width = encoder->options.config->width;
    encoder->options.kernels->layer_norm(&(struct norm){.x = encoder->x + row * width,
                                                        .x_stride = width,
                                                        .y = encoder->x + row * width,
                                                        .y_stride = width,
                                                        .weight = weight,
                                                        .bias = bias,
                                                        .width = width,
                                                        .rows = count,
                                                        .epsilon = encoder->options.config->eps});
}

static void activate_rows(const struct encoder *encoder, const struct matrix *matrix,
                          const float *x, size_t x_stride, uint32_t row, uint32_t count) {
    encoder->options.kernels->activate(matrix, x + row * x_stride, x_stride, count,
                                       encoder->activations + row * matrix->activation_bytes);
}

static void activate_for_qkv(const struct encoder *encoder, uint32_t layer, uint32_t row,
                             uint32_t count) {
    activate_rows(encoder, layer_of(encoder, layer)->qkv, encoder->x,
                  encoder->options.config->width, row, count);
}

static void embed_stage(struct encoder *encoder, uint32_t layer, uint32_t row, uint32_t count) {
    const struct weights *weights = encoder->options.weights;
    const struct step *step = encoder->step;
    const struct model_config *config = encoder->options.config;
    size_t width = config->width, pairs = config->head_dim / 2;
    bool is_rotary = config->architecture->is_rotary_encoder;
    for (uint32_t i = row; i < row + count; i++) {
        float *x = encoder->x + i * width;
        const float *position = weights->positions + (is_rotary ? 0 : step->positions[i] * width);
        if (is_rotary)
            rope_table(encoder->frequencies, (uint32_t)pairs, step->positions[i],
                       step->positions[i] + 1, encoder->cosines + i * pairs,
                       encoder->sines + i * pairs);
        matrix_row(weights->embedding, (uint32_t)step->tokens[i], x);
        for (size_t j = 0; j < width; j++) x[j] += position[j];
    }
    norm_rows(encoder, weights->embedding_norm, weights->embedding_norm_bias, row, count);
    activate_for_qkv(encoder, layer, row, count);
}

/* Rotates q and k of a rotary encoder, and stores k and v. */
static void store_stage(struct encoder *encoder, uint32_t layer, uint32_t row, uint32_t count) {
    (void)layer;
    const struct model_config *config = encoder->options.config;
    if (config->architecture->is_rotary_encoder)
        encoder->options.kernels->rope(
            &(struct rope){.x = encoder->wide + (size_t)row * encoder->qkv_width,
                           .x_stride = encoder->qkv_width,
                           .positions = encoder->row_numbers + row,
                           .rows = count,
                           .head_count = 2 * config->heads, /* k follows q */
                           .head_dim = config->head_dim,
                           .rotary_dim = config->head_dim,
                           .cosines = encoder->cosines,
                           .sines = encoder->sines});
    const float *k = encoder->wide + (size_t)row * encoder->qkv_width + config->width;
    struct kv_store store = {.cache = &encoder->cache,
                             .k = k,
                             .k_stride = encoder->qkv_width,
                             .v = k + config->width,
                             .v_stride = encoder->qkv_width,
                             .slots = encoder->slots + row,
                             .rows = count};
    encoder->options.kernels->kv_store(&store, 0, config->heads);
}

static void before_output_stage(struct encoder *encoder, uint32_t layer, uint32_t row,
                                uint32_t count) {
    activate_rows(encoder, layer_of(encoder, layer)->output, encoder->attended,
                  encoder->options.config->width, row, count);
}

static void before_up_stage(struct encoder *encoder, uint32_t layer, uint32_t row, uint32_t count) {
    const struct layer_weights *weights = layer_of(encoder, layer);
    norm_rows(encoder, weights->encoder.attention_norm, weights->encoder.attention_norm_bias, row,
              count);
    activate_rows(encoder, weights->gate_up, encoder->x, encoder->options.config->width, row,
                  count);
}

static void before_down_stage(struct encoder *encoder, uint32_t layer, uint32_t row,
                              uint32_t count) {
    const struct kernels *kernels = encoder->options.kernels;
    size_t ffn = encoder->options.config->ffn, stride = ffn_width(encoder);
    float *x = encoder->wide + row * stride;
    if (stride > ffn)
        kernels->silu_mul(&(struct gate){.gate = x,
                                         .up = x + ffn,
                                         .in_stride = stride,
                                         .y = x,
                                         .y_stride = stride,
                                         .width = ffn,
                                         .rows = count});
    else
        kernels->gelu_erf(x, stride, ffn, count);
    activate_rows(encoder, layer_of(encoder, layer)->down, encoder->wide, stride, row, count);
}

static void after_down_stage(struct encoder *encoder, uint32_t layer, uint32_t row,
                             uint32_t count) {
    const struct encoder_layer *weights = &layer_of(encoder, layer)->encoder;
    norm_rows(encoder, weights->ffn_norm, weights->ffn_norm_bias, row, count);
    if (layer + 1 < encoder->options.config->layers)
        activate_for_qkv(encoder, layer + 1, row, count);
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
                                         .q = encoder->wide,
                                         .q_stride = encoder->qkv_width,
                                         .y = encoder->attended,
                                         .y_stride = config->width,
                                         .head_count = config->heads,
                                         .scale = config->attention_scale}};
    /* With few items a task has some of the heads. */
    uint32_t tasks = SPREAD_TASKS_PER_THREAD * pool_threads(encoder->options.pool);
    uint32_t wanted = (tasks + encoder->item_count - 1) / encoder->item_count;
    job.heads_each = (config->heads + wanted - 1) / wanted;
    job.head_tasks = (config->heads + job.heads_each - 1) / job.heads_each;
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

static void run_matmul(struct encoder *encoder, struct matmul call) {
    call.activations = encoder->activations;
    call.rows = encoder->step->row_count;
    spread_matmul(encoder->options.pool, encoder->options.kernels, &call);
}

static void run_layer(struct encoder *encoder, uint32_t layer) {
    const struct layer_weights *weights = layer_of(encoder, layer);
    const struct model_config *config = encoder->options.config;
    run_matmul(encoder, (struct matmul){.matrix = weights->qkv,
                                        .y = encoder->wide,
                                        .y_stride = encoder->qkv_width,
                                        .bias = weights->qkv_bias});
    run_stage(encoder, store_stage, layer);
    run_attention(encoder);
    run_stage(encoder, before_output_stage, layer);
    run_matmul(encoder, (struct matmul){.matrix = weights->output,
                                        .y = encoder->x,
                                        .y_stride = config->width,
                                        .bias = weights->encoder.output_bias,
                                        .add = true});
    run_stage(encoder, before_up_stage, layer);
    run_matmul(encoder, (struct matmul){.matrix = weights->gate_up,
                                        .y = encoder->wide,
                                        .y_stride = ffn_width(encoder),
                                        .bias = weights->encoder.up_bias});
    run_stage(encoder, before_down_stage, layer);
    run_matmul(encoder, (struct matmul){.matrix = weights->down,
                                        .y = encoder->x,
                                        .y_stride = config->width,
                                        .bias = weights->encoder.down_bias,
                                        .add = true});
    run_stage(encoder, after_down_stage, layer);
}

const float *encoder_run(struct encoder *encoder, const struct step *step) {
    assert(step->row_count >= 1 && step->row_count <= encoder->options.rows_max);
    encoder->step = step;
    plan(encoder);
    run_stage(encoder, embed_stage, 0);
    for (uint32_t layer = 0; layer < encoder->options.config->layers; layer++)
        run_layer(encoder, layer);
    return encoder->x;
}

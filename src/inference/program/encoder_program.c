/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "program/program.h"

#include <assert.h>

/* Operations of a layer, and around all layers: EMBED, NORM, KEEP, POOL. */
#define OPS_PER_LAYER 9u
#define OPS_AROUND 4u

static struct op *append(struct program *program, enum op_kind kind, uint32_t layer) {
    struct op *op = &program->ops[program->op_count++];
    *op = (struct op){.kind = kind, .layer = (uint16_t)layer};
    return op;
}

/* x = LayerNorm(x + h), prepared for `next`. */
static void append_norm(struct program *program, uint32_t layer, enum op_add add,
                        const float *weight, const float *bias, const struct matrix *next) {
    struct op *op = append(program, OP_NORM, layer);
    op->add = add;
    op->weight = weight;
    op->bias = bias;
    op->next = next;
    op->is_layer_norm = op->replaces = true;
}

static void append_matmul(struct program *program, uint32_t layer, const struct matrix *matrix,
                          const float *bias, enum op_to to) {
    struct op *op = append(program, OP_MATMUL, layer);
    op->matrix = matrix;
    op->bias = bias;
    op->to = to;
}

static struct op *append_attention(struct program *program, uint32_t layer, enum op_kind kind,
                                   const struct program_options *options) {
    struct op *op = append(program, kind, layer);
    const uint32_t width = options->config->width;
    op->kv_group = options->layout->group[layer];
    op->kv_place = options->layout->place[layer];
    op->heads = (struct head_sizes){.kv_heads = options->config->heads,
                                    .head_dim = options->config->head_dim,
                                    .q_width = width,
                                    .kv_width = width,
                                    .stride = 3 * width};
    return op;
}

static void append_layer(struct program *program, uint32_t layer,
                         const struct program_options *options) {
    const struct model_config *config = options->config;
    const struct layer_weights *weights = &options->weights.layers[layer];
    const struct encoder_layer *own = &weights->encoder;
    const bool is_last = layer + 1 == config->layers;
    append_matmul(program, layer, weights->qkv, weights->qkv_bias, TO_WIDE);
    append_attention(program, layer, OP_HEADS, options);
    if (is_last) append(program, OP_KEEP, layer)->width = 3 * config->width;
    struct op *attention = append_attention(program, layer, OP_ATTENTION, options);
    attention->scale = config->attention_scale;
    attention->next = weights->output;
    append_matmul(program, layer, weights->output, weights->output_bias, TO_H);
    append_norm(program, layer, ADD_H, own->attention_norm, own->attention_norm_bias,
                weights->gate_up);
    append_matmul(program, layer, weights->gate_up, own->up_bias, TO_WIDE);
    struct op *gate = append(program, OP_GATE, layer);
    gate->gate = config->architecture->is_rotary_encoder ? GATE_SILU : GATE_GELU_ALONE;
    gate->width = config->ffn;
    gate->next = weights->down;
    append_matmul(program, layer, weights->down, own->down_bias, TO_H);
    append_norm(program, layer, ADD_H, own->ffn_norm, own->ffn_norm_bias,
                is_last ? NULL : options->weights.layers[layer + 1].qkv);
}

static struct program_shape shape_of(const struct program_options *options) {
    const struct model_config *config = options->config;
    return (struct program_shape){
        .layers = config->layers,
        .width = config->width,
        .ffn = config->ffn,
        .heads = config->heads,
        .kv_heads = config->heads,
        .head_dim = config->head_dim,
        .q_width = config->width,
        .kv_width = config->width,
        .qkv_width = 3 * config->width,
        .vocab_rows = config->vocab_rows,
        .rope_count = config->architecture->is_rotary_encoder ? 1 : 0,
        .rope_width = {config->architecture->is_rotary_encoder ? config->head_dim : 0},
        .eps = config->eps,
    };
}

void program_of_encoder(struct program *ret_program, const struct program_options *options) {
    const struct model_config *config = options->config;
    const struct program_weights *weights = &options->weights;
    const uint32_t most = config->layers * OPS_PER_LAYER + OPS_AROUND;
    assert(config->architecture->is_encoder && config->layers > 0 && options->pools);
    assert(config->heads * config->head_dim == config->width);
    struct program *program = ret_program;
    *program =
        (struct program){.shape = shape_of(options), .ops = mem_new(most, sizeof *program->ops)};
    if (program->shape.rope_count > 0) {
        program->frequencies[0] = mem_new(config->head_dim / 2, sizeof(float));
        config_rope_frequencies(config, false, program->frequencies[0]);
    }
    struct op *embed = append(program, OP_EMBED, 0);
    embed->matrix = weights->embedding;
    embed->scale = 1.0f;
    embed->positions = weights->positions;
    embed->position_rows = weights->position_rows;
    append_norm(program, 0, ADD_NOTHING, weights->embedding_norm, weights->embedding_norm_bias,
                weights->layers[0].qkv);
    for (uint32_t i = 0; i < config->layers; i++) append_layer(program, i, options);
    append(program, OP_POOL, config->layers);
    assert(program->op_count <= most);
}

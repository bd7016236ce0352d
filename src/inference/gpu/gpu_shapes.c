/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_shapes.h"

#include "base/mem.h"
#include "gpu/gpu_store.h"

#include <stdlib.h>

#define LAYER_MATRICES 11u /* at most: a state, experts and a shared one, a part of a token */
#define OTHER_MATRICES 4u  /* embedding and head; those of parts of tokens */

static struct matrix *add_matrix(struct gpu_shapes *shapes, uint32_t rows, uint32_t cols,
                                 enum gpu_form form) {
    struct matrix *matrix = &shapes->matrices[shapes->count];
    *matrix = (struct matrix){.rows = rows, .cols = cols, .handle = shapes->count};
    shapes->forms[shapes->count++] = (struct gpu_matrix){.rows = rows, .cols = cols, .form = form};
    return matrix;
}

/* A layer's matrix of the tensors with these roles. With GPU_BLOCKS it has the form that the
 * store would give it. */
static struct matrix *add_product(struct gpu_shapes *shapes,
                                  const struct gpu_shapes_options *options, uint32_t layer,
                                  const enum tensor_role *roles, uint32_t role_count, uint32_t rows,
                                  uint32_t cols) {
    struct matrix *matrix = add_matrix(shapes, rows, cols, options->weights);
    struct matrix_part parts[GPU_BLOCK_PARTS_MAX];
    if (options->weights != GPU_BLOCKS) return matrix;
    for (uint32_t i = 0; i < role_count; i++) {
        const struct tensor_name name = tensor_name_of(roles[i], layer);
        const struct checkpoint_tensor *tensor =
            checkpoint_find(options->checkpoint, str_from(name.text));
        if (!tensor) return matrix;
        parts[i] = (struct matrix_part){.type = (enum tensor_type)tensor->type,
                                        .rows = (uint32_t)tensor->axes[1]};
    }
    const struct gpu_store_options store = {.form = GPU_BLOCKS};
    const struct weight_matrix from = {.parts = parts, .part_count = role_count, .cols = cols};
    shapes->forms[shapes->count - 1] = gpu_store_matrix(&store, &from);
    return matrix;
}

/* Likewise the embedding, of which the head may be a matrix of its own. */
static struct matrix *add_embedding(struct gpu_shapes *shapes,
                                    const struct gpu_shapes_options *options) {
    const struct model_config *config = options->config;
    struct matrix *matrix = add_matrix(shapes, config->vocab_rows, config->width, GPU_BF16);
    if (options->weights != GPU_BLOCKS || options->is_tied || options->is_for_texts) return matrix;
    const struct checkpoint_tensor *tensor =
        checkpoint_find(options->checkpoint, str_from(tensor_name_of(ROLE_EMBEDDING, 0).text));
    if (!tensor) return matrix;
    const struct matrix_part part = {.type = (enum tensor_type)tensor->type,
                                     .rows = config->vocab_rows};
    const struct gpu_store_options store = {.form = GPU_BLOCKS};
    const struct weight_matrix from = {.parts = &part,
                                       .part_count = 1,
                                       .cols = config->width,
                                       .is_looked_up = true,
                                       .is_only_looked_up = true};
    shapes->forms[shapes->count - 1] = gpu_store_matrix(&store, &from);
    return matrix;
}

/* The form that the store would give a matrix of which it knows only this. */
static enum gpu_form form_of(enum gpu_form weights, struct weight_matrix from) {
    const struct gpu_store_options store = {.form = weights};
    return gpu_store_matrix(&store, &from).form;
}

/* The tensor of a part of a layer's first expert, alone or with all others. */
static const struct checkpoint_tensor *find_expert(const struct checkpoint *checkpoint,
                                                   uint32_t layer, enum expert_part part) {
    static const enum tensor_role roles[EXPERT_PARTS][2] = {
        [EXPERT_GATE] = {ROLE_GATE_UP_EXPERTS, ROLE_GATE_EXPERTS},
        [EXPERT_UP] = {ROLE_GATE_UP_EXPERTS, ROLE_UP_EXPERTS},
        [EXPERT_DOWN] = {ROLE_DOWN_EXPERTS, ROLE_DOWN_EXPERTS}};
    const struct checkpoint_tensor *tensor = NULL;
    for (int i = 0; i < 2 && !tensor; i++)
        tensor = checkpoint_find(checkpoint, str_from(tensor_name_of(roles[part][i], layer).text));
    const struct tensor_name name = tensor_name_of_expert(part, layer, 0);
    return tensor ? tensor : checkpoint_find(checkpoint, str_from(name.text));
}

/* All experts' gate and up, or down, in the form that the store would give it. */
static struct matrix *add_experts(struct gpu_shapes *shapes,
                                  const struct gpu_shapes_options *options, uint32_t layer,
                                  enum expert_part part, uint32_t rows, uint32_t cols) {
    const uint32_t experts = options->config->experts, count = part == EXPERT_GATE ? 2 : 1;
    struct matrix *matrix = add_matrix(shapes, experts * rows, cols, options->weights);
    struct matrix_part parts[2];
    for (uint32_t i = 0; i < count; i++) {
        const struct checkpoint_tensor *tensor =
            options->checkpoint
                ? find_expert(options->checkpoint, layer, (enum expert_part)((uint32_t)part + i))
                : NULL;
        parts[i] = (struct matrix_part){
            .type = tensor ? (enum tensor_type)tensor->type : TENSOR_BF16, .rows = rows / count};
    }
    const struct gpu_store_options store = {.form = options->weights};
    const struct weight_matrix from = {
        .parts = parts, .part_count = count, .cols = cols, .experts = experts};
    shapes->forms[shapes->count - 1] = gpu_store_matrix(&store, &from);
    return matrix;
}

/* The expert that all rows go through. */
static void add_shared(struct gpu_shapes *shapes, const struct gpu_shapes_options *options,
                       uint32_t layer, struct experts *experts) {
    static const enum tensor_role gate_up[] = {ROLE_SHARED_GATE, ROLE_SHARED_UP},
                                  down[] = {ROLE_SHARED_DOWN};
    const struct model_config *config = options->config;
    const uint32_t ffn = config->shared_ffn;
    experts->shared_ffn = ffn;
    if (ffn == 0) return;
    experts->shared_gate_up =
        add_product(shapes, options, layer, gate_up, 2, 2 * ffn, config->width);
    experts->shared_down = add_product(shapes, options, layer, down, 1, config->width, ffn);
    if (config->architecture->shared_expert_is_plain) return;
    experts->shared_scale =
        add_matrix(shapes, 1, config->width,
                   form_of(options->weights, (struct weight_matrix){.is_exact = true}));
}

static struct experts experts_of(struct gpu_shapes *shapes,
                                 const struct gpu_shapes_options *options, uint32_t layer) {
    const struct model_config *config = options->config;
    const uint32_t count = config->experts, ffn = config->expert_ffn;
    struct matrix **first = shapes->experts + 2 * (size_t)layer;
    float *bias = config->architecture->has_expert_bias ? &shapes->vector : NULL;
    struct experts experts = {.count = count,
                              .used = config->experts_used,
                              .ffn = ffn,
                              .is_sigmoid = config->routing.is_sigmoid,
                              .choice_bias = config->routing.is_sigmoid ? &shapes->vector : NULL,
                              .router_bias = bias,
                              .gate_up_bias = bias,
                              .down_bias = bias,
                              .scales =
                                  config->list[layer].ffn == FFN_BOTH ? &shapes->vector : NULL};
    experts.router =
        add_matrix(shapes, count, config->width,
                   form_of(options->weights, (struct weight_matrix){.is_exact = true}));
    first[0] = add_experts(shapes, options, layer, EXPERT_GATE, 2 * ffn, config->width);
    first[1] = add_experts(shapes, options, layer, EXPERT_DOWN, config->width, ffn);
    add_shared(shapes, options, layer, &experts);
    experts.gate_up = &first[0];
    experts.down = &first[1];
    return experts;
}

/* The mixer of a layer with a state, and the columns of its output's matrix. */
static struct recurrent recurrent_of(struct gpu_shapes *shapes,
                                     const struct gpu_shapes_options *options, uint32_t layer) {
    static const enum tensor_role in[] = {ROLE_STATE_IN, ROLE_STATE_GATE}, conv[] = {ROLE_CONV_IN};
    const struct model_config *config = options->config;
    const uint32_t rows = config_state_rows(config);
    const bool is_mamba = config->architecture->recurrent == MIXER_MAMBA;
    float *vector = &shapes->vector;
    if (config->list[layer].mixer == MIXER_CONV)
        return (struct recurrent){
            .in = add_product(shapes, options, layer, conv, 1, rows, config->width),
            .conv = vector};
    return (struct recurrent){
        .in = add_product(shapes, options, layer, in, 2, rows, config->width),
        .rates =
            add_matrix(shapes, (is_mamba ? 1 : 2) * config->recurrent.value_heads, config->width,
                       form_of(options->weights, (struct weight_matrix){.is_exact = true})),
        .conv = vector,
        .conv_bias = config->recurrent.has_conv_bias ? vector : NULL,
        .skip = is_mamba ? vector : NULL,
        .decay = vector,
        .step_bias = vector,
        .norm = config->recurrent.has_no_norm ? NULL : vector};
}

/* The product of q, k and v. */
static struct matrix *add_qkv(struct gpu_shapes *shapes, const struct gpu_shapes_options *options,
                              uint32_t layer) {
    static const enum tensor_role qkv[] = {ROLE_Q, ROLE_K, ROLE_V, ROLE_Q},
                                  qkk[] = {ROLE_Q, ROLE_K, ROLE_K, ROLE_Q};
    const struct model_config *config = options->config;
    const uint32_t q_width = config->heads * config_head_dim(config, layer);
    const uint32_t kv_width = config_kv_width(config, layer); /* 0: another layer's */
    const bool is_gated = config->architecture->has_output_gate;
    const uint32_t gate_width = is_gated ? q_width : 0;
    return add_product(shapes, options, layer, config->list[layer].v_is_k ? qkk : qkv,
                       kv_width == 0 ? 1
                       : is_gated    ? 4
                                     : 3,
                       q_width + 2 * kv_width + gate_width, config->width);
}

/* The mixer of a latent layer. */
static struct latent latent_of(struct gpu_shapes *shapes, const struct gpu_shapes_options *options,
                               uint32_t layer) {
    static const enum tensor_role q[] = {ROLE_LATENT_Q, ROLE_LATENT_KV_A},
                                  a[] = {ROLE_LATENT_Q_A, ROLE_LATENT_KV_A},
                                  b[] = {ROLE_LATENT_Q_B};
    const struct model_config *config = options->config;
    const struct latent_sizes *sizes = &config->latent;
    const uint32_t heads = config->heads, q_rank = sizes->q_rank;
    const uint32_t q_width = heads * (sizes->still_dim + sizes->turned_dim);
    const enum gpu_form form =
        form_of(options->weights, (struct weight_matrix){.heads = heads, .part_count = 0});
    struct matrix **first = shapes->heads + 2 * (size_t)layer;
    first[0] = add_matrix(shapes, heads * sizes->rank, sizes->still_dim, form);
    first[1] = add_matrix(shapes, heads * sizes->value_dim, sizes->rank, form);
    return (struct latent){
        .heads = heads,
        .in = add_product(shapes, options, layer, q_rank > 0 ? a : q, 2,
                          (q_rank > 0 ? q_rank : q_width) + sizes->rank + sizes->turned_dim,
                          config->width),
        .q_b = q_rank > 0 ? add_product(shapes, options, layer, b, 1, q_width, q_rank) : NULL,
        .q_norm = q_rank > 0 ? &shapes->vector : NULL,
        .norm = &shapes->vector,
        .k_b = &first[0],
        .v_b = &first[1]};
}

/* A layer's part of a token. */
static void add_part(struct gpu_shapes *shapes, const struct gpu_shapes_options *options,
                     uint32_t layer, struct layer_weights *weights) {
    static const enum tensor_role gate[] = {ROLE_INPUT_GATE}, out[] = {ROLE_INPUT_OUT};
    const uint32_t part = options->config->input_width, width = options->config->width;
    if (part == 0) return;
    weights->input_gate = add_product(shapes, options, layer, gate, 1, part, width);
    weights->input_out = add_product(shapes, options, layer, out, 1, width, part);
    weights->post_input_norm = &shapes->vector;
}

/* The tables of all layers' parts. */
static void add_inputs(struct gpu_shapes *shapes, const struct gpu_shapes_options *options,
                       struct program_weights *weights) {
    static const enum tensor_role projection[] = {ROLE_INPUT_PROJECTION};
    const struct model_config *config = options->config;
    const uint32_t all = config->layers * config->input_width;
    if (all == 0) return;
    weights->input_table = add_matrix(shapes, config->vocab_rows, all, GPU_BF16);
    weights->input_projection = add_product(shapes, options, 0, projection, 1, all, config->width);
    weights->input_norm = &shapes->vector;
}

static struct layer_weights layer_of(struct gpu_shapes *shapes,
                                     const struct gpu_shapes_options *options, uint32_t layer) {
    const struct model_config *config = options->config;
    const struct architecture *has = config->architecture;
    const uint32_t q_width = config->heads * config_head_dim(config, layer);
    const bool is_recurrent = config_layer_is_recurrent(config, layer);
    static const enum tensor_role output[] = {ROLE_OUTPUT_PROJECTION},
                                  state_output[] = {ROLE_STATE_OUTPUT},
                                  gate_up[] = {ROLE_GATE, ROLE_UP}, down[] = {ROLE_DOWN};
    const uint32_t ffn = config_ffn(config, layer);
    float *vector = &shapes->vector;
    const bool is_both = config->list[layer].ffn == FFN_BOTH;
    struct layer_weights weights = {.attention_norm = vector,
                                    .q_norm = has->has_qk_norm ? vector : NULL,
                                    .k_norm = has->has_qk_norm ? vector : NULL,
                                    .qkv_bias = has->has_qkv_bias ? vector : NULL,
                                    .sinks = has->has_sinks ? vector : NULL,
                                    .output_bias = has->has_output_bias ? vector : NULL,
                                    .post_attention_norm = has->has_post_norm ? vector : NULL,
                                    .ffn_norm = vector,
                                    .post_ffn_norm = has->has_post_norm ? vector : NULL,
                                    .router_norm = is_both ? vector : NULL,
                                    .experts_norm = is_both ? vector : NULL,
                                    .post_dense_norm = is_both ? vector : NULL,
                                    .post_experts_norm = is_both ? vector : NULL,
                                    .scale = has->has_layer_scale ? vector : NULL};
    const enum mixer_kind mixer = config->list[layer].mixer;
    const bool has_keys = !is_recurrent || mixer == MIXER_BOTH;
    if (is_recurrent) weights.recurrent = recurrent_of(shapes, options, layer);
    if (mixer == MIXER_BOTH)
        weights.recurrent.output = add_product(shapes, options, layer, state_output, 1,
                                               config->width, config_state_width(config));
    if (mixer == MIXER_LATENT)
        weights.latent = latent_of(shapes, options, layer);
    else if (has_keys && mixer != MIXER_NONE)
        weights.qkv = add_qkv(shapes, options, layer);
    if (mixer != MIXER_NONE)
        weights.output =
            add_product(shapes, options, layer, output, 1, config->width,
                        mixer == MIXER_LATENT ? config->heads * config->latent.value_dim
                        : has_keys            ? q_width
                                              : config_state_width(config));
    if (config_layer_has_experts(config, layer))
        weights.experts = experts_of(shapes, options, layer);
    if (config_layer_is_gated(config, layer)) {
        const uint32_t ungated = config_has_no_gate(config);
        weights.gate_up = add_product(shapes, options, layer, gate_up + ungated, 2 - ungated,
                                      (2 - ungated) * ffn, config->width);
        weights.down = add_product(shapes, options, layer, down, 1, config->width, ffn);
    }
    add_part(shapes, options, layer, &weights);
    return weights;
}

/* A layer of an encoder: norms behind its halves, and biases unless it is rotary. */
static struct layer_weights encoder_layer_of(struct gpu_shapes *shapes,
                                             const struct gpu_shapes_options *options,
                                             uint32_t layer) {
    static const enum tensor_role qkv[] = {ROLE_Q, ROLE_K, ROLE_V},
                                  output[] = {ROLE_OUTPUT_PROJECTION},
                                  gate_up[] = {ROLE_GATE, ROLE_UP}, down[] = {ROLE_DOWN};
    const struct model_config *config = options->config;
    const uint32_t width = config->width, gates = config->architecture->is_rotary_encoder ? 2 : 1;
    float *vector = &shapes->vector, *bias = gates == 1 ? vector : NULL;
    return (struct layer_weights){
        .qkv = add_product(shapes, options, layer, qkv, 3, 3 * width, width),
        .output = add_product(shapes, options, layer, output, 1, width, width),
        .gate_up = add_product(shapes, options, layer, gate_up + 2 - gates, gates,
                               gates * config->ffn, width),
        .down = add_product(shapes, options, layer, down, 1, width, config->ffn),
        .qkv_bias = bias,
        .output_bias = bias,
        .encoder = {.attention_norm = vector,
                    .attention_norm_bias = vector,
                    .up_bias = bias,
                    .down_bias = bias,
                    .ffn_norm = vector,
                    .ffn_norm_bias = vector}};
}

/* What the program of a model for texts has beside its layers. */
static void add_ends_of_texts(struct program_weights *weights, struct gpu_shapes *shapes,
                              const struct model_config *config) {
    const struct architecture *architecture = config->architecture;
    if (architecture->embedding_is_normed || architecture->is_encoder)
        weights->embedding_norm = &shapes->vector;
    if (!architecture->is_encoder) return;
    weights->embedding_norm_bias = weights->positions = &shapes->vector;
    weights->position_rows = architecture->is_rotary_encoder ? 1 : config->context_max;
    if (config->token_types > 1) weights->position_rows *= 2;
}

static void take_room(struct gpu_shapes *shapes, const struct model_config *config) {
    const uint32_t matrices = config->layers * LAYER_MATRICES + OTHER_MATRICES;
    shapes->matrices = mem_new(matrices, sizeof *shapes->matrices);
    shapes->forms = mem_new(matrices, sizeof *shapes->forms);
    shapes->layers = mem_new(config->layers, sizeof *shapes->layers);
    shapes->experts = mem_new(2 * (size_t)config->layers, sizeof *shapes->experts);
    shapes->heads = mem_new(2 * (size_t)config->layers, sizeof *shapes->heads);
}

static struct program_weights weights_of(struct gpu_shapes *shapes,
                                         const struct gpu_shapes_options *options) {
    const struct model_config *config = options->config;
    const bool is_encoder = config->architecture->is_encoder;
    for (uint32_t i = 0; i < config->layers; i++)
        shapes->layers[i] =
            is_encoder ? encoder_layer_of(shapes, options, i) : layer_of(shapes, options, i);
    struct program_weights weights = {.layers = shapes->layers, .output_norm = &shapes->vector};
    weights.embedding = add_embedding(shapes, options);
    if (options->is_for_texts) add_ends_of_texts(&weights, shapes, config);
    weights.head =
        options->is_tied || options->is_for_texts
            ? weights.embedding
            : add_matrix(shapes, config->vocab_rows, config->width,
                         form_of(options->weights, (struct weight_matrix){.is_head = true}));
    add_inputs(shapes, options, &weights);
    return weights;
}

void gpu_shapes_open(struct gpu_shapes *ret_shapes, const struct gpu_shapes_options *options) {
    struct gpu_shapes *shapes = ret_shapes;
    const struct model_config *config = options->config;
    *shapes = (struct gpu_shapes){.count = 0};
    take_room(shapes, config);
    struct program_options program = {
        .config = config, .layout = options->layout, .weights = weights_of(shapes, options)};
    if (options->is_for_texts) {
        program.weights.head = NULL;
        program.is_bidirectional = options->is_bidirectional;
        program.pools = true;
    }
    (config->architecture->is_encoder ? program_of_encoder : program_of)(&shapes->program,
                                                                         &program);
    gpu_program_of(&shapes->gpu_program, &shapes->program, shapes->forms, shapes->count,
                   config->token_count);
}

void gpu_shapes_close(struct gpu_shapes *shapes) {
    gpu_program_release(&shapes->gpu_program);
    program_release(&shapes->program);
    free(shapes->matrices);
    free(shapes->forms);
    free(shapes->layers);
    free(shapes->experts);
    free(shapes->heads);
}

bool gpu_shapes_has_blocks(const struct checkpoint *checkpoint) {
    const enum tensor_type type = checkpoint_main_type(checkpoint);
    return tensor_type_is_known(type) &&
           tensor_type_block_bytes(type) < tensor_type_block_elements(type);
}

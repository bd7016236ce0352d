/* SPDX-License-Identifier: Apache-2.0 */
#include "program/program.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Operations of a layer, and around all layers: EMBED, KEEP, NORM, LOGITS. */
#define OPS_PER_LAYER 24u
#define OPS_AROUND 6u

struct maker {
    const struct program_options *options;
    struct program *program;
    uint16_t layer;
    uint16_t layer_last;  /* the last one that mixes rows */
    enum op_add add;      /* what the next NORM adds */
    const float *post;    /* with which weights */
    const float *x_scale; /* and multiplies x by, or NULL */
    /* The norm of the embedding, which the first NORM of a device is, for it has no other. */
    const float *embedding_norm;
};

static struct op *append(struct maker *maker, enum op_kind kind) {
    struct op *op = &maker->program->ops[maker->program->op_count++];
    *op = (struct op){.kind = kind, .layer = maker->layer};
    return op;
}

/* h = norm(x), after the sum that the last product left open. */
static struct op *append_norm(struct maker *maker, const float *weight, const struct matrix *next) {
    struct op *op = append(maker, OP_NORM);
    op->is_layer_norm = maker->options->config->architecture->has_layer_norm;
    op->weight = weight;
    op->next = next;
    op->add = maker->add;
    op->post = maker->post;
    op->x_scale = maker->x_scale;
    maker->add = ADD_NOTHING;
    maker->post = NULL;
    maker->x_scale = NULL;
    return op;
}

static struct op *append_matmul(struct maker *maker, const struct matrix *matrix, enum op_to to) {
    struct op *op = append(maker, OP_MATMUL);
    op->matrix = matrix;
    op->to = to;
    return op;
}

/* A product with `factor` of its input, 0 for none, that x gets apart from the sum which a NORM has
 * left: where products do not add, ADD does, with the factor. */
static struct op *append_added(struct maker *maker, const struct matrix *matrix, float factor) {
    if (maker->options->matmul_adds) return append_matmul(maker, matrix, TO_X);
    struct op *product = append_matmul(maker, matrix, TO_SHARED);
    append(maker, OP_ADD)->factor = factor;
    return product;
}

/* The operation that ends a half layer. `post` is the norm before its sum, or NULL. */
static struct op *append_half_end(struct maker *maker, enum op_kind kind, const float *post) {
    bool adds = maker->options->matmul_adds && !post;
    maker->post = post;
    maker->add = post ? ADD_NORMED_H : adds ? ADD_NOTHING : ADD_H;
    struct op *op = append(maker, kind);
    op->to = adds ? TO_X : TO_H;
    return op;
}

static struct op *append_attention(struct maker *maker, enum op_kind kind) {
    const struct kv_layout *layout = maker->options->layout;
    struct op *op = append(maker, kind);
    const struct model_config *config = maker->options->config;
    const uint32_t dim = config_head_dim(config, maker->layer);
    const uint32_t kv_heads = config_kv_heads(config, maker->layer);
    const bool is_query_only = config->list[maker->layer].kv_from > 0;
    op->kv_group = layout->group[maker->layer];
    op->kv_place = layout->place[maker->layer];
    op->heads = (struct head_sizes){.kv_heads = kv_heads,
                                    .head_dim = dim,
                                    .q_width = config->heads * dim,
                                    .kv_width = kv_heads * dim};
    op->heads.stride = op->heads.q_width + (is_query_only ? 0 : 2 * op->heads.kv_width);
    if (config->architecture->has_output_gate) op->heads.stride += op->heads.q_width;
    return op;
}

/* Leaves the wanted rows, behind the last operation that needs all. `wide` is the width of its rows
 * there. */
static void append_keep(struct maker *maker, uint32_t wide, uint32_t attended) {
    if (maker->layer != maker->layer_last) return;
    maker->program->ops[maker->program->op_count - 1].ends_slice = false;
    struct op *keep = append(maker, OP_KEEP);
    keep->width = wide;
    keep->attended = attended;
    keep->ends_slice = true;
}

/* h, which is normed already, for another matrix. */
static void append_prepare(struct maker *maker, const struct matrix *next) {
    append(maker, OP_PREPARE)->next = next;
}

/* The product that ends a half layer, and has that factor of its input. */
static struct op *append_product_end(struct maker *maker, const struct matrix *matrix,
                                     const float *post, float factor) {
    if (factor > 0 && !post) return append_added(maker, matrix, factor);
    struct op *product = append_half_end(maker, OP_MATMUL, post);
    product->matrix = matrix;
    return product;
}

static void append_output(struct maker *maker, const struct layer_weights *weights) {
    struct op *output = append_product_end(maker, weights->output, weights->post_attention_norm,
                                           maker->options->config->multipliers.attention);
    output->bias = weights->output_bias;
    output->ends_slice = true;
}

/* From the product of q, k and v on. */
static void append_attended(struct maker *maker, const struct layer_weights *weights) {
    const struct model_config *config = maker->options->config;
    const struct layer *layer = &config->list[maker->layer];
    append_matmul(maker, weights->qkv, TO_WIDE)->bias = weights->qkv_bias;

    struct op *heads = append_attention(maker, OP_HEADS);
    heads->q_norm = weights->q_norm;
    heads->k_norm = weights->k_norm;
    heads->temper = config->temper_beta;
    heads->temper_tokens = config->temper_tokens;
    heads->norms_all = config->architecture->qk_norm_is_wide;
    heads->rope = (uint8_t)layer->rope;
    heads->turns_first = config->architecture->norms_follow_turn;
    heads->norms_v = config->architecture->has_v_norm;
    heads->is_query_only = layer->kv_from > 0;
    heads->ends_slice = true;
    append_keep(maker, heads->heads.stride, 0);

    struct op *attention = append_attention(maker, OP_ATTENTION);
    const bool sees_all = maker->options->is_bidirectional && !config->windows_see_both;
    attention->window = sees_all ? 0 : layer->window;
    attention->scale = config->attention_scale;
    attention->softcap = config->attention_softcap;
    attention->sinks = weights->sinks;
    attention->next = weights->output;
    attention->is_gated = config->architecture->has_output_gate;
    if (maker->options->matmul_adds) attention->factor = config->multipliers.attention;
    append_output(maker, weights);
}

static void append_attention_half(struct maker *maker, const struct layer_weights *weights) {
    struct op *norm = append_norm(maker, weights->attention_norm, weights->qkv);
    norm->bias = weights->attention_norm_bias;
    if (maker->embedding_norm && !norm->weight) {
        norm->weight = maker->embedding_norm;
        norm->replaces = true;
        maker->embedding_norm = NULL;
    }
    append_attended(maker, weights);
}

/* The last layer's slice goes on to the end of the pass. */
static bool ends_slice(const struct maker *maker) {
    return maker->layer < maker->options->config->layers - 1;
}

static struct op *append_latent(struct maker *maker, enum op_kind kind,
                                const struct layer_weights *weights) {
    const struct kv_layout *layout = maker->options->layout;
    struct op *op = append(maker, kind);
    op->latent = &weights->latent;
    op->kv_group = layout->group[maker->layer];
    op->kv_place = layout->place[maker->layer];
    return op;
}

/* Keys and values are products of an entry that all heads share, so q meets the entry itself. */
static void append_latent_half(struct maker *maker, const struct layer_weights *weights) {
    const struct model_config *config = maker->options->config;
    const struct latent *latent = &weights->latent;
    append_norm(maker, weights->attention_norm, latent->in);
    append_matmul(maker, latent->in, TO_WIDE);
    struct op *entry = append_latent(maker, OP_LATENT_ENTRY, weights);
    entry->next = latent->q_b;
    entry->ends_slice = ends_slice(maker);
    if (latent->q_b) append_matmul(maker, latent->q_b, TO_WIDE);
    append_keep(maker, latent->q_b ? latent->q_b->rows : latent->in->rows, 0);
    append_latent(maker, OP_LATENT_Q, weights);
    append_latent(maker, OP_LATENT, weights)->scale = config->attention_scale;
    append_latent(maker, OP_LATENT_OUT, weights)->next = weights->output;
    append_output(maker, weights);
}

static struct op *append_recurrent(struct maker *maker, enum op_kind kind,
                                   const struct recurrent *recurrent, const uint32_t *state_at) {
    struct op *op = append(maker, kind);
    op->recurrent = recurrent;
    op->state_at = state_at[maker->layer];
    return op;
}

/* Up to what the state leaves. */
static void append_state(struct maker *maker, const struct layer_weights *weights) {
    const struct recurrent *recurrent = &weights->recurrent;
    const struct model_config *config = maker->options->config;
    const struct state_layout *states = &maker->program->states;
    const bool is_mamba = config->architecture->recurrent == MIXER_MAMBA;
    append_norm(maker, weights->attention_norm, recurrent->rates);
    append_matmul(maker, recurrent->rates, TO_NARROW);
    append_prepare(maker, recurrent->in);
    append_matmul(maker, recurrent->in, TO_WIDE);
    append_recurrent(maker, OP_CONV, recurrent, states->tail);
    struct op *state =
        append_recurrent(maker, is_mamba ? OP_MAMBA : OP_DELTA, recurrent, states->matrix);
    state->gate_factor = config->multipliers.state_step;
    state->ends_slice = true;
}

static void append_gated_norm(struct maker *maker, const struct layer_weights *weights,
                              const struct matrix *next) {
    const struct model_config *config = maker->options->config;
    struct op *norm =
        append_recurrent(maker, OP_GATED_NORM, &weights->recurrent, maker->program->states.matrix);
    norm->next = next;
    norm->is_gated =
        config->architecture->recurrent == MIXER_MAMBA && !config->recurrent.norm_is_first;
    norm->factor = config->multipliers.state;
    norm->gate_factor = config->multipliers.state_gate;
}

static void append_state_half(struct maker *maker, const struct layer_weights *weights) {
    const struct program_shape *shape = &maker->program->shape;
    append_state(maker, weights);
    append_keep(maker, shape->channels + shape->state_width, shape->state_width);
    append_gated_norm(maker, weights, weights->output);
    append_output(maker, weights);
}

/* Both read one norm and are added to x. The state needs all rows, so it comes before attention,
 * behind whose HEADS only the wanted ones stay. */
static void append_both_mixers(struct maker *maker, const struct layer_weights *weights) {
    const struct matrix *output = weights->recurrent.output;
    append_state(maker, weights);
    append_gated_norm(maker, weights, output);
    (void)append_added(maker, output, 0);
    append_prepare(maker, weights->qkv);
    append_attended(maker, weights);
}

static void append_nothing(struct maker *maker, const struct layer_weights *weights) {
    (void)maker;
    (void)weights;
}

/* The whole mixer is a convolution between two gates. */
static void append_conv_half(struct maker *maker, const struct layer_weights *weights) {
    const struct recurrent *recurrent = &weights->recurrent;
    const uint32_t width = maker->program->shape.state_width;
    append_norm(maker, weights->attention_norm, recurrent->in);
    append_matmul(maker, recurrent->in, TO_WIDE);
    struct op *conv = append_recurrent(maker, OP_CONV, recurrent, maker->program->states.tail);
    conv->is_gated = true;
    conv->ends_slice = true;
    append_keep(maker, 0, width);
    struct op *prepare = append(maker, OP_PREPARE);
    prepare->attended = width;
    prepare->next = weights->output;
    append_output(maker, weights);
}

static enum op_gate gate_of(const struct maker *maker) {
    static const enum op_gate gates[] = {
        [ACTIVATION_SILU] = GATE_SILU,       [ACTIVATION_GELU_TANH] = GATE_GELU_TANH,
        [ACTIVATION_CLAMPED] = GATE_CLAMPED, [ACTIVATION_RELU2] = GATE_RELU2,
        [ACTIVATION_XIELU] = GATE_XIELU,     [ACTIVATION_GELU] = GATE_GELU};
    return gates[maker->options->config->architecture->activation];
}

/* Up to the product of down. Where both halves read one norm, h still has it. */
static void append_gate(struct maker *maker, const struct layer_weights *weights) {
    if (maker->options->config->architecture->halves_are_parallel) {
        assert(maker->options->matmul_adds);
        append_prepare(maker, weights->gate_up);
    } else {
        append_norm(maker, weights->ffn_norm, weights->gate_up)->bias = weights->ffn_norm_bias;
    }
    append_matmul(maker, weights->gate_up, TO_WIDE);
    struct op *gate = append(maker, OP_GATE);
    gate->gate = gate_of(maker);
    gate->width = config_ffn(maker->options->config, maker->layer);
    gate->next = weights->down;
    gate->xielu = weights->xielu;
    if (maker->options->matmul_adds) gate->factor = maker->options->config->multipliers.down;
    gate->gate_factor = maker->options->config->multipliers.gate;
}

static void append_gated_half(struct maker *maker, const struct layer_weights *weights) {
    append_gate(maker, weights);
    struct op *down = append_product_end(maker, weights->down, weights->post_ffn_norm,
                                         maker->options->config->multipliers.down);
    down->ends_slice = ends_slice(maker);
}

/* x += what the shared expert makes of h, which stays; or EXPERTS adds it. */
static void append_shared_expert(struct maker *maker, const struct experts *experts) {
    const bool adds = maker->options->matmul_adds;
    if (experts->shared_scale) append_matmul(maker, experts->shared_scale, TO_NARROW);
    if (experts->shared_scale || !adds) append_prepare(maker, experts->shared_gate_up);
    append_matmul(maker, experts->shared_gate_up, TO_WIDE);
    struct op *gate = append(maker, OP_GATE);
    gate->gate = gate_of(maker);
    gate->width = experts->shared_ffn;
    gate->is_gated = adds && experts->shared_scale;
    gate->next = experts->shared_down;
    append_matmul(maker, experts->shared_down, adds ? TO_X : TO_SHARED);
    append_prepare(maker, experts->router);
}

static void append_experts_half(struct maker *maker, const struct layer_weights *weights) {
    const struct experts *experts = &weights->experts;
    /* Where a product does not add, the norm is for one with exact weights: the router's, too. */
    const bool is_for_shared = experts->shared_ffn > 0 && maker->options->matmul_adds;
    append_norm(maker, weights->ffn_norm,
                experts->shared_scale ? experts->shared_scale
                : is_for_shared       ? experts->shared_gate_up
                                      : experts->router);
    if (experts->shared_ffn > 0) append_shared_expert(maker, experts);
    append_matmul(maker, experts->router, TO_WIDE)->bias = experts->router_bias;
    struct op *route = append(maker, OP_ROUTE);
    route->experts = experts;
    route->next = experts->gate_up[0];
    struct op *sum = append_half_end(maker, OP_EXPERTS, weights->post_ffn_norm);
    sum->experts = experts;
    sum->gate = gate_of(maker);
    sum->ends_slice = ends_slice(maker);
}

static void append_side(struct maker *maker, enum op_kind kind, const float *weight) {
    append(maker, kind)->weight = weight;
}

/* Both read the residual stream, each after a norm of its own; their sum is normed once more. */
static void append_both(struct maker *maker, const struct layer_weights *weights) {
    const struct experts *experts = &weights->experts;
    append_gate(maker, weights);
    append_matmul(maker, weights->down, TO_H);
    append_side(maker, OP_ASIDE, weights->post_dense_norm);
    append_norm(maker, weights->router_norm, experts->router);
    append_matmul(maker, experts->router, TO_WIDE);
    append(maker, OP_ROUTE)->experts = experts;
    append_norm(maker, weights->experts_norm, experts->gate_up[0]);
    struct op *sum = append_half_end(maker, OP_EXPERTS, weights->post_ffn_norm);
    sum->experts = experts;
    sum->gate = gate_of(maker);
    append_side(maker, OP_JOIN, weights->post_experts_norm);
    maker->program->ops[maker->program->op_count - 1].ends_slice = ends_slice(maker);
}

/* The layer's part of the token, times a gate of the residual stream, is one more half. */
static void append_input(struct maker *maker, const struct layer_weights *weights) {
    if (!weights->input_gate) return;
    append_norm(maker, NULL, weights->input_gate);
    append_matmul(maker, weights->input_gate, TO_WIDE);
    struct op *gate = append(maker, OP_GATE);
    gate->gate = gate_of(maker);
    gate->width = maker->options->config->input_width;
    gate->gates_inputs = true;
    gate->next = weights->input_out;
    struct op *out = append_half_end(maker, OP_MATMUL, weights->post_input_norm);
    out->matrix = weights->input_out;
    out->ends_slice = ends_slice(maker);
}

/* All layers' parts of the tokens. */
static void append_inputs(struct maker *maker, struct op *embed) {
    const struct program_weights *weights = &maker->options->weights;
    const uint32_t width = maker->options->config->input_width;
    if (!weights->input_table) return;
    embed->next = weights->input_projection;
    append_matmul(maker, weights->input_projection, TO_INPUTS);
    struct op *inputs = append(maker, OP_INPUTS);
    inputs->matrix = weights->input_table;
    inputs->weight = weights->input_norm;
    inputs->width = width;
    inputs->scale = sqrtf((float)width);
}

/* The halves of a layer by their kinds. */
typedef void (*append_fn)(struct maker *maker, const struct layer_weights *weights);
static const append_fn append_mixer[] = {[MIXER_ATTENTION] = append_attention_half,
                                         [MIXER_DELTA] = append_state_half,
                                         [MIXER_CONV] = append_conv_half,
                                         [MIXER_MAMBA] = append_state_half,
                                         [MIXER_LATENT] = append_latent_half,
                                         [MIXER_BOTH] = append_both_mixers,
                                         [MIXER_NONE] = append_nothing};
static const append_fn append_ffn[] = {[FFN_GATED] = append_gated_half,
                                       [FFN_EXPERTS] = append_experts_half,
                                       [FFN_BOTH] = append_both,
                                       [FFN_NONE] = append_nothing};

static struct program_shape shape_of(const struct program_options *options) {
    const struct model_config *config = options->config;
    const uint32_t is_output_gated = config->architecture->has_output_gate;
    uint32_t q_width = 0, kv_width = 0, qkv_width = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        const uint32_t q = config->heads * config_head_dim(config, i);
        const uint32_t kv = config_kv_heads(config, i) * config_head_dim(config, i);
        const uint32_t all = (1 + is_output_gated) * q + 2 * kv;
        if (q > q_width) q_width = q;
        if (kv > kv_width) kv_width = kv;
        if (all > qkv_width) qkv_width = all;
    }
    if (config_is_latent(config)) {
        const struct latent_sizes *latent = &config->latent;
        const uint32_t q = config->heads * (latent->still_dim + latent->turned_dim);
        const uint32_t in = latent->q_rank > 0 ? latent->q_rank : q;
        q_width = config->heads * latent->rank;
        qkv_width = q > in + kv_width ? q : in + kv_width;
        if (config->heads * latent->value_dim > qkv_width)
            qkv_width = config->heads * latent->value_dim;
    }
    return (struct program_shape){
        .layers = config->layers,
        .width = config->width,
        .ffn = config->ffn,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .q_width = q_width,
        .kv_width = kv_width,
        .qkv_width = qkv_width,
        .recurrent = config->recurrent,
        .latent = config->latent,
        .channels = config_state_channels(config),
        .state_width = config_state_width(config),
        .input_width = config->input_width,
        .rope_width = {config_rope_width(config, 0), config_rope_width(config, 1)},
        .vocab_rows = config->vocab_rows,
        .rope_count = config_has_local_rope(config) ? 2 : 1,
        .rope_magnitude = config->rope_magnitude,
        .eps = config->eps,
        .inner_eps = config->inner_eps,
        .is_causal = !options->is_bidirectional,
    };
}

void program_of(struct program *ret_program, const struct program_options *options) {
    const struct model_config *config = options->config;
    const struct program_weights *weights = &options->weights;
    struct maker maker = {.options = options, .program = ret_program};
    assert(!config->architecture->is_encoder && config->layers > 0);
    const uint32_t most = config->layers * OPS_PER_LAYER + OPS_AROUND;
    *ret_program = (struct program){.shape = shape_of(options),
                                    .states = state_layout_of(config),
                                    .ops = mem_new(most, sizeof *ret_program->ops)};
    for (uint32_t i = 0; i < ret_program->shape.rope_count; i++) {
        float *frequencies = mem_new(ret_program->shape.rope_width[i] / 2, sizeof *frequencies);
        config_rope_frequencies(config, i == 1, frequencies);
        ret_program->frequencies[i] = frequencies;
    }
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->list[i].mixer != MIXER_NONE) maker.layer_last = (uint16_t)i;
    struct op *embed = append(&maker, OP_EMBED);
    embed->matrix = weights->embedding;
    embed->scale = config_embedding_scale(config);
    if (options->pools)
        maker.embedding_norm = weights->embedding_norm;
    else
        embed->weight = weights->embedding_norm;
    append_inputs(&maker, embed);
    for (; maker.layer < config->layers; maker.layer++) {
        const struct layer_weights *layer = &weights->layers[maker.layer];
        append_mixer[config->list[maker.layer].mixer](&maker, layer);
        append_ffn[config->list[maker.layer].ffn](&maker, layer);
        append_input(&maker, layer);
        maker.x_scale = layer->scale;
    }
    append_norm(&maker, weights->output_norm, weights->head)->bias = weights->output_norm_bias;
    if (weights->head) {
        struct op *logits = append(&maker, OP_LOGITS);
        logits->matrix = weights->head;
        logits->softcap = config->softcap;
    }
    if (options->pools) append(&maker, OP_POOL);
    assert(ret_program->op_count <= most);
}

void program_release(struct program *program) {
    free(program->ops);
    for (int i = 0; i < 2; i++) free(program->frequencies[i]);
    *program = (struct program){0};
}

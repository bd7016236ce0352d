/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_world.h"

#include "gpu/grouping.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct world_traits world_small = {"small", 32, 48, 4, 2, 16, 1.0f, .has_head = true};

/* ---- weights ---- */

static void *take(struct world *world, size_t bytes) {
    assert(world->block_count < sizeof world->blocks / sizeof world->blocks[0]);
    return world->blocks[world->block_count++] = calloc(1, bytes);
}

/* middle ± spread, rounded to bf16 where the GPU rounds. */
static float *random_values(struct world *world, size_t count, double middle, double spread,
                            bool is_rounded) {
    float *values = take(world, count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(middle + spread * (2.0 * rng_unit(&world->rng) - 1.0));
        if (is_rounded) values[i] = bf16_to_f32(bf16_from_f32(values[i]));
    }
    return values;
}

#define EMBEDDING_STEP 0.125f /* between the numbers of an embedding in blocks */

/* That of other numbers in blocks. */
static float step_of(uint32_t cols) {
    return half_to_f32(half_from_f32((float)(1.7 / 8 / sqrt((double)cols))));
}

/* -8..7 times a float16 number, which every type of blocks has (blocks_type). */
static void step_values(float *values, size_t count, float step) {
    for (size_t i = 0; i < count; i++) values[i] = step * fminf(7, rintf(values[i] / step));
}

static float *random_matrix(struct world *world, uint32_t rows, uint32_t cols) {
    const size_t count = (size_t)rows * cols;
    float *values =
        random_values(world, count, 0.0, 1.7 / sqrt((double)cols), world->traits.form == GPU_BF16);
    if (world->traits.form == GPU_BLOCKS) step_values(values, count, step_of(cols));
    return values;
}

static bool has_embedding_in_blocks(const struct world *world) {
    return world->traits.form == GPU_BLOCKS && world->traits.has_head;
}

static float *random_embedding(struct world *world) {
    const size_t count = (size_t)world->vocab_rows * world->traits.width;
    float *values = random_values(world, count, 0.0, 1.0, world->traits.form == GPU_BF16);
    if (has_embedding_in_blocks(world)) step_values(values, count, EMBEDDING_STEP);
    return values;
}

bool world_has_all_experts(const struct world_traits *traits) {
    return traits->groups == 0 && traits->used == traits->experts;
}

/* Weights so large that a row's first experts have nearly all of its sum: rounded activations take
 * others where two are as good, and those must not count. Sigmoids of such logits would all be 0 or
 * 1; and where a row has all experts nothing is chosen, so small weights leave no row in doubt. */
static float *random_router(struct world *world) {
    const struct world_traits *t = &world->traits;
    const double spread = t->groups > 0 || world_has_all_experts(t) ? 3.0 : 30.0;
    return random_values(world, (size_t)t->experts * t->width, 0.0, spread / sqrt((double)t->width),
                         world->traits.form != GPU_F32);
}

static void make_shared(struct world *world, struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    if (t->groups > 0) layer->choice_bias = random_values(world, t->experts, 0.0, 1.0, false);
    if (t->shared_ffn == 0) return;
    layer->shared_gate_up = random_matrix(world, 2 * t->shared_ffn, t->width);
    layer->shared_down = random_matrix(world, t->width, t->shared_ffn);
    if (t->shared_is_scaled)
        layer->shared_scale = random_values(world, t->width, 0.0, 3.0 / sqrt((double)t->width),
                                            world->traits.form != GPU_F32);
}

uint32_t world_state_width(const struct world_traits *traits) {
    return traits->k_heads > 0 ? traits->v_heads * traits->state_dim : traits->width;
}

uint32_t world_channels(const struct world_traits *traits) {
    return 2 * traits->k_heads * traits->state_dim + world_state_width(traits);
}

static uint32_t taps_of(const struct world_traits *traits) {
    return traits->k_heads > 0 ? 4 : 3;
}

uint32_t world_qkv_rows(const struct world_traits *traits, const struct world_layer *layer) {
    if (traits->rank > 0)
        return (traits->q_rank > 0 ? traits->q_rank : world_latent_q(traits)) + traits->head_dim;
    const uint32_t q = (traits->has_output_gate ? 2 : 1) * traits->heads;
    return (q + (layer->is_query_only ? 0 : 2 * layer->kv_heads)) * layer->head_dim;
}

uint32_t world_latent_q(const struct world_traits *traits) {
    return traits->heads * (traits->still_dim + traits->rotary);
}

uint32_t world_kv_heads(const struct world_traits *traits) {
    const uint32_t wide = traits->wide_kv_heads;
    return wide > 0 && wide < traits->kv_heads ? wide : traits->kv_heads;
}

uint32_t world_qkv_most(const struct world *world) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < WORLD_LAYERS; i++) {
        const uint32_t rows = world_qkv_rows(&world->traits, &world->layers[i]);
        if (rows > most) most = rows;
    }
    return most;
}

/* The sizes of a layer's heads. */
static void size_heads(struct world *world, uint32_t index) {
    const struct world_traits *t = &world->traits;
    struct world_layer *layer = &world->layers[index];
    const bool is_wide = t->wide_dim > 0 && !layer->is_local;
    layer->head_dim = is_wide ? t->wide_dim : t->head_dim;
    layer->kv_heads = is_wide ? t->wide_kv_heads : t->kv_heads;
    layer->is_query_only = t->shares_keys && index == WORLD_LAYERS - 1;
}

/* What only some layers have. */
static void make_odd(struct world *world, struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    const uint32_t width = t->width;
    if (t->input_width > 0) {
        layer->input_gate = random_matrix(world, t->input_width, width);
        layer->input_out = random_matrix(world, width, t->input_width);
        layer->post_input = random_values(world, width, 1.0, 0.3, false);
    }
    if (!t->has_both || !layer->router) return;
    layer->dense_gate_up = random_matrix(world, 2 * t->ffn, width);
    layer->dense_down = random_matrix(world, width, t->ffn);
    layer->post_dense = random_values(world, width, 1.0, 0.3, false);
    layer->router_norm = random_values(world, width, 1.0, 0.3, false);
    layer->experts_norm = random_values(world, width, 1.0, 0.3, false);
    layer->post_experts = random_values(world, width, 1.0, 0.3, false);
    layer->expert_scale = random_values(world, t->experts, 1.0, 0.3, false);
}

/* Rows of a recurrent layer's first product. */
static uint32_t state_rows(const struct world_traits *t) {
    return world_channels(t) + (t->k_heads > 0 ? 1 : 2) * world_state_width(t);
}

/* Rows of the product of its rates. */
static uint32_t rate_rows(const struct world_traits *t) {
    return (t->is_mamba ? 1 : 2) * t->v_heads;
}

/* Some heads remember for long. */
static void make_state(struct world *world, struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    layer->qkv = random_matrix(world, state_rows(t), t->width);
    layer->output = random_matrix(world, t->width, world_state_width(t));
    layer->conv = random_values(world, (size_t)taps_of(t) * world_channels(t), 0.0, 0.8, false);
    if (t->k_heads == 0) return;
    layer->rates = random_values(world, (size_t)rate_rows(t) * t->width, 0.0,
                                 1.7 / sqrt((double)t->width), t->form != GPU_F32);
    layer->decay = random_values(world, t->v_heads, -2.5, 1.5, false);
    layer->step_bias = random_values(world, t->v_heads, 0.0, 1.0, false);
    layer->state_norm =
        random_values(world, t->is_mamba ? world_state_width(t) : t->state_dim, 1.0, 0.3, false);
    if (!t->is_mamba) return;
    layer->conv_bias = random_values(world, world_channels(t), 0.0, 0.3, false);
    layer->skip = random_values(world, t->v_heads, 1.0, 0.3, false);
}

/* A head's matrix of keys is turned as the loader turns it. */
static void make_latent(struct world *world, struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    const bool is_rounded = t->form != GPU_F32;
    const double spread = 1.7 / sqrt((double)t->rank);
    layer->qkv = random_matrix(world, world_qkv_rows(t, layer), t->width);
    if (t->q_rank > 0) layer->q_b = random_matrix(world, world_latent_q(t), t->q_rank);
    layer->k_b =
        random_values(world, (size_t)t->heads * t->rank * t->still_dim, 0.0, spread, is_rounded);
    layer->v_b =
        random_values(world, (size_t)t->heads * t->value_dim * t->rank, 0.0, spread, is_rounded);
    layer->latent_norm = random_values(world, t->rank, 1.0, 0.3, false);
    if (t->q_rank > 0) layer->latent_q_norm = random_values(world, t->q_rank, 1.0, 0.3, false);
    layer->output = random_matrix(world, t->width, t->heads * t->value_dim);
}

static void make_layer(struct world *world, struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    const uint32_t q_width = t->heads * layer->head_dim, qkv = world_qkv_rows(t, layer);
    layer->attention_norm = random_values(world, t->width, 1.0, 0.3, false);
    layer->ffn_norm = random_values(world, t->width, 1.0, 0.3, false);
    if (layer->is_recurrent) {
        make_state(world, layer);
    } else if (t->rank > 0) {
        make_latent(world, layer);
    } else {
        layer->qkv = random_matrix(world, qkv, t->width);
        layer->output = random_matrix(world, t->width, q_width);
    }
    const bool has_experts = t->experts > 0 && (layer != world->layers || t->away > 0);
    const uint32_t experts = has_experts ? t->experts : 1;
    layer->gate_up = random_matrix(world, experts * 2 * t->ffn, t->width);
    layer->down = random_matrix(world, experts * t->width, t->ffn);
    if (experts > 1) layer->router = random_router(world);
    if (experts > 1) make_shared(world, layer);
    if (experts > 1 && t->is_clamped) {
        layer->router_bias = random_values(world, experts, 0.0, 5.0, false);
        layer->gate_up_bias = random_values(world, experts * 2 * t->ffn, 0.0, 0.5, false);
        layer->down_bias = random_values(world, experts * t->width, 0.0, 0.5, false);
    }
    if (t->has_sinks) {
        layer->sinks = random_values(world, t->heads, 0.0, 3.0, false);
        layer->output_bias = random_values(world, t->width, 0.0, 0.5, false);
    }
    if (t->has_bias) layer->qkv_bias = random_values(world, qkv, 0.0, 0.5, false);
    if (t->has_head_norms) {
        layer->q_norm = random_values(world, layer->head_dim, 1.0, 0.3, false);
        layer->k_norm = random_values(world, layer->head_dim, 1.0, 0.3, false);
    }
    if (t->has_post) {
        layer->post_attention = random_values(world, t->width, 1.0, 0.3, false);
        layer->post_ffn = random_values(world, t->width, 1.0, 0.3, false);
    }
    make_odd(world, layer);
}

static void make_inputs(struct world *world) {
    const struct world_traits *t = &world->traits;
    const uint32_t all = WORLD_LAYERS * t->input_width;
    if (all == 0) return;
    world->input_table =
        random_values(world, (size_t)world->vocab_rows * all, 0.0,
                      1.0 / sqrt((double)t->input_width), world->traits.form != GPU_F32);
    world->input_projection = random_matrix(world, all, t->width);
    world->input_norm = random_values(world, t->input_width, 1.0, 0.3, false);
}

/* Sequences 0..2 have their first tokens and pages in common. All pages of the cache are used, in
 * a random order. */
static void make_sequences(struct world *world) {
    uint32_t pages[2 * WORLD_SEQUENCES * WORLD_BLOCKS], count = world->limits.page_count_max;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)rng_below(&world->rng, i + 1);
        pages[i] = pages[at];
        pages[at] = i;
    }
    for (uint32_t s = 0; s < WORLD_SEQUENCES; s++) {
        struct world_sequence *sequence = &world->sequences[s];
        sequence->shared = s < 3 ? WORLD_SHARED : 0;
        for (uint32_t i = 0; i < WORLD_CONTEXT; i++)
            sequence->tokens[i] = s > 0 && sequence->shared > 0 && i < sequence->shared + WORLD_PART
                                      ? world->sequences[0].tokens[i]
                                      : (int32_t)rng_below(&world->rng, world->vocab);
        for (uint32_t g = 0; g < world->limits.group_count; g++)
            for (uint32_t b = 0; b < WORLD_BLOCKS; b++)
                sequence->pages[g][b] = s > 0 && b < sequence->shared / GPU_PAGE_TOKENS
                                            ? world->sequences[0].pages[g][b]
                                            : pages[--count];
    }
}

/* ---- the program ---- */

static struct gpu_op *append(struct world *world, enum op_kind kind) {
    struct gpu_op *op = &world->ops[world->program.op_count++];
    *op =
        (struct gpu_op){.kind = kind, .layer = world->layer, .matrix = GPU_NONE, .next = GPU_NONE};
    return op;
}

static uint32_t add_matrix(struct world *world, const float *values, uint32_t rows, uint32_t cols) {
    uint32_t index = world->program.matrix_count++;
    world->matrices[index] =
        (struct gpu_matrix){.rows = rows, .cols = cols, .form = world->traits.form};
    world->values[index] = values;
    return index;
}

/* The first norm of a layer: `is_first`, nothing came before it. */
static void append_norm(struct world *world, const float *weight, uint32_t next, const float *post,
                        bool is_first) {
    struct gpu_op *op = append(world, OP_NORM);
    op->weight = weight;
    op->next = next;
    op->post = post;
    op->add = is_first || op[-1].kind == OP_ADD ? ADD_NOTHING : post ? ADD_NORMED_H : ADD_H;
}

static void append_matmul(struct world *world, uint32_t matrix, enum op_to to, const float *bias) {
    struct gpu_op *op = append(world, OP_MATMUL);
    op->matrix = matrix;
    op->to = to;
    op->bias = bias;
}

static void append_gated(struct world *world, const struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    const bool is_beside = layer->dense_down != NULL;
    const uint32_t halves = t->is_ungated ? 1 : 2;
    const uint32_t gate_up = add_matrix(world, is_beside ? layer->dense_gate_up : layer->gate_up,
                                        halves * t->ffn, t->width);
    const uint32_t down =
        add_matrix(world, is_beside ? layer->dense_down : layer->down, t->width, t->ffn);
    append_norm(world, layer->ffn_norm, gate_up, layer->post_attention, false);
    append_matmul(world, gate_up, TO_WIDE, NULL);
    struct gpu_op *gate = append(world, OP_GATE);
    gate->gate = t->is_gelu ? GATE_GELU_TANH : GATE_SILU; /* clamped: of experts alone */
    gate->width = t->ffn;
    gate->next = down;
    append_matmul(world, down, t->is_ungated ? TO_SHARED : TO_H, NULL);
    if (!t->is_ungated) return;
    gate->gate = GATE_RELU2;
    gate->gate_factor = WORLD_GATE_FACTOR;
    append(world, OP_ADD)->factor = WORLD_ADD_FACTOR;
}

static enum op_gate gate_of(const struct world_traits *traits) {
    if (traits->is_clamped) return GATE_CLAMPED;
    return traits->is_gelu ? GATE_GELU_TANH : GATE_SILU;
}

/* A matrix that has bf16 where others have fewer bits. */
static uint32_t add_exact(struct world *world, const float *values, uint32_t rows) {
    const uint32_t index = add_matrix(world, values, rows, world->traits.width);
    if (world->traits.form != GPU_F32) world->matrices[index].form = GPU_BF16;
    return index;
}

/* Behind the norm, which is for the factor or the router. */
static void append_shared(struct world *world, const struct world_layer *layer, uint32_t factor,
                          uint32_t router) {
    const struct world_traits *t = &world->traits;
    const uint32_t gate_up = add_matrix(world, layer->shared_gate_up, 2 * t->shared_ffn, t->width);
    const uint32_t down = add_matrix(world, layer->shared_down, t->width, t->shared_ffn);
    if (factor != GPU_NONE) append_matmul(world, factor, TO_NARROW, NULL);
    append(world, OP_PREPARE)->next = gate_up;
    append_matmul(world, gate_up, TO_WIDE, NULL);
    struct gpu_op *gate = append(world, OP_GATE);
    gate->gate = gate_of(t);
    gate->width = t->shared_ffn;
    gate->next = down;
    append_matmul(world, down, TO_SHARED, NULL);
    append(world, OP_PREPARE)->next = router;
}

/* The feed-forward beside experts, and the norm of the router. */
static void append_beside(struct world *world, const struct world_layer *layer, uint32_t router) {
    append_gated(world, layer);
    append(world, OP_ASIDE)->weight = layer->post_dense;
    append_norm(world, layer->router_norm, router, NULL, true);
}

static void append_experts(struct world *world, const struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    const uint32_t router = add_exact(world, layer->router, t->experts);
    const uint32_t factor =
        layer->shared_scale ? add_exact(world, layer->shared_scale, 1) : GPU_NONE;
    const struct gpu_experts experts = {
        .count = t->experts,
        .used = t->used,
        .ffn = t->ffn,
        .sums_to_one = !t->has_post,
        .gate_up = add_matrix(world, layer->gate_up, t->experts * 2 * t->ffn, t->width),
        .down = add_matrix(world, layer->down, t->experts * t->width, t->ffn),
        .gate_up_bias = layer->gate_up_bias,
        .down_bias = layer->down_bias,
        .gate_limit = WORLD_GATE_LIMIT,
        .gate_alpha = WORLD_GATE_ALPHA,
        .is_sigmoid = t->groups > 0,
        .groups = t->groups > 1 ? t->groups : 0,
        .groups_used = t->groups_used,
        .scale = t->groups > 0 ? WORLD_ROUTE_SCALE : 0,
        .choice_bias = layer->choice_bias,
        .expert_scale = layer->expert_scale,
        .has_shared = layer->shared_down != NULL,
        .shared_is_scaled = layer->shared_scale != NULL};
    if (t->form == GPU_BLOCKS)
        world->matrices[experts.gate_up].grouping = world->matrices[experts.down].grouping =
            GROUPED_ZEROS;
    if (layer->dense_down)
        append_beside(world, layer, router);
    else
        append_norm(world, layer->ffn_norm, factor != GPU_NONE ? factor : router,
                    layer->post_attention, false);
    if (layer->shared_down) append_shared(world, layer, factor, router);
    append_matmul(world, router, TO_WIDE, layer->router_bias);
    struct gpu_op *route = append(world, OP_ROUTE);
    route->next = layer->dense_down ? GPU_NONE : experts.gate_up;
    route->experts = experts;
    if (layer->dense_down) append_norm(world, layer->experts_norm, experts.gate_up, NULL, true);
    struct gpu_op *sum = append(world, OP_EXPERTS);
    sum->gate = gate_of(t);
    sum->experts = experts;
    sum->to = TO_H;
    if (layer->dense_down) append(world, OP_JOIN)->weight = layer->post_experts;
}

static void append_keep(struct world *world, uint32_t index, uint32_t wide, uint32_t attended) {
    if (index != WORLD_LAYERS - 1) return;
    struct gpu_op *keep = append(world, OP_KEEP);
    keep->width = wide;
    keep->attended = attended;
}

static struct gpu_op *append_recurrent(struct world *world, enum op_kind kind,
                                       const struct world_layer *layer) {
    struct gpu_op *op = append(world, kind);
    op->recurrent = (struct gpu_recurrent){.conv = layer->conv,
                                           .decay = layer->decay,
                                           .step_bias = layer->step_bias,
                                           .conv_bias = layer->conv_bias,
                                           .skip = layer->skip,
                                           .norm = layer->state_norm};
    for (const struct world_layer *at = world->layers; at < layer; at++)
        op->recurrent.place += at->is_recurrent;
    return op;
}

/* The first norm of a layer, or the one behind the last. */
static void append_layer_norm(struct world *world, uint32_t index, const float *weight,
                              uint32_t next) {
    const struct world_layer *before = index > 0 ? &world->layers[index - 1] : NULL;
    const float *post = !before ? NULL : before->post_input ? before->post_input : before->post_ffn;
    append_norm(world, weight, next, post, index == 0);
    if (before) world->ops[world->program.op_count - 1].x_scale = world->traits.x_scale;
}

/* The mixer of a layer with a state. */
static void append_state(struct world *world, uint32_t index) {
    const struct world_traits *t = &world->traits;
    const struct world_layer *layer = &world->layers[index];
    const uint32_t width = world_state_width(t), channels = world_channels(t);
    const uint32_t in = add_matrix(world, layer->qkv, state_rows(t), t->width);
    const uint32_t output = add_matrix(world, layer->output, t->width, width);
    const uint32_t rates =
        t->k_heads > 0 ? add_matrix(world, layer->rates, rate_rows(t), t->width) : in;
    append_layer_norm(world, index, layer->attention_norm, rates);
    if (t->k_heads > 0) {
        if (t->form != GPU_F32) world->matrices[rates].form = GPU_BF16;
        append_matmul(world, rates, TO_NARROW, NULL);
        append(world, OP_PREPARE)->next = in;
    }
    append_matmul(world, in, TO_WIDE, NULL);
    append_recurrent(world, OP_CONV, layer)->is_gated = t->k_heads == 0;
    if (t->k_heads > 0) {
        struct gpu_op *state = append_recurrent(world, t->is_mamba ? OP_MAMBA : OP_DELTA, layer);
        if (t->is_mamba) state->gate_factor = WORLD_STEP_FACTOR;
        append_keep(world, index, channels + width, width);
        struct gpu_op *norm = append_recurrent(world, OP_GATED_NORM, layer);
        norm->next = output;
        norm->is_gated = t->is_mamba;
        norm->gate_factor = t->is_mamba ? WORLD_STATE_GATE_FACTOR : 0;
        norm->factor = t->is_mamba ? WORLD_STATE_FACTOR : 0;
    } else {
        append_keep(world, index, 0, width);
        struct gpu_op *prepare = append(world, OP_PREPARE);
        prepare->attended = width;
        prepare->next = output;
    }
    append_matmul(world, output, TO_H, NULL);
}

static void append_attention(struct world *world, uint32_t index) {
    const struct world_traits *t = &world->traits;
    const struct world_layer *layer = &world->layers[index];
    const uint32_t q_width = t->heads * layer->head_dim, rows = world_qkv_rows(t, layer);
    uint32_t qkv = add_matrix(world, layer->qkv, rows, t->width);
    uint32_t output = add_matrix(world, layer->output, t->width, q_width);
    append_layer_norm(world, index, layer->attention_norm, qkv);
    append_matmul(world, qkv, TO_WIDE, layer->qkv_bias);
    struct gpu_op *heads = append(world, OP_HEADS);
    heads->q_norm = layer->q_norm;
    heads->k_norm = layer->k_norm;
    heads->rope = heads->kv_group = layer->is_local;
    heads->kv_place = layer->is_query_only ? 0 : world->limits.group_count == 2 ? index / 2 : index;
    heads->head_dim = layer->head_dim;
    heads->kv_heads = layer->kv_heads;
    heads->norms_v = t->norms_v;
    heads->is_query_only = layer->is_query_only;
    append_keep(world, index, rows, 0);
    struct gpu_op *attention = append(world, OP_ATTENTION);
    attention->kv_group = heads->kv_group;
    attention->kv_place = heads->kv_place;
    attention->head_dim = layer->head_dim;
    attention->kv_heads = layer->kv_heads;
    attention->window = layer->is_local ? t->window : 0;
    attention->scale = 1.0f / sqrtf((float)layer->head_dim);
    attention->softcap = t->softcap;
    attention->sinks = layer->sinks;
    attention->is_gated = t->has_output_gate;
    attention->next = output;
    append_matmul(world, output, TO_H, layer->output_bias);
}

static struct gpu_op *append_latent(struct world *world, enum op_kind kind, uint32_t index,
                                    struct gpu_latent latent) {
    struct gpu_op *op = append(world, kind);
    op->latent = latent;
    op->kv_place = index;
    return op;
}

static void append_entries(struct world *world, uint32_t index) {
    const struct world_traits *t = &world->traits;
    const struct world_layer *layer = &world->layers[index];
    const uint32_t rows = world_qkv_rows(t, layer), q = world_latent_q(t);
    const uint32_t in = add_matrix(world, layer->qkv, rows, t->width);
    const uint32_t q_b =
        t->q_rank > 0 ? add_matrix(world, layer->q_b, q, t->q_rank) : (uint32_t)GPU_NONE;
    const struct gpu_latent latent = {
        .k_b = add_matrix(world, layer->k_b, t->heads * t->rank, t->still_dim),
        .v_b = add_matrix(world, layer->v_b, t->heads * t->value_dim, t->rank),
        .norm = layer->latent_norm,
        .q_norm = layer->latent_q_norm};
    const uint32_t output = add_matrix(world, layer->output, t->width, t->heads * t->value_dim);
    if (t->form != GPU_F32)
        world->matrices[latent.k_b].form = world->matrices[latent.v_b].form = GPU_BF16;
    append_layer_norm(world, index, layer->attention_norm, in);
    append_matmul(world, in, TO_WIDE, NULL);
    append_latent(world, OP_LATENT_ENTRY, index, latent)->next = q_b;
    if (q_b != GPU_NONE) append_matmul(world, q_b, TO_WIDE, NULL);
    append_keep(world, index, q_b != GPU_NONE ? q : rows, 0);
    append_latent(world, OP_LATENT_Q, index, latent);
    append_latent(world, OP_LATENT, index, latent)->scale =
        1.0f / sqrtf((float)(t->still_dim + t->rotary));
    append_latent(world, OP_LATENT_OUT, index, latent)->next = output;
    append_matmul(world, output, TO_H, NULL);
}

/* All layers' parts of the tokens. */
static void append_inputs(struct world *world, struct gpu_op *embed) {
    const struct world_traits *t = &world->traits;
    const uint32_t all = WORLD_LAYERS * t->input_width;
    if (all == 0) return;
    const uint32_t table = add_matrix(world, world->input_table, world->vocab_rows, all);
    const uint32_t projection = add_matrix(world, world->input_projection, all, t->width);
    if (t->form != GPU_F32) world->matrices[table].form = GPU_BF16;
    embed->next = projection;
    append_matmul(world, projection, TO_INPUTS, NULL);
    struct gpu_op *inputs = append(world, OP_INPUTS);
    inputs->matrix = table;
    inputs->weight = world->input_norm;
    inputs->width = t->input_width;
    inputs->scale = sqrtf((float)t->input_width);
    world->program.input_width = t->input_width;
    world->program.input_layers = WORLD_LAYERS;
}

/* The layer's part of the token, times a gate of the residual stream. */
static void append_part(struct world *world, const struct world_layer *layer) {
    const struct world_traits *t = &world->traits;
    if (!layer->input_gate) return;
    const uint32_t in = add_matrix(world, layer->input_gate, t->input_width, t->width);
    const uint32_t out = add_matrix(world, layer->input_out, t->width, t->input_width);
    append_norm(world, NULL, in, layer->post_ffn, false);
    append_matmul(world, in, TO_WIDE, NULL);
    struct gpu_op *gate = append(world, OP_GATE);
    gate->gate = gate_of(t);
    gate->width = t->input_width;
    gate->gates_inputs = true;
    gate->next = out;
    append_matmul(world, out, TO_H, NULL);
}

static void append_layer(struct world *world, uint32_t index) {
    const struct world_layer *layer = &world->layers[index];
    world->layer = index;
    (layer->is_recurrent      ? append_state
     : world->traits.rank > 0 ? append_entries
                              : append_attention)(world, index);
    (layer->router ? append_experts : append_gated)(world, layer);
    append_part(world, layer);
}

static struct gpu_recurrent_sizes sizes_of(const struct world *world) {
    const struct world_traits *t = &world->traits;
    struct gpu_recurrent_sizes sizes = {.layers = 0};
    for (uint32_t i = 0; i < WORLD_LAYERS; i++) sizes.layers += world->layers[i].is_recurrent;
    if (sizes.layers == 0) return sizes;
    sizes.taps = taps_of(t);
    sizes.channels = world_channels(t);
    sizes.width = world_state_width(t);
    sizes.key_heads = t->k_heads;
    sizes.value_heads = t->k_heads > 0 ? t->v_heads : 1;
    sizes.key_dim = t->k_heads > 0 ? t->state_dim : 0;
    sizes.value_dim = t->k_heads > 0 ? t->state_dim : t->width;
    sizes.heads_are_tiled = t->is_tiled;
    sizes.is_mamba = t->is_mamba;
    sizes.step_min = t->is_mamba ? 0.1f : 0;
    sizes.step_max = t->is_mamba ? 2.0f : 0;
    sizes.eps = 1e-6f;
    return sizes;
}

static void make_program(struct world *world) {
    const struct world_traits *t = &world->traits;
    uint32_t embedding = add_matrix(world, world->embedding, world->vocab_rows, t->width);
    uint32_t head =
        t->has_head ? add_matrix(world, world->head, world->vocab_rows, t->width) : embedding;
    struct gpu_op *embed = append(world, OP_EMBED);
    embed->matrix = embedding;
    embed->scale = t->embed_scale;
    append_inputs(world, embed);
    for (uint32_t i = 0; i < WORLD_LAYERS; i++) append_layer(world, i);
    append_layer_norm(world, WORLD_LAYERS, world->output_norm, head);
    struct gpu_op *logits = append(world, OP_LOGITS);
    logits->matrix = head;
    logits->softcap = t->logit_softcap;
    world->program.matrices = world->matrices;
    world->program.ops = world->ops;
    world->program.width = t->width;
    world->program.ffn = t->ffn;
    world->program.heads = t->heads;
    world->program.kv_heads = world_kv_heads(t);
    world->program.head_dim = t->wide_dim > t->head_dim ? t->wide_dim : t->head_dim;
    for (uint32_t i = 0; i < WORLD_LAYERS; i++) {
        const uint32_t kv_width = world->layers[i].kv_heads * world->layers[i].head_dim;
        if (kv_width > world->program.kv_width) world->program.kv_width = kv_width;
    }
    world->program.vocab_rows = world->vocab_rows;
    world->program.vocab = world->vocab;
    world->program.eps = 1e-5f;
    world->program.rope_count = world->limits.group_count;
    world->program.frequencies[0] = world->frequencies[0];
    world->program.frequencies[1] = world->frequencies[1];
    world->program.rope_magnitude = t->magnitude;
    world->program.recurrent = sizes_of(world);
    if (t->rank > 0)
        world->program.latent = (struct gpu_latent_sizes){.rank = t->rank,
                                                          .q_rank = t->q_rank,
                                                          .still_dim = t->still_dim,
                                                          .turned_dim = t->rotary,
                                                          .value_dim = t->value_dim,
                                                          .eps = 1e-6f};
}

void world_make(struct world *ret_world, const struct world_traits *traits, uint64_t seed) {
    struct world *world = ret_world;
    const uint32_t local = traits->rotary > 0 ? traits->rotary : traits->head_dim;
    const uint32_t rotary[2] = {traits->wide_dim > 0 ? traits->wide_dim : local, local};
    const uint32_t groups = traits->window > 0 ? 2 : 1;
    *world = (struct world){.traits = *traits,
                            .rng = {seed},
                            .vocab = 50,
                            .vocab_rows = 56,
                            .table = quern_gpu_table()};
    world->limits =
        (struct gpu_limits){.rows_max = WORLD_ROWS,
                            .logit_rows_max = WORLD_ROWS,
                            .sequences_max = WORLD_SEQUENCES,
                            .context_max = WORLD_CONTEXT,
                            .layer_places = groups == 2 ? (WORLD_LAYERS + 1) / 2 : WORLD_LAYERS,
                            .group_count = groups,
                            .page_count_max = groups * (WORLD_SEQUENCES * WORLD_BLOCKS -
                                                        2 * WORLD_SHARED / GPU_PAGE_TOKENS),
                            .page_count_min = 8,
                            .steps_max = 2,
                            .pages_max = groups * WORLD_SEQUENCES * WORLD_BLOCKS,
                            .items_max = WORLD_ITEMS,
                            .partials_max = WORLD_PARTIALS,
                            .edits_max = 4096,
                            .named_max = 64,
                            .kv_form = traits->kv_form,
                            .state_places = traits->recurrent ? WORLD_STATES : 0,
                            .state_form = traits->state_form,
                            .experts_away = traits->away};
    for (uint32_t t = 0; t < 2; t++) {
        const uint32_t pairs = rotary[t] / 2;
        world->frequencies[t] = take(world, pairs * sizeof(float));
        for (uint32_t i = 0; i < pairs; i++)
            world->frequencies[t][i] = powf(t ? 100.0f : 10000.0f, -(float)i / (float)pairs);
    }
    for (uint32_t i = 0; i < WORLD_LAYERS; i++) {
        world->layers[i].is_local = groups == 2 && i % 2 == !traits->is_local_last;
        world->layers[i].is_recurrent = traits->recurrent >> i & 1;
        size_heads(world, i);
        make_layer(world, &world->layers[i]);
    }
    world->embedding = random_embedding(world);
    if (traits->has_head) world->head = random_matrix(world, world->vocab_rows, traits->width);
    make_inputs(world);
    world->output_norm = random_values(world, traits->width, 1.0, 0.3, false);
    world->program.rotary_dim[0] = rotary[0];
    world->program.rotary_dim[1] = rotary[1];
    make_program(world);
    make_sequences(world);
}

/* ---- the GPU ---- */

static void expect_ok(enum err err, const struct error *error) {
    if (err == OK) return;
    (void)fprintf(stderr, "%s\n", error->text);
    abort();
}

/* Types of the parts of a matrix in blocks: of one kind, of two, and one as the file has it. */
static enum tensor_type blocks_type(uint32_t matrix, int part) {
    static const enum tensor_type types[][2] = {
        {TENSOR_Q4_0, TENSOR_Q4_0}, {TENSOR_Q4_0, TENSOR_Q5_0}, {TENSOR_F32, TENSOR_Q4_0}};
    return types[matrix % 3][part];
}

/* Rows of the first part: whole blocks of lines, if there are as many. */
static uint32_t blocks_first_rows(uint32_t rows) {
    return rows > GROUPED_LINES ? rows / 2 / GROUPED_LINES * GROUPED_LINES : rows / 2;
}

/* An expert's rows have one type. */
static void set_parts(struct gpu_matrix *matrix, uint32_t first, enum tensor_type one,
                      enum tensor_type two) {
    matrix->parts[0] = (struct gpu_block_part){one, first};
    matrix->parts[1] = (struct gpu_block_part){two, matrix->rows - first};
    matrix->part_count = first < matrix->rows ? 2 : 1;
}

void world_card_forms(struct world *world) {
    struct gpu_matrix *embedding = &world->matrices[world->ops[0].matrix];
    if (has_embedding_in_blocks(world))
        embedding->grouping = GROUPED_ZEROS;
    else
        embedding->form = GPU_BF16;
    for (uint32_t i = 0; i < world->program.matrix_count; i++) {
        struct gpu_matrix *matrix = &world->matrices[i];
        if (matrix->form != GPU_BLOCKS) continue;
        if (matrix->grouping != GROUPED_NOT) {
            matrix->block_bytes = grouped_bytes(matrix->grouping, matrix->rows, matrix->cols);
            set_parts(matrix, matrix->rows, TENSOR_Q4_0, TENSOR_Q4_0);
            continue;
        }
        const uint32_t first = blocks_first_rows(matrix->rows);
        set_parts(matrix, first, blocks_type(i, 0), blocks_type(i, 1));
        for (uint32_t k = 0; k < matrix->part_count; k++)
            matrix->block_bytes +=
                grouping_part_bytes(matrix->parts[k].type, matrix->parts[k].rows, matrix->cols);
    }
}

/* Rows of a type of blocks, or of float32. */
static void make_rows(enum tensor_type type, const float *values, size_t count, float step,
                      uint8_t *ret_rows) {
    const uint16_t scale = half_from_f32(step);
    if (type == TENSOR_F32) {
        memcpy(ret_rows, values, count * sizeof *values);
        return;
    }
    const uint32_t bytes = tensor_type_block_bytes(type), begin = bytes - 16;
    for (size_t at = 0; at < count; at += 32, ret_rows += bytes) {
        memset(ret_rows, 0, bytes);
        memcpy(ret_rows, &scale, sizeof scale);
        for (uint32_t i = 0; i < 32; i++) {
            const uint32_t zero = type == TENSOR_Q5_0 ? 16 : 8;
            const uint32_t code = (uint32_t)((int)lrintf(values[at + i] / step) + (int)zero);
            ret_rows[begin + i % 16] |= (uint8_t)((code & 15) << (i / 16 * 4));
            if (type == TENSOR_Q5_0) ret_rows[2 + i / 8] |= (uint8_t)(code >> 4 << (i % 8));
        }
    }
}

/* In two parts. */
static void fill_blocks(struct world *world, uint32_t matrix) {
    const struct gpu_matrix *is = &world->matrices[matrix];
    const uint32_t first = blocks_first_rows(is->rows);
    const bool is_embedding = matrix == world->ops[0].matrix;
    struct error error = {0};
    for (int part = 0; part < 2; part++) {
        struct gpu_rows rows = {.matrix = matrix,
                                .row_first = part ? first : 0,
                                .rows = part ? is->rows - first : first,
                                .type = is->grouping != GROUPED_NOT ? TENSOR_Q4_0
                                                                    : blocks_type(matrix, part)};
        const size_t count = (size_t)rows.rows * is->cols;
        uint8_t *blocks = malloc(count * sizeof(float));
        make_rows(rows.type, world->values[matrix] + (size_t)rows.row_first * is->cols, count,
                  is_embedding ? EMBEDDING_STEP : step_of(is->cols), blocks);
        rows.blocks = blocks;
        expect_ok(world->table->fill(world->gpu, &rows, &error), &error);
        free(blocks);
    }
}

void world_fill(struct world *world, uint32_t matrix) {
    struct error error = {0};
    if (world->matrices[matrix].form == GPU_BLOCKS) {
        fill_blocks(world, matrix);
        return;
    }
    expect_ok(world->table->fill(world->gpu,
                                 &(struct gpu_rows){.matrix = matrix,
                                                    .rows = world->matrices[matrix].rows,
                                                    .type = TENSOR_F32,
                                                    .blocks = world->values[matrix]},
                                 &error),
              &error);
}

void world_open(struct world *ret_world, const struct world_traits *traits, uint64_t seed) {
    struct world *world = ret_world;
    struct error error = {0};
    world_make(world, traits, seed);
    struct gpu_options options = {.memory_bytes = 64u << 20};
    expect_ok(world->table->open(&world->gpu, &options, &error), &error);
    expect_ok(
        world->table->prepare(world->gpu, &world->program, &world->limits, &world->ledger, &error),
        &error);
    for (uint32_t i = 0; i < world->program.matrix_count; i++) world_fill(world, i);
    expect_ok(world->table->warm(world->gpu, &error), &error);
}

void world_close(struct world *world) {
    if (world->gpu) world->table->close(world->gpu);
    for (uint32_t i = 0; i < world->block_count; i++) free(world->blocks[i]);
    *world = (struct world){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_program.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

static uint32_t handle_of(const struct matrix *matrix, uint32_t matrix_count) {
    if (!matrix) return GPU_NONE;
    assert(matrix->handle < matrix_count);
    return matrix->handle;
}

static struct gpu_experts experts_of(const struct experts *experts, uint32_t matrix_count) {
    if (!experts) return (struct gpu_experts){.gate_up = GPU_NONE, .down = GPU_NONE};
    return (struct gpu_experts){.count = experts->count,
                                .used = experts->used,
                                .ffn = experts->ffn,
                                .sums_to_one = experts->sums_to_one,
                                .is_sigmoid = experts->is_sigmoid,
                                .groups_by_best = experts->groups_by_best,
                                .groups = experts->groups,
                                .groups_used = experts->groups_used,
                                .scale = experts->route_scale,
                                .choice_bias = experts->choice_bias,
                                .expert_scale = experts->scales,
                                .gate_up = handle_of(experts->gate_up[0], matrix_count),
                                .down = handle_of(experts->down[0], matrix_count),
                                .gate_up_bias = experts->gate_up_bias,
                                .down_bias = experts->down_bias,
                                .gate_limit = experts->gate_limit,
                                .gate_alpha = experts->gate_alpha,
                                .has_shared = experts->shared_ffn > 0,
                                .shared_is_scaled = experts->shared_scale != NULL};
}

static struct gpu_recurrent recurrent_of(const struct recurrent *from, uint32_t place) {
    if (!from) return (struct gpu_recurrent){.place = GPU_NONE};
    return (struct gpu_recurrent){.place = place,
                                  .conv = from->conv,
                                  .conv_bias = from->conv_bias,
                                  .decay = from->decay,
                                  .step_bias = from->step_bias,
                                  .skip = from->skip,
                                  .norm = from->norm};
}

static struct gpu_latent latent_of(const struct latent *from, uint32_t matrix_count) {
    if (!from) return (struct gpu_latent){.k_b = GPU_NONE, .v_b = GPU_NONE};
    return (struct gpu_latent){.k_b = handle_of(from->k_b[0], matrix_count),
                               .v_b = handle_of(from->v_b[0], matrix_count),
                               .norm = from->norm,
                               .q_norm = from->q_norm};
}

/* The keys that a row of attention sees in all: a window of texts has as many behind the row. */
static uint32_t window_of(const struct op *op, bool is_causal) {
    return is_causal || op->window == 0 ? op->window : 2 * op->window - 1;
}

/* `place` is that of the recurrent layer which the operation is of, if it is of one. */
static struct gpu_op op_of(const struct op *op, uint32_t matrix_count, uint32_t place,
                           bool is_causal) {
    assert(op->to != TO_X); /* a GPU's products never add */
    return (struct gpu_op){.kind = op->kind,
                           .layer = op->layer,
                           .matrix = handle_of(op->matrix, matrix_count),
                           .next = handle_of(op->next, matrix_count),
                           .kv_heads = op->heads.kv_heads,
                           .head_dim = op->heads.head_dim,
                           .add = op->add,
                           .to = op->to,
                           .width = op->width,
                           .attended = op->attended,
                           .is_gated = op->is_gated,
                           .norms_v = op->norms_v,
                           .is_query_only = op->is_query_only,
                           .gates_inputs = op->gates_inputs,
                           .weight = op->weight,
                           .positions = op->positions,
                           .position_rows = op->position_rows,
                           .is_layer_norm = op->is_layer_norm,
                           .replaces = op->replaces,
                           .x_scale = op->x_scale ? *op->x_scale : 0,
                           .post = op->post,
                           .bias = op->bias,
                           .q_norm = op->q_norm,
                           .k_norm = op->k_norm,
                           .sinks = op->sinks,
                           .rope = op->rope,
                           .kv_group = op->kv_group,
                           .kv_place = op->kv_place,
                           .window = window_of(op, is_causal),
                           .gate = op->gate,
                           .experts = experts_of(op->experts, matrix_count),
                           .recurrent = recurrent_of(op->recurrent, place),
                           .latent = latent_of(op->latent, matrix_count),
                           .factor = op->factor,
                           .gate_factor = op->gate_factor,
                           .scale = op->scale,
                           .softcap = op->softcap};
}

static struct gpu_recurrent_sizes sizes_of(const struct program *program, uint32_t layers) {
    const struct program_shape *shape = &program->shape;
    const struct recurrent_sizes *from = &shape->recurrent;
    bool is_mamba = false;
    for (uint32_t i = 0; i < program->op_count; i++) is_mamba |= program->ops[i].kind == OP_MAMBA;
    if (layers == 0) return (struct gpu_recurrent_sizes){.layers = 0};
    return (struct gpu_recurrent_sizes){.layers = layers,
                                        .taps = from->taps,
                                        .channels = shape->channels,
                                        .width = shape->state_width,
                                        .key_heads = from->key_heads,
                                        .value_heads = from->value_heads,
                                        .key_dim = from->key_dim,
                                        .value_dim = from->value_dim,
                                        .is_mamba = is_mamba,
                                        .step_min = from->step_min,
                                        .step_max = from->step_max,
                                        .heads_are_tiled = from->heads_are_tiled,
                                        .eps = shape->inner_eps};
}

static struct gpu_latent_sizes latent_sizes_of(const struct program_shape *shape) {
    const struct latent_sizes *from = &shape->latent;
    if (from->rank == 0) return (struct gpu_latent_sizes){.rank = 0};
    return (struct gpu_latent_sizes){.rank = from->rank,
                                     .q_rank = from->q_rank,
                                     .still_dim = from->still_dim,
                                     .turned_dim = from->turned_dim,
                                     .value_dim = from->value_dim,
                                     .eps = shape->inner_eps};
}

/* The fewest KV heads of a layer. */
static uint32_t fewest_kv_heads(const struct program *program) {
    uint32_t fewest = program->shape.kv_heads;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const uint32_t own = program->ops[i].heads.kv_heads;
        if (program->ops[i].kind == OP_ATTENTION && own > 0 && own < fewest) fewest = own;
    }
    return fewest;
}

/* The largest head of a layer. */
static uint32_t largest_head(const struct program *program) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < program->op_count; i++)
        if (program->ops[i].heads.head_dim > largest) largest = program->ops[i].heads.head_dim;
    return largest > 0 ? largest : program->shape.head_dim;
}

void gpu_program_of(struct gpu_program *ret_program, const struct program *program,
                    const struct gpu_matrix *matrices, uint32_t matrix_count, uint32_t vocab) {
    const struct program_shape *shape = &program->shape;
    struct gpu_op *ops = mem_new(program->op_count, sizeof *ops);
    const bool pools = program->ops[program->op_count - 1].kind == OP_POOL;
    assert((shape->is_causal || pools) && vocab <= shape->vocab_rows);
    uint32_t layers = 0; /* recurrent ones, each with one CONV, which is its first operation */
    for (uint32_t i = 0; i < program->op_count; i++) {
        layers += program->ops[i].kind == OP_CONV;
        ops[i] = op_of(&program->ops[i], matrix_count, layers - 1, shape->is_causal);
    }
    *ret_program =
        (struct gpu_program){.matrices = matrices,
                             .matrix_count = matrix_count,
                             .ops = ops,
                             .op_count = program->op_count,
                             .width = shape->width,
                             .ffn = shape->ffn,
                             .heads = shape->heads,
                             .kv_heads = fewest_kv_heads(program),
                             .head_dim = largest_head(program),
                             .kv_width = shape->kv_width,
                             .input_width = shape->input_width,
                             .input_layers = shape->input_width > 0 ? shape->layers : 0,
                             .pools = pools,
                             .vocab_rows = pools ? shape->width : shape->vocab_rows,
                             .vocab = vocab,
                             .eps = shape->eps,
                             .rope_count = shape->rope_count,
                             .rotary_dim = {shape->rope_width[0], shape->rope_width[1]},
                             .frequencies = {program->frequencies[0], program->frequencies[1]},
                             .rope_magnitude = shape->rope_magnitude,
                             .recurrent = sizes_of(program, layers),
                             .latent = latent_sizes_of(shape)};
}

void gpu_program_release(struct gpu_program *program) {
    free((void *)(uintptr_t)program->ops);
    *program = (struct gpu_program){0};
}

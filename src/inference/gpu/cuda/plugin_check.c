/* SPDX-License-Identifier: Apache-2.0 */

/* What the kernels can compute: `prepare` refuses all else. */

#include "gpu/cuda/plugin_internal.h"

#define LAYER_NORM_MOST 8192u /* numbers of a row (texts.h) */
#define INPUT_ALIGN 16u       /* inputs of a product: 16 bytes of 8-bit codes */
#define DELTA_TAPS 4u
#define CONV_TAPS 3u
#define EXPERT_ALIGN 16u /* half of the outputs of a unit (experts.h) */

/* A row's experts and the sizes of their products, as experts.h has them. */
static enum err check_experts(const struct gpu_program *program, const struct gpu_op *op,
                              struct error *error) {
    const struct gpu_experts *experts = &op->experts;
    if (experts->count == 0 || experts->count > CUDA_EXPERTS_MAX || experts->used == 0 ||
        experts->used > CUDA_EXPERTS_PER_ROW_MAX || experts->used > experts->count)
        return err_set(error, ERR_INVALID,
                       "no CUDA kernel chooses %u of %u experts: at most %u of %u", experts->used,
                       experts->count, CUDA_EXPERTS_PER_ROW_MAX, CUDA_EXPERTS_MAX);
    const struct gpu_matrix *gate_up = &program->matrices[experts->gate_up];
    const struct gpu_matrix *down = &program->matrices[experts->down];
    if ((gate_up->form == GPU_BLOCKS && gate_up->grouping == GROUPED_NOT) ||
        (down->form == GPU_BLOCKS && down->grouping == GROUPED_NOT))
        return err_set(error, ERR_INVALID,
                       "experts are kept in bf16, e4m3, int8 or codes of four bits only");
    if (!experts->is_sigmoid &&
        (experts->choice_bias || (experts->groups > 0 && !experts->groups_by_best)))
        return err_set(error, ERR_INVALID, "no CUDA kernel chooses by a softmax and %s",
                       experts->choice_bias ? "a bias" : "the two best of a group");
    if (experts->ffn % EXPERT_ALIGN != 0 || program->width % (2 * EXPERT_ALIGN) != 0)
        return err_set(error, ERR_INVALID, "no CUDA kernel has experts of %u x %u numbers",
                       experts->ffn, program->width);
    return OK;
}

/* Products whose rows are made more, up to a multiple. */
static bool is_padded(const struct gpu_program *program, uint32_t index) {
    return program->ops[index].to == TO_NARROW ||
           (index + 1 < program->op_count && program->ops[index + 1].kind == OP_ROUTE);
}

/* The sizes of layers with a state, as recurrent.h has them. */
static enum err check_recurrent(const struct gpu_program *program, const struct gpu_op *op,
                                struct error *error) {
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    const bool is_alone = op->kind == OP_CONV && op->is_gated;
    if (sizes->taps != (sizes->key_heads > 0 ? DELTA_TAPS : CONV_TAPS))
        return err_set(error, ERR_INVALID, "no CUDA kernel convolves %u inputs so", sizes->taps);
    if (sizes->channels % INPUT_ALIGN != 0 || sizes->width % INPUT_ALIGN != 0 ||
        (op->recurrent.conv_bias && !sizes->is_mamba) || is_alone != (sizes->key_heads == 0))
        return err_set(error, ERR_INVALID, "no CUDA kernel convolves %u channels%s",
                       sizes->channels, op->recurrent.conv_bias ? " with a bias" : "");
    if (op->kind == OP_MAMBA)
        return cuda_mamba_supports(sizes->value_heads, sizes->key_heads, sizes->value_dim,
                                   sizes->key_dim, error);
    if (op->kind != OP_DELTA) return OK;
    return cuda_delta_supports(sizes->key_heads, sizes->value_heads, sizes->key_dim,
                               sizes->value_dim, error);
}

/* The heads of a layer. */
static enum err check_heads(const struct gpu_program *program, const struct gpu_op *op,
                            enum gpu_form kv_form, struct error *error) {
    const uint32_t head_dim = gpu_head_dim(program, op), kv_heads = gpu_kv_heads(program, op);
    const uint32_t rotary = program->rotary_dim[op->rope];
    const bool is_wide = head_dim == CUDA_HEAD_WIDE;
    if (is_wide && kv_form != GPU_BF16)
        return err_set(error, ERR_INVALID, "keys of heads of %u are kept in bf16 only", head_dim);
    if (!cuda_has_head_size(head_dim) && !is_wide)
        return err_set(error, ERR_INVALID,
                       "no CUDA kernel has head size %u: sizes are multiples of 16 to 128, 256 and "
                       "%u",
                       head_dim, CUDA_HEAD_WIDE);
    if (kv_heads == 0 || program->heads % kv_heads != 0 ||
        program->heads / kv_heads > CUDA_GROUP_MAX || program->heads == 0)
        return err_set(error, ERR_INVALID, "no CUDA kernel has %u heads over %u KV heads",
                       program->heads, kv_heads);
    if (op->kind == OP_HEADS && ((rotary == 0 && !program->pools) || rotary % 2 != 0 ||
                                 rotary > head_dim || (is_wide && rotary < head_dim)))
        return err_set(error, ERR_INVALID, "%u elements of a head of %u turn", rotary, head_dim);
    if (gpu_kv_width(program) % head_dim != 0 || gpu_page_heads(program, op) < kv_heads)
        return err_set(error, ERR_INVALID, "a page of %u numbers has no room for %u heads of %u",
                       gpu_kv_width(program), kv_heads, head_dim);
    return OK;
}

/* A layer with entries for all heads. */
static enum err check_latent(const struct gpu_program *program, const struct gpu_op *op,
                             enum gpu_form kv_form, struct error *error) {
    const struct gpu_latent_sizes *sizes = &program->latent;
    const uint32_t heads = program->heads, dim = sizes->rank + sizes->turned_dim;
    if (kv_form != GPU_BF16)
        return err_set(error, ERR_INVALID, "entries of latent attention are kept in bf16 only");
    if (!cuda_has_latent(sizes->rank, sizes->turned_dim, heads))
        return err_set(
            error, ERR_INVALID,
            "no CUDA kernel has entries of %u + %u numbers for %u heads: at most %u + %u "
            "for %u, in multiples of 16",
            sizes->rank, sizes->turned_dim, heads, CUDA_LATENT_RANK, CUDA_LATENT_TURNED,
            CUDA_LATENT_HEADS);
    if (program->kv_heads != 1 || program->head_dim != dim || gpu_kv_width(program) != dim ||
        program->rotary_dim[0] != sizes->turned_dim || program->pools ||
        op->kv_group >= GPU_GROUPS_MAX)
        return err_set(error, ERR_INVALID, "a program with entries of %u has keys of %u", dim,
                       gpu_kv_width(program));
    /* What LATENT_ENTRY and LATENT_Q leave for products lies where attention leaves its rows. */
    if (sizes->still_dim > dim || sizes->q_rank > heads * dim || sizes->value_dim % 8 != 0 ||
        program->matrices[op->latent.k_b].form != GPU_BF16 ||
        program->matrices[op->latent.v_b].form != GPU_BF16)
        return err_set(error, ERR_INVALID, "no CUDA kernel has latent heads of %u, %u and %u",
                       sizes->still_dim, sizes->turned_dim, sizes->value_dim);
    return OK;
}

/* Parts of tokens. */
static enum err check_inputs(const struct gpu_program *program, const struct gpu_op *op,
                             struct error *error) {
    const uint32_t width = program->input_width;
    if ((op->kind == OP_INPUTS && program->matrices[op->matrix].form != GPU_BF16) ||
        width % INPUT_ALIGN != 0 || width > CUDA_GATE_WITH_MAX || op->width != width ||
        (op->kind == OP_GATE &&
         (op->layer >= program->input_layers || op->gate == GATE_RELU2 || op->gate_factor != 0)))
        return err_set(error, ERR_INVALID, "no CUDA kernel has parts of tokens of %u numbers",
                       width);
    return OK;
}

/* Whether POOL reads what an operation leaves. */
static bool is_pooled(const struct gpu_program *program, uint32_t index) {
    return program->ops[index].kind == OP_NORM && index + 1 < program->op_count &&
           program->ops[index + 1].kind == OP_POOL;
}

static enum err check_matrices(const struct gpu_program *program, struct error *error) {
    for (uint32_t i = 0; i < program->matrix_count; i++) {
        const struct gpu_matrix *matrix = &program->matrices[i];
        if (matrix->form == GPU_F32 || matrix->rows == 0 || matrix->cols == 0 ||
            matrix->cols % INPUT_ALIGN != 0)
            return err_set(error, ERR_INVALID,
                           "a matrix of %u x %u has no product: columns come in multiples of %u",
                           matrix->rows, matrix->cols, INPUT_ALIGN);
    }
    return OK;
}

static enum err check_product(const struct gpu_program *program, uint32_t index,
                              struct error *error) {
    const struct gpu_op *op = &program->ops[index];
    const struct gpu_matrix *matrix = &program->matrices[op->matrix];
    if (op->to == TO_X || (matrix->rows % PRODUCT_ALIGN != 0 && !is_padded(program, index)))
        return err_set(error, ERR_INVALID, "a product of %u columns is no multiple of %u",
                       matrix->rows, PRODUCT_ALIGN);
    if (op->to == TO_NARROW && matrix->form != GPU_BF16)
        return err_set(error, ERR_INVALID, "operation %u: rates are kept in bf16 only", index);
    return OK;
}

static enum err check_route(const struct gpu_program *program, uint32_t index,
                            struct error *error) {
    const struct gpu_op *before = &program->ops[index > 0 ? index - 1 : 0];
    if (before->kind != OP_MATMUL || program->matrices[before->matrix].form != GPU_BF16)
        return err_set(error, ERR_INVALID, "operation %u: a router is kept in bf16 only", index);
    return check_experts(program, &program->ops[index], error);
}

/* An operation whose result somebody reads. */
static bool is_for_product(const struct gpu_op *op) {
    return op->kind == OP_NORM || op->kind == OP_ATTENTION || op->kind == OP_GATE ||
           op->kind == OP_PREPARE || op->kind == OP_GATED_NORM || op->kind == OP_LATENT_OUT;
}

static enum err check_norm(const struct gpu_program *program, uint32_t index, struct error *error) {
    const struct gpu_op *op = &program->ops[index];
    if (op->x_scale != 0 && op->add != ADD_NORMED_H)
        return err_set(error, ERR_INVALID, "operation %u: a factor without a norm before it",
                       index);
    if (op->is_layer_norm &&
        (op->add == ADD_NORMED_H || !op->weight || program->width > LAYER_NORM_MOST))
        return err_set(error, ERR_INVALID, "operation %u: no CUDA kernel has this LayerNorm",
                       index);
    return OK;
}

static enum err check_op(const struct gpu_program *program, uint32_t index,
                         const struct gpu_limits *limits, struct error *error) {
    const struct gpu_op *op = &program->ops[index];
    if (is_for_product(op) && op->next == GPU_NONE && !is_pooled(program, index))
        return err_set(error, ERR_INVALID, "operation %u: nobody reads its result", index);
    switch (op->kind) {
    case OP_EMBED:
        return program->matrices[op->matrix].form == GPU_BF16 ||
                       program->matrices[op->matrix].grouping != GROUPED_NOT
                   ? OK
                   : err_set(error, ERR_INVALID,
                             "an embedding is kept in bf16 or as codes in groups only");
    case OP_NORM: return check_norm(program, index, error);
    case OP_MATMUL: return check_product(program, index, error);
    case OP_HEADS:
    case OP_ATTENTION:
        return op->kv_group < GPU_GROUPS_MAX
                   ? check_heads(program, op, limits->kv_form, error)
                   : err_set(error, ERR_INVALID, "operation %u: group %u", index, op->kv_group);
    case OP_GATE:
        if (op->gate == GATE_CLAMPED || op->gate == GATE_XIELU)
            return err_set(error, ERR_INVALID, "operation %u: no CUDA kernel has the gate %d",
                           index, (int)op->gate);
        return op->gates_inputs ? check_inputs(program, op, error) : OK;
    case OP_INPUTS: return check_inputs(program, op, error);
    case OP_ROUTE: return check_route(program, index, error);
    case OP_EXPERTS: return check_experts(program, op, error);
    case OP_CONV:
    case OP_DELTA:
    case OP_MAMBA: return check_recurrent(program, op, error);
    case OP_ADD:
    case OP_ASIDE:
    case OP_JOIN:
    case OP_KEEP:
    case OP_POOL:
    case OP_LOGITS:
    case OP_PREPARE:
    case OP_GATED_NORM: return OK;
    case OP_LATENT_ENTRY:
    case OP_LATENT_Q:
    case OP_LATENT:
    case OP_LATENT_OUT: return check_latent(program, op, limits->kv_form, error);
    }
    return err_set(error, ERR_INVALID, "operation %u: no CUDA kernel computes it", index);
}

static enum err check_limits(const struct gpu_limits *limits, struct error *error) {
    if (limits->rows_max == 0 || limits->rows_max > ROW_BUCKET_MAX ||
        limits->logit_rows_max > limits->rows_max || limits->steps_max == 0 ||
        limits->steps_max > GPU_STEPS_MAX || limits->group_count > GPU_GROUPS_MAX)
        return err_set(error, ERR_INVALID, "a step of %u rows, %u with logits, in %u groups",
                       limits->rows_max, limits->logit_rows_max, limits->group_count);
    if (limits->state_places > 0 && limits->state_form != GPU_F32 && limits->state_form != GPU_BF16)
        return err_set(error, ERR_INVALID, "states are kept in float32 or bf16 only");
    if (limits->kv_form != GPU_BF16 && limits->kv_form != GPU_E4M3)
        return err_set(error, ERR_INVALID, "a KV cache is kept in bf16 or e4m3 only");
    return OK;
}

enum err program_check(const struct gpu_program *program, const struct gpu_limits *limits,
                       struct error *error) {
    if (program->width % INPUT_ALIGN != 0 || program->ffn % INPUT_ALIGN != 0)
        return err_set(error, ERR_INVALID, "rows of %u or %u numbers are no multiples of %u",
                       program->width, program->ffn, INPUT_ALIGN);
    if (program->vocab > CUDA_VOCAB_MAX && !program->pools)
        return err_set(error, ERR_INVALID, "no CUDA kernel draws from %u tokens: at most %u",
                       program->vocab, CUDA_VOCAB_MAX);
    enum err err = check_limits(limits, error);
    if (err == OK) err = check_matrices(program, error);
    for (uint32_t i = 0; i < program->op_count && err == OK; i++)
        err = check_op(program, i, limits, error);
    return err;
}

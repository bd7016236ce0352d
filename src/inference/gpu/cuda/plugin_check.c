/* SPDX-License-Identifier: Apache-2.0 */

/* What the kernels can compute: `prepare` refuses all else. */

#include "gpu/cuda/plugin_internal.h"

#define INPUT_ALIGN 16u /* inputs of a product: 16 bytes of 8-bit codes */
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
        op->recurrent.conv_bias || is_alone != (sizes->key_heads == 0))
        return err_set(error, ERR_INVALID, "no CUDA kernel convolves %u channels%s",
                       sizes->channels, op->recurrent.conv_bias ? " with a bias" : "");
    if (op->kind != OP_DELTA) return OK;
    return cuda_delta_supports(sizes->key_heads, sizes->value_heads, sizes->key_dim,
                               sizes->value_dim, error);
}

/* Whether an operation is of a layer that no kernel here is made for: heads of another size than
 * other layers', keys of another layer, parts of a token of its own, experts beside a
 * feed-forward. */
static bool is_odd(const struct gpu_program *program, const struct gpu_op *op) {
    const bool has_heads = op->kind == OP_HEADS || op->kind == OP_ATTENTION;
    return (has_heads && (gpu_head_dim(program, op) != program->head_dim ||
                          gpu_kv_heads(program, op) != program->kv_heads)) ||
           op->norms_v || op->is_query_only || op->gates_inputs || op->x_scale != 0 ||
           op->experts.expert_scale || (op->kind == OP_NORM && !op->weight) ||
           op->kind == OP_INPUTS || op->kind == OP_ASIDE || op->kind == OP_JOIN;
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
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (is_odd(program, op))
            return err_set(error, ERR_INVALID,
                           "operation %u: no CUDA kernel computes layers that differ so", i);
        bool reads = op->kind == OP_EMBED || op->kind == OP_MATMUL || op->kind == OP_LOGITS;
        enum gpu_form form = reads ? program->matrices[op->matrix].form : GPU_BF16;
        if (op->kind == OP_EMBED && form != GPU_BF16)
            return err_set(error, ERR_INVALID, "an embedding is kept in bf16 only");
        if (op->kind == OP_MATMUL &&
            (op->to == TO_X || op->to == TO_INPUTS ||
             (program->matrices[op->matrix].rows % PRODUCT_ALIGN != 0 && !is_padded(program, i))))
            return err_set(error, ERR_INVALID, "a product of %u columns is no multiple of %u",
                           program->matrices[op->matrix].rows, PRODUCT_ALIGN);
        if (op->kind == OP_MATMUL && op->to == TO_NARROW && form != GPU_BF16)
            return err_set(error, ERR_INVALID, "operation %u: rates are kept in bf16 only", i);
        if ((op->kind == OP_NORM || op->kind == OP_ATTENTION || op->kind == OP_GATE ||
             op->kind == OP_ROUTE || op->kind == OP_PREPARE || op->kind == OP_GATED_NORM) &&
            op->next == GPU_NONE)
            return err_set(error, ERR_INVALID, "operation %u: nobody reads its result", i);
        if ((op->kind == OP_HEADS || op->kind == OP_ATTENTION) && op->kv_group >= GPU_GROUPS_MAX)
            return err_set(error, ERR_INVALID, "operation %u: group %u", i, op->kv_group);
        if (op->kind == OP_GATE && op->gate == GATE_CLAMPED)
            return err_set(error, ERR_INVALID, "operation %u: a clamped gate is of experts alone",
                           i);
        if (op->kind == OP_ROUTE &&
            (i == 0 || program->ops[i - 1].kind != OP_MATMUL ||
             program->matrices[program->ops[i - 1].matrix].form != GPU_BF16))
            return err_set(error, ERR_INVALID, "operation %u: a router is kept in bf16 only", i);
        enum err err =
            op->kind == OP_ROUTE || op->kind == OP_EXPERTS ? check_experts(program, op, error) : OK;
        if (err == OK && (op->kind == OP_CONV || op->kind == OP_DELTA))
            err = check_recurrent(program, op, error);
        if (err != OK) return err;
    }
    return OK;
}

enum err program_check(const struct gpu_program *program, const struct gpu_limits *limits,
                       struct error *error) {
    if (!cuda_has_head_size(program->head_dim))
        return err_set(error, ERR_INVALID,
                       "no CUDA kernel has head size %u: sizes are multiples of 16 to 128, and 256",
                       program->head_dim);
    if (program->kv_heads == 0 || program->heads % program->kv_heads != 0 ||
        program->heads / program->kv_heads > CUDA_GROUP_MAX || program->heads == 0)
        return err_set(error, ERR_INVALID, "no CUDA kernel has %u heads over %u KV heads",
                       program->heads, program->kv_heads);
    for (uint32_t i = 0; i < program->rope_count; i++)
        if (program->rotary_dim[i] == 0 || program->rotary_dim[i] % 2 != 0 ||
            program->rotary_dim[i] > program->head_dim)
            return err_set(error, ERR_INVALID, "%u elements of a head of %u turn",
                           program->rotary_dim[i], program->head_dim);
    if (program->width % INPUT_ALIGN != 0 || program->ffn % INPUT_ALIGN != 0)
        return err_set(error, ERR_INVALID, "rows of %u or %u numbers are no multiples of %u",
                       program->width, program->ffn, INPUT_ALIGN);
    if (program->vocab > CUDA_VOCAB_MAX)
        return err_set(error, ERR_INVALID, "no CUDA kernel draws from %u tokens: at most %u",
                       program->vocab, CUDA_VOCAB_MAX);
    if (limits->rows_max == 0 || limits->rows_max > ROW_BUCKET_MAX ||
        limits->logit_rows_max > limits->rows_max || limits->steps_max == 0 ||
        limits->steps_max > GPU_STEPS_MAX || limits->group_count > GPU_GROUPS_MAX)
        return err_set(error, ERR_INVALID, "a step of %u rows, %u with logits, in %u groups",
                       limits->rows_max, limits->logit_rows_max, limits->group_count);
    if (limits->state_places > 0 && limits->state_form != GPU_F32 && limits->state_form != GPU_BF16)
        return err_set(error, ERR_INVALID, "states are kept in float32 or bf16 only");
    if (limits->kv_form != GPU_BF16 && limits->kv_form != GPU_E4M3)
        return err_set(error, ERR_INVALID, "a KV cache is kept in bf16 or e4m3 only");
    return check_matrices(program, error);
}

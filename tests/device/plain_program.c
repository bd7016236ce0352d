/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_internal.h"

static enum err check_shape(const struct device_program *program, enum device_form kv_form,
                            struct error *error) {
    uint32_t dim = program->head_dim, group = program->heads / program->kv_heads;
    MUST(program->heads % program->kv_heads == 0, "%u heads over %u KV heads", program->heads,
         program->kv_heads);
    if (dim == 0 || dim % 2 != 0 || dim > PLAIN_HEAD_DIM_MAX)
        return err_set(error, ERR_INVALID, "plain device: no kernel for heads of %u", dim);
    if (group > PLAIN_TILE_HEADS)
        return err_set(error, ERR_INVALID, "plain device: no kernel for %u heads per KV head",
                       group);
    if (kv_form == DEVICE_INT8)
        return err_set(error, ERR_INVALID, "plain device: no int8 keys and values");
    for (uint32_t i = 0; i < program->matrix_count; i++)
        if (program->matrices[i].form != DEVICE_F32 && program->matrices[i].form != DEVICE_BF16)
            return err_set(error, ERR_INVALID, "plain device: matrix %u is not float32 or bf16", i);
    return OK;
}

/* ---- the copy ---- */

static const float *copy_vector(struct device *device, const float *from, uint32_t count) {
    const float *copy = plain_copy(&device->heap, from, count, sizeof *from);
    device->ledger.weights += copy ? count * sizeof *from : 0;
    return copy;
}

static void copy_vectors(struct device *device, struct device_op *op) {
    const struct device_program *program = &device->program;
    op->weight = copy_vector(device, op->weight, program->width);
    op->post = copy_vector(device, op->post, program->width);
    op->q_norm = copy_vector(device, op->q_norm, program->head_dim);
    op->k_norm = copy_vector(device, op->k_norm, program->head_dim);
    MUST(!op->bias || op->matrix < program->matrix_count, "a bias without a matrix");
    if (op->bias) op->bias = copy_vector(device, op->bias, program->matrices[op->matrix].rows);
}

static void copy_program(struct device *device, const struct device_program *from) {
    struct device_program *program = &device->program;
    *program = *from;
    program->matrices =
        plain_copy(&device->heap, from->matrices, from->matrix_count, sizeof *from->matrices);
    struct device_op *ops = plain_copy(&device->heap, from->ops, from->op_count, sizeof *ops);
    for (uint32_t i = 0; i < from->op_count; i++) copy_vectors(device, &ops[i]);
    program->ops = ops;
    for (uint32_t i = 0; i < 2; i++)
        program->frequencies[i] =
            i < from->rope_count ? copy_vector(device, from->frequencies[i], from->head_dim / 2)
                                 : NULL;
    device->q_width = from->heads * from->head_dim;
    device->kv_width = from->kv_heads * from->head_dim;
    device->qkv_width = device->q_width + 2 * device->kv_width;
    device->wide_width = device->qkv_width > 2 * from->ffn ? device->qkv_width : 2 * from->ffn;
}

/* ---- the check ---- */

/* Columns of the input that an operation prepares. */
static uint32_t prepared_width(const struct device *device, enum op_kind kind) {
    return kind == OP_NORM        ? device->program.width
           : kind == OP_ATTENTION ? device->q_width
                                  : device->program.ffn;
}

static uint32_t maker_of(const struct device *device, uint32_t index) {
    const struct device_op *ops = device->program.ops;
    for (uint32_t i = index; i-- > 0;) {
        bool can_prepare =
            ops[i].kind == OP_NORM || ops[i].kind == OP_ATTENTION || ops[i].kind == OP_GATE;
        if (can_prepare && ops[i].next == ops[index].matrix) return i;
    }
    plain_refuse("operation %u: nothing is prepared for matrix %u", index, ops[index].matrix);
}

static void check_product(const struct device *device, uint32_t index) {
    const struct device_program *program = &device->program;
    const struct device_op *op = &program->ops[index];
    const struct device_matrix *matrix = &program->matrices[op->matrix];
    uint32_t cols = prepared_width(device, program->ops[device->makers[index]].kind);
    MUST(matrix->cols == cols, "operation %u: matrix of %u columns reads %u numbers", index,
         matrix->cols, cols);
    if (op->kind == OP_LOGITS)
        MUST(matrix->rows == program->vocab_rows, "the head has %u rows, not %u", matrix->rows,
             program->vocab_rows);
    else if (op->to == TO_H)
        MUST(matrix->rows == program->width, "operation %u: %u rows go to h", index, matrix->rows);
    else
        MUST(op->to == TO_WIDE &&
                 (matrix->rows == device->qkv_width || matrix->rows == 2 * program->ffn),
             "operation %u: %u rows go to %s", index, matrix->rows,
             op->to == TO_WIDE ? "wide" : "x, to which a device never adds");
}

static void check_op(struct device *device, uint32_t index) {
    const struct device_program *program = &device->program;
    const struct device_op *op = &program->ops[index];
    switch (op->kind) {
    case OP_EMBED:
        MUST(op->matrix < program->matrix_count &&
                 program->matrices[op->matrix].cols == program->width &&
                 program->matrices[op->matrix].rows >= program->vocab,
             "operation %u: no embedding of %u tokens by %u", index, program->vocab,
             program->width);
        return;
    case OP_MATMUL:
    case OP_LOGITS:
        MUST(op->matrix < program->matrix_count, "operation %u: no matrix %u", index, op->matrix);
        device->makers[index] = maker_of(device, index);
        check_product(device, index);
        return;
    case OP_HEADS:
    case OP_ATTENTION:
        MUST(op->kv_group < device->limits.group_count, "operation %u: group %u of %u", index,
             op->kv_group, device->limits.group_count);
        MUST(op->kv_place < device->limits.layer_places, "operation %u: place %u of %u", index,
             op->kv_place, device->limits.layer_places);
        MUST(op->rope < program->rope_count, "operation %u: rope %u of %u", index, op->rope,
             program->rope_count);
        return;
    case OP_NORM:
        MUST(op->weight, "operation %u: a norm without weights", index);
        MUST((op->add == ADD_NORMED_H) == (op->post != NULL),
             "operation %u: `post` goes with ADD_NORMED_H", index);
        return;
    case OP_GATE: return;
    case OP_KEEP: return;
    }
    plain_refuse("operation %u: unknown kind %d", index, (int)op->kind);
}

static void check_order(const struct device_program *program) {
    const struct device_op *ops = program->ops;
    uint32_t keeps = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        keeps += ops[i].kind == OP_KEEP;
        MUST(ops[i].kind != OP_HEADS || keeps == 0, "operation %u: HEADS behind KEEP", i);
    }
    MUST(program->op_count > 0 && ops[0].kind == OP_EMBED, "the program does not begin with EMBED");
    MUST(ops[program->op_count - 1].kind == OP_LOGITS, "the program does not end with LOGITS");
    MUST(keeps == 1, "the program has %u KEEP", keeps);
    MUST(program->vocab > 0 && program->vocab <= program->vocab_rows, "%u tokens of %u rows",
         program->vocab, program->vocab_rows);
    MUST(program->rope_count >= 1 && program->rope_count <= 2, "%u tables of angles",
         program->rope_count);
}

enum err plain_take_program(struct device *device, const struct device_program *program,
                            struct error *error) {
    enum err err = check_shape(program, device->limits.kv_form, error);
    if (err != OK) return err;
    check_order(program);
    copy_program(device, program);
    device->makers = plain_new(&device->heap, program->op_count, sizeof *device->makers);
    for (uint32_t i = 0; i < program->op_count; i++) check_op(device, i);
    return OK;
}

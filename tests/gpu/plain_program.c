/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"
#include "plain_internal.h"

static enum err check_shape(const struct gpu_program *program, enum gpu_form kv_form,
                            struct error *error) {
    uint32_t dim = program->head_dim, group = program->heads / program->kv_heads;
    MUST(program->heads % program->kv_heads == 0, "%u heads over %u KV heads", program->heads,
         program->kv_heads);
    if (dim == 0 || dim % 2 != 0 || dim > PLAIN_HEAD_DIM_MAX)
        return err_set(error, ERR_INVALID, "plain device: no kernel for heads of %u", dim);
    if (group > PLAIN_TILE_HEADS)
        return err_set(error, ERR_INVALID, "plain device: no kernel for %u heads per KV head",
                       group);
    if (program->latent.rank > 0 && kv_form == GPU_E4M3)
        return err_set(error, ERR_INVALID,
                       "plain device: entries of latent attention have no 8 bits");
    if (kv_form == GPU_INT8)
        return err_set(error, ERR_INVALID, "plain device: no int8 keys and values");
    for (uint32_t i = 0; i < program->matrix_count; i++)
        if (program->matrices[i].form != GPU_F32 && program->matrices[i].form != GPU_BF16)
            return err_set(error, ERR_INVALID, "plain device: matrix %u is not float32 or bf16", i);
    return OK;
}

/* ---- the copy ---- */

static const float *copy_vector(struct gpu *gpu, const float *from, uint32_t count) {
    const float *copy = plain_copy(&gpu->heap, from, count, sizeof *from);
    gpu->ledger.weights += copy ? count * sizeof *from : 0;
    return copy;
}

static void copy_vectors(struct gpu *gpu, struct gpu_op *op) {
    const struct gpu_program *program = &gpu->program;
    op->weight =
        copy_vector(gpu, op->weight, op->kind == OP_INPUTS ? program->input_width : program->width);
    op->post = copy_vector(gpu, op->post, program->width);
    op->q_norm = copy_vector(gpu, op->q_norm, gpu_head_dim(program, op));
    op->k_norm = copy_vector(gpu, op->k_norm, gpu_head_dim(program, op));
    op->sinks = copy_vector(gpu, op->sinks, program->heads);
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    struct gpu_recurrent *recurrent = &op->recurrent;
    recurrent->conv = copy_vector(gpu, recurrent->conv, sizes->taps * sizes->channels);
    recurrent->conv_bias = copy_vector(gpu, recurrent->conv_bias, sizes->channels);
    recurrent->decay = copy_vector(gpu, recurrent->decay, sizes->value_heads);
    recurrent->step_bias = copy_vector(gpu, recurrent->step_bias, sizes->value_heads);
    recurrent->skip = copy_vector(gpu, recurrent->skip, sizes->value_heads);
    recurrent->norm =
        copy_vector(gpu, recurrent->norm, sizes->is_mamba ? sizes->width : sizes->value_dim);
    op->latent.norm = copy_vector(gpu, op->latent.norm, program->latent.rank);
    op->latent.q_norm = copy_vector(gpu, op->latent.q_norm, program->latent.q_rank);
    struct gpu_experts *experts = &op->experts;
    if (op->kind == OP_EXPERTS) {
        const uint32_t gate_up = experts->count * 2 * experts->ffn;
        experts->gate_up_bias = copy_vector(gpu, experts->gate_up_bias, gate_up);
        experts->down_bias = copy_vector(gpu, experts->down_bias, experts->count * program->width);
    }
    if (op->kind == OP_ROUTE)
        experts->choice_bias = copy_vector(gpu, experts->choice_bias, experts->count);
    if (op->kind == OP_ROUTE)
        experts->expert_scale = copy_vector(gpu, experts->expert_scale, experts->count);
    MUST(!op->bias || op->kind == OP_NORM || op->matrix < program->matrix_count,
         "a bias without a matrix");
    if (op->bias)
        op->bias =
            copy_vector(gpu, op->bias,
                        op->kind == OP_NORM ? program->width : program->matrices[op->matrix].rows);
    op->positions = copy_vector(gpu, op->positions, op->position_rows * program->width);
}

static uint32_t most(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* Width of a row of wide before LATENT_ENTRY, which has the entry last, and before LATENT_Q. */
static uint32_t latent_in(const struct gpu_program *program) {
    const struct gpu_latent_sizes *sizes = &program->latent;
    const uint32_t q = program->heads * gpu_latent_head(program);
    return (sizes->q_rank > 0 ? sizes->q_rank : q) + sizes->rank + sizes->turned_dim;
}
static uint32_t latent_q(const struct gpu_program *program) {
    return program->latent.q_rank > 0 ? program->heads * gpu_latent_head(program)
                                      : latent_in(program);
}

/* Width of a row of wide in a recurrent layer. */
static uint32_t recurrent_wide(const struct gpu_program *program) {
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    return sizes->key_heads > 0 ? sizes->channels + sizes->width : 3 * sizes->channels;
}

static void copy_program(struct gpu *gpu, const struct gpu_program *from) {
    struct gpu_program *program = &gpu->program;
    *program = *from;
    program->matrices =
        plain_copy(&gpu->heap, from->matrices, from->matrix_count, sizeof *from->matrices);
    struct gpu_op *ops = plain_copy(&gpu->heap, from->ops, from->op_count, sizeof *ops);
    for (uint32_t i = 0; i < from->op_count; i++) copy_vectors(gpu, &ops[i]);
    program->ops = ops;
    for (uint32_t i = 0; i < 2; i++)
        program->frequencies[i] =
            i < from->rope_count ? copy_vector(gpu, from->frequencies[i], from->rotary_dim[i] / 2)
                                 : NULL;
    gpu->kv_width = gpu_kv_width(from);
    gpu->wide_width = most(2 * from->ffn, recurrent_wide(from));
    gpu->attended_width = most(from->recurrent.width, from->latent.q_rank);
    if (from->latent.rank > 0) {
        gpu->wide_width = most(gpu->wide_width, most(latent_in(from), latent_q(from)));
        gpu->wide_width = most(gpu->wide_width, from->heads * from->latent.value_dim);
        gpu->attended_width = most(gpu->attended_width, from->heads * from->latent.rank);
    }
    for (uint32_t i = 0; i < from->op_count; i++)
        if (from->ops[i].kind == OP_ATTENTION) gpu->has_output_gate |= from->ops[i].is_gated;
    for (uint32_t i = 0; i < from->op_count; i++) {
        const struct plain_heads heads = plain_heads_of(gpu, &program->ops[i]);
        gpu->kv_heads_most = most(gpu->kv_heads_most, heads.kv_heads);
        gpu->wide_width = most(gpu->wide_width, heads.stride);
        gpu->attended_width = most(gpu->attended_width, heads.q_width);
    }
    for (uint32_t i = 0; i < from->op_count; i++)
        gpu->wide_width =
            most(gpu->wide_width, most(from->ops[i].experts.count,
                                       from->ops[i].kind == OP_GATE ? 2 * from->ops[i].width : 0));
}

struct plain_heads plain_heads_of(const struct gpu *gpu, const struct gpu_op *op) {
    const struct gpu_program *program = &gpu->program;
    struct plain_heads heads = {.kv_heads = gpu_kv_heads(program, op),
                                .head_dim = gpu_head_dim(program, op)};
    heads.q_width = program->heads * heads.head_dim;
    heads.kv_width = heads.kv_heads * heads.head_dim;
    heads.stride = heads.q_width * (gpu->has_output_gate ? 2 : 1);
    for (const struct gpu_op *at = op; at > program->ops && at->kind != OP_NORM; at--)
        if (at->kind == OP_HEADS && at->is_query_only) return heads;
    heads.stride += 2 * heads.kv_width;
    return heads;
}

/* ---- the check ---- */

/* Columns of the input that an operation prepares. */
static uint32_t prepared_width(const struct gpu *gpu, const struct gpu_op *op) {
    switch (op->kind) {
    case OP_NORM: return gpu->program.width;
    case OP_EMBED: return gpu->program.width;
    case OP_ATTENTION: return plain_heads_of(gpu, op).q_width;
    case OP_GATED_NORM: return gpu->program.recurrent.width;
    case OP_LATENT_ENTRY: return gpu->program.latent.q_rank;
    case OP_LATENT_OUT: return gpu->program.heads * gpu->program.latent.value_dim;
    case OP_PREPARE: return op->attended > 0 ? op->attended : gpu->program.width;
    default: return op->width; /* GATE */
    }
}

static uint32_t maker_of(const struct gpu *gpu, uint32_t index) {
    const struct gpu_op *ops = gpu->program.ops;
    for (uint32_t i = index; i-- > 0;) {
        bool can_prepare = ops[i].kind == OP_EMBED || ops[i].kind == OP_NORM ||
                           ops[i].kind == OP_ATTENTION || ops[i].kind == OP_GATE ||
                           ops[i].kind == OP_PREPARE || ops[i].kind == OP_GATED_NORM ||
                           ops[i].kind == OP_LATENT_ENTRY || ops[i].kind == OP_LATENT_OUT;
        if (can_prepare && ops[i].next == ops[index].matrix) return i;
    }
    plain_refuse("operation %u: nothing is prepared for matrix %u", index, ops[index].matrix);
}

static void check_product(const struct gpu *gpu, uint32_t index) {
    const struct gpu_program *program = &gpu->program;
    const struct gpu_op *op = &program->ops[index];
    const struct gpu_matrix *matrix = &program->matrices[op->matrix];
    uint32_t cols = prepared_width(gpu, &program->ops[gpu->makers[index]]);
    MUST(matrix->cols == cols, "operation %u: matrix of %u columns reads %u numbers", index,
         matrix->cols, cols);
    if (op->kind == OP_LOGITS)
        MUST(matrix->rows == program->vocab_rows, "the head has %u rows, not %u", matrix->rows,
             program->vocab_rows);
    else if (op->to == TO_H || op->to == TO_SHARED)
        MUST(matrix->rows == program->width, "operation %u: %u rows go to h", index, matrix->rows);
    else if (op->to == TO_INPUTS)
        MUST(matrix->rows == program->input_layers * program->input_width,
             "operation %u: %u rows go to inputs", index, matrix->rows);
    else if (index + 1 < program->op_count && op[1].kind == OP_ROUTE)
        MUST(op->to == TO_WIDE && matrix->rows == op[1].experts.count,
             "operation %u: %u logits of %u experts", index, matrix->rows, op[1].experts.count);
    else if (op->to == TO_NARROW)
        MUST(matrix->rows == 1 || matrix->rows == gpu_state_rates(&program->recurrent),
             "operation %u: %u rates of %u heads", index, matrix->rows,
             program->recurrent.value_heads);
    else
        MUST(op->to == TO_WIDE &&
                 (matrix->rows == plain_heads_of(gpu, op + 1).stride ||
                  (program->latent.rank > 0 &&
                   (matrix->rows == latent_in(program) || matrix->rows == latent_q(program))) ||
                  (index + 1 < program->op_count && op[1].kind == OP_GATE &&
                   matrix->rows == plain_gate_width(&op[1])) ||
                  (program->recurrent.layers > 0 && matrix->rows == recurrent_wide(program))),
             "operation %u: %u rows go to %s", index, matrix->rows,
             op->to == TO_WIDE ? "wide" : "x, to which a device never adds");
}

static void check_experts(const struct gpu *gpu, uint32_t index) {
    const struct gpu_program *program = &gpu->program;
    const struct gpu_experts *experts = &program->ops[index].experts;
    const enum op_kind before = index > 0 ? program->ops[index - 1].kind : OP_EMBED;
    MUST(program->ops[index].kind == OP_ROUTE ? before == OP_MATMUL
                                              : before == OP_ROUTE || before == OP_NORM,
         "operation %u: a router, ROUTE and EXPERTS follow each other", index);
    MUST(experts->used > 0 && experts->used <= experts->count && experts->count <= EXPERTS_MAX &&
             experts->gate_up < program->matrix_count && experts->down < program->matrix_count,
         "operation %u: %u of %u experts", index, experts->used, experts->count);
    const struct gpu_matrix *gate_up = &program->matrices[experts->gate_up];
    const struct gpu_matrix *down = &program->matrices[experts->down];
    MUST(gate_up->rows == experts->count * 2 * experts->ffn && gate_up->cols == program->width &&
             down->rows == experts->count * program->width && down->cols == experts->ffn,
         "operation %u: the matrices of experts are %u x %u and %u x %u", index, gate_up->rows,
         gate_up->cols, down->rows, down->cols);
}

/* The layer of the nearest CONV before. */
static uint32_t last_conv(const struct gpu *gpu, uint32_t index) {
    while (index > 0 && gpu->program.ops[index].kind != OP_CONV) index--;
    return gpu->program.ops[index].kind == OP_CONV ? gpu->program.ops[index].recurrent.place
                                                   : GPU_NONE;
}

/* A layer's CONV, DELTA or MAMBA, and GATED_NORM have its vectors and come in this order. */
static void check_recurrent(const struct gpu *gpu, uint32_t index) {
    const struct gpu_program *program = &gpu->program;
    const struct gpu_op *op = &program->ops[index];
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    const bool has_matrix = sizes->key_heads > 0;
    MUST(op->recurrent.place < sizes->layers && op->recurrent.conv,
         "operation %u: layer %u of %u with a state", index, op->recurrent.place, sizes->layers);
    const bool has_end = sizes->is_mamba ? op->recurrent.skip != NULL : op->recurrent.norm != NULL;
    MUST(has_matrix == (op->recurrent.decay && op->recurrent.step_bias && has_end) &&
             sizes->is_mamba == (op->recurrent.skip != NULL) &&
             (op->kind != OP_DELTA || !sizes->is_mamba) &&
             (op->kind != OP_MAMBA || sizes->is_mamba),
         "operation %u: vectors of a layer with a state", index);
    MUST(has_matrix ? sizes->value_heads % sizes->key_heads == 0 &&
                          sizes->width == sizes->value_heads * sizes->value_dim &&
                          sizes->channels == 2 * sizes->key_heads * sizes->key_dim + sizes->width
                    : sizes->channels == sizes->width && op->is_gated,
         "operation %u: %u channels", index, sizes->channels);
    MUST(op->kind == OP_CONV || (index > 0 && op->recurrent.place == last_conv(gpu, index)),
         "operation %u: it is of another layer than the convolution before", index);
}

static void check_latent(const struct gpu *gpu, uint32_t index) {
    const struct gpu_program *program = &gpu->program;
    const struct gpu_latent_sizes *sizes = &program->latent;
    const struct gpu_op *op = &program->ops[index];
    MUST(op->kv_group < gpu->limits.group_count && op->kv_place < gpu->limits.layer_places,
         "operation %u: place %u of group %u", index, op->kv_place, op->kv_group);
    MUST(program->kv_heads == 1 && program->head_dim == sizes->rank + sizes->turned_dim &&
             program->rope_count > 0 && program->rotary_dim[0] == sizes->turned_dim &&
             op->latent.norm && (op->latent.q_norm != NULL) == (sizes->q_rank > 0),
         "operation %u: a program with entries of %u + %u", index, sizes->rank, sizes->turned_dim);
    MUST(op->latent.k_b < program->matrix_count && op->latent.v_b < program->matrix_count,
         "operation %u: no matrices of heads", index);
    const struct gpu_matrix *k_b = &program->matrices[op->latent.k_b];
    const struct gpu_matrix *v_b = &program->matrices[op->latent.v_b];
    MUST(k_b->rows == program->heads * sizes->rank && k_b->cols == sizes->still_dim &&
             v_b->rows == program->heads * sizes->value_dim && v_b->cols == sizes->rank,
         "operation %u: matrices of heads are %u x %u and %u x %u", index, k_b->rows, k_b->cols,
         v_b->rows, v_b->cols);
}

static void check_inputs(const struct gpu_program *program, uint32_t index) {
    const struct gpu_op *op = &program->ops[index];
    MUST(op->matrix < program->matrix_count && op->weight && op->width == program->input_width &&
             program->matrices[op->matrix].cols == program->input_layers * op->width,
         "operation %u: no parts of tokens", index);
}

static bool has_inputs(const struct gpu_program *program) {
    for (uint32_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == OP_INPUTS) return true;
    return false;
}

static void check_gate(const struct gpu_program *program, uint32_t index) {
    const struct gpu_op *op = &program->ops[index];
    MUST(op->gate != GATE_CLAMPED && op->gate != GATE_XIELU,
         "operation %u: a gate of experts alone, or none of a device", index);
    MUST(!op->gates_inputs || (has_inputs(program) && op->layer < program->input_layers),
         "operation %u: no parts of tokens for layer %u", index, op->layer);
}

static void check_op(struct gpu *gpu, uint32_t index) {
    const struct gpu_program *program = &gpu->program;
    const struct gpu_op *op = &program->ops[index];
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
        gpu->makers[index] = maker_of(gpu, index);
        check_product(gpu, index);
        return;
    case OP_HEADS:
    case OP_ATTENTION:
        MUST(op->kv_group < gpu->limits.group_count, "operation %u: group %u of %u", index,
             op->kv_group, gpu->limits.group_count);
        MUST(op->kv_place < gpu->limits.layer_places, "operation %u: place %u of %u", index,
             op->kv_place, gpu->limits.layer_places);
        MUST(op->rope < program->rope_count || (op->rope == 0 && program->rope_count == 0),
             "operation %u: rope %u of %u", index, op->rope, program->rope_count);
        return;
    case OP_NORM:
        MUST(!op->is_layer_norm || (op->weight && op->add != ADD_NORMED_H && op->x_scale == 0),
             "operation %u: a LayerNorm", index);
        MUST((op->add == ADD_NORMED_H) == (op->post != NULL),
             "operation %u: `post` goes with ADD_NORMED_H", index);
        return;
    case OP_GATE: check_gate(program, index); return;
    case OP_KEEP:
        MUST(op->attended <= gpu->attended_width && op->width <= gpu->wide_width,
             "operation %u keeps rows of %u and %u numbers", index, op->width, op->attended);
        return;
    case OP_ADD:
        MUST(index > 0 && op[-1].kind == OP_MATMUL && op[-1].to == TO_SHARED,
             "operation %u adds no product", index);
        return;
    case OP_PREPARE:
        MUST(op->next < program->matrix_count, "operation %u prepares nothing", index);
        return;
    case OP_CONV:
    case OP_DELTA:
    case OP_MAMBA:
    case OP_GATED_NORM: check_recurrent(gpu, index); return;
    case OP_ROUTE:
    case OP_EXPERTS: check_experts(gpu, index); return;
    case OP_INPUTS: check_inputs(program, index); return;
    case OP_POOL: MUST(program->pools, "operation %u: POOL", index); return;
    case OP_ASIDE:
    case OP_JOIN: MUST(op->weight, "operation %u: a norm without weights", index); return;
    case OP_LATENT_ENTRY:
    case OP_LATENT_Q:
    case OP_LATENT:
    case OP_LATENT_OUT: check_latent(gpu, index); return;
    }
    plain_refuse("operation %u: unknown kind %d", index, (int)op->kind);
}

static void check_order(const struct gpu_program *program) {
    const struct gpu_op *ops = program->ops;
    uint32_t keeps = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        keeps += ops[i].kind == OP_KEEP;
        MUST(ops[i].kind != OP_HEADS || keeps == 0, "operation %u: HEADS behind KEEP", i);
    }
    MUST(program->op_count > 0 && ops[0].kind == OP_EMBED, "the program does not begin with EMBED");
    MUST(ops[program->op_count - 1].kind == (program->pools ? OP_POOL : OP_LOGITS),
         "the program does not end with LOGITS or POOL");
    MUST(!program->pools ||
             (ops[program->op_count - 2].kind == OP_NORM && program->vocab_rows == program->width),
         "POOL has no NORM before it");
    MUST(keeps == 1, "the program has %u KEEP", keeps);
    MUST(program->vocab > 0 && (program->pools || program->vocab <= program->vocab_rows),
         "%u tokens of %u rows", program->vocab, program->vocab_rows);
    for (uint32_t i = 0; i < program->rope_count; i++)
        MUST(program->rotary_dim[i] > 0 && program->rotary_dim[i] % 2 == 0 &&
                 program->rotary_dim[i] <= program->head_dim,
             "%u of %u elements turn", program->rotary_dim[i], program->head_dim);
    MUST(program->rope_count <= 2, "%u tables of angles", program->rope_count);
}

enum err plain_take_program(struct gpu *gpu, const struct gpu_program *program,
                            struct error *error) {
    enum err err = check_shape(program, gpu->limits.kv_form, error);
    if (err != OK) return err;
    check_order(program);
    copy_program(gpu, program);
    gpu->makers = plain_new(&gpu->heap, program->op_count, sizeof *gpu->makers);
    for (uint32_t i = 0; i < program->op_count; i++) check_op(gpu, i);
    return OK;
}

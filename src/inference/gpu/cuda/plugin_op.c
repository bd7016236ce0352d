/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* One call of run_op. */
struct one {
    struct gpu *gpu;
    struct walk walk;
    const struct card_op *op;
    const struct gpu_op_call *call;
    cudaError_t code;
};

/* ---- numbers to and from the GPU ---- */

/* Rows of float32 on the host become rows of bf16 on the GPU; gaps are skipped on either side. */
static void put_bf16(struct one *one, void *card, size_t card_stride, const float *host,
                     size_t host_stride, size_t width) {
    if (!host || one->code != cudaSuccess) return;
    uint16_t *row = malloc(width * sizeof *row);
    if (!row) one->code = cudaErrorMemoryAllocation;
    for (size_t i = 0; i < one->walk.rows && one->code == cudaSuccess; i++) {
        for (size_t k = 0; k < width; k++) row[k] = bf16_from_f32(host[i * host_stride + k]);
        one->code =
            cudaMemcpy((char *)card + i * card_stride * 2, row, width * 2, cudaMemcpyHostToDevice);
    }
    free(row);
}

static void get_bf16(struct one *one, const void *card, size_t card_stride, float *host,
                     size_t host_stride, size_t width, const float *bias) {
    uint16_t *row = malloc(width * sizeof *row);
    if (!row) one->code = cudaErrorMemoryAllocation;
    for (size_t i = 0; host && i < one->walk.rows && one->code == cudaSuccess; i++) {
        one->code = cudaMemcpy(row, (const char *)card + i * card_stride * 2, width * 2,
                               cudaMemcpyDeviceToHost);
        for (size_t k = 0; k < width; k++)
            host[i * host_stride + k] = bf16_to_f32(row[k]) + (bias ? bias[k] : 0);
    }
    free(row);
}

static void copy(struct one *one, void *to, const void *from, size_t bytes) {
    if (!to || !from || one->code != cudaSuccess) return;
    one->code = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}

static struct cuda_product product_at(const void *sums, size_t stride) {
    return (struct cuda_product){.sums = sums, .stride = stride};
}

/* ---- before and behind the operation ---- */

/* The heads of the operation's layer, of which HEADS stands there or before. */
static const struct gpu_op *heads_of(const struct one *one) {
    const struct card_op *op = one->op;
    while (op > one->gpu->ops && op->op.kind != OP_HEADS) op--;
    return &op->op;
}

static size_t q_width_of(const struct one *one) {
    return (size_t)one->gpu->program.heads * gpu_head_dim(&one->gpu->program, heads_of(one));
}

static size_t qkv_width_of(const struct one *one) {
    const struct gpu_program *program = &one->gpu->program;
    const struct gpu_op *heads = heads_of(one);
    const size_t kv_width = (size_t)gpu_kv_heads(program, heads) * gpu_head_dim(program, heads);
    return q_width_of(one) * (one->gpu->has_output_gate ? 2 : 1) +
           (heads->is_query_only ? 0 : 2 * kv_width);
}

/* A row of wide before a gate. */
static size_t gate_width_of(const struct card_op *op) {
    const bool is_alone =
        op->op.gates_inputs || op->op.gate == GATE_RELU2 || op->op.gate == GATE_GELU_ALONE;
    return (is_alone ? (size_t)1 : 2) * op->op.width;
}

/* A row of wide in a recurrent layer. */
static size_t channels_width_of(const struct one *one) {
    const struct gpu_recurrent_sizes *sizes = &one->gpu->program.recurrent;
    return one->op->op.is_gated ? 3 * (size_t)sizes->channels
                                : (size_t)sizes->channels + sizes->width;
}

static void put_rows(struct one *one, const float *rows, size_t stride, size_t width) {
    put_bf16(one, one->gpu->codes, width, rows, stride, width);
    one->walk.prepared = (struct cuda_rows){.codes = one->gpu->codes, .stride = width};
}

/* What a product reads lies where its maker left it. */
static void put_prepared(struct one *one) {
    const struct gpu *gpu = one->gpu;
    const size_t width = gpu->matrices[one->op->op.matrix].cols;
    uint32_t maker = one->call->op;
    while (maker > 0 && gpu->ops[maker].op.next != one->op->op.matrix) maker--;
    switch (gpu->ops[maker].op.kind) {
    case OP_GATE: put_rows(one, one->call->wide, gate_width_of(&gpu->ops[maker]), width); break;
    case OP_LATENT_OUT: put_rows(one, one->call->wide, width, width); break;
    case OP_LATENT_ENTRY:
    case OP_ATTENTION:
    case OP_GATED_NORM: put_rows(one, one->call->attended, width, width); break;
    case OP_PREPARE:
        put_rows(one, gpu->ops[maker].op.attended > 0 ? one->call->attended : one->call->h, width,
                 width);
        break;
    default: put_rows(one, one->call->h, width, width); break;
    }
}

/* The router's logits, and the rows that it read. */
static void put_route(struct one *one) {
    const uint32_t experts = one->op->op.experts.count, width = one->gpu->program.width;
    struct cuda_product *logits = &one->walk.product[TO_WIDE];
    *logits = product_at(one->gpu->wide, one->gpu->matrices[one->op[-1].op.matrix].rows_padded);
    for (size_t i = 0; i < one->walk.rows; i++)
        copy(one, (float *)one->gpu->wide + i * logits->stride,
             one->call->wide ? one->call->wide + i * experts : NULL, experts * sizeof(float));
    put_rows(one, one->call->h, width, width);
}

static void put_recurrent(struct one *one) {
    struct gpu *gpu = one->gpu;
    const struct gpu_op_call *call = one->call;
    const size_t wide = channels_width_of(one), state = gpu->program.recurrent.width;
    const size_t rates = gpu_state_rates(&gpu->program.recurrent);
    const enum op_kind kind = one->op->op.kind;
    const bool reads_attended = kind == OP_GATED_NORM || kind == OP_PREPARE || kind == OP_KEEP;
    if (reads_attended && (kind == OP_GATED_NORM || one->op->op.attended > 0))
        put_bf16(one, one->walk.attended, state, call->attended, state, state);
    const bool has_rates = kind == OP_DELTA || kind == OP_MAMBA;
    if (!has_rates && kind != OP_CONV) return;
    put_bf16(one, gpu->wide, wide, call->wide, wide, wide);
    one->walk.product[TO_WIDE] = product_at(gpu->wide, wide);
    if (!has_rates) return;
    put_bf16(one, gpu->narrow, rates, call->narrow, rates, rates);
    one->walk.product[TO_NARROW] = product_at(gpu->narrow, rates);
}

/* A row of wide in a latent layer, before LATENT_ENTRY or LATENT_Q. */
static size_t latent_width_of(const struct one *one) {
    const struct gpu_program *program = &one->gpu->program;
    const struct gpu_latent_sizes *sizes = &program->latent;
    const size_t q = (size_t)program->heads * gpu_latent_head(program);
    const size_t entry = sizes->rank + sizes->turned_dim;
    if (sizes->q_rank == 0) return q + entry;
    return one->op->op.kind == OP_LATENT_Q ? q : sizes->q_rank + entry;
}

static void put_latent(struct one *one) {
    struct gpu *gpu = one->gpu;
    const enum op_kind kind = one->op->op.kind;
    const size_t attended = (size_t)gpu->program.heads * gpu->program.latent.rank;
    const size_t wide = latent_width_of(one);
    if (kind == OP_LATENT_OUT)
        put_bf16(one, gpu->attended, attended, one->call->attended, attended, attended);
    if (kind != OP_LATENT_ENTRY && kind != OP_LATENT_Q) return;
    put_bf16(one, gpu->wide, wide, one->call->wide, wide, wide);
    one->walk.product[TO_WIDE] = product_at(gpu->wide, wide);
}

/* What EXPERTS adds. */
static void put_shared(struct one *one) {
    const struct gpu *gpu = one->gpu;
    const struct gpu_experts *experts = &one->op->op.experts;
    const size_t width = gpu->program.width;
    put_rows(one, one->call->h, width, width);
    if (experts->has_shared) {
        put_bf16(one, gpu->experts.shared, width, one->call->shared, width, width);
        one->walk.product[TO_SHARED] = product_at(gpu->experts.shared, width);
    }
    if (!experts->shared_is_scaled) return;
    put_bf16(one, gpu->narrow, 1, one->call->narrow, 1, 1);
    one->walk.product[TO_NARROW] = product_at(gpu->narrow, 1);
}

/* The products of INPUTS lie where MATMUL left them, and a layer's part where INPUTS did. */
static void put_inputs(struct one *one) {
    struct gpu *gpu = one->gpu;
    const struct gpu_op *op = &one->op->op;
    if (op->kind == OP_INPUTS)
        one->walk.product[TO_INPUTS] =
            product_at(gpu->wide, gpu->matrices[one->op[-1].op.matrix].rows_padded);
    if (op->kind == OP_GATE && op->gates_inputs && one->call->is_behind_keep)
        one->walk.kept_rows = one->walk.flight->step.wanted;
}

/* What ADD adds. */
static void put_added(struct one *one) {
    struct gpu *gpu = one->gpu;
    const size_t width = gpu->program.width;
    if (one->op->op.kind != OP_ADD) return;
    put_bf16(one, gpu->experts.shared, width, one->call->shared, width, width);
    one->walk.product[TO_SHARED] = product_at(gpu->experts.shared, width);
}

static void put_operands(struct one *one) {
    struct gpu *gpu = one->gpu;
    const struct gpu_op_call *call = one->call;
    const struct gpu_program *program = &gpu->program;
    const size_t q_width = q_width_of(one), qkv = qkv_width_of(one), both = gate_width_of(one->op);
    const enum op_kind kind = one->op->op.kind;
    if (kind == OP_NORM || kind == OP_KEEP || kind == OP_ADD)
        copy(one, one->walk.x, call->x, one->walk.rows * program->width * sizeof(float));
    if ((kind == OP_NORM && one->op->op.add != ADD_NOTHING) || kind == OP_ASIDE ||
        kind == OP_JOIN) {
        put_bf16(one, gpu->h, program->width, call->h, program->width, program->width);
        one->walk.product[TO_H] = product_at(gpu->h, program->width);
    }
    if (kind == OP_HEADS) put_bf16(one, gpu->wide, qkv, call->wide, qkv, qkv);
    if (kind == OP_HEADS) one->walk.product[TO_WIDE] = product_at(gpu->wide, qkv);
    if (kind == OP_GATE) put_bf16(one, gpu->wide, both, call->wide, both, both);
    if (kind == OP_GATE) one->walk.product[TO_WIDE] = product_at(gpu->wide, both);
    const bool keeps_q = kind == OP_KEEP && one->op->op.attended == 0 && program->latent.rank == 0;
    if (kind == OP_ATTENTION || keeps_q)
        put_bf16(one, one->walk.q, q_width, call->wide, qkv, q_width);
    if (kind == OP_ATTENTION && one->op->op.is_gated) {
        put_bf16(one, gpu->wide, qkv, call->wide, qkv, qkv);
        one->walk.product[TO_WIDE] = product_at(gpu->wide, qkv);
    }
    if (kind == OP_POOL) {
        put_rows(one, call->h, program->width, program->width);
        one->walk.normed = one->walk.prepared;
        one->walk.normed.type = CUDA_BF16;
    }
    put_recurrent(one);
    put_latent(one);
    put_inputs(one);
    put_added(one);
    if (kind == OP_MATMUL || kind == OP_LOGITS) put_prepared(one);
    if (kind == OP_ROUTE) put_route(one);
    if (kind == OP_EXPERTS) put_shared(one);
}

static float *bias_of(struct one *one, size_t width) {
    float *bias = one->op->op.bias ? calloc(width, sizeof *bias) : NULL;
    copy(one, bias, one->op->op.bias, width * sizeof *bias);
    return bias;
}

static void get_product(struct one *one) {
    const struct cuda_product *product = &one->walk.product[one->op->op.to];
    const struct card_matrix *matrix = &one->gpu->matrices[one->op->op.matrix];
    if (one->op->op.to == TO_INPUTS) return; /* they stay here, as what INPUTS makes of them */
    float *to = one->op->op.to == TO_H        ? one->call->h
                : one->op->op.to == TO_NARROW ? one->call->narrow
                : one->op->op.to == TO_SHARED ? one->call->shared
                                              : one->call->wide;
    float *bias = bias_of(one, matrix->rows);
    for (size_t i = 0; to && matrix->is_router && i < one->walk.rows; i++) {
        float *row = to + i * matrix->rows;
        copy(one, row, (const float *)product->sums + i * product->stride,
             matrix->rows * sizeof(float));
        for (uint32_t k = 0; bias && k < matrix->rows; k++) row[k] += bias[k];
    }
    if (matrix->is_router) {
        free(bias);
        return;
    }
    get_bf16(one, product->sums, product->stride, to, matrix->rows, matrix->rows, bias);
    free(bias);
}

/* The gates of the kept rows move to the front with their queries. */
static void keep_wide(struct one *one) {
    const bool is_latent = one->gpu->program.latent.rank > 0;
    const size_t q_width = q_width_of(one);
    const size_t qkv = is_latent ? one->op->op.width : qkv_width_of(one);
    float *wide = one->call->wide;
    const struct gpu_step *step = one->call->step;
    for (uint32_t i = 0; wide && i < step->wanted_count; i++)
        memmove(wide + i * qkv, wide + step->wanted[i] * qkv, qkv * sizeof *wide);
    if (!is_latent) get_bf16(one, one->walk.q, q_width, wide, qkv, q_width, NULL);
}

static void get_vectors(struct one *one) {
    const size_t width = one->gpu->program.width;
    for (size_t i = 0; one->call->logits && i < one->call->step->pool_count; i++)
        copy(one, one->call->logits + i * width,
             one->walk.flight->logits + i * one->gpu->logit_stride, width * sizeof(float));
}

/* Queries stay here. */
static void get_latent(struct one *one) {
    const struct gpu *gpu = one->gpu;
    const struct gpu_latent_sizes *sizes = &gpu->program.latent;
    const size_t heads = gpu->program.heads, q_rank = sizes->q_rank;
    const size_t attended = heads * sizes->rank, values = heads * sizes->value_dim;
    const enum op_kind kind = one->op->op.kind;
    if (kind == OP_LATENT_ENTRY && q_rank > 0)
        get_bf16(one, gpu->attended, q_rank, one->call->attended, q_rank, q_rank, NULL);
    if (kind == OP_LATENT)
        get_bf16(one, gpu->attended, attended, one->call->attended, attended, attended, NULL);
    if (kind == OP_LATENT_OUT)
        get_bf16(one, gpu->wide, values, one->call->wide, values, values, NULL);
}

static void get_results(struct one *one) {
    struct gpu *gpu = one->gpu;
    const struct gpu_op_call *call = one->call;
    const struct gpu_program *program = &gpu->program;
    const size_t q_width = q_width_of(one), qkv = qkv_width_of(one), rows = one->walk.rows;
    const struct cuda_rows *prepared = &one->walk.prepared;
    const size_t state = program->recurrent.width;
    switch (one->op->op.kind) {
    case OP_ADD:
    case OP_EMBED:
    case OP_NORM:
        copy(one, call->x, one->walk.x, rows * program->width * sizeof(float));
        if (one->op->op.next != GPU_NONE)
            get_bf16(one, prepared->codes, prepared->stride, call->h, program->width,
                     program->width, NULL);
        break;
    case OP_MATMUL: get_product(one); break;
    case OP_KEEP:
        copy(one, call->x, one->walk.x, rows * program->width * sizeof(float));
        if (one->op->op.attended > 0)
            get_bf16(one, one->walk.attended, state, call->attended, state, state, NULL);
        else
            keep_wide(one);
        break;
    case OP_HEADS: get_bf16(one, one->walk.q, q_width, call->wide, qkv, q_width, NULL); break;
    case OP_ATTENTION:
        get_bf16(one, gpu->attended, q_width, call->attended, q_width, q_width, NULL);
        break;
    case OP_GATE:
        get_bf16(one, prepared->codes, prepared->stride, call->wide, gate_width_of(one->op),
                 one->op->op.width, NULL);
        break;
    case OP_LOGITS:
        for (size_t i = 0; i < rows; i++)
            copy(one, call->logits ? call->logits + i * program->vocab_rows : NULL,
                 one->walk.flight->logits + i * gpu->logit_stride,
                 program->vocab_rows * sizeof(float));
        break;
    case OP_POOL: get_vectors(one); break;
    case OP_ROUTE:
    case OP_INPUTS:
    case OP_ASIDE: break; /* what they leave stays here */
    case OP_LATENT_ENTRY:
    case OP_LATENT_Q:
    case OP_LATENT:
    case OP_LATENT_OUT: get_latent(one); break;
    case OP_EXPERTS:
    case OP_JOIN:
        get_bf16(one, gpu->h, program->width, call->h, program->width, program->width, NULL);
        break;
    case OP_CONV:
    case OP_DELTA:
    case OP_MAMBA:
        if (one->op->op.kind != OP_CONV || one->op->op.is_gated)
            get_bf16(one, gpu->attended, state, call->attended, state, state, NULL);
        break;
    case OP_PREPARE:
    case OP_GATED_NORM: break; /* the numbers are those that were there */
    }
}

/* Logits leave OP_LOGITS capped; on the GPU the statistics do that. */
static enum err finish_logits(struct one *one, struct error *error) {
    struct card_samples none;
    struct gpu *gpu = one->gpu;
    one->walk.flight->step.wanted_count = one->walk.rows;
    enum err err = samples_put(gpu, one->walk.flight, NULL, false, &none, error);
    if (err == OK) err = block_send(gpu, &one->walk.flight->block, error);
    if (err == OK) err = samples_run(gpu, one->walk.flight, &none, false, error);
    return err;
}

enum err plugin_run_op(struct gpu *gpu, const struct gpu_op_call *call, struct error *error) {
    assert(gpu->is_prepared && gpu->submitted == gpu->waited);
    assert(call->op < gpu->program.op_count);
    if (gpu->rank_count > 1)
        return err_set(error, ERR_INVALID, "operation %u alone: of one GPU only", call->op);
    struct flight *flight = &gpu->flights[0];
    struct one one = {.gpu = gpu, .op = &gpu->ops[call->op], .call = call};
    const struct gpu_op *op = &one.op->op;
    const uint32_t matrix = op->kind == OP_EXPERTS   ? op->experts.gate_up
                            : op->matrix != GPU_NONE ? op->matrix
                                                     : op->next;
    if (matrix != GPU_NONE && !gpu_form_is_bf16(gpu->matrices[matrix].form))
        return err_set(error, ERR_INVALID, "operation %u alone: of matrices in bf16 only",
                       call->op);
    enum err err = step_put(gpu, flight, call->step, error);
    if (err == OK) err = block_send(gpu, &flight->block, error);
    if (err != OK) return err;
    walk_begin(&one.walk, gpu, flight);
    if (call->is_behind_keep) {
        one.walk.is_kept = true;
        one.walk.rows = call->step->wanted_count;
        one.walk.x = gpu->x_kept, one.walk.q = gpu->q_kept;
    }
    put_operands(&one);
    if (one.code == cudaSuccess) one.code = cudaDeviceSynchronize();
    if (one.code != cudaSuccess) return card_error(one.code, error, "operation %u", call->op);
    err = walk_op(&one.walk, one.op, error);
    if (err == OK && op->kind == OP_LOGITS) err = finish_logits(&one, error);
    if (err != OK) return err;
    one.code = cudaDeviceSynchronize();
    get_results(&one);
    return one.code == cudaSuccess ? OK : card_error(one.code, error, "operation %u", call->op);
}

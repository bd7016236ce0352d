/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* One call of run_op. */
struct one {
    struct device *device;
    struct walk walk;
    const struct card_op *op;
    const struct device_op_call *call;
    cudaError_t code;
};

/* ---- numbers to and from the card ---- */

/* Rows of float32 on the host become rows of bf16 on the card; gaps are skipped on either side. */
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

static size_t q_width_of(const struct device *device) {
    return (size_t)device->program.heads * device->program.head_dim;
}

static size_t qkv_width_of(const struct device *device) {
    return q_width_of(device) + (size_t)2 * device->program.kv_heads * device->program.head_dim;
}

/* What a product reads lies where its maker left it. */
static void put_prepared(struct one *one) {
    struct device *device = one->device;
    const size_t width = device->matrices[one->op->op.matrix].cols, ffn = device->program.ffn;
    uint32_t maker = one->call->op;
    while (maker > 0 && device->ops[maker].op.next != one->op->op.matrix) maker--;
    switch (device->ops[maker].op.kind) {
    case OP_GATE: put_bf16(one, device->codes, width, one->call->wide, 2 * ffn, ffn); break;
    case OP_ATTENTION:
        put_bf16(one, device->codes, width, one->call->attended, width, width);
        break;
    default: put_bf16(one, device->codes, width, one->call->h, width, width); break;
    }
    one->walk.prepared = (struct cuda_rows){.codes = device->codes, .stride = width};
}

static void put_operands(struct one *one) {
    struct device *device = one->device;
    const struct device_op_call *call = one->call;
    const struct device_program *program = &device->program;
    const size_t q_width = q_width_of(device), qkv = qkv_width_of(device), ffn = program->ffn;
    const enum op_kind kind = one->op->op.kind;
    if (kind == OP_NORM || kind == OP_KEEP)
        copy(one, one->walk.x, call->x, one->walk.rows * program->width * sizeof(float));
    if (kind == OP_NORM && one->op->op.add != ADD_NOTHING) {
        put_bf16(one, device->h, program->width, call->h, program->width, program->width);
        one->walk.product[TO_H] = product_at(device->h, program->width);
    }
    if (kind == OP_HEADS) put_bf16(one, device->wide, qkv, call->wide, qkv, qkv);
    if (kind == OP_HEADS) one->walk.product[TO_WIDE] = product_at(device->wide, qkv);
    if (kind == OP_GATE) put_bf16(one, device->wide, 2 * ffn, call->wide, 2 * ffn, 2 * ffn);
    if (kind == OP_GATE) one->walk.product[TO_WIDE] = product_at(device->wide, 2 * ffn);
    if (kind == OP_ATTENTION || kind == OP_KEEP)
        put_bf16(one, one->walk.q, q_width, call->wide, qkv, q_width);
    if (kind == OP_MATMUL || kind == OP_LOGITS) put_prepared(one);
}

static float *bias_of(struct one *one, size_t width) {
    float *bias = one->op->op.bias ? malloc(width * sizeof *bias) : NULL;
    copy(one, bias, one->op->op.bias, width * sizeof *bias);
    return bias;
}

static void get_product(struct one *one) {
    const struct cuda_product *product = &one->walk.product[one->op->op.to];
    float *to = one->op->op.to == TO_H ? one->call->h : one->call->wide;
    float *bias = bias_of(one, product->stride);
    get_bf16(one, product->sums, product->stride, to, product->stride, product->stride, bias);
    free(bias);
}

static void get_results(struct one *one) {
    struct device *device = one->device;
    const struct device_op_call *call = one->call;
    const struct device_program *program = &device->program;
    const size_t q_width = q_width_of(device), qkv = qkv_width_of(device), rows = one->walk.rows;
    const struct cuda_rows *prepared = &one->walk.prepared;
    switch (one->op->op.kind) {
    case OP_EMBED: copy(one, call->x, one->walk.x, rows * program->width * sizeof(float)); break;
    case OP_NORM:
        copy(one, call->x, one->walk.x, rows * program->width * sizeof(float));
        get_bf16(one, prepared->codes, prepared->stride, call->h, program->width, program->width,
                 NULL);
        break;
    case OP_MATMUL: get_product(one); break;
    case OP_KEEP:
        copy(one, call->x, one->walk.x, rows * program->width * sizeof(float));
        get_bf16(one, one->walk.q, q_width, call->wide, qkv, q_width, NULL);
        break;
    case OP_HEADS: get_bf16(one, one->walk.q, q_width, call->wide, qkv, q_width, NULL); break;
    case OP_ATTENTION:
        get_bf16(one, device->attended, q_width, call->attended, q_width, q_width, NULL);
        break;
    case OP_GATE:
        get_bf16(one, prepared->codes, prepared->stride, call->wide, (size_t)2 * program->ffn,
                 program->ffn, NULL);
        break;
    case OP_LOGITS:
        for (size_t i = 0; i < rows; i++)
            copy(one, call->logits ? call->logits + i * program->vocab_rows : NULL,
                 one->walk.flight->logits + i * device->logit_stride,
                 program->vocab_rows * sizeof(float));
        break;
    }
}

/* Logits leave OP_LOGITS capped; on the card the statistics do that. */
static enum err finish_logits(struct one *one, struct error *error) {
    struct card_samples none;
    struct device *device = one->device;
    one->walk.flight->step.wanted_count = one->walk.rows;
    enum err err = samples_put(device, one->walk.flight, NULL, false, &none, error);
    if (err == OK) err = block_send(device, &one->walk.flight->block, error);
    if (err == OK) err = samples_run(device, one->walk.flight, &none, false, error);
    return err;
}

enum err device_run_op(struct device *device, const struct device_op_call *call,
                       struct error *error) {
    assert(device->is_prepared && device->submitted == device->waited);
    assert(call->op < device->program.op_count);
    struct flight *flight = &device->flights[0];
    struct one one = {.device = device, .op = &device->ops[call->op], .call = call};
    const struct device_op *op = &one.op->op;
    const uint32_t matrix = op->matrix != DEVICE_NONE ? op->matrix : op->next;
    if (matrix != DEVICE_NONE && !device_form_is_bf16(device->matrices[matrix].form))
        return err_set(error, ERR_INVALID, "operation %u alone: of matrices in bf16 only",
                       call->op);
    enum err err = step_put(device, flight, call->step, error);
    if (err == OK) err = block_send(device, &flight->block, error);
    if (err != OK) return err;
    walk_begin(&one.walk, device, flight);
    if (call->is_behind_keep) {
        one.walk.is_kept = true;
        one.walk.rows = call->step->wanted_count;
        one.walk.x = device->x_kept, one.walk.q = device->q_kept;
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

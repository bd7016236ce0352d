/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

#define NAME_BYTES 64u /* of an operation in a sentence */

static const char *const names[OP_KINDS] = {
    [OP_EMBED] = "embed", [OP_NORM] = "norm",     [OP_MATMUL] = "product",
    [OP_HEADS] = "heads", [OP_KEEP] = "keep",     [OP_ATTENTION] = "attention",
    [OP_GATE] = "gate",   [OP_LOGITS] = "logits",
};

static const struct card_matrix *matrix_of(const struct walk *walk, uint32_t index) {
    assert(index < walk->device->program.matrix_count);
    return &walk->device->matrices[index];
}

/* The rows that the next product reads, in its form. */
static struct cuda_rows rows_for(struct walk *walk, const struct card_op *op) {
    const struct card_matrix *next = matrix_of(walk, op->op.next);
    float *scale = walk->device->row_scales[walk->scale_turn++ % 2];
    walk->prepared = (struct cuda_rows){.codes = walk->device->codes,
                                        .type = code_of(next->form),
                                        .stride = next->cols,
                                        .scale = device_form_is_bf16(next->form) ? NULL : scale};
    return walk->prepared;
}

static enum err walk_embed(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct device *device = walk->device;
    const struct cuda_embed call = {
        .table = (const uint16_t *)(const void *)matrix_of(walk, op->op.matrix)->codes,
        .tokens = walk->flight->step.tokens,
        .last_token = device->last_token,
        .scale = op->op.scale,
        .x = walk->x,
        .x_stride = device->program.width,
        .width = device->program.width,
        .rows = walk->rows,
    };
    return cuda_embed(&call, device->compute, error);
}

static enum err walk_norm(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct device *device = walk->device;
    struct cuda_norm call = {
        .x = walk->x,
        .x_stride = device->program.width,
        .post = op->op.add == ADD_NORMED_H ? op->op.post : NULL,
        .weight = op->weight,
        .width = device->program.width,
        .rows = walk->rows,
        .epsilon = device->program.eps,
    };
    if (op->op.add != ADD_NOTHING) call.h = walk->product[TO_H];
    call.y = rows_for(walk, op);
    return cuda_norm(&call, device->compute, error);
}

bool walk_is_scaled(const struct device *device, const struct card_op *op, uint32_t rows,
                    enum cuda_ending *ret_ending) {
    const struct card_op *end = device->ops + device->program.op_count;
    const struct card_matrix *matrix = &device->matrices[op->op.matrix];
    const bool is_gated = op + 1 < end && op[1].op.kind == OP_GATE && !op->op.bias &&
                          matrix->rows == 2 * device->program.ffn &&
                          matrix->rows == matrix->rows_padded;
    *ret_ending = !is_gated                    ? CUDA_END_SCALED
                  : op[1].op.gate == GATE_SILU ? CUDA_END_SILU
                                               : CUDA_END_GELU_TANH;
    return op->op.kind == OP_MATMUL && matrix->form == DEVICE_INT8 &&
           cuda_scaled_pays(*ret_ending, matrix->rows_padded, row_bucket(rows));
}

/* A product that leaves bf16: of gate and up with the activation in it, of others the scaled sums. */
static enum err walk_scaled(struct walk *walk, const struct card_op *op, enum cuda_ending ending,
                            struct error *error) {
    const struct device *device = walk->device;
    const struct card_matrix *matrix = matrix_of(walk, op->op.matrix);
    const struct cuda_scaled call = {
        .ending = ending,
        .outputs = matrix->rows_padded,
        .inputs = matrix->cols,
        .rows = walk->rows,
        .weights = matrix->codes,
        .in = walk->prepared.codes,
        .row_scale = walk->prepared.scale,
        .column_scale = matrix->scales,
        .y = op->op.to == TO_H ? device->h : device->wide,
    };
    walk->is_gated = ending != CUDA_END_SCALED;
    if (!walk->is_gated)
        walk->product[op->op.to] = (struct cuda_product){.sums = call.y,
                                                         .type = CUDA_SUMS_BF16,
                                                         .stride = matrix->rows_padded,
                                                         .bias = op->op.bias};
    return cuda_scaled(&call, device->compute, error);
}

static enum err walk_matmul(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct device *device = walk->device;
    const struct card_matrix *matrix = matrix_of(walk, op->op.matrix);
    enum cuda_ending ending;
    if (walk_is_scaled(device, op, walk->rows, &ending))
        return walk_scaled(walk, op, ending, error);
    struct cuda_multiply call = {
        .format = format_of(matrix->form, false),
        .outputs = matrix->rows_padded,
        .inputs = matrix->cols,
        .rows = walk->rows,
        .in = walk->prepared.codes,
        .sums = op->op.to == TO_H ? device->h : device->wide,
    };
    walk->product[op->op.to] = (struct cuda_product){
        .sums = call.sums,
        .type = matrix->form == DEVICE_INT8 ? CUDA_SUMS_INT32 : CUDA_SUMS_BF16,
        .stride = matrix->rows_padded,
        .row_scale = matrix->scales ? walk->prepared.scale : NULL,
        .column_scale = matrix->scales,
        .bias = op->op.bias,
    };
    enum err err = weights_ready(walk->device, op->op.matrix, &call.weights, error);
    if (err != OK || walk->is_replayed) return err; /* the graph has the product */
    return cuda_multiply(device->products, &call, device->compute, error);
}

static enum err walk_heads(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct device *device = walk->device;
    const struct device_program *program = &device->program;
    const struct card_place *place = &device->places[op->op.kv_place];
    const struct cuda_heads call = {
        .in = walk->product[TO_WIDE],
        .rows = walk->rows,
        .heads = program->heads,
        .kv_heads = program->kv_heads,
        .head_dim = program->head_dim,
        .q_norm = op->op.q_norm,
        .k_norm = op->op.k_norm,
        .epsilon = program->eps,
        .cosines = device->cosines[op->op.rope],
        .sines = device->sines[op->op.rope],
        .positions = walk->flight->step.positions,
        .rotary_dim = program->head_dim,
        .q = walk->q,
        .q_stride = (size_t)program->heads * program->head_dim,
        .k = place->k,
        .v = place->v,
        .kv_scales = place->scales,
        .slots = walk->flight->step.groups[op->op.kv_group].slots,
    };
    return cuda_heads(&call, device->compute, error);
}

static enum err walk_keep(struct walk *walk, const struct card_op *op, struct error *error) {
    (void)op;
    const struct device *device = walk->device;
    const size_t x_bytes = device->program.width * sizeof(float);
    const size_t q_bytes = (size_t)device->program.heads * device->program.head_dim * 2;
    struct cuda_keep call = {.from = walk->x,
                             .from_bytes = x_bytes,
                             .from_rows = walk->flight->step.wanted,
                             .to = device->x_kept,
                             .row_bytes = x_bytes,
                             .rows = walk->flight->step.wanted_count};
    enum err err = cuda_keep(&call, device->compute, error);
    if (err != OK) return err;
    call.from = walk->q, call.to = device->q_kept;
    call.from_bytes = call.row_bytes = q_bytes;
    walk->x = device->x_kept;
    walk->q = device->q_kept;
    walk->rows = call.rows;
    walk->is_kept = true;
    return cuda_keep(&call, device->compute, error);
}

static struct cuda_attention attention_of(const struct walk *walk, const struct card_op *op,
                                          const struct card_group *group) {
    const struct device *device = walk->device;
    const struct device_program *program = &device->program;
    const struct card_place *place = &device->places[op->op.kv_place];
    const size_t q_width = (size_t)program->heads * program->head_dim;
    const struct card_step *step = &walk->flight->step;
    return (struct cuda_attention){
        .k = place->k,
        .v = place->v,
        .scales = place->scales,
        .type = place->scales ? CUDA_KV_E4M3 : CUDA_KV_BF16,
        .kv_heads = program->kv_heads,
        .head_dim = program->head_dim,
        .head_count = program->heads,
        .scale = op->op.scale,
        .softcap = op->op.softcap,
        .window = op->op.window,
        .q = walk->q,
        .q_stride = q_width,
        .y = device->attended,
        .y_stride = q_width,
        .positions = walk->is_kept ? step->wanted_positions : step->positions,
        .pages = group->pages,
        .partial_o = device->partial_o,
        .partial_ml = device->partial_ml,
    };
}

static enum err run_tiles(const struct walk *walk, const struct cuda_attention *call,
                          const struct card_tiles *tiles, struct error *error) {
    const struct cuda_tile_items items = {
        .items = tiles->items, .item_count = tiles->count, .rows = tiles->rows};
    return cuda_attention_tiles(call, &items, walk->device->compute, error);
}

/* Rows of bf16 in the form of the next product. */
static enum err prepare(struct walk *walk, const struct card_op *op, void *from, uint32_t width,
                        struct error *error) {
    if (device_form_is_bf16(matrix_of(walk, op->op.next)->form)) {
        walk->prepared = (struct cuda_rows){.codes = from, .type = CUDA_BF16, .stride = width};
        return OK;
    }
    const struct cuda_quantise call = {.from = from,
                                       .from_stride = width,
                                       .y = rows_for(walk, op),
                                       .width = width,
                                       .rows = walk->rows};
    return cuda_quantise(&call, walk->device->compute, error);
}

/* All four launches are made, those without items too, which start nothing: a graph has each. */
static enum err walk_attention(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct card_group *group = &walk->flight->step.groups[op->op.kv_group];
    const struct card_attention *work = walk->is_kept ? &group->kept : &group->all;
    const struct cuda_decode_items decode = {.items = work->decode,
                                             .item_count = work->decode_count};
    const struct cuda_merge_items merges = {.items = work->merges, .item_count = work->merge_count};
    struct cuda_attention call = attention_of(walk, op, group);
    struct CUstream_st *stream = walk->device->compute;
    enum err err = run_tiles(walk, &call, &work->prefixes, error);
    call.is_next = work->prefixes.count > 0;
    if (err == OK) err = run_tiles(walk, &call, &work->tiles, error);
    call.is_next |= work->tiles.count > 0;
    if (err == OK) err = cuda_attention_decode(&call, &decode, stream, error);
    if (err == OK) err = cuda_attention_merge(&call, &merges, stream, error);
    if (err != OK) return err;
    return prepare(walk, op, walk->device->attended,
                   walk->device->program.heads * walk->device->program.head_dim, error);
}

static enum err walk_gate(struct walk *walk, const struct card_op *op, struct error *error) {
    if (walk->is_gated) {
        walk->is_gated = false;
        return prepare(walk, op, walk->device->wide, walk->device->program.ffn, error);
    }
    const struct cuda_gate call = {
        .in = walk->product[TO_WIDE],
        .kind = op->op.gate == GATE_SILU ? CUDA_SILU : CUDA_GELU_TANH,
        .y = rows_for(walk, op),
        .width = walk->device->program.ffn,
        .rows = walk->rows,
    };
    return cuda_gate(&call, walk->device->compute, error);
}

static enum err walk_logits(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct device *device = walk->device;
    const struct card_matrix *matrix = matrix_of(walk, op->op.matrix);
    struct cuda_multiply call = {
        .format = format_of(matrix->form, true),
        .outputs = matrix->rows_padded,
        .inputs = matrix->cols,
        .rows = walk->rows,
        .in = walk->prepared.codes,
        .sums = walk->flight->logits,
    };
    walk->flight->row_scale = matrix->scales ? walk->prepared.scale : NULL;
    enum err err = weights_ready(walk->device, op->op.matrix, &call.weights, error);
    return err != OK ? err : cuda_multiply(device->products, &call, device->compute, error);
}

void walk_begin(struct walk *walk, struct device *device, struct flight *flight) {
    *walk = (struct walk){.device = device,
                          .flight = flight,
                          .rows = flight->step.row_count,
                          .x = device->x,
                          .q = device->q};
}

enum err walk_op(struct walk *walk, const struct card_op *op, struct error *error) {
    static enum err (*const run[OP_KINDS])(struct walk *, const struct card_op *,
                                           struct error *) = {
        [OP_EMBED] = walk_embed, [OP_NORM] = walk_norm,     [OP_MATMUL] = walk_matmul,
        [OP_HEADS] = walk_heads, [OP_KEEP] = walk_keep,     [OP_ATTENTION] = walk_attention,
        [OP_GATE] = walk_gate,   [OP_LOGITS] = walk_logits,
    };
    if (walk->rows == 0) return OK;
    return run[op->op.kind](walk, op, error);
}

/* Fills *ret_name with what the operation is: "operation 3 (heads of layer 0)". A layer ends with the
 * product behind its gate; before the first and behind the last layer there is none. */
static void name_op(const struct device *device, uint32_t index, char ret_name[NAME_BYTES]) {
    const struct card_op *ops = device->ops;
    const char *name = names[ops[index].op.kind];
    uint32_t layer = 0, layers = 0;
    for (uint32_t i = 0; i < device->program.op_count; i++) {
        layers += ops[i].op.kind == OP_GATE;
        layer += i > 0 && i < index && ops[i - 1].op.kind == OP_GATE;
    }
    if (ops[index].op.kind == OP_EMBED || layer == layers)
        (void)snprintf(ret_name, NAME_BYTES, "operation %u (%s)", index, name);
    else
        (void)snprintf(ret_name, NAME_BYTES, "operation %u (%s of layer %u)", index, name, layer);
}

enum err walk_ops(struct walk *walk, uint32_t first, uint32_t end, struct error *error) {
    const struct device *device = walk->device;
    const struct flight *flight = walk->flight;
    char name[NAME_BYTES];
    for (uint32_t i = first; i < end; i++) {
        enum err err = walk_op(walk, &device->ops[i], error);
        cudaError_t code = cudaSuccess;
        if (err == OK && flight->op_ended)
            code = cudaEventRecord(flight->op_ended[i], device->compute);
        if (err == OK && code == cudaSuccess && flight->is_careful)
            code = cudaStreamSynchronize(device->compute);
        if (err == OK && code == cudaSuccess) continue;
        name_op(device, i, name);
        return err != OK ? err_prefix(error, "%s", name) : card_error(code, error, "%s", name);
    }
    return OK;
}

enum err walk_all(struct device *device, struct flight *flight, struct error *error) {
    struct walk walk;
    walk_begin(&walk, device, flight);
    return walk_ops(&walk, 0, device->program.op_count, error);
}

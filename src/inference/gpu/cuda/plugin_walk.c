/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_walk.h"

#include "gpu/cuda/plugin_texts.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

#define NAME_BYTES 64u /* limit for the name of an operation in a sentence */
#define RANK_BYTES 24u

static const char *const names[OP_KINDS] = {
    [OP_EMBED] = "embed",
    [OP_NORM] = "norm",
    [OP_MATMUL] = "product",
    [OP_HEADS] = "heads",
    [OP_KEEP] = "keep",
    [OP_ATTENTION] = "attention",
    [OP_GATE] = "gate",
    [OP_LOGITS] = "logits",
    [OP_ROUTE] = "route",
    [OP_EXPERTS] = "experts",
    [OP_PREPARE] = "prepare",
    [OP_CONV] = "convolution",
    [OP_DELTA] = "delta",
    [OP_GATED_NORM] = "gated norm",
    [OP_INPUTS] = "inputs",
    [OP_ASIDE] = "aside",
    [OP_JOIN] = "join",
    [OP_MAMBA] = "mamba",
    [OP_LATENT_ENTRY] = "latent entry",
    [OP_LATENT_Q] = "queries",
    [OP_LATENT] = "latent attention",
    [OP_LATENT_OUT] = "values of heads",
    [OP_ADD] = "sum",
    [OP_POOL] = "pool",
};

static enum err walk_embed(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct cuda_embed call = {
        .table = (const uint16_t *)(const void *)matrix_of(walk, op->op.matrix)->codes,
        .tokens = walk->flight->step.tokens,
        .last_token = walk_last_token(gpu),
        .scale = op->op.scale,
        .positions = op->op.positions,
        .places = walk->flight->step.places,
        .x = walk->x,
        .x_stride = gpu->program.width,
        .width = gpu->program.width,
        .rows = walk->rows,
    };
    const struct card_matrix *table = matrix_of(walk, op->op.matrix);
    const struct cuda_grouped_embed codes = {
        {table->grouping, table->rows, table->cols, table->codes}, call};
    enum err err = table->grouping == GROUPED_NOT ? cuda_embed(&call, gpu->compute, error)
                                                  : cuda_grouped_embed(&codes, gpu->compute, error);
    if (err != OK || op->op.next == GPU_NONE) return err;
    const struct cuda_norm bare = {
        .x = walk->x,
        .x_stride = gpu->program.width,
        .weight = op->weight,
        .y = walk_rows_for(walk, op),
        .width = gpu->program.width,
        .rows = walk->rows,
        .is_bare = true,
    };
    return cuda_norm(&bare, gpu->compute, error);
}

static enum err walk_norm(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    if (op->op.is_layer_norm) return walk_layer_norm(walk, op, error);
    struct cuda_norm call = {
        .x = walk->x,
        .x_stride = gpu->program.width,
        .post = op->op.add == ADD_NORMED_H ? op->op.post : NULL,
        .x_scale = op->op.x_scale != 0 ? op->op.x_scale : 1,
        .weight = op->weight,
        .width = gpu->program.width,
        .rows = walk->rows,
        .epsilon = gpu->program.eps,
        .is_bare = op->is_bare,
    };
    if (op->op.add != ADD_NOTHING) call.h = walk->product[TO_H];
    call.y = walk->normed = walk_rows_for(walk, op);
    if (op->part > 0) return walk_sum(walk, op, &call, error);
    return cuda_norm(&call, gpu->compute, error);
}

bool walk_is_scaled(const struct gpu *gpu, const struct card_op *op, uint32_t rows,
                    enum cuda_ending *ret_ending) {
    const struct card_op *end = gpu->ops + gpu->program.op_count;
    const struct card_matrix *matrix = &gpu->matrices[op->op.matrix];
    const bool is_gated = op + 1 < end && op[1].op.kind == OP_GATE && !op->op.bias &&
                          op[1].op.gate <= GATE_GELU_TANH && op[1].op.gate_factor == 0 &&
                          matrix->rows == 2 * op[1].op.width && matrix->rows == matrix->rows_padded;
    *ret_ending = !is_gated                    ? CUDA_END_SCALED
                  : op[1].op.gate == GATE_SILU ? CUDA_END_SILU
                                               : CUDA_END_GELU_TANH;
    return op->op.kind == OP_MATMUL && matrix->form == GPU_INT8 &&
           cuda_scaled_pays(*ret_ending, matrix->rows_padded, row_bucket(rows));
}

void *product_buffer(const struct gpu *gpu, enum op_to to) {
    switch (to) {
    case TO_H: return gpu->h;
    case TO_NARROW: return gpu->narrow;
    case TO_SHARED: return gpu->experts.shared;
    case TO_WIDE:
    case TO_INPUTS:   /* before the first layer */
    case TO_X: break; /* program_check refuses it */
    }
    return gpu->wide;
}

void *product_place(const struct gpu *gpu, const struct card_op *op) {
    return op->part > 0 ? gpu->parts[part_buffer(op->part)] : product_buffer(gpu, op->op.to);
}

void *sums_place(const struct gpu *gpu, const struct card_op *op, bool has_scales) {
    return op->part > 0 && (has_scales || gpu->is_apart) ? product_buffer(gpu, op->op.to)
                                                         : product_place(gpu, op);
}

/* Makes the part of a product that does not lie where it belongs. */
static enum err finish_part(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct cuda_product *product = &walk->product[op->op.to];
    if (op->part == 0 || product->sums == product_place(walk->gpu, op)) return OK;
    return walk_part(walk, op, product, error);
}

/* A product that leaves bf16: of gate and up with the activation in it, of others the scaled sums.
 */
static enum err walk_scaled(struct walk *walk, const struct card_op *op, enum cuda_ending ending,
                            struct error *error) {
    const struct gpu *gpu = walk->gpu;
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
        .y = sums_place(gpu, op, false),
    };
    walk->is_gated = ending != CUDA_END_SCALED;
    if (!walk->is_gated)
        walk->product[op->op.to] = (struct cuda_product){.sums = call.y,
                                                         .type = CUDA_SUMS_BF16,
                                                         .stride = matrix->rows_padded,
                                                         .bias = op->op.bias};
    enum err err = cuda_scaled(&call, gpu->compute, error);
    return err == OK && !walk->is_gated ? finish_part(walk, op, error) : err;
}

static enum err multiply(struct walk *walk, const struct card_op *op, void *sums,
                         struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct card_matrix *matrix = matrix_of(walk, op->op.matrix);
    struct cuda_multiply call = {
        .format = format_of(matrix->form, matrix->is_router),
        .outputs = matrix->rows_padded,
        .inputs = matrix->cols,
        .rows = walk->rows,
        .in = walk->prepared.codes,
        .sums = sums,
    };
    const enum grouped_way way = matrix_way(gpu, matrix, walk->rows);
    if (way != GROUPED_UNPACKED)
        return walk_grouped(walk, matrix, way, call.sums, matrix->rows_padded, error);
    enum err err = weights_ready(walk->gpu, op->op.matrix, &call.weights, error);
    if (err != OK || walk->is_replayed) return err; /* the graph has the product */
    return cuda_multiply(gpu->products, &call, gpu->compute, error);
}

static enum err walk_matmul(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct card_matrix *matrix = matrix_of(walk, op->op.matrix);
    enum cuda_ending ending;
    if (walk_is_scaled(gpu, op, walk->rows, &ending)) return walk_scaled(walk, op, ending, error);
    void *sums = sums_place(gpu, op, matrix->scales);
    walk->product[op->op.to] = (struct cuda_product){
        .sums = sums,
        .type = matrix->form == GPU_INT8 ? CUDA_SUMS_INT32 : CUDA_SUMS_BF16,
        .stride = matrix->rows_padded,
        .row_scale = matrix->scales ? walk->prepared.scale : NULL,
        .column_scale = matrix->scales,
        .bias = op->op.bias,
    };
    enum err err = multiply(walk, op, sums, error);
    return err == OK ? finish_part(walk, op, error) : err;
}

/* Without `attended` the operation behind it is the attention that reads the queries. */
static enum err walk_keep(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const size_t x_bytes = gpu->program.width * sizeof(float);
    const size_t q_bytes = (op->op.attended > 0 ? op->op.attended : walk_q_width(gpu, op + 1)) * 2;
    struct cuda_keep call = {.from = walk->x,
                             .from_bytes = x_bytes,
                             .from_rows = walk->flight->step.wanted,
                             .to = gpu->x_kept,
                             .row_bytes = x_bytes,
                             .rows = walk->flight->step.wanted_count};
    enum err err = cuda_keep(&call, gpu->compute, error);
    if (err != OK) return err;
    const bool has_q = op[1].op.kind != OP_LATENT_Q; /* which reads the rows of wide */
    call.from = op->op.attended > 0 ? walk->attended : walk->q, call.to = gpu->q_kept;
    call.from_bytes = call.row_bytes = q_bytes;
    walk->x = gpu->x_kept;
    if (op->op.attended > 0)
        walk->attended = gpu->q_kept;
    else
        walk->q = gpu->q_kept;
    walk->kept_rows = call.from_rows;
    walk->rows = call.rows;
    walk->is_kept = true;
    return has_q ? cuda_keep(&call, gpu->compute, error) : OK;
}

static enum err walk_gate(struct walk *walk, const struct card_op *op, struct error *error) {
    if (op->op.gates_inputs) return walk_gate_inputs(walk, op, error);
    if (walk->is_gated) {
        walk->is_gated = false;
        return walk_prepare_rows(walk, op, walk->gpu->wide, op->op.width, error);
    }
    if (op->op.gate == GATE_GELU || op->op.gate == GATE_GELU_ALONE)
        return walk_gelu(walk, op, error);
    const struct cuda_gate call = {
        .in = walk->product[TO_WIDE],
        .kind = op->op.gate == GATE_SILU    ? CUDA_SILU
                : op->op.gate == GATE_RELU2 ? CUDA_RELU2
                                            : CUDA_GELU_TANH,
        .factor = op->op.gate_factor,
        .y = walk_rows_for(walk, op),
        .width = op->op.width,
        .rows = walk->rows,
    };
    return cuda_gate(&call, walk->gpu->compute, error);
}

static enum err walk_logits(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
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
    enum err err = weights_ready(walk->gpu, op->op.matrix, &call.weights, error);
    return err != OK ? err : cuda_multiply(gpu->products, &call, gpu->compute, error);
}

void walk_begin(struct walk *walk, struct gpu *gpu, struct flight *flight) {
    *walk = (struct walk){
        .gpu = gpu,
        .flight = flight,
        .rows = flight->step.row_count,
        .x = gpu->x,
        .q = gpu->q,
        .attended = gpu->attended,
    };
}

enum err walk_op(struct walk *walk, const struct card_op *op, struct error *error) {
    static enum err (*const run[OP_KINDS])(struct walk *, const struct card_op *,
                                           struct error *) = {
        [OP_EMBED] = walk_embed,       [OP_NORM] = walk_norm,
        [OP_MATMUL] = walk_matmul,     [OP_HEADS] = walk_heads,
        [OP_KEEP] = walk_keep,         [OP_ATTENTION] = walk_attention,
        [OP_GATE] = walk_gate,         [OP_LOGITS] = walk_logits,
        [OP_ROUTE] = walk_route,       [OP_EXPERTS] = walk_experts,
        [OP_PREPARE] = walk_prepare,   [OP_CONV] = walk_conv,
        [OP_DELTA] = walk_delta,       [OP_GATED_NORM] = walk_gated_norm,
        [OP_INPUTS] = walk_inputs,     [OP_ASIDE] = walk_side,
        [OP_JOIN] = walk_side,         [OP_MAMBA] = walk_mamba,
        [OP_ADD] = walk_add,           [OP_POOL] = walk_pool,
        [OP_LATENT] = walk_latent,     [OP_LATENT_ENTRY] = walk_latent_entry,
        [OP_LATENT_Q] = walk_latent_q, [OP_LATENT_OUT] = walk_latent_out,
    };
    return walk->rows > 0 ? run[op->op.kind](walk, op, error) : OK;
}

/* Before the first and behind the last layer. */
static bool is_outside(const struct card_op *ops, uint32_t index, uint32_t count) {
    const struct gpu_op *op = &ops[index].op;
    return op->kind == OP_EMBED || op->kind == OP_INPUTS || op->kind == OP_LOGITS ||
           (op->kind == OP_MATMUL && op->to == TO_INPUTS) ||
           (index + 1 < count && ops[index + 1].op.kind == OP_LOGITS);
}

/* Fills *ret_name with what the operation is: "operation 3 (heads of layer 0)". */
static void name_op(const struct gpu *gpu, uint32_t index, char ret_name[NAME_BYTES]) {
    const struct gpu_op *op = &gpu->ops[index].op;
    const char *name = names[op->kind];
    if (is_outside(gpu->ops, index, gpu->program.op_count))
        (void)snprintf(ret_name, NAME_BYTES, "operation %u (%s)", index, name);
    else
        (void)snprintf(ret_name, NAME_BYTES, "operation %u (%s of layer %u)", index, name,
                       op->layer);
}

/* An error of operation `index`, with its name. `code` counts when there is no other. */
static enum err walk_error(const struct walk *walk, uint32_t index, enum err err, cudaError_t code,
                           struct error *error) {
    char name[NAME_BYTES], of_rank[RANK_BYTES] = "";
    const struct gpu *gpu = walk->gpu;
    if (gpu->rank_count > 1) (void)snprintf(of_rank, sizeof of_rank, "GPU %u: ", gpu->index);
    name_op(gpu, index, name);
    return err != OK ? err_prefix(error, "%s%s", of_rank, name)
                     : card_error(code, error, "%s%s", of_rank, name);
}

/* Records that an operation of which all ranks have begun theirs has ended. */
static cudaError_t walk_record(const struct walk *walk, uint32_t index) {
    const struct flight *flight = walk->flight;
    if (!flight->op_ended) return cudaSuccess;
    rank_use(walk->gpu);
    return cudaEventRecord(flight->op_ended[index], walk->gpu->compute);
}

/* In a careful step the host waits behind each operation. */
static enum err walk_settle(struct walk *walks, uint32_t count, uint32_t index,
                            struct error *error) {
    struct gpu *failed;
    uint32_t which = 0;
    if (count == 0 || !walks[0].flight->is_careful) return OK;
    const cudaError_t code = (cudaError_t)ranks_settle(walks[0].gpu->ranks[0], &failed);
    if (code == cudaSuccess) return OK;
    while (which + 1 < count && walks[which].gpu != failed) which++;
    return walk_error(&walks[which], index, OK, code, error);
}

typedef enum err walk_turn(struct walk *walk, const struct card_op *op, struct error *error);

/* One turn of all ranks. */
static enum err walk_ranks(struct walk *walks, uint32_t count, uint32_t index, walk_turn *turn,
                           struct error *error) {
    for (uint32_t k = 0; k < count && index < walks[k].gpu->program.op_count; k++) {
        rank_use(walks[k].gpu);
        enum err err = turn(&walks[k], &walks[k].gpu->ops[index], error);
        if (err != OK) return walk_error(&walks[k], index, err, cudaSuccess, error);
    }
    return OK;
}

/* A rank's kernel may wait for those of other ranks, so none is waited for before all have begun.
 * That goes for launches as well: the first one of a kernel loads its code, for which the driver
 * may wait until the GPU has nothing to do. So the totals of all ranks are enqueued before what
 * reads them. */
enum err walk_ops(struct walk *walks, uint32_t count, uint32_t first, uint32_t end,
                  struct error *error) {
    for (uint32_t i = first; i < end; i++) {
        enum err err = walk_ranks(walks, count, i, walk_total, error);
        if (err == OK) err = walk_ranks(walks, count, i, walk_op, error);
        if (err != OK) return err;
        for (uint32_t k = 0; k < count && i < walks[k].gpu->program.op_count; k++) {
            cudaError_t code = walk_record(&walks[k], i);
            if (code != cudaSuccess) return walk_error(&walks[k], i, OK, code, error);
        }
        err = walk_settle(walks, count, i, error);
        if (err != OK) return err;
    }
    return OK;
}

uint32_t walks_begin(struct walk walks[GPU_RANKS_MAX], struct gpu *lead, struct flight *flight) {
    for (uint32_t i = 0; i < lead->rank_count; i++)
        walk_begin(&walks[i], lead->ranks[i], rank_flight(lead->ranks[i], flight));
    return lead->rank_count;
}

enum err walk_all(struct gpu *lead, struct flight *flight, struct error *error) {
    struct walk walks[GPU_RANKS_MAX];
    const uint32_t count = walks_begin(walks, lead, flight);
    return walk_ops(walks, count, 0, lead->program.op_count, error);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_shard.h"

#include "gpu/gpu_pieces.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "--tensor-parallel-size"
#define UNREAD_ROWS 16u /* rows of a head that a rank does not have: outputs come in multiples */
#define INPUTS_MULTIPLE 16u /* inputs of a product */
#define VECTORS_PER_OP 6u   /* at most: those of a state */

struct maker {
    struct gpu_shard *shard;
    const struct gpu_program *whole;
    struct gpu_matrix *matrices; /* the shard's */
    struct gpu_op *ops;
    uint32_t rank, ranks;
    struct gpu_rank of;  /* the same */
    bool has_no_numbers; /* vectors are not read */
    struct error *error;
};

static enum err refuse(const struct maker *maker, const char *why) {
    return err_set(maker->error, ERR_INVALID, OPTION " %u: %s: run without it", maker->ranks, why);
}

/* ---- sizes ---- */

static enum err check_heads(const struct maker *maker, const struct gpu_op *op) {
    const uint32_t kv_heads = gpu_kv_heads(maker->whole, op);
    if (!gpu_rank_divides(&maker->of, maker->whole->heads))
        return err_set(maker->error, ERR_INVALID,
                       OPTION " %u: the model's %u heads do not divide by it", maker->ranks,
                       maker->whole->heads);
    if (gpu_rank_divides(&maker->of, kv_heads) || (kv_heads > 0 && maker->ranks % kv_heads == 0))
        return OK;
    return err_set(maker->error, ERR_INVALID,
                   OPTION " %u: the %u KV heads of layer %u neither divide by it nor divide it",
                   maker->ranks, kv_heads, op->layer);
}

/* The heads of a state, or the channels where it has none. */
static enum err check_state(const struct maker *maker, const struct gpu_op *op) {
    const struct gpu_recurrent_sizes *sizes = &maker->whole->recurrent;
    const uint32_t groups = sizes->key_heads;
    const bool is_held = sizes->is_mamba && !op->recurrent.norm && groups > 0 &&
                         maker->ranks % groups == 0; /* a norm is over a whole group */
    if (groups == 0 && gpu_rank_divides(&maker->of, sizes->channels)) return OK;
    if (groups > 0 && gpu_rank_divides(&maker->of, sizes->value_heads) &&
        (gpu_rank_divides(&maker->of, groups) || is_held))
        return OK;
    return err_set(maker->error, ERR_INVALID,
                   OPTION " %u: a state of %u heads in %u groups, or of %u channels, does not "
                          "divide by it",
                   maker->ranks, sizes->value_heads, groups, sizes->channels);
}

static enum err check_ffn(const struct maker *maker, uint32_t ffn, uint32_t layer) {
    if (gpu_rank_divides(&maker->of, ffn) && ffn / maker->ranks % INPUTS_MULTIPLE == 0) return OK;
    return err_set(maker->error, ERR_INVALID,
                   OPTION " %u: the feed-forward of layer %u has a width of %u, which does not "
                          "divide into multiples of %u",
                   maker->ranks, layer, ffn, INPUTS_MULTIPLE);
}

/* ---- matrices ---- */

static struct gpu_split *split_of(const struct maker *maker, uint32_t matrix) {
    assert(matrix < maker->whole->matrix_count);
    return &maker->shard->splits[matrix];
}

static enum err refuse_parts(const struct maker *maker) {
    return refuse(maker, "weights of fewer than 8 bits do not divide into blocks, or into too many "
                         "parts");
}

/* The parts of a rank's rows that stay as they are: one for each run that the loader brings. */
static enum err cut_parts(const struct maker *maker, uint32_t matrix) {
    const struct gpu_matrix *whole = &maker->whole->matrices[matrix];
    const struct gpu_split *split = split_of(maker, matrix);
    struct gpu_matrix *own = &maker->matrices[matrix];
    uint32_t first = 0;
    if (whole->part_count == 0) return refuse_parts(maker);
    own->part_count = 0, own->block_bytes = 0;
    for (uint32_t i = 0; i < whole->part_count; first += whole->parts[i++].rows) {
        const uint32_t end = first + whole->parts[i].rows;
        struct gpu_piece run = {.first = first};
        while (gpu_split_next(split, run.first + run.rows, end, &run)) {
            if (own->part_count == GPU_BLOCK_PARTS_MAX) return refuse_parts(maker);
            own->parts[own->part_count++] = (struct gpu_block_part){whole->parts[i].type, run.rows};
            own->block_bytes += grouping_part_bytes(whole->parts[i].type, run.rows, own->cols);
        }
    }
    return OK;
}

/* What a rank has of a matrix in GPU_BLOCKS, whose rows and columns are set. */
static enum err cut_blocks(const struct maker *maker, uint32_t matrix) {
    const struct gpu_split *split = split_of(maker, matrix);
    struct gpu_matrix *own = &maker->matrices[matrix];
    if (own->form != GPU_BLOCKS) return OK;
    for (uint32_t i = 0; i < own->part_count && split->kind == GPU_SPLIT_INPUTS; i++)
        for (uint32_t k = 0; k < split->piece_count; k++) {
            const uint32_t each = tensor_type_block_elements(own->parts[i].type);
            const bool is_grouped = grouping_of(own->parts[i].type) != GROUPED_NOT;
            const struct gpu_piece *piece = &split->pieces[k];
            if (piece->first % each != 0 || piece->rows % each != 0 ||
                (is_grouped && piece->rows % GROUPED_INPUTS != 0))
                return refuse_parts(maker);
        }
    if (own->grouping == GROUPED_NOT) return cut_parts(maker, matrix);
    if (own->rows / split->repeats % GROUPED_LINES != 0) return refuse_parts(maker);
    own->block_bytes = grouped_bytes(own->grouping, own->rows, own->cols);
    return OK;
}

static enum err set_rows(const struct maker *maker, uint32_t matrix) {
    const struct gpu_split *split = split_of(maker, matrix);
    assert(split->whole * split->repeats == maker->whole->matrices[matrix].rows);
    maker->matrices[matrix].rows = split->own * split->repeats;
    return cut_blocks(maker, matrix);
}

/* The product of queries, keys and values, and perhaps of gates of the queries. */
static enum err split_heads(const struct maker *maker, const struct gpu_op *product,
                            const struct gpu_op *heads) {
    const uint32_t dim = gpu_head_dim(maker->whole, heads);
    const uint32_t kv_heads = gpu_kv_heads(maker->whole, heads);
    const uint32_t q_rows = maker->whole->heads * dim, kv_rows = kv_heads * dim;
    struct gpu_split *split = split_of(maker, product->matrix);
    *split = (struct gpu_split){.kind = GPU_SPLIT_OUTPUTS, .repeats = 1};
    gpu_split_add_even(&maker->of, split, q_rows);
    for (int i = 0; i < 2 && !heads->is_query_only; i++)
        gpu_split_add(split, gpu_rank_first_head(&maker->of, kv_heads) * dim,
                      gpu_rank_heads(&maker->of, kv_heads) * dim, kv_rows);
    if (split->whole < maker->whole->matrices[product->matrix].rows)
        gpu_split_add_even(&maker->of, split, q_rows);
    return set_rows(maker, product->matrix);
}

/* The product that a convolution reads. */
static enum err split_state_in(const struct maker *maker, uint32_t matrix) {
    struct gpu_split *split = split_of(maker, matrix);
    const struct gpu_recurrent_sizes *sizes = &maker->whole->recurrent;
    *split = (struct gpu_split){.kind = GPU_SPLIT_OUTPUTS, .repeats = 1};
    gpu_split_add_channels(&maker->of, split);
    for (int i = 0; i < 2 && sizes->key_heads == 0; i++) gpu_split_add_channels(&maker->of, split);
    if (sizes->key_heads > 0) gpu_split_add_value_heads(&maker->of, split, sizes->value_dim);
    return set_rows(maker, matrix);
}

/* The rates of value heads. */
static enum err split_rates(const struct maker *maker, uint32_t matrix) {
    const struct gpu_recurrent_sizes *sizes = &maker->whole->recurrent;
    struct gpu_split *split = split_of(maker, matrix);
    *split = (struct gpu_split){.kind = GPU_SPLIT_OUTPUTS, .repeats = 1};
    for (uint32_t i = 0; i < gpu_state_rates(sizes) / sizes->value_heads; i++)
        gpu_split_add_value_heads(&maker->of, split, 1);
    return set_rows(maker, matrix);
}

/* Gate and up, or the one half that there is, of each of `repeats` feed-forwards. */
static enum err split_gate_up(const struct maker *maker, uint32_t matrix, uint32_t ffn,
                              uint32_t repeats, uint32_t layer) {
    struct gpu_split *split = split_of(maker, matrix);
    const uint32_t halves = maker->whole->matrices[matrix].rows / repeats / ffn;
    enum err err = check_ffn(maker, ffn, layer);
    if (err != OK) return err;
    *split = (struct gpu_split){.kind = GPU_SPLIT_OUTPUTS, .repeats = repeats};
    for (uint32_t i = 0; i < halves; i++) gpu_split_add_even(&maker->of, split, ffn);
    return set_rows(maker, matrix);
}

/* A matrix whose product is a part; with `has_states` it reads what states leave. */
static enum err split_inputs(const struct maker *maker, uint32_t matrix, bool has_states) {
    const struct gpu_recurrent_sizes *sizes = &maker->whole->recurrent;
    const struct gpu_matrix *from = &maker->whole->matrices[matrix];
    struct gpu_split *split = split_of(maker, matrix);
    const uint32_t own = from->cols / maker->ranks;
    if (own * maker->ranks != from->cols || own % INPUTS_MULTIPLE != 0)
        return err_set(maker->error, ERR_INVALID,
                       OPTION " %u: a product of %u inputs does not divide into multiples of %u",
                       maker->ranks, from->cols, INPUTS_MULTIPLE);
    *split = (struct gpu_split){.kind = GPU_SPLIT_INPUTS, .repeats = 1};
    if (has_states && sizes->key_heads > 0)
        gpu_split_add_value_heads(&maker->of, split, sizes->value_dim);
    else
        gpu_split_add_even(&maker->of, split, from->cols);
    maker->matrices[matrix].cols = own;
    return cut_blocks(maker, matrix);
}

/* ---- vectors ---- */

/* A vector of the shard's own; NULL without memory. */
static float *take_vector(const struct maker *maker, size_t count) {
    float *vector = calloc(count > 0 ? count : 1, sizeof *vector);
    if (vector) maker->shard->vectors[maker->shard->vector_count++] = vector;
    return vector;
}

/* The numbers of the rank's rows. */
static enum err cut_by(const struct maker *maker, const float **vector,
                       const struct gpu_split *split) {
    const float *from = *vector;
    if (!from || maker->has_no_numbers) return OK;
    float *to = take_vector(maker, (size_t)split->own * split->repeats);
    if (!to) return err_set(maker->error, ERR_LIMIT, "no memory for a program");
    for (size_t k = 0; k < split->repeats; k++)
        for (uint32_t i = 0; i < split->piece_count; i++) {
            const struct gpu_piece *piece = &split->pieces[i];
            memcpy(to + k * split->own + piece->own, from + k * split->whole + piece->first,
                   piece->rows * sizeof *to);
        }
    *vector = to;
    return OK;
}

/* Those of a matrix. */
static enum err cut_rows(const struct maker *maker, const float **vector, uint32_t matrix) {
    return cut_by(maker, vector, split_of(maker, matrix));
}

/* The vectors of a recurrent layer. */
static enum err cut_recurrent(const struct maker *maker, struct gpu_recurrent *vectors) {
    const struct gpu_recurrent_sizes *sizes = &maker->whole->recurrent;
    struct gpu_split channels = {.repeats = 1}, heads = {.repeats = 1}, numbers = {.repeats = 1};
    gpu_split_add_channels(&maker->of, &channels);
    if (sizes->key_heads > 0) gpu_split_add_value_heads(&maker->of, &heads, 1);
    if (sizes->key_heads > 0) gpu_split_add_value_heads(&maker->of, &numbers, sizes->value_dim);
    enum err err = cut_by(maker, &vectors->conv_bias, &channels);
    channels.repeats = sizes->taps;
    if (err == OK) err = cut_by(maker, &vectors->conv, &channels);
    if (err == OK) err = cut_by(maker, &vectors->decay, &heads);
    if (err == OK) err = cut_by(maker, &vectors->step_bias, &heads);
    if (err == OK) err = cut_by(maker, &vectors->skip, &heads);
    if (err == OK && sizes->is_mamba) err = cut_by(maker, &vectors->norm, &numbers);
    return err;
}

static enum err cut_sinks(const struct maker *maker, struct gpu_op *op) {
    const uint32_t own = maker->whole->heads / maker->ranks;
    if (!op->sinks || maker->has_no_numbers) return OK;
    float *to = take_vector(maker, own);
    if (!to) return err_set(maker->error, ERR_LIMIT, "no memory for a program");
    memcpy(to, op->sinks + maker->rank * own, own * sizeof *to);
    op->sinks = to;
    return OK;
}

/* ---- operations ---- */

static const char *refusal_of(const struct gpu_op *op) {
    switch (op->kind) {
    case OP_EMBED: return op->positions ? "encoders are not split over GPUs" : NULL;
    case OP_NORM: return op->is_layer_norm ? "models with LayerNorm are not split over GPUs" : NULL;
    case OP_MATMUL:
    case OP_INPUTS:
    case OP_ASIDE:
    case OP_JOIN:
    case OP_ADD:
    case OP_HEADS:
    case OP_KEEP:
    case OP_ATTENTION:
    case OP_GATE:
    case OP_LOGITS:
    case OP_ROUTE:
    case OP_EXPERTS:
    case OP_CONV:
    case OP_DELTA:
    case OP_MAMBA:
    case OP_PREPARE:
    case OP_GATED_NORM: return NULL;
    case OP_POOL: return "embeddings are not split over GPUs";
    default: return "the model has layers that are not split over GPUs";
    }
}

/* Whether a product is one of rates, which stands before the one that a convolution reads. */
static bool is_rates(const struct maker *maker, uint32_t index) {
    return index + 3 < maker->whole->op_count && maker->whole->ops[index + 3].kind == OP_CONV;
}

static enum err shard_product(const struct maker *maker, uint32_t index) {
    struct gpu_op *own = &maker->ops[index];
    const struct gpu_op *op = &maker->whole->ops[index];
    const struct gpu_op *next = index + 1 < maker->whole->op_count ? op + 1 : op;
    const bool is_of_inputs = op->to == TO_INPUTS ||
                              (next->kind == OP_GATE && next->gates_inputs) ||
                              (index > 0 && op[-1].kind == OP_GATE && op[-1].gates_inputs);
    if (is_of_inputs) return OK;                                   /* the parts of tokens */
    if (next->kind == OP_ROUTE) return OK;                         /* a router */
    if (op->to == TO_NARROW && !is_rates(maker, index)) return OK; /* the factor of an expert */
    if (op->to == TO_NARROW) return split_rates(maker, op->matrix);
    if (next->kind == OP_CONV) return split_state_in(maker, op->matrix);
    if (next->kind == OP_HEADS) return split_heads(maker, op, next);
    if (next->kind == OP_GATE && !next->gates_inputs)
        return split_gate_up(maker, op->matrix, next->width, 1, op->layer);
    if (op->to == TO_H || op->to == TO_SHARED) {
        /* EXPERTS adds the latter to its own part: the lead's has the bias. */
        if (op->to == TO_SHARED && next->kind != OP_ADD && maker->rank > 0) own->bias = NULL;
        const bool has_states = index > 0 && op[-1].kind == OP_GATED_NORM;
        return split_inputs(maker, op->matrix, has_states);
    }
    return refuse(maker, "the model has layers that are not split over GPUs");
}

static enum err shard_experts(const struct maker *maker, struct gpu_op *op) {
    struct gpu_experts *experts = &op->experts;
    enum err err = split_gate_up(maker, experts->gate_up, experts->ffn, experts->count, op->layer);
    if (err == OK) err = split_inputs(maker, experts->down, false);
    if (err == OK) err = cut_rows(maker, &experts->gate_up_bias, experts->gate_up);
    experts->ffn /= maker->ranks;
    if (maker->rank > 0) experts->down_bias = NULL; /* the lead's part has it */
    return err;
}

static enum err shard_op(const struct maker *maker, uint32_t index) {
    struct gpu_op *op = &maker->ops[index];
    const char *why = op->kind == OP_MATMUL ? refusal_of(op) : NULL;
    if (why) return refuse(maker, why);
    enum err err = OK;
    switch (op->kind) {
    case OP_MATMUL:
        err = shard_product(maker, index);
        if (err == OK && split_of(maker, op->matrix)->kind == GPU_SPLIT_OUTPUTS)
            err = cut_rows(maker, &op->bias, op->matrix);
        return err;
    case OP_HEADS:
    case OP_ATTENTION:
        err = check_heads(maker, op);
        if (op->kv_heads > 0) op->kv_heads = gpu_rank_heads(&maker->of, op->kv_heads);
        return err == OK ? cut_sinks(maker, op) : err;
    case OP_GATE: op->width /= op->gates_inputs ? 1 : maker->ranks; return OK;
    case OP_KEEP:
    case OP_PREPARE: op->attended /= maker->ranks; return OK;
    case OP_CONV:
    case OP_DELTA:
    case OP_MAMBA:
    case OP_GATED_NORM: return cut_recurrent(maker, &op->recurrent);
    case OP_ROUTE: op->experts.ffn /= maker->ranks; return OK;
    case OP_EXPERTS: return shard_experts(maker, op);
    default: return OK;
    }
}

/* Before a product is split, its heads are checked, and a kind that cannot be split is told. */
static enum err check_op(const struct maker *maker, const struct gpu_op *op) {
    const char *why = op->kind == OP_MATMUL ? NULL : refusal_of(op);
    if (why) return refuse(maker, why);
    if (op->kind == OP_CONV) return check_state(maker, op);
    return op->kind == OP_HEADS ? check_heads(maker, op) : OK;
}

static enum err shard_ops(const struct maker *maker) {
    enum err err = OK;
    for (uint32_t i = 0; i < maker->whole->op_count && err == OK; i++)
        err = check_op(maker, &maker->whole->ops[i]);
    for (uint32_t i = 0; i < maker->whole->op_count && err == OK; i++) err = shard_op(maker, i);
    return err;
}

static struct gpu_recurrent_sizes own_sizes(const struct maker *maker) {
    struct gpu_recurrent_sizes sizes = maker->whole->recurrent;
    struct gpu_split channels = {.repeats = 1};
    if (sizes.layers == 0) return sizes;
    gpu_split_add_channels(&maker->of, &channels);
    sizes.channels = channels.own;
    sizes.width /= maker->ranks;
    if (sizes.key_heads == 0) {
        sizes.value_dim = sizes.width;
        return sizes;
    }
    sizes.key_heads = gpu_rank_heads(&maker->of, sizes.key_heads);
    sizes.value_heads /= maker->ranks;
    return sizes;
}

/* The most numbers of a token's keys in a layer. */
static uint32_t own_kv_width(const struct maker *maker) {
    const struct gpu_program *own = &maker->shard->program;
    uint32_t most = 0;
    for (uint32_t i = 0; i < own->op_count; i++) {
        const struct gpu_op *op = &own->ops[i];
        const uint32_t width = gpu_kv_heads(own, op) * gpu_head_dim(own, op);
        if (op->kind == OP_ATTENTION && width > most) most = width;
    }
    return most;
}

/* Ranks other than the lead have no logits, and of a head of its own a few rows. */
static void drop_head(const struct maker *maker) {
    struct gpu_program *own = &maker->shard->program;
    const struct gpu_op *last = &maker->whole->ops[own->op_count - 1];
    bool is_looked_up = false;
    if (maker->rank == 0 || last->kind != OP_LOGITS) return;
    for (uint32_t i = 0; i + 1 < own->op_count; i++)
        is_looked_up |=
            maker->whole->ops[i].kind == OP_EMBED && maker->whole->ops[i].matrix == last->matrix;
    own->op_count--;
    own->vocab_rows = own->vocab = UNREAD_ROWS;
    if (is_looked_up) return;
    split_of(maker, last->matrix)->kind = GPU_SPLIT_LEAD;
    maker->matrices[last->matrix].rows = UNREAD_ROWS;
}

static enum err take_arrays(struct maker *maker) {
    const struct gpu_program *whole = maker->whole;
    struct gpu_shard *shard = maker->shard;
    *shard = (struct gpu_shard){.program = *whole};
    maker->matrices = calloc(whole->matrix_count, sizeof *maker->matrices);
    maker->ops = calloc(whole->op_count, sizeof *maker->ops);
    shard->splits = calloc(whole->matrix_count, sizeof *shard->splits);
    shard->vectors = calloc((size_t)whole->op_count * VECTORS_PER_OP, sizeof *shard->vectors);
    shard->program.matrices = maker->matrices;
    shard->program.ops = maker->ops;
    if (!maker->matrices || !maker->ops || !shard->splits || !shard->vectors)
        return err_set(maker->error, ERR_LIMIT, "no memory for a program");
    memcpy(maker->matrices, whole->matrices, whole->matrix_count * sizeof *maker->matrices);
    memcpy(maker->ops, whole->ops, whole->op_count * sizeof *maker->ops);
    for (uint32_t i = 0; i < whole->matrix_count; i++) {
        const uint32_t rows = whole->matrices[i].rows;
        shard->splits[i] = (struct gpu_split){.repeats = 1};
        gpu_split_add(&shard->splits[i], 0, rows, rows);
    }
    return OK;
}

static enum err make(struct maker *maker) {
    struct gpu_shard *shard = maker->shard;
    assert(maker->ranks >= 2 && maker->ranks <= GPU_RANKS_MAX && maker->rank < maker->ranks);
    maker->of = (struct gpu_rank){maker->whole, maker->rank, maker->ranks};
    *shard = (struct gpu_shard){0};
    if (maker->whole->latent.rank > 0)
        return refuse(maker, "latent attention is computed by one GPU so far");
    enum err err = take_arrays(maker);
    if (err == OK) err = shard_ops(maker);
    if (err != OK) {
        gpu_shard_release(shard);
        return err;
    }
    struct gpu_program *own = &shard->program;
    own->ranks = maker->ranks;
    own->heads /= maker->ranks;
    own->kv_heads = gpu_rank_heads(&maker->of, own->kv_heads);
    own->ffn /= maker->ranks;
    own->kv_width = own_kv_width(maker);
    own->recurrent = own_sizes(maker);
    drop_head(maker);
    return OK;
}

enum err gpu_shard_of(struct gpu_shard *ret_shard, const struct gpu_program *program, uint32_t rank,
                      uint32_t ranks, struct error *error) {
    struct maker maker = {
        .shard = ret_shard, .whole = program, .rank = rank, .ranks = ranks, .error = error};
    return make(&maker);
}

enum err gpu_shard_sizes(struct gpu_shard *ret_shard, const struct gpu_program *program,
                         uint32_t rank, uint32_t ranks, struct error *error) {
    struct maker maker = {.shard = ret_shard,
                          .whole = program,
                          .rank = rank,
                          .ranks = ranks,
                          .has_no_numbers = true,
                          .error = error};
    return make(&maker);
}

void gpu_shard_release(struct gpu_shard *shard) {
    for (uint32_t i = 0; i < shard->vector_count; i++) free(shard->vectors[i]);
    free(shard->vectors);
    free(shard->splits);
    free((void *)(uintptr_t)shard->program.matrices);
    free((void *)(uintptr_t)shard->program.ops);
    *shard = (struct gpu_shard){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MATRICES_MAX 16u
#define OPS_MAX 20u

/* A model of one layer, whose matrices and vectors have made-up numbers: of matrix m, row r and
 * column c it is all of them, so that a number tells where it came from. */
struct model {
    uint32_t width, heads, kv_heads, head_dim, ffn, experts, vocab;
    bool has_bias, has_sinks, has_output_gate, is_tied, is_ungated;
};

struct whole {
    struct gpu_matrix matrices[MATRICES_MAX];
    struct gpu_op ops[OPS_MAX];
    struct gpu_program program;
    float *vectors[8];
    uint32_t vector_count;
};

static uint32_t add_matrix(struct whole *whole, uint32_t rows, uint32_t cols) {
    assert_true(whole->program.matrix_count < MATRICES_MAX);
    whole->matrices[whole->program.matrix_count] =
        (struct gpu_matrix){.rows = rows, .cols = cols, .form = GPU_BF16};
    return whole->program.matrix_count++;
}

static struct gpu_op *add_op(struct whole *whole, enum op_kind kind) {
    assert_true(whole->program.op_count < OPS_MAX);
    struct gpu_op *op = &whole->ops[whole->program.op_count++];
    *op = (struct gpu_op){.kind = kind, .matrix = GPU_NONE, .next = GPU_NONE};
    return op;
}

/* 0, 1, 2, ... */
static const float *add_vector(struct whole *whole, uint32_t count) {
    float *vector = malloc(count * sizeof *vector);
    assert_non_null(vector);
    for (uint32_t i = 0; i < count; i++) vector[i] = (float)i;
    return whole->vectors[whole->vector_count++] = vector;
}

static struct gpu_op *add_product(struct whole *whole, uint32_t rows, uint32_t cols, enum op_to to,
                                  bool has_bias) {
    struct gpu_op *op = add_op(whole, OP_MATMUL);
    op->matrix = add_matrix(whole, rows, cols);
    op->to = to;
    if (has_bias) op->bias = add_vector(whole, rows);
    return op;
}

static void add_attention(struct whole *whole, const struct model *m) {
    const uint32_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    add_op(whole, OP_NORM);
    add_product(whole, q + 2 * kv + (m->has_output_gate ? q : 0), m->width, TO_WIDE, m->has_bias);
    add_op(whole, OP_HEADS);
    add_op(whole, OP_KEEP);
    struct gpu_op *attention = add_op(whole, OP_ATTENTION);
    attention->is_gated = m->has_output_gate;
    if (m->has_sinks) attention->sinks = add_vector(whole, m->heads);
    add_product(whole, m->width, q, TO_H, m->has_bias);
    add_op(whole, OP_NORM)->add = ADD_H;
}

static void add_feed_forward(struct whole *whole, const struct model *m) {
    if (m->experts == 0) {
        add_product(whole, (m->is_ungated ? 1 : 2) * m->ffn, m->width, TO_WIDE, m->has_bias);
        add_op(whole, OP_GATE)->width = m->ffn;
        add_product(whole, m->width, m->ffn, TO_H, m->has_bias);
        return;
    }
    add_product(whole, m->experts, m->width, TO_WIDE, false);
    struct gpu_experts experts = {.count = m->experts, .used = 1, .ffn = m->ffn};
    add_op(whole, OP_ROUTE)->experts = experts;
    experts.gate_up = add_matrix(whole, m->experts * 2 * m->ffn, m->width);
    experts.down = add_matrix(whole, m->experts * m->width, m->ffn);
    if (m->has_bias) experts.gate_up_bias = add_vector(whole, m->experts * 2 * m->ffn);
    if (m->has_bias) experts.down_bias = add_vector(whole, m->experts * m->width);
    add_op(whole, OP_EXPERTS)->experts = experts;
}

static void make_whole(struct whole *ret_whole, const struct model *m) {
    *ret_whole = (struct whole){.program = {.width = m->width,
                                            .ffn = m->ffn,
                                            .heads = m->heads,
                                            .kv_heads = m->kv_heads,
                                            .head_dim = m->head_dim,
                                            .vocab_rows = m->vocab,
                                            .vocab = m->vocab}};
    struct gpu_op *embed = add_op(ret_whole, OP_EMBED);
    embed->matrix = add_matrix(ret_whole, m->vocab, m->width);
    add_attention(ret_whole, m);
    add_feed_forward(ret_whole, m);
    add_op(ret_whole, OP_NORM)->add = ADD_H;
    add_op(ret_whole, OP_LOGITS)->matrix =
        m->is_tied ? 0 : add_matrix(ret_whole, m->vocab, m->width);
    ret_whole->program.matrices = ret_whole->matrices;
    ret_whole->program.ops = ret_whole->ops;
}

static void release_whole(struct whole *whole) {
    for (uint32_t i = 0; i < whole->vector_count; i++) free(whole->vectors[i]);
}

/* ---- shards put together ---- */

/* How often a number of a matrix is in the shards, and where a shard has its rows. */
struct count {
    uint8_t *of; /* (rows, cols) */
    uint32_t rows, cols;
};

static void count_run(struct count *count, const struct gpu_split *split,
                      const struct gpu_matrix *own, const struct gpu_piece *run) {
    const struct gpu_split all = {.pieces = {{0, 0, count->cols}}, .piece_count = 1};
    const struct gpu_split *columns = split->kind == GPU_SPLIT_INPUTS ? split : &all;
    assert_true(run->own + run->rows <= own->rows);
    assert_int_equal(split->kind == GPU_SPLIT_INPUTS ? split->whole : own->cols, count->cols);
    uint32_t taken = 0; /* columns of the shard, in their order */
    for (uint32_t p = 0; p < columns->piece_count; p++) {
        const struct gpu_piece *piece = &columns->pieces[p];
        assert_int_equal(piece->own, taken);
        taken += piece->rows;
        for (uint32_t i = 0; i < run->rows; i++)
            for (uint32_t k = 0; k < piece->rows; k++)
                count->of[(size_t)(run->first + i) * count->cols + piece->first + k]++;
    }
    assert_int_equal(taken, own->cols);
}

/* The runs of rows begin..end-1 follow each other in the matrix, and in the shard each row has a
 * place of its own; as many places as it has rows. */
static void count_rank(struct count *count, const struct gpu_shard *shard, uint32_t matrix,
                       uint32_t parts) {
    const struct gpu_split *split = &shard->splits[matrix];
    const struct gpu_matrix *own = &shard->program.matrices[matrix];
    uint8_t *is_taken = calloc(own->rows, 1);
    uint32_t taken = 0;
    for (uint32_t part = 0; part < parts; part++) {
        const uint32_t end = count->rows * (part + 1) / parts;
        struct gpu_piece run = {.first = count->rows * part / parts};
        while (gpu_split_next(split, run.first + run.rows, end, &run)) {
            count_run(count, split, own, &run);
            for (uint32_t i = 0; i < run.rows; i++) {
                assert_int_equal(is_taken[run.own + i], 0);
                is_taken[run.own + i] = 1;
            }
            taken += run.rows;
        }
    }
    if (split->kind != GPU_SPLIT_LEAD) assert_int_equal(taken, own->rows);
    free(is_taken);
}

/* How often each number of the whole matrix should be in the shards. */
static uint32_t times_of(const struct model *m, const struct gpu_shard *shards, uint32_t ranks,
                         uint32_t matrix, uint32_t row) {
    const struct gpu_split *split = &shards[0].splits[matrix];
    const uint32_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    const bool is_held = m->kv_heads < ranks && row >= q && row < q + 2 * kv;
    if (shards[ranks - 1].splits[matrix].kind == GPU_SPLIT_LEAD) return 1;
    if (split->kind == GPU_SPLIT_NOT) return ranks;
    if (split->kind == GPU_SPLIT_INPUTS || matrix != 1) return 1;
    return is_held ? ranks / m->kv_heads : 1;
}

static void check_matrices(const struct whole *whole, const struct model *m,
                           const struct gpu_shard *shards, uint32_t ranks, uint32_t parts) {
    for (uint32_t i = 0; i < whole->program.matrix_count; i++) {
        const struct gpu_matrix *matrix = &whole->matrices[i];
        struct count count = {calloc(matrix->rows, matrix->cols), matrix->rows, matrix->cols};
        for (uint32_t rank = 0; rank < ranks; rank++) count_rank(&count, &shards[rank], i, parts);
        for (uint32_t row = 0; row < matrix->rows; row++)
            for (uint32_t k = 0; k < matrix->cols; k++)
                assert_int_equal(count.of[(size_t)row * matrix->cols + k],
                                 times_of(m, shards, ranks, i, row));
        free(count.of);
    }
}

/* A vector that goes with the rows of a matrix: number i of the whole is i. */
static void check_vector(const struct gpu_split *split, const float *own, uint32_t rows) {
    if (split->kind == GPU_SPLIT_INPUTS) { /* all of it */
        for (uint32_t i = 0; i < rows; i++) assert_float_equal(own[i], (float)i, 0);
        return;
    }
    for (uint32_t k = 0; k < split->repeats; k++)
        for (uint32_t i = 0; i < split->piece_count; i++)
            for (uint32_t row = 0; row < split->pieces[i].rows; row++)
                assert_float_equal(own[k * split->own + split->pieces[i].own + row],
                                   (float)(k * split->whole + split->pieces[i].first + row), 0);
}

static void check_ops(const struct whole *whole, const struct model *m,
                      const struct gpu_shard *shard, uint32_t rank, uint32_t ranks) {
    const struct gpu_program *own = &shard->program;
    assert_int_equal(own->op_count, whole->program.op_count - (rank > 0));
    for (uint32_t i = 0; i < own->op_count; i++) {
        const struct gpu_op *op = &own->ops[i];
        assert_int_equal(op->kind, whole->ops[i].kind);
        if (op->kind == OP_GATE) assert_int_equal(op->width, m->ffn / ranks);
        if (op->kind == OP_MATMUL && op->bias)
            check_vector(&shard->splits[op->matrix], op->bias, own->width);
        if (op->sinks) assert_float_equal(op->sinks[0], (float)(rank * (m->heads / ranks)), 0);
        if (op->kind != OP_EXPERTS) continue;
        assert_int_equal(op->experts.ffn, m->ffn / ranks);
        if (op->experts.gate_up_bias)
            check_vector(&shard->splits[op->experts.gate_up], op->experts.gate_up_bias, 0);
        assert_true(!op->experts.down_bias == (rank > 0 || !m->has_bias));
    }
}

static void check_model(const struct model *m, uint32_t ranks) {
    struct whole whole;
    struct gpu_shard shards[GPU_RANKS_MAX];
    struct error error = {0};
    make_whole(&whole, m);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        assert_int_equal(gpu_shard_of(&shards[rank], &whole.program, rank, ranks, &error), OK);
        assert_int_equal(shards[rank].program.heads, m->heads / ranks);
        check_ops(&whole, m, &shards[rank], rank, ranks);
    }
    /* Whatever parts the loader brings. */
    for (uint32_t parts = 1; parts < 8; parts += 3) check_matrices(&whole, m, shards, ranks, parts);
    for (uint32_t rank = 0; rank < ranks; rank++) gpu_shard_release(&shards[rank]);
    release_whole(&whole);
}

static const struct model models[] = {
    {64, 8, 8, 16, 128, .vocab = 40},
    {48, 8, 2, 16, 256, .vocab = 33, .has_bias = true, .has_sinks = true},
    {80, 8, 1, 32, 128, .vocab = 51, .has_output_gate = true, .is_tied = true},
    {64, 24, 8, 16, 384, .vocab = 17, .is_ungated = true, .is_tied = true},
    {64, 8, 4, 16, 128, 5, .vocab = 40, .has_bias = true},
    {96, 16, 8, 8, 256, 3, .vocab = 29},
};

static void test_shards_put_together_are_the_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (uint32_t ranks = 2; ranks <= GPU_RANKS_MAX; ranks *= 2) check_model(&models[i], ranks);
}

static void test_three_gpus_have_thirds(void **state) {
    (void)state;
    check_model(&(struct model){60, 9, 3, 16, 240, .vocab = 41, .has_bias = true}, 3);
    check_model(&(struct model){60, 9, 1, 16, 48, 7, .vocab = 41}, 3);
}

/* q, k and v of types of their own, and the output projection of another. */
static void give_types(struct whole *whole, const struct model *m) {
    static const enum tensor_type types[] = {TENSOR_Q4_0, TENSOR_Q4_0, TENSOR_Q5_0};
    const uint32_t rows[] = {m->heads * m->head_dim, m->kv_heads * m->head_dim,
                             m->kv_heads * m->head_dim};
    struct gpu_matrix *qkv = &whole->matrices[1], *output = &whole->matrices[2];
    qkv->form = output->form = GPU_BLOCKS;
    qkv->part_count = 3, output->part_count = 1;
    for (int i = 0; i < 3; i++) {
        qkv->parts[i] = (struct gpu_block_part){types[i], rows[i]};
        qkv->block_bytes += grouping_part_bytes(types[i], rows[i], qkv->cols);
    }
    output->parts[0] = (struct gpu_block_part){TENSOR_Q4_0, output->rows};
    output->block_bytes = grouping_part_bytes(TENSOR_Q4_0, output->rows, output->cols);
}

static void test_weights_of_four_bits_are_cut_part_by_part(void **state) {
    (void)state;
    const struct model m = {128, 8, 4, 32, 128, .vocab = 40};
    struct whole whole;
    struct error error = {0};
    make_whole(&whole, &m);
    give_types(&whole, &m);
    uint64_t qkv = 0, output = 0;
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct gpu_shard shard;
        assert_int_equal(gpu_shard_of(&shard, &whole.program, rank, 4, &error), OK);
        const struct gpu_matrix *own = &shard.program.matrices[1];
        assert_int_equal(own->part_count, 3);
        assert_true(own->parts[0].rows == 64 && own->parts[2].rows == 32 &&
                    own->parts[2].type == TENSOR_Q5_0);
        qkv += own->block_bytes, output += shard.program.matrices[2].block_bytes;
        gpu_shard_release(&shard);
    }
    assert_int_equal(qkv, whole.matrices[1].block_bytes);
    assert_int_equal(output, whole.matrices[2].block_bytes);
    /* 256 inputs of the projection are blocks of 32, but not of 256. */
    struct gpu_shard shard;
    whole.matrices[2].parts[0].type = TENSOR_Q4_K;
    assert_int_equal(gpu_shard_of(&shard, &whole.program, 0, 4, &error), ERR_INVALID);
    assert_string_equal(error.text, "--tensor-parallel-size 4: weights of fewer than 8 bits do not "
                                    "divide into blocks, or into too many parts: run without it");
    release_whole(&whole);
}

static void check_refused(const struct model *m, uint32_t ranks, const char *said) {
    struct whole whole;
    struct gpu_shard shard;
    struct error error = {0};
    make_whole(&whole, m);
    assert_int_equal(gpu_shard_of(&shard, &whole.program, 0, ranks, &error), ERR_INVALID);
    assert_string_equal(error.text, said);
    assert_null(shard.splits);
    release_whole(&whole);
}

static void test_what_does_not_divide_is_refused_with_its_sizes(void **state) {
    (void)state;
    check_refused(&(struct model){64, 9, 3, 16, 128, .vocab = 40}, 2,
                  "--tensor-parallel-size 2: the model's 9 heads do not divide by it");
    check_refused(&(struct model){64, 12, 6, 16, 128, .vocab = 40}, 4,
                  "--tensor-parallel-size 4: the 6 KV heads of layer 0 neither divide by it nor "
                  "divide it");
    check_refused(&(struct model){64, 8, 8, 16, 120, .vocab = 40}, 2,
                  "--tensor-parallel-size 2: the feed-forward of layer 0 has a width of 120, which "
                  "does not divide into multiples of 16");
    check_refused(&(struct model){64, 2, 2, 24, 64, .vocab = 40}, 2,
                  "--tensor-parallel-size 2: a product of 48 inputs does not divide into multiples "
                  "of 16");
}

static void test_latent_layers_are_refused_by_name(void **state) {
    (void)state;
    struct whole whole;
    struct gpu_shard shard;
    struct error error = {0};
    make_whole(&whole, &(struct model){64, 8, 8, 16, 128, .vocab = 40});
    whole.program.latent.rank = 64;
    assert_int_equal(gpu_shard_of(&shard, &whole.program, 0, 2, &error), ERR_INVALID);
    assert_string_equal(error.text, "--tensor-parallel-size 2: latent attention is computed by one "
                                    "GPU so far: run without it");
    assert_null(shard.splits);
    release_whole(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_put_together_are_the_whole),
        cmocka_unit_test(test_three_gpus_have_thirds),
        cmocka_unit_test(test_weights_of_four_bits_are_cut_part_by_part),
        cmocka_unit_test(test_what_does_not_divide_is_refused_with_its_sizes),
        cmocka_unit_test(test_latent_layers_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

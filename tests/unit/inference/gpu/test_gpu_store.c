/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_program.h"
#include "gpu/gpu_store.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What the store gave the device. */
static struct gpu_rows filled[8];
static uint32_t fill_count, warm_count;

static enum err fill(struct gpu *gpu, const struct gpu_rows *rows, struct error *error) {
    (void)gpu;
    filled[fill_count++] = *rows;
    return fill_count < 5 ? OK : err_set(error, ERR_IO, "the GPU is gone");
}

static enum err warm(struct gpu *gpu, struct error *error) {
    (void)gpu;
    (void)error;
    warm_count++;
    return OK;
}

static enum err counters(struct gpu *gpu, struct gpu_counters *ret_counters, struct error *error) {
    (void)gpu;
    (void)error;
    *ret_counters = (struct gpu_counters){.graph_refusal = "a driver of the test"};
    return OK;
}

static const struct gpu_table table = {.fill = fill, .warm = warm, .counters = counters};

static struct matrix *open_matrix(const struct weight_store *store,
                                  const struct weight_matrix *from) {
    struct matrix *matrix;
    bool is_filled = true;
    struct error error;
    assert_int_equal(store->ops->open(store->self, from, &matrix, &is_filled, &error), OK);
    assert_false(is_filled);
    return matrix;
}

static const struct matrix_part embedding_part = {.type = TENSOR_BF16, .rows = 100};
static const struct matrix_part qkv_parts[3] = {{.type = TENSOR_Q8_0, .rows = 64},
                                                {.type = TENSOR_Q8_0, .rows = 32},
                                                {.type = TENSOR_BF16, .rows = 32}};
static const struct weight_matrix embedding = {.parts = &embedding_part,
                                               .part_count = 1,
                                               .cols = 64,
                                               .is_looked_up = true,
                                               .is_multiplied = true};
static const struct weight_matrix qkv = {
    .parts = qkv_parts, .part_count = 3, .cols = 64, .is_multiplied = true};

static void matrices_are_numbered_and_get_their_forms(void **state) {
    (void)state;
    static const enum gpu_form forms[][2] = {
        {GPU_F32, GPU_F32}, {GPU_BF16, GPU_BF16}, {GPU_E4M3, GPU_BF16}};
    for (int i = 0; i < 3; i++) {
        struct gpu_store *store =
            gpu_store_open(&(struct gpu_store_options){.table = &table, .form = forms[i][0]});
        struct weight_store to = gpu_store_interface(store);
        struct matrix *a = open_matrix(&to, &embedding), *b = open_matrix(&to, &qkv);
        uint32_t count;
        const struct gpu_matrix *matrices = gpu_store_matrices(store, &count);
        assert_int_equal(count, 2);
        assert_int_equal(a->handle, 0);
        assert_int_equal(b->handle, 1);
        assert_int_equal(matrices[0].form, forms[i][1]);
        assert_int_equal(matrices[1].form, forms[i][0]);
        assert_int_equal(matrices[1].rows, 128);
        assert_int_equal(matrices[1].cols, 64);
        gpu_store_close(store);
        matrix_close(a);
        matrix_close(b);
    }
}

static const struct matrix_part filed_parts[3] = {{.type = TENSOR_Q4_K, .rows = 64},
                                                  {.type = TENSOR_Q4_K, .rows = 32},
                                                  {.type = TENSOR_Q6_K, .rows = 32}};

static void blocks_stay_where_all_parts_have_fewer_than_8_bits(void **state) {
    (void)state;
    const struct gpu_store_options options = {.form = GPU_BLOCKS};
    struct weight_matrix filed = {
        .parts = filed_parts, .part_count = 3, .cols = 512, .is_multiplied = true};
    struct gpu_matrix is = gpu_store_matrix(&options, &filed);
    assert_int_equal(is.form, GPU_BLOCKS);
    assert_int_equal(is.rows, 128);
    assert_int_equal(is.cols, 512);
    /* Codes of 4 and 8 bits, and a pair of float16 per 32. */
    assert_int_equal(is.block_bytes, 96 * (512 / 2 + 512 / 32 * 4) + 32 * (512 + 512 / 32 * 4));
    static const struct matrix_part others[] = {{.type = TENSOR_Q4_0, .rows = 33},
                                                {.type = TENSOR_Q2_K, .rows = 8}};
    filed.parts = others, filed.part_count = 2;
    is = gpu_store_matrix(&options, &filed); /* whole blocks of 32 lines; rows as in the file */
    assert_int_equal(is.block_bytes,
                     64 * (512 / 2 + 512 / 32 * 4) + 8 * tensor_type_row_bytes(TENSOR_Q2_K, 512));
    filed.is_head = true;
    assert_int_equal(gpu_store_matrix(&options, &filed).form, GPU_INT8);
    assert_int_equal(gpu_store_matrix(&options, &qkv).form, GPU_INT8); /* Q8_0 and BF16 */
    assert_int_equal(gpu_store_matrix(&options, &embedding).form, GPU_BF16);
}

static void an_embedding_with_a_head_beside_it_stays_codes(void **state) {
    (void)state;
    struct gpu_store_options options = {.form = GPU_BLOCKS};
    const struct matrix_part part = {.type = TENSOR_Q4_K, .rows = 33};
    struct weight_matrix from = {.parts = &part,
                                 .part_count = 1,
                                 .cols = 512,
                                 .is_looked_up = true,
                                 .is_only_looked_up = true};
    struct gpu_matrix is = gpu_store_matrix(&options, &from);
    assert_int_equal(is.form, GPU_BLOCKS);
    assert_int_equal(is.grouping, GROUPED_MINIMA);
    assert_int_equal(is.block_bytes, 64 * (512 / 2 + 512 / 32 * 4));
    from.is_only_looked_up = false; /* the head is tied to it, or its rows are of layers */
    assert_int_equal(gpu_store_matrix(&options, &from).form, GPU_BF16);
    from.is_only_looked_up = true, options.form = GPU_INT8;
    assert_int_equal(gpu_store_matrix(&options, &from).form, GPU_BF16);
    const struct matrix_part other = {.type = TENSOR_Q3_K, .rows = 33};
    from.parts = &other, options.form = GPU_BLOCKS;
    assert_int_equal(gpu_store_matrix(&options, &from).form, GPU_BF16);
}

static void a_head_of_8_bits_is_int8(void **state) {
    (void)state;
    static const enum gpu_form forms[][2] = {{GPU_F32, GPU_F32},
                                             {GPU_BF16, GPU_BF16},
                                             {GPU_E4M3, GPU_INT8},
                                             {GPU_INT8, GPU_INT8},
                                             {GPU_BLOCKS, GPU_INT8}};
    struct weight_matrix head = qkv;
    head.is_head = true;
    for (int i = 0; i < 5; i++) {
        const struct gpu_store_options options = {.form = forms[i][0]};
        assert_int_equal(gpu_store_matrix(&options, &head).form, forms[i][1]);
    }
    head.is_looked_up = true; /* not its own: an embedding too */
    head.is_head = false;
    const struct gpu_store_options options = {.form = GPU_E4M3};
    assert_int_equal(gpu_store_matrix(&options, &head).form, GPU_BF16);
}

static void rows_reach_the_gpu_part_by_part(void **state) {
    (void)state;
    struct error error;
    struct gpu_store *store =
        gpu_store_open(&(struct gpu_store_options){.table = &table, .form = GPU_BF16});
    struct weight_store to = gpu_store_interface(store);
    struct matrix *a = open_matrix(&to, &embedding), *b = open_matrix(&to, &qkv);
    static const uint32_t order[64];
    struct matrix_part parts[3];
    memcpy(parts, qkv_parts, sizeof parts);
    parts[0].row_order = order;
    parts[1].blocks = "rows";
    struct weight_matrix with_rows = qkv;
    with_rows.parts = parts;
    fill_count = warm_count = 0;
    assert_int_equal(to.ops->fill(to.self, b, &with_rows, &error), OK);
    assert_int_equal(fill_count, 3);
    assert_int_equal(filled[0].matrix, 1);
    assert_ptr_equal(filled[0].row_order, order);
    assert_int_equal(filled[1].row_first, 64);
    assert_ptr_equal(filled[1].blocks, parts[1].blocks);
    assert_int_equal(filled[2].row_first, 96);
    assert_int_equal(filled[2].type, TENSOR_BF16);
    assert_int_equal(to.ops->fill(to.self, a, &embedding, &error), OK);
    assert_int_equal(to.ops->fill(to.self, a, &embedding, &error), ERR_IO);
    assert_int_equal(to.ops->finish(to.self, &error), OK);
    assert_int_equal(warm_count, 1);
    gpu_store_close(store);
    matrix_close(a);
    matrix_close(b);
}

static void a_program_names_its_matrices_by_number(void **state) {
    (void)state;
    struct matrix a = {.rows = 10, .cols = 4, .handle = 0}, b = {.rows = 8, .cols = 4, .handle = 1};
    static float weight[4], frequencies[2];
    struct op ops[] = {
        {.kind = OP_EMBED, .matrix = &a, .scale = 2.0f},
        {.kind = OP_NORM, .weight = weight, .next = &b, .add = ADD_H},
        {.kind = OP_ATTENTION, .kv_group = 2, .kv_place = 1, .window = 16, .softcap = 30.0f}};
    const struct program program = {.shape = {.width = 4,
                                              .heads = 2,
                                              .kv_heads = 1,
                                              .head_dim = 4,
                                              .vocab_rows = 10,
                                              .rope_count = 1,
                                              .eps = 1e-6f,
                                              .is_causal = true},
                                    .frequencies = {frequencies},
                                    .ops = ops,
                                    .op_count = 3};
    const struct gpu_matrix matrices[2] = {{.rows = 10, .cols = 4, .form = GPU_BF16},
                                           {.rows = 8, .cols = 4, .form = GPU_BF16}};
    struct gpu_program is;
    gpu_program_of(&is, &program, matrices, 2, 9);
    assert_int_equal(is.op_count, 3);
    assert_int_equal(is.vocab, 9);
    assert_int_equal(is.vocab_rows, 10);
    assert_ptr_equal(is.frequencies[0], frequencies);
    assert_int_equal(is.ops[0].matrix, 0);
    assert_int_equal(is.ops[0].next, GPU_NONE);
    assert_true(is.ops[0].scale == 2.0f);
    assert_int_equal(is.ops[1].matrix, GPU_NONE);
    assert_int_equal(is.ops[1].next, 1);
    assert_int_equal(is.ops[1].add, ADD_H);
    assert_ptr_equal(is.ops[1].weight, weight);
    assert_int_equal(is.ops[2].kv_group, 2);
    assert_int_equal(is.ops[2].kv_place, 1);
    assert_int_equal(is.ops[2].window, 16);
    assert_true(is.ops[2].softcap == 30.0f);
    gpu_program_release(&is);
}

/* Gate and up of an expert, its down, those of the next, as the loader opens them. */
static void experts_stand_behind_one_another_in_one_matrix(void **state) {
    (void)state;
    static const enum gpu_form forms[][3] = {/* asked for, of experts, of the router */
                                             {GPU_F32, GPU_F32, GPU_F32},
                                             {GPU_BF16, GPU_BF16, GPU_BF16},
                                             {GPU_E4M3, GPU_E4M3, GPU_BF16},
                                             {GPU_BLOCKS, GPU_BLOCKS, GPU_BF16}};
    const struct matrix_part parts[] = {{.type = TENSOR_Q4_0, .rows = 32},
                                        {.type = TENSOR_Q4_0, .rows = 32}};
    const struct matrix_part down_part = {.type = TENSOR_Q4_0, .rows = 64};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct gpu_store *store =
            gpu_store_open(&(struct gpu_store_options){.table = &table, .form = forms[i][0]});
        const struct weight_store to = gpu_store_interface(store);
        struct matrix *matrices[2][3][2]; /* by layer and expert */
        struct error error;
        uint32_t count;
        fill_count = 0;
        for (uint32_t k = 0; k < 6; k++) {
            struct weight_matrix from = {.parts = parts,
                                         .part_count = 2,
                                         .cols = 64,
                                         .expert = k % 3,
                                         .experts = 3,
                                         .is_multiplied = true};
            matrices[k / 3][k % 3][0] = open_matrix(&to, &from);
            from.parts = &down_part, from.part_count = 1, from.cols = 32;
            matrices[k / 3][k % 3][1] = open_matrix(&to, &from);
            assert_int_equal(matrices[k / 3][k % 3][0]->handle, k / 3 * 2);
            assert_int_equal(matrices[k / 3][k % 3][1]->handle, k / 3 * 2 + 1);
        }
        const struct gpu_matrix *is = gpu_store_matrices(store, &count);
        assert_int_equal(count, 4);
        assert_int_equal(is[2].rows, 3 * 64);
        assert_int_equal(is[3].rows, 3 * 64);
        assert_int_equal(is[2].cols, 64);
        assert_int_equal(is[3].cols, 32);
        assert_int_equal(is[2].form, forms[i][1]);
        struct weight_matrix from = {
            .parts = parts, .part_count = 2, .cols = 64, .expert = 2, .experts = 3};
        assert_int_equal(to.ops->fill(to.self, matrices[1][2][0], &from, &error), OK);
        assert_int_equal(fill_count, 2);
        assert_int_equal(filled[0].matrix, 2);
        assert_int_equal(filled[0].row_first, 2 * 64);
        assert_int_equal(filled[1].row_first, 2 * 64 + 32);
        const struct gpu_store_options options = {.form = forms[i][0]};
        const struct weight_matrix router = {
            .parts = &down_part, .part_count = 1, .cols = 64, .is_exact = true};
        assert_int_equal(gpu_store_matrix(&options, &router).form, forms[i][2]);
        for (uint32_t k = 0; k < 12; k++) matrix_close(matrices[k / 6][k % 6 / 2][k % 2]);
        gpu_store_close(store);
    }
}

/* The matrices of keys of all heads of a layer, those of values, and the same of the next layer. */
static void heads_stand_behind_one_another_in_bf16(void **state) {
    (void)state;
    static const enum gpu_form forms[][2] = {
        {GPU_F32, GPU_F32}, {GPU_BF16, GPU_BF16}, {GPU_INT8, GPU_BF16}, {GPU_BLOCKS, GPU_BF16}};
    const struct matrix_part keys = {.type = TENSOR_F32, .rows = 64};
    const struct matrix_part values = {.type = TENSOR_Q4_0, .rows = 32};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct gpu_store *store =
            gpu_store_open(&(struct gpu_store_options){.table = &table, .form = forms[i][0]});
        const struct weight_store to = gpu_store_interface(store);
        struct matrix *matrices[2][2][3]; /* by layer; keys, values; head */
        struct error error;
        uint32_t count;
        fill_count = 0;
        for (uint32_t k = 0; k < 12; k++) {
            const bool is_value = k / 3 % 2;
            const struct weight_matrix from = {.parts = is_value ? &values : &keys,
                                               .part_count = 1,
                                               .cols = is_value ? 64 : 32,
                                               .head = k % 3,
                                               .heads = 3,
                                               .is_multiplied = true};
            matrices[k / 6][is_value][k % 3] = open_matrix(&to, &from);
            assert_int_equal(matrices[k / 6][is_value][k % 3]->handle, k / 3);
        }
        const struct gpu_matrix *is = gpu_store_matrices(store, &count);
        assert_int_equal(count, 4);
        assert_int_equal(is[2].rows, 3 * 64);
        assert_int_equal(is[3].rows, 3 * 32);
        assert_int_equal(is[3].cols, 64);
        assert_int_equal(is[2].form, forms[i][1]);
        assert_int_equal(is[3].form, forms[i][1]);
        const struct weight_matrix from = {
            .parts = &values, .part_count = 1, .cols = 64, .head = 2, .heads = 3};
        assert_int_equal(to.ops->fill(to.self, matrices[1][1][2], &from, &error), OK);
        assert_int_equal(fill_count, 1);
        assert_int_equal(filled[0].matrix, 3);
        assert_int_equal(filled[0].row_first, 2 * 32);
        for (uint32_t k = 0; k < 12; k++) matrix_close(matrices[k / 6][k / 3 % 2][k % 3]);
        gpu_store_close(store);
    }
}

/* Experts stay codes of four bits where all of an expert's rows are of one kind. */
static void experts_of_one_kind_stay_in_blocks(void **state) {
    (void)state;
    const struct gpu_store_options options = {.form = GPU_BLOCKS};
    struct matrix_part parts[] = {{.type = TENSOR_MXFP4, .rows = 32},
                                  {.type = TENSOR_MXFP4, .rows = 32}};
    struct weight_matrix from = {.parts = parts, .part_count = 2, .cols = 64, .experts = 3};
    const struct gpu_matrix is = gpu_store_matrix(&options, &from);
    assert_int_equal(is.form, GPU_BLOCKS);
    assert_int_equal(is.grouping, GROUPED_E2M1);
    assert_int_equal(is.block_bytes, 3 * 64 * (64 / 2 + 64 / 32 * 4));
    parts[1].type = TENSOR_Q4_0;
    assert_int_equal(gpu_store_matrix(&options, &from).form, GPU_SMALL_FORM);
    parts[0].type = parts[1].type = TENSOR_Q6_K; /* 8 bits */
    from.cols = 256;
    assert_int_equal(gpu_store_matrix(&options, &from).form, GPU_SMALL_FORM);
    parts[0].type = parts[1].type = TENSOR_Q4_K;
    assert_int_equal(gpu_store_matrix(&options, &from).form, GPU_BLOCKS);
    parts[0].rows = parts[1].rows = 24; /* no whole blocks of lines */
    assert_int_equal(gpu_store_matrix(&options, &from).form, GPU_SMALL_FORM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_are_numbered_and_get_their_forms),
        cmocka_unit_test(blocks_stay_where_all_parts_have_fewer_than_8_bits),
        cmocka_unit_test(an_embedding_with_a_head_beside_it_stays_codes),
        cmocka_unit_test(a_head_of_8_bits_is_int8),
        cmocka_unit_test(rows_reach_the_gpu_part_by_part),
        cmocka_unit_test(a_program_names_its_matrices_by_number),
        cmocka_unit_test(experts_of_one_kind_stay_in_blocks),
        cmocka_unit_test(experts_stand_behind_one_another_in_one_matrix),
        cmocka_unit_test(heads_stand_behind_one_another_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

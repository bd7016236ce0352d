/* SPDX-License-Identifier: Apache-2.0 */

/* The share of each of several GPUs: the table's prepare and fill, for a GPU that is alone as well.
 */

#include "gpu/cuda/plugin_internal.h"

#include <assert.h>

/* ---- prepare ---- */

/* Other ranks have as many pages as the lead. */
static enum err prepare_rank(struct gpu *gpu, const struct gpu_program *program,
                             const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                             struct error *error) {
    struct gpu_limits own = *limits;
    if (gpu->rank > 0) own.page_count_min = own.page_count_max = gpu->ranks[0]->page_count;
    enum err err = gpu_shard_of(&gpu->shard, program, gpu->rank, gpu->rank_count, error);
    if (err != OK) return err;
    rank_use(gpu);
    err = prepare_one(gpu, &gpu->shard.program, &own, ret_ledger, error);
    if (err != OK) gpu_shard_release(&gpu->shard);
    return err == OK ? OK : err_prefix(error, "GPU %u", gpu->index);
}

enum err plugin_prepare(struct gpu *lead, const struct gpu_program *program,
                        const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                        struct error *error) {
    struct memory_ledger of_other;
    if (lead->rank_count == 1) return prepare_one(lead, program, limits, ret_ledger, error);
    enum err err = prepare_rank(lead, program, limits, ret_ledger, error);
    for (uint32_t i = 1; i < lead->rank_count && err == OK; i++)
        err = prepare_rank(lead->ranks[i], program, limits, &of_other, error);
    rank_use(lead);
    return err;
}

/* ---- fill ---- */

/* Rows that stay as in their file are cut between its blocks. */
static enum err check_columns(const struct gpu_split *split, const struct card_matrix *matrix,
                              const struct gpu_rows *rows, uint32_t ranks, struct error *error) {
    const size_t each = tensor_type_block_elements(rows->type);
    bool is_cut = false;
    for (uint32_t i = 0; i < split->piece_count && split->kind == GPU_SPLIT_INPUTS; i++)
        is_cut |= split->pieces[i].first % each != 0 || split->pieces[i].rows % each != 0;
    if (!is_cut || matrix->form != GPU_BLOCKS) return OK;
    return err_set(error, ERR_INVALID,
                   "--tensor-parallel-size %u: %u columns of a matrix do not divide into blocks of "
                   "%zu, which its file has: run without it",
                   ranks, split->whole, each);
}

/* A run of rows that the rank has. */
static enum err fill_run(struct gpu *gpu, const struct gpu_rows *rows, const struct gpu_piece *run,
                         struct error *error) {
    const struct gpu_split *split = &gpu->shard.splits[rows->matrix];
    const bool is_cut = split->kind == GPU_SPLIT_INPUTS;
    const uint32_t columns = is_cut ? split->whole : gpu->matrices[rows->matrix].cols;
    const uint32_t before = run->first - rows->row_first;
    const size_t row_bytes = tensor_type_row_bytes(rows->type, columns);
    struct gpu_rows own = *rows;
    own.row_first = run->own, own.rows = run->rows;
    if (rows->row_order)
        own.row_order = rows->row_order + before;
    else
        own.blocks = (const char *)rows->blocks + before * row_bytes;
    return fill_one(gpu, &own, is_cut ? split : NULL, error);
}

enum err plugin_fill(struct gpu *lead, const struct gpu_rows *rows, struct error *error) {
    const uint32_t end = rows->row_first + rows->rows;
    enum err err = OK;
    assert(rows->matrix < lead->program.matrix_count);
    if (lead->rank_count == 1) return fill_one(lead, rows, NULL, error);
    for (uint32_t i = 0; i < lead->rank_count && err == OK; i++) {
        struct gpu *gpu = lead->ranks[i];
        const struct gpu_split *split = &gpu->shard.splits[rows->matrix];
        struct gpu_piece run = {.first = rows->row_first};
        rank_use(gpu);
        err = check_columns(split, &gpu->matrices[rows->matrix], rows, lead->rank_count, error);
        while (err == OK && gpu_split_next(split, run.first + run.rows, end, &run))
            err = fill_run(gpu, rows, &run, error);
    }
    rank_use(lead);
    return err;
}

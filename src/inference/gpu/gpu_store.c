/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_store.h"

#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu_notes.h"
#include "gpu/grouping.h"

#include <stdlib.h>

struct gpu_store {
    struct gpu_store_options options;
    struct gpu_matrix *matrices; /* (count) */
    size_t count, capacity;
};

static bool has_blocks(const struct matrix_part *part) {
    return tensor_type_block_bytes(part->type) < tensor_type_block_elements(part->type);
}

/* Whether all parts have types of fewer than 8 bits per number. */
static bool is_in_blocks(const struct weight_matrix *from) {
    for (uint32_t i = 0; i < from->part_count; i++)
        if (!has_blocks(&from->parts[i])) return false;
    return from->part_count <= GPU_BLOCK_PARTS_MAX;
}

/* The parts that stay as they are, of which a GPU's share is made. */
static void set_parts(struct gpu_matrix *matrix, const struct weight_matrix *from) {
    matrix->part_count = from->part_count;
    for (uint32_t i = 0; i < from->part_count; i++)
        matrix->parts[i] =
            (struct gpu_block_part){.type = from->parts[i].type, .rows = from->parts[i].rows};
}

/* Experts stay codes of four bits where all parts are of one kind, an expert's rows whole blocks of
 * lines, and half of them whole units of gate and up (experts.h). */
static struct gpu_matrix experts_in_blocks(const struct weight_matrix *from,
                                           struct gpu_matrix matrix) {
    const enum grouping kind = grouping_of_rows(from->parts[0].type, from->cols);
    bool are_alike = kind != GROUPED_NOT && kind != GROUPED_BYTES &&
                     matrix.rows / from->experts % GROUPED_LINES == 0;
    for (uint32_t i = 1; i < from->part_count; i++)
        are_alike &= grouping_of_rows(from->parts[i].type, from->cols) == kind;
    matrix.form = are_alike ? GPU_BLOCKS : GPU_SMALL_FORM;
    if (!are_alike) return matrix;
    set_parts(&matrix, from);
    matrix.grouping = kind;
    matrix.block_bytes = grouped_bytes(kind, matrix.rows, matrix.cols);
    return matrix;
}

/* An embedding stays codes where its type has them; else it is BF16. */
static struct gpu_matrix embedding_in_blocks(const struct weight_matrix *from,
                                             struct gpu_matrix matrix) {
    matrix.grouping =
        from->part_count == 1 ? grouping_of_rows(from->parts[0].type, from->cols) : GROUPED_NOT;
    matrix.form = matrix.grouping == GROUPED_NOT ? GPU_BF16 : GPU_BLOCKS;
    if (matrix.form == GPU_BLOCKS)
        matrix.block_bytes = grouped_bytes(matrix.grouping, matrix.rows, matrix.cols);
    return matrix;
}

/* Matrices of one shape that stand one behind another: those of experts, or of heads. */
static uint32_t pieces_of(const struct weight_matrix *from) {
    return from->experts > 0 ? from->experts : from->heads;
}
static uint32_t piece_of(const struct weight_matrix *from) {
    return from->experts > 0 ? from->expert : from->head;
}

struct gpu_matrix gpu_store_matrix(const struct gpu_store_options *options,
                                   const struct weight_matrix *from) {
    struct gpu_matrix matrix = {.cols = from->cols, .form = options->form};
    for (uint32_t i = 0; i < from->part_count; i++) matrix.rows += from->parts[i].rows;
    if (pieces_of(from) > 0) matrix.rows *= pieces_of(from);
    if (from->is_only_looked_up && matrix.form == GPU_BLOCKS)
        return embedding_in_blocks(from, matrix);
    /* Products of heads are few beside the others, and no kernel has their sums with scales. */
    const bool is_wide = from->is_looked_up || from->is_exact || from->heads > 0;
    if (is_wide && matrix.form != GPU_F32) matrix.form = GPU_BF16;
    if (from->is_head && (matrix.form == GPU_E4M3 || matrix.form == GPU_BLOCKS))
        matrix.form = GPU_SMALL_FORM;
    if (matrix.form != GPU_BLOCKS) return matrix;
    if (from->experts > 0) return experts_in_blocks(from, matrix);
    if (!is_in_blocks(from)) matrix.form = GPU_SMALL_FORM;
    if (matrix.form != GPU_BLOCKS) return matrix;
    for (uint32_t i = 0; i < from->part_count; i++)
        matrix.block_bytes +=
            grouping_part_bytes(from->parts[i].type, from->parts[i].rows, from->cols);
    set_parts(&matrix, from);
    return matrix;
}

/* The matrix that has the rows of an expert or a head: its own with the first, then that one. */
static uint32_t handle_for(struct gpu_store *store, const struct weight_matrix *from,
                           const struct gpu_matrix *is) {
    if (piece_of(from) > 0)
        for (size_t i = store->count; i > 0; i--)
            if (store->matrices[i - 1].rows == is->rows && store->matrices[i - 1].cols == is->cols)
                return (uint32_t)(i - 1);
    store->matrices =
        vec_grow(store->matrices, store->count, &store->capacity, sizeof *store->matrices);
    store->matrices[store->count] = *is;
    return (uint32_t)store->count++;
}

static enum err store_open(void *self, const struct weight_matrix *from, struct matrix **ret_matrix,
                           bool *ret_is_filled, struct error *error) {
    (void)error; /* the GPU takes its memory in prepare */
    struct gpu_store *store = self;
    struct matrix *matrix = mem_new(1, sizeof *matrix);
    const struct gpu_matrix is = gpu_store_matrix(&store->options, from);
    matrix->rows = is.rows;
    matrix->cols = is.cols;
    matrix->handle = handle_for(store, from, &is);
    *ret_matrix = matrix;
    *ret_is_filled = false;
    return OK;
}

static enum err store_fill(void *self, struct matrix *matrix, const struct weight_matrix *from,
                           struct error *error) {
    struct gpu_store *store = self;
    enum err err = OK;
    const uint32_t pieces = pieces_of(from);
    uint32_t row = pieces > 0 ? piece_of(from) * (matrix->rows / pieces) : 0;
    for (uint32_t i = 0; i < from->part_count && err == OK; i++) {
        const struct matrix_part *part = &from->parts[i];
        const struct gpu_rows rows = {.matrix = matrix->handle,
                                      .row_first = row,
                                      .rows = part->rows,
                                      .type = part->type,
                                      .blocks = part->blocks,
                                      .row_order = part->row_order};
        err = store->options.table->fill(store->options.gpu, &rows, error);
        row += part->rows;
    }
    return err;
}

/* Tells what the GPU made ready: code for the GPU, and graphs, so that steps start with one call.
 */
static enum err tell_made(const struct gpu_store_options *options, struct error *error) {
    struct gpu_counters counters = {0};
    enum err err = options->table->counters(options->gpu, &counters, error);
    if (err != OK) return err;
    const unsigned long long kib = counters.graph_bytes >> 10;
    if (counters.compile_ns > 0)
        log_info("event=device_compiled seconds=%.3f reason=\"the plugin has no code of its own "
                 "for this GPU; the driver keeps it where its cache can be written\"",
                 1e-9 * (double)counters.compile_ns);
    if (counters.is_apart)
        log_warn("event=device_apart reason=\"the GPUs do not reach each other's memory "
                 "(nvidia-smi topo -p2p r): sums over them go through the host's, which is "
                 "slower\"");
    if (counters.graph_refusal)
        log_warn("event=device_graphs graphs=%u kib=%llu reason=\"%s\"", counters.graphs, kib,
                 counters.graph_refusal);
    else if (counters.graphs > 0)
        log_debug("event=device_graphs graphs=%u kib=%llu", counters.graphs, kib);
    return OK;
}

static enum err store_finish(void *self, struct error *error) {
    const struct gpu_store_options *options = &((struct gpu_store *)self)->options;
    gpu_notes_recall(options->table, options->gpu, options->notes_dir, options->card_uuid);
    enum err err = options->table->warm(options->gpu, error);
    if (err == OK)
        gpu_notes_keep(options->table, options->gpu, options->notes_dir, options->card_uuid);
    return err == OK ? tell_made(options, error) : err;
}

struct weight_store gpu_store_interface(struct gpu_store *store) {
    static const struct weight_store_ops ops = {
        .open = store_open, .fill = store_fill, .finish = store_finish};
    return (struct weight_store){.ops = &ops, .self = store};
}

struct gpu_store *gpu_store_open(const struct gpu_store_options *options) {
    struct gpu_store *store = mem_new(1, sizeof *store);
    store->options = *options;
    return store;
}

void gpu_store_close(struct gpu_store *store) {
    if (!store) return;
    free(store->matrices);
    free(store);
}

const struct gpu_matrix *gpu_store_matrices(const struct gpu_store *store, uint32_t *ret_count) {
    *ret_count = (uint32_t)store->count;
    return store->matrices;
}

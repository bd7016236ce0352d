/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>

/* Matrices of the same shape at one distance, from `index` on: products read them in turn, so that
 * they come from memory, as in a step. */
static uint32_t copies_of(const struct gpu *gpu, uint32_t index, size_t *ret_distance) {
    const struct card_matrix *first = &gpu->matrices[index];
    const char *last = first->codes;
    uint32_t copies = 1;
    *ret_distance = 0;
    if (first->form == GPU_BLOCKS) return copies; /* all are unpacked to one place */
    for (uint32_t i = index + 1; i < gpu->program.matrix_count; i++) {
        const struct card_matrix *at = &gpu->matrices[i];
        if (at->rows != first->rows || at->cols != first->cols || at->form != first->form) continue;
        size_t distance = (size_t)(at->codes - last);
        if (copies > 1 && distance != *ret_distance) break;
        *ret_distance = distance;
        last = at->codes;
        copies++;
    }
    return copies;
}

/* Chooses the algorithms of a product for all numbers of rows. */
static enum err tune(struct gpu *gpu, const struct card_op *at, struct error *error) {
    const struct gpu_op *op = &at->op;
    const struct card_matrix *matrix = &gpu->matrices[op->matrix];
    const bool is_logits = op->kind == OP_LOGITS;
    enum cuda_ending ending;
    const uint32_t most = is_logits ? gpu->logit_bucket : gpu->row_bucket;
    size_t distance;
    uint32_t copies = copies_of(gpu, op->matrix, &distance);
    const void *weights;
    enum err err = weights_ready(gpu, op->matrix, &weights, error);
    if (err != OK) return err;
    struct cuda_multiply call = {
        .format = format_of(matrix->form, is_logits || matrix->is_router),
        .outputs = matrix->rows_padded,
        .inputs = matrix->cols,
        .weights = weights,
        .in = gpu->codes,
        .sums = is_logits ? (void *)gpu->flights[0].logits : sums_place(gpu, at, matrix->scales),
    };
    for (uint32_t rows = 1; rows <= most; rows = call.rows + 1) {
        call.rows = row_bucket(rows);
        const enum grouped_way way = matrix_way(gpu, matrix, call.rows);
        if (walk_is_scaled(gpu, at, call.rows, &ending) || (!is_logits && way != GROUPED_UNPACKED))
            continue;
        err = cuda_products_tune(gpu->products, &call, copies, distance, gpu->compute, error);
        if (err != OK) return err;
    }
    return OK;
}

/* The same of products of heads, whose rows are those of the layers before. */
static enum err tune_heads(struct gpu *gpu, const struct card_op *at, struct error *error) {
    struct cuda_multiply call = latent_product(gpu, at);
    const uint32_t matrix = at->op.kind == OP_LATENT_Q ? at->op.latent.k_b : at->op.latent.v_b;
    size_t distance;
    const uint32_t copies = copies_of(gpu, matrix, &distance);
    enum err err = OK;
    for (uint32_t rows = 1; rows <= gpu->row_bucket && err == OK; rows = call.rows + 1) {
        call.rows = row_bucket(rows);
        err = cuda_products_tune(gpu->products, &call, copies, distance, gpu->compute, error);
    }
    return err;
}

/* The same of the product that unfolds entries. */
static enum err tune_unfolding(struct gpu *gpu, struct error *error) {
    const uint32_t tokens = gpu->unfold.tokens;
    const uint32_t most = tokens < ROW_BUCKET_MAX ? tokens : ROW_BUCKET_MAX;
    struct cuda_multiply call = unfold_product(gpu);
    enum err err = OK;
    for (uint32_t rows = 1; row_bucket(rows) <= most && err == OK; rows = call.rows + 1) {
        call.rows = row_bucket(rows);
        err = cuda_products_tune(gpu->products, &call, 1, 0, gpu->compute, error);
        if (call.rows == ROW_BUCKET_MAX) break;
    }
    return err;
}

/* Numbers for the products that are timed: those of a matrix, for zeros run faster. */
static enum err fill_codes(struct gpu *gpu, struct error *error) {
    size_t most = 0, at = 0;
    for (uint32_t i = 0; i < gpu->program.matrix_count; i++) {
        size_t bytes = gpu->matrices[i].cols * form_bytes(gpu->matrices[i].form);
        if (bytes * gpu->row_bucket > most) most = bytes * gpu->row_bucket;
    }
    const struct card_matrix *from = &gpu->matrices[0];
    size_t bytes = from->form == GPU_BLOCKS
                       ? from->block_bytes
                       : (size_t)from->rows * from->cols * form_bytes(from->form);
    cudaError_t code = cudaSuccess;
    for (; at < most && code == cudaSuccess; at += bytes)
        code = cudaMemcpyAsync((char *)gpu->codes + at, from->codes,
                               most - at < bytes ? most - at : bytes, cudaMemcpyDeviceToDevice,
                               gpu->compute);
    if (code == cudaSuccess)
        code = cudaMemsetAsync(gpu->last_token, 0,
                               gpu->limits.sequences_max * sizeof *gpu->last_token, gpu->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "warming up");
}

static cudaError_t clear(const struct gpu *gpu, void *at, size_t bytes) {
    return at ? cudaMemsetAsync(at, 0, bytes, gpu->compute) : cudaSuccess;
}

/* Made-up steps go on from states that nobody wrote. */
static enum err clear_states(const struct gpu *gpu, struct error *error) {
    const struct recurrent_room *room = &gpu->recurrent;
    const size_t places = (size_t)gpu->program.recurrent.layers * gpu->limits.state_places;
    cudaError_t code = clear(gpu, room->states, places * room->state_stride);
    if (code == cudaSuccess) code = clear(gpu, room->tails, places * room->tail_stride);
    return code == cudaSuccess ? OK : card_error(code, error, "clearing states");
}

/* Zeroes memory that compute-sanitizer's initcheck would report. A copied page is read to its end,
 * and the tool does not see that the library's kernels write sums. */
static enum err clear_all(const struct gpu *gpu, struct error *error) {
    const struct cuda_pages *pages = &gpu->pages;
    const size_t count = gpu->page_count;
    const size_t logits = gpu->logit_bucket * gpu->logit_stride * sizeof(float);
    cudaError_t code = clear(gpu, gpu->h, gpu->h_bytes);
    if (code == cudaSuccess) code = clear(gpu, gpu->wide, gpu->wide_bytes);
    if (code == cudaSuccess) code = clear(gpu, gpu->narrow, gpu->narrow_bytes);
    if (code == cudaSuccess) code = clear(gpu, gpu->q, gpu->q_bytes);
    if (code == cudaSuccess) code = clear(gpu, gpu->q_kept, gpu->q_kept_bytes);
    if (code == cudaSuccess) code = clear(gpu, gpu->attended, gpu->q_bytes);
    if (code == cudaSuccess)
        code = clear(gpu, gpu->experts.gated, gpu->experts.gated_count * sizeof(uint16_t));
    if (code == cudaSuccess) code = clear(gpu, gpu->experts.shared, gpu->experts.shared_bytes);
    if (code == cudaSuccess && gpu->unfold.tokens > 0)
        code = clear(gpu, gpu->unfold.unfolded,
                     (size_t)gpu->unfold.tokens * unfold_product(gpu).outputs * sizeof(uint16_t));
    for (uint32_t i = 0; i < gpu->limits.steps_max && code == cudaSuccess; i++)
        code = clear(gpu, gpu->flights[i].logits, logits);
    for (uint32_t i = 0; i < pages->places && code == cudaSuccess; i++) {
        const struct card_place *place = &gpu->places[i];
        code = clear(gpu, place->k, count * pages->bytes);
        if (code == cudaSuccess) code = clear(gpu, place->v, count * pages->bytes);
        if (code == cudaSuccess) code = clear(gpu, place->scales, count * pages->scale_bytes);
    }
    return code == cudaSuccess ? OK : card_error(code, error, "clearing memory");
}

void plugin_recall(struct gpu *gpu, const char *notes, size_t bytes) {
    for (uint32_t i = 0; i < gpu->rank_count; i++)
        (void)cuda_products_recall(gpu->ranks[i]->products, notes, bytes);
}

bool plugin_tell(struct gpu *gpu, const char **ret_notes, size_t *ret_bytes) {
    return cuda_products_tell(gpu->products, ret_notes, ret_bytes);
}

/* Chooses the algorithms of one rank's products. */
static enum err warm_one(struct gpu *gpu, struct error *error) {
    assert(gpu->is_prepared);
    rank_use(gpu);
    enum err err = gpu->clears_memory ? clear_all(gpu, error) : OK;
    if (err == OK) err = fill_codes(gpu, error);
    if (err == OK) err = clear_states(gpu, error);
    for (uint32_t i = 0; i < gpu->program.op_count && err == OK; i++) {
        const enum op_kind kind = gpu->ops[i].op.kind;
        if (kind == OP_MATMUL || kind == OP_LOGITS) err = tune(gpu, &gpu->ops[i], error);
        if (kind == OP_LATENT_Q || kind == OP_LATENT_OUT)
            err = tune_heads(gpu, &gpu->ops[i], error);
    }
    if (err == OK && gpu->unfold.tokens > 0) err = tune_unfolding(gpu, error);
    return err;
}

enum err plugin_warm(struct gpu *gpu, struct error *error) {
    enum err err = OK;
    for (uint32_t i = 0; i < gpu->rank_count && err == OK; i++)
        err = warm_one(gpu->ranks[i], error);
    /* Few rows and many: some operations have a kernel for either. */
    const uint32_t most = made_up_rows_max(gpu);
    if (err == OK && most > 0) err = made_up_step(gpu, 1, error);
    if (err == OK && most > 1) err = made_up_step(gpu, most, error);
    for (uint32_t i = 0; i < gpu->rank_count && err == OK; i++) graphs_make(gpu->ranks[i]);
    /* A driver that does not change its graphs is found out now, while the host reads the reason.
     */
    if (err == OK && gpu->graph_count > 0 && most > 0) err = made_up_step(gpu, 1, error);
    gpu->counters = (struct gpu_counters){0};
    return err == OK ? OK : err_prefix(error, "warming up");
}

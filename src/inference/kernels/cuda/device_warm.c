/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>

/* Matrices of the same shape at one distance, from `index` on: products read them in turn, so that
 * they come from memory, as in a step. */
static uint32_t copies_of(const struct device *device, uint32_t index, size_t *ret_distance) {
    const struct card_matrix *first = &device->matrices[index];
    const char *last = first->codes;
    uint32_t copies = 1;
    *ret_distance = 0;
    if (first->form == DEVICE_BLOCKS) return copies; /* all are unpacked to one place */
    for (uint32_t i = index + 1; i < device->program.matrix_count; i++) {
        const struct card_matrix *at = &device->matrices[i];
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
static enum err tune(struct device *device, const struct card_op *at, struct error *error) {
    const struct device_op *op = &at->op;
    const struct card_matrix *matrix = &device->matrices[op->matrix];
    const bool is_logits = op->kind == OP_LOGITS;
    enum cuda_ending ending;
    const uint32_t most = is_logits ? device->logit_bucket : device->row_bucket;
    size_t distance;
    uint32_t copies = copies_of(device, op->matrix, &distance);
    const void *weights;
    enum err err = weights_ready(device, op->matrix, &weights, error);
    if (err != OK) return err;
    struct cuda_multiply call = {
        .format = format_of(matrix->form, is_logits),
        .outputs = matrix->rows_padded,
        .inputs = matrix->cols,
        .weights = weights,
        .in = device->codes,
        .sums = is_logits        ? (void *)device->flights[0].logits
                : op->to == TO_H ? device->h
                                 : device->wide,
    };
    for (uint32_t rows = 1; rows <= most; rows = call.rows + 1) {
        call.rows = row_bucket(rows);
        if (walk_is_scaled(device, at, call.rows, &ending)) continue;
        err = cuda_products_tune(device->products, &call, copies, distance, device->compute, error);
        if (err != OK) return err;
    }
    return OK;
}

/* Numbers for the products that are timed: those of a matrix, for zeros run faster. */
static enum err fill_codes(struct device *device, struct error *error) {
    size_t most = 0, at = 0;
    for (uint32_t i = 0; i < device->program.matrix_count; i++) {
        size_t bytes = device->matrices[i].cols * form_bytes(device->matrices[i].form);
        if (bytes * device->row_bucket > most) most = bytes * device->row_bucket;
    }
    const struct card_matrix *from = &device->matrices[0];
    size_t bytes = (size_t)from->rows * from->cols * form_bytes(from->form);
    cudaError_t code = cudaSuccess;
    for (; at < most && code == cudaSuccess; at += bytes)
        code = cudaMemcpyAsync((char *)device->codes + at, from->codes,
                               most - at < bytes ? most - at : bytes, cudaMemcpyDeviceToDevice,
                               device->compute);
    if (code == cudaSuccess)
        code = cudaMemsetAsync(device->last_token, 0,
                               device->limits.sequences_max * sizeof *device->last_token,
                               device->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "warming up");
}

static cudaError_t clear(const struct device *device, void *at, size_t bytes) {
    return at ? cudaMemsetAsync(at, 0, bytes, device->compute) : cudaSuccess;
}

/* Zeroes memory that compute-sanitizer's initcheck would report. A copied page is read to its end,
 * and the tool does not see that the library's kernels write sums. */
static enum err clear_all(const struct device *device, struct error *error) {
    const struct cuda_pages *pages = &device->pages;
    const size_t count = device->page_count;
    const size_t logits = device->logit_bucket * device->logit_stride * sizeof(float);
    cudaError_t code = clear(device, device->h, device->h_bytes);
    if (code == cudaSuccess) code = clear(device, device->wide, device->wide_bytes);
    for (uint32_t i = 0; i < device->limits.steps_max && code == cudaSuccess; i++)
        code = clear(device, device->flights[i].logits, logits);
    for (uint32_t i = 0; i < pages->places && code == cudaSuccess; i++) {
        const struct card_place *place = &device->places[i];
        code = clear(device, place->k, count * pages->bytes);
        if (code == cudaSuccess) code = clear(device, place->v, count * pages->bytes);
        if (code == cudaSuccess) code = clear(device, place->scales, count * pages->scale_bytes);
    }
    return code == cudaSuccess ? OK : card_error(code, error, "clearing memory");
}

void device_recall(struct device *device, const char *notes, size_t bytes) {
    (void)cuda_products_recall(device->products, notes, bytes);
}

bool device_tell(struct device *device, const char **ret_notes, size_t *ret_bytes) {
    return cuda_products_tell(device->products, ret_notes, ret_bytes);
}

enum err device_warm(struct device *device, struct error *error) {
    assert(device->is_prepared);
    enum err err = device->clears_memory ? clear_all(device, error) : OK;
    if (err == OK) err = fill_codes(device, error);
    for (uint32_t i = 0; i < device->program.op_count && err == OK; i++) {
        const enum op_kind kind = device->ops[i].op.kind;
        if (kind == OP_MATMUL || kind == OP_LOGITS) err = tune(device, &device->ops[i], error);
    }
    /* Few rows and many: some operations have a kernel for either. */
    const uint32_t most = made_up_rows_max(device);
    if (err == OK && most > 0) err = made_up_step(device, 1, error);
    if (err == OK && most > 1) err = made_up_step(device, most, error);
    if (err == OK) graphs_make(device);
    /* A driver that does not change its graphs is found out now, while the host reads the reason. */
    if (err == OK && device->graph_count > 0 && most > 0) err = made_up_step(device, 1, error);
    device->counters = (struct device_counters){0};
    return err == OK ? OK : err_prefix(error, "warming up");
}

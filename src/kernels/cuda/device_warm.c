/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX DEVICE_PAGE_TOKENS /* keys of the made-up prefix */
#define PARTIALS 3u               /* of the made-up step */

/* ---- products ---- */

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
        call.rows = cuda_bucket(rows);
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

/* ---- a made-up step: a sequence from its beginning ---- */

struct trial {
    struct device_step step;
    struct device_group groups[DEVICE_GROUPS_MAX];
    struct device_samples samples;
    int32_t *tokens;
    uint32_t *positions, *slots, *pages, *wanted;
    struct device_tile_item *tiles;
    uint32_t tile_count;
    struct device_tile_item prefix;
    struct device_decode_item *decode;
    uint32_t decode_count;
    struct device_merge_item merge;
    struct device_draw *draws;
    struct device_ask ask;
    struct device_page_copy copy;
    struct device_result result;
};

static void trial_free(struct trial *trial) {
    free(trial->tokens);
    free(trial->positions);
    free(trial->slots);
    free(trial->pages);
    free(trial->wanted);
    free(trial->tiles);
    free(trial->decode);
    free(trial->draws);
    free(trial->result.tokens);
    free(trial->result.answers);
}

static bool trial_take(struct trial *trial, uint32_t rows) {
    trial->tokens = calloc(rows, sizeof *trial->tokens);
    trial->positions = calloc(rows, sizeof *trial->positions);
    trial->slots = calloc(rows, sizeof *trial->slots);
    trial->pages = calloc(rows, sizeof *trial->pages);
    trial->wanted = calloc(rows, sizeof *trial->wanted);
    trial->tiles = calloc(rows, sizeof *trial->tiles);
    trial->decode = calloc(rows + 1, sizeof *trial->decode);
    trial->draws = calloc(rows, sizeof *trial->draws);
    trial->result.tokens = calloc(rows, sizeof *trial->result.tokens);
    trial->result.answers = calloc(1, sizeof *trial->result.answers);
    return trial->tokens && trial->positions && trial->slots && trial->pages && trial->wanted &&
           trial->tiles && trial->decode && trial->draws && trial->result.tokens &&
           trial->result.answers;
}

/* Rows 0..rows-1 as tiles; of the last ones, which have logits, one continues from a prefix and one
 * is cut. */
static void trial_items(const struct device *device, struct trial *trial, uint32_t rows) {
    const uint32_t tile = cuda_tile_rows(device->program.heads / device->program.kv_heads);
    for (uint32_t row = 0; row < rows && trial->tile_count < device->limits.items_max; row += tile)
        trial->tiles[trial->tile_count++] =
            (struct device_tile_item){.row = row,
                                      .row_count = rows - row < tile ? rows - row : tile,
                                      .end = rows - row < tile ? rows : row + tile,
                                      .partial_in = DEVICE_NONE,
                                      .partial_out = DEVICE_NONE};
    for (uint32_t i = 0; i < trial->step.wanted_count; i++) {
        uint32_t position = trial->wanted[i];
        bool has_parts = position > PREFIX && device->limits.partials_max >= PARTIALS;
        struct device_decode_item item = {
            .row = i, .position = position, .end = position + 1, .partial_out = DEVICE_NONE};
        if (has_parts && i == 0) {
            trial->prefix = (struct device_tile_item){
                .row_count = 1, .end = PREFIX, .partial_in = DEVICE_NONE, .partial_step = 1};
            item.begin = PREFIX, item.partial_count = 1;
        }
        if (has_parts && i == 1) {
            struct device_decode_item piece = item;
            piece.end = PREFIX, piece.partial_out = 1;
            trial->decode[trial->decode_count++] = piece;
            item.begin = PREFIX, item.partial_out = 2;
            trial->merge = (struct device_merge_item){.row = i, .first = 1, .count = 2};
        }
        trial->decode[trial->decode_count++] = item;
    }
}

static void trial_groups(const struct device *device, struct trial *trial, uint32_t rows) {
    struct device_group group = {
        .slots = trial->slots,
        .pages = trial->pages,
        .page_count = (rows + DEVICE_PAGE_TOKENS - 1) / DEVICE_PAGE_TOKENS,
        .all = {.tiles = {.items = trial->tiles, .count = trial->tile_count}},
        .kept = {.prefixes = {.items = &trial->prefix, .count = trial->prefix.row_count},
                 .decode = trial->decode,
                 .decode_count = trial->decode_count,
                 .merges = &trial->merge,
                 .merge_count = trial->merge.count > 0},
    };
    for (uint32_t i = 0; i < device->limits.group_count; i++) trial->groups[i] = group;
}

static void trial_samples(const struct device *device, struct trial *trial) {
    const uint32_t wanted = trial->step.wanted_count;
    const struct device_draw plain = {.mask = -1, .slot = -1};
    for (uint32_t i = 0; i < wanted; i++) {
        trial->draws[i] = plain;
        if (i % 2 == 1) trial->draws[i].factor = 1, trial->draws[i].top_k = 4;
    }
    trial->ask = (struct device_ask){.token = -1, .top_count = 1};
    trial->samples = (struct device_samples){
        .number = trial->step.number,
        .count = wanted,
        .rows = trial->slots, /* 0, 1, 2, … as the slots of a first sequence are */
        .draws = trial->draws,
        .mask_words = (device->program.vocab + 31) / 32,
        .asks = &trial->ask,
        .ask_count = wanted > 0,
    };
}

static enum err run_trial(struct device *device, uint32_t rows, struct error *error) {
    struct trial trial = {0};
    enum err err = OK;
    if (!trial_take(&trial, rows)) err = err_set(error, ERR_LIMIT, "no memory to warm up");
    if (err == OK) {
        const uint32_t most = device->limits.logit_rows_max;
        uint32_t wanted = device->logit_matrix == DEVICE_NONE ? 0 : rows < most ? rows : most;
        for (uint32_t i = 0; i < rows; i++) {
            trial.positions[i] = trial.slots[i] = i;
            trial.pages[i] = i; /* more than there are pages; only the first are named */
        }
        for (uint32_t i = 0; i < wanted; i++) trial.wanted[i] = rows - wanted + i;
        trial.copy = (struct device_page_copy){.from = 0, .to = 1};
        trial.step = (struct device_step){.row_count = rows,
                                          .wanted_count = wanted,
                                          .copy_count = device->page_count > 1,
                                          .copies = &trial.copy,
                                          .tokens = trial.tokens,
                                          .positions = trial.positions,
                                          .wanted = trial.wanted,
                                          .groups = trial.groups};
        trial_items(device, &trial, rows);
        trial_groups(device, &trial, rows);
        trial_samples(device, &trial);
        err = device_submit(device, &trial.step, &trial.samples, error);
    }
    if (err == OK) err = device_wait(device, trial.step.number, &trial.result, error);
    trial_free(&trial);
    return err;
}

void device_recall(struct device *device, const char *notes, size_t bytes) {
    (void)cuda_products_recall(device->products, notes, bytes);
}

bool device_tell(struct device *device, const char **ret_notes, size_t *ret_bytes) {
    return cuda_products_tell(device->products, ret_notes, ret_bytes);
}

enum err device_warm(struct device *device, struct error *error) {
    assert(device->is_prepared);
    enum err err = fill_codes(device, error);
    for (uint32_t i = 0; i < device->program.op_count && err == OK; i++) {
        const enum op_kind kind = device->ops[i].op.kind;
        if (kind == OP_MATMUL || kind == OP_LOGITS) err = tune(device, &device->ops[i], error);
    }
    /* Few rows and many: some operations have a kernel for either. */
    const struct device_limits *limits = &device->limits;
    uint64_t most = (uint64_t)device->page_count * DEVICE_PAGE_TOKENS;
    if (most > limits->context_max) most = limits->context_max;
    if (most > limits->rows_max) most = limits->rows_max;
    if (most > (uint64_t)limits->pages_max * DEVICE_PAGE_TOKENS)
        most = (uint64_t)limits->pages_max * DEVICE_PAGE_TOKENS;
    if (limits->items_max <= limits->logit_rows_max) most = 1; /* no room for pieces */
    if (err == OK && most > 0) err = run_trial(device, 1, error);
    if (err == OK && most > 1) err = run_trial(device, (uint32_t)most, error);
    if (err == OK) graphs_make(device);
    /* A driver that does not change its graphs is found out now, while the host reads the reason. */
    if (err == OK && device->graph_count > 0 && most > 0) err = run_trial(device, 1, error);
    device->counters = (struct device_counters){0};
    return err == OK ? OK : err_prefix(error, "warming up");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "plain_internal.h"

#include <string.h>

/* ---- the ledger ---- */

static void count_weights(struct gpu *gpu) {
    const struct gpu_program *program = &gpu->program;
    struct memory_ledger *ledger = &gpu->ledger;
    uint64_t cols_max = 0;
    for (uint32_t i = 0; i < program->matrix_count; i++) {
        const struct gpu_matrix *matrix = &program->matrices[i];
        ledger->weights += matrix->form == GPU_BLOCKS ? matrix->block_bytes
                                                      : (uint64_t)matrix->rows * matrix->cols *
                                                            plain_form_bytes(matrix->form);
        if (matrix->cols > cols_max) cols_max = matrix->cols;
    }
    uint64_t each = sizeof *gpu->edited + sizeof *gpu->order + sizeof *gpu->is_held;
    ledger->workspace = cols_max * sizeof(float) + program->vocab * each;
}

/* Numbers of a row of queries. */
static uint64_t queries_of(const struct gpu_program *program) {
    return program->latent.rank > 0 ? (uint64_t)program->heads * program->head_dim : 0;
}

static void count_buffers(struct gpu *gpu) {
    const struct gpu_program *program = &gpu->program;
    const struct gpu_limits *limits = &gpu->limits;
    struct memory_ledger *ledger = &gpu->ledger;
    uint64_t row = 3ull * program->width + 1 + gpu->wide_width + gpu->attended_width +
                   (uint64_t)program->input_width * program->input_layers +
                   gpu_state_rates(&program->recurrent) + queries_of(program) +
                   (uint64_t)program->rope_count * program->head_dim;
    uint64_t partial = (uint64_t)program->heads * (program->head_dim + 2);
    ledger->activations = (limits->rows_max * row + limits->partials_max * partial) * sizeof(float);
    ledger->logits = (uint64_t)limits->logit_rows_max * program->vocab_rows * sizeof(float);

    uint64_t items = 2 * sizeof(struct gpu_tile_item) + sizeof(struct gpu_decode_item) +
                     sizeof(struct gpu_merge_item);
    uint64_t rows = limits->rows_max, wanted = limits->logit_rows_max;
    uint64_t attention = limits->items_max * items + (limits->partials_max + rows) * 4;
    uint64_t group = rows * 4 + 2 * attention;
    uint64_t draw =
        sizeof(struct gpu_draw) + sizeof(struct gpu_ask) + 4 + (program->vocab + 31) / 32 * 4ull;
    ledger->steps =
        limits->steps_max *
        ((rows * 2 + wanted + limits->pages_max) * 4 + limits->group_count * group + wanted * draw +
         limits->edits_max * sizeof(struct draw_edit) + limits->named_max * sizeof(int32_t));
}

static void count_kv(struct gpu *gpu) {
    const struct gpu_limits *limits = &gpu->limits;
    struct memory_ledger *ledger = &gpu->ledger;
    const uint64_t keys = gpu->kv_width * plain_form_bytes(limits->kv_form) +
                          (limits->kv_form == GPU_E4M3 ? gpu->kv_heads_most * sizeof(uint16_t) : 0);
    ledger->page_bytes =
        (uint64_t)gpu_kv_planes(&gpu->program) * limits->layer_places * GPU_PAGE_TOKENS * keys;
    ledger->context = PLAIN_CONTEXT_BYTES;
    ledger->used = ledger->context + ledger->weights + ledger->activations + ledger->logits +
                   ledger->steps + ledger->workspace + ledger->states;
    uint64_t fit =
        ledger->limit > ledger->used ? (ledger->limit - ledger->used) / ledger->page_bytes : 0;
    if (fit > limits->page_count_max) fit = limits->page_count_max;
    if (fit < limits->page_count_min) fit = limits->page_count_min;
    ledger->page_count = (uint32_t)fit;
    ledger->kv = fit * ledger->page_bytes;
    ledger->used += ledger->kv;
}

/* ---- memory ---- */

static void *room(struct gpu *gpu, size_t count, size_t item_bytes) {
    return plain_new(&gpu->heap, count, item_bytes);
}

static void open_matrices(struct gpu *gpu) {
    const struct gpu_program *program = &gpu->program;
    gpu->matrices = room(gpu, program->matrix_count, sizeof *gpu->matrices);
    uint32_t cols_max = 0;
    for (uint32_t i = 0; i < program->matrix_count; i++) {
        struct plain_matrix *matrix = &gpu->matrices[i];
        matrix->shape = program->matrices[i];
        matrix->values = room(gpu, (size_t)matrix->shape.rows * matrix->shape.cols,
                              plain_form_bytes(matrix->shape.form));
        matrix->is_filled = room(gpu, matrix->shape.rows, sizeof *matrix->is_filled);
        if (matrix->shape.cols > cols_max) cols_max = matrix->shape.cols;
    }
    gpu->weights = room(gpu, cols_max, sizeof(float));
}

static void open_buffers(struct gpu *gpu) {
    const struct gpu_program *program = &gpu->program;
    const struct gpu_limits *limits = &gpu->limits;
    size_t rows = limits->rows_max, wanted = limits->logit_rows_max;
    gpu->x = room(gpu, rows * program->width, sizeof(float));
    gpu->h = room(gpu, rows * program->width, sizeof(float));
    gpu->wide = room(gpu, rows * gpu->wide_width, sizeof(float));
    gpu->narrow = room(gpu, rows * (gpu_state_rates(&program->recurrent) + 1), sizeof(float));
    gpu->shared = room(gpu, rows * program->width, sizeof(float));
    gpu->attended = room(gpu, rows * gpu->attended_width, sizeof(float));
    gpu->inputs = room(gpu, rows * program->input_layers * program->input_width, sizeof(float));
    gpu->queries = room(gpu, rows * queries_of(program), sizeof(float));
    gpu->side = room(gpu, rows * program->width, sizeof(float));
    gpu->logits = room(gpu, wanted * program->vocab_rows, sizeof(float));
    for (uint32_t i = 0; i < program->rope_count; i++) {
        gpu->cosines[i] = room(gpu, rows * program->head_dim / 2, sizeof(float));
        gpu->sines[i] = room(gpu, rows * program->head_dim / 2, sizeof(float));
    }
    gpu->partial_sums =
        room(gpu, (size_t)limits->partials_max * program->heads * (program->head_dim + 2),
             sizeof(float));
    gpu->partials = room(gpu, limits->partials_max, sizeof *gpu->partials);
    gpu->results = room(gpu, rows, sizeof *gpu->results);
    gpu->edited = room(gpu, program->vocab, sizeof *gpu->edited);
    gpu->order = room(gpu, program->vocab, sizeof *gpu->order);
    gpu->is_held = room(gpu, program->vocab, sizeof *gpu->is_held);
    gpu->tokens = room(gpu, wanted, sizeof *gpu->tokens);
    gpu->is_drawn = room(gpu, wanted, sizeof *gpu->is_drawn);
    gpu->last_token = room(gpu, limits->sequences_max, sizeof *gpu->last_token);
    gpu->has_token = room(gpu, limits->sequences_max, sizeof *gpu->has_token);
}

/* Room for the layer that has most. */
static void open_experts(struct gpu *gpu) {
    const struct gpu_program *program = &gpu->program;
    size_t used = 0, ffn = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_experts *experts = &program->ops[i].experts;
        if (experts->used > used) used = experts->used;
        if (experts->ffn > ffn) ffn = experts->ffn;
    }
    const size_t pairs = used * gpu->limits.rows_max;
    gpu->chosen = room(gpu, pairs, sizeof *gpu->chosen);
    gpu->chosen_weights = room(gpu, pairs, sizeof *gpu->chosen_weights);
    gpu->gated = room(gpu, 2 * (ffn + program->width), sizeof *gpu->gated);
}

static void open_kv(struct gpu *gpu) {
    const struct gpu_limits *limits = &gpu->limits;
    size_t slots = plain_slots(gpu), places = limits->layer_places;
    gpu->kv = room(gpu, gpu->ledger.page_count, gpu->ledger.page_bytes);
    if (limits->kv_form == GPU_E4M3)
        gpu->kv_scales = room(gpu, places * slots * gpu->kv_heads_most * 2, sizeof(uint16_t));
    gpu->stamps = room(gpu, places * slots, sizeof *gpu->stamps);
    gpu->slot_marks = room(gpu, slots, sizeof *gpu->slot_marks);
    gpu->key_marks = room(gpu, (size_t)limits->context_max + 1, sizeof(uint64_t));
    for (uint32_t i = 0; i < limits->context_max; i++)
        gpu->key_marks[i + 1] = gpu->key_marks[i] + rng_at(0, i);
}

static void check_limits(const struct gpu_limits *limits) {
    MUST(limits->rows_max > 0 && limits->logit_rows_max > 0 && limits->sequences_max > 0 &&
             limits->context_max > 0 && limits->layer_places > 0,
         "a limit is zero");
    MUST(limits->group_count >= 1 && limits->group_count <= GPU_GROUPS_MAX, "%u groups",
         limits->group_count);
    MUST(limits->page_count_min > 0 && limits->page_count_min <= limits->page_count_max,
         "%u to %u pages", limits->page_count_min, limits->page_count_max);
    MUST(limits->steps_max >= 1 && limits->steps_max <= GPU_STEPS_MAX, "%u steps under way",
         limits->steps_max);
    MUST(limits->pages_max > 0 && limits->items_max > 0, "no pages or items in a step");
}

enum err plain_prepare(struct gpu *gpu, const struct gpu_program *program,
                       const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                       struct error *error) {
    MUST(gpu->calls[PLAIN_PREPARE] == 1, "prepare is called once");
    check_limits(limits);
    gpu->limits = *limits;
    enum err err = plain_take_program(gpu, program, error);
    if (err != OK) return err;
    count_weights(gpu);
    count_buffers(gpu);
    plain_count_states(gpu);
    count_kv(gpu);
    *ret_ledger = gpu->ledger;
    if (gpu->ledger.used > gpu->ledger.limit)
        return err_set(error, ERR_LIMIT, "plain device: %llu KiB are needed, and %llu KiB allowed",
                       (unsigned long long)gpu->ledger.used >> 10,
                       (unsigned long long)gpu->ledger.limit >> 10);
    open_matrices(gpu);
    open_buffers(gpu);
    open_experts(gpu);
    open_kv(gpu);
    plain_open_states(gpu);
    gpu->is_prepared = true;
    return OK;
}

/* ---- weights ---- */

static enum err check_rows(const struct gpu *gpu, const struct gpu_rows *rows,
                           struct error *error) {
    const struct gpu_matrix *shape = &gpu->matrices[rows->matrix].shape;
    if (rows->row_first > shape->rows || rows->rows > shape->rows - rows->row_first)
        return err_set(error, ERR_INVALID, "matrix %u: rows %u..%u, and it has %u", rows->matrix,
                       rows->row_first, rows->row_first + rows->rows - 1, shape->rows);
    if (!tensor_type_is_known(rows->type) ||
        shape->cols % tensor_type_block_elements(rows->type) != 0)
        return err_set(error, ERR_INVALID, "matrix %u: rows of %u columns and type %u",
                       rows->matrix, shape->cols, (unsigned)rows->type);
    return OK;
}

enum err plain_fill(struct gpu *gpu, const struct gpu_rows *rows, struct error *error) {
    MUST(!gpu->is_warm, "fill behind warm");
    MUST(rows->matrix < gpu->program.matrix_count, "fill of matrix %u, and there are %u",
         rows->matrix, gpu->program.matrix_count);
    enum err err = check_rows(gpu, rows, error);
    if (err != OK) return err;
    struct plain_matrix *matrix = &gpu->matrices[rows->matrix];
    uint32_t cols = matrix->shape.cols;
    size_t row_bytes = tensor_type_row_bytes(rows->type, cols);
    for (uint32_t i = 0; i < rows->rows; i++) {
        uint32_t row = rows->row_first + i, from = rows->row_order ? rows->row_order[i] : i;
        MUST(!matrix->is_filled[row], "matrix %u: row %u is filled twice", rows->matrix, row);
        matrix->is_filled[row] = true;
        quant_row_to_f32(rows->type, (const unsigned char *)rows->blocks + from * row_bytes, cols,
                         gpu->weights);
        if (matrix->shape.form == GPU_F32) {
            memcpy((float *)matrix->values + (size_t)row * cols, gpu->weights,
                   cols * sizeof(float));
            continue;
        }
        uint16_t *to = (uint16_t *)matrix->values + (size_t)row * cols;
        for (uint32_t c = 0; c < cols; c++) to[c] = bf16_from_f32(gpu->weights[c]);
    }
    return OK;
}

#define NOTES "notes of the plain device\n"

void plain_recall(struct gpu *gpu, const char *notes, size_t bytes) {
    MUST(!gpu->is_warm, "recall behind warm");
    gpu->is_recalled = bytes == strlen(NOTES) && memcmp(notes, NOTES, bytes) == 0;
}

bool plain_tell(struct gpu *gpu, const char **ret_notes, size_t *ret_bytes) {
    MUST(gpu->is_warm, "tell before warm");
    *ret_notes = NOTES, *ret_bytes = strlen(NOTES);
    return !gpu->is_recalled;
}

enum err plain_warm(struct gpu *gpu, struct error *error) {
    MUST(!gpu->is_warm, "warm is called once");
    for (uint32_t i = 0; i < gpu->program.matrix_count; i++) {
        const struct plain_matrix *matrix = &gpu->matrices[i];
        uint32_t rows = matrix->shape.rows, first = 0;
        while (first < rows && matrix->is_filled[first]) first++;
        if (first == rows) continue;
        uint32_t end = first;
        while (end < rows && !matrix->is_filled[end]) end++;
        return err_set(error, ERR_INVALID, "matrix %u: rows %u..%u of %u are not filled", i, first,
                       end - 1, rows);
    }
    gpu->is_warm = true;
    return OK;
}

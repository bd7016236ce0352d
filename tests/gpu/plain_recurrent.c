/* SPDX-License-Identifier: Apache-2.0 */

/* Recurrent layers of the plain GPU: its states, the referee of who reads and writes them, and the
 * operations, by the kernels of kernels/ref. A place has the parts of all layers one behind
 * another: the last inputs of the convolution, then the matrices. It is NaN until it is written. */

#include "kernels/ref/ref.h"
#include "plain_internal.h"

#include <math.h>
#include <string.h>

/* ---- places ---- */

static size_t tail_floats(const struct gpu *gpu) {
    const struct gpu_recurrent_sizes *sizes = &gpu->program.recurrent;
    return (size_t)(sizes->taps - 1) * sizes->channels;
}

static size_t matrix_floats(const struct gpu *gpu) {
    const struct gpu_recurrent_sizes *sizes = &gpu->program.recurrent;
    if (sizes->key_heads == 0) return 0;
    return (size_t)sizes->value_heads * sizes->key_dim * sizes->value_dim;
}

static size_t place_floats(const struct gpu *gpu) {
    const uint32_t layers = gpu->program.recurrent.layers;
    return layers > 0 ? layers * (tail_floats(gpu) + matrix_floats(gpu)) : 0;
}

void plain_count_states(struct gpu *gpu) {
    struct memory_ledger *ledger = &gpu->ledger;
    MUST((gpu->limits.state_places > 0) == (gpu->program.recurrent.layers > 0),
         "%u places for the states of %u layers", gpu->limits.state_places,
         gpu->program.recurrent.layers);
    ledger->state_places = gpu->limits.state_places;
    ledger->state_bytes = place_floats(gpu) * sizeof(float);
    ledger->states = ledger->state_places * ledger->state_bytes;
}

void plain_open_states(struct gpu *gpu) {
    const size_t floats = gpu->limits.state_places * place_floats(gpu);
    gpu->states = plain_new(&gpu->heap, floats, sizeof *gpu->states);
    for (size_t i = 0; i < floats; i++) gpu->states[i] = NAN;
    gpu->state_marks = plain_new(&gpu->heap, gpu->limits.state_places, sizeof *gpu->state_marks);
}

/* ---- who reads and writes ---- */

/* Marks a place that the step writes. */
static void note_written(struct gpu *gpu, const struct gpu_step *step, uint32_t place) {
    MUST(place < gpu->limits.state_places, "step %llu writes state %u of %u",
         (unsigned long long)step->number, place, gpu->limits.state_places);
    MUST(gpu->state_marks[place] != gpu->submits, "step %llu writes state %u twice",
         (unsigned long long)step->number, place);
    gpu->state_marks[place] = gpu->submits;
}

static void check_read(const struct gpu *gpu, const struct gpu_step *step,
                       const struct gpu_state_item *item) {
    if (item->from == GPU_NONE) return;
    MUST(item->from < gpu->limits.state_places, "step %llu reads state %u of %u",
         (unsigned long long)step->number, item->from, gpu->limits.state_places);
    MUST(item->from == item->to || gpu->state_marks[item->from] != gpu->submits,
         "step %llu reads state %u, which another sequence writes",
         (unsigned long long)step->number, item->from);
    MUST(gpu->state_marks[item->from] > 0, "step %llu reads state %u, which no step wrote",
         (unsigned long long)step->number, item->from);
}

void plain_check_states(struct gpu *gpu, const struct gpu_step *step) {
    uint32_t row = 0;
    if (gpu->limits.state_places == 0) {
        MUST(step->state_count == 0, "step %llu has states", (unsigned long long)step->number);
        return;
    }
    MUST(step->state_count <= gpu->limits.sequences_max, "step %llu has %u sequences, of %u",
         (unsigned long long)step->number, step->state_count, gpu->limits.sequences_max);
    for (uint32_t i = 0; i < step->state_count; i++) {
        const struct gpu_state_item *item = &step->states[i];
        MUST(item->row == row && item->rows > 0,
             "step %llu: rows %u + %u of state %u do not go on from row %u",
             (unsigned long long)step->number, item->row, item->rows, item->to, row);
        row += item->rows;
        /* Its own place may hold what no step wrote: check_read comes after the marks. */
        MUST(item->from != item->to || item->from >= gpu->limits.state_places ||
                 gpu->state_marks[item->from] > 0,
             "step %llu goes on from state %u, which no step wrote",
             (unsigned long long)step->number, item->from);
        note_written(gpu, step, item->to);
        if (item->save == GPU_NONE) continue;
        MUST(item->save_rows >= 1 && item->save_rows <= item->rows,
             "step %llu saves a state after row %u of %u", (unsigned long long)step->number,
             item->save_rows, item->rows);
        note_written(gpu, step, item->save);
    }
    MUST(row == step->row_count, "step %llu: %u rows of %u have states",
         (unsigned long long)step->number, row, step->row_count);
    for (uint32_t i = 0; i < step->state_count; i++) check_read(gpu, step, &step->states[i]);
}

/* ---- operations ---- */

/* A layer's part of the states. */
struct part {
    const struct plain_pass *pass;
    const struct gpu_op *op;
    size_t at, floats; /* in a place */
    void (*run)(const struct part *part, const struct recurrent_item *item);
};

static float *part_at(const struct part *part, uint32_t place) {
    const struct gpu *gpu = part->pass->gpu;
    return gpu->states + place * place_floats(gpu) + part->at;
}

static void copy_part(const struct part *part, uint32_t from, uint32_t to) {
    if (from == GPU_NONE)
        memset(part_at(part, to), 0, part->floats * sizeof(float));
    else
        memmove(part_at(part, to), part_at(part, from), part->floats * sizeof(float));
}

/* Rounds a matrix as it lies in memory. */
static void round_part(const struct part *part, uint32_t place) {
    const enum gpu_form form = part->pass->gpu->limits.state_form;
    if (part->op->kind != OP_CONV) plain_round(form, part_at(part, place), (uint32_t)part->floats);
}

static void run_item(const struct part *part, const struct gpu_state_item *from) {
    struct recurrent_item item = {
        .row = from->row, .row_count = from->rows, .state = part_at(part, from->to)};
    if (from->from != from->to) copy_part(part, from->from, from->to);
    if (from->save != GPU_NONE) {
        item.row_count = from->save_rows;
        part->run(part, &item);
        copy_part(part, from->to, from->save);
        round_part(part, from->save);
        item.row += item.row_count;
        item.row_count = from->rows - from->save_rows;
    }
    part->run(part, &item);
    round_part(part, from->to);
}

static void run_items(const struct part *part) {
    const struct plain_pass *pass = part->pass;
    MUST(!pass->is_kept, "a state goes on behind KEEP");
    for (uint32_t i = 0; i < pass->step->state_count; i++) run_item(part, &pass->step->states[i]);
}

static struct part part_of(const struct plain_pass *pass, const struct gpu_op *op) {
    const size_t tail = tail_floats(pass->gpu), matrix = matrix_floats(pass->gpu);
    const size_t layer = op->recurrent.place * (tail + matrix);
    if (op->kind == OP_CONV)
        return (struct part){.pass = pass, .op = op, .at = layer, .floats = tail};
    return (struct part){.pass = pass, .op = op, .at = layer + tail, .floats = matrix};
}

static void conv_item(const struct part *part, const struct recurrent_item *item) {
    const struct plain_pass *pass = part->pass;
    const struct gpu_recurrent_sizes *sizes = &pass->gpu->program.recurrent;
    const bool is_gated = part->op->is_gated;
    const size_t channels = sizes->channels;
    const size_t stride = is_gated ? 3 * channels : channels + sizes->width;
    const struct short_conv call = {.x = pass->wide + (is_gated ? 2 * channels : 0),
                                    .before = is_gated ? pass->wide : NULL,
                                    .after = is_gated ? pass->wide + channels : NULL,
                                    .x_stride = stride,
                                    .weight = part->op->recurrent.conv,
                                    .bias = part->op->recurrent.conv_bias,
                                    .y = is_gated ? pass->attended : pass->wide,
                                    .y_stride = is_gated ? channels : stride,
                                    .channels = sizes->channels,
                                    .taps = sizes->taps,
                                    .has_silu = !is_gated};
    ref_short_conv(&call, item, 0, sizes->channels);
}

void plain_conv(struct plain_pass *pass, const struct gpu_op *op) {
    struct part part = part_of(pass, op);
    part.run = conv_item;
    run_items(&part);
}

static void delta_item(const struct part *part, const struct recurrent_item *item) {
    const struct plain_pass *pass = part->pass;
    const struct gpu_recurrent_sizes *sizes = &pass->gpu->program.recurrent;
    const size_t keys = (size_t)sizes->key_heads * sizes->key_dim;
    const size_t rates = 2 * (size_t)sizes->value_heads;
    const struct delta_rule call = {.q = pass->wide,
                                    .k = pass->wide + keys,
                                    .v = pass->wide + 2 * keys,
                                    .qkv_stride = (size_t)sizes->channels + sizes->width,
                                    .a = pass->narrow,
                                    .b = pass->narrow + sizes->value_heads,
                                    .a_stride = rates,
                                    .b_stride = rates,
                                    .a_log = part->op->recurrent.decay,
                                    .dt_bias = part->op->recurrent.step_bias,
                                    .y = pass->attended,
                                    .y_stride = sizes->width,
                                    .k_heads = sizes->key_heads,
                                    .v_heads = sizes->value_heads,
                                    .k_dim = sizes->key_dim,
                                    .v_dim = sizes->value_dim,
                                    .heads_are_tiled = sizes->heads_are_tiled};
    ref_delta_rule(&call, item, 0, sizes->value_heads);
}

void plain_delta(struct plain_pass *pass, const struct gpu_op *op) {
    struct part part = part_of(pass, op);
    part.run = delta_item;
    run_items(&part);
}

static void mamba_item(const struct part *part, const struct recurrent_item *item) {
    const struct plain_pass *pass = part->pass;
    const struct gpu_recurrent_sizes *sizes = &pass->gpu->program.recurrent;
    const struct gpu_recurrent *vectors = &part->op->recurrent;
    const float *b = pass->wide + sizes->width;
    const struct mamba call = {.x = pass->wide,
                               .b = b,
                               .c = b + (size_t)sizes->key_heads * sizes->key_dim,
                               .xbc_stride = (size_t)sizes->channels + sizes->width,
                               .dt = pass->narrow,
                               .dt_stride = sizes->value_heads,
                               .dt_bias = vectors->step_bias,
                               .a_log = vectors->decay,
                               .d = vectors->skip,
                               .dt_min = sizes->step_min,
                               .dt_max = sizes->step_max > 0 ? sizes->step_max : INFINITY,
                               .y = pass->attended,
                               .y_stride = sizes->width,
                               .heads = sizes->value_heads,
                               .groups = sizes->key_heads,
                               .head_dim = sizes->value_dim,
                               .state_dim = sizes->key_dim};
    ref_mamba(&call, item, 0, sizes->value_heads);
}

static void scale(float *values, size_t count, float factor) {
    for (size_t i = 0; factor > 0 && i < count; i++) values[i] *= factor;
}

void plain_mamba(struct plain_pass *pass, const struct gpu_op *op) {
    struct part part = part_of(pass, op);
    scale(pass->narrow, (size_t)pass->row_count * pass->gpu->program.recurrent.value_heads,
          op->gate_factor);
    part.run = mamba_item;
    run_items(&part);
}

/* Without a norm: attended · silu(gate). */
static void gate_alone(struct plain_pass *pass) {
    const struct gpu_recurrent_sizes *sizes = &pass->gpu->program.recurrent;
    for (size_t row = 0; row < pass->row_count; row++) {
        float *y = pass->attended + row * sizes->width;
        const float *gate = pass->wide + row * (sizes->channels + sizes->width) + sizes->channels;
        for (uint32_t i = 0; i < sizes->width; i++) y[i] *= gate[i] / (1.0f + expf(-gate[i]));
    }
}

static void norm_states(struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu_recurrent_sizes *sizes = &pass->gpu->program.recurrent;
    const size_t stride = (size_t)sizes->channels + sizes->width;
    const uint32_t groups = sizes->is_mamba ? sizes->key_heads : sizes->value_heads;
    ref_gated_norm(&(struct gated_norm){.x = pass->attended,
                                        .x_stride = sizes->width,
                                        .gate = pass->wide + sizes->channels,
                                        .gate_stride = stride,
                                        .weight = op->recurrent.norm,
                                        .y = pass->attended,
                                        .y_stride = sizes->width,
                                        .weight_step = sizes->is_mamba ? sizes->width / groups : 0,
                                        .width = sizes->width / groups,
                                        .groups = groups,
                                        .rows = pass->row_count,
                                        .epsilon = sizes->eps,
                                        .gate_is_first = op->is_gated});
}

void plain_gated_norm(struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu_recurrent_sizes *sizes = &pass->gpu->program.recurrent;
    const size_t stride = (size_t)sizes->channels + sizes->width;
    for (size_t row = 0; row < pass->row_count; row++)
        scale(pass->wide + row * stride + sizes->channels, sizes->width, op->gate_factor);
    if (op->recurrent.norm)
        norm_states(pass, op);
    else
        gate_alone(pass);
    scale(pass->attended, (size_t)pass->row_count * sizes->width, op->factor);
}

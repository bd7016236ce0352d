/* SPDX-License-Identifier: Apache-2.0 */

/* The operations of recurrent layers (recurrent.h), and the room that they and their states need.
 *
 * CONV, DELTA and GATED_NORM of a layer are one or two launches per kind of rows, all in DELTA; or
 * all in MAMBA, where two more are of all rows. A step has a list of items: first the rows that are
 * alone in their sequence and save nothing, which are decoded, then the others, which go through
 * chunks. */

#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static_assert(sizeof(struct cuda_state_item) == sizeof(struct gpu_state_item) &&
                  offsetof(struct cuda_state_item, save_rows) ==
                      offsetof(struct gpu_state_item, save_rows) &&
                  CUDA_STATE_NONE == GPU_NONE,
              "items are copied");

#define TAIL_BYTES 2u /* an input of a convolution: bf16 */

/* ---- room ---- */

static size_t align_16(size_t bytes) {
    return (bytes + 15) / 16 * 16;
}

/* Whether some rows that a norm left in bf16 are codes of 8 bits for a second product. */
static bool prepares_again(const struct gpu_program *program) {
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *op = &program->ops[i];
        if (op->kind == OP_PREPARE && op->attended == 0 &&
            !gpu_form_is_bf16(program->matrices[op->next].form))
            return true;
    }
    return false;
}

static void place_states(struct gpu *gpu, struct memory *memory) {
    const struct gpu_recurrent_sizes *sizes = &gpu->program.recurrent;
    struct recurrent_room *room = &gpu->recurrent;
    const size_t numbers =
        sizes->key_heads > 0 ? (size_t)sizes->value_heads * sizes->key_dim * sizes->value_dim : 0;
    const size_t places = (size_t)sizes->layers * gpu->limits.state_places;
    room->state_stride = align_16(numbers * form_bytes(gpu->limits.state_form));
    room->tail_stride = align_16((size_t)(sizes->taps - 1) * sizes->channels * TAIL_BYTES);
    room->states = memory_take(memory, MEMORY_STATES, places * room->state_stride);
    room->tails = memory_take(memory, MEMORY_STATES, places * room->tail_stride);
}

void recurrent_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory) {
    const struct gpu_recurrent_sizes *sizes = &program->recurrent;
    const enum memory_part part = MEMORY_ACTIVATIONS;
    struct recurrent_room *room = &gpu->recurrent;
    *room = (struct recurrent_room){0};
    if (prepares_again(program))
        room->again = memory_take(memory, part, (size_t)gpu->row_bucket * program->width);
    if (sizes->layers == 0) return;
    if (sizes->key_heads > 0)
        room->chunks = memory_take(
            memory, part,
            sizes->is_mamba ? cuda_mamba_room(gpu->row_bucket, sizes->value_heads, sizes->key_heads,
                                              sizes->value_dim, sizes->key_dim)
                            : cuda_delta_room(gpu->row_bucket, sizes->key_heads, sizes->value_heads,
                                              sizes->key_dim));
    place_states(gpu, memory);
}

size_t recurrent_state_bytes(const struct gpu *gpu) {
    return gpu->program.recurrent.layers *
           (gpu->recurrent.state_stride + gpu->recurrent.tail_stride);
}

/* ---- a step's items ---- */

static bool is_decoded(const struct gpu_state_item *item) {
    return item->rows == 1 && item->save == GPU_NONE;
}

void recurrent_put(struct gpu *gpu, struct flight *flight, const struct gpu_step *step) {
    struct card_step *to = &flight->step;
    uint32_t decoded = 0;
    void *host = NULL;
    to->states = NULL;
    to->state_count = to->decoded_count = 0;
    if (gpu->program.recurrent.layers == 0) return;
    for (uint32_t i = 0; i < step->state_count; i++) decoded += is_decoded(&step->states[i]);
    to->states = block_take(&flight->block, step->state_count * sizeof *step->states, &host);
    to->state_count = step->state_count;
    to->decoded_count = decoded;
    struct gpu_state_item *first = host, *other = first + (host ? decoded : 0);
    for (uint32_t i = 0; host && i < step->state_count; i++) {
        const struct gpu_state_item *item = &step->states[i];
        assert(item->to < gpu->limits.state_places && item->rows > 0);
        if (is_decoded(item))
            *first++ = *item;
        else
            *other++ = *item;
    }
}

/* ---- operations ---- */

struct cuda_product product_columns(const struct cuda_product *product, uint32_t first) {
    struct cuda_product part = *product;
    part.sums = (const char *)product->sums +
                (size_t)first * (product->type == CUDA_SUMS_INT32 ? sizeof(int32_t) : 2);
    if (part.column_scale) part.column_scale += first;
    if (part.bias) part.bias += first;
    return part;
}

static struct cuda_states states_of(const struct gpu *gpu, uint32_t layer) {
    const struct recurrent_room *room = &gpu->recurrent;
    const size_t before = (size_t)layer * gpu->limits.state_places;
    return (struct cuda_states){.at = room->states + before * room->state_stride,
                                .stride = room->state_stride,
                                .is_bf16 = gpu->limits.state_form == GPU_BF16};
}

static struct cuda_states tails_of(const struct gpu *gpu, uint32_t layer) {
    const struct recurrent_room *room = &gpu->recurrent;
    const size_t before = (size_t)layer * gpu->limits.state_places;
    return (struct cuda_states){.at = room->tails + before * room->tail_stride,
                                .stride = room->tail_stride,
                                .is_bf16 = true};
}

enum err walk_conv(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct card_step *step = &walk->flight->step;
    if (!op->op.is_gated) return OK; /* DELTA or MAMBA convolves */
    const struct cuda_short_conv call = {.in = walk->product[TO_WIDE],
                                         .conv = op->op.recurrent.conv,
                                         .tails = tails_of(gpu, op->op.recurrent.place),
                                         .items = step->states,
                                         .item_count = step->state_count,
                                         .rows = walk->rows,
                                         .width = gpu->program.recurrent.channels,
                                         .y = walk->attended,
                                         .y_stride = gpu->program.recurrent.width,
                                         .decoded_count = step->decoded_count};
    return cuda_short_conv(&call, gpu->compute, error);
}

enum err walk_delta(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_recurrent_sizes *sizes = &gpu->program.recurrent;
    const struct gpu_recurrent *vectors = &op->op.recurrent;
    const struct card_step *step = &walk->flight->step;
    const struct cuda_product *wide = &walk->product[TO_WIDE];
    const struct cuda_product *rates = &walk->product[TO_NARROW];
    struct cuda_delta call = {.qkv = *wide,
                              .z = product_columns(wide, sizes->channels),
                              .a = *rates,
                              .b = product_columns(rates, sizes->value_heads),
                              .conv = vectors->conv,
                              .a_log = vectors->decay,
                              .dt_bias = vectors->step_bias,
                              .norm = vectors->norm,
                              .epsilon = sizes->eps,
                              .states = states_of(gpu, vectors->place),
                              .tails = tails_of(gpu, vectors->place),
                              .items = step->states ? step->states + step->decoded_count : NULL,
                              .item_count = step->state_count - step->decoded_count,
                              .rows = walk->rows,
                              .k_heads = sizes->key_heads,
                              .v_heads = sizes->value_heads,
                              .k_dim = sizes->key_dim,
                              .v_dim = sizes->value_dim,
                              .heads_are_tiled = sizes->heads_are_tiled,
                              .y = walk->attended,
                              .y_stride = sizes->width,
                              .room = gpu->recurrent.chunks};
    enum err err = cuda_delta_chunk(&call, gpu->compute, error);
    call.is_next = call.item_count > 0;
    call.items = step->states;
    call.item_count = step->decoded_count;
    return err == OK ? cuda_delta_decode(&call, gpu->compute, error) : err;
}

/* The operation that gates and norms what a state leaves: behind it, or behind KEEP. */
static const struct card_op *norm_behind(const struct card_op *op) {
    while (op->op.kind != OP_GATED_NORM) op++;
    return op;
}

static float factor_or_1(float factor) {
    return factor > 0 ? factor : 1.0f;
}

enum err walk_mamba(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_recurrent_sizes *sizes = &gpu->program.recurrent;
    const struct gpu_recurrent *vectors = &op->op.recurrent;
    const struct card_step *step = &walk->flight->step;
    const struct gpu_op *norm = &norm_behind(op)->op;
    const struct cuda_mamba call = {.z = product_columns(&walk->product[TO_WIDE], sizes->channels),
                                    .xbc = walk->product[TO_WIDE],
                                    .dt = walk->product[TO_NARROW],
                                    .conv = vectors->conv,
                                    .conv_bias = vectors->conv_bias,
                                    .dt_bias = vectors->step_bias,
                                    .a_log = vectors->decay,
                                    .d = vectors->skip,
                                    .norm = vectors->norm,
                                    .epsilon = sizes->eps,
                                    .norm_is_first = !norm->is_gated,
                                    .dt_min = sizes->step_min,
                                    .dt_max = sizes->step_max > 0 ? sizes->step_max : INFINITY,
                                    .dt_factor = factor_or_1(op->op.gate_factor),
                                    .z_factor = factor_or_1(norm->gate_factor),
                                    .y_factor = factor_or_1(norm->factor),
                                    .states = states_of(gpu, vectors->place),
                                    .tails = tails_of(gpu, vectors->place),
                                    .items = step->states,
                                    .item_count = step->state_count,
                                    .decoded_count = step->decoded_count,
                                    .rows = walk->rows,
                                    .heads = sizes->value_heads,
                                    .groups = sizes->key_heads,
                                    .head_dim = sizes->value_dim,
                                    .state_dim = sizes->key_dim,
                                    .y = walk->attended,
                                    .y_stride = sizes->width,
                                    .room = gpu->recurrent.chunks};
    return cuda_mamba(&call, gpu->compute, error);
}

enum err walk_add(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct cuda_add call = {.x = walk->x,
                                  .x_stride = walk->gpu->program.width,
                                  .h = walk->product[TO_SHARED],
                                  .factor = factor_or_1(op->op.factor),
                                  .width = walk->gpu->program.width,
                                  .rows = walk->rows};
    return cuda_add(&call, walk->gpu->compute, error);
}

/* What DELTA or MAMBA left normed, in the form of the next product. */
enum err walk_gated_norm(struct walk *walk, const struct card_op *op, struct error *error) {
    return walk_prepare_rows(walk, op, walk->attended, walk->gpu->program.recurrent.width, error);
}

enum err walk_prepare(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    if (op->op.attended > 0)
        return walk_prepare_rows(walk, op, walk->attended, op->op.attended, error);
    const enum gpu_form form = gpu->matrices[op->op.next].form;
    walk->prepared = walk->normed;
    if (gpu_form_is_bf16(form)) return OK;
    walk->prepared = (struct cuda_rows){.codes = gpu->recurrent.again,
                                        .type = code_of(form),
                                        .stride = gpu->program.width,
                                        .scale = gpu->row_scales[walk->scale_turn++ % 2]};
    const struct cuda_quantise call = {.from = walk->normed.codes,
                                       .from_stride = walk->normed.stride,
                                       .y = walk->prepared,
                                       .width = gpu->program.width,
                                       .rows = walk->rows};
    return cuda_quantise(&call, gpu->compute, error);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Operations of attention: heads into queries and pages, and the launches over a step's items. */

#include "gpu/cuda/plugin_walk.h"

enum err walk_heads(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct card_place *place = &gpu->places[op->op.kv_place];
    const struct cuda_heads call = {
        .in = walk->product[TO_WIDE],
        .rows = walk->rows,
        .heads = program->heads,
        .kv_heads = op->op.is_query_only ? 0 : gpu_kv_heads(program, &op->op),
        .page_heads = gpu_page_heads(program, &op->op),
        .scale_heads = gpu->scale_heads,
        .head_dim = gpu_head_dim(program, &op->op),
        .q_norm = op->op.q_norm,
        .k_norm = op->op.k_norm,
        .norms_v = op->op.norms_v,
        .epsilon = program->eps,
        .cosines = gpu->cosines[op->op.rope],
        .sines = gpu->sines[op->op.rope],
        .positions = walk->flight->step.positions,
        .rotary_dim = program->rotary_dim[op->op.rope],
        .q = walk->q,
        .q_stride = walk_q_width(gpu, op),
        .k = place->k,
        .v = place->v,
        .kv_scales = place->scales,
        .slots = walk->flight->step.groups[op->op.kv_group].slots,
    };
    return cuda_heads(&call, gpu->compute, error);
}

/* Up to where rows see keys. */
static const uint32_t *positions_of(const struct walk *walk, const struct card_group *group) {
    const struct card_step *step = &walk->flight->step;
    if (group->seen) return walk->is_kept ? group->wanted_seen : group->seen;
    return walk->is_kept ? step->wanted_positions : step->positions;
}

static struct cuda_attention attention_of(const struct walk *walk, const struct card_op *op) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct card_place *place = &gpu->places[op->op.kv_place];
    const size_t q_width = walk_q_width(gpu, op);
    return (struct cuda_attention){
        .k = place->k,
        .v = place->v,
        .scales = place->scales,
        .type = place->scales ? CUDA_KV_E4M3 : CUDA_KV_BF16,
        .kv_heads = gpu_kv_heads(program, &op->op),
        .page_heads = gpu_page_heads(program, &op->op),
        .scale_heads = gpu->scale_heads,
        .head_dim = gpu_head_dim(program, &op->op),
        .head_count = program->heads,
        .scale = op->op.scale,
        .softcap = op->op.softcap,
        .window = op->op.window,
        .sinks = op->op.sinks,
        .q = walk->q,
        .q_stride = q_width,
        .y = walk->attended,
        .y_stride = q_width,
    };
}

static enum err run_tiles(const struct walk *walk, const struct cuda_attention *call,
                          const struct card_tiles *tiles, struct error *error) {
    const struct cuda_tile_items items = {
        .items = tiles->items, .item_count = tiles->count, .rows = tiles->rows};
    return cuda_attention_tiles(call, &items, walk->gpu->compute, error);
}

static enum err gate_output(const struct walk *walk, const struct card_op *op,
                            struct error *error) {
    const struct gpu_program *program = &walk->gpu->program;
    const uint32_t q_width = walk_q_width(walk->gpu, op);
    const uint32_t kv_width = gpu_kv_heads(program, &op->op) * gpu_head_dim(program, &op->op);
    const uint32_t before = q_width + 2 * kv_width;
    const struct cuda_output_gate call = {
        .gate = product_columns(&walk->product[TO_WIDE], before),
        .gate_rows = walk->kept_rows,
        .y = walk->attended,
        .y_stride = q_width,
        .width = q_width,
        .rows = walk->rows,
    };
    return cuda_output_gate(&call, walk->gpu->compute, error);
}

/* All four launches are made, those without items too, which start nothing: a graph has each. */
enum err walk_attend(struct walk *walk, const struct card_op *op, struct cuda_attention *call,
                     struct error *error) {
    const struct card_group *group = &walk->flight->step.groups[op->op.kv_group];
    const struct card_attention *work = walk->is_kept ? &group->kept : &group->all;
    const struct cuda_decode_items decode = {.items = work->decode,
                                             .item_count = work->decode_count};
    const struct cuda_merge_items merges = {.items = work->merges, .item_count = work->merge_count};
    struct CUstream_st *stream = walk->gpu->compute;
    call->positions = positions_of(walk, group);
    call->pages = group->pages;
    call->partial_o = walk->gpu->partial_o;
    call->partial_ml = walk->gpu->partial_ml;
    enum err err = run_tiles(walk, call, &work->prefixes, error);
    call->is_next = work->prefixes.count > 0;
    if (err == OK) err = run_tiles(walk, call, &work->tiles, error);
    call->is_next |= work->tiles.count > 0;
    if (err == OK) err = cuda_attention_decode(call, &decode, stream, error);
    return err == OK ? cuda_attention_merge(call, &merges, stream, error) : err;
}

enum err walk_attention(struct walk *walk, const struct card_op *op, struct error *error) {
    struct cuda_attention call = attention_of(walk, op);
    enum err err = walk_attend(walk, op, &call, error);
    if (err == OK && op->op.is_gated) err = gate_output(walk, op, error);
    if (err != OK) return err;
    return walk_prepare_rows(walk, op, walk->attended, walk_q_width(walk->gpu, op), error);
}

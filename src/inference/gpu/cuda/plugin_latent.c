/* SPDX-License-Identifier: Apache-2.0 */

/* Operations of latent layers. Matrices of heads multiply rows beside each other, one product a
 * layer: what does not turn of a head of q becomes the first numbers of its query, and what
 * attention leaves of a head its values. Unfolded rows, the last ones, need neither. Their
 * attention leaves values in `wide` and comes behind the product of the others, which writes there
 * up to the end of a bucket of rows. Until then what does not turn of their q stays where it was
 * left. */

#include "base/min_max.h"
#include "gpu/cuda/attention_unfolded.h"
#include "gpu/cuda/latent.h"
#include "gpu/cuda/plugin_walk.h"

#include <assert.h>

static struct cuda_turns turns_of(const struct walk *walk) {
    const struct card_step *step = &walk->flight->step;
    return (struct cuda_turns){.cosines = walk->gpu->cosines[0],
                               .sines = walk->gpu->sines[0],
                               .positions =
                                   walk->is_kept ? step->wanted_positions : step->positions};
}

struct cuda_multiply latent_product(const struct gpu *gpu, const struct card_op *op) {
    const struct gpu_latent_sizes *sizes = &gpu->program.latent;
    const bool is_q = op->op.kind == OP_LATENT_Q;
    return (struct cuda_multiply){
        .format = CUDA_FORMAT_BF16,
        .outputs = is_q ? sizes->rank : sizes->value_dim,
        .inputs = is_q ? sizes->still_dim : sizes->rank,
        .batch = gpu->program.heads,
        .gap = is_q ? sizes->turned_dim : 0,
        .weights = gpu->matrices[is_q ? op->op.latent.k_b : op->op.latent.v_b].codes,
        .in = gpu->attended,
        .sums = is_q ? gpu->q : gpu->wide,
    };
}

/* The step's unfolded rows; NULL behind KEEP, where all rows are absorbed. */
static const struct card_unfold *unfold_of(const struct walk *walk) {
    const struct card_unfold *unfold = &walk->flight->step.unfold;
    return unfold->rows > 0 && !walk->is_kept ? unfold : NULL;
}

/* Products of the absorbed rows. */
static enum err multiply_heads(struct walk *walk, const struct card_op *op, const void *in,
                               void *sums, struct error *error) {
    const struct card_unfold *unfold = unfold_of(walk);
    struct cuda_multiply call = latent_product(walk->gpu, op);
    call.rows = walk->rows - (unfold ? unfold->rows : 0);
    call.in = in;
    call.sums = sums;
    if (walk->is_replayed || call.rows == 0) return OK; /* the graph has the product */
    return cuda_multiply(walk->gpu->products, &call, walk->gpu->compute, error);
}

/* What is before q's second product is the first columns, and the entry the last ones. */
enum err walk_latent_entry(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_latent_sizes *sizes = &gpu->program.latent;
    const uint32_t q_rank = sizes->q_rank;
    const uint32_t before =
        q_rank > 0 ? q_rank : gpu->program.heads * gpu_latent_head(&gpu->program);
    const struct cuda_latent_entry entry = {
        .in = product_columns(&walk->product[TO_WIDE], before),
        .rows = walk->rows,
        .rank = sizes->rank,
        .turned_dim = sizes->turned_dim,
        .norm = op->op.latent.norm,
        .epsilon = sizes->eps,
        .turns = turns_of(walk),
        .slots = walk->flight->step.groups[op->op.kv_group].slots,
        .entries = gpu->places[op->op.kv_place].k,
    };
    enum err err = cuda_latent_entry(&entry, gpu->compute, error);
    if (err != OK || q_rank == 0) return err;
    const struct cuda_side normed = {
        .in = walk->product[TO_WIDE],
        .weight = op->op.latent.q_norm,
        .y = gpu->attended,
        .width = q_rank,
        .rows = walk->rows,
        .epsilon = sizes->eps,
    };
    err = cuda_side(&normed, gpu->compute, error);
    return err == OK ? walk_prepare_rows(walk, op, gpu->attended, q_rank, error) : err;
}

enum err walk_latent_q(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_latent_sizes *sizes = &gpu->program.latent;
    uint16_t *still = unfold_of(walk) ? gpu->unfold.still : gpu->attended;
    const struct cuda_latent_q call = {
        .in = walk->product[TO_WIDE],
        .in_rows = walk->kept_rows,
        .rows = walk->rows,
        .heads = gpu->program.heads,
        .rank = sizes->rank,
        .still_dim = sizes->still_dim,
        .turned_dim = sizes->turned_dim,
        .turns = turns_of(walk),
        .still = still,
        .q = walk->q,
    };
    enum err err = cuda_latent_q(&call, gpu->compute, error);
    return err == OK ? multiply_heads(walk, op, still, walk->q, error) : err;
}

struct cuda_multiply unfold_product(const struct gpu *gpu) {
    return (struct cuda_multiply){
        .format = CUDA_FORMAT_BF16,
        .outputs = gpu->program.heads * CUDA_UNFOLDED_HEAD,
        .inputs = gpu->program.latent.rank,
        .weights = gpu->unfold.weights,
        .in = gpu->unfold.rows,
        .sums = gpu->unfold.unfolded,
    };
}

/* Keys and values of all heads for the tokens of the unfolded prompts. */
static enum err unfold_keys(struct walk *walk, const struct card_op *op,
                            const struct card_unfold *unfold, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct gpu_latent *latent = &op->op.latent;
    const struct cuda_unfold_heads heads = {
        .k_b = gpu->matrices[latent->k_b].codes,
        .v_b = gpu->matrices[latent->v_b].codes,
        .kv_b = gpu->unfold.weights,
        .heads = program->heads,
        .rank = program->latent.rank,
    };
    const struct cuda_entry_rows rows = {
        .entries = gpu->places[op->op.kv_place].k,
        .pages = unfold->pages,
        .page_count = unfold->page_count,
        .rank = program->latent.rank,
        .turned_dim = program->latent.turned_dim,
        .y = gpu->unfold.rows,
    };
    const uint32_t tokens = unfold->page_count * GPU_PAGE_TOKENS;
    struct cuda_multiply call = unfold_product(gpu);
    const size_t in = call.inputs, out = call.outputs;
    enum err err = cuda_unfold_heads(&heads, gpu->compute, error);
    if (err == OK) err = cuda_entry_rows(&rows, gpu->compute, error);
    for (uint32_t at = 0; at < tokens && err == OK; at += call.rows) {
        call.rows = min_u32(tokens - at, ROW_BUCKET_MAX);
        call.in = gpu->unfold.rows + at * in;
        call.sums = gpu->unfold.unfolded + at * out;
        err = cuda_multiply(gpu->products, &call, gpu->compute, error);
    }
    return err;
}

static enum err attend_unfolded(struct walk *walk, const struct card_op *op,
                                const struct card_unfold *unfold, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct gpu_latent_sizes *sizes = &program->latent;
    const struct card_step *step = &walk->flight->step;
    const struct cuda_unfolded call = {
        .heads = program->heads,
        .scale = op->op.scale,
        .still = gpu->unfold.still,
        .turned = (const uint16_t *)walk->q + sizes->rank,
        .turned_stride = sizes->rank + sizes->turned_dim,
        .unfolded = gpu->unfold.unfolded,
        .firsts = unfold->firsts,
        .entries = gpu->places[op->op.kv_place].k,
        .entry_dim = sizes->rank + sizes->turned_dim,
        .positions = step->positions,
        .pages = step->groups[op->op.kv_group].pages,
        .y = gpu->wide,
        .y_stride = (size_t)program->heads * sizes->value_dim,
    };
    const struct cuda_tile_items items = {.items = unfold->items.items,
                                          .item_count = unfold->items.count};
    enum err err = unfold_keys(walk, op, unfold, error);
    return err == OK ? cuda_attention_unfolded(&call, &items, gpu->compute, error) : err;
}

enum err walk_latent(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct gpu_latent_sizes *sizes = &program->latent;
    struct cuda_attention call = {
        .k = gpu->places[op->op.kv_place].k,
        .type = CUDA_KV_BF16,
        .kv_heads = 1,
        .page_heads = 1,
        .scale_heads = 1,
        .head_dim = sizes->rank,
        .turned_dim = sizes->turned_dim,
        .head_count = program->heads,
        .scale = op->op.scale,
        .q = walk->q,
        .q_stride = (size_t)program->heads * (sizes->rank + sizes->turned_dim),
        .y = gpu->attended,
        .y_stride = (size_t)program->heads * sizes->rank,
    };
    return walk_attend(walk, op, &call, error);
}

enum err walk_latent_out(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct card_unfold *unfold = unfold_of(walk);
    enum err err = multiply_heads(walk, op, gpu->attended, gpu->wide, error);
    assert(!unfold || op[-1].op.kind == OP_LATENT);
    if (err == OK && unfold) err = attend_unfolded(walk, op - 1, unfold, error);
    if (err != OK) return err;
    return walk_prepare_rows(walk, op, gpu->wide,
                             gpu->program.heads * gpu->program.latent.value_dim, error);
}

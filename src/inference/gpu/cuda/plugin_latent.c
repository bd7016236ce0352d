/* SPDX-License-Identifier: Apache-2.0 */

/* Operations of latent layers. Matrices of heads multiply rows beside each other, one product a
 * layer: what does not turn of a head of q becomes the first numbers of its query, and what
 * attention leaves of a head its values. */

#include "gpu/cuda/latent.h"
#include "gpu/cuda/plugin_walk.h"

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

static enum err multiply_heads(struct walk *walk, const struct card_op *op, void *sums,
                               struct error *error) {
    struct cuda_multiply call = latent_product(walk->gpu, op);
    call.rows = walk->rows;
    call.sums = sums;
    if (walk->is_replayed) return OK; /* the graph has the product */
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
    const struct cuda_latent_q call = {
        .in = walk->product[TO_WIDE],
        .in_rows = walk->kept_rows,
        .rows = walk->rows,
        .heads = gpu->program.heads,
        .rank = sizes->rank,
        .still_dim = sizes->still_dim,
        .turned_dim = sizes->turned_dim,
        .turns = turns_of(walk),
        .still = gpu->attended,
        .q = walk->q,
    };
    enum err err = cuda_latent_q(&call, gpu->compute, error);
    return err == OK ? multiply_heads(walk, op, walk->q, error) : err;
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
    enum err err = multiply_heads(walk, op, gpu->wide, error);
    if (err != OK) return err;
    return walk_prepare_rows(walk, op, gpu->wide,
                             gpu->program.heads * gpu->program.latent.value_dim, error);
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plugin_walk: operations become kernels; private to plugin*.c.
 *
 * A walk goes through the operations of a step in their order and knows what those before left: the
 * products, and the rows in the form of the next one. It computes nothing itself, and waits for
 * nothing but in careful steps.
 *
 * Thread: the GPU's one.
 * Memory: the GPU's; a walk lasts for one step.
 * Invariant: a walk of as many rows makes the same launches in the same order. */

#include "gpu/cuda/plugin_internal.h"

#include <assert.h>

/* The state between two operations. */
struct walk {
    struct gpu *gpu;
    struct flight *flight;
    uint32_t rows;
    bool is_kept;     /* behind KEEP */
    bool is_gated;    /* the gate that comes next was computed with its product */
    bool is_replayed; /* launches go to a graph, which has the products */
    float *x;
    void *q;
    void *attended;
    const uint32_t *kept_rows; /* rows of wide that go with the kept ones; NULL: they are alike */
    struct cuda_product product[TO_SHARED + 1]; /* by enum op_to: the last one there */
    struct cuda_rows prepared;
    struct cuda_rows normed; /* what the last NORM left */
    uint32_t scale_turn;     /* row_scales that the next result gets */
};

/* The matrix of that index. */
static inline const struct card_matrix *matrix_of(const struct walk *walk, uint32_t index) {
    assert(index < walk->gpu->program.matrix_count);
    return &walk->gpu->matrices[index];
}

/* ---- plugin_rows.c ---- */

/* The rows that the next product reads, in its form; POOL reads bf16. */
struct cuda_rows walk_rows_for(struct walk *walk, const struct card_op *op);
/* Rows of bf16 in the form of the next product. */
enum err walk_prepare_rows(struct walk *walk, const struct card_op *op, void *from, uint32_t width,
                           struct error *error) MUST_CHECK;

/* ---- plugin_walk.c ---- */

void walk_begin(struct walk *walk, struct gpu *gpu, struct flight *flight);
/* Whether a product of so many rows is one of scaled.h, and how it ends: the same for all rows of a
 * bucket, since products of cuBLASLt are timed by buckets. */
bool walk_is_scaled(const struct gpu *gpu, const struct card_op *op, uint32_t rows,
                    enum cuda_ending *ret_ending);
/* The buffer of a product that is no logits. */
void *product_buffer(const struct gpu *gpu, enum op_to to);
/* The same of an operation whose product may be a part. */
void *product_place(const struct gpu *gpu, const struct card_op *op);
/* Likewise of its sums, from which a part is made where they have scales, or where parts lie in
 * memory of the host. */
void *sums_place(const struct gpu *gpu, const struct card_op *op, bool has_scales);
/* Tokens that were drawn last, which the lead has, or a copy of them. */
static inline const int32_t *walk_last_token(const struct gpu *gpu) {
    return gpu->is_apart ? gpu->last_token : gpu->ranks[0]->last_token;
}
/* The buffer of a part. Two sums in a row have different ones (reduce.h), and so have the last of a
 * step and the first of the next, be their number odd: the first has one of its own. */
static inline uint32_t part_buffer(uint32_t part) {
    return part == 1 ? 2 : part % 2;
}
enum err walk_op(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
/* Operations first..end-1 of `count` ranks, one after another on all of them, with an event behind
 * each when they are measured. An error has the name of its operation, one that the GPU finds later
 * in a careful step alone. */
enum err walk_ops(struct walk *walks, uint32_t count, uint32_t first, uint32_t end,
                  struct error *error) MUST_CHECK;
/* A walk per rank for the step that was put, which the lead's flight names; how many they are. */
uint32_t walks_begin(struct walk walks[GPU_RANKS_MAX], struct gpu *lead, struct flight *flight);
/* All operations of that step. */
enum err walk_all(struct gpu *lead, struct flight *flight, struct error *error) MUST_CHECK;

/* ---- plugin_ranks.c ---- */

/* Puts "GPU N: " before the sentence of a rank's error, where there are several. */
enum err rank_error(const struct gpu *rank, enum err err, struct error *error) MUST_CHECK;
/* Lets the other ranks begin a step when the lead has drawn its tokens. */
enum err ranks_await_tokens(struct gpu *lead, struct error *error) MUST_CHECK;
/* Waits for all that was enqueued on all ranks, as ranks_wait: a cudaError, and whose it is. */
int ranks_settle(struct gpu *lead, struct gpu **ret_failed);
/* Makes a part of sums that have scales or lie elsewhere. */
enum err walk_part(struct walk *walk, const struct card_op *op, const struct cuda_product *sums,
                   struct error *error) MUST_CHECK;
/* What ASIDE, JOIN or ADD reads, if it is a product of parts: the sums of those of all ranks. */
enum err walk_total(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
/* A norm that adds the parts of all ranks. */
enum err walk_sum(struct walk *walk, const struct card_op *op, const struct cuda_norm *norm,
                  struct error *error) MUST_CHECK;

/* ---- plugin_experts.c ---- */

/* The room for the program's experts; none without them. */
void experts_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory);
enum err walk_route(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_experts(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;

/* ---- plugin_recurrent.c ---- */

/* The room for the program's recurrent layers; none without them. */
void recurrent_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory);
/* Bytes of a sequence's state in all layers. */
size_t recurrent_state_bytes(const struct gpu *gpu);
/* Puts the items of a step into the flight's block. */
void recurrent_put(struct gpu *gpu, struct flight *flight, const struct gpu_step *step);
/* A product without its first columns. */
struct cuda_product product_columns(const struct cuda_product *product, uint32_t first);
enum err walk_conv(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_delta(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_mamba(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_add(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_gated_norm(struct walk *walk, const struct card_op *op,
                         struct error *error) MUST_CHECK;
enum err walk_prepare(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;

/* ---- plugin_attention.c ---- */

/* Width of a row of queries. */
static inline uint32_t walk_q_width(const struct gpu *gpu, const struct card_op *op) {
    return gpu->program.heads * gpu_head_dim(&gpu->program, &op->op);
}
enum err walk_heads(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_attention(struct walk *walk, const struct card_op *op,
                        struct error *error) MUST_CHECK;
/* The attention of a layer, whose fields about work and pages are yet to be set. */
enum err walk_attend(struct walk *walk, const struct card_op *op, struct cuda_attention *call,
                     struct error *error) MUST_CHECK;

/* ---- plugin_latent.c ---- */

/* The products of heads of LATENT_Q or LATENT_OUT, but for the rows. */
struct cuda_multiply latent_product(const struct gpu *gpu, const struct card_op *op);
/* The product that makes keys and values of all heads, but for the rows. */
struct cuda_multiply unfold_product(const struct gpu *gpu);
enum err walk_latent_entry(struct walk *walk, const struct card_op *op,
                           struct error *error) MUST_CHECK;
enum err walk_latent_q(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_latent(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_latent_out(struct walk *walk, const struct card_op *op,
                         struct error *error) MUST_CHECK;

/* ---- plugin_grouped.c ---- */

/* A part as codes in groups; kind GROUPED_NOT: its rows are as in the file. */
struct cuda_grouped part_weights(const struct card_matrix *matrix, const struct card_blocks *part);
/* How a product with a matrix is computed: from its codes, or by cuBLASLt. The same for all rows of
 * a bucket. */
enum grouped_way { GROUPED_UNPACKED, GROUPED_FEW, GROUPED_MANY };
enum grouped_way matrix_way(const struct gpu *gpu, const struct card_matrix *matrix, uint32_t rows);
/* The room for the program's rows as codes in groups, and for products with few rows: `unpacked`,
 * which no product needs beside them. */
void grouped_place(struct layout *layout);
/* y (rows, stride) bf16 = the prepared rows by the matrix. */
enum err walk_grouped(struct walk *walk, const struct card_matrix *matrix, enum grouped_way way,
                      uint16_t *y, size_t stride, struct error *error) MUST_CHECK;

/* ---- plugin_side.c ---- */

/* The room for parts of tokens and for what ASIDE leaves; none without them. */
void side_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory);
enum err walk_inputs(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_gate_inputs(struct walk *walk, const struct card_op *op,
                          struct error *error) MUST_CHECK;
/* ASIDE and JOIN. */
enum err walk_side(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;

/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/latent.h"

#include "cpu/forward_state.h"
#include "cpu/rows.h"
#include "cpu/task_split.h"

#include <string.h>

#define HEADS_MIN 4u /* heads of a task of attention: fewer read an entry too often */

static struct latent_cache cache_of(const struct forward *forward, const struct op *op) {
    const struct latent_sizes *sizes = &forward->program->shape.latent;
    const struct kv_cache *cache = &forward->caches[op->kv_place];
    return (struct latent_cache){.entries = cache->k,
                                 .type = cache->type,
                                 .dim = sizes->rank + sizes->turned_dim,
                                 .rank = sizes->rank};
}

/* RMSNorm of a part of each row of wide, in place. */
static void norm_part(const struct forward *forward, float *x, size_t stride, const float *weight,
                      uint32_t width, uint32_t count) {
    forward->options.kernels->rms_norm(
        &(struct norm){.x = x,
                       .x_stride = stride,
                       .y = x,
                       .y_stride = stride,
                       .weight = weight,
                       .width = width,
                       .rows = count,
                       .epsilon = forward->program->shape.inner_eps});
}

/* Turns the leading part of each of `heads` pieces of `head_dim`. */
static void rotate(const struct forward *forward, float *x, size_t stride, uint32_t heads,
                   uint32_t head_dim, uint32_t row, uint32_t count) {
    const struct rope_tables *rope = &forward->rope[0];
    forward->options.kernels->rope(
        &(struct rope){.x = x,
                       .x_stride = stride,
                       .positions = forward->row_numbers + row,
                       .rows = count,
                       .head_count = heads,
                       .head_dim = head_dim,
                       .rotary_dim = forward->program->shape.latent.turned_dim,
                       .cosines = rope->cosines,
                       .sines = rope->sines});
}

/* ---- LATENT_LINE ---- */

static void entry_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct latent_sizes *sizes = &forward->program->shape.latent;
    const struct latent *latent = op->latent;
    const struct latent_cache cache = cache_of(forward, op);
    const size_t stride = latent->in->rows;
    float *begin = forward->wide + row * stride, *entry = begin + stride - cache.dim;
    norm_part(forward, entry, stride, latent->norm, sizes->rank, count);
    rotate(forward, entry + sizes->rank, stride, 1, sizes->turned_dim, row, count);
    forward->options.kernels->latent_store(
        &(struct latent_store){.cache = &cache,
                               .entries = entry,
                               .stride = stride,
                               .slots = forward->plan.groups[op->kv_group].slots + row,
                               .rows = count});
    if (!latent->q_b) return;
    norm_part(forward, begin, stride, latent->q_norm, sizes->q_rank, count);
    rows_prepare(forward, op->next, forward->wide, stride, row, count);
}

void latent_entry(struct forward *forward, const struct op *op) {
    rows_run(forward, op, entry_rows);
}

/* ---- products of heads ---- */

/* Prepares some rows of x, `each` elements a head from `x` on, for the matrices of the heads. */
static void prepare_heads(const struct forward *forward, struct matrix *const *matrices,
                          const float *x, size_t stride, size_t each, uint32_t row,
                          uint32_t count) {
    const size_t bytes = matrices[0]->activation_bytes;
    for (size_t head = 0; head < forward->program->shape.heads; head++)
        forward->options.kernels->activate(
            matrices[head], x + row * stride + head * each, stride, count,
            forward->head_activations + (head * forward->row_count + row) * bytes);
}

/* y of each head, `each` floats apart, is its matrix times its prepared rows. */
static void multiply_heads(struct forward *forward, struct matrix *const *matrices, float *y,
                           size_t each) {
    const uint32_t heads = forward->program->shape.heads;
    const size_t bytes = matrices[0]->activation_bytes;
    for (size_t head = 0; head < heads; head++)
        forward->head_products[head] = (struct matmul){
            .matrix = matrices[head],
            .activations = forward->head_activations + head * forward->row_count * bytes,
            .rows = forward->row_count,
            .y = y + head * each,
            .y_stride = heads * each};
    task_split_matmuls(forward->options.pool, forward->options.kernels, forward->head_products,
                       heads, NULL);
}

/* ---- LATENT_Q ---- */

static void q_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct latent_sizes *sizes = &forward->program->shape.latent;
    const struct latent *latent = op->latent;
    const uint32_t heads = latent->heads, each = sizes->still_dim + sizes->turned_dim;
    const size_t stride = latent->q_b ? latent->q_b->rows : latent->in->rows;
    const size_t dim = sizes->rank + sizes->turned_dim;
    prepare_heads(forward, latent->k_b, forward->wide, stride, each, row, count);
    float *turned = forward->wide + row * stride + sizes->still_dim;
    rotate(forward, turned, stride, heads, each, row, count);
    for (size_t i = row; i < row + count; i++, turned += stride)
        for (size_t head = 0; head < heads; head++)
            memcpy(forward->queries + (i * heads + head) * dim + sizes->rank, turned + head * each,
                   sizes->turned_dim * sizeof *turned);
}

void latent_q(struct forward *forward, const struct op *op) {
    const struct latent_sizes *sizes = &forward->program->shape.latent;
    rows_run(forward, op, q_rows);
    multiply_heads(forward, op->latent->k_b, forward->queries, sizes->rank + sizes->turned_dim);
}

/* ---- LATENT ---- */

struct attention_job {
    const struct forward *forward;
    const struct attention_item *items;
    struct latent_attention call;
    uint32_t heads_each;
    uint32_t head_tasks;
};

static void attention_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct attention_job *job = context;
    const uint32_t head = task % job->head_tasks * job->heads_each;
    const uint32_t left = job->call.head_count - head;
    job->forward->options.kernels->latent_attend(
        &job->call, &job->items[task / job->head_tasks], head,
        head + (left < job->heads_each ? left : job->heads_each));
}

void latent_attention(struct forward *forward, const struct op *op) {
    const struct program_shape *shape = &forward->program->shape;
    const struct latent_cache cache = cache_of(forward, op);
    const uint32_t items = forward->plan.item_count, heads = shape->heads;
    const uint32_t tasks = TASKS_PER_THREAD * pool_threads(forward->options.pool);
    const uint32_t cuts = divide_up(tasks, items);
    struct attention_job job = {.forward = forward,
                                .items = forward->plan.groups[op->kv_group].items,
                                .call = {.cache = &cache,
                                         .q = forward->queries,
                                         .q_stride = (size_t)heads * cache.dim,
                                         .y = forward->attended,
                                         .y_stride = (size_t)heads * cache.rank,
                                         .head_count = heads,
                                         .scale = op->scale,
                                         .causal = shape->is_causal},
                                .heads_each = divide_up(heads, cuts)};
    if (job.heads_each < HEADS_MIN) job.heads_each = heads < HEADS_MIN ? heads : HEADS_MIN;
    job.head_tasks = divide_up(heads, job.heads_each);
    pool_run(forward->options.pool, attention_task, &job, items * job.head_tasks);
}

/* ---- LATENT_OUT ---- */

static void attended_rows(struct forward *forward, const struct op *op, uint32_t row,
                          uint32_t count) {
    const size_t rank = forward->program->shape.latent.rank;
    prepare_heads(forward, op->latent->v_b, forward->attended, op->latent->heads * rank, rank, row,
                  count);
}

static void value_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const size_t width = (size_t)op->latent->heads * forward->program->shape.latent.value_dim;
    rows_prepare(forward, op->next, forward->wide, width, row, count);
}

void latent_out(struct forward *forward, const struct op *op) {
    rows_run(forward, op, attended_rows);
    multiply_heads(forward, op->latent->v_b, forward->wide,
                   forward->program->shape.latent.value_dim);
    rows_run(forward, op, value_rows);
}

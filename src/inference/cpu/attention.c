/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/attention.h"

#include "cpu/forward_state.h"
#include "cpu/rows.h"
#include "cpu/task_split.h"

#include <math.h>

/* ---- HEADS ---- */

/* RMSNorm of each head of some rows of q, k or v, or of all heads of a row at once. */
static void norm_heads(const struct forward *forward, const struct op *op, float *x, uint32_t heads,
                       const float *weight, uint32_t count) {
    const struct head_sizes *sizes = &op->heads;
    const uint32_t width = sizes->head_dim * (op->norms_all ? heads : 1);
    for (uint32_t i = 0; weight && i < count; i++, x += sizes->stride)
        forward->options.kernels->rms_norm(&(struct norm){.x = x,
                                                          .x_stride = width,
                                                          .y = x,
                                                          .y_stride = width,
                                                          .weight = weight,
                                                          .width = width,
                                                          .rows = op->norms_all ? 1 : heads,
                                                          .epsilon = forward->program->shape.eps});
}

static void rotate_heads(const struct forward *forward, const struct op *op, float *x,
                         uint32_t heads, uint32_t row, uint32_t count) {
    const struct rope_tables *rope = &forward->rope[op->rope];
    forward->options.kernels->rope(
        &(struct rope){.x = x,
                       .x_stride = op->heads.stride,
                       .positions = forward->row_numbers + row,
                       .rows = count,
                       .head_count = heads,
                       .head_dim = op->heads.head_dim,
                       .rotary_dim = forward->program->shape.rope_width[op->rope],
                       .cosines = rope->cosines,
                       .sines = rope->sines});
}

/* The cache of a layer, whose place may be as wide as another's. */
static struct kv_cache cache_of(const struct forward *forward, const struct op *op) {
    struct kv_cache cache = forward->caches[op->kv_place];
    cache.block_elements = kv_block_elements(&cache);
    cache.kv_heads = op->heads.kv_heads;
    cache.head_dim = op->heads.head_dim;
    return cache;
}

/* The scores of a row at a late position are sharpened (Llama 4). */
static void temper_rows(const struct forward *forward, const struct op *op, float *q, uint32_t row,
                        uint32_t count) {
    const struct head_sizes *sizes = &op->heads;
    for (uint32_t i = 0; op->temper > 0 && i < count; i++, q += sizes->stride) {
        const uint32_t passed = forward->step->positions[row + i] / op->temper_tokens;
        const float factor = 1.0f + op->temper * logf(1.0f + (float)passed);
        for (uint32_t e = 0; e < sizes->q_width; e++) q[e] *= factor;
    }
}

static void heads_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct head_sizes *sizes = &op->heads;
    const uint32_t heads = forward->program->shape.heads, kv_heads = sizes->kv_heads;
    float *q = forward->wide + (size_t)row * sizes->stride;
    float *k = q + sizes->q_width, *v = k + sizes->kv_width;
    norm_heads(forward, op, q, heads, op->turns_first ? NULL : op->q_norm, count);
    rotate_heads(forward, op, q, heads, row, count);
    if (op->turns_first) norm_heads(forward, op, q, heads, op->q_norm, count);
    temper_rows(forward, op, q, row, count);
    if (op->is_query_only) return;
    norm_heads(forward, op, k, kv_heads, op->turns_first ? NULL : op->k_norm, count);
    rotate_heads(forward, op, k, kv_heads, row, count);
    if (op->turns_first) norm_heads(forward, op, k, kv_heads, op->k_norm, count);
    if (op->norms_v) norm_heads(forward, op, v, kv_heads, forward->ones, count);
    const struct kv_cache cache = cache_of(forward, op);
    struct kv_store store = {.cache = &cache,
                             .k = k,
                             .k_stride = sizes->stride,
                             .v = v,
                             .v_stride = sizes->stride,
                             .slots = forward->plan.groups[op->kv_group].slots + row,
                             .rows = count};
    forward->options.kernels->kv_store(&store, 0, kv_heads);
}

void attention_run_heads(struct forward *forward, const struct op *op) {
    rows_run(forward, op, heads_rows);
}

/* ---- ATTENTION ---- */

struct attention_job {
    const struct forward *forward;
    const struct attention_tasks *tasks;
    struct attention call;
    uint32_t head_tasks;
};

static void attention_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct attention_job *job = context;
    const struct forward *forward = job->forward;
    const struct attention_group *groups = job->tasks->groups;
    const uint32_t heads_each = job->call.cache->kv_heads / job->head_tasks;
    uint32_t head = task % job->head_tasks * heads_each;
    forward->options.kernels->attention(&job->call, &groups[task / job->head_tasks], head,
                                        head + heads_each);
}

static void attended_rows(struct forward *forward, const struct op *op, uint32_t row,
                          uint32_t count) {
    const size_t width = op->heads.q_width, stride = op->heads.stride;
    float *attended = forward->attended + row * width;
    if (op->is_gated) /* the gate stands behind q, k and v */
        for (uint32_t i = 0; i < count; i++)
            forward->options.kernels->sigmoid_mul(&(struct gate){
                .gate = forward->wide + (row + i + 1) * stride - width,
                .up = attended + i * width,
                .y = attended + i * width,
                .width = width,
                .rows = 1,
            });
    rows_scale(attended, width * count, op->factor);
    rows_prepare(forward, op->next, forward->attended, width, row, count);
}

void attention_run(struct forward *forward, const struct op *op) {
    const struct program_shape *shape = &forward->program->shape;
    const struct kv_cache cache = cache_of(forward, op);
    struct attention_job job = {.forward = forward,
                                .tasks = &forward->tasks[op->kv_group],
                                .call = {.cache = &cache,
                                         .q = forward->wide,
                                         .q_stride = op->heads.stride,
                                         .y = forward->attended,
                                         .y_stride = op->heads.q_width,
                                         .head_count = shape->heads,
                                         .scale = op->scale,
                                         .softcap = op->softcap,
                                         .window = op->window,
                                         .causal = shape->is_causal,
                                         .sinks = op->sinks},
                                .head_tasks = forward->is_by_head ? cache.kv_heads : 1};
    pool_run(forward->options.pool, attention_task, &job, job.tasks->group_count * job.head_tasks);
    rows_run(forward, op, attended_rows);
}

/* The cost of an item: queries times keys. */
static uint64_t cost_of(const struct attention_item *item) {
    return (uint64_t)item->row_count * item->key_count;
}

/* Whether the group saves no fewer reads with one more item, which leaves it `shared` blocks. */
static bool saves_more_with(const struct attention_group *group, uint32_t shared) {
    return (uint64_t)shared * group->item_count >=
           (uint64_t)group->shared_blocks * (group->item_count - 1);
}

/* Makes groups of neighbouring items, of about equal cost; a group shares its common blocks. */
static void group_items(const struct plan_group *plan, uint32_t item_count, uint64_t cost_each,
                        struct attention_tasks *ret_tasks) {
    uint64_t cost = 0;
    ret_tasks->group_count = 0;
    for (uint32_t i = 0; i < item_count; i++) {
        const struct attention_item *item = &plan->items[i];
        if (ret_tasks->group_count > 0 && cost + cost_of(item) / 2 <= cost_each) {
            struct attention_group *group = &ret_tasks->groups[ret_tasks->group_count - 1];
            uint32_t shared = plan_common_blocks(group->items, item, plan->window);
            if (group->item_count > 1 && shared > group->shared_blocks)
                shared = group->shared_blocks;
            if (saves_more_with(group, shared)) {
                group->shared_blocks = shared;
                group->item_count++;
                cost += cost_of(item);
                continue;
            }
        }
        ret_tasks->groups[ret_tasks->group_count++] =
            (struct attention_group){.items = item, .item_count = 1};
        cost = cost_of(item);
    }
}

void attention_group_items(struct forward *forward) {
    const struct plan *plan = &forward->plan;
    const uint32_t kv_heads = forward->program->shape.kv_heads;
    const uint32_t tasks = TASKS_PER_THREAD * pool_threads(forward->options.pool);
    const bool has_plenty = plan->item_count >= 2 * tasks;
    uint64_t cost_each = 0;
    for (uint32_t i = 0; i < plan->item_count; i++) cost_each += cost_of(&plan->groups[0].items[i]);
    cost_each /= has_plenty ? tasks : (tasks + kv_heads - 1) / kv_heads;
    forward->is_by_head = !has_plenty;
    for (uint32_t i = 0; i < plan->group_count; i++)
        group_items(&plan->groups[i], plan->item_count, cost_each, &forward->tasks[i]);
}

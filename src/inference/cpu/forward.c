/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/experts.h"
#include "cpu/forward_state.h"
#include "cpu/recurrent.h"
#include "cpu/side.h"
#include "cpu/spread.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- spreading work ---- */

/* The part of an operation that lies in rows row..row+count-1. */
typedef void (*rows_fn)(struct forward *forward, const struct op *op, uint32_t row, uint32_t count);

struct rows_job {
    struct forward *forward;
    const struct op *op;
    rows_fn work;
};

static void work_on_rows(void *context, uint32_t row, uint32_t count) {
    const struct rows_job *job = context;
    job->work(job->forward, job->op, row, count);
}

static void run_rows(struct forward *forward, const struct op *op, rows_fn work) {
    struct rows_job job = {.forward = forward, .op = op, .work = work};
    spread_rows(forward->options.pool, work_on_rows, &job, forward->row_count);
}

/* Leaves rows of x in the form that the next matrix reads; nothing without such a matrix. */
static void prepare_rows(const struct forward *forward, const struct matrix *next, const float *x,
                         size_t x_stride, uint32_t row, uint32_t count) {
    if (next)
        forward->options.kernels->activate(next, x + row * x_stride, x_stride, count,
                                           forward->activations + row * next->activation_bytes);
}

/* ---- EMBED ---- */

/* A row's line in one table of rotations. */
static void set_angles(const struct forward *forward, uint32_t table, uint32_t row,
                       uint32_t position) {
    const struct program_shape *shape = &forward->program->shape;
    const struct rope_tables *rope = &forward->rope[table];
    const uint32_t pairs = shape->rope_width[table] / 2;
    float *cosines = rope->cosines + (size_t)row * pairs;
    float *sines = rope->sines + (size_t)row * pairs;
    rope_table(forward->program->frequencies[table], pairs, position, position + 1, cosines, sines);
    /* Layers with a table of their own have no scaling. */
    for (uint32_t j = 0; table == 0 && shape->rope_magnitude > 0 && j < pairs; j++) {
        cosines[j] *= shape->rope_magnitude;
        sines[j] *= shape->rope_magnitude;
    }
}

static void embed_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct program_shape *shape = &forward->program->shape;
    for (uint32_t i = row; i < row + count; i++) {
        float *x = forward->x + (size_t)i * shape->width;
        matrix_row(op->matrix, (uint32_t)forward->step->tokens[i], x);
        if (op->scale != 1.0f)
            for (uint32_t j = 0; j < shape->width; j++) x[j] *= op->scale;
        for (uint32_t table = 0; table < shape->rope_count; table++)
            set_angles(forward, table, i, forward->step->positions[i]);
    }
    prepare_rows(forward, op->next, forward->x, shape->width, row, count);
}

static void run_embed(struct forward *forward, const struct op *op) {
    run_rows(forward, op, embed_rows);
}

/* ---- NORM ---- */

/* y = norm(x), or y += norm(x), over rows of the residual's width. */
static void norm_to(const struct forward *forward, const float *x, float *y, const float *weight,
                    bool add, uint32_t row, uint32_t count) {
    size_t width = forward->program->shape.width;
    forward->options.kernels->rms_norm(&(struct norm){.x = x + row * width,
                                                      .x_stride = width,
                                                      .y = y + row * width,
                                                      .y_stride = width,
                                                      .weight = weight,
                                                      .width = width,
                                                      .rows = count,
                                                      .epsilon = forward->program->shape.eps,
                                                      .add = add});
}

static void norm_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const size_t width = forward->program->shape.width;
    assert(op->add != ADD_H); /* products add by themselves here */
    if (op->add == ADD_NORMED_H)
        norm_to(forward, forward->h, forward->x, op->post, true, row, count);
    float *x = forward->x + row * width;
    for (size_t i = 0; op->x_scale && i < count * width; i++) x[i] *= op->x_scale[0];
    if (op->weight)
        norm_to(forward, forward->x, forward->h, op->weight, false, row, count);
    else
        memcpy(forward->h + row * width, x, count * width * sizeof *x);
    prepare_rows(forward, op->next, forward->h, forward->program->shape.width, row, count);
}

static void run_norm(struct forward *forward, const struct op *op) {
    run_rows(forward, op, norm_rows);
}

/* ---- MATMUL ---- */

static void run_matmul(struct forward *forward, const struct op *op) {
    float *const buffers[] = {[TO_WIDE] = forward->wide,
                              [TO_H] = forward->h,
                              [TO_X] = forward->x,
                              [TO_NARROW] = forward->narrow,
                              [TO_INPUTS] = forward->inputs};
    spread_matmul(forward->options.pool, forward->options.kernels,
                  &(struct matmul){.matrix = op->matrix,
                                   .activations = forward->activations,
                                   .rows = forward->row_count,
                                   .y = buffers[op->to],
                                   .y_stride = op->matrix->rows,
                                   .bias = op->bias,
                                   .add = op->to == TO_X});
}

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
    norm_heads(forward, op, q, heads, op->q_norm, count);
    rotate_heads(forward, op, q, heads, row, count);
    temper_rows(forward, op, q, row, count);
    if (op->is_query_only) return;
    norm_heads(forward, op, k, kv_heads, op->k_norm, count);
    rotate_heads(forward, op, k, kv_heads, row, count);
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

static void run_heads(struct forward *forward, const struct op *op) {
    run_rows(forward, op, heads_rows);
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
    prepare_rows(forward, op->next, forward->attended, width, row, count);
}

static void run_attention(struct forward *forward, const struct op *op) {
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
    run_rows(forward, op, attended_rows);
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

/* A group of items for each task. With few items a task has one KV head instead of all, so that
 * groups can still be of several items. */
static void group_all_items(struct forward *forward) {
    const struct plan *plan = &forward->plan;
    const uint32_t kv_heads = forward->program->shape.kv_heads;
    const uint32_t tasks = SPREAD_TASKS_PER_THREAD * pool_threads(forward->options.pool);
    const bool has_plenty = plan->item_count >= 2 * tasks;
    uint64_t cost_each = 0;
    for (uint32_t i = 0; i < plan->item_count; i++) cost_each += cost_of(&plan->groups[0].items[i]);
    cost_each /= has_plenty ? tasks : (tasks + kv_heads - 1) / kv_heads;
    forward->is_by_head = !has_plenty;
    for (uint32_t i = 0; i < plan->group_count; i++)
        group_items(&plan->groups[i], plan->item_count, cost_each, &forward->tasks[i]);
}

/* ---- PREPARE ---- */

static void h_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const bool is_h = op->attended == 0;
    prepare_rows(forward, op->next, is_h ? forward->h : forward->attended,
                 is_h ? forward->program->shape.width : op->attended, row, count);
}

static void run_prepare(struct forward *forward, const struct op *op) {
    run_rows(forward, op, h_rows);
}

/* ---- GATE ---- */

/* y · the sigmoid of the row's number in narrow. */
static void scale_rows(const struct forward *forward, float *y, size_t stride, size_t width,
                       uint32_t row, uint32_t count) {
    for (uint32_t i = 0; i < count; i++, y += stride) {
        const float factor = 1.0f / (1.0f + expf(-forward->narrow[row + i]));
        for (size_t j = 0; j < width; j++) y[j] *= factor;
    }
}

static void gate_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct kernels *kernels = forward->options.kernels;
    const size_t width = op->width, stride = op->gates_inputs ? width : 2 * width;
    const size_t inputs = (size_t)forward->program->shape.layers * width;
    float *gate = forward->wide + row * stride;
    const float *up =
        op->gates_inputs ? forward->inputs + row * inputs + op->layer * width : gate + width;
    struct gate call = {.gate = gate,
                        .up = up,
                        .in_stride = stride,
                        .y = gate,
                        .y_stride = stride,
                        .width = width,
                        .rows = op->gates_inputs ? 1 : count};
    for (uint32_t i = 0; i < count; i += (uint32_t)call.rows) {
        if (op->gate == GATE_SILU)
            kernels->silu_mul(&call);
        else
            kernels->gelu_tanh_mul(&call);
        call.gate += stride;
        call.y += stride;
        call.up += inputs;
    }
    if (op->is_gated) scale_rows(forward, gate, stride, width, row, count);
    prepare_rows(forward, op->next, forward->wide, stride, row, count);
}

static void run_gate(struct forward *forward, const struct op *op) {
    run_rows(forward, op, gate_rows);
}

/* ---- KEEP ---- */

static void move_row(float *rows, size_t width, uint32_t from, uint32_t to) {
    memcpy(rows + to * width, rows + from * width, width * sizeof *rows);
}

/* Moves the wanted rows to the front, each with an attention item of its own. A row never moves
 * past one that is still to move, for `wanted` ascends. */
static void run_keep(struct forward *forward, const struct op *op) {
    const struct program_shape *shape = &forward->program->shape;
    const size_t inputs = (size_t)shape->layers * shape->input_width;
    const uint32_t count = forward->wanted_count;
    if (count == forward->row_count) return;
    plan_keep(&forward->plan, forward->step, forward->wanted, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = forward->wanted[i];
        if (row == i) continue;
        move_row(forward->x, shape->width, row, i);
        move_row(forward->wide, op->width, row, i);
        if (op->attended > 0) move_row(forward->attended, op->attended, row, i);
        if (inputs > 0) move_row(forward->inputs, inputs, row, i);
    }
    forward->row_count = count;
    group_all_items(forward);
}

/* ---- a step ---- */

static void (*const runners[OP_KINDS])(struct forward *forward, const struct op *op) = {
    [OP_EMBED] = run_embed,
    [OP_NORM] = run_norm,
    [OP_MATMUL] = run_matmul,
    [OP_HEADS] = run_heads,
    [OP_KEEP] = run_keep,
    [OP_GATE] = run_gate,
    [OP_ATTENTION] = run_attention,
    [OP_ROUTE] = experts_route,
    [OP_EXPERTS] = experts_run,
    [OP_PREPARE] = run_prepare,
    [OP_CONV] = recurrent_conv,
    [OP_DELTA] = recurrent_delta,
    [OP_GATED_NORM] = recurrent_gated_norm,
    [OP_INPUTS] = side_inputs,
    [OP_ASIDE] = side_run,
    [OP_JOIN] = side_run,
};

/* Copies keys and values of all layers of a page. */
static void copy_page(const struct forward *forward, struct page_copy copy) {
    const struct kv_cache *caches = forward->caches;
    assert(copy.from < forward->plan.page_count && copy.to < forward->plan.page_count);
    for (uint32_t i = 0; i < forward->layout.layers_each; i++) {
        const size_t bytes = kv_block_bytes(&caches[i]);
        unsigned char *k = caches[i].k, *v = caches[i].v;
        memcpy(k + copy.to * bytes, k + copy.from * bytes, bytes);
        memcpy(v + copy.to * bytes, v + copy.from * bytes, bytes);
    }
}

void forward_begin(struct forward *forward, const struct step *step, const uint32_t *wanted,
                   uint32_t wanted_count) {
    assert(step->row_count >= 1 && step->row_count <= forward->options.rows_max);
    for (uint32_t i = 0; i < step->copy_count; i++) copy_page(forward, step->copies[i]);
    for (uint32_t i = 0; i < step->sequence_count; i++)
        assert(!forward->options.is_one_pass || step->sequences[i].kv_tokens == 0);
    forward->step = step;
    forward->wanted = wanted;
    forward->wanted_count = wanted_count;
    forward->row_count = step->row_count;
    forward->op_next = 0;
    plan_step(&forward->plan, step);
    group_all_items(forward);
}

/* LOGITS, the last operation, runs when forward_logits asks for a part of the rows. */
static bool is_at_end(const struct forward *forward) {
    const struct program *program = forward->program;
    return forward->row_count == 0 || forward->op_next == program->op_count ||
           program->ops[forward->op_next].kind == OP_LOGITS;
}

bool forward_advance(struct forward *forward) {
    while (!is_at_end(forward)) {
        const struct op *op = &forward->program->ops[forward->op_next++];
        runners[op->kind](forward, op);
        if (op->ends_slice) break;
    }
    return is_at_end(forward);
}

void forward_run(struct forward *forward, const struct step *step, const uint32_t *wanted,
                 uint32_t wanted_count) {
    forward_begin(forward, step, wanted, wanted_count);
    while (!forward_advance(forward)) continue;
}

const float *forward_hidden(struct forward *forward, uint32_t first, uint32_t count) {
    assert(count >= 1 && first + count <= forward->row_count && is_at_end(forward));
    return forward->h + (size_t)first * forward->program->shape.width;
}

const float *forward_logits(struct forward *forward, uint32_t first, uint32_t count) {
    const struct op *op = &forward->program->ops[forward->program->op_count - 1];
    const size_t vocab_rows = forward->program->shape.vocab_rows;
    assert(op->kind == OP_LOGITS && is_at_end(forward));
    assert(count <= forward->options.logit_rows_max && first + count <= forward->row_count);
    spread_matmul(
        forward->options.pool, forward->options.kernels,
        &(struct matmul){.matrix = op->matrix,
                         .activations = forward->activations + first * op->matrix->activation_bytes,
                         .rows = count,
                         .y = forward->logits,
                         .y_stride = vocab_rows});
    if (op->softcap > 0.0f)
        for (size_t i = 0; i < count * vocab_rows; i++)
            forward->logits[i] = op->softcap * tanhf(forward->logits[i] / op->softcap);
    return forward->logits;
}

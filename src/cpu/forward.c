/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/forward_state.h"
#include "cpu/spread.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Queries of one attention task: enough to reuse the keys it reads, few enough to spread. */
#define ATTENTION_ROWS 32u

/* ---- spreading work ---- */

/* One stage of a layer over some rows; stages that are row-wise differ only in this function. */
typedef void (*stage_fn)(struct forward *forward, uint32_t layer, uint32_t row, uint32_t count);

struct stage_job {
    struct forward *forward;
    stage_fn stage;
    uint32_t layer;
};

static void stage_rows(void *context, uint32_t row, uint32_t count) {
    const struct stage_job *job = context;
    job->stage(job->forward, job->layer, row, count);
}

static void run_stage(struct forward *forward, stage_fn stage, uint32_t layer) {
    struct stage_job job = {.forward = forward, .stage = stage, .layer = layer};
    spread_rows(forward->options.pool, stage_rows, &job, forward->row_count);
}

/* Computes y = x Wᵀ, or y += x Wᵀ, over all rows; x is in forward->activations. */
static void run_matmul(struct forward *forward, struct matmul call) {
    call.activations = forward->activations;
    spread_matmul(forward->options.pool, forward->options.kernels, &call);
}

/* ---- the stages of a layer ---- */

static const struct layer_weights *layer_of(const struct forward *forward, uint32_t layer) {
    return &forward->options.weights->layers[layer];
}

static bool is_local(const struct forward *forward, uint32_t layer) {
    return config_layer_is_local(forward->options.config, layer);
}

/* Its rope, the base and scaling of the layer's positions. */
static const struct rope_tables *rope_of(const struct forward *forward, uint32_t layer) {
    bool own = is_local(forward, layer) && config_has_local_rope(forward->options.config);
    return &forward->rope[own];
}

/* The rows' embeddings, and their lines of the rope tables. */
static void embed_stage(struct forward *forward, uint32_t layer, uint32_t row, uint32_t count) {
    (void)layer;
    const struct model_config *config = forward->options.config;
    uint32_t pairs = config->head_dim / 2;
    for (uint32_t i = row; i < row + count; i++) {
        float *x = forward->x + (size_t)i * config->width;
        matrix_row(forward->options.weights->embedding, (uint32_t)forward->step->tokens[i], x);
        if (config->architecture->embedding_is_scaled) {
            float scale = sqrtf((float)config->width);
            for (uint32_t j = 0; j < config->width; j++) x[j] *= scale;
        }
        uint32_t position = forward->step->positions[i];
        for (int table = 0; table < (config_has_local_rope(config) ? 2 : 1); table++) {
            struct rope_tables *rope = &forward->rope[table];
            float *cosines = rope->cosines + (size_t)i * pairs;
            float *sines = rope->sines + (size_t)i * pairs;
            rope_table(rope->frequencies, pairs, position, position + 1, cosines, sines);
            for (uint32_t j = 0; config->rope_magnitude > 0 && j < pairs; j++) {
                cosines[j] *= config->rope_magnitude;
                sines[j] *= config->rope_magnitude;
            }
        }
    }
}

/* y = norm(x), or y += norm(x), over rows of the residual's width. */
static void norm_rows(const struct forward *forward, const float *x, float *y, const float *weight,
                      bool add, uint32_t row, uint32_t count) {
    size_t width = forward->options.config->width;
    forward->options.kernels->rms_norm(&(struct norm){.x = x + row * width,
                                                      .x_stride = width,
                                                      .y = y + row * width,
                                                      .y_stride = width,
                                                      .weight = weight,
                                                      .width = width,
                                                      .rows = count,
                                                      .epsilon = forward->options.config->eps,
                                                      .add = add});
}

static void activate_rows(const struct forward *forward, const struct matrix *matrix,
                          const float *x, size_t x_stride, uint32_t row, uint32_t count) {
    forward->options.kernels->activate(matrix, x + row * x_stride, x_stride, count,
                                       forward->activations + row * matrix->activation_bytes);
}

static void before_qkv_stage(struct forward *forward, uint32_t layer, uint32_t row,
                             uint32_t count) {
    const struct layer_weights *weights = layer_of(forward, layer);
    norm_rows(forward, forward->x, forward->h, weights->attention_norm, false, row, count);
    activate_rows(forward, weights->qkv, forward->h, forward->options.config->width, row, count);
}

/* RMSNorm of each head of some rows of q or k. */
static void norm_heads(const struct forward *forward, float *x, uint32_t heads, const float *weight,
                       uint32_t count) {
    const struct model_config *config = forward->options.config;
    for (uint32_t i = 0; weight && i < count; i++, x += forward->qkv_width)
        forward->options.kernels->rms_norm(&(struct norm){.x = x,
                                                          .x_stride = config->head_dim,
                                                          .y = x,
                                                          .y_stride = config->head_dim,
                                                          .weight = weight,
                                                          .width = config->head_dim,
                                                          .rows = heads,
                                                          .epsilon = config->eps});
}

static void rotate_heads(const struct forward *forward, uint32_t layer, float *x, uint32_t heads,
                         uint32_t row, uint32_t count) {
    const struct model_config *config = forward->options.config;
    const struct rope_tables *rope = rope_of(forward, layer);
    forward->options.kernels->rope(&(struct rope){.x = x,
                                                  .x_stride = forward->qkv_width,
                                                  .positions = forward->row_numbers + row,
                                                  .rows = count,
                                                  .head_count = heads,
                                                  .head_dim = config->head_dim,
                                                  .rotary_dim = config->head_dim,
                                                  .cosines = rope->cosines,
                                                  .sines = rope->sines});
}

static const struct group_plan *plan_of(const struct forward *forward, uint32_t layer) {
    return &forward->plans[forward->layout.group[layer]];
}

/* Norms and rotates q and k, and stores k and v. */
static void after_qkv_stage(struct forward *forward, uint32_t layer, uint32_t row, uint32_t count) {
    const struct layer_weights *weights = layer_of(forward, layer);
    const struct model_config *config = forward->options.config;
    float *q = forward->wide + (size_t)row * forward->qkv_width;
    float *k = q + forward->q_width;
    norm_heads(forward, q, config->heads, weights->q_norm, count);
    norm_heads(forward, k, config->kv_heads, weights->k_norm, count);
    rotate_heads(forward, layer, q, config->heads, row, count);
    rotate_heads(forward, layer, k, config->kv_heads, row, count);
    struct kv_store store = {.cache = &forward->caches[forward->layout.place[layer]],
                             .k = k,
                             .k_stride = forward->qkv_width,
                             .v = k + forward->kv_width,
                             .v_stride = forward->qkv_width,
                             .slots = plan_of(forward, layer)->slots + row,
                             .rows = count};
    forward->options.kernels->kv_store(&store, 0, config->kv_heads);
}

static void before_output_stage(struct forward *forward, uint32_t layer, uint32_t row,
                                uint32_t count) {
    activate_rows(forward, layer_of(forward, layer)->output, forward->attended, forward->q_width,
                  row, count);
}

static void before_gate_up_stage(struct forward *forward, uint32_t layer, uint32_t row,
                                 uint32_t count) {
    const struct layer_weights *weights = layer_of(forward, layer);
    if (weights->post_attention_norm)
        norm_rows(forward, forward->h, forward->x, weights->post_attention_norm, true, row, count);
    norm_rows(forward, forward->x, forward->h, weights->ffn_norm, false, row, count);
    activate_rows(forward, weights->gate_up, forward->h, forward->options.config->width, row,
                  count);
}

static void before_down_stage(struct forward *forward, uint32_t layer, uint32_t row,
                              uint32_t count) {
    const struct model_config *config = forward->options.config;
    const struct kernels *kernels = forward->options.kernels;
    size_t stride = 2 * (size_t)config->ffn;
    float *gate = forward->wide + row * stride;
    struct gate call = {.gate = gate,
                        .up = gate + config->ffn,
                        .in_stride = stride,
                        .y = gate,
                        .y_stride = stride,
                        .width = config->ffn,
                        .rows = count};
    if (config->architecture->activation == ACTIVATION_SILU)
        kernels->silu_mul(&call);
    else
        kernels->gelu_tanh_mul(&call);
    activate_rows(forward, layer_of(forward, layer)->down, forward->wide, stride, row, count);
}

static void after_down_stage(struct forward *forward, uint32_t layer, uint32_t row,
                             uint32_t count) {
    norm_rows(forward, forward->h, forward->x, layer_of(forward, layer)->post_ffn_norm, true, row,
              count);
}

/* ---- attention ---- */

struct attention_job {
    struct forward *forward;
    const struct group_plan *plan;
    struct attention call;
    uint32_t head_tasks;
};

static void attention_task(void *context, uint32_t task, uint32_t worker) {
    (void)worker;
    const struct attention_job *job = context;
    const struct forward *forward = job->forward;
    const struct attention_group *groups = job->plan->groups;
    uint32_t head = task % job->head_tasks * forward->heads_each;
    forward->options.kernels->attention(&job->call, &groups[task / job->head_tasks], head,
                                        head + forward->heads_each);
}

static void run_attention(struct forward *forward, uint32_t layer) {
    const struct model_config *config = forward->options.config;
    const bool is_causal = !forward->options.is_bidirectional;
    const bool has_window = is_causal && is_local(forward, layer);
    struct attention_job job = {.forward = forward,
                                .plan = plan_of(forward, layer),
                                .call = {.cache = &forward->caches[forward->layout.place[layer]],
                                         .q = forward->wide,
                                         .q_stride = forward->qkv_width,
                                         .y = forward->attended,
                                         .y_stride = forward->q_width,
                                         .head_count = config->heads,
                                         .scale = config->attention_scale,
                                         .softcap = config->attention_softcap,
                                         .window = has_window ? config->window : 0,
                                         .causal = is_causal},
                                .head_tasks = config->kv_heads / forward->heads_each};
    pool_run(forward->options.pool, attention_task, &job, job.plan->group_count * job.head_tasks);
}

/* Counts leading blocks full of keys that both items read; blocks that neither item sees do not
 * count. */
static uint32_t common_blocks(const struct attention_item *a, const struct attention_item *b,
                              uint32_t window) {
    uint32_t a_first = backend_first_seen_block(window, a->position);
    uint32_t b_first = backend_first_seen_block(window, b->position);
    uint32_t a_end = a->position + a->row_count, b_end = b->position + b->row_count;
    uint32_t most = (a_end < b_end ? a_end : b_end) / KV_BLOCK_TOKENS;
    uint32_t count = a_first < b_first ? a_first : b_first;
    if (a->blocks == b->blocks || count > most) return most;
    while (count < most && a->blocks[count] == b->blocks[count]) count++;
    return count;
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
static void group_items(const struct forward *forward, struct group_plan *plan,
                        uint64_t cost_each) {
    uint64_t cost = 0;
    plan->group_count = 0;
    for (uint32_t i = 0; i < forward->item_count; i++) {
        const struct attention_item *item = &plan->items[i];
        if (plan->group_count > 0 && cost + cost_of(item) / 2 <= cost_each) {
            struct attention_group *group = &plan->groups[plan->group_count - 1];
            uint32_t shared = common_blocks(group->items, item, plan->window);
            if (group->item_count > 1 && shared > group->shared_blocks)
                shared = group->shared_blocks;
            if (saves_more_with(group, shared)) {
                group->shared_blocks = shared;
                group->item_count++;
                cost += cost_of(item);
                continue;
            }
        }
        plan->groups[plan->group_count++] =
            (struct attention_group){.items = item, .item_count = 1};
        cost = cost_of(item);
    }
}

/* A group of items for each task. With few items a task has one KV head instead of all, so that
 * groups can still be of several items. */
static void group_all_items(struct forward *forward) {
    const uint32_t kv_heads = forward->options.config->kv_heads;
    const uint32_t tasks = SPREAD_TASKS_PER_THREAD * pool_threads(forward->options.pool);
    const bool has_plenty = forward->item_count >= 2 * tasks;
    uint64_t cost_each = 0;
    for (uint32_t i = 0; i < forward->item_count; i++)
        cost_each += cost_of(&forward->plans[0].items[i]);
    cost_each /= has_plenty ? tasks : (tasks + kv_heads - 1) / kv_heads;
    forward->heads_each = has_plenty ? kv_heads : 1;
    for (uint32_t i = 0; i < kv_layout_groups(&forward->layout); i++)
        group_items(forward, &forward->plans[i], cost_each);
}

/* ---- a step ---- */

static const uint32_t *pages_of(const struct step_sequence *sequence, uint32_t group) {
    return sequence->pages + (size_t)group * sequence->page_stride;
}

/* Item `index`: `count` rows of a sequence, from one at `position` on. */
static void set_item(const struct forward *forward, uint32_t index,
                     const struct step_sequence *sequence, uint32_t row, uint32_t position,
                     uint32_t count) {
    uint32_t key_count = forward->options.is_bidirectional ? sequence->row_count : position + count;
    for (uint32_t i = 0; i < kv_layout_groups(&forward->layout); i++)
        forward->plans[i].items[index] = (struct attention_item){.row = row,
                                                                 .row_count = count,
                                                                 .position = position,
                                                                 .key_count = key_count,
                                                                 .blocks = pages_of(sequence, i)};
}

static void set_slots(const struct forward *forward, const struct step_sequence *sequence,
                      uint32_t row, uint32_t position) {
    for (uint32_t i = 0; i < kv_layout_groups(&forward->layout); i++) {
        uint32_t page = pages_of(sequence, i)[position / KV_BLOCK_TOKENS];
        assert(page < forward->options.page_count);
        forward->plans[i].slots[row] = page * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS;
    }
}

/* Where each row's key and value go, and the attention work list: runs of up to ATTENTION_ROWS rows
 * of one sequence. */
static void plan(struct forward *forward, const struct step *step) {
    forward->item_count = 0;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *sequence = &step->sequences[i];
        assert(!forward->options.is_one_pass || sequence->kv_tokens == 0);
        for (uint32_t j = 0; j < sequence->row_count; j++) {
            uint32_t position = sequence->kv_tokens + j, row = sequence->row_first + j;
            assert(step->positions[row] == position);
            set_slots(forward, sequence, row, position);
            if (j % ATTENTION_ROWS != 0) continue;
            uint32_t left = sequence->row_count - j;
            set_item(forward, forward->item_count++, sequence, row, position,
                     left < ATTENTION_ROWS ? left : ATTENTION_ROWS);
        }
    }
    group_all_items(forward);
}

/* The only rows whose last layer is of use are moved to the front, each with an attention item of
 * its own. A row never moves down past one that is still to move, for `wanted` ascends. */
static void keep_wanted_rows(struct forward *forward, const uint32_t *wanted, uint32_t count) {
    const struct step *step = forward->step;
    size_t width = forward->options.config->width;
    uint32_t sequence = 0;
    if (count == forward->row_count) return;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = wanted[i];
        assert(row < forward->row_count && (i == 0 || row > wanted[i - 1]));
        while (row >= step->sequences[sequence].row_first + step->sequences[sequence].row_count)
            sequence++;
        set_item(forward, i, &step->sequences[sequence], i, step->positions[row], 1);
        if (row == i) continue;
        memcpy(forward->x + i * width, forward->x + row * width, width * sizeof(float));
        memcpy(forward->wide + (size_t)i * forward->qkv_width,
               forward->wide + (size_t)row * forward->qkv_width, forward->q_width * sizeof(float));
    }
    forward->item_count = forward->row_count = count;
    group_all_items(forward);
}

/* Up to the point where all keys and values of the layer are stored. */
static void run_to_kv(struct forward *forward, uint32_t layer) {
    const struct layer_weights *weights = layer_of(forward, layer);
    run_stage(forward, before_qkv_stage, layer);
    run_matmul(forward, (struct matmul){.matrix = weights->qkv,
                                        .rows = forward->row_count,
                                        .y = forward->wide,
                                        .y_stride = forward->qkv_width,
                                        .bias = weights->qkv_bias});
    run_stage(forward, after_qkv_stage, layer);
}

static void run_attention_half(struct forward *forward, uint32_t layer) {
    const struct layer_weights *weights = layer_of(forward, layer);
    bool has_norm = weights->post_attention_norm != NULL;
    run_attention(forward, layer);
    run_stage(forward, before_output_stage, layer);
    run_matmul(forward, (struct matmul){.matrix = weights->output,
                                        .rows = forward->row_count,
                                        .y = has_norm ? forward->h : forward->x,
                                        .y_stride = forward->options.config->width,
                                        .add = !has_norm});
}

static void run_ffn_half(struct forward *forward, uint32_t layer) {
    const struct layer_weights *weights = layer_of(forward, layer);
    bool has_norm = weights->post_ffn_norm != NULL;
    run_stage(forward, before_gate_up_stage, layer);
    run_matmul(forward, (struct matmul){.matrix = weights->gate_up,
                                        .rows = forward->row_count,
                                        .y = forward->wide,
                                        .y_stride = 2 * (size_t)forward->options.config->ffn});
    run_stage(forward, before_down_stage, layer);
    run_matmul(forward, (struct matmul){.matrix = weights->down,
                                        .rows = forward->row_count,
                                        .y = has_norm ? forward->h : forward->x,
                                        .y_stride = forward->options.config->width,
                                        .add = !has_norm});
    if (has_norm) run_stage(forward, after_down_stage, layer);
}

void forward_begin(struct forward *forward, const struct step *step, const uint32_t *wanted,
                   uint32_t wanted_count) {
    assert(step->row_count >= 1 && step->row_count <= forward->options.rows_max);
    forward->step = step;
    forward->wanted = wanted;
    forward->wanted_count = wanted_count;
    forward->row_count = step->row_count;
    forward->layer = 0;
    forward->slice = SLICE_KV;
    plan(forward, step);
    run_stage(forward, embed_stage, 0);
}

bool forward_advance(struct forward *forward) {
    const uint32_t layers = forward->options.config->layers;
    const uint32_t layer = forward->layer;
    if (layer == layers) return true;
    switch (forward->slice) {
    case SLICE_KV:
        run_to_kv(forward, layer);
        if (layer == layers - 1) keep_wanted_rows(forward, forward->wanted, forward->wanted_count);
        if (forward->row_count == 0) forward->layer = layers;
        forward->slice = SLICE_ATTENTION;
        break;
    case SLICE_ATTENTION:
        run_attention_half(forward, layer);
        forward->slice = SLICE_FFN;
        break;
    case SLICE_FFN:
        run_ffn_half(forward, layer);
        forward->slice = SLICE_KV;
        forward->layer++;
        break;
    }
    return forward->layer == layers;
}

void forward_run(struct forward *forward, const struct step *step, const uint32_t *wanted,
                 uint32_t wanted_count) {
    forward_begin(forward, step, wanted, wanted_count);
    while (!forward_advance(forward)) continue;
}

const float *forward_hidden(struct forward *forward, uint32_t first, uint32_t count) {
    const struct model_config *config = forward->options.config;
    assert(count >= 1 && first + count <= forward->row_count);
    norm_rows(forward, forward->x + (size_t)first * config->width, forward->h,
              forward->options.weights->output_norm, false, 0, count);
    return forward->h;
}

const float *forward_logits(struct forward *forward, uint32_t first, uint32_t count) {
    const struct model_config *config = forward->options.config;
    const struct weights *weights = forward->options.weights;
    assert(count <= forward->options.logit_rows_max);
    (void)forward_hidden(forward, first, count);
    activate_rows(forward, weights->head, forward->h, config->width, 0, count);
    run_matmul(forward, (struct matmul){.matrix = weights->head,
                                        .rows = count,
                                        .y = forward->logits,
                                        .y_stride = config->vocab_rows});
    if (config->softcap > 0.0f)
        for (size_t i = 0; i < (size_t)count * config->vocab_rows; i++)
            forward->logits[i] = config->softcap * tanhf(forward->logits[i] / config->softcap);
    return forward->logits;
}

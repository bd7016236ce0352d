/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/min_max.h"
#include "cpu/forward_state.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

/* The cache of a place, without memory; a layer there says which heads it has. */
static struct kv_cache place_of(const struct kv_layout *layout, const struct kernels *kernels,
                                bool kv_is_int8, uint32_t place) {
    const bool is_latent = layout->planes == 1;
    const enum tensor_type type = is_latent    ? kernels->latent_type
                                  : kv_is_int8 ? TENSOR_KV_INT8
                                               : kernels->kv_type;
    const size_t extra = (size_t)layout->heads[place] * kv_type_extra(type);
    return (struct kv_cache){.type = type,
                             .kv_heads = 1,
                             .head_dim = layout->width[place],
                             .block_elements = KV_BLOCK_TOKENS * (layout->width[place] + extra)};
}

uint64_t forward_page_bytes(const struct kv_layout *layout, const struct kernels *kernels,
                            bool kv_is_int8) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->layers_each; i++) {
        const struct kv_cache cache = place_of(layout, kernels, kv_is_int8, i);
        bytes += layout->planes * (uint64_t)kv_block_bytes(&cache);
    }
    return bytes;
}

uint64_t forward_state_bytes(const struct model_config *config) {
    return state_layout_of(config).floats * sizeof(float);
}

/* The part of the formula below for a mixture of experts. */
static void lay_out_experts(struct forward *forward) {
    struct workspace *space = &forward->workspace;
    struct routing *routing = &forward->routing;
    const struct model_config *config = forward->options.config;
    const size_t places = (size_t)forward->options.rows_max * config->experts_used;
    if (!config_has_experts(config)) return;
    routing->experts = workspace_take(space, places * sizeof *routing->experts);
    routing->weights = workspace_take(space, places * sizeof *routing->weights);
    routing->places = workspace_take(space, places * sizeof *routing->places);
    routing->rows = workspace_take(space, places * sizeof *routing->rows);
    routing->ends = workspace_take(space, config->experts * sizeof *routing->ends);
    routing->products = workspace_take(space, config->experts * sizeof *routing->products);
    routing->activations =
        workspace_take(space, places * workspace_expert_activation_bytes(forward->options.weights));
    routing->hidden = workspace_take(space, places * 2 * config->expert_ffn * sizeof(float));
    routing->sums = workspace_take(space, places * config->width * sizeof(float));
    routing->room =
        workspace_take(space, pool_threads(forward->options.pool) *
                                  workspace_expert_tile_bytes(forward->options.weights));
}

/* The part for latent layers. */
static void lay_out_latent(struct forward *forward) {
    struct workspace *space = &forward->workspace;
    const struct model_config *config = forward->options.config;
    const size_t rows = forward->options.rows_max, heads = config->heads;
    if (!config_is_latent(config)) return;
    forward->queries = workspace_take(space, rows * heads * config->head_dim * sizeof(float));
    forward->head_activations =
        workspace_take(space, heads * rows * workspace_head_bytes(forward->options.weights));
    forward->head_products = workspace_take(space, heads * sizeof *forward->head_products);
}

/* The formula of the workspace (cpu/workspace.h). */
static void lay_out(struct forward *forward) {
    struct workspace *space = &forward->workspace;
    const struct forward_options *options = &forward->options;
    const struct model_config *config = options->config;
    const struct program_shape *shape = &forward->program->shape;
    const size_t rows = options->rows_max, inputs = (size_t)config->layers * config->input_width;
    size_t in_width = max_size(shape->qkv_width, config_state_rows(config));
    size_t mixer_width = in_width + max_size(shape->q_width, shape->state_width);
    size_t ffn_width = max_size(config->experts, inputs);
    for (uint32_t i = 0; i < config->layers; i++)
        ffn_width = max_size(ffn_width, 2 * (size_t)config_ffn(config, i));
    ffn_width = max_size(ffn_width, 2 * (size_t)config->shared_ffn);
    forward->x = workspace_take(space, rows * config->width * sizeof(float));
    forward->h = workspace_take(space, rows * config->width * sizeof(float));
    forward->wide = workspace_take(space, rows * max_size(mixer_width, ffn_width) * sizeof(float));
    forward->attended = forward->wide ? forward->wide + rows * in_width : NULL;
    forward->narrow = workspace_take(
        space, rows * max_size(2 * (size_t)shape->recurrent.value_heads, 1) * sizeof(float));
    forward->activations =
        workspace_take(space, rows * workspace_activation_bytes(options->weights));
    lay_out_experts(forward);
    lay_out_latent(forward);
    forward->inputs = workspace_take(space, rows * inputs * sizeof(float));
    if (config_has_both(config))
        forward->side = workspace_take(space, rows * config->width * sizeof(float));
    if (config->architecture->has_v_norm)
        forward->ones = workspace_take(space, config->head_dim * sizeof(float));
    forward->logits =
        workspace_take(space, (size_t)options->logit_rows_max * config->vocab_rows * sizeof(float));
    for (uint32_t i = 0; i < forward->program->shape.rope_count; i++) {
        const size_t pairs = shape->rope_width[i] / 2;
        forward->rope[i].cosines = workspace_take(space, rows * pairs * sizeof(float));
        forward->rope[i].sines = workspace_take(space, rows * pairs * sizeof(float));
    }
    forward->row_numbers = workspace_take(space, rows * sizeof *forward->row_numbers);
    for (uint32_t i = 0; i < forward->plan.group_count; i++) {
        struct plan_group *group = &forward->plan.groups[i];
        group->slots = workspace_take(space, rows * sizeof *group->slots);
        group->items = workspace_take(space, rows * sizeof *group->items);
        forward->tasks[i].groups = workspace_take(space, rows * sizeof *forward->tasks[i].groups);
    }
}

static enum err open_kv(struct forward *forward, struct error *error) {
    const struct forward_options *options = &forward->options;
    const uint32_t layers_each = forward->layout.layers_each;
    forward->caches = mem_new(layers_each, sizeof *forward->caches);
    size_t each[CONFIG_LAYERS_MAX]; /* bytes of the keys, or values, at a place */
    size_t all = 0, most = 0;
    for (uint32_t i = 0; i < layers_each; i++) {
        const struct kv_cache cache =
            place_of(&forward->layout, options->kernels, options->kv_is_int8, i);
        if (__builtin_mul_overflow(kv_block_bytes(&cache), (size_t)options->page_count, &each[i]) ||
            __builtin_add_overflow(all, each[i], &all) || all > SIZE_MAX / 2)
            return err_set(error, ERR_LIMIT, "a KV cache of %u pages is too large",
                           options->page_count);
        most = max_size(most, each[i]);
        forward->caches[i] = cache;
    }
    /* A plane for all layers in turn, unless one reads what another has left. */
    const bool is_one = options->is_one_pass && !config_layers_differ(options->config);
    const uint32_t planes = forward->layout.planes;
    forward->kv_bytes = planes * (is_one ? most : all);
    unsigned char *at = forward->kv_memory = workspace_map(forward->kv_bytes);
    if (!at)
        return err_set(error, ERR_LIMIT, "no memory for a KV cache of %zu bytes",
                       forward->kv_bytes);
    for (uint32_t i = 0; i < layers_each; i++) {
        const size_t plane = is_one ? most : each[i];
        forward->caches[i].k = at;
        forward->caches[i].v = planes > 1 ? at + plane : NULL;
        if (!is_one) at += planes * plane;
    }
    return OK;
}

static enum err open_states(struct forward *forward, struct error *error) {
    const struct forward_options *options = &forward->options;
    const uint64_t floats = forward->program->states.floats;
    if (floats == 0) return OK;
    if (options->is_one_pass)
        return err_set(error, ERR_INVALID,
                       "embeddings of a model with recurrent layers are not supported");
    if (__builtin_mul_overflow(floats * sizeof(float), (size_t)options->state_count,
                               &forward->state_bytes))
        return err_set(error, ERR_LIMIT, "%u states are too large", options->state_count);
    forward->states = workspace_map(forward->state_bytes);
    if (forward->states) return OK;
    return err_set(error, ERR_LIMIT, "no memory for %u states of %zu bytes", options->state_count,
                   (size_t)(floats * sizeof(float)));
}

static enum err open_workspace(struct forward *forward, struct error *error) {
    lay_out(forward);
    enum err err = workspace_open(&forward->workspace, error);
    if (err != OK) return err;
    lay_out(forward);
    for (uint32_t i = 0; i < forward->options.rows_max; i++) forward->row_numbers[i] = i;
    for (uint32_t i = 0; forward->ones && i < forward->options.config->head_dim; i++)
        forward->ones[i] = 1;
    return OK;
}

static struct forward *new_forward(const struct forward_options *options) {
    assert(options->rows_max > 0 && options->logit_rows_max <= options->rows_max);
    assert(options->is_one_pass ? options->logit_rows_max == 0 : options->logit_rows_max > 0);
    assert(options->is_one_pass ? !options->layout : !options->is_bidirectional);
    struct forward *forward = mem_new(1, sizeof *forward);
    forward->options = *options;
    forward->layout = options->layout ? *options->layout : kv_layout_plain(options->config);
    forward->options.layout = &forward->layout;
    forward->plan.page_count = options->page_count;
    forward->plan.is_causal = !options->is_bidirectional;
    forward->plan.group_count = kv_layout_groups(&forward->layout);
    for (uint32_t i = 0; i < forward->plan.group_count; i++)
        forward->plan.groups[i].window =
            i < forward->layout.full_groups ? 0 : forward->layout.window_tokens;
    return forward;
}

static void make_program(struct forward *forward) {
    const struct forward_options *options = &forward->options;
    const struct weights *weights = options->weights;
    program_of(&forward->own_program,
               &(struct program_options){
                   .config = options->config,
                   .layout = &forward->layout,
                   .weights = {.layers = weights->layers,
                               .embedding = weights->embedding,
                               .input_table = weights->input_table,
                               .input_projection = weights->input_projection,
                               .input_norm = weights->input_norm,
                               .embedding_norm = weights->embedding_norm,
                               .head = options->logit_rows_max > 0 ? weights->head : NULL,
                               .output_norm = weights->output_norm,
                               .output_norm_bias = weights->output_norm_bias},
                   .is_bidirectional = options->is_bidirectional,
                   .matmul_adds = true});
    forward->program = &forward->own_program;
}

enum err forward_open(struct forward **ret_forward, const struct forward_options *options,
                      struct error *error) {
    struct forward *forward = new_forward(options);
    make_program(forward);
    enum err err = open_kv(forward, error);
    if (err == OK) err = open_states(forward, error);
    if (err == OK) err = open_workspace(forward, error);
    if (err == OK)
        *ret_forward = forward;
    else
        forward_close(forward);
    return err;
}

enum err forward_open_beside(struct forward **ret_forward, const struct forward *of,
                             uint32_t rows_max, uint32_t logit_rows_max, struct error *error) {
    struct forward_options options = of->options;
    options.rows_max = rows_max;
    options.logit_rows_max = logit_rows_max;
    struct forward *forward = new_forward(&options);
    forward->beside = of;
    forward->program = of->program;
    forward->caches = of->caches;
    forward->states = of->states;
    enum err err = open_workspace(forward, error);
    if (err == OK)
        *ret_forward = forward;
    else
        forward_close(forward);
    return err;
}

void forward_close(struct forward *forward) {
    if (!forward) return;
    workspace_close(&forward->workspace);
    if (forward->kv_memory) munmap(forward->kv_memory, forward->kv_bytes);
    if (forward->state_bytes > 0 && forward->states) munmap(forward->states, forward->state_bytes);
    if (!forward->beside) free(forward->caches);
    program_release(&forward->own_program);
    free(forward);
}

uint64_t forward_workspace_bytes(const struct forward *forward) {
    return forward->workspace.bytes;
}

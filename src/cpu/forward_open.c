/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cpu/forward_state.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

uint64_t forward_page_bytes(const struct model_config *config, const struct kv_layout *layout,
                            const struct kernels *kernels) {
    struct kv_cache cache = {
        .type = kernels->kv_type, .kv_heads = config->kv_heads, .head_dim = config->head_dim};
    return 2 * (uint64_t)layout->layers_each * kv_block_bytes(&cache);
}

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The formula of the workspace (cpu/workspace.h). */
static void lay_out(struct forward *forward) {
    struct workspace *space = &forward->workspace;
    const struct forward_options *options = &forward->options;
    const struct model_config *config = options->config;
    size_t rows = options->rows_max, pairs = config->head_dim / 2;
    size_t attention_width = (size_t)forward->qkv_width + forward->q_width;
    forward->x = workspace_take(space, rows * config->width * sizeof(float));
    forward->h = workspace_take(space, rows * config->width * sizeof(float));
    forward->wide = workspace_take(space, rows * max_of(attention_width, 2 * (size_t)config->ffn) *
                                              sizeof(float));
    forward->attended = forward->wide ? forward->wide + rows * forward->qkv_width : NULL;
    forward->activations =
        workspace_take(space, rows * workspace_activation_bytes(options->weights));
    forward->logits =
        workspace_take(space, (size_t)options->logit_rows_max * config->vocab_rows * sizeof(float));
    for (int i = 0; i < (config_has_local_rope(config) ? 2 : 1); i++) {
        forward->rope[i].frequencies = workspace_take(space, pairs * sizeof(float));
        forward->rope[i].cosines = workspace_take(space, rows * pairs * sizeof(float));
        forward->rope[i].sines = workspace_take(space, rows * pairs * sizeof(float));
    }
    forward->row_numbers = workspace_take(space, rows * sizeof *forward->row_numbers);
    for (uint32_t i = 0; i < kv_layout_groups(&forward->layout); i++) {
        struct group_plan *plan = &forward->plans[i];
        plan->window = i < forward->layout.full_groups ? 0 : forward->layout.window_tokens;
        plan->slots = workspace_take(space, rows * sizeof *plan->slots);
        plan->items = workspace_take(space, rows * sizeof *plan->items);
        plan->groups = workspace_take(space, rows * sizeof *plan->groups);
    }
}

static enum err open_kv(struct forward *forward, struct error *error) {
    const struct forward_options *options = &forward->options;
    const struct model_config *config = options->config;
    const uint32_t layers_each = forward->layout.layers_each;
    forward->caches = mem_new(layers_each, sizeof *forward->caches);
    struct kv_cache cache = {.type = options->kernels->kv_type,
                             .kv_heads = config->kv_heads,
                             .head_dim = config->head_dim};
    size_t plane; /* keys, or values, of one layer of each group */
    size_t planes = options->is_one_pass ? 2 : 2 * (size_t)layers_each;
    if (__builtin_mul_overflow(kv_block_bytes(&cache), (size_t)options->page_count, &plane) ||
        __builtin_mul_overflow(plane, planes, &forward->kv_bytes))
        return err_set(error, ERR_LIMIT, "a KV cache of %u pages is too large",
                       options->page_count);
    unsigned char *at = forward->kv_memory = workspace_map(forward->kv_bytes);
    if (!at)
        return err_set(error, ERR_LIMIT, "no memory for a KV cache of %zu bytes",
                       forward->kv_bytes);
    for (uint32_t i = 0; i < layers_each; i++) {
        forward->caches[i] = cache;
        forward->caches[i].k = at;
        forward->caches[i].v = at + plane;
        if (!options->is_one_pass) at += 2 * plane;
    }
    return OK;
}

static enum err open_workspace(struct forward *forward, struct error *error) {
    const struct model_config *config = forward->options.config;
    lay_out(forward);
    enum err err = workspace_open(&forward->workspace, error);
    if (err != OK) return err;
    lay_out(forward);
    for (int i = 0; i < (config_has_local_rope(config) ? 2 : 1); i++)
        config_rope_frequencies(config, i == 1, forward->rope[i].frequencies);
    for (uint32_t i = 0; i < forward->options.rows_max; i++) forward->row_numbers[i] = i;
    return OK;
}

static struct forward *new_forward(const struct forward_options *options) {
    assert(options->rows_max > 0 && options->logit_rows_max <= options->rows_max);
    assert(options->is_one_pass ? options->logit_rows_max == 0 : options->logit_rows_max > 0);
    assert(options->is_one_pass ? !options->layout : !options->is_bidirectional);
    struct forward *forward = mem_new(1, sizeof *forward);
    const struct model_config *config = options->config;
    forward->options = *options;
    forward->layout = options->layout ? *options->layout : kv_layout_plain(config);
    forward->options.layout = &forward->layout;
    forward->q_width = config->heads * config->head_dim;
    forward->kv_width = config->kv_heads * config->head_dim;
    forward->qkv_width = forward->q_width + 2 * forward->kv_width;
    return forward;
}

enum err forward_open(struct forward **ret_forward, const struct forward_options *options,
                      struct error *error) {
    struct forward *forward = new_forward(options);
    enum err err = open_kv(forward, error);
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
    forward->caches = of->caches;
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
    if (!forward->beside) free(forward->caches);
    free(forward);
}

uint64_t forward_workspace_bytes(const struct forward *forward) {
    return forward->workspace.bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "device/card_fit.h"

#include "base/mem.h"
#include "device/device_sampling.h"
#include "program/plan_attention.h"

#include <stdlib.h>

#define PRODUCTS 4u /* of a layer: q | k | v, output, gate | up, down */
/* As of src/kernels/cuda. */
#define TILE_ROWS_HEADS 64u
#define SPLIT_TOKENS 64u

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t blocks_of(uint32_t tokens) {
    return (tokens + DEVICE_PAGE_TOKENS - 1) / DEVICE_PAGE_TOKENS;
}

/* The matrices of the program, layer by layer, then the embedding and a head of its own. */
static struct device_matrix *matrices_of(const struct card_fit_options *options,
                                         uint32_t *ret_count) {
    const struct model_config *config = options->config;
    const uint32_t q_width = config->heads * config->head_dim;
    const uint32_t kv_width = config->kv_heads * config->head_dim;
    const struct device_matrix layer[PRODUCTS] = {
        {q_width + 2 * kv_width, config->width, options->weights},
        {config->width, q_width, options->weights},
        {2 * config->ffn, config->width, options->weights},
        {config->width, config->ffn, options->weights}};
    uint32_t count = config->layers * PRODUCTS;
    struct device_matrix *matrices = mem_new(count + 2, sizeof *matrices);
    for (uint32_t i = 0; i < count; i++) matrices[i] = layer[i % PRODUCTS];
    matrices[count++] = (struct device_matrix){config->vocab_rows, config->width, DEVICE_BF16};
    if (!options->is_tied)
        matrices[count++] =
            (struct device_matrix){config->vocab_rows, config->width, options->weights};
    *ret_count = count;
    return matrices;
}

static struct device_limits limits_of(const struct card_fit_options *options,
                                      const struct kv_layout *layout, uint32_t pages_min) {
    const struct model_config *config = options->config;
    const struct plan_attention_options plan = {.layout = layout,
                                                .heads = config->heads,
                                                .kv_heads = config->kv_heads,
                                                .tile_rows_heads = TILE_ROWS_HEADS,
                                                .split_tokens = SPLIT_TOKENS,
                                                .rows_max = CARD_FIT_ROWS,
                                                .sequences_max = CARD_FIT_SEQUENCES,
                                                .context_max = config->context_max};
    struct plan_attention_sizes sizes = plan_attention_sizes(&plan);
    const struct device_sampling_options sampling = {.vocab = config->token_count,
                                                     .logit_rows_max = CARD_FIT_SEQUENCES,
                                                     .sequences_max = CARD_FIT_SEQUENCES,
                                                     .context_max = config->context_max};
    uint64_t most =
        (uint64_t)CARD_FIT_SEQUENCES * blocks_of(config->context_max) * kv_layout_groups(layout);
    return (struct device_limits){.rows_max = CARD_FIT_ROWS,
                                  .logit_rows_max = CARD_FIT_SEQUENCES,
                                  .sequences_max = CARD_FIT_SEQUENCES,
                                  .context_max = config->context_max,
                                  .layer_places = layout->layers_each,
                                  .group_count = kv_layout_groups(layout),
                                  .page_count_max = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX,
                                  .page_count_min = pages_min,
                                  .steps_max = DEVICE_STEPS_MAX,
                                  .pages_max = sizes.pages_max,
                                  .items_max = sizes.items_max,
                                  .partials_max = sizes.partials_max,
                                  .edits_max = device_sampling_edits_max(&sampling),
                                  .named_max = device_sampling_named_max(&sampling),
                                  .kv_form = options->kv};
}

struct card_fit card_fit_of(const struct card_fit_options *options) {
    const struct model_config *config = options->config;
    const struct kv_layout layout = kv_layout_of(config, config->context_max);
    uint32_t tokens = options->sequence_tokens;
    if (tokens == 0 || tokens > config->context_max) tokens = config->context_max;
    uint32_t blocks = blocks_of(tokens);
    uint32_t pages = layout.full_groups * blocks +
                     layout.window_groups * least(blocks, blocks_of(layout.window_tokens) + 2);
    const struct device_limits limits = limits_of(options, &layout, pages);
    uint32_t count;
    struct device_matrix *matrices = matrices_of(options, &count);
    /* The widest products into each buffer; the vectors of norms are small. */
    const struct device_op ops[] = {{.kind = OP_MATMUL, .to = TO_WIDE, .matrix = 0},
                                    {.kind = OP_MATMUL, .to = TO_H, .matrix = 1},
                                    {.kind = OP_MATMUL, .to = TO_WIDE, .matrix = 2}};
    const struct device_program program = {.matrices = matrices,
                                           .matrix_count = count,
                                           .ops = ops,
                                           .op_count = sizeof ops / sizeof *ops,
                                           .width = config->width,
                                           .ffn = config->ffn,
                                           .heads = config->heads,
                                           .kv_heads = config->kv_heads,
                                           .head_dim = config->head_dim,
                                           .vocab_rows = config->vocab_rows,
                                           .vocab = config->token_count,
                                           .rope_count = config_has_local_rope(config) ? 2 : 1};
    struct card_fit fit = {.ledger =
                               device_ledger_predict(&program, &limits, options->memory_bytes),
                           .sequence_tokens = tokens};
    free(matrices);
    fit.is_fitting = fit.ledger.used <= fit.ledger.limit;
    fit.kv_bytes_per_token = fit.ledger.page_bytes * pages / tokens;
    if (fit.is_fitting) fit.sequences = least(fit.ledger.page_count / pages, CARD_FIT_SEQUENCES);
    return fit;
}

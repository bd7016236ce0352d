/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_run: tiles the weights of a hostile checkpoint and runs it once over two tokens, for
 * generation if it generates, and for embeddings. */

#include "../cpu_weights.h"
#include "cpu/embed.h"
#include "cpu/forward.h"

#include <stdlib.h>

static inline void model_run_step(const struct forward_options *options) {
    static const uint32_t block = 0, positions[2] = {0, 1}, last = 1;
    struct error error = {0};
    struct forward *forward;
    if (forward_open(&forward, options, &error) != OK) abort();
    int32_t tokens[2] = {0, (int32_t)options->config->token_count - 1};
    struct step_sequence sequence = {.row_count = 2,
                                     .block_count = 1,
                                     .page_stride = 1,
                                     .pages = &block,
                                     .state_from = BACKEND_STATE_ZERO};
    forward_run(forward,
                &(struct step){.row_count = 2,
                               .sequence_count = 1,
                               .tokens = tokens,
                               .positions = positions,
                               .sequences = &sequence},
                &last, 1);
    (void)forward_logits(forward, 0, 1);
    forward_close(forward);
}

static inline void model_run_embed(const struct forward_options *options) {
    struct error error = {0};
    struct embedder *embedder;
    const struct model_config *config = options->config;
    float *vector = calloc(config->width, sizeof *vector);
    if (!vector) abort();
    struct embedder_options embed = {.config = config,
                                     .weights = options->weights,
                                     .kernels = options->kernels,
                                     .pool = options->pool,
                                     .pooling = POOLING_MEAN,
                                     .rows_max = 2,
                                     .tokens_max = config->context_max < 2 ? 1 : 2};
    if (embedder_open(&embedder, &embed, &error) != OK) abort();
    int32_t tokens[2] = {0, (int32_t)config->token_count - 1};
    struct embed_sequence text = {.ids = tokens, .count = embed.tokens_max};
    /* Only the results of weights that are no numbers may be refused. */
    if (embedder_run(embedder, &text, 1, vector, &error) != OK && error.code != ERR_INVALID)
        abort();
    embedder_close(embedder);
    free(vector);
}

static inline void model_run(const struct checkpoint *checkpoint,
                             const struct model_config *config) {
    struct error error = {0};
    struct pool *pool;
    struct cpu_weights cpu;
    const struct kernels *kernels = kernels_choose("ref");
    if (pool_open(&pool, 1, &error) != OK) abort();
    if (cpu_weights_open(&cpu, checkpoint, config, kernels, pool, &error) == OK) {
        struct forward_options options = {.config = config,
                                          .weights = cpu.weights,
                                          .kernels = kernels,
                                          .pool = pool,
                                          .rows_max = 2,
                                          .logit_rows_max = 1,
                                          .page_count = 1,
                                          .state_count = 1};
        if (!config->architecture->is_encoder) model_run_step(&options);
        if (!config_is_recurrent(config)) model_run_embed(&options); /* others do not embed */
        cpu_weights_close(&cpu);
    }
    pool_close(pool);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_fit.h"

#include "base/min_max.h"
#include "gpu/gpu_limits.h"
#include "gpu/gpu_shapes.h"
#include "gpu/gpu_shard.h"
#include "gpu/text_runner_gpu.h"

#include <stdio.h>

#define HEAD_DIM_SMALL 256u /* as of src/inference/gpu/cuda: larger heads have keys in bf16 only */

static void set_sequences(struct card_fit *fit, const struct kv_layout *layout) {
    const uint32_t pages = kv_layout_pages(layout, fit->sequence_tokens);
    const struct memory_ledger *ledger = &fit->ledger;
    fit->kv_bytes_per_token = ledger->page_bytes * pages / fit->sequence_tokens;
    if (ledger->used > ledger->limit)
        fit->missing_bytes = ledger->used - ledger->limit;
    else if (ledger->page_count < pages)
        fit->missing_bytes = (pages - ledger->page_count) * ledger->page_bytes;
    fit->is_fitting = fit->missing_bytes == 0;
    if (fit->is_fitting)
        fit->sequences = min_u32(ledger->page_count / pages, fit->limits.sequences_max);
}

bool card_fit_has_kernels(const struct model_config *config, enum gpu_form kv) {
    if (kv != GPU_BF16 && config_is_latent(config)) return false;
    for (uint32_t i = 0; i < config->layers; i++)
        if (kv != GPU_BF16 && config_head_dim(config, i) > HEAD_DIM_SMALL) return false;
    return true;
}

/* As an engine does it: experts leave the GPU if the model does not fit with them. */
static struct card_fit fit_decoder(const struct gpu_limits_options *limits, uint32_t tokens) {
    struct card_fit fit = {.limits = gpu_limits_of(limits)};
    struct gpu_limits_options less = *limits;
    fit.ledger = gpu_ledger_predict(limits->program, &fit.limits, limits->memory_bytes);
    fit.away_bytes = fit.ledger.away;
    fit.sequence_tokens =
        min_u32(tokens > 0 ? tokens : GPU_CACHE_TOKENS_LEAST, limits->wanted.context_max);
    set_sequences(&fit, limits->layout);
    if (fit.ledger.used <= fit.ledger.limit || limits->leaves_experts) return fit;
    less.leaves_experts = true;
    const struct card_fit left = fit_decoder(&less, tokens);
    return left.is_fitting ? left : fit;
}

static uint32_t context_of(const struct card_fit_options *options) {
    const uint32_t wanted = options->wanted.context_max;
    return wanted > 0 ? wanted : options->config->context_max;
}

/* Fits a program, or the first GPU's share of it. */
static struct card_fit fit_of(const struct card_fit_options *options,
                              const struct gpu_program *program, const struct kv_layout *layout) {
    const struct model_config *config = options->config;
    struct gpu_limits_options limits = {.program = program,
                                        .layout = layout,
                                        .kv_form = options->kv,
                                        .state_form = options->state,
                                        .multiprocessors = CARD_FIT_MULTIPROCESSORS,
                                        .memory_bytes = options->memory_bytes,
                                        .host_bytes =
                                            options->host_bytes / max_u32(1, options->ranks),
                                        .wanted = options->wanted};
    const struct text_runner_gpu_options texts = {.config = config,
                                                  .is_bidirectional = options->is_bidirectional,
                                                  .pools_all = options->pools_all,
                                                  .kv_form = options->kv,
                                                  .tokens_max = options->tokens_max};
    limits.wanted.context_max = context_of(options);
    if (!options->is_for_texts) return fit_decoder(&limits, options->sequence_tokens);
    struct card_fit fit = {.sequence_tokens = options->tokens_max,
                           .limits = text_runner_gpu_limits(&texts, program, layout)};
    fit.ledger = gpu_ledger_predict(program, &fit.limits, options->memory_bytes);
    fit.kv_bytes_per_token = fit.ledger.page_bytes / GPU_PAGE_TOKENS;
    fit.is_fitting = fit.ledger.used <= fit.ledger.limit; /* a step is whole */
    fit.missing_bytes = fit.is_fitting ? 0 : fit.ledger.used - fit.ledger.limit;
    fit.sequences = fit.is_fitting ? fit.limits.sequences_max : 0;
    return fit;
}

/* Fits the first of several GPUs. */
static struct card_fit fit_share(const struct card_fit_options *options,
                                 const struct gpu_program *program,
                                 const struct kv_layout *layout) {
    struct gpu_shard share;
    struct error error;
    struct card_fit fit = {.is_refused = true};
    if (gpu_shard_sizes(&share, program, 0, options->ranks, &error) != OK) {
        (void)snprintf(fit.why_not, sizeof fit.why_not, "%.191s", error.text);
        return fit;
    }
    fit = fit_of(options, &share.program, layout);
    gpu_shard_release(&share);
    return fit;
}

struct card_fit card_fit_of(const struct card_fit_options *options) {
    const struct model_config *config = options->config;
    const struct kv_layout layout = options->is_for_texts
                                        ? kv_layout_of_texts(config, options->is_bidirectional)
                                        : kv_layout_of(config, context_of(options));
    struct gpu_shapes shapes;
    gpu_shapes_open(&shapes,
                    &(struct gpu_shapes_options){.config = config,
                                                 .layout = &layout,
                                                 .weights = options->weights,
                                                 .checkpoint = options->checkpoint,
                                                 .is_tied = options->is_tied,
                                                 .is_for_texts = options->is_for_texts,
                                                 .is_bidirectional = options->is_bidirectional});
    const struct card_fit fit =
        (options->ranks > 1 ? fit_share : fit_of)(options, &shapes.gpu_program, &layout);
    gpu_shapes_close(&shapes);
    return fit;
}

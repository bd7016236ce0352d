/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fit_configs: the configs of published models, as far as their sizes follow from them.
 *
 * Thread: any.
 * Memory: none. */

#include "checkpoint/config.h"

static inline struct model_config qwen3_4b(void) {
    return (struct model_config){.architecture = config_architecture(STR("qwen3")),
                                 .layers = 36,
                                 .width = 2560,
                                 .ffn = 9728,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .context_max = 40960,
                                 .vocab_rows = 151936,
                                 .token_count = 151669};
}

static inline struct model_config qwen3_30b_a3b(void) {
    struct model_config config = qwen3_4b();
    config.architecture = config_architecture(STR("qwen3moe"));
    config.layers = 48, config.width = 2048, config.kv_heads = 4;
    config.experts = 128, config.experts_used = 8, config.expert_ffn = 768;
    for (uint32_t i = 0; i < config.layers; i++) config.list[i].ffn = FFN_EXPERTS;
    return config;
}

static inline struct model_config deepseek_v2_lite(void) {
    struct model_config config = {
        .architecture = config_architecture(STR("deepseek2")),
        .layers = 27,
        .width = 2048,
        .ffn = 10944,
        .heads = 16,
        .kv_heads = 1,
        .head_dim = 576,
        .rotary_dim = 64,
        .latent = {.rank = 512, .still_dim = 128, .turned_dim = 64, .value_dim = 128},
        .experts = 64,
        .experts_used = 6,
        .expert_ffn = 1408,
        .shared_ffn = 2816,
        .context_max = 4096,
        .vocab_rows = 102400,
        .token_count = 102400};
    for (uint32_t i = 0; i < config.layers; i++) {
        config.list[i].mixer = MIXER_LATENT;
        config.list[i].ffn = i > 0 ? FFN_EXPERTS : FFN_GATED;
    }
    return config;
}

/* Layers with a window of 128 and without one, by turns. */
static inline struct model_config gpt_oss_20b(void) {
    struct model_config config = {.architecture = config_architecture(STR("gpt-oss")),
                                  .layers = 24,
                                  .width = 2880,
                                  .heads = 64,
                                  .kv_heads = 8,
                                  .head_dim = 64,
                                  .experts = 32,
                                  .experts_used = 4,
                                  .expert_ffn = 2880,
                                  .context_max = 131072,
                                  .vocab_rows = 201088,
                                  .token_count = 201088};
    bool is_local[CONFIG_LAYERS_MAX];
    for (uint32_t i = 0; i < config.layers; i++) {
        config.list[i].ffn = FFN_EXPERTS;
        is_local[i] = i % 2 == 0;
    }
    config_set_windows(&config, 128, is_local);
    return config;
}

/* Mixtral 8x7B: few experts, each of 176 M numbers. */
static inline struct model_config mixtral_8x7b(void) {
    struct model_config config = {.architecture = config_architecture(STR("llama")),
                                  .layers = 32,
                                  .width = 4096,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .experts = 8,
                                  .experts_used = 2,
                                  .expert_ffn = 14336,
                                  .context_max = 32768,
                                  .vocab_rows = 32000,
                                  .token_count = 32000};
    for (uint32_t i = 0; i < config.layers; i++) config.list[i].ffn = FFN_EXPERTS;
    return config;
}

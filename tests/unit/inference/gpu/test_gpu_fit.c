/* SPDX-License-Identifier: Apache-2.0 */
#include "fit_configs.h"
#include "gpu/gpu_fit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static struct card_fit fit(const struct model_config *config, enum gpu_form weights,
                           enum gpu_form kv, uint32_t tokens) {
    return card_fit_of(&(struct card_fit_options){.config = config,
                                                  .is_tied = true,
                                                  .weights = weights,
                                                  .kv = kv,
                                                  .memory_bytes = 15900 * MIB,
                                                  .sequence_tokens = tokens});
}

static void a_decoder_is_predicted_from_its_config(void **state) {
    (void)state;
    struct model_config config = qwen3_4b();
    struct card_fit is = fit(&config, GPU_BF16, GPU_BF16, 1024);
    /* 4.02 G parameters of 2 bytes, and angles of 40,960 positions. */
    assert_in_range(is.ledger.weights / MIB, 7660, 7710);
    assert_int_equal(is.kv_bytes_per_token, 36 * 2 * 8 * 128 * 2);
    assert_true(is.is_fitting && is.ledger.used <= is.ledger.limit);
    assert_int_equal(is.sequences, is.ledger.kv / (1024 * is.kv_bytes_per_token));
}

/* The first of two GPUs has half of each layer, and all of the embedding: of 4.02 G parameters
 * 0.39 G are the embedding's. */
static void the_first_of_several_gpus_is_predicted(void **state) {
    (void)state;
    struct model_config config = qwen3_4b();
    struct card_fit_options options = {.config = &config,
                                       .is_tied = true,
                                       .weights = GPU_BF16,
                                       .kv = GPU_BF16,
                                       .memory_bytes = 8000 * MIB,
                                       .ranks = 2,
                                       .sequence_tokens = 1024};
    const struct card_fit two = card_fit_of(&options);
    assert_true(!two.is_refused && two.is_fitting);
    assert_in_range(two.ledger.weights / MIB, 4200, 4260);
    assert_int_equal(two.kv_bytes_per_token, 36 * 2 * 8 * 128 * 2 / 2);
    options.ranks = 1; /* the weights alone would fit */
    const struct card_fit one = card_fit_of(&options);
    assert_true(!one.is_fitting || one.sequences < two.sequences);
    options.ranks = 3;
    const struct card_fit three = card_fit_of(&options);
    assert_true(three.is_refused && !three.is_fitting);
    assert_string_equal(three.why_not,
                        "--tensor-parallel-size 3: the model's 32 heads do not divide by it");
}

/* BERT-base: 109 M parameters of 2 bytes, and positions of either type in 4. A step has its rows
 * whatever else is free. */
static void a_model_for_texts_is_predicted_as_well(void **state) {
    (void)state;
    const struct model_config config = {.architecture = config_architecture(STR("bert")),
                                        .layers = 12,
                                        .width = 768,
                                        .ffn = 3072,
                                        .heads = 12,
                                        .kv_heads = 12,
                                        .head_dim = 64,
                                        .context_max = 512,
                                        .token_types = 2,
                                        .vocab_rows = 30522,
                                        .token_count = 30522};
    struct card_fit_options options = {.config = &config,
                                       .weights = GPU_BF16,
                                       .kv = GPU_BF16,
                                       .memory_bytes = 15900 * MIB,
                                       .is_for_texts = true,
                                       .is_bidirectional = true,
                                       .pools_all = true,
                                       .tokens_max = 512};
    const struct card_fit wide = card_fit_of(&options);
    assert_in_range(wide.ledger.weights / MIB, 207, 213);
    assert_int_equal(wide.limits.rows_max, 8192);
    assert_int_equal(wide.kv_bytes_per_token, 2 * 768 * 2);
    assert_true(wide.is_fitting && wide.ledger.used < 2048 * MIB && wide.sequences == 1024);
    options.memory_bytes = 600 * MIB;
    const struct card_fit small = card_fit_of(&options);
    assert_true(!small.is_fitting && small.sequences == 0 &&
                small.missing_bytes == wide.ledger.used - 600 * MIB);
}

static struct model_config qwen3_5_4b(void) {
    struct model_config config = {
        .architecture = config_architecture(STR("qwen35")),
        .layers = 32,
        .width = 2560,
        .ffn = 9216,
        .heads = 16,
        .kv_heads = 4,
        .head_dim = 256,
        .rotary_dim = 64,
        .context_max = 32768,
        .vocab_rows = 248320,
        .token_count = 248077,
        .recurrent = {
            .taps = 4, .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128}};
    for (uint32_t i = 0; i < config.layers; i++)
        config.list[i].mixer = i % 4 == 3 ? MIXER_ATTENTION : MIXER_DELTA;
    return config;
}

/* 24 layers of 32 matrices of 128 x 128 and 3 inputs of 8,192 channels. */
static void states_of_recurrent_layers_take_their_room(void **state) {
    (void)state;
    struct model_config config = qwen3_5_4b();
    struct card_fit_options options = {.config = &config,
                                       .is_tied = true,
                                       .weights = GPU_BF16,
                                       .kv = GPU_BF16,
                                       .memory_bytes = 15900 * MIB,
                                       .sequence_tokens = 1024};
    const struct card_fit wide = card_fit_of(&options);
    options.state = GPU_BF16;
    const struct card_fit small = card_fit_of(&options);
    const uint64_t tails = UINT64_C(24) * 3 * 8192 * 2, matrices = UINT64_C(24) * 32 * 128 * 128;
    assert_int_equal(wide.ledger.state_bytes, tails + 4 * matrices);
    assert_int_equal(small.ledger.state_bytes, tails + 2 * matrices);
    assert_int_equal(wide.ledger.states, wide.ledger.state_places * wide.ledger.state_bytes);
    assert_in_range(wide.ledger.weights / MIB, 8000, 8080); /* 4.2 G parameters of 2 bytes */
    assert_int_equal(wide.kv_bytes_per_token, 8 * 2 * 4 * 256 * 2);
    assert_true(wide.is_fitting && wide.ledger.used <= wide.ledger.limit);
    assert_true(wide.ledger.state_places > wide.limits.sequences_max);
    assert_in_range(wide.sequences, 40, 64);
    assert_in_range(small.sequences, wide.sequences + 16, wide.sequences * 2);
}

/* Nemotron Nano 2 of 9B: 27 layers of Mamba-2, 25 feed-forwards without a gate, 4 of attention. */
static struct model_config nemotron_9b(void) {
    static const char halves[] = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";
    struct model_config config = {.architecture = config_architecture(STR("nemotron_h")),
                                  .layers = sizeof halves - 1,
                                  .width = 4480,
                                  .ffn = 15680,
                                  .heads = 40,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .context_max = 32768,
                                  .vocab_rows = 131072,
                                  .token_count = 131072,
                                  .recurrent = {.taps = 4,
                                                .key_heads = 8,
                                                .value_heads = 128,
                                                .key_dim = 128,
                                                .value_dim = 80,
                                                .has_conv_bias = true}};
    for (uint32_t i = 0; i < config.layers; i++) {
        config.list[i].mixer = halves[i] == 'M'   ? MIXER_MAMBA
                               : halves[i] == '*' ? MIXER_ATTENTION
                                                  : MIXER_NONE;
        config.list[i].ffn = halves[i] == '-' ? FFN_GATED : FFN_NONE;
    }
    return config;
}

static void layers_of_one_half_have_their_matrices_alone(void **state) {
    (void)state;
    struct model_config config = nemotron_9b();
    const struct card_fit is = card_fit_of(&(struct card_fit_options){.config = &config,
                                                                      .weights = GPU_BF16,
                                                                      .kv = GPU_BF16,
                                                                      .memory_bytes = 40960 * MIB,
                                                                      .sequence_tokens = 1024});
    const uint64_t channels = 10240 + 2 * 8 * 128, matrix = UINT64_C(128) * 128 * 80;
    assert_in_range(is.ledger.weights / MIB, 16940, 16980); /* 8.89 G parameters of 2 bytes */
    assert_int_equal(is.ledger.state_bytes, 27 * (3 * channels * 2 + 4 * matrix));
    assert_int_equal(is.kv_bytes_per_token, 4 * 2 * 8 * 128 * 2);
    assert_true(is.is_fitting);
}

/* A layer of Falcon-H1 has both mixers and one more matrix. */
static void two_mixers_of_a_layer_have_the_matrices_of_both(void **state) {
    (void)state;
    struct model_config config = nemotron_9b();
    config.layers = 4;
    for (uint32_t i = 0; i < 4; i++)
        config.list[i].mixer = MIXER_ATTENTION, config.list[i].ffn = FFN_GATED;
    const struct card_fit one = fit(&config, GPU_BF16, GPU_BF16, 1024);
    config.architecture = config_architecture(STR("falcon-h1"));
    for (uint32_t i = 0; i < 4; i++) config.list[i].mixer = MIXER_BOTH;
    const struct card_fit both = fit(&config, GPU_BF16, GPU_BF16, 1024);
    /* x | B | C | gate and steps, the output, and the other half of gate and up. */
    const uint64_t columns = 2 * 10240 + 2 * 8 * 128 + 128 + 10240 + 15680;
    const uint64_t more = both.ledger.weights - one.ledger.weights;
    assert_in_range(more, 4 * columns * 4480 * 2, 4 * columns * 4480 * 2 + 2 * MIB);
    assert_true(both.ledger.state_bytes > 0 && one.ledger.state_bytes == 0);
}

static void eight_bits_leave_more_sequences(void **state) {
    (void)state;
    struct model_config config = qwen3_4b();
    struct card_fit plain = fit(&config, GPU_BF16, GPU_BF16, 1024);
    struct card_fit kv = fit(&config, GPU_BF16, GPU_E4M3, 1024);
    struct card_fit both = fit(&config, GPU_E4M3, GPU_E4M3, 1024);
    assert_in_range(kv.sequences, plain.sequences * 19 / 10, plain.sequences * 2);
    assert_true(both.sequences > kv.sequences);
    assert_in_range(plain.ledger.weights - both.ledger.weights, 3450 * MIB, 3500 * MIB);
}

static void a_window_keeps_few_pages_of_a_long_sequence(void **state) {
    (void)state;
    struct model_config config = qwen3_4b();
    struct card_fit full = fit(&config, GPU_BF16, GPU_BF16, 16384);
    bool is_local[CONFIG_LAYERS_MAX];
    config_local_layers(config.layers, 0, 6, is_local);
    config_set_windows(&config, 1024, is_local);
    struct card_fit windowed = fit(&config, GPU_BF16, GPU_BF16, 16384);
    assert_true(windowed.kv_bytes_per_token < full.kv_bytes_per_token / 3);
    assert_true(windowed.sequences > 2 * full.sequences);
}

static void experts_are_predicted_as_well(void **state) {
    (void)state;
    struct model_config config = qwen3_30b_a3b();
    struct card_fit_options options = {.config = &config,
                                       .weights = GPU_BF16,
                                       .kv = GPU_BF16,
                                       .memory_bytes = 139 * 1024 * MIB,
                                       .sequence_tokens = 1024};
    const struct card_fit wide = card_fit_of(&options);
    options.weights = GPU_INT8;
    const struct card_fit small = card_fit_of(&options);
    /* 30.5 G parameters of 2 bytes, and angles; the embedding stays so. */
    assert_in_range(wide.ledger.weights / MIB, 58200, 58400);
    assert_in_range((wide.ledger.weights - small.ledger.weights) / MIB, 28700, 28800);
    assert_int_equal(wide.kv_bytes_per_token, 98304);
    assert_true(wide.is_fitting && small.is_fitting);
    assert_true(small.ledger.activations > wide.ledger.activations);
    assert_true(wide.away_bytes == 0 && small.away_bytes == 0);
}

/* Qwen3-30B-A3B in INT8 on GPUs that hold less and less of it. */
static void experts_without_room_stay_in_the_host_s_memory(void **state) {
    (void)state;
    struct model_config config = qwen3_30b_a3b();
    const uint64_t layer = UINT64_C(128) * 3 * 768 * 2048;
    for (uint64_t mib = 28000; mib >= 8000; mib -= 4000) {
        const struct card_fit_options options = {.config = &config,
                                                 .weights = GPU_INT8,
                                                 .kv = GPU_BF16,
                                                 .memory_bytes = mib * MIB,
                                                 .sequence_tokens = 1024};
        const struct card_fit some = card_fit_of(&options);
        const uint32_t away = some.limits.experts_away;
        assert_true(some.is_fitting && some.ledger.used <= some.ledger.limit);
        assert_true(away >= 3 && away <= config.layers);
        assert_true(some.away_bytes >= away * layer &&
                    some.away_bytes < away * (layer + layer / 50));
        /* Room for sequences of 1,024 tokens, unless all are away. */
        assert_true(some.sequences >= 16 || away == config.layers);
    }
    const struct card_fit_options none = {.config = &config,
                                          .weights = GPU_INT8,
                                          .kv = GPU_BF16,
                                          .memory_bytes = 3000 * MIB,
                                          .sequence_tokens = 1024};
    const struct card_fit fit = card_fit_of(&none);
    assert_true(!fit.is_fitting && fit.away_bytes == 0 && fit.missing_bytes > 0);
    /* The host's memory has room for so many: fewer sequences, or none. */
    struct card_fit_options small = none;
    small.memory_bytes = 16000 * MIB;
    const struct card_fit free_host = card_fit_of(&small);
    small.host_bytes = free_host.away_bytes - layer;
    const struct card_fit less = card_fit_of(&small);
    assert_true(less.is_fitting && less.away_bytes <= small.host_bytes);
    assert_true(less.sequences < free_host.sequences);
    small.host_bytes = 2 * layer;
    assert_false(card_fit_of(&small).is_fitting);
}

/* Gemma-4-E4B: heads of 256 and 512, the last 18 layers without keys, parts of tokens. */
static struct model_config gemma_4_e4b(void) {
    struct model_config config = {.architecture = config_architecture(STR("gemma4")),
                                  .layers = 42,
                                  .width = 2560,
                                  .ffn = 10240,
                                  .heads = 8,
                                  .kv_heads = 2,
                                  .head_dim = 256,
                                  .window = 512,
                                  .input_width = 256,
                                  .context_max = 32768,
                                  .vocab_rows = 262144,
                                  .token_count = 262144};
    for (uint32_t i = 0; i < config.layers; i++) {
        const bool is_full = i % 6 == 5;
        config.list[i].window = is_full ? 0 : config.window;
        config.list[i].rope = !is_full;
        config.list[i].head_dim = is_full ? 512 : 0;
        config.list[i].kv_from = i < 24 ? 0 : is_full ? 24 : 23;
    }
    return config;
}

static void layers_that_differ_are_predicted_as_well(void **state) {
    (void)state;
    struct model_config config = gemma_4_e4b();
    struct card_fit_options options = {.config = &config,
                                       .is_tied = true,
                                       .weights = GPU_BF16,
                                       .kv = GPU_BF16,
                                       .memory_bytes = 139 * 1024 * MIB,
                                       .sequence_tokens = 1024};
    const struct card_fit is = card_fit_of(&options);
    /* 7.46 G parameters of 2 bytes, 2.8 G of them parts of tokens, and angles. */
    assert_in_range(is.ledger.weights / MIB, 14325, 14345);
    /* Four layers per page, each as wide as one of heads of 512: one group without a window, and
     * five whose windows have 34 pages. */
    assert_int_equal(is.ledger.page_bytes, 4 * 2 * 16 * 1024 * 2);
    assert_int_equal(is.kv_bytes_per_token, (64 + 5 * 34) * is.ledger.page_bytes / 1024);
    assert_true(is.is_fitting);
    options.weights = GPU_INT8;
    const struct card_fit small = card_fit_of(&options);
    /* All but the embedding and the parts. */
    assert_in_range((is.ledger.weights - small.ledger.weights) / MIB, 3775, 3795);
    assert_true(card_fit_has_kernels(&config, GPU_BF16) &&
                !card_fit_has_kernels(&config, GPU_E4M3));
}

/* DeepSeek-V2-Lite: a token keeps 576 numbers in each of 27 layers, keys and values alike. */
static void latent_layers_keep_one_entry_per_token(void **state) {
    (void)state;
    struct model_config config = deepseek_v2_lite();
    struct card_fit_options options = {.config = &config,
                                       .weights = GPU_BF16,
                                       .kv = GPU_BF16,
                                       .memory_bytes = 139 * 1024 * MIB,
                                       .sequence_tokens = 1024};
    const struct card_fit is = card_fit_of(&options);
    assert_int_equal(is.kv_bytes_per_token, 27 * 576 * 2);
    assert_int_equal(is.ledger.page_bytes, 16 * 27 * 576 * 2);
    /* 15.7 G parameters of 2 bytes. */
    assert_in_range(is.ledger.weights / MIB, 29900, 29990);
    /* Matrices of heads have no 8 bits: 27 · 16 · 256 · 512 numbers stay as they are. */
    options.weights = GPU_INT8;
    const struct card_fit small = card_fit_of(&options);
    options.weights = GPU_BF16;
    assert_in_range((is.ledger.weights - small.ledger.weights) / MIB, 14650, 14750);
    assert_true(card_fit_has_kernels(&config, GPU_BF16) &&
                !card_fit_has_kernels(&config, GPU_E4M3));
    config.latent.q_rank = 1536; /* another product, and one less wide */
    const struct card_fit two = card_fit_of(&options);
    assert_in_range((two.ledger.weights - is.ledger.weights) / 1024, 27 * 2 * 1535, 27 * 2 * 1546);
}

static void a_shared_expert_takes_its_weights_and_its_rows(void **state) {
    (void)state;
    struct model_config config = qwen3_4b();
    config.architecture = config_architecture(STR("glm4moe"));
    config.layers = 10, config.experts = 16, config.experts_used = 4, config.expert_ffn = 768;
    config.routing.is_sigmoid = true;
    for (uint32_t i = 1; i < config.layers; i++) config.list[i].ffn = FFN_EXPERTS;
    const struct card_fit without = fit(&config, GPU_BF16, GPU_BF16, 1024);
    config.shared_ffn = 1024;
    const struct card_fit with = fit(&config, GPU_BF16, GPU_BF16, 1024);
    assert_int_equal(with.ledger.weights - without.ledger.weights,
                     UINT64_C(9) * 3 * 1024 * 2560 * 2);
    /* Rows of gate and of the product, in bf16; the plan has 2,048. */
    assert_int_equal(with.ledger.activations - without.ledger.activations,
                     UINT64_C(2048) * (1024 + 2560) * 2);
    assert_true(with.is_fitting && without.is_fitting);
}

static void what_does_not_fit_has_no_sequence(void **state) {
    (void)state;
    struct model_config config = qwen3_4b();
    config.layers = 72;
    struct card_fit is = fit(&config, GPU_BF16, GPU_BF16, 1024);
    assert_false(is.is_fitting);
    assert_int_equal(is.sequences, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_several_gpus_is_predicted),
        cmocka_unit_test(a_decoder_is_predicted_from_its_config),
        cmocka_unit_test(a_model_for_texts_is_predicted_as_well),
        cmocka_unit_test(states_of_recurrent_layers_take_their_room),
        cmocka_unit_test(layers_of_one_half_have_their_matrices_alone),
        cmocka_unit_test(two_mixers_of_a_layer_have_the_matrices_of_both),
        cmocka_unit_test(eight_bits_leave_more_sequences),
        cmocka_unit_test(a_window_keeps_few_pages_of_a_long_sequence),
        cmocka_unit_test(experts_are_predicted_as_well),
        cmocka_unit_test(experts_without_room_stay_in_the_host_s_memory),
        cmocka_unit_test(layers_that_differ_are_predicted_as_well),
        cmocka_unit_test(latent_layers_keep_one_entry_per_token),
        cmocka_unit_test(a_shared_expert_takes_its_weights_and_its_rows),
        cmocka_unit_test(what_does_not_fit_has_no_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

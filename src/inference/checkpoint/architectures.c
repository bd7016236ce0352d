/* SPDX-License-Identifier: Apache-2.0 */

/* The table of architectures (checkpoint/config.h). */

#include "checkpoint/config.h"

#include <stdio.h>
#include <string.h>

/* Sources of the flags: the families' reference implementations, as their GGUF converters store
 * them. Sources of the numbers: the families' configuration classes. Arch llama is also Mistral and
 * SmolLM2. */
#define OF_GPT_OSS                                                                                 \
    .has_qkv_bias = true, .has_output_bias = true, .has_sinks = true, .has_expert_bias = true,     \
    .experts_are_as_wide = true, .has_alternate_experts = true, .has_yarn = true,                  \
    .has_window = true, .window_period = 2, .ffn = FFN_EXPERTS, .activation = ACTIVATION_CLAMPED,  \
    .eps = 1e-5f, .rope_base = 150000.0f, .head_dim = 64
#define OF_GLM_MOE                                                                                 \
    .rotary_share = 0.5f, .may_have_qkv_bias = true, .ffn = FFN_EXPERTS,                           \
    .has_shared_expert = true, .shared_expert_is_plain = true, .shared_experts_are_counted = true, \
    .expert_weights_sum_to_one = true, .router_is_sigmoid = true
#define OF_NEMOTRON_H                                                                              \
    .recurrent = MIXER_MAMBA, .has_single_halves = true, .never_turns = true,                      \
    .activation = ACTIVATION_RELU2, .rope_base = 10000.0f
#define OF_OLMO                                                                                    \
    .has_qk_norm = true, .qk_norm_is_wide = true, .has_no_pre_norm = true, .has_post_norm = true,  \
    .may_have_window = true, .window_period = 4, .has_yarn = true, .yarn_is_rounded = true,        \
    .has_yarn_magnitude = true, .has_local_rope = true, .rope_base_local = 500000.0f
#define OF_DEEPSEEK                                                                                \
    .is_latent = true, .has_yarn = true, .yarn_is_rounded = true, .ffn = FFN_EXPERTS,              \
    .has_shared_expert = true, .shared_expert_is_plain = true, .shared_experts_are_counted = true
#define OF_NEMOTRON_H_EXPERTS                                                                      \
    OF_NEMOTRON_H, .ffn = FFN_EXPERTS, .has_shared_expert = true, .shared_expert_is_plain = true,  \
                   .expert_weights_sum_to_one = true, .router_is_sigmoid = true
#define OF_EMBEDDING_GEMMA                                                                         \
    .sees_both = true, .has_qk_norm = true, .has_post_norm = true, .embedding_is_scaled = true,    \
    .has_window = true, .has_local_rope = true, .window_period = 6,                                \
    .activation = ACTIVATION_GELU_TANH, .eps = 1e-6f, .rope_base = 1e6f,                           \
    .rope_base_local = 10000.0f, .head_dim = 256
static const struct architecture architectures[] = {
    {.name = "llama", .rope_is_interleaved = true, .may_have_window = true, .rope_base = 10000.0f},
    {.name = "mistral3",
     .rope_is_interleaved = true,
     .may_have_window = true,
     .has_yarn = true,
     .yarn_is_rounded = true,
     .has_temper = true,
     .rope_base = 1e6f},
    {.name = "qwen2", .has_qkv_bias = true},
    {.name = "qwen2vl", .has_qkv_bias = true},
    {.name = "qwen25vl", .has_qkv_bias = true}, /* Ollama's name */
    {.name = "qwen3vl", .has_qk_norm = true},
    {.name = "seed_oss", .has_qkv_bias = true},
    {.name = "smollm3", .rope_is_interleaved = true, .unrotated_period = 4},
    {.name = "granite", .rope_is_interleaved = true, .has_multipliers = true},
    {.name = "glm4",
     .pairs_are_neighbours = true,
     .rotary_share = 0.5f,
     .may_have_qkv_bias = true,
     .has_post_norm = true,
     .has_glm_norms = true,
     .has_fused_gate_up = true},
    {.name = "olmo2", OF_OLMO},
    {.name = "olmo3", OF_OLMO}, /* Ollama's name */
    {.name = "exaone4",
     .globals_do_not_turn = true,
     .has_qk_norm = true,
     .has_no_pre_norm = true,
     .has_post_norm = true,
     .may_have_window = true,
     .window_period = 4},
    {.name = "gemma",
     .embedding_is_scaled = true,
     .activation = ACTIVATION_GELU_TANH,
     .eps = 1e-6f,
     .rope_base = 10000.0f,
     .head_dim = 256},
    {.name = "qwen3", .has_qk_norm = true},
    {.name = "qwen3moe", .has_qk_norm = true, .ffn = FFN_EXPERTS},
    {.name = "qwen3vlmoe", .has_qk_norm = true, .ffn = FFN_EXPERTS, .may_turn_experts = true},
    {.name = "gpt-oss", OF_GPT_OSS},
    {.name = "gptoss", OF_GPT_OSS}, /* Ollama's name */
    {.name = "qwen35",
     .has_qk_norm = true,
     .has_output_gate = true,
     .recurrent = MIXER_DELTA,
     .rotary_share = 0.25f},
    {.name = "qwen35moe",
     .has_qk_norm = true,
     .has_output_gate = true,
     .recurrent = MIXER_DELTA,
     .rotary_share = 0.25f,
     .ffn = FFN_EXPERTS,
     .has_shared_expert = true,
     .expert_weights_sum_to_one = true},
    {.name = "qwen3next",
     .has_qk_norm = true,
     .has_output_gate = true,
     .recurrent = MIXER_DELTA,
     .delta_is_grouped = true,
     .rotary_share = 0.25f,
     .ffn = FFN_EXPERTS,
     .has_shared_expert = true,
     .expert_weights_sum_to_one = true},
    {.name = "granitehybrid",
     .rope_is_interleaved = true,
     .has_multipliers = true,
     .recurrent = MIXER_MAMBA,
     .ffn = FFN_EXPERTS,
     .experts_are_as_wide = true,
     .has_shared_expert = true,
     .shared_expert_is_plain = true,
     .expert_weights_sum_to_one = true,
     .rope_base = 10000.0f},
    {.name = "granitehybrid", /* without experts */
     .rope_is_interleaved = true,
     .has_multipliers = true,
     .recurrent = MIXER_MAMBA,
     .rope_base = 10000.0f},
    {.name = "nemotron_h", OF_NEMOTRON_H},
    {.name = "nemotron_h_moe", OF_NEMOTRON_H_EXPERTS},
    {.name = "nemotron_h_omni", OF_NEMOTRON_H_EXPERTS}, /* Ollama's name, with pictures and sound */
    {.name = "nemotron_h_omni", OF_NEMOTRON_H},         /* without experts */
    {.name = "falcon-h1",
     .recurrent = MIXER_MAMBA,
     .mixers_are_parallel = true,
     .rope_base = 10000.0f},
    {.name = "lfm2", .has_qk_norm = true, .recurrent = MIXER_CONV, .rope_base = 1e6f},
    {.name = "lfm2moe",
     .has_qk_norm = true,
     .recurrent = MIXER_CONV,
     .ffn = FFN_EXPERTS,
     .expert_weights_sum_to_one = true,
     .router_is_sigmoid = true,
     .rope_base = 1e6f},
    {.name = "deepseek2", OF_DEEPSEEK},
    {.name = "glm4moelite", OF_DEEPSEEK, .router_is_sigmoid = true, .head_sizes_are_plain = true},
    {.name = "glm4moe", OF_GLM_MOE, .may_have_qk_norm = true},
    {.name = "glm4moe", OF_GLM_MOE, .has_qk_norm = true},
    {.name = "phi3",
     .has_fused_gate_up = true,
     .rotary_share = 1.0f,
     .has_long_rope = true,
     .may_have_window = true,
     .rope_base = 10000.0f},
    {.name = "command-r",
     .pairs_are_neighbours = true,
     .has_layer_norm = true,
     .halves_are_parallel = true,
     .logits_are_scaled = true},
    {.name = "cohere2",
     .pairs_are_neighbours = true,
     .has_layer_norm = true,
     .halves_are_parallel = true,
     .logits_are_scaled = true,
     .globals_do_not_turn = true,
     .has_window = true,
     .window_period = 4},
    {.name = "nemotron",
     .rotary_share = 0.5f,
     .has_layer_norm = true,
     .has_norm_bias = true,
     .activation = ACTIVATION_RELU2},
    {.name = "apertus", .has_qk_norm = true, .activation = ACTIVATION_XIELU},
    {.name = "hunyuan-dense",
     .has_qk_norm = true,
     .norms_follow_turn = true,
     .base_is_scaled = true},
    {.name = "bert",
     .is_encoder = true,
     .has_qkv_bias = true,
     .label_form = LABEL_FORM_TANH,
     .pair_form = PAIR_ONE_MARK},
    {.name = "xlm-roberta", /* a folder's only: a GGUF calls it bert */
     .is_encoder = true,
     .has_qkv_bias = true,
     .label_form = LABEL_FORM_TANH,
     .pair_form = PAIR_TWO_MARKS},
    {.name = "mpnet", /* a folder's only */
     .is_encoder = true,
     .has_qkv_bias = true,
     .has_distance_bias = true,
     .label_form = LABEL_FORM_TANH,
     .pair_form = PAIR_TWO_MARKS},
    {.name = "nomic-bert", .is_encoder = true, .is_rotary_encoder = true},
    {.name = "modern-bert",
     .sees_both = true,
     .has_layer_norm = true,
     .embedding_is_normed = true,
     .has_fused_gate_up = true,
     .has_window = true,
     .full_comes_first = true,
     .has_local_rope = true,
     .window_period = 3,
     .activation = ACTIVATION_GELU,
     .label_form = LABEL_FORM_NORM,
     .pair_form = PAIR_ONE_MARK,
     .rope_base = 160000.0f,
     .rope_base_local = 10000.0f},
    {.name = "gemma2",
     .has_post_norm = true,
     .embedding_is_scaled = true,
     .has_window = true,
     .window_period = 2,
     .wide_scale_layers = 46,
     .attention_softcap = 50.0f,
     .softcap = 30.0f,
     .activation = ACTIVATION_GELU_TANH,
     .eps = 1e-6f,
     .rope_base = 10000.0f,
     .head_dim = 256},
    {.name = "gemma-embedding", OF_EMBEDDING_GEMMA}, /* a GGUF's only */
    {.name = "gemma3",
     .has_yarn = true,
     .yarn_is_rounded = true,
     .may_see_both = true,
     .has_qk_norm = true,
     .has_post_norm = true,
     .embedding_is_scaled = true,
     .has_window = true,
     .has_local_rope = true,
     .window_period = 6,
     .wide_scale_layers = 62,
     .activation = ACTIVATION_GELU_TANH,
     .eps = 1e-6f,
     .rope_base = 1e6f,
     .rope_base_local = 10000.0f,
     .head_dim = 256,
     .scaling_with_pictures = 8.0f,
     .layers_with_pictures = {34, 48, 62}},
    {.name = "gemma3", OF_EMBEDDING_GEMMA}, /* as Ollama's store has it */
    {.name = "gemma4",
     .has_qk_norm = true,
     .has_v_norm = true,
     .has_layer_scale = true,
     .has_post_norm = true,
     .embedding_is_scaled = true,
     .has_window = true,
     .has_local_rope = true,
     .window_period = 6,
     .activation = ACTIVATION_GELU_TANH,
     .eps = 1e-6f,
     .rope_base = 1e6f,
     .rope_base_local = 10000.0f},
};

#define ARCHITECTURES (sizeof architectures / sizeof *architectures)

const struct architecture *config_without_experts(const struct architecture *architecture) {
    for (size_t i = 0; i < ARCHITECTURES; i++)
        if (str_is(str_from(architectures[i].name), architecture->name) &&
            architectures[i].ffn == FFN_GATED)
            return &architectures[i];
    return NULL;
}

const struct architecture *config_as_embedder(const struct architecture *architecture) {
    for (size_t i = 0; i < ARCHITECTURES; i++)
        if (str_is(str_from(architectures[i].name), architecture->name) &&
            architectures[i].sees_both)
            return &architectures[i];
    return architecture;
}

const struct architecture *config_with_qk_norm(const struct architecture *architecture) {
    return architecture->may_have_qk_norm ? architecture + 1 : architecture;
}

const struct architecture *config_architecture(struct str name) {
    for (size_t i = 0; i < ARCHITECTURES; i++)
        if (str_is(name, architectures[i].name)) return &architectures[i];
    return NULL;
}

void config_add_name(char names[CONFIG_NAMES_BYTES], const char *name, size_t index, size_t count) {
    const size_t at = index == 0 ? 0 : strlen(names);
    snprintf(names + at, CONFIG_NAMES_BYTES - at, "%s%s",
             index == 0           ? ""
             : index + 1 == count ? " and "
                                  : ", ",
             name);
}

void config_architecture_names(char ret_names[CONFIG_NAMES_BYTES]) {
    for (size_t i = 0; i < ARCHITECTURES; i++) /* a name of two rows: once */
        if (i == 0 || strcmp(architectures[i - 1].name, architectures[i].name) != 0)
            config_add_name(ret_names, architectures[i].name, i, ARCHITECTURES);
}

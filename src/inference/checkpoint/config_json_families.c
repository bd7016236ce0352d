/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_json_families.h"

#include <stdio.h>
#include <string.h>

/* The text of an error has room for so much beside a name. */
#define NAMES_SHOWN_BYTES 320u

/* Defaults that several families share. */
#define SILU .activation_key = "hidden_act", .activation = "silu"
#define WITH_SILU .rope = {10000.0f, 10000.0f}, SILU
#define OF_GEMMA                                                                                   \
    .heads = 8, .kv_heads = 4, .head_dim = 256, .window_rule = WINDOW_PERIODIC, .window = 4096,    \
    .head_is_tied = true, .norms_lack_one = true, .scales_by_scalar = true,                        \
    .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh"

/* Sources: the defaults of the configuration classes of transformers 5. Sizes that every file
 * states have no default; 0 where the last column of the struct says so. */
static const struct family families[] = {
    {.model_type = "llama", .architecture = "llama", .context = 2048, WITH_SILU},
    {.model_type = "mistral",
     .architecture = "llama",
     .kv_heads = 8,
     .context = 131072,
     .window_rule = WINDOW_EVERYWHERE,
     .window = 4096,
     WITH_SILU},
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .context = 32768,
     .window_rule = WINDOW_ASKED,
     .window = 4096,
     WITH_SILU},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .head_dim = 128,
     .context = 32768,
     .window_rule = WINDOW_ASKED,
     .window = 4096,
     WITH_SILU},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .experts = 128,
     .experts_used = 8,
     .expert_ffn = 768,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .context = 32768,
     .window_rule = WINDOW_ASKED,
     .window = 4096,
     WITH_SILU},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .experts = 128,
     .experts_used = 4,
     .expert_weights_sum_to_one = true,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .context = 131072,
     .window_rule = WINDOW_PERIODIC,
     .window_period = 2,
     .window = 128,
     .eps = 1e-5f,
     .rope = {150000.0f, 150000.0f},
     SILU},
    {.model_type = "qwen3_5_text",
     .architecture = "qwen35",
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 256,
     .context = 32768,
     .norms_lack_one = true,
     .rope = {10000.0f, 10000.0f},
     SILU},
    {.model_type = "qwen3_5_moe_text",
     .architecture = "qwen35moe",
     .experts = 256,
     .experts_used = 8,
     .expert_ffn = 512,
     .shared_ffn = 512,
     .expert_weights_sum_to_one = true,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .context = 32768,
     .norms_lack_one = true,
     .rope = {10000.0f, 10000.0f},
     SILU},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .experts = 512,
     .experts_used = 10,
     .expert_ffn = 512,
     .shared_ffn = 512,
     .expert_weights_sum_to_one = true,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .context = 32768,
     .norms_lack_one = true,
     .rope = {10000.0f, 10000.0f},
     SILU},
    {.model_type = "ministral3",
     .architecture = "mistral3",
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .context = 262144,
     .eps = 1e-5f,
     .rope = {1e6f, 1e6f},
     SILU},
    {.model_type = "qwen2_5_vl_text",
     .architecture = "qwen2vl",
     .context = 32768,
     .window_rule = WINDOW_ASKED,
     .window = 4096,
     .rope = {1e6f, 1e6f},
     SILU},
    {.model_type = "qwen3_vl_text",
     .architecture = "qwen3vl",
     .head_dim = 128,
     .context = 128000,
     .rope = {5e5f, 5e5f},
     SILU},
    {.model_type = "granitemoehybrid",
     .architecture = "granitehybrid",
     .heads = 32,
     .kv_heads = 32,
     .context = 2048,
     .rope = {10000.0f, 10000.0f},
     .head_is_tied = true,
     .experts = 8,
     .experts_used = 2,
     .shared_ffn = 1024,
     .expert_weights_sum_to_one = true,
     SILU},
    {.model_type = "nemotron_h",
     .architecture = "nemotron_h_moe", /* nemotron_h where no layer has experts */
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .context = 4096,
     .eps = 1e-5f,
     .experts = 8,
     .experts_used = 2,
     .expert_ffn = 7688,
     .shared_ffn = 7688,
     .expert_weights_sum_to_one = true,
     .router_is_sigmoid = true,
     .route_scale = 1.0f,
     .rope = {10000.0f, 10000.0f},
     .activation_key = "mlp_hidden_act",
     .activation = "relu2"},
    {.model_type = "falcon_h1",
     .architecture = "falcon-h1",
     .heads = 32,
     .kv_heads = 8,
     .context = 8192,
     .eps = 1e-5f,
     .rope = {10000.0f, 10000.0f},
     SILU},
    {.model_type = "lfm2",
     .architecture = "lfm2",
     .heads = 32,
     .kv_heads = 8,
     .context = 128000,
     .eps = 1e-5f,
     .rope = {1e6f, 1e6f},
     .head_is_tied = true,
     SILU},
    {.model_type = "lfm2_moe",
     .architecture = "lfm2moe",
     .heads = 32,
     .kv_heads = 8,
     .context = 128000,
     .eps = 1e-5f,
     .rope = {1e6f, 1e6f},
     .head_is_tied = true,
     .experts = 32,
     .experts_used = 4,
     .expert_ffn = 1792,
     .dense_layers = 2,
     .expert_weights_sum_to_one = true,
     .router_is_sigmoid = true,
     SILU},
    {.model_type = "deepseek_v2",
     .architecture = "deepseek2",
     .heads = 32,
     .context = 2048,
     .experts = 64,
     .expert_ffn = 1407,
     .shared_experts = 2,
     .route_scale = 1.0f,
     WITH_SILU},
    {.model_type = "deepseek_v3",
     .architecture = "deepseek2",
     .heads = 128,
     .context = 4096,
     .experts = 256,
     .experts_used = 8,
     .expert_ffn = 2048,
     .dense_layers = 3,
     .shared_experts = 1,
     .expert_weights_sum_to_one = true,
     .router_is_sigmoid = true,
     .groups = 8,
     .groups_used = 4,
     .route_scale = 2.5f,
     WITH_SILU},
    {.model_type = "glm4_moe",
     .architecture = "glm4moe",
     .heads = 96,
     .kv_heads = 8,
     .context = 131072,
     .eps = 1e-5f,
     .experts = 128,
     .experts_used = 8,
     .expert_ffn = 1408,
     .dense_layers = 1,
     .shared_experts = 1,
     .expert_weights_sum_to_one = true,
     .router_is_sigmoid = true,
     .route_scale = 1.0f,
     WITH_SILU},
    {.model_type = "seed_oss",
     .architecture = "seed_oss",
     .head_dim = 128,
     .kv_heads = 8,
     .context = 524288,
     WITH_SILU},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .heads = 16,
     .kv_heads = 4,
     .context = 32768,
     .rope = {2e6f, 2e6f},
     .head_is_tied = true,
     SILU},
    {.model_type = "olmo2", .architecture = "olmo2", .context = 2048, WITH_SILU},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .context = 2048,
     .window_rule = WINDOW_PERIODIC,
     .window = 4096,
     .window_period = 4,
     .rope = {500000.0f, 500000.0f},
     SILU},
    {.model_type = "exaone4",
     .architecture = "exaone4",
     .heads = 32,
     .kv_heads = 32,
     .context = 2048,
     .window_rule = WINDOW_PERIODIC,
     .window = 4096,
     .window_period = 4,
     WITH_SILU},
    {.model_type = "granite", .architecture = "granite", .context = 2048, WITH_SILU},
    {.model_type = "glm4",
     .architecture = "glm4",
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 128,
     .context = 131072,
     .rope = {10000.0f, 10000.0f},
     SILU},
    {.model_type = "cohere",
     .architecture = "command-r",
     .context = 8192,
     .eps = 1e-5f,
     .rope = {500000.0f, 500000.0f},
     .head_is_tied = true,
     SILU},
    {.model_type = "cohere2",
     .architecture = "cohere2",
     .context = 8192,
     .eps = 1e-5f,
     .window_rule = WINDOW_PERIODIC,
     .window = 4096,
     .window_period = 4,
     .rope = {10000.0f, 10000.0f},
     .head_is_tied = true,
     SILU},
    {.model_type = "nemotron",
     .architecture = "nemotron",
     .context = 4096,
     .eps = 1e-5f,
     .norms_lack_one = true,
     .rope = {10000.0f, 10000.0f},
     .activation_key = "hidden_act",
     .activation = "relu2"},
    {.model_type = "apertus",
     .architecture = "apertus",
     .context = 65536,
     .eps = 1e-5f,
     .rope = {12000000.0f, 12000000.0f},
     .activation_key = "hidden_act",
     .activation = "xielu"},
    {.model_type = "hunyuan_v1_dense",
     .architecture = "hunyuan-dense",
     .context = 2048,
     .eps = 1e-5f,
     .rope = {10000.0f, 10000.0f},
     SILU},
    {.model_type = "gemma",
     .architecture = "gemma",
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 256,
     .context = 8192,
     .rope = {10000.0f, 10000.0f},
     .head_is_tied = true,
     .norms_lack_one = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh"},
    {.model_type = "phi3",
     .architecture = "phi3",
     .context = 4096,
     .window_rule = WINDOW_EVERYWHERE,
     WITH_SILU},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .context = 8192,
     .window_period = 2,
     .rope = {10000.0f, 10000.0f},
     .attention_softcap = 50.0f,
     .softcap = 30.0f,
     OF_GEMMA},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .context = 131072,
     .window_period = 6,
     .rope = {1e6f, 10000.0f},
     OF_GEMMA},
    {.model_type = "gemma4_text",
     .architecture = "gemma4",
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .context = 131072,
     .window_rule = WINDOW_PERIODIC,
     .window_period = 6,
     .window = 512,
     .rope = {1e6f, 10000.0f},
     .head_is_tied = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh"},
};

/* Models that also read pictures: their text model is a family of its own, in text_config. */
static const struct {
    const char *model_type;
    const char *text_type; /* the default of text_config's model_type */
    bool may_be_flat;      /* older files have the text model's fields next to vision_config */
} wholes[] = {{"gemma3", "gemma3_text", false},
              {"gemma4", "gemma4_text", false},
              {"lfm2_vl", "lfm2", false},
              {"mistral3", "mistral", false},
              {"qwen2_5_vl", "qwen2_5_vl_text", true},
              {"qwen3_vl", "qwen3_vl_text", false},
              {"qwen3_5", "qwen3_5_text", false},
              {"qwen3_5_moe", "qwen3_5_moe_text", false}};

static const struct family *find_family(struct str model_type) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (str_is(model_type, families[i].model_type)) return &families[i];
    return NULL;
}

static const char *const encoders[] = {"bert", "roberta", "xlm-roberta"};

const char *config_json_model_type(size_t index) {
    const size_t families_count = sizeof families / sizeof *families;
    const size_t wholes_count = sizeof wholes / sizeof *wholes;
    if (index < families_count) return families[index].model_type;
    index -= families_count;
    if (index < wholes_count) return wholes[index].model_type;
    index -= wholes_count;
    return index < sizeof encoders / sizeof *encoders ? encoders[index] : NULL;
}

/* The model types that a config.json may begin with, as many as a sentence has room for; those of a
 * text part are not shown. */
static void write_names(char ret_names[CONFIG_NAMES_BYTES]) {
    size_t at = 0, left = 0;
    for (size_t i = 0; config_json_model_type(i); i++) {
        const char *name = config_json_model_type(i);
        if (strstr(name, "_text")) continue;
        if (at + strlen(name) > NAMES_SHOWN_BYTES)
            left++;
        else
            at += (size_t)snprintf(ret_names + at, CONFIG_NAMES_BYTES - at, "%s%s",
                                   at == 0 ? "" : ", ", name);
    }
    snprintf(ret_names + at, CONFIG_NAMES_BYTES - at, " and %zu more", left);
}

enum err config_json_choose_family(const json_t *root, const struct family **ret_family,
                                   const json_t **ret_text, struct error *error) {
    if (!json_is_object(root)) return err_set(error, ERR_INVALID, "it is no JSON object");
    struct str type = json_member_str(root, "model_type");
    if (type.bytes == 0) return err_set(error, ERR_INVALID, "model_type is missing");
    *ret_text = root;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        if (!str_is(type, wholes[i].model_type)) continue;
        *ret_text = json_member(root, "text_config");
        const bool is_flat = wholes[i].may_be_flat && !*ret_text;
        if (is_flat) *ret_text = root;
        if (!json_is_object(*ret_text))
            return err_set(error, ERR_INVALID, "text_config is missing");
        type = json_member_str(*ret_text, "model_type");
        if (is_flat || type.bytes == 0) type = str_from(wholes[i].text_type);
        break;
    }
    *ret_family = find_family(type);
    if (*ret_family) return OK;
    char names[CONFIG_NAMES_BYTES];
    write_names(names);
    return err_set(error, ERR_INVALID, "model_type '%.*s' is not supported (%s are)",
                   STR_ARGS(config_json_shown(type)), names);
}

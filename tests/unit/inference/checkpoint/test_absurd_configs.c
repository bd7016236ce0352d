/* SPDX-License-Identifier: Apache-2.0 */

/* Every family of config.json with numbers that no model has: they are refused by a sentence that
 * names the field, or what is read of them is within the bounds of config.h. */

#include "checkpoint/checkpoint.h"
#include "checkpoint/config_json_families.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What all families read. */
static const char base[] = "{\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":6,"
                           "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":50,"
                           "\"max_position_embeddings\":256}";

#define TURNS "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\"}}"

/* Fields beyond these. A family without a row has none. */
static const struct {
    const char *model_type, *fields;
} needs[] = {
    {"qwen3_moe", "{\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32}"},
    {"apertus", "{\"rope_scaling\":{\"rope_type\":\"default\"}}"},
    {"ministral3", "{\"rope_scaling\":{\"rope_type\":\"default\"}}"},
    {"gpt_oss", "{\"num_local_experts\":8,\"num_experts_per_tok\":2,"
                "\"rope_scaling\":{\"rope_type\":\"default\"}}"},
    {"lfm2", "{\"layer_types\":[\"conv\",\"conv\",\"full_attention\",\"conv\",\"conv\",\"conv\"]}"},
    {"lfm2_moe", "{\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                 "\"layer_types\":[\"conv\",\"conv\",\"full_attention\",\"conv\",\"conv\","
                 "\"conv\"]}"},
    {"granitemoehybrid",
     "{\"layer_types\":[\"mamba\",\"mamba\",\"attention\",\"mamba\",\"mamba\",\"mamba\"],"
     "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"mamba_n_heads\":4,"
     "\"mamba_d_state\":16}"},
    {"nemotron_h", "{\"hybrid_override_pattern\":\"M-ME*E\",\"n_routed_experts\":8,"
                   "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                   "\"moe_shared_expert_intermediate_size\":48,\"mamba_num_heads\":8}"},
    {"falcon_h1", "{\"mamba_d_ssm\":64,\"mamba_n_heads\":4,\"mamba_d_state\":16}"},
    {"qwen3_vl_moe", "{\"num_experts\":8,\"num_experts_per_tok\":2}"},
    {"qwen3_5_moe", "{\"num_experts\":8,\"num_experts_per_tok\":2}"},
    {"qwen3_5_moe_text", "{\"num_experts\":8,\"num_experts_per_tok\":2}"},
    {"qwen3_next", "{\"num_experts\":8,\"num_experts_per_tok\":2}"},
    {"deepseek_v2", "{\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_group\":4,"
                    "\"topk_group\":2,\"topk_method\":\"group_limited_greedy\"}"},
    {"deepseek_v3", "{\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_group\":4,"
                    "\"topk_group\":2}"},
    {"kimi_k2", "{\"n_routed_experts\":8,\"num_experts_per_tok\":2}"},
    {"glm4_moe_lite", "{\"n_routed_experts\":8,\"num_experts_per_tok\":2}"},
    {"glm4_moe", "{\"n_routed_experts\":8,\"num_experts_per_tok\":2}"},
    {"gemma4_text", "{" TURNS "}"},
    {"gemma4", "{" TURNS ",\"num_kv_shared_layers\":2,\"hidden_size_per_layer_input\":16,"
               "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
               "\"full_attention\",\"sliding_attention\",\"full_attention\"]}"},
};

/* Models whose fields lie in text_config. */
static const char *const wholes[] = {"gemma3",       "gemma4",     "lfm2_vl",
                                     "mistral3",     "qwen2_5_vl", "qwen3_vl",
                                     "qwen3_vl_moe", "qwen3_5",    "qwen3_5_moe"};

static const char *const values[] = {"0",
                                     "-1",
                                     "1000000",
                                     "2147483648",
                                     "4294967297",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "1e300",
                                     "-1e300",
                                     "0.5",
                                     "\"text\"",
                                     "true",
                                     "[]",
                                     "[[[1]]]",
                                     "{}",
                                     "{\"factor\":-1,\"rope_type\":\"yarn\"}"};

/* Counts that every decoder reads: no value of the list is one. */
static const char *const counts[] = {"num_hidden_layers", "hidden_size", "num_attention_heads",
                                     "max_position_embeddings", "num_key_value_heads"};

static const char *const keys[] = {"num_hidden_layers",
                                   "hidden_size",
                                   "intermediate_size",
                                   "num_attention_heads",
                                   "num_key_value_heads",
                                   "vocab_size",
                                   "max_position_embeddings",
                                   "head_dim",
                                   "rms_norm_eps",
                                   "norm_eps",
                                   "layer_norm_eps",
                                   "rope_theta",
                                   "rope_scaling",
                                   "rope_parameters",
                                   "rope_local_base_freq",
                                   "partial_rotary_factor",
                                   "sliding_window",
                                   "sliding_window_pattern",
                                   "use_sliding_window",
                                   "max_window_layers",
                                   "layer_types",
                                   "attn_logit_softcapping",
                                   "final_logit_softcapping",
                                   "query_pre_attn_scalar",
                                   "embedding_multiplier",
                                   "residual_multiplier",
                                   "attention_multiplier",
                                   "logits_scaling",
                                   "logit_scale",
                                   "no_rope_layers",
                                   "no_rope_layer_interval",
                                   "num_experts",
                                   "num_local_experts",
                                   "num_experts_per_tok",
                                   "moe_intermediate_size",
                                   "shared_expert_intermediate_size",
                                   "shared_intermediate_size",
                                   "decoder_sparse_step",
                                   "mlp_only_layers",
                                   "num_dense_layers",
                                   "mlp_layer_types",
                                   "first_k_dense_replace",
                                   "norm_topk_prob",
                                   "routed_scaling_factor",
                                   "use_expert_bias",
                                   "swiglu_limit",
                                   "swiglu_alpha",
                                   "full_attention_interval",
                                   "linear_conv_kernel_dim",
                                   "linear_num_key_heads",
                                   "linear_num_value_heads",
                                   "linear_key_head_dim",
                                   "linear_value_head_dim",
                                   "conv_L_cache",
                                   "full_attn_idxs",
                                   "block_ff_dim",
                                   "block_multiple_of",
                                   "block_ffn_dim_multiplier",
                                   "block_auto_adjust_ff_dim",
                                   "mamba_n_heads",
                                   "mamba_n_groups",
                                   "mamba_d_state",
                                   "mamba_d_head",
                                   "mamba_d_conv",
                                   "mamba_expand",
                                   "mamba_conv_bias",
                                   "mamba_proj_bias",
                                   "mamba_d_ssm",
                                   "mamba_rms_norm",
                                   "mamba_norm_before_gate",
                                   "hybrid_override_pattern",
                                   "layers_block_type",
                                   "mamba_num_heads",
                                   "mamba_head_dim",
                                   "n_groups",
                                   "ssm_state_size",
                                   "conv_kernel",
                                   "use_conv_bias",
                                   "layer_norm_epsilon",
                                   "attention_head_dim",
                                   "moe_shared_expert_intermediate_size",
                                   "moe_latent_size",
                                   "global_attn_every_n_layers",
                                   "local_attention",
                                   "global_rope_theta",
                                   "local_rope_theta",
                                   "norm_bias",
                                   "classifier_pooling",
                                   "classifier_activation",
                                   "classifier_bias",
                                   "lm_head_multiplier",
                                   "key_multiplier",
                                   "attention_in_multiplier",
                                   "attention_out_multiplier",
                                   "ssm_in_multiplier",
                                   "ssm_out_multiplier",
                                   "ssm_multipliers",
                                   "mlp_multipliers",
                                   "time_step_limit",
                                   "position_embedding_type",
                                   "hidden_size_per_layer_input",
                                   "global_head_dim",
                                   "attention_k_eq_v",
                                   "num_global_key_value_heads",
                                   "num_kv_shared_layers",
                                   "use_double_wide_mlp",
                                   "enable_moe_block",
                                   "top_k_experts",
                                   "n_group",
                                   "topk_group",
                                   "q_lora_rank",
                                   "kv_lora_rank",
                                   "qk_nope_head_dim",
                                   "qk_rope_head_dim",
                                   "v_head_dim",
                                   "n_routed_experts",
                                   "n_shared_experts",
                                   "scoring_func",
                                   "topk_method",
                                   "moe_layer_freq",
                                   "rope_interleave",
                                   "use_qk_norm",
                                   "num_nextn_predict_layers",
                                   "tie_word_embeddings",
                                   "tie_embedding",
                                   "type_vocab_size",
                                   "relative_attention_num_buckets",
                                   "time_step_min",
                                   "pad_token_id",
                                   "hidden_act",
                                   "hidden_activation",
                                   "attention_bias",
                                   "is_causal",
                                   "num_labels",
                                   "id2label",
                                   "quantization_config",
                                   "original_max_position_embeddings"};

static bool is_whole(const char *model_type) {
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (strcmp(wholes[i], model_type) == 0) return true;
    return false;
}

/* The family's config, with `key` changed to `value` where that is not NULL. */
static json_t *make(const char *model_type, const char *key, const char *value) {
    json_t *text = json_loads(base, 0, NULL), *root = json_object();
    assert_non_null(text);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (strcmp(needs[i].model_type, model_type) != 0) continue;
        json_t *more = json_loads(needs[i].fields, 0, NULL);
        assert_non_null(more);
        assert_int_equal(json_object_update(text, more), 0);
        json_decref(more);
    }
    if (key) {
        json_t *changed = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(changed);
        assert_int_equal(json_object_set_new(text, key, changed), 0);
    }
    assert_int_equal(json_object_set_new(root, "model_type", json_string(model_type)), 0);
    if (is_whole(model_type))
        assert_int_equal(json_object_set_new(root, "text_config", text), 0);
    else {
        assert_int_equal(json_object_update_missing(root, text), 0);
        json_decref(text);
    }
    return root;
}

static void each_family(void (*check)(const char *model_type)) {
    for (size_t i = 0; config_json_model_type(i); i++) check(config_json_model_type(i));
    assert_non_null(config_json_model_type(40));
}

/* Cut names would name families that do not exist. */
static void an_unknown_family_is_refused_by_a_whole_sentence(void **state) {
    (void)state;
    struct json_config json;
    struct error error = {0};
    json_t *root = json_pack("{s:s}", "model_type", "none of these");
    assert_int_equal(config_json_init(&json, root, &error), ERR_INVALID);
    json_decref(root);
    assert_non_null(strstr(error.text, "model_type 'none of these' is not supported (llama, "));
    assert_non_null(strstr(error.text, " more are)"));
}

/* Whether what was read is within the bounds that every reader of a config counts on. */
static const char *unsound(const struct model_config *config) {
    const struct routing_rule *rule = &config->routing;
    if (config->layers < 1 || config->layers > CONFIG_LAYERS_MAX) return "layers";
    if (config->width < 1 || config->width > CONFIG_WIDTH_MAX) return "width";
    if (config->heads < 1 || config->heads > CONFIG_HEADS_MAX) return "heads";
    if (config->kv_heads < 1 || config->heads % config->kv_heads != 0) return "KV heads";
    const struct latent_sizes *latent = &config->latent;
    const uint32_t line_max = CONFIG_LATENT_RANK_MAX + CONFIG_LATENT_TURNED_MAX;
    const uint32_t dim_max = config_is_latent(config) ? line_max : CONFIG_HEAD_DIM_MAX;
    if (config->head_dim % 8 != 0 || config->head_dim > dim_max) return "head_dim";
    if (latent->still_dim > CONFIG_HEAD_DIM_MAX || latent->value_dim > CONFIG_HEAD_DIM_MAX ||
        latent->q_rank > CONFIG_WIDTH_MAX)
        return "a latent size";
    if (config->shared_ffn > CONFIG_FFN_MAX) return "the shared expert";
    if (config->ffn > CONFIG_FFN_MAX || config->expert_ffn > CONFIG_FFN_MAX) return "ffn";
    if (config->experts > CONFIG_EXPERTS_MAX) return "experts";
    if (config->experts_used > config->experts) return "experts of a token";
    if (rule->groups > 0 && config->experts % rule->groups != 0) return "groups of experts";
    if (config_state_bytes(config) > CONFIG_STATE_BYTES_MAX) return "bytes of a state";
    if (config->context_max < 1 || config->context_max > CONFIG_CONTEXT_MAX) return "context";
    if (!(config->eps > 0) || !isfinite(config->eps)) return "epsilon";
    if (!isfinite(config->attention_scale) || !isfinite(config->rope_base)) return "a factor";
    for (uint32_t i = 0; i < config->layers; i++) {
        const struct layer *layer = &config->list[i];
        if (layer->kv_from > i) return "keys of a later layer";
        if (layer->kv_from > 0 && config->list[layer->kv_from - 1].kv_from > 0)
            return "keys of a layer that has none";
        if (config_layer_is_gated(config, i) && config_ffn(config, i) == 0)
            return "a layer's width";
        if (config_layer_has_experts(config, i) &&
            (config->experts == 0 || config->experts_used == 0))
            return "a layer's experts";
        if (config->heads % config_kv_heads(config, i) != 0) return "a layer's KV heads";
        if (config_rope_width(config, layer->rope) > config_head_dim(config, i)) return "rotation";
    }
    return NULL;
}

static void is_accepted(const char *model_type) {
    struct json_config json;
    struct error error = {0};
    json_t *root = make(model_type, NULL, NULL);
    if (config_json_init(&json, root, &error) != OK)
        fail_msg("%s needs a row of fields here: %s", model_type, error.text);
    json_decref(root);
    assert_null(unsound(&json.config));
}

static void every_family_has_a_config_that_is_accepted(void **state) {
    (void)state;
    each_family(is_accepted);
}

/* A field that is changed so is refused by its name, or by a sentence, or means something sound. */
static void is_refused_or_sound(const char *model_type) {
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct json_config json;
            struct error error = {0};
            json_t *root = make(model_type, keys[k], values[v]);
            const enum err err = config_json_init(&json, root, &error);
            const char *reason = err == OK ? unsound(&json.config) : NULL;
            json_decref(root);
            if (reason) fail_msg("%s: %s %s: %s", model_type, keys[k], values[v], reason);
            if (err != OK) assert_int_equal(err, ERR_INVALID);
            if (err != OK) assert_true(strlen(error.text) > 8);
        }
}

static void no_number_of_any_field_makes_an_unsound_config(void **state) {
    (void)state;
    each_family(is_refused_or_sound);
}

static void counts_are_refused(const char *model_type) {
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        const bool is_encoder =
            strstr(model_type, "bert") != NULL || strcmp(model_type, "mpnet") == 0;
        if (is_encoder && strcmp(counts[k], "num_key_value_heads") == 0) continue; /* not read */
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            /* 1000000 is within the longest context. */
            if (strcmp(counts[k], "max_position_embeddings") == 0 && v == 2) continue;
            struct json_config json;
            struct error error = {0};
            json_t *root = make(model_type, counts[k], values[v]);
            const enum err err = config_json_init(&json, root, &error);
            json_decref(root);
            if (err != ERR_INVALID || !strstr(error.text, counts[k]))
                fail_msg("%s: %s %s: %s", model_type, counts[k], values[v], error.text);
        }
    }
}

static void no_absurd_count_is_taken_by_any_family(void **state) {
    (void)state;
    each_family(counts_are_refused);
}

/* One sentence each. */
static const struct {
    const char *model_type, *key, *value, *says;
} refusals[] = {
    {"qwen3_moe", "num_experts", "0", "num_experts is no integer of 1..1024"},
    {"qwen3_moe", "num_experts", "1000000", "num_experts is no integer of 1..1024"},
    {"qwen3_moe", "num_experts_per_tok", "9", "num_experts_per_tok is 9, over the 8 experts"},
    {"qwen3_moe", "num_experts_per_tok", "0", "num_experts_per_tok is no integer"},
    {"qwen3_moe", "mlp_only_layers", "[6]", "mlp_only_layers: element 0 is no layer of 0..5"},
    {"qwen3_moe", "moe_intermediate_size", "-5", "moe_intermediate_size is no integer"},
    {"gpt_oss", "num_local_experts", "1000000", "num_local_experts is no integer of 1..1024"},
    {"gpt_oss", "num_experts_per_tok", "200", "over the 8 experts"},
    {"gpt_oss", "swiglu_limit", "-7", "swiglu_limit is no number"},
    {"gpt_oss", "num_key_value_heads", "3", "4 attention heads cannot share 3 key-value heads"},
    {"qwen3_5_moe", "num_experts", "1000000", "num_experts is no integer of 1..1024"},
    {"qwen3_next", "num_experts", "0", "num_experts is no integer of 1..1024"},
    {"qwen3_next", "num_experts_per_tok", "1024", "over the 8 experts"},
    {"qwen3_next", "linear_num_value_heads", "17", "17 value heads cannot share 16 key heads"},
    {"qwen3_next", "linear_key_head_dim", "1000000", "linear_key_head_dim is no integer of"},
    {"qwen3_next", "linear_conv_kernel_dim", "1", "a convolution over 1 inputs"},
    {"qwen3_next", "layer_types", "[\"linear_attention\"]", "layer_types is no list of 6 layers"},
    {"lfm2", "conv_L_cache", "1000000", "conv_L_cache is no integer of 1..4"},
    {"lfm2_moe", "num_dense_layers", "7", "num_dense_layers is no integer of 0..6"},
    {"lfm2_moe", "num_experts_per_tok", "9", "over the 8 experts"},
    {"granitemoehybrid", "mamba_n_heads", "7", "a width of 128 cannot be cut into 7 heads"},
    {"granitemoehybrid", "mamba_n_groups", "3", "4 value heads cannot share 3 key heads"},
    {"granitemoehybrid", "residual_multiplier", "0", "residual_multiplier is no number"},
    {"nemotron_h", "hybrid_override_pattern", "\"M-MX*E\"", "element 3 is no known kind of layer"},
    {"nemotron_h", "hybrid_override_pattern", "\"\"", "hybrid_override_pattern names no layers"},
    {"nemotron_h", "hybrid_override_pattern", "\"M-M-M-\"", "no layer is of attention"},
    {"nemotron_h", "layers_block_type", "[\"moe\"]",
     "num_hidden_layers is 6, but layers_block_type"},
    {"nemotron_h", "n_groups", "3", "8 value heads cannot share 3 key heads"},
    {"nemotron_h", "mamba_head_dim", "1000000", "mamba_head_dim is no integer of 1..256"},
    {"nemotron_h", "n_group", "3", "8 experts cannot be cut into 3 groups"},
    {"nemotron_h", "moe_latent_size", "1024", "moe_latent_size is not supported"},
    {"nemotron_h", "use_bias", "true", "use_bias true is not supported"},
    {"nemotron_h", "mlp_hidden_act", "\"silu\"", "mlp_hidden_act 'silu' is not supported"},
    {"modernbert", "local_attention", "0", "local_attention is no integer"},
    {"modernbert", "global_attn_every_n_layers", "1000000",
     "global_attn_every_n_layers is no integer"},
    {"modernbert", "local_rope_theta", "0.5", "local_rope_theta is no number"},
    {"modernbert", "norm_bias", "true", "norm_bias true is not supported"},
    {"modernbert", "hidden_activation", "\"silu\"", "hidden_activation 'silu' is not supported"},
    {"modernbert", "layer_types", "[\"full_attention\"]", "layer_types is no list of 6 layers"},
    {"glm4_moe_lite", "mlp_layer_types", "[\"dense\"]", "mlp_layer_types is no list of 6 layers"},
    {"glm4_moe_lite", "mlp_layer_types",
     "[\"dense\",\"sparse\",\"sparse\",\"x\",\"sparse\",\"dense\"]",
     "mlp_layer_types: element 3 is neither dense nor sparse"},
    {"kimi_k2", "n_group", "3", "8 experts cannot be cut into 3 groups"},
    {"falcon_h1", "mamba_d_ssm", "66", "a width of 66 cannot be cut into 4 heads"},
    {"falcon_h1", "mamba_n_groups", "3", "4 value heads cannot share 3 key heads"},
    {"falcon_h1", "ssm_multipliers", "[1,1,1,1]", "ssm_multipliers is no list of 5 numbers"},
    {"falcon_h1", "mlp_multipliers", "[1,0]", "mlp_multipliers: element 1 is not within"},
    {"falcon_h1", "key_multiplier", "0", "key_multiplier is no number"},
    {"falcon_h1", "projectors_bias", "true", "projectors_bias true is not supported"},
    {"deepseek_v3", "n_group", "3", "8 experts cannot be cut into 3 groups"},
    {"deepseek_v3", "topk_group", "5", "5 groups of a token are not 1..4"},
    {"deepseek_v3", "kv_lora_rank", "1000000", "kv_lora_rank is no integer of 1..512"},
    {"deepseek_v2", "qk_rope_head_dim", "33", "33 elements of a head cannot be turned"},
    {"glm4_moe", "first_k_dense_replace", "7", "first_k_dense_replace is no integer of 0..6"},
    {"gemma4", "num_kv_shared_layers", "6", "num_kv_shared_layers"},
    {"gemma4", "num_kv_shared_layers", "-1", "num_kv_shared_layers"},
    {"gemma4", "global_head_dim", "12", "global_head_dim is 12, no multiple of 8"},
    {"cohere2", "logit_scale", "0", "logit_scale is no number"},
    {"cohere2", "sliding_window", "-4", "sliding_window is no integer"},
    {"cohere", "use_qk_norm", "true", "use_qk_norm true is not supported"},
    {"nemotron", "partial_rotary_factor", "0.01", "partial_rotary_factor is 0.01"},
    {"hunyuan_v1_dense", "num_experts", "16", "num_experts is not supported"},
    {"apertus", "hidden_act", "\"silu\"", "hidden_act 'silu' is not supported"},
    {"qwen3_vl_moe", "norm_topk_prob", "false", "norm_topk_prob false is not what"},
    {"smollm3", "no_rope_layers", "[1,1,1,1,1,2]", "no_rope_layers: element 5 is not 0 or 1"},
    {"bert", "num_attention_heads", "5", "a hidden_size of 64 in 5 heads"},
};

static void what_no_model_has_is_refused_by_its_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct json_config json;
        struct error error = {0};
        json_t *root = make(refusals[i].model_type, refusals[i].key, refusals[i].value);
        const enum err err = config_json_init(&json, root, &error);
        json_decref(root);
        if (err != ERR_INVALID || !strstr(error.text, refusals[i].says))
            fail_msg("%s: %s %s: %s", refusals[i].model_type, refusals[i].key, refusals[i].value,
                     err == OK ? "accepted" : error.text);
    }
}

/* Sizes that are allowed one by one, and whose product no machine has. */
static void a_state_of_gigabytes_is_refused(void **state) {
    (void)state;
    static const char *const fields[] = {
        "{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":512,\"linear_num_key_heads\":512,"
        "\"linear_num_value_heads\":512,\"linear_key_head_dim\":256,"
        "\"linear_value_head_dim\":256}",
        "{\"model_type\":\"granitemoehybrid\",\"hidden_size\":65536,\"mamba_n_heads\":512,"
        "\"mamba_d_state\":256,\"mamba_n_groups\":1,\"mamba_expand\":2,\"num_attention_heads\":"
        "512,\"num_hidden_layers\":11,\"layer_types\":[\"attention\",\"mamba\",\"mamba\",\"mamba\","
        "\"mamba\",\"mamba\",\"mamba\",\"mamba\",\"mamba\",\"mamba\",\"mamba\"]}",
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct json_config json;
        struct error error = {0};
        json_t *more = json_loads(fields[i], 0, NULL);
        assert_non_null(more);
        json_t *root = make(json_string_value(json_object_get(more, "model_type")), NULL, NULL);
        assert_int_equal(json_object_update(root, more), 0);
        assert_int_equal(config_json_init(&json, root, &error), ERR_INVALID);
        if (!strstr(error.text, "the state of a sequence takes")) fail_msg("%s", error.text);
        json_decref(more);
        json_decref(root);
    }
}

static const char experts[] =
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":40,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":50,"
    "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"rope_scaling\":{\"rope_type\":\"yarn\","
    "\"factor\":4}%s}";

static enum err open_shape(const char *more, struct checkpoint **ret_checkpoint,
                           struct error *error) {
    char text[1024];
    snprintf(text, sizeof text, experts, more);
    return checkpoint_open_shape(ret_checkpoint, str_from(text), SHAPE_MXFP4, error);
}

static void a_shape_has_whole_rows_or_is_refused_by_its_tensor(void **state) {
    (void)state;
    struct checkpoint *shape;
    struct error error = {0};
    assert_int_equal(open_shape("", &shape, &error), ERR_INVALID);
    assert_string_equal(error.text, "config.json: tensor blk.0.ffn_gate_exps.bias has no elements");
    assert_int_equal(open_shape(",\"intermediate_size\":64", &shape, &error), OK);
    const struct checkpoint_tensor *up = checkpoint_find(shape, STR("blk.1.ffn_up.2.weight"));
    const struct checkpoint_tensor *down = checkpoint_find(shape, STR("blk.1.ffn_down.2.weight"));
    assert_int_equal(up->type, TENSOR_F16); /* no block of 32 divides rows of 40 */
    assert_int_equal(up->bytes, 64 * 40 * 2);
    assert_int_equal(down->type, TENSOR_MXFP4);
    assert_int_equal(down->bytes, 40 * 64 / 32 * 17);
    checkpoint_close(shape);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_family_is_refused_by_a_whole_sentence),
        cmocka_unit_test(every_family_has_a_config_that_is_accepted),
        cmocka_unit_test(no_number_of_any_field_makes_an_unsound_config),
        cmocka_unit_test(no_absurd_count_is_taken_by_any_family),
        cmocka_unit_test(what_no_model_has_is_refused_by_its_name),
        cmocka_unit_test(a_state_of_gigabytes_is_refused),
        cmocka_unit_test(a_shape_has_whole_rows_or_is_refused_by_its_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The fields of DeepSeek and of GLM's experts in a config.json. */

#include "json_changed.h"

#include <math.h>
#include <string.h>

static const char v3[] =
    "{\"model_type\":\"deepseek_v3\",\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":6,\"num_attention_heads\":4,\"vocab_size\":50,\"kv_lora_rank\":32,"
    "\"q_lora_rank\":null,\"qk_nope_head_dim\":24,\"qk_rope_head_dim\":16,\"v_head_dim\":8,"
    "\"n_routed_experts\":16,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
    "\"n_group\":4,\"topk_group\":2}";

#define open_with(changes, json, error) json_changed_open(v3, changes, json, error)
#define open_good(changes, json) json_changed_open_good(v3, changes, json)

static void a_line_of_the_cache_is_the_only_key_of_all_heads(void **state) {
    (void)state;
    struct json_config json;
    const struct model_config *config = &json.config;
    open_good("{}", &json);
    assert_string_equal(config->architecture->name, "deepseek2");
    assert_true(config_is_latent(config) && !config_is_recurrent(config));
    assert_int_equal(config->kv_heads, 1);
    assert_int_equal(config->head_dim, 48);
    assert_int_equal(config_kv_width(config, 0), 48);
    assert_int_equal(config_rotary_dim(config), 16);
    assert_int_equal(config->latent.q_rank, 0);
    assert_true(fabsf(config->attention_scale - 1.0f / sqrtf(40.0f)) < 1e-7f);
    assert_null(config_cpu_only(config));
    assert_non_null(config_texts_cpu_only(config));
    open_good("{\"q_lora_rank\":56,\"rope_interleave\":false}", &json);
    assert_int_equal(config->latent.q_rank, 56);
    assert_true(config->latent.halves_turn);
}

static void a_stretched_context_sharpens_the_scores(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1.0,"
              "\"mscale_all_dim\":0.5}}",
              &json);
    const float grown = 1.0f + 0.05f * logf(40.0f);
    assert_true(fabsf(json.config.attention_scale - grown * grown / sqrtf(40.0f)) < 1e-6f);
    assert_true(fabsf(json.config.rope_magnitude - (1.0f + 0.1f * logf(40.0f)) / grown) < 1e-6f);
}

static void the_router_is_what_the_fields_say_and_else_the_class(void **state) {
    (void)state;
    struct json_config json;
    const struct model_config *config = &json.config;
    const struct routing_rule *rule = &config->routing;
    open_good("{}", &json);
    assert_true(rule->is_sigmoid && rule->has_bias && !rule->groups_by_best);
    assert_int_equal(rule->groups, 4);
    assert_int_equal(rule->groups_used, 2);
    assert_true(rule->scale == 2.5f && config->expert_weights_sum_to_one);
    assert_int_equal(config->shared_ffn, 32);
    assert_int_equal(config->layers_skipped, 1);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(config->list[i].ffn, i < 3 ? FFN_GATED : FFN_EXPERTS);
    open_good("{\"model_type\":\"deepseek_v2\",\"topk_method\":\"greedy\",\"moe_layer_freq\":2,"
              "\"first_k_dense_replace\":1,\"n_shared_experts\":null}",
              &json);
    assert_true(!rule->is_sigmoid && !rule->has_bias && !config->expert_weights_sum_to_one);
    assert_int_equal(rule->groups, 0);
    assert_int_equal(config->shared_ffn, 0);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(config->list[i].ffn, i > 0 && i % 2 == 0 ? FFN_EXPERTS : FFN_GATED);
    open_good("{\"model_type\":\"deepseek_v2\",\"topk_method\":\"group_limited_greedy\"}", &json);
    assert_true(rule->groups == 4 && rule->groups_by_best);
    open_good("{\"model_type\":\"glm4_moe\",\"head_dim\":16,\"kv_lora_rank\":null,\"num_key_value_"
              "heads\":2,"
              "\"use_qk_norm\":true,\"n_group\":1,\"num_nextn_predict_layers\":0}",
              &json);
    assert_string_equal(config->architecture->name, "glm4moe");
    assert_true(config->architecture->has_qk_norm && rule->is_sigmoid && rule->groups == 0);
    assert_int_equal(config->rotary_dim, 8);
    assert_int_equal(config->layers_skipped, 0);
    assert_false(config_is_latent(config));
}

/* A fault, and words of the sentence that names it. */
static const struct {
    const char *says;
    const char *changes;
} refusals[] = {
    {"kv_lora_rank is no integer of 1..512", "{\"kv_lora_rank\":0}"},
    {"kv_lora_rank is no integer of 1..512", "{\"kv_lora_rank\":1000000}"},
    {"a latent rank of 40 is not supported: no multiple of 16", "{\"kv_lora_rank\":40}"},
    {"q_lora_rank is no integer of 1..65536", "{\"q_lora_rank\":1000000}"},
    {"33 elements of a head cannot be turned", "{\"qk_rope_head_dim\":33}"},
    {"qk_rope_head_dim is no integer of 1..128", "{\"qk_rope_head_dim\":0}"},
    {"qk_nope_head_dim is no integer of 1..512", "{\"qk_nope_head_dim\":-1}"},
    {"v_head_dim is no integer of 1..512", "{\"v_head_dim\":1e3}"},
    {"rope_interleave is", "{\"rope_interleave\":3}"},
    {"16 experts cannot be cut into 3 groups", "{\"n_group\":3}"},
    {"16 experts cannot be cut into 16 groups", "{\"n_group\":16}"},
    {"n_group is no integer of 1..1024", "{\"n_group\":0}"},
    {"5 groups of a token are not 1..4", "{\"topk_group\":5}"},
    {"12 experts of a token are more than 2 of 4 groups", "{\"num_experts_per_tok\":12}"},
    {"first_k_dense_replace is no integer of 0..6", "{\"first_k_dense_replace\":7}"},
    {"moe_layer_freq is no integer of 1..512", "{\"moe_layer_freq\":0}"},
    {"n_shared_experts is 1000: shared experts of 32000 are wider",
     "{\"n_shared_experts\":1000,\"moe_intermediate_size\":32000}"},
    {"n_shared_experts is no integer", "{\"n_shared_experts\":1000000}"},
    {"num_nextn_predict_layers is no integer", "{\"num_nextn_predict_layers\":1000000}"},
    {"num_experts_per_tok is missing",
     "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":null}"},
    {"scoring_func 'tanh' is not supported", "{\"scoring_func\":\"tanh\"}"},
    {"scoring_func 'softmax' is not supported here", "{\"scoring_func\":\"softmax\"}"},
    {"topk_method 'greedy' is not supported with", "{\"topk_method\":\"greedy\"}"},
    {"norm_topk_prob true is not supported with",
     "{\"model_type\":\"deepseek_v2\",\"norm_topk_prob\":true}"},
    {"topk_method 'random' is not supported", "{\"topk_method\":\"random\"}"},
    {"routed_scaling_factor is no number", "{\"routed_scaling_factor\":0}"},
    {"attention_bias true is not supported", "{\"attention_bias\":true}"},
    {"kv_lora_rank is not supported", "{\"model_type\":\"glm4_moe\",\"head_dim\":16}"},
    {"use_qk_norm is",
     "{\"model_type\":\"glm4_moe\",\"head_dim\":16,\"use_qk_norm\":7,\"kv_lora_rank\":null}"},
};

static void what_cannot_be_run_is_refused_by_the_field_s_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct json_config json;
        struct error error = {0};
        enum err err = open_with(refusals[i].changes, &json, &error);
        if (err != ERR_INVALID || !strstr(error.text, refusals[i].says))
            print_message("# %s: %s\n", refusals[i].changes, error.text);
        assert_int_equal(err, ERR_INVALID);
        assert_non_null(strstr(error.text, refusals[i].says));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_of_the_cache_is_the_only_key_of_all_heads),
        cmocka_unit_test(a_stretched_context_sharpens_the_scores),
        cmocka_unit_test(the_router_is_what_the_fields_say_and_else_the_class),
        cmocka_unit_test(what_cannot_be_run_is_refused_by_the_field_s_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

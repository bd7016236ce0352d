/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "json_changed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char llama[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,"
                            "\"num_hidden_layers\":12,\"num_attention_heads\":4,\"vocab_size\":50}";

#define open_with(changes, json, error) json_changed_open(llama, changes, json, error)
#define open_good(changes, json) json_changed_open_good(llama, changes, json)

static void what_is_not_said_is_what_the_family_s_class_says(void **state) {
    (void)state;
    struct json_config json;
    open_good("{}", &json);
    assert_string_equal(json.config.architecture->name, "llama");
    assert_int_equal(json.config.kv_heads, 4);
    assert_int_equal(json.config.head_dim, 16);
    assert_int_equal(json.config.context_max, 2048);
    assert_int_equal(json.config.window, 0);
    assert_int_equal(json.vocab_size, 50);
    assert_false(json.head_is_tied);
    assert_false(json.norms_lack_one);
    assert_true(json.config.rope_base == 10000.0f && json.config.rope_scale == 1.0f);
    assert_true(json.config.eps == 1e-6f);
    assert_true(json.config.attention_scale == 0.25f);
    open_good("{\"model_type\":\"qwen3\"}", &json);
    assert_int_equal(json.config.head_dim, 128);
    open_good("{\"model_type\":\"mistral\",\"num_attention_heads\":8}", &json);
    assert_string_equal(json.config.architecture->name, "llama");
    assert_int_equal(json.config.kv_heads, 8);
    assert_int_equal(json.config.window, 4096);
    for (uint32_t i = 0; i < 12; i++) assert_true(config_layer_is_local(&json.config, i));
    assert_false(config_has_local_rope(&json.config));
    open_good("{\"model_type\":\"mistral\",\"num_attention_heads\":8,\"head_dim\":null,"
              "\"sliding_window\":null,\"num_key_value_heads\":2,\"max_position_embeddings\":9}",
              &json);
    assert_int_equal(json.config.window, 0);
    assert_int_equal(json.config.kv_heads, 2);
    assert_int_equal(json.config.context_max, 9);
}

static void the_eps_of_norms_is_that_of_the_class(void **state) {
    (void)state;
    static const struct {
        const char *changes;
        float eps;
    } classes[] = {
        {"{\"model_type\":\"qwen3\"}", 1e-6f},
        {"{\"model_type\":\"olmo2\"}", 1e-5f},
        {"{\"model_type\":\"phi3\"}", 1e-5f},
        {"{\"model_type\":\"glm4\",\"num_key_value_heads\":4}", 1.5625e-7f},
        {"{\"model_type\":\"exaone4\",\"num_key_value_heads\":4}", 1e-5f},
        {"{\"model_type\":\"olmo3\"}", 1e-5f},
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        struct json_config json;
        open_good(classes[i].changes, &json);
        if (json.config.eps != classes[i].eps)
            fail_msg("%s: %g", classes[i].changes, (double)json.config.eps);
    }
}

static void gemma_3_has_its_own_norms_scale_window_and_two_bases(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"gemma3_text\",\"num_attention_heads\":null,"
              "\"sliding_window\":512,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}",
              &json);
    const struct model_config *config = &json.config;
    assert_true(json.head_is_tied);
    assert_true(json.norms_lack_one);
    assert_false(json.is_part_of_another);
    assert_int_equal(config->heads, 8);
    assert_int_equal(config->kv_heads, 4);
    assert_int_equal(config->head_dim, 256);
    assert_true(config->attention_scale == 1.0f / 16.0f);
    assert_true(config->rope_base == 1e6f && config->rope_base_local == 10000.0f);
    assert_true(config->rope_scale == 0.125f);
    assert_true(config_has_local_rope(config));
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(config_layer_is_local(config, i), i != 5 && i != 11);
    open_good("{\"model_type\":\"gemma3\",\"eos_token_id\":1,\"text_config\":"
              "{\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":6,"
              "\"query_pre_attn_scalar\":64,\"model_type\":\"gemma3_text\"}}",
              &json);
    assert_true(json.is_part_of_another);
    assert_int_equal(json.config.layers, 6);
    assert_int_equal(json.config.context_max, 131072);
    assert_true(json.config.attention_scale == 0.125f);
}

static void gemma_2_caps_scores_and_logits_unless_a_null_says_no(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"gemma2\"}", &json);
    assert_true(json.config.attention_softcap == 50.0f && json.config.softcap == 30.0f);
    assert_true(json.norms_lack_one && json.head_is_tied);
    assert_true(config_layer_is_local(&json.config, 0));
    assert_false(config_layer_is_local(&json.config, 1));
    assert_false(config_has_local_rope(&json.config));
    open_good("{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":null,"
              "\"final_logit_softcapping\":8}",
              &json);
    assert_true(json.config.attention_softcap == 0.0f && json.config.softcap == 8.0f);
}

static void multipliers_become_factors_of_ends_and_of_epsilon(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"granite\",\"embedding_multiplier\":12,\"rms_norm_eps\":0.02,"
              "\"residual_multiplier\":0.5,\"attention_multiplier\":0.125,\"logits_scaling\":8}",
              &json);
    assert_true(config_embedding_scale(&json.config) == 24.0f);
    assert_true(json.config.eps == 0.08f);
    assert_true(json.config.attention_scale == 0.125f && json.config.output_scale == 0.125f);
    open_good("{\"model_type\":\"gemma\",\"num_key_value_heads\":1}", &json);
    assert_true(config_embedding_scale(&json.config) == 8.0f && json.norms_lack_one);
    open_good("{\"embedding_multiplier\":12}", &json); /* llama's class does not know it */
    assert_true(config_embedding_scale(&json.config) == 1.0f);
}

static void the_text_part_of_a_model_that_sees_may_lie_flat(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{},\"rope_scaling\":"
              "{\"type\":\"default\",\"mrope_section\":[2,3,3]}}",
              &json);
    assert_string_equal(json.config.architecture->name, "qwen2vl");
    assert_true(json.is_part_of_another && json.config.rope_base == 1e6f);
}

#define LONG_ROPE(rest)                                                                            \
    "{\"model_type\":\"phi3\",\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":"        \
    "\"longrope\","                                                                                \
    "\"long_factor\":[]," rest "}}"

static void a_window_counts_for_qwen_only_when_it_is_asked_for(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"qwen2\",\"sliding_window\":16,\"max_window_layers\":3}", &json);
    assert_int_equal(json.config.window, 0);
    open_good("{\"model_type\":\"qwen2\",\"sliding_window\":16,\"max_window_layers\":3,"
              "\"use_sliding_window\":true}",
              &json);
    assert_int_equal(json.config.window, 16);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(config_layer_is_local(&json.config, i), i >= 3);
    open_good("{\"model_type\":\"qwen2\",\"sliding_window\":16,\"max_window_layers\":0,"
              "\"use_sliding_window\":true}",
              &json);
    assert_true(config_layer_is_local(&json.config, 0));
    open_good("{\"model_type\":\"qwen2\",\"sliding_window\":16,\"max_window_layers\":12,"
              "\"use_sliding_window\":true}",
              &json);
    assert_int_equal(json.config.window, 0);
}

static void a_list_of_layer_types_has_the_last_word(void **state) {
    (void)state;
    struct json_config json;
    struct error error = {0};
#define S "\"sliding_attention\""
#define F "\"full_attention\""
#define TYPES(list)                                                                                \
    "{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":6,\"layer_types\":[" list "]}"
    open_good(TYPES(S "," F "," S "," F "," S "," F), &json);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(config_layer_is_local(&json.config, i), i % 2 == 0);
    open_good(TYPES(S "," S "," S "," S "," S "," S), &json);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(json.config.list[i].window, 4096);
    assert_int_equal(json.config.window, 4096);
    open_good(TYPES(F "," F "," F "," F "," F "," F), &json);
    assert_int_equal(json.config.window, 0);
    open_good(TYPES(F "," F "," S "," S "," S "," S), &json);
    assert_false(config_layer_is_local(&json.config, 1));
    assert_true(config_layer_is_local(&json.config, 2));
    open_good(TYPES(S "," F "," F "," S "," S "," S), &json); /* no period: a list is a list */
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(config_layer_is_local(&json.config, i), i != 1 && i != 2);
        assert_int_equal(json.config.list[i].rope, i != 1 && i != 2);
    }
    assert_int_equal(open_with(TYPES(S), &json, &error), ERR_INVALID);
    assert_int_equal(open_with(TYPES(S "," S "," S "," S "," S ",\"x\""), &json, &error),
                     ERR_INVALID);
}

#define MOE(rest) "{\"model_type\":\"qwen3_moe\"," rest "}"

static void layers_without_experts_are_those_that_the_file_names(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"qwen3_moe\"}", &json);
    const struct model_config *config = &json.config;
    assert_string_equal(config->architecture->name, "qwen3moe");
    assert_int_equal(config->experts, 128);
    assert_int_equal(config->experts_used, 8);
    assert_int_equal(config->expert_ffn, 768);
    assert_false(config->expert_weights_sum_to_one);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(config->list[i].ffn, FFN_EXPERTS);
    open_good(MOE("\"num_local_experts\":4,\"num_experts_per_tok\":2,\"norm_topk_prob\":true,"
                  "\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]"),
              &json);
    assert_int_equal(config->experts, 4);
    assert_int_equal(config->experts_used, 2);
    assert_true(config->expert_weights_sum_to_one);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(config->list[i].ffn, i % 2 == 1 && i != 3 ? FFN_EXPERTS : FFN_GATED);
    open_good("{}", &json);
    assert_false(config_has_experts(config));
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(config->list[i].ffn, FFN_GATED);
}

static void a_window_of_experts_is_one_of_all_layers(void **state) {
    (void)state;
    struct json_config json;
    open_good(MOE("\"sliding_window\":9,\"max_window_layers\":5"), &json);
    assert_int_equal(json.config.window, 0);
    open_good(MOE("\"sliding_window\":9,\"use_sliding_window\":true,\"max_window_layers\":5"),
              &json);
    assert_int_equal(json.config.window, 9);
    for (uint32_t i = 0; i < 12; i++) assert_true(config_layer_is_local(&json.config, i));
}

static void both_spellings_of_the_tiny_models_configs_mean_the_same(void **state) {
    (void)state;
    static const char *const names[] = {"llama3", "mistral", "qwen2", "qwen3", "gemma3"};
    const char *shared = getenv("QUERN_SHARED");
    struct error error = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct json_config json[2];
        for (int j = 0; j < 2; j++) {
            char path[512], *text;
            size_t bytes;
            json_t *root;
            snprintf(path, sizeof path, "%s/tiny/%s/config%s.json", shared ? shared : "", names[i],
                     j ? ".v5" : "");
            if (os_read_file(path, 1 << 20, &text, &bytes, &error) != OK) skip();
            assert_int_equal(json_read(&root, (struct str){text, bytes}, &error), OK);
            if (config_json_init(&json[j], root, &error) != OK) fail_msg("%s", error.text);
            json_decref(root);
            free(text);
        }
        struct model_config *a = &json[0].config, *b = &json[1].config;
        assert_memory_equal(json[0].rope_factors, json[1].rope_factors,
                            sizeof json[0].rope_factors);
        assert_int_equal(a->rope_factors != NULL, b->rope_factors != NULL);
        a->rope_factors = b->rope_factors = NULL;
        assert_memory_equal(a, b, sizeof *a);
        assert_int_equal(json[0].head_is_tied, json[1].head_is_tied);
    }
}

static void what_is_quantised_is_known_by_its_method(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,"
              "\"desc_act\":true}}",
              &json);
    assert_int_equal(json.quantisation.method, QUANTISATION_GPTQ);
    assert_int_equal(json.quantisation.bits, 8);
    assert_int_equal(json.quantisation.group, 0);
    assert_int_equal(json.quantisation.zero_add, 1);
    open_good("{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
              "\"checkpoint_format\":\"gptq_v2\"}}",
              &json);
    assert_int_equal(json.quantisation.group, 128);
    assert_int_equal(json.quantisation.zero_add, 0);
    open_good("{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64,"
              "\"version\":\"gemm\",\"zero_point\":true}}",
              &json);
    assert_int_equal(json.quantisation.method, QUANTISATION_AWQ);
    assert_int_equal(json.quantisation.group, 64);
    open_good("{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
              "\"weight_block_size\":[128,64]}}",
              &json);
    assert_int_equal(json.quantisation.method, QUANTISATION_FP8);
    assert_int_equal(json.quantisation.block_rows, 128);
    assert_int_equal(json.quantisation.block_cols, 64);
}

#define QUANTISED(rest) "{\"quantization_config\":{" rest "}}"
#define GROUP(rest)                                                                                \
    QUANTISED("\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\","            \
              "\"config_groups\":{\"group_0\":{\"weights\":{" rest "}}}")

/* A fault, and words of the sentence that names it. */
static const struct {
    const char *says;
    const char *changes;
} refusals[] = {
    {"model_type is missing", "{\"model_type\":null}"},
    {"model_type is missing", "{\"model_type\":7}"},
    {"model_type 'mamba' is not supported (llama, mistral, ", "{\"model_type\":\"mamba\"}"},
    {" more are)", "{\"model_type\":\"mamba\"}"},
    {"model_type '?' is not supported", "{\"model_type\":\"a\\nb\"}"},
    {"text_config is missing", "{\"model_type\":\"gemma3\"}"},
    {"hidden_size is missing", "{\"hidden_size\":null}"},
    {"hidden_size is no integer of 1..65536", "{\"hidden_size\":0}"},
    {"hidden_size is no integer of 1..65536", "{\"hidden_size\":65537}"},
    {"hidden_size is no integer of 1..65536", "{\"hidden_size\":64.0}"},
    {"hidden_size is no integer of 1..65536", "{\"hidden_size\":\"64\"}"},
    {"hidden_size is no integer of 1..65536", "{\"hidden_size\":[64]}"},
    {"intermediate_size is missing", "{\"intermediate_size\":null}"},
    {"intermediate_size is no integer", "{\"intermediate_size\":-1}"},
    {"num_hidden_layers is missing", "{\"num_hidden_layers\":null}"},
    {"num_hidden_layers is no integer of 1..512", "{\"num_hidden_layers\":513}"},
    {"num_attention_heads is missing", "{\"num_attention_heads\":null}"},
    {"num_attention_heads is no integer", "{\"num_attention_heads\":513}"},
    {"4 attention heads cannot share 3", "{\"num_key_value_heads\":3}"},
    {"num_key_value_heads is no integer", "{\"num_key_value_heads\":0}"},
    {"hidden_size of 64 cannot be cut into 5", "{\"num_attention_heads\":5}"},
    {"head_dim is no integer of 1..512", "{\"head_dim\":520}"},
    {"heads of 12 are not supported", "{\"head_dim\":12}"},
    {"heads of 4 are not supported", "{\"num_attention_heads\":16}"},
    {"vocab_size is no integer", "{\"vocab_size\":2097153}"},
    {"max_position_embeddings is no integer", "{\"max_position_embeddings\":1e3}"},
    {"rms_norm_eps is no number", "{\"rms_norm_eps\":0}"},
    {"rms_norm_eps is no number", "{\"rms_norm_eps\":\"1e-5\"}"},
    {"rms_norm_eps is no number", "{\"rms_norm_eps\":1}"},
    {"tie_word_embeddings is no boolean", "{\"tie_word_embeddings\":1}"},
    {"hidden_act 'gelu' is not supported (silu is)", "{\"hidden_act\":\"gelu\"}"},
    {"hidden_activation 'gelu' is not supported",
     "{\"model_type\":\"gemma3_text\",\"hidden_activation\":\"gelu\"}"},
    {"attention_bias true is not", "{\"attention_bias\":true}"},
    {"attention_bias is no boolean", "{\"attention_bias\":\"no\"}"},
    {"mlp_bias true is not", "{\"mlp_bias\":true}"},
    {"use_bidirectional_attention true", "{\"use_bidirectional_attention\":true}"},
    {"attn_logit_softcapping is not", "{\"attn_logit_softcapping\":50.0}"},
    {"num_local_experts is not", "{\"num_local_experts\":8}"},
    {"num_experts is no integer of 1..1024", MOE("\"num_experts\":1025")},
    {"num_experts is 8, but num_local_experts is 4",
     MOE("\"num_experts\":8,\"num_local_experts\":4")},
    {"num_experts_per_tok is 9, over the 8 experts",
     MOE("\"num_experts\":8,\"num_experts_per_tok\":9")},
    {"moe_intermediate_size is no integer", MOE("\"moe_intermediate_size\":0")},
    {"norm_topk_prob is no boolean", MOE("\"norm_topk_prob\":1")},
    {"decoder_sparse_step is no integer", MOE("\"decoder_sparse_step\":0")},
    {"mlp_only_layers is no list", MOE("\"mlp_only_layers\":3")},
    {"mlp_only_layers: element 1 is no layer of 0..11", MOE("\"mlp_only_layers\":[0,12]")},
    {"final_logit_softcapping is no number", "{\"final_logit_softcapping\":-1}"},
    {"query_pre_attn_scalar is no number",
     "{\"model_type\":\"gemma3_text\",\"query_pre_attn_scalar\":0}"},
    {"sliding_window is no integer", "{\"model_type\":\"mistral\",\"num_attention_heads\":8,"
                                     "\"sliding_window\":-4}"},
    {"sliding_window_pattern is no integer",
     "{\"model_type\":\"gemma3_text\",\"sliding_window_pattern\":0}"},
    {"use_sliding_window is no boolean", "{\"model_type\":\"qwen2\",\"use_sliding_window\":1}"},
    {"max_window_layers is no integer", "{\"model_type\":\"qwen2\",\"max_window_layers\":-1}"},
    {"rope_theta is no number", "{\"rope_theta\":0.5}"},
    {"rope_theta is no number", "{\"rope_parameters\":{\"rope_theta\":1e13}}"},
    {"rope_local_base_freq is no number",
     "{\"model_type\":\"gemma3_text\",\"rope_local_base_freq\":true}"},
    {"rope_type yarn is not supported", "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}"},
    {"rope_type longrope is not", "{\"rope_parameters\":{\"rope_type\":\"longrope\"}}"},
    {"rope_type dynamic is not", "{\"rope_scaling\":{\"rope_type\":\"dynamic\"}}"},
    {"rope_type unknown, it is not", "{\"rope_scaling\":{\"rope_type\":\"else\"}}"},
    {"factor is no number", "{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0}}"},
    {"the factor of rope_type llama3 is missing", "{\"rope_scaling\":{\"rope_type\":\"llama3\"}}"},
    {"high_freq_factor 1 is not above low_freq_factor 2",
     "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":2,"
     "\"high_freq_factor\":1}}"},
    {"short_factor is no list of 8 numbers", LONG_ROPE("\"short_factor\":[1],"
                                                       "\"original_max_position_embeddings\":64")},
    {"short_factor 7 is not within", LONG_ROPE("\"short_factor\":[1,1,1,1,1,1,1,\"1\"],"
                                               "\"original_max_position_embeddings\":64")},
    {"partial_rotary_factor is 0.5", "{\"partial_rotary_factor\":0.5}"},
    {"partial_rotary_factor is 0.1",
     "{\"model_type\":\"glm4\",\"head_dim\":16,\"partial_rotary_factor\":0.1}"},
    {"no_rope_layers is no list of 12 layers",
     "{\"model_type\":\"smollm3\",\"no_rope_layers\":[1]}"},
    {"no_rope_layers: element 1 is not 0 or 1",
     "{\"model_type\":\"smollm3\",\"no_rope_layers\":[1,2,1,1,1,1,1,1,1,1,1,1]}"},
    {"residual_multiplier is no number", "{\"model_type\":\"granite\",\"residual_multiplier\":0}"},
    {"attention_out_bias true is not", "{\"model_type\":\"seed_oss\",\"attention_out_bias\":true}"},
    {"sliding_attention with a scaling",
     "{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"full_attention\":{},"
     "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2}}}"},
    {"rope_parameters of each kind of layer are not",
     "{\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{}}}"},
    {"rope_parameters of each kind of layer are not", /* though it runs as OLMo 3 does */
     "{\"model_type\":\"olmo2\",\"rope_parameters\":{\"full_attention\":{}}}"},
    {"hidden_act 'relu' is not", "{\"model_type\":\"gemma\",\"hidden_act\":\"relu\"}"},
    {"rope_scaling next to rope_parameters of each kind",
     "{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"full_attention\":{}},"
     "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}}"},
    {"neither full_attention nor sliding",
     "{\"model_type\":\"olmo3\",\"rope_parameters\":{\"rope_theta\":9}}"},
    {"alpha is no number", "{\"model_type\":\"hunyuan_v1_dense\",\"rope_scaling\":"
                           "{\"type\":\"dynamic\",\"alpha\":1e300}}"},
    {"rope_type dynamic",
     "{\"model_type\":\"hunyuan_v1_dense\",\"rope_scaling\":{\"type\":\"dynamic\"}}"},
    {"rope_scaling is no object", "{\"rope_scaling\":4}"},
    {"rope_parameters is no object", "{\"rope_parameters\":\"yarn\"}"},
    {"its type is no string", "{\"rope_scaling\":{\"rope_type\":5,\"factor\":4}}"},
    {"rope_parameters and rope_scaling are missing",
     "{\"model_type\":\"ministral3\",\"num_key_value_heads\":4}"},
    {"use_sliding_window true is not", "{\"model_type\":\"smollm3\",\"use_sliding_window\":true}"},
    {"quant_method '?'", "{\"quantization_config\":{}}"},
    {"quant_method 'bitsandbytes' is not", QUANTISED("\"quant_method\":\"bitsandbytes\"")},
    {"awq of 8 bits", QUANTISED("\"quant_method\":\"awq\",\"bits\":8")},
    {"version 'gemv' is not", QUANTISED("\"quant_method\":\"awq\",\"version\":\"gemv\"")},
    {"awq without zero points", QUANTISED("\"quant_method\":\"awq\",\"zero_point\":false")},
    {"group_size is no integer", QUANTISED("\"quant_method\":\"awq\",\"group_size\":0")},
    {"gptq of 3 bits", QUANTISED("\"quant_method\":\"gptq\",\"bits\":3")},
    {"is_marlin_format true", QUANTISED("\"quant_method\":\"gptq\",\"is_marlin_format\":true")},
    {"checkpoint_format 'marlin'",
     QUANTISED("\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"")},
    {"fmt 'e5m2'", QUANTISED("\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"")},
    {"weight_block_size is no pair",
     QUANTISED("\"quant_method\":\"fp8\",\"weight_block_size\":[128]")},
    {"weight_block_size is no pair",
     QUANTISED("\"quant_method\":\"fp8\",\"weight_block_size\":[0,1]")},
    {"format 'marlin-24'",
     QUANTISED("\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"")},
    {"float-quantized of int with 8 bits",
     GROUP("\"type\":\"int\",\"num_bits\":8,\"strategy\":\"channel\"")},
    {"float-quantized of float with 4 bits", GROUP("\"type\":\"float\",\"num_bits\":4")},
    {"strategy 'group'", GROUP("\"type\":\"float\",\"num_bits\":8,\"strategy\":\"group\"")},
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
    struct json_config json;
    struct error error = {0};
    json_t *list = json_array();
    assert_int_equal(config_json_init(&json, list, &error), ERR_INVALID);
    json_decref(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_said_is_what_the_family_s_class_says),
        cmocka_unit_test(the_eps_of_norms_is_that_of_the_class),
        cmocka_unit_test(gemma_3_has_its_own_norms_scale_window_and_two_bases),
        cmocka_unit_test(gemma_2_caps_scores_and_logits_unless_a_null_says_no),
        cmocka_unit_test(multipliers_become_factors_of_ends_and_of_epsilon),
        cmocka_unit_test(the_text_part_of_a_model_that_sees_may_lie_flat),
        cmocka_unit_test(a_window_counts_for_qwen_only_when_it_is_asked_for),
        cmocka_unit_test(a_list_of_layer_types_has_the_last_word),
        cmocka_unit_test(layers_without_experts_are_those_that_the_file_names),
        cmocka_unit_test(a_window_of_experts_is_one_of_all_layers),
        cmocka_unit_test(both_spellings_of_the_tiny_models_configs_mean_the_same),
        cmocka_unit_test(what_is_quantised_is_known_by_its_method),
        cmocka_unit_test(what_cannot_be_run_is_refused_by_the_field_s_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

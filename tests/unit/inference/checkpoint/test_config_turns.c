/* SPDX-License-Identifier: Apache-2.0 */

/* How a config.json says that positions turn, in old and new spellings. */

#include "base/os.h"
#include "json_changed.h"

#include <math.h>
#include <string.h>

static const char llama[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,"
                            "\"num_hidden_layers\":12,\"num_attention_heads\":4,\"vocab_size\":50}";

#define open_good(changes, json) json_changed_open_good(llama, changes, json)
#define LONG_ROPE(rest)                                                                            \
    "{\"model_type\":\"phi3\",\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":"        \
    "\"longrope\","                                                                                \
    "\"long_factor\":[]," rest "}}"

static void a_scaling_that_was_added_by_hand_counts(void **state) {
    (void)state;
    struct json_config json;
    open_good(
        "{\"head_dim\":128,\"rope_parameters\":{\"rope_type\":\"default\","
        "\"rope_theta\":500000.0},\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}",
        &json);
    assert_true(json.config.rope_scale == 0.125f);
    assert_true(json.config.rope_base == 500000.0f);
    open_good("{\"head_dim\":128,\"rope_theta\":7000.0,\"rope_scaling\":{\"rope_theta\":500000.0,"
              "\"rope_type\":\"linear\",\"factor\":8.0}}",
              &json);
    assert_true(json.config.rope_scale == 0.125f && json.config.rope_base == 500000.0f);
    open_good("{\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2},\"rope_scaling\":{}}",
              &json);
    assert_true(json.config.rope_scale == 0.5f);
}

static void a_share_that_a_scaling_replaces_does_not_count(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"glm4\",\"head_dim\":16,\"partial_rotary_factor\":0.5,"
              "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":1.0},"
              "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}}",
              &json);
    assert_int_equal(config_rotary_dim(&json.config), 8);
    open_good("{\"model_type\":\"glm4\",\"head_dim\":16,\"partial_rotary_factor\":0.5,"
              "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":1.0}}",
              &json);
    assert_int_equal(config_rotary_dim(&json.config), 16);
}

static void lengths_of_the_first_training_are_where_transformers_finds_them(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"model_type\":\"olmo2\",\"max_position_embeddings\":900,\"rope_scaling\":"
              "{\"rope_type\":\"yarn\",\"factor\":4}}",
              &json);
    assert_true(json.config.yarn.original == 900.0f);
    open_good("{\"model_type\":\"olmo2\",\"original_max_position_embeddings\":50,"
              "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
              "\"original_max_position_embeddings\":70}}",
              &json);
    assert_true(json.config.yarn.original == 50.0f);
}

static void llama_3_stretches_low_frequencies_only(void **state) {
    (void)state;
    struct json_config json;
    open_good("{\"head_dim\":128,\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"llama3\","
              "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":8192}}",
              &json);
    assert_ptr_equal(json.config.rope_factors, json.rope_factors);
    assert_true(json.rope_factors[0] == 1.0f);
    assert_true(json.rope_factors[28] == 1.0f);
    assert_true(json.rope_factors[32] > 1.0f && json.rope_factors[32] < 8.0f);
    assert_true(json.rope_factors[63] == 8.0f);
}

static void layers_that_do_not_turn_have_the_frequency_0(void **state) {
    (void)state;
    struct json_config json;
    float turns[8];
    open_good("{\"model_type\":\"smollm3\",\"head_dim\":16}", &json);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(json.config.list[i].rope, i % 4 == 3);
    config_rope_frequencies(&json.config, true, turns);
    for (uint32_t i = 0; i < 8; i++) assert_true(turns[i] == 0.0f);
    config_rope_frequencies(&json.config, false, turns);
    assert_true(turns[0] == 1.0f && turns[7] > 0.0f);
    open_good("{\"model_type\":\"smollm3\",\"no_rope_layers\":[0,1,1,1,1,1,1,1,1,1,1,0]}", &json);
    assert_true(json.config.list[0].rope == 1 && json.config.list[3].rope == 0 &&
                json.config.list[11].rope == 1);
    open_good("{\"model_type\":\"glm4\",\"head_dim\":16}", &json);
    assert_int_equal(config_rotary_dim(&json.config), 8);
    config_rope_frequencies(&json.config, false, turns);
    assert_true(turns[0] == 1.0f && fabsf(turns[1] - 0.1f) < 1e-6f && turns[3] > 0.0f);
}

static void a_family_that_stretches_by_numbers_of_its_own_must_state_them(void **state) {
    (void)state;
    struct json_config json;
    struct error error = {0};
    assert_int_equal(json_changed_open(llama,
                                       "{\"model_type\":\"apertus\",\"hidden_act\":\"xielu\"}",
                                       &json, &error),
                     ERR_INVALID);
    assert_non_null(strstr(error.text, "stretches positions by numbers of its own"));
}

static void the_context_of_a_long_rope_is_that_of_its_first_training(void **state) {
    (void)state;
    struct json_config json;
    open_good(LONG_ROPE("\"short_factor\":[1,1,1,1,1,1,2,4],"
                        "\"original_max_position_embeddings\":64"),
              &json);
    assert_int_equal(json.config.context_max, 64);
    assert_true(json.config.rope_magnitude == (float)sqrt(2.0)); /* 4096 is 64 times 64 */
    assert_ptr_equal(json.config.rope_factors, json.rope_factors);
    assert_true(json.rope_factors[7] == 4.0f);
    open_good("{\"model_type\":\"phi3\"}", &json);
    assert_int_equal(json.config.window, 0);
    assert_int_equal(json.config.kv_heads, 4);
    assert_true(json.config.rope_magnitude == 1.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scaling_that_was_added_by_hand_counts),
        cmocka_unit_test(a_share_that_a_scaling_replaces_does_not_count),
        cmocka_unit_test(lengths_of_the_first_training_are_where_transformers_finds_them),
        cmocka_unit_test(llama_3_stretches_low_frequencies_only),
        cmocka_unit_test(layers_that_do_not_turn_have_the_frequency_0),
        cmocka_unit_test(a_family_that_stretches_by_numbers_of_its_own_must_state_them),
        cmocka_unit_test(the_context_of_a_long_rope_is_that_of_its_first_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Forms of a config.json that transformers 5 saves, where the files of the Hub have others. */

#include "json_changed.h"

#include <math.h>
#include <string.h>

static const char gemma[] =
    "{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"head_dim\":16,\"vocab_size\":50,\"hidden_size_per_layer_input\":0,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"rope_parameters\":"
    "{\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25},"
    "\"sliding_attention\":{\"rope_type\":\"default\"}}}";

static const char granite[] =
    "{\"model_type\":\"granitemoehybrid\",\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"vocab_size\":50,\"num_local_experts\":0,\"mamba_n_heads\":8,\"mamba_d_state\":16,"
    "\"layer_types\":[\"linear_attention\",\"full_attention\"]}";

static void sizes_of_layers_without_a_window_may_lie_in_an_object_of_their_own(void **state) {
    (void)state;
    struct json_config json;
    json_changed_open_good(gemma,
                           "{\"attention_k_eq_v\":true,\"per_layer_config\":{\"1\":"
                           "{\"head_dim\":32,\"num_key_value_heads\":1}}}",
                           &json);
    assert_int_equal(config_head_dim(&json.config, 0), 16);
    assert_int_equal(config_head_dim(&json.config, 1), 32);
    assert_int_equal(config_kv_heads(&json.config, 0), 2);
    assert_int_equal(config_kv_heads(&json.config, 1), 1);
}

static void kinds_of_granite_s_layers_have_two_names(void **state) {
    (void)state;
    struct json_config json;
    json_changed_open_good(granite, "{\"time_step_limit\":[0.5,{\"__float__\":\"Infinity\"}]}",
                           &json);
    assert_int_equal(json.config.list[0].mixer, MIXER_MAMBA);
    assert_int_equal(json.config.list[1].mixer, MIXER_ATTENTION);
    assert_true(json.config.recurrent.step_min == 0.5f && isinf(json.config.recurrent.step_max));
    assert_false(json.head_is_tied);
}

static void what_such_an_object_cannot_mean_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *base, *changes, *says;
    } refusals[] = {
        {gemma, "{\"per_layer_config\":3}", "per_layer_config is no object"},
        {gemma, "{\"per_layer_config\":{}}", "layer 1 is missing, or has a window"},
        {gemma, "{\"per_layer_config\":{\"0\":{},\"1\":{}}}", "layer 0 is missing, or has a"},
        {gemma, "{\"per_layer_config\":{\"1\":{},\"7\":{}}}", "names layers that are none"},
        {gemma, "{\"per_layer_config\":{\"1\":{\"eps\":1}}}", "layer 1 is not as the others"},
        {gemma, "{\"per_layer_config\":{\"1\":{\"head_dim\":8}}}", "over the global_head_dim of 8"},
        {granite, "{\"per_layer_config\":{\"1\":{}}}", "per_layer_config is not supported here"},
        {granite, "{\"time_step_limit\":[0,{\"__float__\":\"NaN\"}]}", "no list of two rising"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct json_config json;
        struct error error = {0};
        enum err err = json_changed_open(refusals[i].base, refusals[i].changes, &json, &error);
        if (err != ERR_INVALID || !strstr(error.text, refusals[i].says))
            fail_msg("%s: %s", refusals[i].changes, err == OK ? "opened" : error.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_layers_without_a_window_may_lie_in_an_object_of_their_own),
        cmocka_unit_test(kinds_of_granite_s_layers_have_two_names),
        cmocka_unit_test(what_such_an_object_cannot_mean_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

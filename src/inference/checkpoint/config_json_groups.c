/* SPDX-License-Identifier: Apache-2.0 */

/* The fields of a mixture of experts that DeepSeek has, and GLM after it. */

#include "checkpoint/config_experts.h"
#include "checkpoint/config_json_families.h"

/* How a row's experts are chosen: each by itself, in the groups of the best, or in the groups of
 * the two best with a bias for the choice. */
static enum err read_method(struct model_config *config, const json_t *text, struct error *error) {
    struct routing_rule *rule = &config->routing;
    const struct str scoring = json_member_str(text, "scoring_func");
    const struct str method = json_member_str(text, "topk_method");
    const bool is_known = str_is(scoring, "sigmoid") || str_is(scoring, "softmax");
    if (scoring.bytes > 0 && !is_known)
        return err_set(error, ERR_INVALID,
                       "scoring_func '%.*s' is not supported (softmax and sigmoid are)",
                       STR_ARGS(config_json_shown(scoring)));
    if (scoring.bytes > 0 && str_is(scoring, "sigmoid") != rule->is_sigmoid)
        return err_set(error, ERR_INVALID, "scoring_func '%.*s' is not supported here (%s is)",
                       STR_ARGS(scoring), rule->is_sigmoid ? "sigmoid" : "softmax");
    rule->groups_by_best = !rule->has_bias;
    if (method.bytes == 0) {
        if (!rule->has_bias) rule->groups = 0; /* as the class's default says: greedy */
        return OK;
    }
    const bool is_greedy = str_is(method, "greedy");
    if (!is_greedy && !str_is(method, "group_limited_greedy") && !str_is(method, "noaux_tc"))
        return err_set(
            error, ERR_INVALID,
            "topk_method '%.*s' is not supported (greedy, group_limited_greedy and noaux_tc are)",
            STR_ARGS(config_json_shown(method)));
    if (str_is(method, "noaux_tc") != rule->is_sigmoid)
        return err_set(error, ERR_INVALID, "topk_method '%.*s' is not supported with %s",
                       STR_ARGS(method), rule->is_sigmoid ? "sigmoid" : "softmax");
    rule->has_bias = str_is(method, "noaux_tc");
    rule->groups_by_best = !rule->has_bias;
    if (is_greedy) rule->groups = 0;
    return OK;
}

enum err config_json_read_groups(struct model_config *config, const json_t *text,
                                 const struct family *family, struct error *error) {
    struct routing_rule *rule = &config->routing;
    uint32_t shared = family->shared_experts;
    rule->groups = family->groups;
    rule->groups_used = family->groups_used;
    rule->scale = family->route_scale;
    enum err err = config_json_count(text, "n_group", CONFIG_EXPERTS_MAX, &rule->groups, error);
    if (err == OK)
        err = config_json_count(text, "topk_group", CONFIG_EXPERTS_MAX, &rule->groups_used, error);
    if (err == OK)
        err = config_json_number(text, "routed_scaling_factor", 1e-3, 1e3, &rule->scale, error);
    if (err == OK) err = read_method(config, text, error);
    /* What DeepSeek's code and transformers make of it is not the same. */
    if (err == OK && !rule->is_sigmoid && config->expert_weights_sum_to_one)
        err = err_set(error, ERR_INVALID, "norm_topk_prob true is not supported with softmax");
    if (rule->groups == 1) rule->groups = 0;
    const json_t *stated = json_object_get(text, "n_shared_experts");
    if (json_is_null(stated) || (json_is_integer(stated) && json_integer_value(stated) == 0))
        shared = 0;
    else if (err == OK)
        err = config_json_count(text, "n_shared_experts", CONFIG_EXPERTS_MAX, &shared, error);
    if (err == OK) err = config_set_shared_experts(config, "n_shared_experts", shared, error);
    config->layers_skipped = 1; /* guesses a further token */
    stated = json_member(text, "num_nextn_predict_layers");
    if (json_is_integer(stated) && json_integer_value(stated) == 0)
        config->layers_skipped = 0;
    else if (err == OK)
        err = config_json_count(text, "num_nextn_predict_layers", CONFIG_LAYERS_MAX,
                                &config->layers_skipped, error);
    return err;
}

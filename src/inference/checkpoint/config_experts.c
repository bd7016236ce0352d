/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_experts.h"

#include "checkpoint/config_key.h"

#include <stdio.h>

/* The numbers of expert_gating_func. */
#define GATING_NONE 0u /* the family's */
#define GATING_SOFTMAX 1u
#define GATING_SIGMOID 2u

static enum err refuse_experts(const struct model_config *config, const struct gguf *gguf,
                               struct error *error) {
    uint32_t stated = 0;
    enum err err =
        gguf_get_u32(gguf, config_key_of(config, gguf, "expert_count").text, &stated, error);
    if (err != OK || stated == 0) return err;
    return err_set(error, ERR_INVALID,
                   "a mixture of %u experts is not supported in architecture %s", stated,
                   config->architecture->name);
}

/* The columns of the experts' last product; 0: the file has them otherwise. */
static uint32_t width_of_tensor(const struct model_config *config, const struct gguf *gguf) {
    for (uint32_t i = 0; i < config->layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.ffn_down_exps.weight", i);
        const struct gguf_tensor *tensor = gguf_tensor_find(gguf, str_from(name));
        if (tensor && tensor->axis_count == 3 && tensor->axes[0] <= CONFIG_FFN_MAX)
            return (uint32_t)tensor->axes[0];
    }
    return 0;
}

/* Ollama's files of gpt-oss, which has no other feed-forward, have the shorter key, and those of
 * Qwen 3 with experts have none. */
static enum err read_width(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    const bool is_stated = config_key_exists(config, gguf, "expert_feed_forward_length");
    const bool is_other = !is_stated && config->architecture->experts_are_as_wide;
    const uint32_t width = is_stated || is_other ? 0 : width_of_tensor(config, gguf);
    if (width > 0) {
        config->expert_ffn = width;
        return OK;
    }
    return config_key_count(config, gguf,
                            is_other ? "feed_forward_length" : "expert_feed_forward_length",
                            CONFIG_FFN_MAX, &config->expert_ffn, error);
}

static enum err read_widths(struct model_config *config, const struct gguf *gguf,
                            struct error *error) {
    enum err err = read_width(config, gguf, error);
    if (err != OK || !config->architecture->has_shared_expert) return err;
    if (config->architecture->shared_experts_are_counted) {
        const struct config_key key = config_key_of(config, gguf, "expert_shared_count");
        uint32_t count = 0;
        err = gguf_get_u32(gguf, key.text, &count, error);
        return err == OK ? config_set_shared_experts(config, key.text, count, error) : err;
    }
    return config_key_count(config, gguf, "expert_shared_feed_forward_length", CONFIG_FFN_MAX,
                            &config->shared_ffn, error);
}

/* The first layers may have none. */
static enum err read_layers(struct model_config *config, const struct gguf *gguf,
                            struct error *error) {
    const struct config_key key = config_key_of(config, gguf, "leading_dense_block_count");
    uint32_t dense = 0;
    if (config->architecture->has_single_halves) return OK; /* config_recurrent.c has them */
    enum err err = gguf_get_u32(gguf, key.text, &dense, error);
    if (err == OK && dense >= config->layers)
        err = err_set(error, ERR_INVALID, "%s is %u, but there are %u layers", key.text, dense,
                      config->layers);
    for (uint32_t i = dense; err == OK && i < config->layers; i++)
        config->list[i].ffn = FFN_EXPERTS;
    return err;
}

enum err config_set_shared_experts(struct model_config *config, const char *key, uint32_t count,
                                   struct error *error) {
    if (count > CONFIG_FFN_MAX / config->expert_ffn)
        return err_set(error, ERR_INVALID, "%s is %u: shared experts of %u are wider than %u", key,
                       count, config->expert_ffn, CONFIG_FFN_MAX);
    config->shared_ffn = count * config->expert_ffn;
    return OK;
}

enum err config_check_experts(const struct model_config *config, struct error *error) {
    const struct routing_rule *rule = &config->routing;
    if (config->experts_used > config->experts)
        return err_set(error, ERR_INVALID, "%u experts of a token are more than the %u experts",
                       config->experts_used, config->experts);
    if (rule->groups == 0) return OK;
    if (config->experts % rule->groups != 0 || config->experts / rule->groups < 2)
        return err_set(error, ERR_INVALID, "%u experts cannot be cut into %u groups",
                       config->experts, rule->groups);
    if (rule->groups_used < 1 || rule->groups_used > rule->groups)
        return err_set(error, ERR_INVALID, "%u groups of a token are not 1..%u", rule->groups_used,
                       rule->groups);
    if (config->experts_used > config->experts / rule->groups * rule->groups_used)
        return err_set(error, ERR_INVALID,
                       "%u experts of a token are more than %u of %u groups of experts have",
                       config->experts_used, rule->groups_used, rule->groups);
    return OK;
}

/* DeepSeek V3 and R1 choose among groups of experts, and so do V2 and Coder-V2 with 160 experts.
 * Files of llama.cpp's first converters and of Ollama's have no key for it. */
static void take_groups_of_family(struct model_config *config) {
    struct routing_rule *rule = &config->routing;
    const struct {
        uint32_t experts, groups, groups_used;
        bool is_sigmoid;
    } families[] = {{256, 8, 4, true}, {160, 8, 3, false}};
    if (!config->architecture->is_latent) return;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (config->experts != families[i].experts || rule->is_sigmoid != families[i].is_sigmoid)
            continue;
        rule->groups = families[i].groups;
        rule->groups_used = families[i].groups_used;
    }
}

/* How experts are chosen, where a file says it. */
static enum err read_rule(struct model_config *config, const struct gguf *gguf,
                          struct error *error) {
    struct routing_rule *rule = &config->routing;
    const uint32_t usual =
        config->architecture->router_is_sigmoid ? GATING_SIGMOID : GATING_SOFTMAX;
    uint32_t gating = usual;
    enum err err =
        gguf_get_u32(gguf, config_key_of(config, gguf, "expert_gating_func").text, &gating, error);
    if (gating == GATING_NONE) gating = usual;
    if (err == OK && gating != GATING_SOFTMAX && gating != GATING_SIGMOID)
        err = err_set(error, ERR_INVALID, "%s is %u: only 1 and 2 (softmax, sigmoid) are supported",
                      config_key_of(config, gguf, "expert_gating_func").text, gating);
    rule->is_sigmoid = rule->has_bias = gating == GATING_SIGMOID;
    rule->groups_by_best = !rule->has_bias;
    const struct config_key key = config_key_of(config, gguf, "expert_weights_scale");
    if (err == OK) err = gguf_get_f32(gguf, key.text, &rule->scale, error);
    if (err == OK && !(rule->scale >= 0.0f && rule->scale <= 1e3f))
        err = err_set(error, ERR_INVALID, "%s is not within 0..1000", key.text);
    if (err == OK)
        err = gguf_get_bool(gguf, config_key_of(config, gguf, "expert_weights_norm").text,
                            &config->expert_weights_sum_to_one, error);
    if (!config_key_exists(config, gguf, "expert_group_count")) take_groups_of_family(config);
    if (err == OK)
        err = gguf_get_u32(gguf, config_key_of(config, gguf, "expert_group_count").text,
                           &rule->groups, error);
    if (err == OK)
        err = gguf_get_u32(gguf, config_key_of(config, gguf, "expert_group_used_count").text,
                           &rule->groups_used, error);
    if (rule->groups == 1) rule->groups = 0;
    return err == OK ? config_check_experts(config, error) : err;
}

enum err config_read_experts(struct model_config *config, const struct gguf *gguf,
                             struct error *error) {
    if (config->architecture->has_v_norm) return OK; /* config_gemma.c reads them */
    if (config->architecture->ffn != FFN_EXPERTS) return refuse_experts(config, gguf, error);
    const struct architecture *without = config_without_experts(config->architecture);
    uint32_t stated = 0;
    enum err err =
        gguf_get_u32(gguf, config_key_of(config, gguf, "expert_count").text, &stated, error);
    if (err != OK) return err;
    if (without && stated == 0) {
        config->architecture = without;
        for (uint32_t i = 0; i < config->layers; i++)
            if (config->list[i].ffn == FFN_EXPERTS) config->list[i].ffn = without->ffn;
        return OK;
    }
    err =
        config_key_count(config, gguf, "expert_count", CONFIG_EXPERTS_MAX, &config->experts, error);
    if (err == OK)
        err = config_key_count(config, gguf, "expert_used_count", config->experts,
                               &config->experts_used, error);
    if (err == OK) err = read_widths(config, gguf, error);
    /* Most files have no key for it. */
    config->expert_weights_sum_to_one = !config->architecture->is_latent;
    config->gate_limit = 7.0f; /* none has for these */
    config->gate_alpha = 1.702f;
    if (err == OK) err = read_layers(config, gguf, error);
    return err == OK ? read_rule(config, gguf, error) : err;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_json_families: the table of model_type, for the files that read a config.json.
 *
 * Thread: any; constant.
 * Memory: none. */

#include "checkpoint/config_json.h"

/* Which layers see a window only. */
enum window_rule {
    WINDOW_NEVER,
    WINDOW_EVERYWHERE,   /* when sliding_window is not null */
    WINDOW_ASKED_OF_ALL, /* in every layer, when use_sliding_window says so */
    WINDOW_ASKED,        /* from layer max_window_layers on, when use_sliding_window says so */
    WINDOW_PERIODIC,     /* all but each sliding_window_pattern-th */
};

/* A model_type and the defaults of its configuration class. */
struct family {
    const char *model_type;
    const char *architecture; /* the architecture in config.h */
    uint32_t heads;           /* 0: must be there */
    uint32_t kv_heads;        /* 0: as many as heads */
    uint32_t head_dim;        /* 0: width / heads */
    uint32_t context;
    enum window_rule window_rule;
    uint32_t window;
    uint32_t window_period; /* WINDOW_PERIODIC */
    struct json_rope_defaults rope;
    struct json_rope_needs rope_needs;
    bool head_is_tied;
    bool norms_lack_one;
    float eps; /* 0: 1e-6 */
    /* A family with experts has: their number, those of a token, their width (0: that of a dense
     * layer), the width of the shared one, and the dense layers before the others. */
    uint32_t experts, experts_used, expert_ffn, shared_ffn, dense_layers;
    bool expert_weights_sum_to_one, router_is_sigmoid;
    bool always_sums_to_one; /* its class passes norm_topk_prob over */
    uint32_t shared_experts; /* a count, as DeepSeek and GLM have; 0: the fields are others */
    uint32_t groups, groups_used;
    float route_scale;
    float attention_softcap, softcap; /* 0: no cap */
    bool scales_by_scalar; /* query_pre_attn_scalar, by default 256, instead of head_dim */
    const char *activation_key;
    const char *activation;
    /* Another key for it, in whose values "gelu" means gelu_pytorch_tanh; NULL: none. */
    const char *older_activation_key;
};

/* The name of row `index`, from 0 on: families, models with other parts, encoders; NULL behind the
 * last. */
const char *config_json_model_type(size_t index);

/* The family of a config.json, and the object with its fields: a model that also sees has its text
 * model as a family of its own, in text_config. ERR_INVALID for no object, or a type that is not in
 * the table. */
enum err config_json_choose_family(const json_t *root, const struct family **ret_family,
                                   const json_t **ret_text, struct error *error) MUST_CHECK;

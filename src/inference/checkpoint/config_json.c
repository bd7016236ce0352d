/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_json.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define WINDOW_PERIOD_MAX 1024u
#define SHOWN_BYTES 64

/* Which layers see a window only. */
enum window_rule {
    WINDOW_NEVER,
    WINDOW_EVERYWHERE, /* when sliding_window is not null */
    WINDOW_ASKED,      /* from layer max_window_layers on, when use_sliding_window says so */
    WINDOW_PERIODIC,   /* all but each sliding_window_pattern-th */
};

/* Defaults that several families share. */
#define SILU .activation_key = "hidden_act", .activation = "silu"
#define WITH_SILU .rope = {10000.0f, 10000.0f}, SILU
#define OF_GEMMA                                                                                   \
    .heads = 8, .kv_heads = 4, .head_dim = 256, .window_rule = WINDOW_PERIODIC, .window = 4096,    \
    .head_is_tied = true, .norms_lack_one = true, .scales_by_scalar = true,                        \
    .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh"

/* Sources: the defaults of the configuration classes of transformers 5. Sizes that every file
 * states have no default; 0 where the last column of the struct says so. */
static const struct family {
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
    bool head_is_tied;
    bool norms_lack_one;
    float eps;                        /* 0: 1e-6 */
    float attention_softcap, softcap; /* 0: no cap */
    bool scales_by_scalar; /* query_pre_attn_scalar, by default 256, instead of head_dim */
    const char *activation_key;
    const char *activation;
} families[] = {
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
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .context = 32768,
     .window_rule = WINDOW_ASKED,
     .window = 4096,
     WITH_SILU},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
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
              {"mistral3", "mistral", false},
              {"qwen2_5_vl", "qwen2_5_vl_text", true},
              {"qwen3_vl", "qwen3_vl_text", false},
              {"qwen3_5", "qwen3_5_text", false},
              {"qwen3_5_moe", "qwen3_5_moe_text", false}};

/* ---- fields ---- */

static enum err required_count(const json_t *object, const char *key, uint32_t max,
                               uint32_t *ret_value, struct error *error) {
    if (!json_member(object, key)) return err_set(error, ERR_INVALID, "%s is missing", key);
    return config_json_count(object, key, max, ret_value, error);
}

/* A file's text for a sentence, if it is printable. */
static struct str shown(struct str text) {
    bool is_printable = text.bytes > 0 && text.bytes <= SHOWN_BYTES;
    for (size_t i = 0; is_printable && i < text.bytes; i++)
        is_printable = text.at[i] >= 0x20 && text.at[i] < 0x7F;
    return is_printable ? text : STR("?");
}

/* Refuses a true field, which asks for a part that quern does not have. */
static enum err refuse_when_true(const json_t *text, const char *key, struct error *error) {
    bool value = false;
    enum err err = config_json_bool(text, key, &value, error);
    if (err == OK && value) err = err_set(error, ERR_INVALID, "%s true is not supported", key);
    return err;
}

/* ---- which model ---- */

static const struct family *find_family(struct str model_type) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (str_is(model_type, families[i].model_type)) return &families[i];
    return NULL;
}

/* The family, and the object with its fields. */
static enum err choose_family(const json_t *root, const struct family **ret_family,
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
    return err_set(
        error, ERR_INVALID,
        "model_type '%.*s' is not supported (llama, mistral, ministral3, qwen2, qwen2_5_vl, qwen3, "
        "qwen3_vl, qwen3_moe, qwen3_5, qwen3_5_moe, gpt_oss, gemma, gemma2, gemma3, gemma3_text, "
        "gemma4, phi3, glm4, granite, seed_oss, smollm3, olmo2, olmo3, exaone4 and bert are)",
        STR_ARGS(shown(type)));
}

/* Checks fields that all families share and that no flag expresses. */
static enum err refuse_unknown(const json_t *text, const struct family *family,
                               struct error *error) {
    struct str activation = json_member_str(text, family->activation_key);
    if (activation.bytes > 0 && !str_is(activation, family->activation))
        return err_set(error, ERR_INVALID, "%s '%.*s' is not supported (%s is)",
                       family->activation_key, STR_ARGS(shown(activation)), family->activation);
    static const char *const flags[] = {"attention_bias", "attention_out_bias", "mlp_bias",
                                        "use_bidirectional_attention"};
    const struct architecture *architecture = config_architecture(str_from(family->architecture));
    const bool may_have_bias = architecture->has_qkv_bias || architecture->may_have_qkv_bias;
    const bool is_for_pictures =
        str_is(json_member_str(text, "use_bidirectional_attention"), "vision");
    for (size_t i = may_have_bias; i < sizeof flags / sizeof *flags; i++) {
        if (i == 3 && architecture->has_v_norm && is_for_pictures) continue;
        enum err err = refuse_when_true(text, flags[i], error);
        if (err != OK) return err;
    }
    if (architecture->has_output_bias && json_is_false(json_member(text, "attention_bias")))
        return err_set(error, ERR_INVALID, "attention_bias false is not supported here");
    /* A family whose class has no such cap would pass over the field. */
    if (family->attention_softcap == 0.0f && json_member(text, "attn_logit_softcapping"))
        return err_set(error, ERR_INVALID, "attn_logit_softcapping is not supported here");
    static const char *const fields[] = {"kv_lora_rank", "num_local_experts", "num_experts"};
    const bool has_experts = architecture->ffn == FFN_EXPERTS || architecture->has_v_norm;
    for (size_t i = 0; i < (has_experts ? 1 : sizeof fields / sizeof *fields); i++)
        if (json_member(text, fields[i]))
            return err_set(error, ERR_INVALID, "%s is not supported", fields[i]);
    return OK;
}

/* ---- sizes ---- */

static enum err read_heads(struct model_config *config, const json_t *text,
                           const struct family *family, struct error *error) {
    config->heads = family->heads;
    enum err err =
        config_json_count(text, "num_attention_heads", CONFIG_HEADS_MAX, &config->heads, error);
    if (err != OK) return err;
    if (config->heads == 0) return err_set(error, ERR_INVALID, "num_attention_heads is missing");
    config->kv_heads = family->kv_heads > 0 ? family->kv_heads : config->heads;
    err =
        config_json_count(text, "num_key_value_heads", CONFIG_HEADS_MAX, &config->kv_heads, error);
    if (err != OK) return err;
    assert(config->kv_heads > 0);
    if (config->heads % config->kv_heads != 0)
        return err_set(error, ERR_INVALID, "%u attention heads cannot share %u key-value heads",
                       config->heads, config->kv_heads);
    config->head_dim = family->head_dim > 0 ? family->head_dim : config->width / config->heads;
    bool is_stated = family->head_dim > 0 || json_member(text, "head_dim");
    if (!is_stated && config->width % config->heads != 0)
        return err_set(error, ERR_INVALID, "a hidden_size of %u cannot be cut into %u heads",
                       config->width, config->heads);
    err = config_json_count(text, "head_dim", CONFIG_HEAD_DIM_MAX, &config->head_dim, error);
    if (err != OK) return err;
    if (config->head_dim % 8 != 0 || config->head_dim > CONFIG_HEAD_DIM_MAX ||
        config->head_dim == 0)
        return err_set(error, ERR_INVALID,
                       "heads of %u are not supported: no multiple of 8 up to %u", config->head_dim,
                       CONFIG_HEAD_DIM_MAX);
    return OK;
}

static enum err read_sizes(struct json_config *json, const json_t *text,
                           const struct family *family, struct error *error) {
    struct model_config *config = &json->config;
    config->context_max = family->context;
    enum err err =
        required_count(text, "num_hidden_layers", CONFIG_LAYERS_MAX, &config->layers, error);
    if (err == OK)
        err = required_count(text, "hidden_size", CONFIG_WIDTH_MAX, &config->width, error);
    /* The width of layers without experts. */
    if (err == OK &&
        (config->architecture->ffn != FFN_EXPERTS || json_member(text, "intermediate_size")))
        err = required_count(text, "intermediate_size", CONFIG_FFN_MAX, &config->ffn, error);
    if (err == OK)
        err = config_json_count(text, "max_position_embeddings", CONFIG_CONTEXT_MAX,
                                &config->context_max, error);
    if (err == OK)
        err = config_json_count(text, "vocab_size", CONFIG_VOCAB_MAX, &json->vocab_size, error);
    if (err == OK && config->architecture->ffn == FFN_EXPERTS)
        err = config_json_read_experts(config, text, error);
    if (err == OK && config->architecture->is_hybrid)
        err = config_json_read_recurrent(config, text, error);
    return err == OK ? read_heads(config, text, family, error) : err;
}

/* ---- attention ---- */

/* Reads a list with the type of each layer. */
static enum err read_layer_types(const struct model_config *config, const json_t *list,
                                 bool *ret_is_local, struct error *error) {
    if (json_array_size(list) != config->layers)
        return err_set(error, ERR_INVALID, "layer_types is no list of %u layers", config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        struct str type = json_str(json_array_get(list, i));
        ret_is_local[i] = str_is(type, "sliding_attention");
        if (!ret_is_local[i] && !str_is(type, "full_attention"))
            return err_set(error, ERR_INVALID, "layer_types: '%.*s' is not supported",
                           STR_ARGS(shown(type)));
    }
    return OK;
}

/* Tells whether any layer has a window, and which layers by the family's rule. */
static enum err read_window_rule(const struct model_config *config, const json_t *text,
                                 const struct family *family, bool *ret_has, bool *ret_is_local,
                                 struct error *error) {
    uint32_t from = 0, period = 0;
    *ret_has = family->window_rule != WINDOW_NEVER;
    enum err err = OK;
    if (family->window_rule == WINDOW_PERIODIC && !json_member(text, "layer_types")) {
        period = family->window_period;
        err = config_json_count(text, "_sliding_window_pattern", WINDOW_PERIOD_MAX, &period, error);
        if (err == OK)
            err = config_json_count(text, "sliding_window_pattern", WINDOW_PERIOD_MAX, &period,
                                    error);
    } else if (family->window_rule == WINDOW_ASKED) {
        from = 28;
        *ret_has = false;
        err = config_json_bool(text, "use_sliding_window", ret_has, error);
        const json_t *stated = json_member(text, "max_window_layers");
        if (err == OK && json_is_integer(stated) && json_integer_value(stated) == 0)
            from = 0;
        else if (err == OK)
            err = config_json_count(text, "max_window_layers", CONFIG_CONTEXT_MAX, &from, error);
    }
    config_local_layers(config->layers, from, period, ret_is_local);
    return err;
}

static enum err read_window(struct model_config *config, const json_t *text,
                            const struct family *family, struct error *error) {
    bool has_window, is_local[CONFIG_LAYERS_MAX];
    uint32_t keys = family->window;
    const json_t *window = json_object_get(text, "sliding_window");
    enum err err = read_window_rule(config, text, family, &has_window, is_local, error);
    if (err != OK || !has_window || json_is_null(window)) return err;
    err = config_json_count(text, "sliding_window", CONFIG_CONTEXT_MAX, &keys, error);
    const json_t *types = json_member(text, "layer_types");
    if (err == OK && types) err = read_layer_types(config, types, is_local, error);
    if (err == OK) config_set_windows(config, keys, is_local);
    return err;
}

/* A null stands for no window. */
static enum err read_softcap(const json_t *text, const char *key, float fallback,
                             float *ret_softcap, struct error *error) {
    *ret_softcap = json_is_null(json_object_get(text, key)) ? 0.0f : fallback;
    return config_json_number(text, key, 1e-3, 1e6, ret_softcap, error);
}

static enum err read_attention(struct model_config *config, const json_t *text,
                               const struct family *family, struct error *error) {
    float scalar = family->scales_by_scalar ? 256.0f : (float)config->head_dim;
    config->eps = family->eps > 0 ? family->eps : 1e-6f;
    enum err err = config_json_number(text, "rms_norm_eps", 1e-20, 0.1, &config->eps, error);
    if (err == OK && family->scales_by_scalar)
        err = config_json_number(text, "query_pre_attn_scalar", 1e-6, 1e6, &scalar, error);
    if (err == OK)
        err = read_softcap(text, "attn_logit_softcapping", family->attention_softcap,
                           &config->attention_softcap, error);
    if (err == OK)
        err =
            read_softcap(text, "final_logit_softcapping", family->softcap, &config->softcap, error);
    config->attention_scale = 1.0f / sqrtf(scalar);
    return err == OK ? read_window(config, text, family, error) : err;
}

/* In a model with other parts the outer object counts as well. */
static enum err read_tie(struct json_config *json, const json_t *root, const json_t *text,
                         const struct family *family, struct error *error) {
    json->head_is_tied = family->head_is_tied;
    enum err err = config_json_bool(root, "tie_word_embeddings", &json->head_is_tied, error);
    return err == OK ? config_json_bool(text, "tie_word_embeddings", &json->head_is_tied, error)
                     : err;
}

enum err config_json_init(struct json_config *ret_config, const json_t *root, struct error *error) {
    const struct family *family;
    const json_t *text;
    *ret_config = (struct json_config){.vocab_size = 0};
    if (json_is_object(root) && str_is(json_member_str(root, "model_type"), "bert")) {
        ret_config->config.architecture = config_architecture(STR("bert"));
        return config_json_read_encoder(ret_config, root, error);
    }
    enum err err = choose_family(root, &family, &text, error);
    if (err == OK) err = refuse_unknown(text, family, error);
    if (err != OK) return err;
    struct model_config *config = &ret_config->config;
    config->architecture = config_architecture(str_from(family->architecture));
    ret_config->norms_lack_one = family->norms_lack_one;
    ret_config->is_part_of_another = text != root || json_member(root, "vision_config");
    err = read_sizes(ret_config, text, family, error);
    if (err == OK) err = read_attention(config, text, family, error);
    bool is_causal = true;
    if (err == OK) err = config_json_bool(text, "is_causal", &is_causal, error);
    config->is_bidirectional = !is_causal;
    if (err == OK && config->architecture->has_v_norm)
        err = config_json_read_gemma(config, text, error);
    if (err == OK) err = config_json_read_rope(ret_config, text, &family->rope, error);
    if (err == OK) err = config_json_read_multipliers(config, text, error);
    if (err == OK) err = config_json_read_unrotated(config, text, error);
    if (err == OK) err = read_tie(ret_config, root, text, family, error);
    if (err == OK) err = config_json_read_quantisation(ret_config, root, error);
    return err;
}

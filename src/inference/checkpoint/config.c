/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config.h"

#include "checkpoint/config_experts.h"
#include "checkpoint/config_gemma.h"
#include "checkpoint/config_key.h"
#include "checkpoint/config_latent.h"
#include "checkpoint/config_recurrent.h"
#include "checkpoint/config_rope.h"
#include "checkpoint/gguf_names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES_MAX 128
#define POOLING_OF_RANKERS 4u /* pooling_type, next to those of enum pooling */

static enum err read_architecture(struct model_config *config, const struct gguf *gguf,
                                  struct error *error) {
    struct str name = {0};
    enum err err = gguf_get_str(gguf, "general.architecture", &name, error);
    if (err != OK) return err;
    if (name.bytes == 0) return err_set(error, ERR_INVALID, "general.architecture is missing");
    config->architecture = config_architecture(name);
    if (!config->architecture) {
        bool printable = name.bytes <= 64;
        for (size_t i = 0; printable && i < name.bytes; i++)
            printable = name.at[i] >= 0x20 && name.at[i] < 0x7F;
        char names[CONFIG_NAMES_BYTES];
        config_architecture_names(names);
        return err_set(error, ERR_INVALID, "architecture '%.*s' is not supported (%s are)",
                       printable ? (int)name.bytes : 1, printable ? name.at : "?", names);
    }
    uint32_t split_count = 1;
    err = gguf_get_u32(gguf, "split.count", &split_count, error);
    if (err == OK) err = config_keys_check(config, gguf, error);
    if (err != OK) return err;
    if (gguf_tensor_find(gguf, STR("blk.0.attn_q_norm.weight")))
        config->architecture = config_with_qk_norm(config->architecture);
    if (gguf_tensor_find(gguf, STR("dense.0.weight")))
        config->architecture = config_as_embedder(config->architecture);
    if (split_count > 1 && gguf_part_count(gguf) != split_count)
        return err_set(error, ERR_INVALID, "split.count is %u: the other parts are not here",
                       split_count);
    err = gguf_get_str(gguf, "general.name", &config->name, error);
    if (config->name.bytes > NAME_BYTES_MAX) config->name.bytes = NAME_BYTES_MAX;
    return err;
}

/* Published files of LFM2 state the width before its rounding; the tensors have the real one. */
static void take_real_width(struct model_config *config, const struct gguf *gguf) {
    const struct gguf_tensor *gate = gguf_tensor_find(gguf, STR("blk.0.ffn_gate.weight"));
    if (config->architecture->recurrent == MIXER_CONV && gate && gate->axis_count == 2 &&
        gate->axes[1] >= 1 && gate->axes[1] <= CONFIG_FFN_MAX)
        config->ffn = (uint32_t)gate->axes[1];
}

static enum err read_sizes(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    enum err err =
        config_key_count(config, gguf, "block_count", CONFIG_LAYERS_MAX, &config->layers, error);
    if (err == OK)
        err = config_key_count(config, gguf, "embedding_length", CONFIG_WIDTH_MAX, &config->width,
                               error);
    if (err == OK) err = config_read_recurrent(config, gguf, error);
    if (err == OK) err = config_read_experts(config, gguf, error);
    /* The width of layers without experts: a family without such layers may leave it out. */
    if (err == OK && !config->architecture->has_v_norm &&
        !config->architecture->has_single_halves &&
        (config->architecture->ffn != FFN_EXPERTS ||
         config_key_exists(config, gguf, "feed_forward_length")))
        err = config_key_count(config, gguf, "feed_forward_length", CONFIG_FFN_MAX, &config->ffn,
                               error);
    if (err == OK) take_real_width(config, gguf);
    if (err == OK)
        err = config_key_count(config, gguf, "context_length", CONFIG_CONTEXT_MAX,
                               &config->context_max, error);
    return err;
}

static enum err read_heads(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    enum err err = config_key_count(config, gguf, "attention.head_count", CONFIG_HEADS_MAX,
                                    &config->heads, error);
    if (err != OK) return err;
    if (config->architecture->is_latent) return config_read_latent(config, gguf, error);
    config->kv_heads = config->heads;
    struct config_key kv_key = config_key_of(config, gguf, "attention.head_count_kv");
    if (config->architecture->recurrent != MIXER_ATTENTION)
        err = config_read_kv_heads(config, gguf, error);
    else if (gguf_find(gguf, kv_key.text) && !config->architecture->has_v_norm)
        err = config_key_count(config, gguf, "attention.head_count_kv", CONFIG_HEADS_MAX,
                               &config->kv_heads, error);
    if (err != OK) return err;
    if (config->heads % config->kv_heads != 0)
        return err_set(error, ERR_INVALID, "%u attention heads cannot share %u key-value heads",
                       config->heads, config->kv_heads);

    struct config_key key = config_key_of(config, gguf, "attention.key_length");
    uint32_t known = config->architecture->head_dim;
    config->head_dim = known > 0 ? known : config->width / config->heads;
    if (!gguf_find(gguf, key.text) && known == 0 && config->width % config->heads != 0)
        return err_set(error, ERR_INVALID, "a width of %u cannot be cut into %u heads",
                       config->width, config->heads);
    err = gguf_get_u32(gguf, key.text, &config->head_dim, error);
    if (err == OK)
        err = config_key_check_range(key.text, config->head_dim, CONFIG_HEAD_DIM_MAX, error);
    if (err != OK) return err;
    if (config->head_dim % 8 != 0)
        return err_set(error, ERR_INVALID, "heads of %u are not supported: no multiple of 8",
                       config->head_dim);
    bool is_whole =
        config->kv_heads == config->heads && config->heads * config->head_dim == config->width;
    if (config->architecture->is_encoder && !is_whole)
        return err_set(
            error, ERR_INVALID,
            "an encoder of %u heads and %u key-value heads of %u in a width of %u is not "
            "supported",
            config->heads, config->kv_heads, config->head_dim, config->width);
    uint32_t value_length = config->head_dim;
    key = config_key_of(config, gguf, "attention.value_length");
    err = gguf_get_u32(gguf, key.text, &value_length, error);
    if (err == OK && value_length != config->head_dim)
        err = err_set(error, ERR_INVALID, "%s is %u, not the key length %u", key.text, value_length,
                      config->head_dim);
    return err;
}

static enum err read_norm(struct model_config *config, const struct gguf *gguf,
                          struct error *error) {
    struct config_key key =
        config_key_of(config, gguf,
                      config->architecture->is_encoder || config->architecture->has_layer_norm
                          ? "attention.layer_norm_epsilon"
                          : "attention.layer_norm_rms_epsilon");
    config->eps = config->architecture->eps;
    if (config->eps == 0.0f && !gguf_find(gguf, key.text))
        return err_set(error, ERR_INVALID, "%s is missing", key.text);
    enum err err = gguf_get_f32(gguf, key.text, &config->eps, error);
    if (err == OK && !(config->eps > 0.0f && config->eps <= 0.1f))
        err = err_set(error, ERR_INVALID, "%s is %g, not above 0 and up to 0.1", key.text,
                      (double)config->eps);
    config->inner_eps = config->architecture->is_latent ? 1e-6f : config->eps;
    return err;
}

/* Reads a list with one flag or number per layer: whether the layer is local. */
static enum err read_local_layers(const struct model_config *config, const char *key,
                                  const struct gguf_value *list, bool *ret_is_local,
                                  struct error *error) {
    if (list->count != config->layers)
        return err_set(error, ERR_INVALID, "%s has %llu elements for %u layers", key,
                       (unsigned long long)list->count, config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        int64_t is_local = list->element == GGUF_BOOL ? list->at[i] != 0 : 0;
        if (list->element != GGUF_BOOL && !gguf_element_i64(list, i, &is_local))
            return err_set(error, ERR_INVALID, "%s is no list of flags", key);
        ret_is_local[i] = is_local != 0;
    }
    return OK;
}

/* Reads which layers have the window: as a list, or as the period of the layers without it. */
static enum err read_window_pattern(const struct model_config *config, const struct gguf *gguf,
                                    bool *ret_is_local, struct error *error) {
    struct config_key key = config_key_of(config, gguf, "attention.sliding_window_pattern");
    const struct gguf_value *pattern = gguf_find(gguf, key.text);
    uint32_t period = config->architecture->window_period;
    if (pattern && pattern->kind == GGUF_ARRAY)
        return read_local_layers(config, key.text, pattern, ret_is_local, error);
    enum err err = gguf_get_u32(gguf, key.text, &period, error);
    if (err == OK && period > CONFIG_LAYERS_MAX)
        err = err_set(error, ERR_INVALID, "%s is %u, over the %u layers that are supported",
                      key.text, period, CONFIG_LAYERS_MAX);
    config_local_layers_of(config, 0, period, ret_is_local);
    return err;
}

/* A window of a family that has none: only one that no sequence outgrows changes nothing. */
static enum err refuse_window(const struct model_config *config, const struct gguf *gguf,
                              struct error *error) {
    uint32_t window = 0;
    struct config_key key = config_key_of(config, gguf, "attention.sliding_window");
    enum err err = gguf_get_u32(gguf, key.text, &window, error);
    if (err == OK && window > 0 && window < config->context_max)
        return err_set(error, ERR_INVALID, "%s is %u: not supported here", key.text, window);
    return err;
}

static enum err read_window(struct model_config *config, const struct gguf *gguf,
                            struct error *error) {
    const struct architecture *architecture = config->architecture;
    if (!architecture->has_window && !architecture->may_have_window)
        return refuse_window(config, gguf, error);
    struct config_key key = config_key_of(config, gguf, "attention.sliding_window");
    if (architecture->has_window && !gguf_find(gguf, key.text))
        return err_set(error, ERR_INVALID, "%s is missing", key.text);
    bool is_local[CONFIG_LAYERS_MAX];
    uint32_t window = 0;
    enum err err = read_window_pattern(config, gguf, is_local, error);
    if (err == OK) err = gguf_get_u32(gguf, key.text, &window, error);
    if (err != OK || (window == 0 && architecture->may_have_window)) return err;
    err = config_key_check_range(key.text, window, CONFIG_CONTEXT_MAX, error);
    if (err == OK) config_set_windows(config, window, is_local);
    return err;
}

static enum err read_softcap(const struct model_config *config, const struct gguf *gguf,
                             const char *suffix, float fallback, float *ret_softcap,
                             struct error *error) {
    struct config_key key = config_key_of(config, gguf, suffix);
    *ret_softcap = fallback;
    enum err err = gguf_get_f32(gguf, key.text, ret_softcap, error);
    if (err == OK && !(*ret_softcap >= 0.0f && *ret_softcap <= 1e6f))
        err = err_set(error, ERR_INVALID, "%s is not within 0..1000000", key.text);
    return err;
}

/* Ollama's first converter for Gemma 3 wrote 30 where the model's config.json has no cap. Only that
 * converter called the base rope.global.freq_base. */
static bool softcap_is_made_up(const struct model_config *config, const struct gguf *gguf) {
    return config->architecture->has_local_rope && config->softcap == 30.0f &&
           config_key_exists(config, gguf, "rope.global.freq_base");
}

/* A factor of the logits. */
static enum err read_logit_scale(struct model_config *config, const struct gguf *gguf,
                                 struct error *error) {
    struct config_key key = config_key_of(config, gguf, "logit_scale");
    config->output_scale = 1.0f;
    enum err err = gguf_get_f32(gguf, key.text, &config->output_scale, error);
    if (err == OK && !(config->output_scale >= 1e-4f && config->output_scale <= 1e4f))
        err = err_set(error, ERR_INVALID, "%s is not within 0.0001..10000", key.text);
    return err;
}

/* The numbers of the activation, one list for each. */
static enum err read_xielu(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    for (size_t i = 0; config->architecture->activation == ACTIVATION_XIELU && i < 4; i++) {
        const struct gguf_value *list = gguf_find(gguf, keys[i]);
        const bool is_list = list && list->kind == GGUF_ARRAY && list->element == GGUF_F32 &&
                             list->count >= config->layers;
        const bool is_number = list && list->kind == GGUF_F32;
        if (!is_list && !is_number)
            return err_set(error, ERR_INVALID, "%s is no list of %u numbers", keys[i],
                           config->layers);
        for (uint32_t layer = 0; layer < config->layers; layer++) {
            const float value = gguf_element_f32(list, is_list ? layer : 0);
            if (!isfinite(value))
                return err_set(error, ERR_INVALID, "%s: element %u is no finite number", keys[i],
                               layer);
            config->list[layer].xielu[i] = value;
        }
    }
    return OK;
}

/* Reads Granite's multipliers. A logit is divided by the last. */
static enum err read_multipliers(struct model_config *config, const struct gguf *gguf,
                                 struct error *error) {
    static const char *const suffixes[] = {"embedding_scale", "residual_scale", "logit_scale"};
    float values[3] = {1.0f, 1.0f, 1.0f};
    if (config->architecture->logits_are_scaled) return read_logit_scale(config, gguf, error);
    if (!config->architecture->has_multipliers) return OK;
    for (size_t i = 0; i < 3; i++) {
        struct config_key key = config_key_of(config, gguf, suffixes[i]);
        enum err err = gguf_get_f32(gguf, key.text, &values[i], error);
        if (err != OK) return err;
        if (!(values[i] >= 1e-4f && values[i] <= 1e4f))
            return err_set(error, ERR_INVALID, "%s is not within 0.0001..10000", key.text);
    }
    config->embedding_scale = values[0];
    config->output_scale = 1.0f / values[2];
    config_set_residual(config, values[1]);
    return OK;
}

static enum err read_attention(struct model_config *config, const struct gguf *gguf,
                               struct error *error) {
    bool is_wide = config->layers == config->architecture->wide_scale_layers;
    config->attention_scale =
        1.0f / sqrtf((float)(is_wide ? config->width / config->heads : config->head_dim));
    if (config->architecture->has_v_norm) config->attention_scale = 1.0f;
    if (config->architecture->is_latent) config_set_latent_scale(config);
    struct config_key key = config_key_of(config, gguf, "attention.scale");
    enum err err = gguf_get_f32(gguf, key.text, &config->attention_scale, error);
    if (err == OK && !(config->attention_scale > 0.0f && config->attention_scale <= 1e3f))
        err = err_set(error, ERR_INVALID, "%s is not above 0 and up to 1000", key.text);
    if (err == OK)
        err = read_softcap(config, gguf, "attn_logit_softcapping",
                           config->architecture->attention_softcap, &config->attention_softcap,
                           error);
    if (err == OK)
        err = read_softcap(config, gguf, "final_logit_softcapping", config->architecture->softcap,
                           &config->softcap, error);
    if (err == OK && softcap_is_made_up(config, gguf)) config->softcap = 0.0f;
    if (err == OK) err = read_multipliers(config, gguf, error);
    if (err == OK) err = read_xielu(config, gguf, error);
    if (err == OK) config_set_unrotated(config, config->architecture->unrotated_period);
    return err == OK ? read_window(config, gguf, error) : err;
}

/* The head of a ranker, by the tensor of its labels. One whose vocabulary is SentencePiece's is of
 * XLM-RoBERTa, which a GGUF calls bert; pairs have other marks there. */
static enum err read_labels(struct model_config *config, const struct gguf *gguf,
                            struct error *error) {
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, STR("cls.output.weight"));
    const bool may_have = config->architecture->label_form != LABEL_FORM_PLAIN;
    struct str vocabulary = {0};
    if (!tensor || !may_have) return OK;
    const uint64_t rows = tensor->axis_count > 1 ? tensor->axes[1] : 1;
    if (tensor->axis_count > 2 || tensor->axes[0] != config->width || rows < 1 ||
        rows > CONFIG_LABELS_MAX)
        return err_set(error, ERR_INVALID, "tensor cls.output.weight is no %u x (1 to %u labels)",
                       config->width, CONFIG_LABELS_MAX);
    config->labels = (uint32_t)rows;
    enum err err = gguf_get_str(gguf, "tokenizer.ggml.model", &vocabulary, error);
    if (err == OK && str_is(vocabulary, "t5") && config->architecture->is_encoder)
        config->architecture = config_architecture(STR("xlm-roberta"));
    return err;
}

/* Reads the keys for embeddings. */
static enum err read_pooling(struct model_config *config, const struct gguf *gguf,
                             struct error *error) {
    uint32_t pooling = POOLING_NONE;
    bool is_causal = !config->architecture->is_encoder && !config->architecture->sees_both;
    struct config_key key = config_key_of(config, gguf, "pooling_type");
    enum err err = gguf_get_u32(gguf, key.text, &pooling, error);
    if (err == OK)
        err = gguf_get_bool(gguf, config_key_of(config, gguf, "attention.causal").text, &is_causal,
                            error);
    if (err != OK) return err;
    const bool ranks = gguf_tensor_find(gguf, STR("cls.output.weight")) != NULL;
    if (pooling == POOLING_OF_RANKERS && ranks) /* as llama.cpp computes it */
        pooling = config->architecture->label_form == LABEL_FORM_NORM ? POOLING_MEAN : POOLING_CLS;
    if (pooling > POOLING_LAST)
        return err_set(error, ERR_INVALID,
                       "%s is %u: only 0 to 3 (none, mean, cls, last) are supported", key.text,
                       pooling);
    if (is_causal && config->architecture->is_encoder)
        return err_set(error, ERR_INVALID, "%s is true, which no encoder is",
                       config_key_of(config, gguf, "attention.causal").text);
    config->pooling = (enum pooling)pooling;
    config->is_bidirectional = !is_causal;
    if (config->architecture->sees_both) config_center_windows(config);
    return OK;
}

/* Products behind the pooling, by their tensors. Ollama's store has them under names of its own. */
static enum err read_dense(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    static const char *const names[CONFIG_DENSE_MAX] = {"dense_2.weight", "dense_3.weight"};
    if (!config->architecture->sees_both) return OK;
    for (uint32_t i = 0; i < CONFIG_DENSE_MAX; i++) {
        struct tensor_name name;
        snprintf(name.text, sizeof name.text, "%s", names[i]);
        gguf_name_spell(gguf, &name);
        const struct gguf_tensor *tensor = gguf_tensor_find(gguf, str_from(name.text));
        if (!tensor) return OK;
        if (tensor->axis_count != 2 || tensor->axes[0] != config_dense_width(config, i) ||
            tensor->axes[1] < 1 || tensor->axes[1] > CONFIG_FFN_MAX)
            return err_set(error, ERR_INVALID, "tensor %s is %llu x %llu, not %u x (up to %u)",
                           name.text, (unsigned long long)tensor->axes[0],
                           (unsigned long long)tensor->axes[1], config_dense_width(config, i),
                           CONFIG_FFN_MAX);
        config->dense_widths[i] = (uint32_t)tensor->axes[1];
    }
    return OK;
}

/* An encoder's token types: only the first is ever used, for a text that is no pair. */
static enum err read_token_types(struct model_config *config, const struct gguf *gguf,
                                 struct error *error) {
    if (!config->architecture->is_encoder) return OK;
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, STR("token_types.weight"));
    if (!tensor) return err_set(error, ERR_INVALID, "tensor token_types.weight is missing");
    if (tensor->axes[1] > 1024)
        return err_set(error, ERR_INVALID, "tensor token_types.weight has more than 1024 rows");
    config->token_types = (uint32_t)tensor->axes[1];
    return OK;
}

/* Reads the size of the vocabulary from the embedding, whatever the tokenizer has. */
static enum err read_vocab_rows(struct model_config *config, const struct gguf *gguf,
                                size_t token_count, struct error *error) {
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, STR("token_embd.weight"));
    if (!tensor) return err_set(error, ERR_INVALID, "tensor token_embd.weight is missing");
    if (tensor->axis_count != 2 || tensor->axes[0] != config->width ||
        tensor->axes[1] > CONFIG_VOCAB_MAX)
        return err_set(error, ERR_INVALID,
                       "tensor token_embd.weight is %llu x %llu, not %u x (up to %u tokens)",
                       (unsigned long long)tensor->axes[0], (unsigned long long)tensor->axes[1],
                       config->width, CONFIG_VOCAB_MAX);
    if (tensor->axes[1] < token_count)
        return err_set(error, ERR_INVALID, "tensor token_embd.weight has %llu rows for %zu tokens",
                       (unsigned long long)tensor->axes[1], token_count);
    config->vocab_rows = (uint32_t)tensor->axes[1];
    config->token_count = (uint32_t)token_count;
    return OK;
}

enum err config_init(struct model_config *ret_config, const struct gguf *gguf, size_t token_count,
                     struct error *error) {
    struct model_config config = {0};
    enum err err = read_architecture(&config, gguf, error);
    if (err == OK) err = read_sizes(&config, gguf, error);
    if (err == OK) err = read_heads(&config, gguf, error);
    if (err == OK && (!config.architecture->is_encoder || config.architecture->is_rotary_encoder))
        err = config_read_rope(&config, gguf, error);
    if (err == OK) err = read_norm(&config, gguf, error);
    if (err == OK) err = read_attention(&config, gguf, error);
    if (err == OK && config.architecture->has_v_norm) err = config_read_gemma(&config, gguf, error);
    if (err == OK) err = read_pooling(&config, gguf, error);
    if (err == OK) err = read_dense(&config, gguf, error);
    if (err == OK) err = read_token_types(&config, gguf, error);
    if (err == OK) err = read_vocab_rows(&config, gguf, token_count, error);
    if (err == OK) err = read_labels(&config, gguf, error);
    if (err == OK) *ret_config = config;
    return err;
}

bool pooling_of_name(struct str name, enum pooling *ret_pooling) {
    static const char *const names[] = {
        [POOLING_MEAN] = "mean", [POOLING_CLS] = "cls", [POOLING_LAST] = "last"};
    for (int i = POOLING_MEAN; i <= POOLING_LAST; i++) {
        if (!str_is(name, names[i])) continue;
        *ret_pooling = (enum pooling)i;
        return true;
    }
    return false;
}

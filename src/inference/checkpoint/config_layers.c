/* SPDX-License-Identifier: Apache-2.0 */

/* The layers of a config: their windows, sizes and rotations. */

#include "checkpoint/config.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

void config_local_layers(uint32_t layers, uint32_t from, uint32_t period,
                         bool ret_is_local[CONFIG_LAYERS_MAX]) {
    for (uint32_t i = 0; i < layers; i++)
        ret_is_local[i] = i >= from && (period == 0 || (i + 1) % period != 0);
}

void config_local_layers_of(const struct model_config *config, uint32_t from, uint32_t period,
                            bool ret_is_local[CONFIG_LAYERS_MAX]) {
    config_local_layers(config->layers, from, period, ret_is_local);
    for (uint32_t i = 0; config->architecture->full_comes_first && i < config->layers; i++)
        ret_is_local[i] = period == 0 || i % period != 0;
}

void config_set_windows(struct model_config *config, uint32_t window,
                        const bool is_local[CONFIG_LAYERS_MAX]) {
    config->window = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        if (!is_local[i]) continue;
        config->window = window;
        config->list[i].window = window;
        config->list[i].rope = config->architecture->has_local_rope;
    }
    for (uint32_t i = 0; config->architecture->globals_do_not_turn && i < config->layers; i++)
        if (config->window > 0 && !is_local[i]) config->list[i].rope = 1;
}

void config_center_windows(struct model_config *config) {
    config->windows_see_both = true;
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->list[i].window > 0) config->list[i].window = config->list[i].window / 2 + 1;
}

uint32_t config_dense_width(const struct model_config *config, uint32_t count) {
    return count == 0 ? config->width : config->dense_widths[count - 1];
}

uint32_t config_head_dim(const struct model_config *config, uint32_t layer) {
    const uint32_t own = config->list[layer].head_dim;
    return own > 0 ? own : config->head_dim;
}

uint32_t config_kv_heads(const struct model_config *config, uint32_t layer) {
    const uint32_t own = config->list[layer].kv_heads;
    return own > 0 ? own : config->kv_heads;
}

uint32_t config_ffn(const struct model_config *config, uint32_t layer) {
    const uint32_t own = config->list[layer].width_of_ffn;
    return own > 0 ? own : config->ffn;
}

uint32_t config_kv_width(const struct model_config *config, uint32_t layer) {
    if (config->list[layer].kv_from > 0 || !config_layer_has_keys(config, layer)) return 0;
    return config_kv_heads(config, layer) * config_head_dim(config, layer);
}

uint64_t config_state_bytes(const struct model_config *config) {
    const struct recurrent_sizes *sizes = &config->recurrent;
    uint64_t layers = 0;
    for (uint32_t i = 0; i < config->layers; i++) layers += config_layer_is_recurrent(config, i);
    if (layers == 0) return 0;
    return layers * sizeof(float) *
           ((uint64_t)sizes->value_heads * sizes->key_dim * sizes->value_dim +
            (sizes->taps - 1) * (uint64_t)config_state_channels(config));
}

uint32_t config_rotary_dim(const struct model_config *config) {
    return config->rotary_dim > 0 ? config->rotary_dim : config->head_dim;
}

uint32_t config_rope_width(const struct model_config *config, uint32_t rope) {
    if (config->rotary_dim > 0) return config->rotary_dim;
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->list[i].rope == rope) return config_head_dim(config, i);
    return config->head_dim;
}

bool config_layers_differ(const struct model_config *config) {
    for (uint32_t i = 0; i < config->layers; i++) {
        const struct layer *layer = &config->list[i];
        if (layer->head_dim > 0 || layer->kv_heads > 0 || layer->width_of_ffn > 0 ||
            layer->kv_from > 0 || layer->v_is_k)
            return true;
    }
    return false;
}

bool config_has_both(const struct model_config *config) {
    return config->layers > 0 && config->list[0].ffn == FFN_BOTH; /* all layers, or none */
}

bool config_has_experts(const struct model_config *config) {
    return config->experts > 0;
}

bool config_layer_is_gated(const struct model_config *config, uint32_t layer) {
    return config->list[layer].ffn == FFN_GATED || config->list[layer].ffn == FFN_BOTH;
}

bool config_layer_has_experts(const struct model_config *config, uint32_t layer) {
    return config->list[layer].ffn == FFN_EXPERTS || config->list[layer].ffn == FFN_BOTH;
}

bool config_has_no_gate(const struct model_config *config) {
    const enum activation activation = config->architecture->activation;
    return activation == ACTIVATION_RELU2 || activation == ACTIVATION_XIELU;
}

bool config_layer_is_local(const struct model_config *config, uint32_t layer) {
    return config->list[layer].window > 0;
}

const char *config_cpu_only(const struct model_config *config) {
    const struct architecture *architecture = config->architecture;
    if (architecture->has_no_pre_norm) return "a layer without a norm before it";
    if (config->temper_beta > 0) return "a temperature by position";
    if (architecture->has_layer_norm) return "a decoder with LayerNorm";
    if (architecture->activation == ACTIVATION_XIELU) return "a feed-forward with xIELU";
    if (config_has_no_gate(config) && config_has_experts(config)) return "experts without a gate";
    if (architecture->norms_follow_turn) return "a norm behind the rotation";
    return NULL;
}

const char *config_texts_cpu_only(const struct model_config *config) {
    const struct architecture *architecture = config->architecture;
    if (architecture->has_distance_bias) return "a bias by distance";
    if (architecture->embedding_is_normed || architecture->is_encoder) return NULL;
    if (config_is_latent(config)) return "latent attention over whole texts";
    return config_cpu_only(config);
}

/* The second table of rotations is then of the layers that do not turn. */
static bool has_still_layers(const struct model_config *config) {
    const struct architecture *architecture = config->architecture;
    return architecture->unrotated_period > 0 ||
           (architecture->globals_do_not_turn && config->window > 0);
}

bool config_has_local_rope(const struct model_config *config) {
    return has_still_layers(config) || (config->window > 0 && config->architecture->has_local_rope);
}

float config_embedding_scale(const struct model_config *config) {
    if (config->embedding_scale > 0) return config->embedding_scale;
    return config->architecture->embedding_is_scaled ? sqrtf((float)config->width) : 1.0f;
}

void config_set_unrotated(struct model_config *config, uint32_t period) {
    for (uint32_t i = 0; period > 0 && i < config->layers; i++)
        if ((i + 1) % period == 0) config->list[i].rope = 1;
}

void config_set_residual(struct model_config *config, float multiplier) {
    config->embedding_scale = config_embedding_scale(config) / multiplier;
    config->eps /= multiplier * multiplier;
}

/* The share of the stretched frequency in pair i: 0 for those that turn often in the original
 * length, 1 for those that hardly turn. */
static double yarn_share(const struct model_config *config, uint32_t i) {
    const struct yarn *yarn = &config->yarn;
    const double dim = config_rotary_dim(config);
    const double span = 2.0 * log((double)config->rope_base), last = dim - 1;
    const double turn = 2.0 * PI;
    double low = dim * log((double)yarn->original / (turn * (double)yarn->beta_fast));
    double high = dim * log((double)yarn->original / (turn * (double)yarn->beta_slow));
    low = yarn->is_rounded ? floor(low / span) : low / span;
    high = yarn->is_rounded ? ceil(high / span) : high / span;
    low = fmax(low, 0);
    high = fmin(high, last);
    if (!(high > low)) high = low + 0.001;
    return fmin(fmax((i - low) / (high - low), 0), 1);
}

void config_rope_frequencies(const struct model_config *config, bool local,
                             float *ret_frequencies) {
    double base = (double)(local ? config->rope_base_local : config->rope_base);
    const uint32_t width = config_rope_width(config, local);
    const bool has_still = !local && config->turned_pairs > 0;
    const bool is_still = local && has_still_layers(config);
    for (uint32_t i = 0; i < width / 2; i++) {
        ret_frequencies[i] = 0.0f;
        if (is_still || config->does_not_turn) continue;
        double frequency = pow(base, -2.0 * i / width);
        if (has_still && i >= config->turned_pairs) frequency = 0;
        if (!local) frequency *= (double)config->rope_scale;
        if (!local && config->yarn.factor > 0) {
            const double share = yarn_share(config, i);
            frequency *= 1.0 - share + share / (double)config->yarn.factor;
        }
        if (config->rope_factors && (!local || !config->architecture->has_local_rope)) {
            float factor;
            memcpy(&factor, config->rope_factors + sizeof factor * i, sizeof factor);
            frequency /= (double)factor;
        }
        ret_frequencies[i] = (float)frequency;
    }
}

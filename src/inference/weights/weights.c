/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights.h"

#include "base/mem.h"
#include "weights/weights_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* ---- opening ---- */

static enum err load_norms(struct weights_loader *loader, uint32_t layer,
                           struct layer_weights *to) {
    const struct {
        enum tensor_role role;
        float **norm;
    } norms[] = {
        {ROLE_ATTENTION_NORM, &to->attention_norm},
        {ROLE_Q_NORM, &to->q_norm},
        {ROLE_K_NORM, &to->k_norm},
        {ROLE_POST_ATTENTION_NORM, &to->post_attention_norm},
        {ROLE_FFN_NORM, &to->ffn_norm},
        {ROLE_POST_FFN_NORM, &to->post_ffn_norm},
        {ROLE_FFN_NORM_2, &to->experts_norm},
        {ROLE_POST_FFN_NORM_1, &to->post_dense_norm},
        {ROLE_POST_FFN_NORM_2, &to->post_experts_norm},
        {ROLE_ROUTER_NORM, &to->router_norm},
        {ROLE_EXPERT_SCALES, &to->experts.scales},
        {ROLE_POST_INPUT_NORM, &to->post_input_norm},
        {ROLE_LAYER_SCALE, &to->scale},
    };
    enum err err = OK;
    for (size_t i = 0; i < sizeof norms / sizeof *norms && err == OK; i++)
        err = weights_read_norm(loader, layer, norms[i].role, norms[i].norm);
    static const enum tensor_role bias[] = {ROLE_ATTENTION_NORM_BIAS};
    static const enum tensor_role ffn_bias[] = {ROLE_FFN_NORM_BIAS};
    if (err == OK) err = weights_read_vector(loader, layer, bias, 1, &to->attention_norm_bias);
    if (err == OK) err = weights_read_vector(loader, layer, ffn_bias, 1, &to->ffn_norm_bias);
    if (err == OK) err = weights_read_xielu(loader, layer, &to->xielu);
    if (loader->options.config->list[layer].mixer == MIXER_NONE) { /* its one norm */
        to->ffn_norm = to->attention_norm;
        to->attention_norm = NULL;
    }
    /* The router reads rows of a norm without weights, times its own, over √width. */
    const uint32_t width = loader->options.config->width;
    for (uint32_t i = 0; err == OK && to->router_norm && i < width; i++)
        to->router_norm[i] /= sqrtf((float)width);
    return err;
}

static enum err load_encoder_vectors(struct weights_loader *loader, uint32_t layer,
                                     struct encoder_layer *to) {
    const struct {
        enum tensor_role role;
        float **vector;
    } vectors[] = {
        {ROLE_ATTENTION_OUTPUT_NORM, &to->attention_norm},
        {ROLE_ATTENTION_OUTPUT_NORM_BIAS, &to->attention_norm_bias},
        {ROLE_UP_BIAS, &to->up_bias},
        {ROLE_DOWN_BIAS, &to->down_bias},
        {ROLE_LAYER_OUTPUT_NORM, &to->ffn_norm},
        {ROLE_LAYER_OUTPUT_NORM_BIAS, &to->ffn_norm_bias},
    };
    enum err err = OK;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors && err == OK; i++)
        err = weights_read_norm(loader, layer, vectors[i].role, vectors[i].vector);
    return err;
}

static enum err open_ffn(struct weights_loader *loader, uint32_t layer, struct layer_weights *to) {
    static const enum tensor_role gate_up[] = {ROLE_GATE, ROLE_UP};
    static const enum tensor_role down[] = {ROLE_DOWN}, paired[] = {ROLE_GATE_UP};
    const struct model_config *config = loader->options.config;
    enum err err = OK;
    if (config_layer_has_experts(config, layer))
        err = weights_open_experts(loader, layer, &to->experts);
    if (!config_layer_is_gated(config, layer) || err != OK) return err;
    /* Without a gate, or with one in the same tensor, only `up` is loaded. */
    uint32_t ungated = weights_find(loader, layer, ROLE_GATE) ? 0 : 1;
    if (weights_find(loader, layer, ROLE_GATE_UP))
        err = weights_open_matrix(loader, layer, paired, 1, &to->gate_up);
    else
        err = weights_open_matrix(loader, layer, gate_up + ungated, 2 - ungated, &to->gate_up);
    return err == OK ? weights_open_matrix(loader, layer, down, 1, &to->down) : err;
}

static enum err open_qkv(struct weights_loader *loader, uint32_t layer, struct matrix **ret_qkv) {
    static const enum tensor_role qkv[] = {ROLE_Q, ROLE_K, ROLE_V};
    static const enum tensor_role qkk[] = {ROLE_Q, ROLE_K, ROLE_K};
    const struct layer *kind = &loader->options.config->list[layer];
    if (loader->options.config->architecture->has_output_gate)
        return weights_open_gated_qkv(loader, layer, ret_qkv);
    return weights_find(loader, layer, ROLE_QKV)
               ? weights_open_fused_qkv(loader, layer, ret_qkv)
               : weights_open_matrix(loader, layer, kind->v_is_k ? qkk : qkv,
                                     kind->kv_from > 0 ? 1 : 3, ret_qkv);
}

static enum err open_attention(struct weights_loader *loader, uint32_t layer,
                               struct layer_weights *to) {
    static const enum tensor_role qkv_bias[] = {ROLE_Q_BIAS, ROLE_K_BIAS, ROLE_V_BIAS};
    static const enum tensor_role fused_bias[] = {ROLE_QKV_BIAS};
    static const enum tensor_role output[] = {ROLE_OUTPUT_PROJECTION};
    static const enum tensor_role output_bias[] = {ROLE_OUTPUT_BIAS}, sinks[] = {ROLE_SINKS};
    enum err err = open_qkv(loader, layer, &to->qkv);
    if (err == OK) err = weights_read_vector(loader, layer, fused_bias, 1, &to->qkv_bias);
    if (err == OK && !to->qkv_bias)
        err = weights_read_vector(loader, layer, qkv_bias, 3, &to->qkv_bias);
    if (err == OK) err = weights_read_vector(loader, layer, output_bias, 1, &to->output_bias);
    if (err == OK) err = weights_read_vector(loader, layer, sinks, 1, &to->sinks);
    return err == OK ? weights_open_matrix(loader, layer, output, 1, &to->output) : err;
}

static enum err open_mixer(struct weights_loader *loader, uint32_t layer,
                           struct layer_weights *to) {
    static const enum tensor_role output[] = {ROLE_STATE_OUTPUT}, conv[] = {ROLE_CONV_OUTPUT};
    static const enum tensor_role latent[] = {ROLE_LATENT_OUTPUT};
    const enum mixer_kind mixer = loader->options.config->list[layer].mixer;
    const bool is_conv = mixer == MIXER_CONV, is_both = mixer == MIXER_BOTH;
    enum err err = OK;
    if (mixer == MIXER_NONE) return OK;
    if (mixer == MIXER_LATENT) {
        err = weights_open_latent(loader, layer, &to->latent);
        return err == OK ? weights_open_matrix(loader, layer, latent, 1, &to->output) : err;
    }
    if (mixer == MIXER_ATTENTION || is_both) err = open_attention(loader, layer, to);
    if (mixer == MIXER_ATTENTION || err != OK) return err;
    err = weights_open_recurrent(loader, layer, &to->recurrent);
    return err == OK ? weights_open_matrix(loader, layer, is_conv ? conv : output, 1,
                                           is_both ? &to->recurrent.output : &to->output)
                     : err;
}

static enum err open_layer(struct weights_loader *loader, uint32_t layer) {
    static const enum tensor_role input_gate[] = {ROLE_INPUT_GATE}, input_out[] = {ROLE_INPUT_OUT};
    struct layer_weights *to = &loader->weights->layers[layer];
    enum err err = open_mixer(loader, layer, to);
    if (err == OK) err = open_ffn(loader, layer, to);
    if (err == OK && loader->options.config->input_width > 0) {
        err = weights_open_matrix(loader, layer, input_gate, 1, &to->input_gate);
        if (err == OK) err = weights_open_matrix(loader, layer, input_out, 1, &to->input_out);
    }
    if (err != OK) return err;
    return loader->options.config->architecture->is_encoder
               ? load_encoder_vectors(loader, layer, &to->encoder)
               : load_norms(loader, layer, to);
}

/* The factor of the logits is one of the norm before the head, and of its bias. */
static enum err read_output_norm(struct weights_loader *loader) {
    const struct model_config *config = loader->options.config;
    static const enum tensor_role bias_role[] = {ROLE_OUTPUT_NORM_BIAS};
    struct weights *weights = loader->weights;
    enum err err = weights_read_norm(loader, 0, ROLE_OUTPUT_NORM, &weights->output_norm);
    if (err == OK) err = weights_read_vector(loader, 0, bias_role, 1, &weights->output_norm_bias);
    for (uint32_t i = 0; err == OK && config->output_scale > 0 && i < config->width; i++) {
        weights->output_norm[i] *= config->output_scale;
        if (weights->output_norm_bias) weights->output_norm_bias[i] *= config->output_scale;
    }
    return err;
}

static enum err open_ends(struct weights_loader *loader) {
    static const enum tensor_role embedding[] = {ROLE_EMBEDDING}, head[] = {ROLE_HEAD};
    struct weights *weights = loader->weights;
    enum err err = weights_open_matrix(loader, 0, embedding, 1, &weights->embedding);
    if (err != OK) return err;
    if (loader->options.config->architecture->is_encoder) {
        err = weights_read_positions(loader);
        if (err == OK) err = weights_read_distances(loader);
        if (err == OK)
            err = weights_read_norm(loader, 0, ROLE_EMBEDDING_NORM, &weights->embedding_norm);
        if (err == OK)
            err = weights_read_norm(loader, 0, ROLE_EMBEDDING_NORM_BIAS,
                                    &weights->embedding_norm_bias);
        return err;
    }
    if (loader->options.config->input_width > 0) {
        static const enum tensor_role table[] = {ROLE_INPUT_TABLE};
        static const enum tensor_role projection[] = {ROLE_INPUT_PROJECTION};
        err = weights_open_matrix(loader, 0, table, 1, &weights->input_table);
        if (err == OK)
            err = weights_open_matrix(loader, 0, projection, 1, &weights->input_projection);
        if (err == OK) err = weights_read_norm(loader, 0, ROLE_INPUT_NORM, &weights->input_norm);
        if (err != OK) return err;
    }
    if (weights_find(loader, 0, ROLE_HEAD))
        err = weights_open_matrix(loader, 0, head, 1, &weights->head);
    else
        weights->head = weights->embedding;
    if (err == OK && loader->options.config->architecture->embedding_is_normed)
        err = weights_read_norm(loader, 0, ROLE_EMBEDDING_NORM, &weights->embedding_norm);
    return err == OK ? read_output_norm(loader) : err;
}

static enum err open_all(struct weights_loader *loader) {
    enum err err = weights_make_row_order(loader);
    if (err == OK) err = open_ends(loader);
    if (err == OK) err = weights_read_labels(loader);
    if (err == OK) err = weights_read_dense(loader);
    for (uint32_t i = 0; i < loader->weights->layer_count && err == OK; i++)
        err = open_layer(loader, i);
    return err;
}

enum err weights_open(struct weights **ret_weights, const struct weights_options *options,
                      struct error *error) {
    const struct model_config *config = options->config;
    enum err err = tensors_check(options->checkpoint, config, error);
    if (err != OK) return err;
    struct weights *weights = mem_new(1, sizeof *weights);
    weights->layer_count = config->layers;
    weights->layers = mem_new(config->layers, sizeof *weights->layers);
    weights->loader = mem_new(1, sizeof *weights->loader);
    *weights->loader =
        (struct weights_loader){.options = *options, .weights = weights, .error = error};
    weights->type = checkpoint_main_type(options->checkpoint);
    for (size_t i = 0; i < checkpoint_tensor_count(options->checkpoint); i++)
        weights->parameters += checkpoint_numbers(checkpoint_tensor_at(options->checkpoint, i));
    err = open_all(weights->loader);
    if (err == OK)
        *ret_weights = weights;
    else
        weights_close(weights);
    return err;
}

static void close_loader(struct weights *weights) {
    if (!weights->loader) return;
    free(weights->loader->row_order);
    free(weights->loader->halves_order);
    free(weights->loader->gated_order);
    free(weights->loader->mamba_order);
    free(weights->loader->delta_order);
    free(weights->loader->rates_order);
    free(weights->loader->latent_q_order);
    free(weights->loader->latent_entry_order);
    free(weights->loader->sources);
    free(weights->loader);
    weights->loader = NULL;
}

enum err weights_fill(struct weights *weights, struct error *error) {
    assert(weights->loader);
    const struct weight_store store = weights->loader->options.store;
    weights->loader->error = error;
    enum err err = weights_fill_matrices(weights->loader);
    close_loader(weights);
    return err == OK && store.ops->finish ? store.ops->finish(store.self, error) : err;
}

static void close_experts(struct experts *experts) {
    for (uint32_t i = 0; i < experts->count; i++) {
        matrix_close(experts->gate_up[i]);
        matrix_close(experts->down[i]);
    }
    free(experts->scales);
    free(experts->router_bias);
    free(experts->choice_bias);
    free(experts->gate_up_bias);
    free(experts->down_bias);
    matrix_close(experts->router);
    matrix_close(experts->shared_gate_up);
    matrix_close(experts->shared_down);
    matrix_close(experts->shared_scale);
    free(experts->gate_up);
    free(experts->down);
}

static void close_recurrent(struct recurrent *recurrent) {
    matrix_close(recurrent->in);
    matrix_close(recurrent->rates);
    matrix_close(recurrent->output);
    free(recurrent->conv);
    free(recurrent->conv_bias);
    free(recurrent->skip);
    free(recurrent->decay);
    free(recurrent->step_bias);
    free(recurrent->norm);
}

static void close_latent(struct latent *latent) {
    for (uint32_t i = 0; i < latent->heads; i++) {
        matrix_close(latent->k_b[i]);
        matrix_close(latent->v_b[i]);
    }
    matrix_close(latent->in);
    matrix_close(latent->q_b);
    free(latent->q_norm);
    free(latent->norm);
    free(latent->k_b);
    free(latent->v_b);
}

static void close_layer(struct layer_weights *layer) {
    close_latent(&layer->latent);
    close_experts(&layer->experts);
    close_recurrent(&layer->recurrent);
    matrix_close(layer->qkv);
    matrix_close(layer->output);
    matrix_close(layer->gate_up);
    matrix_close(layer->down);
    free(layer->attention_norm);
    free(layer->attention_norm_bias);
    free(layer->ffn_norm_bias);
    free(layer->xielu);
    free(layer->q_norm);
    free(layer->k_norm);
    free(layer->qkv_bias);
    free(layer->post_attention_norm);
    free(layer->ffn_norm);
    free(layer->post_ffn_norm);
    free(layer->router_norm);
    free(layer->experts_norm);
    free(layer->post_dense_norm);
    free(layer->post_experts_norm);
    matrix_close(layer->input_gate);
    matrix_close(layer->input_out);
    free(layer->post_input_norm);
    free(layer->scale);
    free(layer->sinks);
    free(layer->output_bias);
    free(layer->encoder.attention_norm);
    free(layer->encoder.attention_norm_bias);
    free(layer->encoder.up_bias);
    free(layer->encoder.down_bias);
    free(layer->encoder.ffn_norm);
    free(layer->encoder.ffn_norm_bias);
}

void weights_close(struct weights *weights) {
    if (!weights) return;
    close_loader(weights);
    for (uint32_t i = 0; i < weights->layer_count; i++) close_layer(&weights->layers[i]);
    free(weights->layers);
    if (weights->head != weights->embedding) matrix_close(weights->head);
    matrix_close(weights->embedding);
    matrix_close(weights->input_table);
    matrix_close(weights->input_projection);
    free(weights->input_norm);
    free(weights->output_norm);
    free(weights->output_norm_bias);
    free(weights->positions);
    free(weights->embedding_norm);
    free(weights->embedding_norm_bias);
    free(weights->second_type);
    free(weights->distances);
    for (uint32_t i = 0; i < CONFIG_DENSE_MAX; i++) free(weights->dense[i]);
    free(weights->labels.dense);
    free(weights->labels.dense_bias);
    free(weights->labels.norm);
    free(weights->labels.output);
    free(weights->labels.bias);
    free(weights);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- opening ---- */

static bool is_exact(enum tensor_role role) {
    return role == ROLE_ROUTER || role == ROLE_STATE_ALPHA || role == ROLE_STATE_RATES ||
           role == ROLE_SHARED_SCALE;
}

enum err weights_open_matrix(struct weights_loader *loader, uint32_t layer,
                             const enum tensor_role *roles, uint32_t role_count,
                             struct matrix **ret_matrix) {
    const bool is_encoder = loader->options.config->architecture->is_encoder;
    const bool is_tied = !is_encoder && !weights_find(loader, 0, ROLE_HEAD);
    struct weights_source source = {
        .name = tensor_name_of(roles[0], layer),
        .tensor_count = role_count,
        .part_count = role_count,
        .is_exact = is_exact(roles[0]),
        .is_head = roles[0] == ROLE_HEAD,
        .is_looked_up = roles[0] == ROLE_EMBEDDING || roles[0] == ROLE_INPUT_TABLE,
        .is_only_looked_up = roles[0] == ROLE_EMBEDDING && !is_tied && !is_encoder,
        .is_multiplied = roles[0] == ROLE_EMBEDDING ? is_tied : roles[0] != ROLE_INPUT_TABLE};
    assert(role_count <= MATRIX_PARTS_MAX);
    for (uint32_t i = 0; i < role_count; i++) {
        source.tensors[i] = weights_find(loader, layer, roles[i]);
        assert(source.tensors[i]);
        source.parts[i] = weights_part_of(source.tensors[i]);
        if (roles[i] == ROLE_Q || roles[i] == ROLE_K) source.parts[i].row_order = loader->row_order;
        if (roles[i] == ROLE_STATE_ALL) source.parts[i].row_order = loader->delta_order;
        if (roles[i] == ROLE_STATE_RATES) source.parts[i].row_order = loader->rates_order;
    }
    return weights_open_source(loader, &source, ret_matrix);
}

enum err weights_open_fused_qkv(struct weights_loader *loader, uint32_t layer,
                                struct matrix **ret_matrix) {
    const struct model_config *config = loader->options.config;
    const struct checkpoint_tensor *tensor = weights_find(loader, layer, ROLE_QKV);
    const uint32_t kv_rows = config->kv_heads * config->head_dim;
    const uint32_t rows[3] = {config->heads * config->head_dim, kv_rows, kv_rows};
    struct weights_source source = {.name = tensor_name_of(ROLE_QKV, layer),
                                    .tensors = {tensor},
                                    .tensor_count = 1,
                                    .part_count = 3,
                                    .is_multiplied = true};
    for (int i = 0; i < 3; i++) {
        source.parts[i] = weights_part_of(tensor);
        source.parts[i].rows = rows[i];
        source.parts[i].row_order = i < 2 ? loader->row_order : NULL;
    }
    return weights_open_source(loader, &source, ret_matrix);
}

enum err weights_open_gated_qkv(struct weights_loader *loader, uint32_t layer,
                                struct matrix **ret_matrix) {
    static const enum tensor_role roles[] = {ROLE_Q, ROLE_K, ROLE_V, ROLE_Q};
    const struct model_config *config = loader->options.config;
    const uint32_t q_rows = config->heads * config->head_dim;
    struct weights_source source = {.name = tensor_name_of(ROLE_Q, layer),
                                    .tensor_count = 4,
                                    .part_count = 4,
                                    .is_multiplied = true};
    enum err err = weights_make_gated_order(loader);
    if (err != OK) return err;
    for (int i = 0; i < 4; i++) {
        source.tensors[i] = weights_find(loader, layer, roles[i]);
        assert(source.tensors[i]);
        source.parts[i] = weights_part_of(source.tensors[i]);
        if (roles[i] != ROLE_Q) continue;
        source.parts[i].rows = q_rows;
        source.parts[i].row_order = loader->gated_order + (i == 0 ? 0 : q_rows);
    }
    return weights_open_source(loader, &source, ret_matrix);
}

/* A convolution alone: its tensors have names of their own. */
static enum err open_conv(struct weights_loader *loader, uint32_t layer,
                          struct recurrent *ret_recurrent) {
    static const enum tensor_role in[] = {ROLE_CONV_IN};
    enum err err = weights_open_matrix(loader, layer, in, 1, &ret_recurrent->in);
    return err == OK ? weights_read_conv(loader, layer, ROLE_CONV, &ret_recurrent->conv) : err;
}

/* The first product of Mamba-2 has the rows of its gate, its channels and its steps. Those of the
 * steps are a matrix of their own, and the gate stands behind the channels. */
static enum err open_mamba_in(struct weights_loader *loader, uint32_t layer,
                              struct recurrent *ret_recurrent) {
    const struct model_config *config = loader->options.config;
    const uint32_t gate = config_state_width(config), channels = config_state_channels(config);
    const uint32_t heads = config->recurrent.value_heads, rows = gate + channels + heads;
    const struct checkpoint_tensor *tensor = weights_find(loader, layer, ROLE_MAMBA_IN);
    struct weights_source in = {.name = tensor_name_of(ROLE_MAMBA_IN, layer),
                                .tensors = {tensor, tensor},
                                .tensor_count = 2,
                                .parts = {weights_part_of(tensor), weights_part_of(tensor)},
                                .part_count = 2,
                                .is_multiplied = true};
    if (!loader->mamba_order) loader->mamba_order = calloc(rows, sizeof *loader->mamba_order);
    if (!loader->mamba_order)
        return err_set(loader->error, ERR_LIMIT, "no memory for the order of %u rows", rows);
    for (uint32_t i = 0; i < rows; i++) loader->mamba_order[i] = i;
    struct weights_source steps = in;
    in.parts[0].rows = channels;
    in.parts[0].row_order = loader->mamba_order + gate;
    in.parts[1].rows = gate;
    steps.tensor_count = steps.part_count = 1;
    steps.parts[0].rows = heads;
    steps.parts[0].row_order = loader->mamba_order + gate + channels;
    steps.is_exact = true;
    snprintf(steps.name.text, sizeof steps.name.text, "blk.%u.ssm_in.steps", layer);
    enum err err = weights_open_source(loader, &in, &ret_recurrent->in);
    return err == OK ? weights_open_source(loader, &steps, &ret_recurrent->rates) : err;
}

/* The first products of Gated DeltaNet: q | k | v | gate, and alpha | beta. */
static enum err open_delta(struct weights_loader *loader, uint32_t layer,
                           struct recurrent *ret_recurrent) {
    static const enum tensor_role all[] = {ROLE_STATE_ALL}, rates[] = {ROLE_STATE_RATES};
    static const enum tensor_role in[] = {ROLE_STATE_IN, ROLE_STATE_GATE};
    static const enum tensor_role apart[] = {ROLE_STATE_ALPHA, ROLE_STATE_BETA};
    enum err err = OK;
    if (!loader->options.config->architecture->delta_is_grouped) {
        err = weights_open_matrix(loader, layer, in, 2, &ret_recurrent->in);
        return err == OK ? weights_open_matrix(loader, layer, apart, 2, &ret_recurrent->rates)
                         : err;
    }
    err = weights_make_delta_orders(loader);
    if (err == OK && weights_find(loader, layer, ROLE_STATE_ALL))
        err = weights_open_matrix(loader, layer, all, 1, &ret_recurrent->in);
    else if (err == OK)
        err = weights_open_matrix(loader, layer, in, 2, &ret_recurrent->in);
    return err == OK ? weights_open_matrix(loader, layer, rates, 1, &ret_recurrent->rates) : err;
}

/* Factors of x, B and C are those of their taps. */
static void scale_channels(const struct model_config *config, float *conv) {
    const struct recurrent_sizes *sizes = &config->recurrent;
    const uint32_t width = config_state_width(config), keys = sizes->key_heads * sizes->key_dim;
    const uint32_t channels = config_state_channels(config);
    const float *factors = config->multipliers.state_channels;
    if (!(factors[0] > 0)) return;
    for (uint32_t tap = 0; tap < sizes->taps; tap++)
        for (uint32_t i = 0; i < channels; i++)
            conv[(size_t)tap * channels + i] *= factors[i < width ? 0 : i < width + keys ? 1 : 2];
}

enum err weights_open_recurrent(struct weights_loader *loader, uint32_t layer,
                                struct recurrent *ret_recurrent) {
    static const enum tensor_role step_bias[] = {ROLE_STATE_STEP_BIAS}, norm[] = {ROLE_STATE_NORM};
    if (loader->options.config->list[layer].mixer == MIXER_CONV)
        return open_conv(loader, layer, ret_recurrent);
    static const enum tensor_role bias[] = {ROLE_CONV_BIAS}, skip[] = {ROLE_STATE_SKIP};
    const struct model_config *config = loader->options.config;
    enum err err = config->architecture->recurrent == MIXER_MAMBA
                       ? open_mamba_in(loader, layer, ret_recurrent)
                       : open_delta(loader, layer, ret_recurrent);
    if (err == OK) err = weights_read_vector(loader, layer, bias, 1, &ret_recurrent->conv_bias);
    if (err == OK) err = weights_read_vector(loader, layer, skip, 1, &ret_recurrent->skip);
    if (err == OK) err = weights_read_conv(loader, layer, ROLE_STATE_CONV, &ret_recurrent->conv);
    if (err == OK) scale_channels(config, ret_recurrent->conv);
    if (err == OK) err = weights_read_decay(loader, layer, &ret_recurrent->decay);
    if (err == OK)
        err = weights_read_vector(loader, layer, step_bias, 1, &ret_recurrent->step_bias);
    return err == OK ? weights_read_vector(loader, layer, norm, 1, &ret_recurrent->norm) : err;
}

/* The tensor that has a part of an expert, alone or with all others. */
static const struct checkpoint_tensor *find_expert(const struct weights_loader *loader,
                                                   uint32_t layer, enum expert_part part,
                                                   uint32_t expert) {
    static const enum tensor_role fused[EXPERT_PARTS] = {[EXPERT_GATE] = ROLE_GATE_EXPERTS,
                                                         [EXPERT_UP] = ROLE_UP_EXPERTS,
                                                         [EXPERT_DOWN] = ROLE_DOWN_EXPERTS};
    const struct checkpoint_tensor *tensor = weights_find(loader, layer, fused[part]);
    struct tensor_name name = tensor_name_of_expert(part, layer, expert);
    return tensor ? tensor : checkpoint_find(loader->options.checkpoint, str_from(name.text));
}

/* Opens gate|up, from gate on, or down. */
static enum err open_expert(struct weights_loader *loader, uint32_t layer, uint32_t expert,
                            enum expert_part first, struct matrix **ret_matrix) {
    const struct checkpoint_tensor *paired =
        first == EXPERT_GATE ? weights_find(loader, layer, ROLE_GATE_UP_EXPERTS) : NULL;
    const uint32_t count = first == EXPERT_GATE && !paired ? 2 : 1;
    struct weights_source source = {.name = tensor_name_of_expert(first, layer, expert),
                                    .tensor_count = count,
                                    .part_count = count,
                                    .slice = expert,
                                    .experts = loader->options.config->experts,
                                    .is_multiplied = true};
    for (uint32_t i = 0; i < count; i++) {
        const enum expert_part part = (enum expert_part)((uint32_t)first + i);
        const struct checkpoint_tensor *tensor =
            paired ? paired : find_expert(loader, layer, part, expert);
        assert(tensor);
        source.tensors[i] = tensor;
        source.parts[i] = weights_part_of(tensor);
        if (paired) source.parts[i].row_order = loader->halves_order;
    }
    return weights_open_source(loader, &source, ret_matrix);
}

/* Opens the expert that all rows go through, if there is one. */
static enum err open_shared_expert(struct weights_loader *loader, uint32_t layer,
                                   struct experts *ret_experts) {
    static const enum tensor_role gate_up[] = {ROLE_SHARED_GATE, ROLE_SHARED_UP};
    const uint32_t ungated = config_has_no_gate(loader->options.config);
    static const enum tensor_role down[] = {ROLE_SHARED_DOWN}, scale[] = {ROLE_SHARED_SCALE};
    ret_experts->shared_ffn = loader->options.config->shared_ffn;
    if (ret_experts->shared_ffn == 0) return OK;
    static const enum tensor_role paired[] = {ROLE_SHARED_GATE_UP};
    const bool is_paired = weights_find(loader, layer, ROLE_SHARED_GATE_UP) != NULL;
    enum err err = weights_open_matrix(loader, layer, is_paired ? paired : gate_up + ungated,
                                       is_paired ? 1 : 2 - ungated, &ret_experts->shared_gate_up);
    if (err == OK) err = weights_open_matrix(loader, layer, down, 1, &ret_experts->shared_down);
    if (loader->options.config->architecture->shared_expert_is_plain) return err;
    return err == OK ? weights_open_matrix(loader, layer, scale, 1, &ret_experts->shared_scale)
                     : err;
}

enum err weights_open_experts(struct weights_loader *loader, uint32_t layer,
                              struct experts *ret_experts) {
    static const enum tensor_role router[] = {ROLE_ROUTER}, choice[] = {ROLE_CHOICE_BIAS};
    const struct model_config *config = loader->options.config;
    const enum expert_part first = config_has_no_gate(config) ? EXPERT_UP : EXPERT_GATE;
    ret_experts->gate_up = calloc(config->experts, sizeof *ret_experts->gate_up);
    ret_experts->down = calloc(config->experts, sizeof *ret_experts->down);
    if (!ret_experts->gate_up || !ret_experts->down)
        return err_set(loader->error, ERR_LIMIT, "no memory for %u experts", config->experts);
    ret_experts->count = config->experts;
    ret_experts->used = config->experts_used;
    ret_experts->ffn = config->expert_ffn;
    ret_experts->sums_to_one = config->expert_weights_sum_to_one;
    ret_experts->is_sigmoid = config->routing.is_sigmoid;
    ret_experts->groups_by_best = config->routing.groups_by_best;
    ret_experts->groups = config->routing.groups;
    ret_experts->groups_used = config->routing.groups_used;
    ret_experts->route_scale = config->routing.scale;
    ret_experts->gate_limit = config->gate_limit;
    ret_experts->gate_alpha = config->gate_alpha;
    enum err err = weights_read_expert_biases(loader, layer, ret_experts);
    if (err == OK) err = weights_read_vector(loader, layer, choice, 1, &ret_experts->choice_bias);
    if (err == OK) err = weights_open_matrix(loader, layer, router, 1, &ret_experts->router);
    if (err == OK) err = open_shared_expert(loader, layer, ret_experts);
    for (uint32_t i = 0; i < config->experts && err == OK; i++) {
        err = open_expert(loader, layer, i, first, &ret_experts->gate_up[i]);
        if (err == OK) err = open_expert(loader, layer, i, EXPERT_DOWN, &ret_experts->down[i]);
    }
    return err;
}

/* ---- filling ---- */

/* Gives each part its rows; several parts may share one tensor. */
static void set_blocks(struct weights_source *source, const struct checkpoint_bytes *bytes) {
    const unsigned char *at = NULL;
    for (uint32_t i = 0; i < source->part_count; i++) {
        if (i < source->tensor_count) at = bytes[i].at;
        source->parts[i].blocks = at;
        at += source->parts[i].rows *
              tensor_type_row_bytes(source->parts[i].type, (size_t)source->tensors[0]->axes[0]);
    }
}

static enum err fill_source(struct weights_loader *loader, struct weights_source *source) {
    const struct weight_store *store = &loader->options.store;
    struct checkpoint_bytes bytes[MATRIX_PARTS_MAX];
    uint32_t count = 0;
    enum err err = OK;
    while (err == OK && count < source->tensor_count) {
        const struct checkpoint_tensor *tensor = source->tensors[count];
        err = checkpoint_read(tensor, tensor->axis_count == 3 ? source->slice : 0,
                              loader->options.pool, &bytes[count], loader->error);
        if (err == OK) count++;
    }
    if (err == OK) {
        set_blocks(source, bytes);
        struct weight_matrix from = weights_matrix_of(source);
        err = store->ops->fill(store->self, source->matrix, &from, loader->error);
    }
    /* The pages of a tensor with many matrices stay until its last one is read. */
    for (uint32_t i = 0; i < count; i++)
        if (source->slice + 1 >= source->tensors[i]->axes[2])
            checkpoint_done(loader->options.checkpoint, source->tensors[i], &bytes[i]);
        else
            checkpoint_free(&bytes[i]);
    return err;
}

enum err weights_fill_matrices(struct weights_loader *loader) {
    enum err err = OK;
    for (size_t i = 0; i < loader->source_count && err == OK; i++) {
        struct weights_source *source = &loader->sources[i];
        if (source->is_filled) continue;
        err = source->is_of_head ? weights_fill_head(loader, source) : fill_source(loader, source);
    }
    weights_end_heads(loader);
    return err;
}

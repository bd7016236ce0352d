/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/tensors.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_roles.h"
#include "kernels/quant.h"

#include <stdio.h>

/* Layers that read the keys of others have tensors for keys of their own in their files. */
static bool is_dead(const struct model_config *config, uint32_t layer, enum need need) {
    return config->list[layer].kv_from > 0 &&
           (need == NEED_KEYS || need == NEED_VALUES || need == NEED_K_NORM);
}

struct tensor_name tensor_name_of(enum tensor_role role, uint32_t layer) {
    struct tensor_name name;
    if (role < ROLE_ATTENTION_NORM)
        snprintf(name.text, sizeof name.text, "%s", tensor_rows[role].name);
    else
        snprintf(name.text, sizeof name.text, "blk.%u.%s", layer, tensor_rows[role].name);
    return name;
}

struct tensor_name tensor_name_of_expert(enum expert_part part, uint32_t layer, uint32_t expert) {
    struct tensor_name name;
    snprintf(name.text, sizeof name.text, "blk.%u.%s.%u.weight", layer,
             tensor_expert_rows[part].name, expert);
    return name;
}

bool tensor_is_of_other_part(struct str name) {
    static const char *const parts[] = {"v.", "mm.", "a.", "mtp.", "model.vision_tower."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (str_starts_with(name, str_from(parts[i]))) return true;
    return false;
}

/* True for the rows of all experts in one tensor. */
static bool is_of_all(enum need need) {
    return need == NEED_FUSED_EXPERTS || need == NEED_GATED_EXPERTS;
}

/* axes[2]: a matrix of each expert or head, or one. */
static uint64_t slices_of(const struct model_config *config, const struct tensor_row *row) {
    if (row->need == NEED_LATENT_APART) return config->heads;
    return is_of_all(row->need) ? config->experts : 1;
}

static void set_axes(const struct model_config *config, uint32_t layer,
                     const struct tensor_row *row, uint64_t ret_axes[GGUF_AXES_MAX]) {
    for (int i = 0; i < GGUF_AXES_MAX; i++) ret_axes[i] = 1;
    ret_axes[0] = tensor_extent(config, layer, row->cols);
    ret_axes[1] = tensor_extent(config, layer, row->rows);
    ret_axes[2] = slices_of(config, row);
}

void tensor_shape_of_expert(const struct model_config *config, enum expert_part part,
                            uint64_t ret_axes[GGUF_AXES_MAX]) {
    set_axes(config, 0, &tensor_expert_rows[part], ret_axes);
}

bool tensor_shape(const struct model_config *config, enum tensor_role role, uint32_t layer,
                  uint64_t ret_axes[GGUF_AXES_MAX], uint32_t *ret_axis_count) {
    const struct tensor_row *row = &tensor_rows[role];
    const bool is_optional = row->need >= NEED_OPTIONAL && role != ROLE_HEAD &&
                             role != ROLE_GATE_EXPERTS_BIAS && role != ROLE_UP_EXPERTS_BIAS;
    if (is_optional || !tensor_is_known(config, layer, row->need) ||
        is_dead(config, layer, row->need))
        return false;
    set_axes(config, layer, row, ret_axes);
    *ret_axis_count = row->rows == EXTENT_NONE ? 1 : 2;
    return true;
}

static enum err check_type(const struct checkpoint_tensor *tensor, bool is_vector,
                           struct error *error) {
    bool usable = tensor_type_is_known(tensor->type) &&
                  !(is_vector && tensor_type_is_quantised((enum tensor_type)tensor->type));
    if (!usable)
        return err_set(error, ERR_INVALID, "tensor %.*s: type %s is not supported here",
                       STR_ARGS(tensor->spelled), gguf_type_find(tensor->type)->name);
    return OK;
}

static enum err check_shape(const struct checkpoint_tensor *tensor,
                            const struct model_config *config, uint32_t layer,
                            const struct tensor_row *row, struct error *error) {
    bool is_vector = row->rows == EXTENT_NONE;
    uint64_t cols = tensor_extent(config, layer, row->cols),
             rows = tensor_extent(config, layer, row->rows);
    const uint64_t slices = slices_of(config, row);
    const bool is_stack = is_of_all(row->need) || row->need == NEED_LATENT_APART;
    const uint32_t axis_count = is_vector ? 1 : is_stack ? 3 : 2;
    if (axis_count == 3 && (tensor->axis_count != 3 || tensor->axes[0] != cols ||
                            tensor->axes[1] != rows || tensor->axes[2] != slices))
        return err_set(error, ERR_INVALID,
                       "tensor %.*s has %u axes, %llu x %llu x %llu, instead of %llu x %llu x %llu",
                       STR_ARGS(tensor->spelled), tensor->axis_count,
                       (unsigned long long)tensor->axes[0], (unsigned long long)tensor->axes[1],
                       (unsigned long long)tensor->axes[2], (unsigned long long)cols,
                       (unsigned long long)rows, (unsigned long long)slices);
    const bool is_flat = rows == 1 && tensor->axis_count == 1; /* a matrix of one row */
    /* llama.cpp's converter cuts vectors of Mamba-2 by heads or groups. */
    if (is_vector && tensor->axis_count == 2 && config_layer_is_recurrent(config, layer) &&
        config->architecture->recurrent == MIXER_MAMBA && tensor->axes[0] <= cols &&
        tensor->axes[1] <= cols && tensor->axes[0] * tensor->axes[1] == cols)
        return check_type(tensor, is_vector, error);
    const bool is_number = is_vector && cols == 1 && tensor->axis_count == 0;
    if ((tensor->axis_count != axis_count && !is_flat && !is_number) || tensor->axes[0] != cols ||
        tensor->axes[1] != rows)
        return err_set(error, ERR_INVALID,
                       "tensor %.*s has %u axes, %llu x %llu, instead of %llu x %llu",
                       STR_ARGS(tensor->spelled), tensor->axis_count,
                       (unsigned long long)tensor->axes[0], (unsigned long long)tensor->axes[1],
                       (unsigned long long)cols, (unsigned long long)rows);
    return check_type(tensor, is_vector, error);
}
/* Checks one tensor of the table; *count grows if it exists. */
static enum err check_role(const struct checkpoint *checkpoint, const struct model_config *config,
                           enum tensor_role role, uint32_t layer, size_t *count,
                           struct error *error) {
    const struct tensor_row *row = &tensor_rows[role];
    if (!tensor_is_known(config, layer, row->need)) return OK;
    struct tensor_name name = tensor_name_of(role, layer);
    const struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, str_from(name.text));
    if (!tensor) {
        const bool is_free = row->need == NEED_QKV_BIAS && config->architecture->may_have_qkv_bias;
        if (row->need >= NEED_OPTIONAL || is_free || is_dead(config, layer, row->need)) return OK;
        return err_set(error, ERR_INVALID, "tensor %s is missing",
                       checkpoint_spell(checkpoint, name.text).text);
    }
    ++*count;
    return check_shape(tensor, config, layer, row, error);
}

static const struct checkpoint_tensor *find_role(const struct checkpoint *checkpoint,
                                                 enum tensor_role role, uint32_t layer) {
    return checkpoint_find(checkpoint, str_from(tensor_name_of(role, layer).text));
}

/* Checks one part of all experts of a layer, each a tensor of its own, or all in `fused`. They have
 * one type: the rows of a step are prepared once for all experts. */
static enum err check_expert_part(const struct checkpoint *checkpoint,
                                  const struct model_config *config, enum expert_part part,
                                  enum tensor_role fused, uint32_t layer, size_t *count,
                                  struct error *error) {
    uint32_t type = 0;
    if (find_role(checkpoint, fused, layer)) return OK; /* its row of the table checks it */
    for (uint32_t i = 0; i < config->experts; i++) {
        struct tensor_name name = tensor_name_of_expert(part, layer, i);
        const struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, str_from(name.text));
        if (!tensor) {
            struct tensor_name spelled = checkpoint_spell(checkpoint, name.text);
            /* A GGUF of today has them fused. */
            if (str_is(str_from(spelled.text), name.text)) spelled = tensor_name_of(fused, layer);
            return err_set(error, ERR_INVALID, "tensor %s is missing", spelled.text);
        }
        ++*count;
        enum err err = check_shape(tensor, config, layer, &tensor_expert_rows[part], error);
        if (err != OK) return err;
        if (i == 0) type = tensor->type;
        if (tensor->type != type)
            return err_set(error, ERR_INVALID,
                           "tensor %.*s has type %s, but the layer's first expert has %s",
                           STR_ARGS(tensor->spelled), gguf_type_find(tensor->type)->name,
                           gguf_type_find(type)->name);
    }
    return OK;
}

/* The biases of the first halves are stored as their weights are. */
static enum err check_expert_biases(const struct checkpoint *checkpoint,
                                    const struct model_config *config, uint32_t layer,
                                    bool is_paired, struct error *error) {
    static const enum tensor_role apart[] = {ROLE_GATE_EXPERTS_BIAS, ROLE_UP_EXPERTS_BIAS};
    static const enum tensor_role paired[] = {ROLE_GATE_UP_EXPERTS_BIAS};
    const enum tensor_role *wanted = is_paired ? paired : apart;
    const enum tensor_role *others = is_paired ? apart : paired;
    if (!config->architecture->has_expert_bias) return OK;
    for (int i = 0; i < (is_paired ? 1 : 2); i++)
        if (!find_role(checkpoint, wanted[i], layer))
            return err_set(
                error, ERR_INVALID, "tensor %s is missing",
                checkpoint_spell(checkpoint, tensor_name_of(wanted[i], layer).text).text);
    for (int i = 0; i < (is_paired ? 2 : 1); i++)
        if (find_role(checkpoint, others[i], layer))
            return err_set(
                error, ERR_INVALID, "tensor %s does not belong to the layer's form of experts",
                checkpoint_spell(checkpoint, tensor_name_of(others[i], layer).text).text);
    return OK;
}

static enum err check_experts(const struct checkpoint *checkpoint,
                              const struct model_config *config, uint32_t layer, size_t *count,
                              struct error *error) {
    const bool is_paired = find_role(checkpoint, ROLE_GATE_UP_EXPERTS, layer) != NULL;
    enum err err = OK;
    if (!config_layer_has_experts(config, layer)) return OK;
    if (is_paired && (find_role(checkpoint, ROLE_GATE_EXPERTS, layer) ||
                      find_role(checkpoint, ROLE_UP_EXPERTS, layer)))
        return err_set(error, ERR_INVALID,
                       "layer %u has both ffn_gate_up_exps.weight and ffn_gate_exps or ffn_up_exps",
                       layer);
    err = check_expert_biases(checkpoint, config, layer, is_paired, error);
    if (!is_paired && err == OK) {
        if (!config_has_no_gate(config))
            err = check_expert_part(checkpoint, config, EXPERT_GATE, ROLE_GATE_EXPERTS, layer,
                                    count, error);
        if (err == OK)
            err = check_expert_part(checkpoint, config, EXPERT_UP, ROLE_UP_EXPERTS, layer, count,
                                    error);
    }
    return err == OK ? check_expert_part(checkpoint, config, EXPERT_DOWN, ROLE_DOWN_EXPERTS, layer,
                                         count, error)
                     : err;
}

static enum err check_layer(const struct checkpoint *checkpoint, const struct model_config *config,
                            uint32_t layer, size_t *count, struct error *error) {
    const enum mixer_kind mixer = config->list[layer].mixer;
    const bool is_fused =
        (mixer == MIXER_ATTENTION || mixer == MIXER_BOTH) && find_role(checkpoint, ROLE_QKV, layer);
    const bool is_apart = !find_role(checkpoint, ROLE_LATENT_KV_B, layer) &&
                          find_role(checkpoint, ROLE_LATENT_K_B, layer) &&
                          find_role(checkpoint, ROLE_LATENT_V_B, layer);
    const bool has_fused_bias = find_role(checkpoint, ROLE_QKV_BIAS, layer) != NULL;
    const bool is_paired = find_role(checkpoint, ROLE_GATE_UP, layer) != NULL;
    const bool is_shared_paired = find_role(checkpoint, ROLE_SHARED_GATE_UP, layer) != NULL;
    const bool is_grouped = config->list[layer].mixer == MIXER_DELTA &&
                            find_role(checkpoint, ROLE_STATE_ALL, layer) != NULL;
    enum err err = OK;
    for (int i = ROLE_ATTENTION_NORM; i < ROLE_COUNT && err == OK; i++) {
        /* A layer with both forms keeps its q, k and v uncounted and is refused below. */
        bool stands_in = (is_fused && i >= ROLE_Q && i <= ROLE_V) ||
                         (is_paired && i >= ROLE_GATE && i <= ROLE_UP) ||
                         (is_apart && i == ROLE_LATENT_KV_B) ||
                         (is_shared_paired && i >= ROLE_SHARED_GATE && i <= ROLE_SHARED_UP) ||
                         (is_grouped && i >= ROLE_STATE_IN && i <= ROLE_STATE_GATE) ||
                         (has_fused_bias && i >= ROLE_Q_BIAS && i <= ROLE_V_BIAS);
        if (!stands_in)
            err = check_role(checkpoint, config, (enum tensor_role)i, layer, count, error);
    }
    return err == OK ? check_experts(checkpoint, config, layer, count, error) : err;
}

/* The layer of a name "blk.N.…"; false for any other. */
static bool layer_of(struct str name, uint32_t layers, uint32_t *ret_layer) {
    if (!str_starts_with(name, STR("blk."))) return false;
    size_t dot = str_find_byte(name, '.', 4);
    uint64_t layer;
    if (dot == SIZE_MAX || !str_to_u64((struct str){name.at + 4, dot - 4}, &layer)) return false;
    if (layer >= layers) return false;
    *ret_layer = (uint32_t)layer;
    return true;
}

/* "blk.N.ffn_gate.E.weight" and the like. */
static bool is_of_expert(struct str name, const struct model_config *config, uint32_t layer) {
    const size_t layer_end = str_find_byte(name, '.', 4);
    const size_t stem_end = str_find_byte(name, '.', layer_end + 1);
    uint64_t expert;
    if (!config_layer_has_experts(config, layer) || stem_end == SIZE_MAX) return false;
    const size_t number_end = str_find_byte(name, '.', stem_end + 1);
    if (number_end == SIZE_MAX ||
        !str_to_u64((struct str){name.at + stem_end + 1, number_end - stem_end - 1}, &expert) ||
        expert >= config->experts)
        return false;
    for (int part = config_has_no_gate(config) ? EXPERT_UP : 0; part < EXPERT_PARTS; part++)
        if (str_is(name,
                   tensor_name_of_expert((enum expert_part)part, layer, (uint32_t)expert).text))
            return true;
    return false;
}

static bool is_part_of(const struct checkpoint_tensor *tensor, const struct model_config *config) {
    for (int role = 0; role < ROLE_ATTENTION_NORM; role++)
        if (tensor_is_known(config, 0, tensor_rows[role].need) &&
            str_is(tensor->name, tensor_rows[role].name))
            return true;
    uint32_t layer;
    if (!layer_of(tensor->name, config->layers, &layer)) return false;
    for (int role = ROLE_ATTENTION_NORM; role < ROLE_COUNT; role++) {
        struct tensor_name name = tensor_name_of((enum tensor_role)role, layer);
        if (tensor_is_known(config, layer, tensor_rows[role].need) &&
            str_is(tensor->name, name.text))
            return true;
    }
    return is_of_expert(tensor->name, config, layer);
}

/* Only reached for a file that is refused: names the tensor that nothing above has counted. */
static enum err refuse_rest(const struct checkpoint *checkpoint, const struct model_config *config,
                            struct error *error) {
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        if (!is_part_of(tensor, config))
            return err_set(error, ERR_INVALID, "tensor %.*s is not part of architecture %s",
                           STR_ARGS(tensor->spelled), config->architecture->name);
    }
    for (uint32_t i = 0; i < config->layers; i++)
        if (find_role(checkpoint, ROLE_QKV, i) &&
            (find_role(checkpoint, ROLE_Q, i) || find_role(checkpoint, ROLE_K, i) ||
             find_role(checkpoint, ROLE_V, i)))
            return err_set(error, ERR_INVALID,
                           "a layer has both attn_qkv.weight and attn_q, k or v");
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->list[i].mixer == MIXER_DELTA && find_role(checkpoint, ROLE_STATE_ALL, i) &&
            (find_role(checkpoint, ROLE_STATE_IN, i) || find_role(checkpoint, ROLE_STATE_GATE, i)))
            return err_set(error, ERR_INVALID,
                           "layer %u has both ssm_in.weight and attn_qkv or attn_gate", i);
    return err_set(error, ERR_INVALID,
                   "a layer has an expert both alone and in a tensor of all experts");
}

enum err tensors_check(const struct checkpoint *checkpoint, const struct model_config *config,
                       struct error *error) {
    size_t count = 0;
    enum err err = OK;
    for (int i = 0; i < ROLE_ATTENTION_NORM && err == OK; i++)
        err = check_role(checkpoint, config, (enum tensor_role)i, 0, &count, error);
    for (uint32_t layer = 0; layer < config->layers && err == OK; layer++)
        err = check_layer(checkpoint, config, layer, &count, error);
    if (err == OK && count != checkpoint_tensor_count(checkpoint))
        err = refuse_rest(checkpoint, config, error);
    return err;
}

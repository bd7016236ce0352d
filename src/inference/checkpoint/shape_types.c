/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/shape_types.h"

#include <stdlib.h>

static bool ends_with_one_of(struct str name, const char *const *endings) {
    for (; *endings; endings++)
        if (str_ends_with(name, str_from(*endings))) return true;
    return false;
}

/* Only matrices are quantised, but routers and convolutions. */
static bool is_exact(const struct checkpoint_tensor *tensor) {
    static const char *const exact[] = {"_norm.weight", ".ffn_gate_inp.weight",
                                        ".ssm_conv1d.weight", ".shortconv.conv.weight", NULL};
    return tensor->axis_count == 1 || !str_ends_with(tensor->name, STR(".weight")) ||
           ends_with_one_of(tensor->name, exact);
}

/* The number behind "blk."; 0 outside the layers. */
static uint32_t layer_of(struct str name) {
    if (!str_starts_with(name, STR("blk."))) return 0;
    uint32_t layer = 0;
    for (size_t i = sizeof "blk." - 1; i < name.bytes && name.at[i] >= '0' && name.at[i] <= '9';
         i++)
        layer = layer * 10 + (uint32_t)(name.at[i] - '0');
    return layer;
}

/* "blk.3.ffn_down.weight", and of an expert "blk.3.ffn_down.7.weight". */
static bool is_down(struct str name) {
    for (size_t i = 0; i < name.bytes; i++)
        if (str_starts_with((struct str){name.at + i, name.bytes - i}, STR(".ffn_down")))
            return true;
    return false;
}

/* The first and the last eighth of the layers, and each third between. */
static bool gets_more_bits(uint32_t layer, uint32_t layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static enum tensor_type type_in_q4_k_m(const struct checkpoint_tensor *tensor, uint32_t layers,
                                       bool is_tied) {
    const struct str name = tensor->name;
    if (str_is(name, "output.weight") || (is_tied && str_is(name, "token_embd.weight")))
        return TENSOR_Q6_K;
    if (str_ends_with(name, STR(".attn_qkv.weight"))) return TENSOR_Q5_K;
    const bool may_get_more = str_ends_with(name, STR(".attn_v.weight")) || is_down(name);
    return may_get_more && gets_more_bits(layer_of(name), layers) ? TENSOR_Q6_K : TENSOR_Q4_K;
}

/* Rows that no block of 256 divides get the next type with blocks of 32. */
static enum tensor_type type_that_divides(enum tensor_type type, uint64_t columns) {
    if (columns % tensor_type_block_elements(type) == 0) return type;
    if (columns % 32 != 0) return TENSOR_F16;
    return type == TENSOR_Q4_K ? TENSOR_Q5_0 : type == TENSOR_Q5_K ? TENSOR_Q5_1 : TENSOR_Q8_0;
}

/* "blk.3.ffn_up.7.weight" */
static bool is_expert(struct str name) {
    if (name.bytes < sizeof ".weight") return false;
    const char last = name.at[name.bytes - sizeof ".weight"];
    return last >= '0' && last <= '9' && str_starts_with(name, STR("blk."));
}

enum tensor_type shape_type_of(enum shape_types types, const struct checkpoint_tensor *tensor,
                               uint32_t layers, bool is_tied) {
    if (types == SHAPE_BF16) return TENSOR_BF16;
    if (is_exact(tensor)) return TENSOR_F32;
    const uint64_t columns = tensor->axes[0];
    switch (types) {
    case SHAPE_Q8_0: return type_that_divides(TENSOR_Q8_0, columns);
    case SHAPE_Q4_K_M: return type_that_divides(type_in_q4_k_m(tensor, layers, is_tied), columns);
    case SHAPE_MXFP4:
        if (!is_expert(tensor->name)) return TENSOR_BF16;
        return type_that_divides(TENSOR_MXFP4, columns);
    case SHAPE_BF16: break;
    }
    abort();
}

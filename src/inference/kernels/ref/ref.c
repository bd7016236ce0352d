/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

const struct kernels ref_kernels = {
    .name = "ref",
    .kv_type = TENSOR_F32,
    .keeps_blocks = true,
    .activate = ref_activate,
    .matmul = ref_matmul,
    .rms_norm = ref_rms_norm,
    .layer_norm = ref_layer_norm,
    .rope = ref_rope,
    .silu_mul = ref_silu_mul,
    .gelu_tanh_mul = ref_gelu_tanh_mul,
    .sigmoid_mul = ref_sigmoid_mul,
    .gelu_erf = ref_gelu_erf,
    .add = ref_add,
    .route = ref_route,
    .short_conv = ref_short_conv,
    .delta_rule = ref_delta_rule,
    .mamba = ref_mamba,
    .gated_norm = ref_gated_norm,
    .kv_store = ref_kv_store,
    .attention = ref_attention,
    .weigh = ref_weigh,
    .log_sum_exp = ref_log_sum_exp,
    .argmax = ref_argmax,
    .top_k = ref_top_k,
};

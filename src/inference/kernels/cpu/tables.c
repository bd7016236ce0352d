/* SPDX-License-Identifier: Apache-2.0 */

/* The tables of the x86-64 kernels; compiled for any CPU. */

#include "kernels/cpu/tables.h"
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx512.h"
#include "kernels/ref/ref.h"

/* The operations that the files of one instruction set define, without its matrix products, and
 * without those of the KV cache. */
#define OPERATIONS_OF(isa)                                                                         \
    .latent_type = TENSOR_F16, .rms_norm = isa##_rms_norm, .layer_norm = isa##_layer_norm,         \
    .rope = isa##_rope, .silu_mul = isa##_silu_mul, .gelu_tanh_mul = isa##_gelu_tanh_mul,          \
    .sigmoid_mul = isa##_sigmoid_mul, .clamped_mul = isa##_clamped_mul,                            \
    .gelu_erf = isa##_gelu_erf, .relu2 = isa##_relu2, .xielu = isa##_xielu, .add = isa##_add,      \
    .route = ref_route, .short_conv = isa##_short_conv, .delta_rule = isa##_delta_rule,            \
    .mamba = isa##_mamba, .gated_norm = isa##_gated_norm, .latent_store = isa##_latent_store,      \
    .latent_attend = isa##_latent_attend, .weigh = isa##_weigh, .log_sum_exp = isa##_log_sum_exp,  \
    .argmax = isa##_argmax, .top_k = isa##_top_k

#define CACHE_OF(isa, type)                                                                        \
    .kv_type = (type), .kv_store = isa##_kv_store, .attention = isa##_attention

const struct kernels avx2_kernels = {
    .name = "avx2",
    .tiles_signed = true,
    .fill_tile = avx2_fill_tile,
    .activate = avx2_activate,
    .matmul = avx2_matmul,
    OPERATIONS_OF(avx2),
    CACHE_OF(avx2, TENSOR_F16),
};

const struct kernels avx512_kernels = {
    .name = "avx512",
    .fill_tile = avx2_fill_tile,
    .activate = avx512_activate,
    .matmul = avx512_matmul,
    OPERATIONS_OF(avx512),
    CACHE_OF(avx512, TENSOR_F16),
};

const struct kernels avx512_bf16_kernels = {
    .name = "avx512-bf16",
    .tiles_bf16_pairs = true,
    .fill_tile = avx2_fill_tile,
    .activate = avx512_bf16_activate,
    .matmul = avx512_bf16_matmul,
    OPERATIONS_OF(avx512),
    CACHE_OF(avx512_bf16, TENSOR_BF16),
};

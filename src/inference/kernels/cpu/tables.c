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

/* Each table has two forms of the KV cache: its own, and 8 bits. */
#define CACHES_OF(table, isa, bytes)                                                               \
    static void table##_store(const struct kv_store *call, uint32_t head_begin,                    \
                              uint32_t head_end) {                                                 \
        if (call->cache->type == TENSOR_KV_INT8)                                                   \
            bytes##_kv_store(call, head_begin, head_end);                                          \
        else                                                                                       \
            isa##_kv_store(call, head_begin, head_end);                                            \
    }                                                                                              \
    static void table##_attend(const struct attention *call, const struct attention_group *group,  \
                               uint32_t head_begin, uint32_t head_end) {                           \
        if (call->cache->type == TENSOR_KV_INT8)                                                   \
            bytes##_attention(call, group, head_begin, head_end);                                  \
        else                                                                                       \
            isa##_attention(call, group, head_begin, head_end);                                    \
    }

CACHES_OF(caches2, avx2, avx2_bytes)
CACHES_OF(caches512, avx512, avx512_bytes)
CACHES_OF(caches512_bf16, avx512_bf16, avx512_bytes)

#define CACHE_OF(table, type)                                                                      \
    .kv_type = (type), .kv_store = table##_store, .attention = table##_attend

const struct kernels avx2_kernels = {
    .name = "avx2",
    .tiles_signed = true,
    .fill_tile = avx2_fill_tile,
    .activate = avx2_activate,
    .matmul = avx2_matmul,
    OPERATIONS_OF(avx2),
    CACHE_OF(caches2, TENSOR_F16),
};

const struct kernels avx512_kernels = {
    .name = "avx512",
    .fill_tile = avx2_fill_tile,
    .activate = avx512_activate,
    .matmul = avx512_matmul,
    OPERATIONS_OF(avx512),
    CACHE_OF(caches512, TENSOR_F16),
};

const struct kernels avx512_bf16_kernels = {
    .name = "avx512-bf16",
    .tiles_bf16_pairs = true,
    .fill_tile = avx2_fill_tile,
    .activate = avx512_bf16_activate,
    .matmul = avx512_bf16_matmul,
    OPERATIONS_OF(avx512),
    CACHE_OF(caches512_bf16, TENSOR_BF16),
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/modules.h"

#include <cuda_runtime.h>

/* pages is the smallest: it alone is loaded where the plugin has code for the GPU. */
#define MODULES(X)                                                                                 \
    X(add)                                                                                         \
    X(attention)                                                                                   \
    X(attention_decode_bf16)                                                                       \
    X(attention_decode_e4m3)                                                                       \
    X(attention_group)                                                                             \
    X(attention_latent)                                                                            \
    X(attention_tile_bf16)                                                                         \
    X(attention_tile_e4m3)                                                                         \
    X(attention_unfolded)                                                                          \
    X(attention_wide)                                                                              \
    X(conv_short)                                                                                  \
    X(delta_chunk)                                                                                 \
    X(delta_decode)                                                                                \
    X(embed)                                                                                       \
    X(experts_e4m3)                                                                                \
    X(experts_grouped)                                                                             \
    X(experts_int8)                                                                                \
    X(experts_product)                                                                             \
    X(experts_route)                                                                               \
    X(experts_sum)                                                                                 \
    X(gate)                                                                                        \
    X(gelu)                                                                                        \
    X(grouped_embed)                                                                               \
    X(grouped_few)                                                                                 \
    X(grouped_fill)                                                                                \
    X(grouped_many)                                                                                \
    X(grouped_pieces)                                                                              \
    X(heads)                                                                                       \
    X(inputs)                                                                                      \
    X(latent)                                                                                      \
    X(layer_norm)                                                                                  \
    X(mamba)                                                                                       \
    X(mamba_decode)                                                                                \
    X(mamba_prompts)                                                                               \
    X(norm)                                                                                        \
    X(output_gate)                                                                                 \
    X(pages)                                                                                       \
    X(part)                                                                                        \
    X(pool)                                                                                        \
    X(quantise)                                                                                    \
    X(reduce)                                                                                      \
    X(sample_choose)                                                                               \
    X(sample_logprobs)                                                                             \
    X(sample_stats)                                                                                \
    X(scaled)                                                                                      \
    X(side)                                                                                        \
    X(state_copy)                                                                                  \
    X(total)                                                                                       \
    X(unpack)

#define DECLARE(name) const void *cuda_module_##name(void);
extern "C" {
MODULES(DECLARE)
}

typedef const void *(*module_kernel)(void);
#define KERNEL_OF(name) cuda_module_##name,
static const module_kernel kernels[] = {MODULES(KERNEL_OF)};

int cuda_modules_load(bool *ret_is_compiled) {
    bool is_compiled = true;
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels && is_compiled; i++) {
        cudaFuncAttributes code_of = {};
        code = cudaFuncGetAttributes(&code_of, kernels[i]());
        if (code != cudaSuccess) break;
        is_compiled = code_of.binaryVersion != code_of.ptxVersion;
    }
    *ret_is_compiled = code == cudaSuccess && is_compiled;
    return code;
}

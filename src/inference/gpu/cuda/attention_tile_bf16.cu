/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/attention_of.cuh"
#include "gpu/cuda/attention_tile_kernel.cuh"
#include "gpu/cuda/modules.h"

enum err cuda_tiles_bf16(const struct cuda_attention *call, const struct cuda_tile_items *items,
                         cuda_stream stream, struct error *error) {
    if (call->head_dim == 64)
        return cuda_launch_tiles<CUDA_KV_BF16, 64, true, 2, 4, 64>(call, items, stream, error);
    if (call->head_dim == 128)
        return cuda_launch_tiles<CUDA_KV_BF16, 128, true, 2, 4, 32>(call, items, stream, error);
    if (call->head_dim != 256)
        return cuda_launch_tiles<CUDA_KV_BF16, 128, false, 2, 4, 32>(call, items, stream, error);
    if (cuda_has_shared(200 << 10))
        return cuda_launch_tiles<CUDA_KV_BF16, 256, true, 1, 8, 64>(call, items, stream, error);
    return cuda_launch_tiles<CUDA_KV_BF16, 256, true, 1, 8, 16>(call, items, stream, error);
}

CUDA_MODULE(attention_tile_bf16,
            cuda_tiles<cuda_tile_shape<cuda_page<CUDA_KV_BF16, 64, true>, 2, 4, 64>>)

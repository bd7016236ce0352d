/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/attention_decode_kernel.cuh"
#include "gpu/cuda/attention_of.cuh"
#include "gpu/cuda/modules.h"

enum err cuda_decode_bf16(const struct cuda_attention *call, const struct cuda_decode_items *items,
                          cuda_stream stream, struct error *error) {
    if (call->head_dim == 256 && !cuda_has_shared(128 << 10))
        return cuda_launch_decode<CUDA_KV_BF16, 256, true, 2, 1>(call, items, stream, error);
    if (call->head_dim == 64)
        return cuda_launch_decode<CUDA_KV_BF16, 64, true, 4, 1>(call, items, stream, error);
    if (call->head_dim == 128)
        return cuda_launch_decode<CUDA_KV_BF16, 128, true, 4, 1>(call, items, stream, error);
    if (call->head_dim == 256)
        return cuda_launch_decode<CUDA_KV_BF16, 256, true, 4, 1>(call, items, stream, error);
    return cuda_launch_decode<CUDA_KV_BF16, 128, false, 4, 1>(call, items, stream, error);
}

CUDA_MODULE(attention_decode_bf16,
            cuda_decode<cuda_decode_shape<cuda_page<CUDA_KV_BF16, 64, true>, 1, 4, 1, 2>>)

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attention_decode_kernel.cuh"
#include "kernels/cuda/attention_of.cuh"
#include "kernels/cuda/modules.h"

template <int D, bool EXACT, int WARPS, int PAGES>
static enum err launch(const struct cuda_attention *call, const struct cuda_decode_items *items,
                       cuda_stream stream, struct error *error) {
    using PAGE = cuda_page<CUDA_KV_BF16, D, EXACT>;
    using ONE = cuda_decode_shape<PAGE, 1, WARPS, PAGES, 2>;
    using TWO = cuda_decode_shape<PAGE, 2, WARPS, PAGES, 2>;
    if (call->head_count / call->kv_heads <= 8)
        return cuda_launch_decode<ONE>(call, items, stream, error);
    return cuda_launch_decode<TWO>(call, items, stream, error);
}

enum err cuda_decode_bf16(const struct cuda_attention *call, const struct cuda_decode_items *items,
                          cuda_stream stream, struct error *error) {
    if (call->head_dim == 256 && !cuda_has_shared(128 << 10))
        return launch<256, true, 2, 1>(call, items, stream, error);
    if (call->head_dim == 64) return launch<64, true, 4, 1>(call, items, stream, error);
    if (call->head_dim == 128) return launch<128, true, 4, 1>(call, items, stream, error);
    if (call->head_dim == 256) return launch<256, true, 4, 1>(call, items, stream, error);
    return launch<128, false, 4, 1>(call, items, stream, error);
}

CUDA_MODULE(attention_decode_bf16,
            cuda_decode<cuda_decode_shape<cuda_page<CUDA_KV_BF16, 64, true>, 1, 4, 1, 2>>)

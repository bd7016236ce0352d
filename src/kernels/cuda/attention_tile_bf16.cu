/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attention_of.cuh"
#include "kernels/cuda/attention_tile_kernel.cuh"
#include "kernels/cuda/modules.h"

template <int D, bool EXACT, int TILES, int WARPS, int KEYS>
static enum err launch(const struct cuda_attention *call, const struct cuda_tile_items *items,
                       cuda_stream stream, struct error *error) {
    using SHAPE = cuda_tile_shape<cuda_page<CUDA_KV_BF16, D, EXACT>, TILES, WARPS, KEYS>;
    static_assert(SHAPE::ROWS == CUDA_TILE_ROWS, "what cuda_tile_rows says");
    return cuda_launch_tiles<SHAPE>(call, items, stream, error);
}

enum err cuda_tiles_bf16(const struct cuda_attention *call, const struct cuda_tile_items *items,
                         cuda_stream stream, struct error *error) {
    if (call->head_dim == 64) return launch<64, true, 2, 4, 64>(call, items, stream, error);
    if (call->head_dim == 128) return launch<128, true, 2, 4, 32>(call, items, stream, error);
    if (call->head_dim != 256) return launch<128, false, 2, 4, 32>(call, items, stream, error);
    if (cuda_has_shared(200 << 10)) return launch<256, true, 1, 8, 64>(call, items, stream, error);
    return launch<256, true, 1, 8, 16>(call, items, stream, error);
}

CUDA_MODULE(attention_tile_bf16,
            cuda_tiles<cuda_tile_shape<cuda_page<CUDA_KV_BF16, 64, true>, 2, 4, 64>>)

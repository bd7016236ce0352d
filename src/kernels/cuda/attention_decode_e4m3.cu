/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attention_decode_kernel.cuh"
#include "kernels/cuda/attention_of.cuh"

template <int D, bool EXACT, int PAGES, int STAGES>
static enum err launch(const struct cuda_attention *call, const struct cuda_decode_items *items,
                       cuda_stream stream, struct error *error) {
    using PAGE = cuda_page<CUDA_KV_E4M3, D, EXACT>;
    if (call->head_count / call->kv_heads <= 8)
        return cuda_launch_decode<cuda_decode_shape<PAGE, 1, 2, PAGES, STAGES>>(call, items, stream,
                                                                                error);
    return cuda_launch_decode<cuda_decode_shape<PAGE, 2, 2, PAGES, STAGES>>(call, items, stream,
                                                                            error);
}

enum err cuda_decode_e4m3(const struct cuda_attention *call, const struct cuda_decode_items *items,
                          cuda_stream stream, struct error *error) {
    if (call->head_dim == 64) return launch<64, true, 4, 3>(call, items, stream, error);
    if (call->head_dim == 128) return launch<128, true, 2, 3>(call, items, stream, error);
    if (call->head_dim == 256) return launch<256, true, 1, 3>(call, items, stream, error);
    return launch<128, false, 2, 3>(call, items, stream, error);
}

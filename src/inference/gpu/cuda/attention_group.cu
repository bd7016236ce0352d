/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/attention_group.cuh"

#include "gpu/cuda/attention_of.cuh"
#include "gpu/cuda/attention_tile_kernel.cuh"
#include "gpu/cuda/modules.h"

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    cuda_groups(struct cuda_attention call, struct cuda_tile_items items) {
    extern __shared__ __align__(128) char cuda_memory[];
    const uint32_t index = blockIdx.x / call.kv_heads, head = blockIdx.x % call.kv_heads;
    const struct gpu_tile_item item = items.items[index];
    if (item.row_count == 0) return cuda_attention_pass(&call);
    const struct cuda_scoring scoring =
        cuda_scoring_of<typename S::SCORES, S::PAGE::IS_E4M3>(&call);
    cuda_tiler<S> d;
    struct cuda_query_part queries[S::QUERY_TURNS];
    if constexpr (S::IS_EARLY) { /* the loads overlap the look-up of bounds and pages */
        cuda_attention_begin(&call);
#pragma unroll
        for (int i = 0; i < S::QUERY_TURNS; i++)
            queries[i] = cuda_query_read<S>(&call, &items, &item, head, i);
    }
    cuda_tiler_begin(&d, &call, &item, head, cuda_memory);
    cuda_tile_bounds(&d, &call, &items, &item, cuda_memory);
    int s = d.begin / S::KEYS;
    if constexpr (!S::IS_EARLY) cuda_attention_begin(&call);
    cuda_group_fetch(&d, s);
    if constexpr (S::PAGE::IS_E4M3) cuda_group_fetch(&d, s + 1);
    if constexpr (S::IS_EARLY) {
#pragma unroll
        for (int i = 0; i < S::QUERY_TURNS; i++) cuda_query_write<S>(queries[i], i, cuda_memory);
    } else {
        cuda_tile_queries<S>(&call, &items, &item, head, cuda_memory);
    }
    if (d.begin < d.end)
        for (; s * S::KEYS < d.end; s++) {
            if constexpr (S::PAGE::IS_E4M3)
                cuda_group_step_e4m3(&d, &scoring, s, cuda_memory);
            else
                cuda_group_step_bf16(&d, &scoring, s, cuda_memory);
        }
    cuda_copy_wait<0>();
    cuda_attention_meet(&call);
    cuda_tile_leave_all(&d, &call, &items, &item, head);
}

/* Whether the GPU has what the kernels need and this program has code for it. */
bool cuda_has_groups(void) {
    using SHAPE = cuda_group_shape<cuda_page<CUDA_KV_BF16, 64, true>, 64, 2>;
    static int version; /* version of the code; racing threads write the same */
    int card = 0, major = 0;
    struct cudaFuncAttributes attributes;
    if (version == 0 && cudaFuncGetAttributes(&attributes, cuda_groups<SHAPE>) == cudaSuccess &&
        cudaGetDevice(&card) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card) == cudaSuccess)
        version = major == 9 && attributes.ptxVersion >= 90 ? attributes.binaryVersion : 1;
    return version == 90;
}

template <enum cuda_kv_type TYPE, int D, bool EXACT, int KEYS, int BLOCKS>
static enum err launch(const struct cuda_attention *call, const struct cuda_tile_items *items,
                       cuda_stream stream, struct error *error) {
    using SHAPE = cuda_group_shape<cuda_page<TYPE, D, EXACT>, KEYS, BLOCKS>;
    static_assert(SHAPE::ROWS == CUDA_TILE_ROWS, "what cuda_tile_rows says");
    return cuda_launch<cuda_groups<SHAPE>>("attention groups", items->item_count * call->kv_heads,
                                           SHAPE::THREADS, SHAPE::SHARED_BYTES, stream, error,
                                           *call, *items);
}

template <enum cuda_kv_type TYPE>
static enum err launch_type(const struct cuda_attention *call, const struct cuda_tile_items *items,
                            cuda_stream stream, struct error *error) {
    if (call->head_dim == 64) return launch<TYPE, 64, true, 64, 2>(call, items, stream, error);
    if (call->head_dim == 128) return launch<TYPE, 128, true, 64, 2>(call, items, stream, error);
    if (call->head_dim == 256) return launch<TYPE, 256, true, 64, 1>(call, items, stream, error);
    return launch<TYPE, 128, false, 64, 2>(call, items, stream, error);
}

enum err cuda_tiles_grouped(const struct cuda_attention *call, const struct cuda_tile_items *items,
                            cuda_stream stream, struct error *error) {
    return call->type == CUDA_KV_E4M3 ? launch_type<CUDA_KV_E4M3>(call, items, stream, error)
                                      : launch_type<CUDA_KV_BF16>(call, items, stream, error);
}

CUDA_MODULE(attention_group,
            cuda_groups<cuda_group_shape<cuda_page<CUDA_KV_BF16, 64, true>, 64, 2>>)

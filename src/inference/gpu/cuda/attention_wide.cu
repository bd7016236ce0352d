/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/attention_of.cuh"
#include "gpu/cuda/attention_wide.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

/* An item and KV head per block. */
__global__ void __launch_bounds__(WIDE_THREADS)
    wide_decode(struct cuda_attention call, struct cuda_decode_items items) {
    extern __shared__ __align__(128) char cuda_memory[];
    struct wide_memory *memory = (struct wide_memory *)cuda_memory;
    const uint32_t index = blockIdx.x / call.kv_heads, kv_head = blockIdx.x % call.kv_heads;
    const uint32_t group = call.head_count / call.kv_heads;
    const struct gpu_decode_item item = items.items[index];
    if (threadIdx.x < WIDE_ROWS)
        memory->rows[threadIdx.x] =
            threadIdx.x < group ? wide_decoded(&call, &item, kv_head * group + threadIdx.x)
                                : wide_nobody();
    __syncthreads();
    wide_run(&call, call.pages + item.pages, kv_head, memory);
}

/* WIDE_BLOCKS blocks per item and KV head, each with 16 of the packed rows: row r is query head r %
 * group of the item's row r / group. */
__global__ void __launch_bounds__(WIDE_THREADS)
    wide_tiles(struct cuda_attention call, struct cuda_tile_items items) {
    extern __shared__ __align__(128) char cuda_memory[];
    struct wide_memory *memory = (struct wide_memory *)cuda_memory;
    const uint32_t part = blockIdx.x % WIDE_BLOCKS, at = blockIdx.x / WIDE_BLOCKS;
    const uint32_t index = at / call.kv_heads, kv_head = at % call.kv_heads;
    const uint32_t group = call.head_count / call.kv_heads;
    const struct gpu_tile_item item = items.items[index];
    if (part * WIDE_ROWS >= item.row_count * group) return cuda_attention_pass(&call);
    if (threadIdx.x < WIDE_ROWS)
        memory->rows[threadIdx.x] = wide_packed(
            &call, &item, items.rows, part * WIDE_ROWS + threadIdx.x, kv_head * group, group);
    __syncthreads();
    wide_run(&call, call.pages + item.pages, kv_head, memory);
}

enum err cuda_decode_wide(const struct cuda_attention *call, const struct cuda_decode_items *items,
                          cuda_stream stream, struct error *error) {
    return cuda_launch<wide_decode>("decode attention", items->item_count * call->kv_heads,
                                    WIDE_THREADS, sizeof(struct wide_memory), stream, error, *call,
                                    *items);
}

enum err cuda_tiles_wide(const struct cuda_attention *call, const struct cuda_tile_items *items,
                         cuda_stream stream, struct error *error) {
    return cuda_launch<wide_tiles>("attention tiles",
                                   items->item_count * call->kv_heads * WIDE_BLOCKS, WIDE_THREADS,
                                   sizeof(struct wide_memory), stream, error, *call, *items);
}

CUDA_MODULE(attention_wide, wide_decode)

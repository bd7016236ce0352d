/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/attention_latent.cuh"

#include "gpu/cuda/attention_of.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

static_assert(CUDA_LATENT_HEADS == WIDE_BLOCKS * WIDE_ROWS, "the blocks of a tile have all heads");

/* Blocks of 16 heads of a row. */
__host__ __device__ static inline uint32_t blocks_of(uint32_t heads) {
    return (heads + WIDE_ROWS - 1) / WIDE_ROWS;
}

/* An item and 16 of its heads per block. */
__global__ void __launch_bounds__(WIDE_THREADS)
    latent_decode(struct cuda_attention call, struct cuda_decode_items items) {
    extern __shared__ __align__(128) char cuda_memory[];
    struct latent_memory *memory = (struct latent_memory *)cuda_memory;
    const uint32_t parts = blocks_of(call.head_count), part = blockIdx.x % parts;
    const struct gpu_decode_item item = items.items[blockIdx.x / parts];
    if (threadIdx.x < WIDE_ROWS) {
        const uint32_t head = part * WIDE_ROWS + threadIdx.x;
        memory->rows[threadIdx.x] =
            head < call.head_count ? wide_decoded(&call, &item, head) : wide_nobody();
    }
    __syncthreads();
    latent_run(&call, call.pages + item.pages, memory);
}

/* WIDE_BLOCKS blocks per item, each with 16 of the packed rows: row r is head r % heads of the
 * item's row r / heads. */
__global__ void __launch_bounds__(WIDE_THREADS)
    latent_tiles(struct cuda_attention call, struct cuda_tile_items items) {
    extern __shared__ __align__(128) char cuda_memory[];
    struct latent_memory *memory = (struct latent_memory *)cuda_memory;
    const uint32_t part = blockIdx.x % WIDE_BLOCKS, heads = call.head_count;
    const struct gpu_tile_item item = items.items[blockIdx.x / WIDE_BLOCKS];
    if (part * WIDE_ROWS >= item.row_count * heads) return cuda_attention_pass(&call);
    if (threadIdx.x < WIDE_ROWS)
        memory->rows[threadIdx.x] =
            wide_packed(&call, &item, items.rows, part * WIDE_ROWS + threadIdx.x, 0, heads);
    __syncthreads();
    latent_run(&call, call.pages + item.pages, memory);
}

enum err cuda_decode_latent(const struct cuda_attention *call,
                            const struct cuda_decode_items *items, cuda_stream stream,
                            struct error *error) {
    return cuda_launch<latent_decode>("decode attention over entries",
                                      items->item_count * blocks_of(call->head_count), WIDE_THREADS,
                                      sizeof(struct latent_memory), stream, error, *call, *items);
}

enum err cuda_tiles_latent(const struct cuda_attention *call, const struct cuda_tile_items *items,
                           cuda_stream stream, struct error *error) {
    return cuda_launch<latent_tiles>("attention tiles over entries",
                                     items->item_count * WIDE_BLOCKS, WIDE_THREADS,
                                     sizeof(struct latent_memory), stream, error, *call, *items);
}

CUDA_MODULE(attention_latent, latent_decode)

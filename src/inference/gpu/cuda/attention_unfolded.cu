/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/attention_unfolded.cuh"

#include "gpu/cuda/attention_of.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

#define ROW_THREADS 256
#define ROWS_AT_ONCE (ROW_THREADS / 32)
#define SQUARE 64 /* numbers of a matrix of a head that a block turns, in both directions */

static_assert(unfolded_shape::ROWS == (int)CUDA_UNFOLDED_ROWS, "rows of an item");

/* A block is an item and head; `of` has what bounds and results need. */
__global__ void __launch_bounds__(unfolded_shape::THREADS, unfolded_shape::BLOCKS)
    unfolded_tiles(struct cuda_attention of, struct cuda_unfolded call,
                   struct cuda_tile_items items) {
    using S = unfolded_shape;
    extern __shared__ __align__(128) char cuda_memory[];
    const uint32_t index = blockIdx.x / call.heads, head = blockIdx.x % call.heads;
    const struct gpu_tile_item item = items.items[index];
    if (item.row_count == 0) return cuda_attention_pass(&of);
    const struct cuda_scoring scoring = cuda_scoring_of<typename S::SCORES>(&of);
    cuda_tiler<S> d;
    struct unfolded_source from;
    unfolded_begin(&d, &call, &item, index, head, cuda_memory, &from);
    cuda_tile_bounds(&d, &of, &items, &item, cuda_memory);
    int s = d.begin / S::KEYS;
    cuda_attention_begin(&of);
    unfolded_fetch(&d, &from, s);
    unfolded_queries(&call, &items, &item, head, cuda_memory);
    if (d.begin < d.end)
        for (; s * S::KEYS < d.end; s++) {
            const uint32_t keys_at = S::KEYS_AT + (s & 1) * S::STAGE_BYTES;
            cuda_copy_wait<0>();
            cuda_show_products();
            __syncthreads();
            unfolded_fetch(&d, &from, s + 1);
            if (cuda_tile_sees<S>(cuda_memory, s))
                cuda_group_attend(&d, &scoring, s, keys_at, keys_at + S::KEY_PARTS * S::PART_BYTES,
                                  cuda_memory);
        }
    cuda_copy_wait<0>();
    cuda_tile_leave_all(&d, &of, &items, &item, head);
}

/* A warp per token. */
__global__ void __launch_bounds__(ROW_THREADS) entry_rows(struct cuda_entry_rows call) {
    const uint32_t row = blockIdx.x * ROWS_AT_ONCE + threadIdx.x / 32, chunks = call.rank / 8;
    wait_for_before();
    let_next_start();
    const uint32_t page = __ldg(call.pages + row / CUDA_PAGE_TOKENS);
    const char *from =
        (const char *)call.entries + ((size_t)page * CUDA_PAGE_TOKENS + row % CUDA_PAGE_TOKENS) *
                                         (call.rank + call.turned_dim) * 2;
    for (uint32_t c = threadIdx.x % 32; c < chunks; c += 32)
        ((uint4 *)call.y)[(size_t)row * chunks + c] = __ldcg((const uint4 *)from + c);
}

enum err cuda_entry_rows(const struct cuda_entry_rows *call, cuda_stream stream,
                         struct error *error) {
    static_assert(CUDA_PAGE_TOKENS % ROWS_AT_ONCE == 0, "a block has rows of one page");
    if (call->rank % 8 != 0 || call->turned_dim % 8 != 0)
        return err_set(error, ERR_INVALID, "entry rows: entries of %u + %u", call->rank,
                       call->turned_dim);
    return cuda_launch<entry_rows>("entry rows",
                                   call->page_count * (CUDA_PAGE_TOKENS / ROWS_AT_ONCE),
                                   ROW_THREADS, 0, stream, error, *call);
}

/* A block has a square of K, which it turns, or of V. */
__global__ void __launch_bounds__(ROW_THREADS) unfold_heads(struct cuda_unfold_heads call) {
    CUDA_SHARED uint16_t square[SQUARE][SQUARE + 2];
    constexpr uint32_t EACH = CUDA_UNFOLDED_STILL;
    const uint32_t head = blockIdx.z, r = blockIdx.x * SQUARE;
    const bool is_value = blockIdx.y >= EACH / SQUARE;
    const uint32_t i = blockIdx.y % (EACH / SQUARE) * SQUARE;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint16_t *to = (uint16_t *)call.kv_b +
                   ((size_t)head * CUDA_UNFOLDED_HEAD + (is_value ? EACH : 0) + i) * call.rank + r;
    wait_for_before();
    let_next_start();
    if (is_value) {
        const uint16_t *from =
            (const uint16_t *)call.v_b + ((size_t)head * EACH + i) * call.rank + r;
        for (uint32_t n = warp; n < SQUARE; n += ROWS_AT_ONCE)
            ((uint32_t *)(to + (size_t)n * call.rank))[lane] =
                __ldg((const uint32_t *)(from + (size_t)n * call.rank) + lane);
        return;
    }
    const uint16_t *from = (const uint16_t *)call.k_b + ((size_t)head * call.rank + r) * EACH + i;
    for (uint32_t n = warp; n < SQUARE; n += ROWS_AT_ONCE)
        *(uint32_t *)&square[n][2 * lane] =
            __ldg((const uint32_t *)(from + (size_t)n * EACH) + lane);
    __syncthreads();
    for (uint32_t n = warp; n < SQUARE; n += ROWS_AT_ONCE)
        ((uint32_t *)(to + (size_t)n * call.rank))[lane] =
            square[2 * lane][n] | (uint32_t)square[2 * lane + 1][n] << 16;
}

enum err cuda_unfold_heads(const struct cuda_unfold_heads *call, cuda_stream stream,
                           struct error *error) {
    static_assert(CUDA_UNFOLDED_STILL == CUDA_UNFOLDED_VALUE, "as many squares of K as of V");
    if (call->rank % SQUARE != 0)
        return err_set(error, ERR_INVALID, "unfolding heads: entries of %u", call->rank);
    const dim3 squares(call->rank / SQUARE, CUDA_UNFOLDED_HEAD / SQUARE, call->heads);
    return cuda_launch<unfold_heads>("unfolding heads", squares, ROW_THREADS, 0, stream, error,
                                     *call);
}

bool cuda_has_unfolded(void) {
    return cuda_has_groups();
}

enum err cuda_attention_unfolded(const struct cuda_unfolded *call,
                                 const struct cuda_tile_items *items, cuda_stream stream,
                                 struct error *error) {
    if (!cuda_has_unfolded())
        return err_set(error, ERR_INVALID, "unfolded attention wants products of warpgroups");
    if (call->entry_dim % 8 != 0 || call->turned_stride % 8 != 0 || call->y_stride % 8 != 0 ||
        call->heads == 0)
        return err_set(error, ERR_INVALID, "unfolded attention: a stride, or no heads");
    struct cuda_attention of = {};
    of.kv_heads = of.head_count = call->heads;
    of.head_dim = CUDA_UNFOLDED_VALUE, of.scale = call->scale;
    of.positions = call->positions, of.y = call->y, of.y_stride = call->y_stride;
    return cuda_launch<unfolded_tiles>("unfolded attention", items->item_count * call->heads,
                                       unfolded_shape::THREADS, unfolded_shape::SHARED_BYTES,
                                       stream, error, of, *call, *items);
}

CUDA_MODULE(attention_unfolded, unfolded_tiles)

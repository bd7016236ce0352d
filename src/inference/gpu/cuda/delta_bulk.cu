/* SPDX-License-Identifier: Apache-2.0 */

/* delta_bulk: one token of each sequence through a Gated DeltaNet layer (delta_decode.cu), the
 * states moved by bulk copies. sm_90 and later.
 *
 * Memory that is read and written by turns is fastest where each turn is long. So a warp has a ring
 * of pieces of some KiB in shared memory: a bulk copy brings a piece, the warp changes its rows in
 * place, and another one takes it back. Pieces of a block's warps follow each other in turns. The
 * first ones are on their way while the block convolves, and warps meet only before and after all
 * pieces. */

#include "gpu/cuda/barrier.cuh"
#include "gpu/cuda/delta_decode.cuh"
#include "gpu/cuda/delta_ways.h"
#include "gpu/cuda/launch.cuh"

#define WARPS 4

template <bool IS_BF16_, int PIECE_, int STAGES_, int BLOCKS_> struct bulk_shape {
    static constexpr bool IS_BF16 = IS_BF16_;
    static constexpr int D = 128;          /* numbers in a row, and rows of a head */
    static constexpr int PIECE = PIECE_;   /* bytes */
    static constexpr int STAGES = STAGES_; /* pieces in a warp's ring */
    static constexpr int BLOCKS = BLOCKS_; /* on a multiprocessor */
    static constexpr int LANES = D / LANE_NUMBERS;
    static constexpr int ROWS = 32 / LANES; /* a warp changes at once */
    static constexpr int ROW_BYTES = D * (IS_BF16 ? 2 : 4);
    static constexpr int PIECE_ROWS = PIECE / ROW_BYTES;
    static constexpr int RINGS = WARPS * STAGES * PIECE;
    static constexpr int SHARED_BYTES = RINGS + WARPS * STAGES * 8;
    static_assert(PIECE_ROWS % ROWS == 0 && D % PIECE_ROWS == 0, "whole turns, of one head");
};

/* A warp's ring, and which pieces of the block are its own: the first, and every WARPS-th. */
struct ring {
    uint32_t memory, barriers;
    const char *from;
    char *to;
    uint32_t count; /* pieces */
};

/* One lane: piece `index` of the warp is on its way. */
template <class S> __device__ static inline void bring(const struct ring &ring, uint32_t index) {
    const uint32_t stage = index % S::STAGES, barrier = ring.barriers + stage * 8;
    cuda_barrier_expect(barrier, S::PIECE);
    cuda_bulk_read(ring.memory + stage * S::PIECE, ring.from + (size_t)index * WARPS * S::PIECE,
                   S::PIECE, barrier);
}

/* The rows of a piece, which begins with row `first` of the block. */
template <class S>
__device__ static inline void change_piece(char *piece, uint32_t first, bool is_old,
                                           const struct delta_keys &keys,
                                           delta_shared<S::D, S::D> *shared) {
    const struct delta_head head = shared->heads[first / S::D];
    const uint32_t own_row = threadIdx.x % 32 / S::LANES;
#pragma unroll
    for (int turn = 0; turn < S::PIECE_ROWS / S::ROWS; turn++) {
        const uint32_t at = turn * S::ROWS + own_row;
        char *line = piece + at * S::ROW_BYTES;
        float *place = shared->qkv + 2 * S::D + first + at; /* place of v, then of the output */
        lane_words<S::IS_BF16> words;
        read_lane_near<S::IS_BF16, S::D>(&words, line, is_old);
        struct numbers<LANE_NUMBERS> row = lane_numbers<S::IS_BF16>(words);
        const float o = update_row(keys, head, *place, S::LANES, &row);
        write_lane_near<S::IS_BF16, S::D>(row, line);
        __syncwarp(); /* every lane has read v */
        if (threadIdx.x % S::LANES == 0) *place = o;
    }
}

/* A warp's pieces. A place of the ring is filled again one piece after it was emptied, when the
 * copy that took it back has read it. */
template <class S>
__device__ static inline void walk_pieces(const struct ring &ring, char *memory, bool is_old,
                                          delta_shared<S::D, S::D> *shared) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct delta_keys keys = keys_of<S::IS_BF16, S::D>(shared->qkv);
    for (uint32_t i = 0; i < ring.count; i++) {
        const uint32_t stage = i % S::STAGES, piece = i * WARPS + warp;
        if (is_old)
            cuda_barrier_wait(ring.barriers + stage * 8, i / S::STAGES % 2);
        else if (i >= S::STAGES) {
            if (lane == 0) cuda_bulk_read_left<S::STAGES - 1>();
            __syncwarp();
        }
        change_piece<S>(memory + stage * S::PIECE, piece * S::PIECE_ROWS, is_old, keys, shared);
        cuda_bulk_show();
        __syncwarp();
        if (lane > 0) continue;
        cuda_bulk_write(ring.to + (size_t)i * WARPS * S::PIECE, ring.memory + stage * S::PIECE,
                        S::PIECE);
        if (is_old && i > 0 && i - 1 + S::STAGES < ring.count) {
            cuda_bulk_read_left<1>();
            bring<S>(ring, i - 1 + S::STAGES);
        }
    }
    if (lane == 0) cuda_bulk_written();
}

template <class S>
__global__ void __launch_bounds__(WARPS * 32, S::BLOCKS) delta_bulk(struct cuda_delta call) {
    extern __shared__ __align__(1024) char cuda_memory[];
    CUDA_SHARED __align__(16) delta_shared<S::D, S::D> shared;
    const uint32_t warp = threadIdx.x / 32, group = call.v_heads / call.k_heads;
    const uint32_t key_head = blockIdx.x % call.k_heads, first = key_head * group;
    const uint32_t memory = cuda_shared_address(cuda_memory);
    struct ring ring = {memory + warp * (S::STAGES * S::PIECE),
                        memory + S::RINGS + warp * (S::STAGES * 8)};
    if (threadIdx.x % 32 == 0) {
        for (uint32_t i = 0; i < S::STAGES; i++) cuda_barrier_open(ring.barriers + i * 8, 1);
        cuda_barriers_opened();
    }
    __syncwarp();
    wait_for_before();
    let_next_start();
    const struct cuda_state_item item = call.items[blockIdx.x / call.k_heads];
    const bool is_old = item.from != CUDA_STATE_NONE;
    const size_t begin = (size_t)first * S::D * S::ROW_BYTES + (size_t)warp * S::PIECE;
    ring.from = slot_at(call.states, is_old ? item.from : item.to) + begin;
    ring.to = slot_at(call.states, item.to) + begin;
    ring.count = group * (S::D / S::PIECE_ROWS) / WARPS;
    if (is_old && threadIdx.x % 32 == 0)
        for (uint32_t i = 0; i < S::STAGES && i < ring.count; i++) bring<S>(ring, i);
    prepare<S::D, S::D>(call, item, key_head, group, &shared);
    __syncthreads();
    walk_pieces<S>(ring, cuda_memory + warp * (S::STAGES * S::PIECE), is_old, &shared);
    __syncthreads();
    leave_output<S::D>(call, item, first, group, shared.qkv + 2 * S::D, shared.gate);
}

/* ---- the choice ---- */

template <class S> static bool has(void) {
    return cuda_blocks_held<delta_bulk<S>>(WARPS * 32, S::SHARED_BYTES, S::BLOCKS) > 0;
}

template <class S>
static enum err launch(const struct cuda_delta *call, cudaStream_t stream, struct error *error) {
    return cuda_launch<delta_bulk<S>>("delta_decode", call->item_count * call->k_heads, WARPS * 32,
                                      S::SHARED_BYTES, stream, error, *call);
}

struct way {
    bool (*has)(void);
    enum err (*launch)(const struct cuda_delta *call, cudaStream_t stream, struct error *error);
};
#define WAY(PIECE, STAGES, BLOCKS)                                                                 \
    {                                                                                              \
        {has<bulk_shape<false, PIECE, STAGES, BLOCKS>>,                                            \
         launch<bulk_shape<false, PIECE, STAGES, BLOCKS>>},                                        \
            {has<bulk_shape<true, PIECE, STAGES, BLOCKS>>,                                         \
             launch<bulk_shape<true, PIECE, STAGES, BLOCKS>>},                                     \
    }
static const struct way ways[CUDA_DELTA_WAYS][2] = {
    {},
    WAY(8192, 2, 3),
    WAY(8192, 3, 2),
    WAY(4096, 3, 3),
    WAY(4096, 4, 3),
    WAY(2048, 4, 5),
    WAY(16384, 3, 1),
};

/* A warp has whole pieces where the block's state has a multiple of WARPS. */
bool cuda_delta_has(const struct cuda_delta *call, enum cuda_delta_way way) {
    static const uint32_t pieces[CUDA_DELTA_WAYS] = {0, 8192, 8192, 4096, 4096, 2048, 16384};
    const uint32_t head = 128 * 128 * (call->states.is_bf16 ? 2 : 4);
    return call->k_dim == 128 &&
           call->v_heads / call->k_heads * head % (pieces[way] * WARPS) == 0 &&
           ways[way][call->states.is_bf16].has();
}

enum err cuda_delta_bulk(const struct cuda_delta *call, enum cuda_delta_way way,
                         struct CUstream_st *stream, struct error *error) {
    return ways[way][call->states.is_bf16].launch(call, stream, error);
}

CUDA_MODULE(delta_bulk, delta_bulk<bulk_shape<false, 8192, 2, 3>>)

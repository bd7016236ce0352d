/* SPDX-License-Identifier: Apache-2.0 */

/* grouped_pieces: the product of few rows with a large matrix of codes in groups (grouped.h), bound
 * by the read of the codes.
 *
 * A block stays on each multiprocessor. Tiles of 256 lines by all groups of their inputs are cut
 * into as many pieces of equal length as there are blocks, so that all of them read until the end;
 * a piece may begin in one tile and end in another. A warp has 64 lines of the tile, and every
 * fourth group of the piece. Four warps have the same groups, so that rows come from the L1 for
 * three of them. A warp has a ring in shared memory of its own, so that enough codes are on their
 * way: for a whole H200 some 35 KB per multiprocessor. Nothing in the loop waits for another warp.
 * The rows of a group come to registers, behind the group before.
 *
 * At the end of a tile the sums of its four warps are added in a fixed order. Those of a tile with
 * several blocks go to the room, and the last block to come adds all of them, in their order. */

#include "gpu/cuda/grouped_few.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

#define LINE_WARPS ((int)GROUPED_TILE / 64) /* warps with the same groups and different lines */
#define GROUP_WARPS (16 / LINE_WARPS)       /* warps with the same lines and different groups */
#define THREADS (LINE_WARPS * GROUP_WARPS * 32)
#define LINE_BLOCKS 2 /* blocks of lines that a warp has */
#define TILE_BLOCKS (LINE_WARPS * LINE_BLOCKS)
#define CHAINS (256 / (int)GROUPED_TILE) /* in which warps with the same lines add their sums */
#define PARTS_AT_ONCE 4u                 /* loads under way */
#define RING_BYTES_MAX (81920u / LINE_WARPS / GROUP_WARPS) /* a warp's; every GPU has room */

static_assert(TILE_BLOCKS * GROUPED_LINES == GROUPED_TILE, "tiles are those of grouped.h");

template <int KIND_, int EIGHTS_> struct piece_shape {
    static constexpr int KIND = KIND_, EIGHTS = EIGHTS_, BLOCKS = LINE_BLOCKS;
    static constexpr int PARTS = KIND == GROUPED_BYTES ? 2 : 1; /* scales of a line in a group */
    static constexpr uint32_t BLOCK_BYTES = PARTS * 512 + GROUPED_SCALE_BYTES; /* a group's */
    static constexpr uint32_t GROUP_BYTES = BLOCKS * BLOCK_BYTES;
    static constexpr uint32_t DEPTH = GROUP_BYTES * 4 <= RING_BYTES_MAX ? 4 : 2;
    static constexpr uint32_t RING_BYTES = LINE_WARPS * GROUP_WARPS * DEPTH * GROUP_BYTES;
    /* Sums leave by sixteen rows at a time. */
    static constexpr int LEFT_EIGHTS = EIGHTS < 2 ? EIGHTS : 2, LEFT_TIMES = EIGHTS / LEFT_EIGHTS;
    static constexpr int LEFT = (int)GROUPED_TILE * LEFT_EIGHTS * 8; /* numbers */
    static constexpr uint32_t SHARED_BYTES = RING_BYTES + CHAINS * LEFT * sizeof(float);
};

/* ---- pieces ---- */

/* Groups of tiles, one tile behind the other, that a block has. */
struct few_piece {
    uint32_t groups;     /* in a tile */
    uint32_t total;      /* in all tiles */
    uint32_t first, end; /* this block has */
};

__device__ static inline uint32_t piece_begin(uint32_t total, uint32_t block) {
    return (uint32_t)((uint64_t)total * block / gridDim.x);
}

/* The block whose piece has that group. */
__device__ static inline uint32_t block_of(uint32_t total, uint32_t group) {
    return (uint32_t)((((uint64_t)group + 1) * gridDim.x - 1) / total);
}

__device__ static inline struct few_piece piece_of(const struct cuda_grouped &weights) {
    struct few_piece ret;
    ret.groups = weights.inputs / GROUPED_INPUTS;
    ret.total = (weights.lines + GROUPED_TILE - 1) / GROUPED_TILE * ret.groups;
    ret.first = piece_begin(ret.total, blockIdx.x);
    ret.end = piece_begin(ret.total, blockIdx.x + 1);
    return ret;
}

/* ---- codes ---- */

/* Where a lane's next codes and scales are. */
struct few_source {
    const char *codes[LINE_BLOCKS];
    const char *scales;         /* lanes 0..7 have those of the first block, 8..15 the second's */
    uint32_t tile, group, left; /* groups that are left for this warp */
};

/* Blocks behind the last are the last, whose results are not left. */
template <class S>
__device__ static inline void source_turn(struct few_source *source,
                                          const struct cuda_grouped &weights, uint32_t groups) {
    const uint32_t last = (weights.lines - 1) / GROUPED_LINES, lane = threadIdx.x % 32;
    const uint32_t first = source->tile * TILE_BLOCKS + threadIdx.x / 32 % LINE_WARPS * LINE_BLOCKS;
    const char *blocks[LINE_BLOCKS];
#pragma unroll
    for (int b = 0; b < LINE_BLOCKS; b++) {
        blocks[b] =
            (const char *)weights.at + min(first + b, last) * grouped_block_bytes<S::KIND>(groups);
        source->codes[b] = (const char *)grouped_codes<S::KIND>(blocks[b], source->group);
    }
    source->scales = (const char *)grouped_scales<S::KIND>(
                         lane < 8 ? blocks[0] : blocks[LINE_BLOCKS - 1], groups, source->group) -
                     lane / 4 * 16 + lane % 8 * 16;
}

template <class S>
__device__ static inline struct few_source source_of(const struct few_piece &piece,
                                                     const struct cuda_grouped &weights) {
    struct few_source ret;
    const uint32_t at = piece.first + threadIdx.x / 32 / LINE_WARPS;
    ret.tile = at / piece.groups, ret.group = at % piece.groups;
    ret.left = at < piece.end ? (piece.end - at + GROUP_WARPS - 1) / GROUP_WARPS : 0;
    source_turn<S>(&ret, weights, piece.groups);
    return ret;
}

/* A group's codes and scales on their way into a place of the ring; nothing behind the last. `to`
 * is that place's for this lane's codes. */
template <class S>
__device__ static inline void fetch(struct few_source *source, const struct cuda_grouped &weights,
                                    uint32_t groups, uint32_t to) {
    const uint32_t lane = threadIdx.x % 32;
    if (source->left > 0) {
#pragma unroll
        for (int b = 0; b < LINE_BLOCKS; b++) {
#pragma unroll
            for (int p = 0; p < S::PARTS; p++)
                cuda_copy16(to + b * S::BLOCK_BYTES + p * 512, source->codes[b] + p * 512);
            source->codes[b] += GROUP_WARPS * S::PARTS * 512;
        }
        if (lane < 16)
            cuda_copy16(to + S::PARTS * 512 + (lane < 8 ? 0 : S::BLOCK_BYTES - 128),
                        source->scales);
        source->scales += GROUP_WARPS * GROUPED_SCALE_BYTES;
        source->left--;
        source->group += GROUP_WARPS;
        if (source->group >= groups) {
            for (; source->group >= groups; source->group -= groups) source->tile++;
            source_turn<S>(source, weights, groups);
        }
    }
    cuda_copy_commit();
}

/* ---- rows ---- */

template <class S>
__device__ static inline struct few_rows<S> rows_of(const struct cuda_grouped_few &call) {
    struct few_rows<S> ret;
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++)
        ret.at[e] =
            call.in + min(e * 8 + g, call.rows - 1) * call.in_stride + t * (S::PARTS == 2 ? 4 : 8);
    return ret;
}

/* ---- sums ---- */

/* The sums of all warps of the block, of the rows of one time, as so many chains: (chain, line
 * warp, sixteen lines, eight rows, lane, 4). A chain's warps come by turns. */
template <class S>
__device__ static inline void gather(float *left, const struct few_sums<S> &sums, int time) {
    constexpr int EACH = LINE_BLOCKS * 2 * S::LEFT_EIGHTS;
    const uint32_t lane = threadIdx.x % 32, line_warp = threadIdx.x / 32 % LINE_WARPS;
    const int own = (int)(threadIdx.x / 32 / LINE_WARPS);
    float4 *at = (float4 *)left + own % CHAINS * (S::LEFT / 4) + line_warp * EACH * 32 + lane;
#pragma unroll 1
    for (int turn = 0; turn < GROUP_WARPS / CHAINS; turn++) {
        if (turn == own / CHAINS)
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                float4 v = turn == 0 ? make_float4(0, 0, 0, 0) : at[i * 32];
#pragma unroll
                for (int t = 0; t < S::LEFT_TIMES; t++) { /* registers have no index */
                    if (t != time) continue;
                    const float(&four)[4] =
                        sums.at[i / S::LEFT_EIGHTS][t * S::LEFT_EIGHTS + i % S::LEFT_EIGHTS];
                    v.x += four[0], v.y += four[1], v.z += four[2], v.w += four[3];
                }
                at[i * 32] = v;
            }
        __syncthreads();
    }
}

/* Four of the sums, of all chains. */
template <class S> __device__ static inline float4 chained(const float *left, uint32_t n) {
    float4 sum = ((const float4 *)left)[n];
#pragma unroll
    for (int c = 1; c < CHAINS; c++) {
        const float4 v = ((const float4 *)left)[c * (S::LEFT / 4) + n];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    return sum;
}

template <class S>
__device__ static inline void store_rows(const struct cuda_grouped_few &call, const float *left,
                                         int chains, uint32_t tile, int time) {
    for (uint32_t n = threadIdx.x; n < S::LEFT; n += THREADS) {
        const uint32_t line = n % GROUPED_TILE, row = n / GROUPED_TILE;
        const uint32_t at = (line / 16 * S::LEFT_EIGHTS + row / 8) * 128 +
                            (line % 8 * 4 + row % 8 / 2) * 4 + line % 16 / 8 * 2 + row % 2;
        const uint32_t to_row = time * S::LEFT_EIGHTS * 8 + row;
        const uint32_t to_line = tile * GROUPED_TILE + line;
        float sum = left[at];
        for (int c = 1; c < chains; c++) sum += left[c * S::LEFT + at];
        if (to_row < call.rows && to_line < call.weights.lines)
            call.y[to_row * call.y_stride + to_line] = (uint16_t)cuda_pack_bf16(sum, 0.0f);
    }
    __syncthreads(); /* the next sums take their place */
}

/* A block's part of a tile in the room: its first tile's, or another's. */
template <class S>
__device__ static inline float4 *room_at(const struct cuda_grouped_few &call, uint32_t block,
                                         bool is_other, int time) {
    return (float4 *)(call.room.sums +
                      ((size_t)block * 2 + is_other) * (GROUPED_TILE * GROUPED_ROWS)) +
           time * (S::LEFT / 4);
}

/* Whether this block is the last of those of the tile; what they left is seen then. */
__device__ static inline bool is_last(uint32_t *count, uint32_t blocks) {
    CUDA_SHARED uint32_t before[1];
    if (threadIdx.x == 0) { /* behind a wait for all threads' stores */
        __threadfence();
        before[0] = atomicAdd(count, 1u);
        if (before[0] == blocks - 1) *count = 0; /* for the next product */
        __threadfence();
    }
    __syncthreads();
    return before[0] == blocks - 1;
}

/* Adds what all blocks of the tile left, in their order. Only the first of them can have begun in
 * a tile before. */
template <class S>
__device__ static inline void add_parts(const struct cuda_grouped_few &call,
                                        const struct few_piece &piece, float *left, uint32_t tile,
                                        int time) {
    const uint32_t begin = tile * piece.groups;
    const uint32_t first = block_of(piece.total, begin);
    const uint32_t last = block_of(piece.total, begin + piece.groups - 1);
    const bool is_other = piece_begin(piece.total, first) < begin;
    for (uint32_t n = threadIdx.x; n < S::LEFT / 4; n += THREADS) {
        float4 sum = __ldcg(room_at<S>(call, first, is_other, time) + n);
        for (uint32_t block = first + 1; block <= last; block += PARTS_AT_ONCE) {
            float4 v[PARTS_AT_ONCE] = {};
#pragma unroll
            for (uint32_t i = 0; i < PARTS_AT_ONCE; i++)
                if (block + i <= last) v[i] = __ldcg(room_at<S>(call, block + i, false, time) + n);
#pragma unroll
            for (uint32_t i = 0; i < PARTS_AT_ONCE; i++)
                sum.x += v[i].x, sum.y += v[i].y, sum.z += v[i].z, sum.w += v[i].w;
        }
        ((float4 *)left)[n] = sum;
    }
    __syncthreads();
}

template <class S>
__device__ static inline void leave(const struct cuda_grouped_few &call,
                                    const struct few_piece &piece, const struct few_sums<S> &sums,
                                    float *left, uint32_t tile) {
    const uint32_t begin = tile * piece.groups, end = begin + piece.groups;
    const bool is_whole = piece.first <= begin && piece.end >= end;
#pragma unroll 1
    for (int time = 0; time < S::LEFT_TIMES; time++) {
        gather<S>(left, sums, time);
        if (is_whole) {
            store_rows<S>(call, left, CHAINS, tile, time);
            continue;
        }
        float4 *to = room_at<S>(call, blockIdx.x, piece.first < begin, time);
        for (uint32_t n = threadIdx.x; n < S::LEFT / 4; n += THREADS) to[n] = chained<S>(left, n);
        __syncthreads();
    }
    if (is_whole) return;
    const uint32_t blocks = block_of(piece.total, end - 1) - block_of(piece.total, begin) + 1;
    if (!is_last(call.room.counts + tile, blocks)) return;
#pragma unroll 1
    for (int time = 0; time < S::LEFT_TIMES; time++) {
        add_parts<S>(call, piece, left, tile, time);
        store_rows<S>(call, left, 1, tile, time);
    }
}

/* The group of a tile that comes behind this one, of this tile or the next. */
__device__ static inline uint32_t group_behind(uint32_t group, uint32_t groups) {
    group += GROUP_WARPS;
    while (group >= groups) group -= groups;
    return group;
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1) grouped_pieces(struct cuda_grouped_few call) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const struct few_piece piece = piece_of(call.weights);
    struct few_source source = source_of<S>(piece, call.weights);
    const struct few_rows<S> from = rows_of<S>(call);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const char *ring = cuda_memory + warp * S::DEPTH * S::GROUP_BYTES;
    float *left = (float *)(cuda_memory + S::RING_BYTES);
    const uint32_t memory = cuda_shared_address(ring) + lane * 16;
    struct few_group<S> group = {};
    for (uint32_t i = 0; i + 1 < S::DEPTH; i++)
        fetch<S>(&source, call.weights, piece.groups, memory + i * S::GROUP_BYTES);
    uint32_t tile = piece.first / piece.groups, at = piece.first % piece.groups + warp / LINE_WARPS;
    uint32_t place = 0, before = (S::DEPTH - 1) * S::GROUP_BYTES; /* in the ring */
    wait_for_before(); /* which wrote the rows, and may have used the room */
    let_next_start();
    bring_rows<S>(group.rows, from, at % piece.groups);
    for (; tile * piece.groups < piece.end; tile++) {
        const uint32_t end = min(piece.groups, piece.end - tile * piece.groups);
        struct few_sums<S> sums = {};
        for (; at < end; at += GROUP_WARPS) {
            cuda_copy_wait<S::DEPTH - 2>();
            __syncwarp(); /* the group is there, and nobody reads the one before any more */
            fetch<S>(&source, call.weights, piece.groups, memory + before);
            read_codes<S>(&group, ring + place + lane * 16, ring + place + lane / 4 * 16);
            use_group<S>(&sums, group);
            bring_rows<S>(group.rows, from, group_behind(at, piece.groups));
            before = place;
            place = place + S::GROUP_BYTES < S::DEPTH * S::GROUP_BYTES ? place + S::GROUP_BYTES : 0;
        }
        at -= min(at, piece.groups);
        leave<S>(call, piece, sums, left, tile);
    }
    cuda_copy_wait<0>();
}

/* ---- launches ---- */

template <class S>
static enum err launch_pieces(const struct cuda_grouped_few *call, cudaStream_t stream,
                              struct error *error) {
    const uint32_t tiles = (call->weights.lines + GROUPED_TILE - 1) / GROUPED_TILE;
    const uint32_t groups = tiles * (call->weights.inputs / GROUPED_INPUTS);
    return cuda_launch<grouped_pieces<S>>("grouped product", std::min(call->room.blocks, groups),
                                          THREADS, S::SHARED_BYTES, stream, error, *call);
}

template <int KIND>
static enum err launch_kind(const struct cuda_grouped_few *call, cudaStream_t stream,
                            struct error *error) {
    struct cuda_grouped_few some = *call;
    enum err err = OK;
    for (uint32_t row = 0; row < call->rows && err == OK; row += GROUPED_ROWS) {
        some.rows = std::min(call->rows - row, GROUPED_ROWS);
        some.in = call->in + row * call->in_stride;
        some.y = call->y + row * call->y_stride;
        err = some.rows > 16  ? launch_pieces<piece_shape<KIND, 4>>(&some, stream, error)
              : some.rows > 8 ? launch_pieces<piece_shape<KIND, 2>>(&some, stream, error)
                              : launch_pieces<piece_shape<KIND, 1>>(&some, stream, error);
    }
    return err;
}

enum err cuda_grouped_pieces(const struct cuda_grouped_few *call, struct CUstream_st *stream,
                             struct error *error) {
    if (call->rows == 0 || call->weights.lines == 0) return OK;
    if (call->weights.kind == GROUPED_NOT || call->weights.inputs % GROUPED_INPUTS != 0 ||
        call->weights.inputs == 0 || call->room.blocks == 0 || call->in_stride % 8 != 0 ||
        ((uintptr_t)call->in & 15u) != 0)
        return err_set(error, ERR_INVALID, "no product of %u rows with %u x %u codes here",
                       call->rows, call->weights.lines, call->weights.inputs);
    switch (call->weights.kind) {
    case GROUPED_MINIMA: return launch_kind<GROUPED_MINIMA>(call, stream, error);
    case GROUPED_ZEROS: return launch_kind<GROUPED_ZEROS>(call, stream, error);
    case GROUPED_E2M1: return launch_kind<GROUPED_E2M1>(call, stream, error);
    default: return launch_kind<GROUPED_BYTES>(call, stream, error);
    }
}

CUDA_MODULE(grouped_pieces, grouped_pieces<piece_shape<GROUPED_MINIMA, 1>>)

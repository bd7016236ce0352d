/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grouped_end: how the pieces of a product (grouped_pieces.cu) leave the sums of a tile, whose
 * shapes S are those of the kernel.
 *
 * The TURNS warps of a block with the same lines end a tile on their own; no warp waits for one
 * with other lines. A tile that is not its block's last ends in the last of these warps, and the
 * others go on with the next one. In the block's last tile, where nobody has anything else to do,
 * all of them share the additions. Sums are added in one order: the warps of a block by turn, and
 * the blocks of a tile by index; so a product has the same bits each time.
 *
 * The first block of a tile comes to it last, so what the others left is mostly there by then, and
 * its own sums need not go to the room. Otherwise the last to come adds all.
 *
 * Order of memory, between blocks. (1) All lanes store a part; a meeting of their warps, or
 * __syncwarp where one warp stored all, puts these stores before the one lane that signs. (2) It
 * signs by an addition with acquire and release, which hands on all that it knows to be written.
 * (3) Signs of a tile are one chain of additions to one word, so a lane that finds by acquire that
 * all others have signed sees all their parts. (4) A meeting or __syncwarp puts this before the
 * loads of the other lanes, which are past the L1. (5) Whoever finds a count full takes it back to
 * zero when nobody adds to it any more, and the next product looks at it behind wait_for_before.
 *
 * Within a block: a warp that is not the last of its turns writes its sums over those of the tile
 * before only behind AT_FREE, to which the last one comes when it has read them. It cannot come
 * twice before they do, since in between it waits for them at AT_ENDING; nor can they come there
 * twice, since in between they wait for it at AT_FREE. Sums of the block's last tile lie in each
 * warp's own ring, where its last copies have come and only its own lanes read before.
 *
 * Memory: `left` in shared memory, (TURNS - 1, LEFT) float32; the rings; the room of the call.
 * Invariant: counts of the room are zeros before and behind each product. */

#include "gpu/cuda/grouped_pair.cuh"
#include "gpu/cuda/meet.cuh"

#define PARTS_AT_ONCE 4u /* loads under way */

/* The meetings of the warps with the same lines: these, and those of the next line warps behind
 * them. Meeting 0 is __syncthreads. */
#define AT_ENDING 1u
#define AT_FREE 5u
#define LINE_WARPS_ALL 4

/* ---- pieces ---- */

/* Pairs of groups of tiles, one tile behind the other, that a block has. */
struct few_piece {
    uint32_t pairs;      /* in a tile */
    uint32_t total;      /* in all tiles */
    uint32_t first, end; /* this block has */
};

__device__ static inline uint32_t piece_begin(uint32_t total, uint32_t block) {
    return (uint32_t)((uint64_t)total * block / gridDim.x);
}

/* The block whose piece has that pair. */
__device__ static inline uint32_t block_of(uint32_t total, uint32_t pair) {
    return (uint32_t)((((uint64_t)pair + 1) * gridDim.x - 1) / total);
}

__device__ static inline struct few_piece piece_of(const struct cuda_grouped &weights) {
    struct few_piece ret;
    ret.pairs = weights.inputs / (2 * GROUPED_INPUTS);
    ret.total = (weights.lines + GROUPED_TILE - 1) / GROUPED_TILE * ret.pairs;
    ret.first = piece_begin(ret.total, blockIdx.x);
    ret.end = piece_begin(ret.total, blockIdx.x + 1);
    return ret;
}

/* Which blocks have a tile. */
struct tile_blocks {
    uint32_t first, count;
    bool is_other; /* the first has begun in another */
};

__device__ static inline struct tile_blocks blocks_of(const struct few_piece &piece,
                                                      uint32_t tile) {
    const uint32_t begin = tile * piece.pairs, first = block_of(piece.total, begin);
    return {first, block_of(piece.total, begin + piece.pairs - 1) - first + 1,
            piece_begin(piece.total, first) < begin};
}

/* ---- warps ---- */

/* What a lane has of a tile: EACH times four sums, of which it shares with TURNS warps. */
struct end_lane {
    uint32_t lane, line_warp, own; /* its turn */
    bool is_speaker;               /* signs and looks for the warps with its lines */
};

template <class S> __device__ static inline struct end_lane lane_here(void) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp / S::LINE_WARPS;
    return {lane, warp % S::LINE_WARPS, own, own == S::TURNS - 1 && lane == 0};
}

template <class S> __device__ static inline void meet(uint32_t at, const struct end_lane &is) {
    cuda_meet_at(at + is.line_warp, S::TURNS * 32);
}

template <class S> __device__ static inline void pass(uint32_t at, const struct end_lane &is) {
    cuda_pass_at(at + is.line_warp, S::TURNS * 32);
}

template <class S> __device__ static inline float4 four_of(const struct pair_sums<S> &sums, int i) {
    const float(&four)[4] = sums.at[i / S::EIGHTS][i % S::EIGHTS];
    return make_float4(four[0], four[1], four[2], four[3]);
}

__device__ static inline void add_four(float4 *sum, const float4 &v) {
    sum->x += v.x, sum->y += v.y, sum->z += v.z, sum->w += v.w;
}

/* A warp's sums I of sixteen lines and eight rows, four a lane, as y has them. */
template <class S>
__device__ static inline void store_four(const struct cuda_grouped_few &call, uint32_t tile,
                                         uint32_t line_warp, uint32_t i, float4 sum) {
    constexpr float BY = pair_kind<S::KIND>::SUM_SCALE;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t words[2] = {cuda_transpose(cuda_pack_bf16(sum.x * BY, sum.y * BY)),
                               cuda_transpose(cuda_pack_bf16(sum.z * BY, sum.w * BY))};
    const uint32_t row = i % S::EIGHTS * 8 + lane / 4;
    const uint32_t line = tile * GROUPED_TILE + line_warp * (S::BLOCKS * GROUPED_LINES) +
                          i / S::EIGHTS * 16 + lane % 4 * 2;
    if (row >= call.rows) return;
    uint16_t *y = call.y + row * call.y_stride;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t at = line + half * 8;
        if (at + 1 < call.weights.lines && ((uintptr_t)call.y & 3u) == 0) {
            *(uint32_t *)(y + at) = words[half];
            continue;
        }
        if (at < call.weights.lines) y[at] = (uint16_t)words[half];
        if (at + 1 < call.weights.lines) y[at + 1] = (uint16_t)(words[half] >> 16);
    }
}

/* ---- the room ---- */

/* A block's part of a tile: its first tile's, or another's. */
__device__ static inline float4 *room_at(const struct cuda_grouped_few &call, uint32_t block,
                                         bool is_other) {
    return (float4 *)(call.room.sums +
                      ((size_t)block * 2 + is_other) * (GROUPED_TILE * GROUPED_ROWS));
}

/* Adds what blocks of the tile from the second on left, in their order: `have` times four sums,
 * `apart` in the room. Parts that are not there are not loaded. */
template <int COUNT>
__device__ static inline void add_parts(float4 (&sums)[COUNT], const struct cuda_grouped_few &call,
                                        const struct tile_blocks &blocks, uint32_t n,
                                        uint32_t apart, uint32_t have) {
    for (uint32_t b = 1; b < blocks.count; b += PARTS_AT_ONCE) {
        float4 v[PARTS_AT_ONCE][COUNT] = {};
#pragma unroll
        for (uint32_t j = 0; j < PARTS_AT_ONCE; j++)
#pragma unroll
            for (uint32_t k = 0; k < COUNT; k++)
                if (b + j < blocks.count && k < have)
                    v[j][k] = __ldcg(room_at(call, blocks.first + b + j, false) + n + k * apart);
#pragma unroll
        for (uint32_t j = 0; j < PARTS_AT_ONCE; j++)
#pragma unroll
            for (uint32_t k = 0; k < COUNT; k++) add_four(&sums[k], v[j][k]);
    }
}

/* A tile has a word, with a byte for each line warp: how many blocks have signed. */
__device__ static inline uint32_t own_count(uint32_t count, uint32_t line_warp) {
    return count >> (8 * line_warp) & 255u;
}

/* One lane: signs that a part is in the room. Whether it was the last. */
__device__ static inline bool sign(uint32_t *count, uint32_t blocks, uint32_t line_warp) {
    static_assert(GROUPED_BLOCKS_MAX < 256, "a byte counts them");
    const uint32_t before = cuda_add_in_order(count, 1u << (8 * line_warp));
    if (own_count(before, line_warp) != blocks - 1) return false;
    (void)atomicAdd(count, 0u - (blocks << (8 * line_warp))); /* for the next product */
    return true;
}

/* One lane of the first block: whether all others have signed. */
__device__ static inline bool look(uint32_t *count, uint32_t blocks, uint32_t line_warp) {
    if (own_count(cuda_read_in_order(count), line_warp) != blocks - 1) return false;
    (void)atomicAdd(count, 0u - ((blocks - 1) << (8 * line_warp))); /* for the next product */
    return true;
}

/* ---- a tile that is not the block's last ---- */

/* One warp with the sums of all: leaves a part of the tile, and adds all parts if it is the last.
 */
template <class S>
__device__ static inline void
leave_part(const struct cuda_grouped_few &call, const struct few_piece &piece,
           const float4 (&all)[S::EACH], uint32_t tile, const struct end_lane &is) {
    const struct tile_blocks blocks = blocks_of(piece, tile);
    const uint32_t n = is.line_warp * S::EACH * 32 + is.lane;
    float4 *to = room_at(call, blockIdx.x, false) + n;
#pragma unroll
    for (int i = 0; i < S::EACH; i++) to[i * 32] = all[i];
    __syncwarp();
    bool is_last = false;
    if (is.lane == 0) is_last = sign(call.room.counts + tile, blocks.count, is.line_warp);
    if (!__any_sync(CUDA_ALL_LANES, is_last)) return;
    __syncwarp();
    for (int i = 0; i < S::EACH; i++) {
        float4 one[1] = {__ldcg(room_at(call, blocks.first, blocks.is_other) + n + i * 32)};
        add_parts(one, call, blocks, n + i * 32, 0, 1);
        store_four<S>(call, tile, is.line_warp, (uint32_t)i, one[0]);
    }
}

template <class S>
__device__ static inline void
leave_behind(const struct cuda_grouped_few &call, const struct few_piece &piece,
             const struct pair_sums<S> &sums, float *left, uint32_t tile, bool is_later) {
    constexpr int OTHERS = S::TURNS - 1;
    const struct end_lane is = lane_here<S>();
    float4 *slots = (float4 *)left + is.line_warp * S::EACH * 32 + is.lane;
    if (is.own < OTHERS) {
        if (is_later) meet<S>(AT_FREE, is);
#pragma unroll
        for (int i = 0; i < S::EACH; i++)
            slots[is.own * (S::LEFT / 4) + i * 32] = four_of<S>(sums, i);
        pass<S>(AT_ENDING, is);
        return;
    }
    meet<S>(AT_ENDING, is);
    float4 all[S::EACH];
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
        all[i] = slots[i * 32];
#pragma unroll
        for (int t = 1; t < OTHERS; t++) add_four(&all[i], slots[t * (S::LEFT / 4) + i * 32]);
        add_four(&all[i], four_of<S>(sums, i));
    }
    pass<S>(AT_FREE, is);
    if (piece.first > tile * piece.pairs) { /* others have begun the tile */
        leave_part<S>(call, piece, all, tile, is);
        return;
    }
#pragma unroll
    for (int i = 0; i < S::EACH; i++) store_four<S>(call, tile, is.line_warp, (uint32_t)i, all[i]);
}

/* ---- the block's last tile ---- */

/* A lane's share of the sums of its line warp: every TURNS-th four. */
template <class S> struct end_share {
    static constexpr uint32_t MOST = (S::EACH + S::TURNS - 1) / S::TURNS;
    static constexpr uint32_t APART = S::TURNS * 32; /* in a part, in units of four sums */
    float4 of[MOST];
    uint32_t have, n; /* n: where the first is in a part */
};

/* Adds the sums of the warps with the same lines, by way of their rings. */
template <class S>
__device__ static inline struct end_share<S> share_of(const struct pair_sums<S> &sums, char *rings,
                                                      bool is_later, const struct end_lane &is) {
    constexpr uint32_t RING = S::DEPTH * S::PAIR_BYTES;
    static_assert(S::EACH * 512 <= RING, "a warp's sums have room in its ring");
    struct end_share<S> ret = {};
    ret.have = (S::EACH - is.own + S::TURNS - 1) / S::TURNS;
    ret.n = (is.line_warp * S::EACH + is.own) * 32 + is.lane;
    cuda_copy_wait<0>();
    __syncwarp();
    float4 *mine = (float4 *)(rings + threadIdx.x / 32 * RING) + is.lane;
#pragma unroll
    for (int i = 0; i < S::EACH; i++) mine[i * 32] = four_of<S>(sums, i);
    if (is_later && is.own < S::TURNS - 1) meet<S>(AT_FREE, is); /* none is left half full */
    meet<S>(AT_ENDING, is);
#pragma unroll
    for (uint32_t k = 0; k < end_share<S>::MOST; k++)
#pragma unroll
        for (uint32_t t = 0; t < S::TURNS; t++) {
            const char *ring = rings + (t * S::LINE_WARPS + is.line_warp) * RING;
            if (k < ret.have)
                add_four(&ret.of[k],
                         ((const float4 *)ring)[(is.own + k * S::TURNS) * 32 + is.lane]);
        }
    return ret;
}

template <class S>
__device__ static inline void
leave_last(const struct cuda_grouped_few &call, const struct few_piece &piece,
           const struct pair_sums<S> &sums, char *rings, uint32_t tile, bool is_later) {
    using share = end_share<S>;
    static_assert(S::LINE_WARPS == LINE_WARPS_ALL, "meetings and bytes of a count");
    CUDA_SHARED uint32_t seen[LINE_WARPS_ALL];
    const struct end_lane is = lane_here<S>();
    const uint32_t begin = tile * piece.pairs;
    const bool is_first = piece.first <= begin;
    const bool is_whole = is_first && piece.end >= begin + piece.pairs;
    const struct tile_blocks blocks = blocks_of(piece, tile);
    uint32_t *count = call.room.counts + tile;
    if (is.is_speaker)
        seen[is.line_warp] = is_first && !is_whole && look(count, blocks.count, is.line_warp);
    struct end_share<S> sum = share_of<S>(sums, rings, is_later, is);
    if (!is_whole && seen[is.line_warp]) {
        add_parts(sum.of, call, blocks, sum.n, share::APART, sum.have);
    } else if (!is_whole) {
        float4 *to = room_at(call, blockIdx.x, piece.first < begin) + sum.n;
#pragma unroll
        for (uint32_t k = 0; k < share::MOST; k++)
            if (k < sum.have) to[k * share::APART] = sum.of[k];
        meet<S>(AT_ENDING, is);
        if (is.is_speaker) seen[is.line_warp] = sign(count, blocks.count, is.line_warp);
        meet<S>(AT_ENDING, is);
        if (!seen[is.line_warp]) return;
        const float4 *from = room_at(call, blocks.first, blocks.is_other) + sum.n;
#pragma unroll
        for (uint32_t k = 0; k < share::MOST; k++)
            if (k < sum.have) sum.of[k] = __ldcg(from + k * share::APART);
        add_parts(sum.of, call, blocks, sum.n, share::APART, sum.have);
    }
#pragma unroll
    for (uint32_t k = 0; k < share::MOST; k++)
        if (k < sum.have) store_four<S>(call, tile, is.line_warp, is.own + k * S::TURNS, sum.of[k]);
}

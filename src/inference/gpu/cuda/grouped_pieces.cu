/* SPDX-License-Identifier: Apache-2.0 */

/* grouped_pieces: the product of few rows with a large matrix of codes in groups (grouped.h), bound
 * by the read of the codes.
 *
 * A block stays on each multiprocessor. Tiles of 256 lines by all groups of their inputs are cut
 * into as many pieces of equal length as there are blocks, so that all of them read until the end;
 * a piece may begin in one tile and end in another. A warp has the BLOCKS of its lines in every
 * TURNS-th pair of groups of the piece. Warps with the same pairs and different lines get the rows
 * from the L1. A warp has a ring in shared memory of its own, so that enough codes are on their
 * way: for a whole H200 some 35 KB per multiprocessor. Nothing in the loop waits for another warp.
 * The rows of a pair come to registers, behind the pair before.
 *
 * Warps with the same lines add their sums at the end of a tile, in a fixed order, and blocks those
 * of a tile that they share (grouped_end.cuh).
 *
 * Invariant: counts of the room are zeros before and behind each product. */

#include "gpu/cuda/grouped_end.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"

static_assert(GROUPED_ROWS == 16, "two eights");

/* BLOCKS of lines that a warp has. TURNS: warps with the same lines, which take pairs by turns.
 * DEPTH: pairs in a warp's ring. */
template <int KIND_, int EIGHTS_, int BLOCKS_, int TURNS_, int DEPTH_> struct piece_shape {
    static constexpr int KIND = KIND_, EIGHTS = EIGHTS_, BLOCKS = BLOCKS_, TURNS = TURNS_;
    static constexpr int TILE_BLOCKS = (int)(GROUPED_TILE / GROUPED_LINES);
    static constexpr int LINE_WARPS = TILE_BLOCKS / BLOCKS; /* with the same pairs */
    static constexpr int THREADS = LINE_WARPS * TURNS * 32;
    static constexpr int EACH = BLOCKS * 2 * EIGHTS; /* times four sums that a lane has */
    static constexpr int PARTS = KIND == GROUPED_BYTES ? 2 : 1; /* scales of a line in a group */
    static constexpr uint32_t BLOCK_BYTES = 2 * (PARTS * 512 + GROUPED_SCALE_BYTES); /* a pair's */
    static constexpr uint32_t PAIR_BYTES = BLOCKS * BLOCK_BYTES, DEPTH = DEPTH_;
    static constexpr uint32_t RING_BYTES = LINE_WARPS * TURNS * DEPTH * PAIR_BYTES;
    static constexpr int LEFT = (int)GROUPED_TILE * EIGHTS * 8; /* sums of a tile */
    static constexpr uint32_t SHARED_BYTES = RING_BYTES + (TURNS - 1) * LEFT * sizeof(float);
};

/* Measured on an H200 (docs/measurements/gpu-kernels.md); and what a block of every GPU has room
 * for, 99 KiB. */
template <int KIND, int EIGHTS>
using large_shape = piece_shape<KIND, EIGHTS, 2, 3, KIND == GROUPED_BYTES ? 2 : 3>;
template <int KIND, int EIGHTS>
using small_shape = piece_shape<KIND, EIGHTS, 2, 2, KIND == GROUPED_BYTES ? 2 : 4>;

/* ---- codes ---- */

/* Where a lane's next codes and scales are. */
template <class S> struct few_source {
    const char *codes;           /* those of the warp's first block */
    uint32_t further[S::BLOCKS]; /* by which those of the others are further on */
    const char *scales;          /* lanes 0..15 have those of even blocks, the others of odd ones */
    uint32_t tile, pair, left;   /* pairs that are left for this warp */
};

/* Blocks behind the last are the last, whose results are not left. */
template <class S>
__device__ static inline void source_turn(struct few_source<S> *source,
                                          const struct cuda_grouped &weights, uint32_t pairs) {
    const uint32_t last = (weights.lines - 1) / GROUPED_LINES, lane = threadIdx.x % 32;
    const uint32_t first =
        source->tile * S::TILE_BLOCKS + threadIdx.x / 32 % S::LINE_WARPS * S::BLOCKS;
    const size_t bytes = grouped_block_bytes<S::KIND>(2 * pairs);
    const char *block = (const char *)weights.at + min(first, last) * bytes;
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++)
        source->further[b] = (min(first + b, last) - min(first, last)) * (uint32_t)bytes;
    source->codes = block + source->pair * (S::PARTS * 1024) + lane * 16;
    source->scales = block + (lane < 16 ? 0 : source->further[1]) +
                     (size_t)pairs * (S::PARTS * 1024) + source->pair * (2 * GROUPED_SCALE_BYTES) +
                     lane % 16 * 16;
}

template <class S>
__device__ static inline struct few_source<S> source_of(const struct few_piece &piece,
                                                        const struct cuda_grouped &weights) {
    struct few_source<S> ret;
    const uint32_t at = piece.first + threadIdx.x / 32 / S::LINE_WARPS;
    ret.tile = at / piece.pairs, ret.pair = at % piece.pairs;
    ret.left = at < piece.end ? (piece.end - at + S::TURNS - 1) / S::TURNS : 0;
    source_turn<S>(&ret, weights, piece.pairs);
    return ret;
}

/* A pair's codes and scales on their way into a place of the ring; nothing behind the last. `to`
 * is that place's for this lane's codes. */
template <class S>
__device__ static inline void fetch(struct few_source<S> *source,
                                    const struct cuda_grouped &weights, uint32_t pairs,
                                    uint32_t to) {
    if (source->left > 0) {
        const uint32_t odd = threadIdx.x % 32 < 16 ? 0 : 1;
#pragma unroll
        for (int b = 0; b < S::BLOCKS; b++)
#pragma unroll
            for (int p = 0; p < 2 * S::PARTS; p++)
                cuda_copy16(to + b * S::BLOCK_BYTES + p * 512,
                            source->codes + source->further[b] + p * 512);
#pragma unroll
        for (int b = 0; b < S::BLOCKS; b += 2)
            cuda_copy16(to + b * S::BLOCK_BYTES + S::PARTS * 1024 +
                            odd * (S::BLOCK_BYTES - 2 * GROUPED_SCALE_BYTES),
                        source->scales + (odd ? source->further[b + 1] - source->further[1]
                                              : source->further[b]));
        source->codes += S::TURNS * S::PARTS * 1024;
        source->scales += S::TURNS * 2 * GROUPED_SCALE_BYTES;
        source->left--;
        source->pair += S::TURNS;
        if (source->pair >= pairs) {
            for (; source->pair >= pairs; source->pair -= pairs) source->tile++;
            source_turn<S>(source, weights, pairs);
        }
    }
    cuda_copy_commit();
}

/* ---- rows ---- */

template <class S>
__device__ static inline struct pair_source<S> rows_of(const struct cuda_grouped_few &call,
                                                       uint32_t pair) {
    struct pair_source<S> ret;
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++)
        ret.at[e] = call.in + min(e * 8 + g, call.rows - 1) * call.in_stride +
                    pair * (2 * GROUPED_INPUTS) + t * (S::PARTS == 2 ? 4 : 8);
    return ret;
}

/* On to the pair behind `pair`, of this tile or the next. */
template <class S>
__device__ static inline void rows_turn(struct pair_source<S> *from, uint32_t pair,
                                        uint32_t pairs) {
    int by = S::TURNS;
    for (pair += S::TURNS; pair >= pairs; pair -= pairs) by -= (int)pairs;
#pragma unroll
    for (int e = 0; e < S::EIGHTS; e++) from->at[e] += by * (int)(2 * GROUPED_INPUTS);
}

/* A pair; rows of the next come behind it. */
template <class S>
__device__ static inline void use_pair(struct pair_sums<S> *sums, struct pair_rows<S> *rows,
                                       const struct pair_source<S> &from, const char *ring) {
    struct row_sums<S> of_rows = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        enlarge<S>(rows->of[i]);
        add_row_sums<S>(&of_rows, rows->of[i], i);
        use_group<S>(sums, ring, rows->of[i], i);
        bring_group<S>(rows->of[i], from, i);
    }
    add_minima<S>(sums, of_rows, ring);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) grouped_pieces(struct cuda_grouped_few call) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const struct few_piece piece = piece_of(call.weights);
    struct few_source<S> source = source_of<S>(piece, call.weights);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const char *ring = cuda_memory + warp * S::DEPTH * S::PAIR_BYTES;
    float *left = (float *)(cuda_memory + S::RING_BYTES);
    const uint32_t memory = cuda_shared_address(ring) + lane * 16;
    struct pair_rows<S> rows;
    for (uint32_t i = 0; i + 1 < S::DEPTH; i++)
        fetch<S>(&source, call.weights, piece.pairs, memory + i * S::PAIR_BYTES);
    uint32_t tile = piece.first / piece.pairs,
             at = piece.first % piece.pairs + warp / S::LINE_WARPS;
    uint32_t place = 0, before = (S::DEPTH - 1) * S::PAIR_BYTES; /* in the ring */
    wait_for_before(); /* which wrote the rows, and may have used the room */
    let_next_start();
    struct pair_source<S> from = rows_of<S>(call, at % piece.pairs);
    bring_group<S>(rows.of[0], from, 0);
    bring_group<S>(rows.of[1], from, 1);
    bool is_later = false;
    for (; tile * piece.pairs < piece.end; tile++) {
        const uint32_t end = min(piece.pairs, piece.end - tile * piece.pairs);
        struct pair_sums<S> sums = {};
#pragma unroll 1
        for (; at < end; at += S::TURNS) {
            cuda_copy_wait<S::DEPTH - 2>();
            __syncwarp(); /* the pair is there, and nobody reads the one before any more */
            fetch<S>(&source, call.weights, piece.pairs, memory + before);
            rows_turn<S>(&from, at, piece.pairs);
            use_pair<S>(&sums, &rows, from, ring + place);
            before = place;
            place = place + S::PAIR_BYTES < S::DEPTH * S::PAIR_BYTES ? place + S::PAIR_BYTES : 0;
        }
        at -= min(at, piece.pairs);
        if ((tile + 1) * piece.pairs < piece.end)
            leave_behind<S>(call, piece, sums, left, tile, is_later);
        else
            leave_last<S>(call, piece, sums, cuda_memory, tile, is_later);
        is_later = true;
    }
}

/* ---- launches ---- */

template <class S>
static enum err launch_pieces(const struct cuda_grouped_few *call, cudaStream_t stream,
                              struct error *error) {
    const uint32_t tiles = (call->weights.lines + GROUPED_TILE - 1) / GROUPED_TILE;
    const uint32_t pairs = tiles * (call->weights.inputs / (2 * GROUPED_INPUTS));
    return cuda_launch<grouped_pieces<S>>("grouped product", std::min(call->room.blocks, pairs),
                                          S::THREADS, S::SHARED_BYTES, stream, error, *call);
}

template <int KIND, int EIGHTS>
static enum err launch_rows(const struct cuda_grouped_few *call, cudaStream_t stream,
                            struct error *error) {
    if (cuda_has_shared(large_shape<KIND, EIGHTS>::SHARED_BYTES))
        return launch_pieces<large_shape<KIND, EIGHTS>>(call, stream, error);
    return launch_pieces<small_shape<KIND, EIGHTS>>(call, stream, error);
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
        err = some.rows > 8 ? launch_rows<KIND, 2>(&some, stream, error)
                            : launch_rows<KIND, 1>(&some, stream, error);
    }
    return err;
}

enum err cuda_grouped_pieces(const struct cuda_grouped_few *call, struct CUstream_st *stream,
                             struct error *error) {
    if (call->rows == 0 || call->weights.lines == 0) return OK;
    if (call->weights.kind == GROUPED_NOT || call->weights.inputs % (2 * GROUPED_INPUTS) != 0 ||
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

CUDA_MODULE(grouped_pieces, grouped_pieces<small_shape<GROUPED_MINIMA, 1>>)
